"""The package as users import it: without the type checker that tests install at import."""

import importlib
import sys


def import_as_users_do(*names):
    """A second copy of the modules named, without the type checker.

    It would refuse arguments of the wrong type before the package can say what was wrong.
    """
    ours = {name: m for name, m in sys.modules.items() if name.split(".")[0] == "counterflow"}
    finders = [f for f in sys.meta_path if type(f).__module__.startswith("jaxtyping")]
    for name in ours:
        del sys.modules[name]
    for finder in finders:
        sys.meta_path.remove(finder)
    try:
        return [importlib.import_module(name) for name in names]
    finally:
        sys.meta_path[:0] = finders
        for name in [n for n in sys.modules if n.split(".")[0] == "counterflow"]:
            del sys.modules[name]
        sys.modules.update(ours)
