"""The house rules that a machine can check: who imports whom, and that public means documented."""

import ast
import dataclasses
import functools
import importlib.metadata
import inspect
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
SOURCE = TOP / "src" / "counterflow"

# Each package imports only from columns to its left; neighbours in a column are strangers.
COLUMNS = (
    ("problem",),
    ("counter_terms",),
    ("dynamics",),
    ("solvers",),
    ("errors", "symmetries"),
    ("data", "networks", "monitor", "equinox", "flax", "torch"),
    ("runs",),
    ("experiments",),
    ("report",),
    ("sweeps",),
    ("cli",),
)
COLUMN_OF = {package: i for i, column in enumerate(COLUMNS) for package in column}


# --- the direction of imports ---------------------------------------------------------------


def imported_modules(source: str, package: str) -> list[tuple[int, str]]:
    """Line and absolute name of every module that `source`, a module in `package`, imports.

    `from a import b` counts as `a.b`: whether `b` is a module or a name in one, its package is
    the same, except for names taken from the root, which must be modules.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*(parents if node.level else []), *filter(None, [node.module])])
            found += [(node.lineno, f"{base}.{alias.name}") for alias in node.names]
    return found


def import_violations(source: str, path: str) -> list[str]:
    """What is wrong with the imports of `source`, the file at `path` below src/counterflow."""
    parts = path.removesuffix(".py").split("/")
    owner = parts[0]
    if owner in ("__init__", "__main__"):
        return []
    if owner not in COLUMN_OF:
        return [f"{path}: package `{owner}` has no column: add it to COLUMNS"]

    violations = []
    for line, module in imported_modules(source, ".".join(["counterflow", *parts[:-1]])):
        root, *inside = module.split(".")
        if root != "counterflow":
            continue
        target = inside[0] if inside else None
        if target not in COLUMN_OF:
            violations.append(f"{path}:{line}: imports `{module}` from the root package")
        elif target != owner and COLUMN_OF[target] >= COLUMN_OF[owner]:
            violations.append(f"{path}:{line}: `{owner}` must not import `{target}`")
    return violations


def test_imports_point_left():
    files = sorted(SOURCE.rglob("*.py"))
    assert files
    violations = [
        violation
        for file in files
        for violation in import_violations(
            file.read_text(encoding="utf-8"), file.relative_to(SOURCE).as_posix()
        )
    ]
    assert not violations, "\n".join(violations)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("problem/problem.py", "from ..dynamics import GradientFlow"),
        ("problem/problem.py", "from ..dynamics.flow import GradientFlow"),
        ("problem/problem.py", "from .. import dynamics"),
        ("problem/problem.py", "import counterflow.dynamics.flow"),
        ("problem/problem.py", "from counterflow.dynamics import GradientFlow"),
        ("problem/problem.py", "def f():\n    from ..solvers import solve"),
        ("problem/__init__.py", "from ..cli import main"),
        ("counter_terms/taylor/push.py", "from ...dynamics import GradientFlow"),
        ("errors/local.py", "from ..symmetries import Scale"),
        ("networks/mlp.py", "from ..data import digits"),
        ("cli.py", "import counterflow"),
        ("cli/main.py", "import counterflow as cf"),
        ("cli/main.py", "from counterflow import Problem"),
        ("cli/main.py", "from .. import Problem"),
        ("cli/main.py", "from .. import *"),
        ("plots/line.py", "import numpy"),
    ],
)
def test_a_wrong_import_is_found(path, source):
    assert len(import_violations(source, path)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("__init__.py", "from .cli import main as main"),
        ("problem/problem.py", "from . import tree\nfrom .tree import norm\nimport jax.numpy"),
        ("problem/__init__.py", "from .problem import Problem as Problem"),
        ("dynamics/flow.py", "from .. import problem\nfrom ..counter_terms.lie import lie"),
        ("cli.py", "from .experiments import accuracy\nimport counterflow.runs.store"),
        ("runs/store.py", "from counterflow import errors\nfrom ..networks import mlp"),
    ],
)
def test_a_right_import_passes(path, source):
    assert import_violations(source, path) == []


# --- public means listed and documented -----------------------------------------------------


def root_statements() -> list[ast.stmt]:
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    return tree.body[1:] if ast.get_docstring(tree) is not None else tree.body


def public_names() -> list[str]:
    return sorted(
        alias.name
        for statement in root_statements()
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
        if alias.asname == alias.name
    )


def public_object(name: str) -> object:
    import counterflow

    return getattr(counterflow, name)


def undocumented(thing: object) -> list[str]:
    """Names of `thing`, and of its public methods if it is a class, that have no docstring."""
    if inspect.isclass(thing):
        return [
            *([] if own_docstring(thing) else [thing.__name__]),
            *(
                f"{thing.__name__}.{method}"
                for method in public_methods(thing)
                if not method_docstring(thing, method)
            ),
        ]
    if callable(thing):
        return [] if documentation(thing) else [getattr(thing, "__name__", repr(thing))]
    return []  # a constant or a type has nowhere to keep a docstring


def documentation(thing: object) -> str | None:
    """The docstring of `thing`, not the one of its type."""
    text = getattr(thing, "__doc__", None)
    return None if text == type(thing).__doc__ else text


def own_docstring(cls: type) -> str | None:
    # A dataclass without a docstring is given its signature.
    text = vars(cls).get("__doc__")
    return None if text is None or text.startswith(f"{cls.__name__}(") else text


def public_methods(cls: type) -> list[str]:
    """Public methods and properties of `cls`, but not those of another library's base class."""
    library = cls.__module__.partition(".")[0]
    fields = {f.name for f in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    return [
        name
        for name in dir(cls)
        if not name.startswith("_") and name not in fields
        if any(
            base.__module__.partition(".")[0] == library and name in vars(base)
            for base in cls.__mro__
        )
        if callable(getattr(cls, name))
        or isinstance(getattr(cls, name), property | functools.cached_property)
    ]


def method_docstring(cls: type, name: str) -> str | None:
    """The method's docstring, or else the one of the interface it implements."""
    texts = (documentation(getattr(base, name)) for base in cls.__mro__ if name in vars(base))
    return next(filter(None, texts), None)


def test_the_root_only_lists_names():
    others = [
        ast.unparse(statement)
        for statement in root_statements()
        if not isinstance(statement, ast.ImportFrom)
        or any(alias.asname != alias.name for alias in statement.names)
    ]
    assert not others, f"write `from .x import y as y` instead of {others}"
    assert public_names()


@pytest.mark.parametrize("name", public_names())
def test_a_public_name_has_docstrings(name):
    missing = undocumented(public_object(name))
    assert not missing, f"without docstring: {missing}"


@pytest.mark.parametrize("name", public_names())
def test_a_public_name_is_in_the_documents(name):
    pages = [page for page in (TOP / "docs" / "api.md", TOP / "README.md") if page.exists()]
    assert any(
        re.search(rf"\bcf\.{re.escape(name)}\b", page.read_text(encoding="utf-8")) for page in pages
    ), f"docs/api.md or README.md must mention `cf.{name}`"


def test_a_missing_docstring_is_found():
    class Interface:
        """A documented interface."""

        def promised(self):
            """What every implementation returns."""

    @dataclasses.dataclass(frozen=True)
    class Silent(Interface):
        field: int

        def promised(self):
            pass

        def forgotten(self):
            pass

        @property
        def also_forgotten(self):
            pass

        @classmethod
        def built(cls):
            """Said."""

        def _private(self):
            pass

    def silent():
        pass

    assert undocumented(Interface) == []
    assert undocumented(Silent) == ["Silent", "Silent.also_forgotten", "Silent.forgotten"]
    assert undocumented(silent) == ["silent"]


# --- importing has no side effects, and versions agree --------------------------------------


def test_import_leaves_the_configuration_of_jax_alone():
    program = """
import jax
before = dict(jax.config.values)
assert before["jax_enable_x64"] is False
import counterflow
after = dict(jax.config.values)
changed = {name: (before.get(name), now) for name, now in after.items() if before.get(name) != now}
assert not changed, changed
"""
    environment = {name: value for name, value in os.environ.items() if name[:4] != "JAX_"}
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert run.returncode == 0, run.stderr


def test_without_pytorch_everything_imports_but_its_module_which_says_what_to_install():
    program = """
import sys

class WithoutPyTorch:
    def find_spec(self, name, *_):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, WithoutPyTorch())
import counterflow
try:
    import counterflow.torch
except ImportError as error:
    assert "pip install '.[torch]' in a clone" in str(error), error
else:
    raise AssertionError("imported without PyTorch")
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


def test_versions_agree():
    import counterflow

    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = (TOP / "CITATION.cff").read_text(encoding="utf-8")
    installed = importlib.metadata.version("counterflow")
    assert installed == project["version"]
    assert f"\nversion: {installed}\n" in citation
    assert getattr(counterflow, "__version__", installed) == installed
