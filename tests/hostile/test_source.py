"""Nothing that is read can be carried out: the package has no way to make code of data."""

import ast
from pathlib import Path

import counterflow

SOURCE = sorted(Path(counterflow.__file__).parent.rglob("*.py"))
# What makes objects of any kind from bytes, or programs from text.
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "yaml"}
CALLS = {"eval", "exec", "compile", "__import__", "torch.load"}
SHELLS = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").split(".")[0]


def called(tree):
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


def test_no_file_imports_what_makes_objects_of_bytes():
    assert len(SOURCE) > 100
    for path in SOURCE:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert not MODULES & set(imported(tree)), path


def test_no_file_calls_what_makes_programs_of_text():
    for path in SOURCE:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert not (CALLS | SHELLS) & called(tree), path
        words = [node for node in ast.walk(tree) if isinstance(node, ast.keyword)]
        names = {word.arg for word in words}
        assert not {"allow_pickle", "shell"} & names, path
