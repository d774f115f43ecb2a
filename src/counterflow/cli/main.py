"""`counterflow`: the command line, from the same frozen configuration that is stored."""

import argparse
import difflib
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal, get_args

import jax
import tyro
from rich.console import Console

from ..data.dataset import DataError, load
from ..experiments.analyse import analyse, prepared, spread
from ..experiments.carry_out import Watcher
from ..experiments.experiment import Experiment
from ..experiments.registry import EXPERIMENTS, with_symmetries
from ..experiments.reproduce import reproduce as reproduce_experiments
from ..runs.analysis import Analysis, digest_of
from ..runs.configuration import Configuration, Data, Size, default_configuration
from ..runs.database import StoreError
from ..runs.export import CSV, NETCDF, export_csv, export_netcdf
from ..runs.processes import FirstFailed
from ..runs.run import Run, open_run
from ..sweeps.cluster import ClusterError
from ..sweeps.page import write_sweep_report
from ..sweeps.sweep import is_sweep, open_sweep
from .downloads import download_view
from .launch import PATIENCE, together
from .models import blaming, load_model
from .printing import has_control_characters, printable, say
from .processes import LOST, Processes, has_parent
from .sweep import sweep_command
from .working import STOPPED, CommandError, finish, work


def _reproduce(default: Configuration, given: Sequence[str]) -> Callable[..., int]:
    """The command, with the settings of the size and data that were typed as defaults."""
    typed = _typed(given)

    def reproduce(
        experiments: Annotated[
            tyro.conf.Positional[tuple[str, ...]],
            tyro.conf.arg(metavar="EXPERIMENT", help=f"Which: {', '.join(EXPERIMENTS)}; or all."),
        ] = (),
        configuration: tyro.conf.OmitArgPrefixes[Configuration] = default,
        folder: Path = Path("runs"),
        data_dir: Path | None = None,
        processes: Processes = 1,
        patience: int = PATIENCE,
        quiet: bool = False,
    ) -> int:
        """Run the experiments of the paper and write the report.

        On scikit-learn's digits, in about two minutes; --data mnist takes the paper's 60,000
        images. Every record is kept as soon as it is known: the same command goes on where an
        earlier one was stopped or killed, and finds what is finished.

        Args:
            experiments: Which experiments to run.
            configuration: The settings.
            folder: Where runs are kept, each in a folder of its own.
            data_dir: A folder with the files of MNIST or Fashion-MNIST, idx, plain or gz; by
                default they are downloaded.
            processes: How many processes compute together, each with a part of the data: so many
                on this machine, or those that a cluster started (Slurm, Open MPI, Kubernetes).
            patience: Seconds after which a process that does not answer is given up.
            quiet: Print only the verdicts and where the report is.
        """
        try:
            configuration.require_valid()
        except ValueError as error:
            raise CommandError(str(error)) from error
        chosen = _chosen(experiments)
        if (code := together(given, processes, patience)) is not None:
            return code
        if data_dir is not None and configuration.data == "digits":
            raise CommandError(
                "--data-dir is for the files of mnist and fashion-mnist, and --data is digits, "
                "which come with scikit-learn: leave it out, or say --data mnist"
            )
        jax.config.update("jax_enable_x64", True)

        def load_data():
            with download_view(Console(), quiet) as progress:
                return load(configuration.data, data_dir, progress)

        def carry_out(view: Watcher, stopping: Callable[[], bool]) -> Run | None:
            return reproduce_experiments(
                chosen, configuration, folder, load_data, typed, view, stopping
            )

        place = folder / configuration.name
        asked = with_symmetries(chosen) if experiments else None
        return work(carry_out, place, typed, quiet, asked)

    return reproduce


def _run(given: Sequence[str]) -> Callable[..., int]:
    typed = _typed(given)

    def run(
        model: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="FILE.py:NAME")],
        learning_rate: float,
        steps: int,
        orders: tuple[int, ...] = (0, 1, 2),
        records: int = 40,
        tolerance: float = 1e-2,
        rtol: float | None = None,
        method: Literal["taylor", "orbit"] | None = None,
        folder: Path = Path("runs"),
        processes: Processes = 1,
        patience: int = PATIENCE,
        quiet: bool = False,
    ) -> int:
        """Analyse your own network and write the report.

        Whether the theory applies, which symmetries there are, gradient descent beside gradient
        flow and the equations of motion, the error of each predicted, learning-rate bounds, and
        the charges of the symmetric layers. `counterflow init` writes a file to start from. Every
        record is kept as soon as it is known: the same command goes on where an earlier one was
        stopped or killed, and finds what is finished.

        Args:
            model: Where the problem is: a Python file, and the name in it of a pair
                (problem, params) or of a function that returns one.
            learning_rate: The learning rate η.
            steps: The steps of gradient descent.
            orders: The orders γ of the flows: 0 is gradient flow, 1 the paper's equation of motion.
            records: At how many of the steps it is compared and saved.
            tolerance: The error, relative to the norm of the initial params, up to which gradient
                flow is said to follow descent: for the learning-rate bounds.
            rtol: The relative tolerance of the flows; by default far below the error of each, or
                1e-5 for a loss with kinks.
            method: How the equation of motion is computed: taylor is exact, orbit uses gradients
                alone; by default taylor at order 1 and orbit beyond.
            folder: Where runs are kept, each in a folder of its own.
            processes: How many processes compute together, each with a part of the data: so many
                on this machine, or those that a cluster started (Slurm, Open MPI, Kubernetes).
            patience: Seconds after which a process that does not answer is given up.
            quiet: Print only the verdicts and where the report is.
        """
        if (code := together(given, processes, patience)) is not None:
            return code
        jax.config.update("jax_enable_x64", True)
        known = load_model(model)
        problem = spread(known.problem)
        with blaming(known.path):
            digest = digest_of(problem, known.params, known.source)
        analysis = Analysis(
            model=known.name,
            digest=digest,
            weight_decay=float(problem.weight_decay),
            learning_rate=learning_rate,
            steps=steps,
            orders=orders,
            records=records,
            tolerance=tolerance,
            rtol=rtol,
            method=method,
        )
        try:
            analysis.require_valid()
        except ValueError as error:
            raise CommandError(str(error)) from error
        with blaming(known.path):
            analysis, checks = prepared(analysis, problem, known.params)
        if not quiet:
            for check in checks:
                if check.level != "ok":
                    say(Console(), f"note: {check.name}: {check.message}")

        def carry_out(view: Watcher, stopping: Callable[[], bool]) -> Run | None:
            with blaming(known.path):
                return analyse(
                    analysis, problem, known.params, checks, folder, typed, view, stopping
                )

        return work(carry_out, folder / analysis.name, typed, quiet)

    return run


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
        print(printable(f"report: {write_sweep_report(open_sweep(run))}"))
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
        return tyro.extras.subcommand_cli_from_dict(
            {
                "reproduce": _reproduce(_default(given), given),
                "run": _run(given),
                "sweep": sweep_command(_typed(given)),
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
    except (ClusterError, DataError, StoreError, FirstFailed, OSError) as error:
        return _failed(error, 1)
    except KeyboardInterrupt:
        return _failed("stopped", 130)


def run() -> None:
    """Runs the command that was typed, and ends the process."""
    try:
        code = main()
    except Exception:
        if not has_parent():
            raise
        traceback.print_exc(file=sys.__stderr__)  # its log; what is left to say, its parent says
        os._exit(LOST)
    if code == STOPPED:
        # A compilation that is still at work would not survive an orderly end.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


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


def _default(arguments: Sequence[str]) -> Configuration:
    """The settings of the size and the data that were typed, before anything else is read."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for option, allowed in (("--size", Size), ("--data", Data)):
        # What is wrong is left for the real parser to say.
        parser.add_argument(option, nargs="?", default=get_args(allowed)[0])
    known, _ = parser.parse_known_args([a for a in arguments if a not in ("-h", "--help")])
    size = known.size if known.size in get_args(Size) else "quick"
    data = known.data if known.data in get_args(Data) else "digits"
    return default_configuration(size, data)


def _chosen(names: Sequence[str]) -> tuple[Experiment, ...]:
    for name in names:
        if name not in EXPERIMENTS:
            near = difflib.get_close_matches(name, EXPERIMENTS, 1)
            hint = f": did you mean {near[0]}?" if near else "."
            raise CommandError(
                f"there is no experiment {name!r}{hint} Known are {', '.join(EXPERIMENTS)}"
            )
    return tuple(one for name, one in EXPERIMENTS.items() if name in names or not names)
