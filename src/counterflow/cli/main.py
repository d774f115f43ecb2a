"""`counterflow`: the command line, from the same frozen configuration that is stored."""

import os
import shlex
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

import tyro
from rich.console import Console

from ..data.dataset import DataError
from ..runs.database import StoreError
from ..runs.export import CSV, NETCDF, export_csv, export_netcdf
from ..runs.processes import FirstFailed, is_first
from ..runs.run import open_run
from ..sweeps.cluster import ClusterError
from ..sweeps.page import write_sweep_report
from ..sweeps.sweep import is_sweep, open_sweep
from .memory import keep_freed_memory
from .own import run_command
from .printing import has_control_characters, printable
from .processes import LOST, SAID, has_parent
from .reproduce import reproduce_command
from .sweep import sweep_command
from .working import STOPPED, CommandError, finish


def init(path: tyro.conf.Positional[Path] = Path("my_model.py")) -> int:
    """Write a commented file to start from, for `counterflow run`.

    Args:
        path: Where to; a file that is there stays as it is.
    """
    if path.suffix != ".py":
        raise CommandError(f"the file must be a Python file, got {path}: give a name ending in .py")
    if path.exists():
        raise CommandError(f"{path} is there already: give another name")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(Path(__file__).with_name("starter.txt").read_bytes())
    to_run = f"counterflow run {path}:problem --learning-rate 1e-2 --steps 500"
    print(printable(f"written: {path}\nto run it: {to_run}"))
    return 0


def report(run: tyro.conf.Positional[Path]) -> int:
    """Write the report of a run or a sweep that is on disk, finished or not.

    Args:
        run: The folder of the run, such as runs/digits-quick-…, or of the sweep.
    """
    if is_sweep(run):
        sweep = open_sweep(run)
        with _understood(run):
            print(printable(f"report: {write_sweep_report(sweep)}"))
        return 0
    known = open_run(run)
    with _understood(run):
        finish(Console(), known)
    return 0


def export(run: tyro.conf.Positional[Path], folder: Path | None = None) -> int:
    """Write the series of a run as CSV and netCDF.

    Args:
        run: The folder of the run, such as runs/digits-quick-….
        folder: Where to write them; by default into the folder of the run.
    """
    known = open_run(run)
    place = run if folder is None else folder
    place.mkdir(parents=True, exist_ok=True)
    with _understood(run):
        for path in (export_csv(known, place / CSV), export_netcdf(known, place / NETCDF)):
            print(printable(str(path)))
    return 0


@contextmanager
def _understood(run: Path) -> Iterator[None]:
    """What is found in a run from elsewhere may be what no version of ours would write."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise StoreError(
            f"the run in {run} holds what this version does not understand "
            f"({type(error).__name__}: {error}): it was written by another version of counterflow, "
            "or not by counterflow"
        ) from error


def print_version() -> int:
    """Print the version."""
    print(version("counterflow"))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code of a command: 0 if it was done, whatever the verdicts; 130 if it was stopped.

    What was typed wrong gives 2, what could not be done 1.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _require_text(given)
        typed = _typed(given)
        return tyro.extras.subcommand_cli_from_dict(
            {
                "reproduce": reproduce_command(given, typed),
                "run": run_command(given, typed),
                "sweep": sweep_command(typed),
                "init": init,
                "report": report,
                "export": export,
                "version": print_version,
            },
            prog="counterflow",
            description="Predict gradient descent by differential equations.",
            args=given,
            config=(tyro.conf.FlagCreatePairsOff,),
        )
    except CommandError as error:
        return _failed(error, 2)
    except FirstFailed as error:
        return _failed(error, LOST if has_parent() else 1)
    except (ClusterError, DataError, StoreError, OSError) as error:
        return _failed(error, 1)
    except KeyboardInterrupt:
        return _failed("stopped", 130)


def run() -> None:
    """Runs the command that was typed, and ends the process."""
    keep_freed_memory()
    code = _code_for_the_parent() if has_parent() else main()
    if code == STOPPED or (code and has_parent()):
        # A compilation that is still at work would not survive an orderly end; and in one, JAX
        # would wait for the other processes, which may be waiting for this one.
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):  # nobody may be reading any more
                stream.flush()
        os._exit(code)
    sys.exit(code)


def _code_for_the_parent() -> int:
    """The exit code of one of several processes: it says whether there is more to be said."""
    try:
        code = main()
    except SystemExit as ended:  # by the parser, or because nobody reads what is printed
        code = ended.code if isinstance(ended.code, int) else 1
    except Exception:
        traceback.print_exc(file=sys.__stderr__)  # its log; what is left to say, its parent says
        return LOST
    # What another one than the first says is in its log.
    return code + SAID if code == STOPPED or (code and is_first()) else code


def _typed(given: Sequence[str]) -> str:
    """The command as text to be noted; an argument may hold any bytes."""
    return shlex.join(["counterflow", *given]).encode(errors="backslashreplace").decode()


def _failed(error: Exception | str, code: int) -> int:
    print(printable(f"counterflow: {error}"), file=sys.stderr)
    return code


def _require_text(arguments: Sequence[str]) -> None:
    """Raises if an argument holds what a parser would print as it is, and a terminal obey."""
    for argument in arguments:
        if has_control_characters(argument):
            raise CommandError(
                f"an argument must be text without control characters, got {argument!r:.200}: "
                "rename the file or folder"
            )
