"""`counterflow`: the command line, from the same frozen configuration that is stored."""

import argparse
import difflib
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, get_args

import jax
import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..data.dataset import DataError, load
from ..experiments.experiment import Experiment
from ..experiments.finding import Finding
from ..experiments.registry import EXPERIMENTS
from ..experiments.reproduce import Watcher, findings, reproduce as reproduce_experiments
from ..report.report import duration, missing_of, total_cost, warnings_of, write_report
from ..runs.configuration import Configuration, Data, Size, default_configuration
from ..runs.export import CSV, NETCDF, export_csv, export_netcdf
from ..runs.run import Run, open_run
from ..runs.store import StoreError
from ..runs.training import Stopped
from .compiling import compiled_on_disk
from .downloads import download_view
from .stopping import stopping_at_a_record
from .views import LiveView, PlainView

# The exit code of a command that was stopped.
_STOPPED = 130


class CommandError(Exception):
    """Something that was typed is not what it should be; the message says what is."""


def _reproduce(default: Configuration, typed: str) -> Callable[..., int]:
    """The command, with the settings of the size and data that were typed as defaults."""

    def reproduce(
        experiments: Annotated[
            tyro.conf.Positional[tuple[str, ...]],
            tyro.conf.arg(metavar="EXPERIMENT", help=f"Which: {', '.join(EXPERIMENTS)}; or all."),
        ] = (),
        configuration: tyro.conf.OmitArgPrefixes[Configuration] = default,
        folder: Path = Path("runs"),
        data_dir: Path | None = None,
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
            quiet: Print only the verdicts and where the report is.
        """
        try:
            configuration.require_valid()
        except ValueError as error:
            raise CommandError(str(error)) from error
        chosen = _chosen(experiments)
        if data_dir is not None and configuration.data == "digits":
            raise CommandError(
                "--data-dir is for the files of mnist and fashion-mnist, and --data is digits, "
                "which come with scikit-learn: leave it out, or say --data mnist"
            )
        jax.config.update("jax_enable_x64", True)
        console = Console()
        view: Watcher = Watcher()
        if not quiet:
            view = LiveView(console) if console.is_terminal else PlainView(console)

        def load_data():
            with download_view(console, quiet) as progress:
                return load(configuration.data, data_dir, progress)

        with stopping_at_a_record(view.said) as stopping, compiled_on_disk() as compilation:
            try:
                with view if isinstance(view, LiveView) else nullcontext():
                    run = reproduce_experiments(
                        chosen, configuration, folder, load_data, typed, view, stopping
                    )
                if not quiet:
                    _print(console, str(compilation))
                _finish(console, run, chosen)
            except (Stopped, KeyboardInterrupt):
                place = folder / configuration.name
                _print(console, f"stopped; every record so far is in {place}\nto go on: {typed}")
                return _STOPPED
        return 0

    return reproduce


def report(run: tyro.conf.Positional[Path]) -> int:
    """Write the report of a run that is on disk, finished or not.

    Args:
        run: The folder of the run, such as runs/digits-quick-….
    """
    known = open_run(run)
    _finish(Console(), known, tuple(EXPERIMENTS.values()))
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
    for path in (export_csv(known, place / CSV), export_netcdf(known, place / NETCDF)):
        print(path)
    return 0


def print_version() -> int:
    """Print the version."""
    print(version("counterflow"))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code of a command: 0 if it was done, whatever the verdicts; 130 if it was stopped.

    What was typed wrong gives 2, what could not be done 1.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    typed = shlex.join(["counterflow", *given])
    try:
        return tyro.extras.subcommand_cli_from_dict(
            {
                "reproduce": _reproduce(_default(given), typed),
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
    except (DataError, StoreError, OSError) as error:
        return _failed(error, 1)
    except KeyboardInterrupt:
        return _failed("stopped", 130)


def run() -> None:
    """Runs the command that was typed, and ends the process."""
    code = main()
    if code == _STOPPED:
        # A compilation that is still at work would not survive an orderly end.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _failed(error: Exception | str, code: int) -> int:
    print(f"counterflow: {error}", file=sys.stderr)
    return code


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


def _finish(console: Console, run: Run, chosen: Sequence[Experiment]) -> None:
    """Writes the report of all that the run has, and prints the verdicts that were asked for."""
    everything = findings(run, tuple(EXPERIMENTS.values()))
    path = write_report(run, everything)
    found = findings(run, chosen)
    console.print(_verdicts(found))
    wanted = missing_of(everything) if len(chosen) == len(EXPERIMENTS) else []
    for warning in (*warnings_of(run), *wanted):
        _print(console, f"note: {warning}")
    claims = [claim for finding in found for claim in finding.claims]
    evaluations, seconds = total_cost(run)
    _print(
        console,
        f"{sum(claim.holds for claim in claims)} of {len(claims)} claims hold; {evaluations:,} "
        f"gradient evaluations, {duration(seconds)}\nreport: {path}\nfigures: "
        f"{path.parent / 'figures'}",
    )


def _verdicts(found: Sequence[Finding]) -> Table:
    table = Table(show_lines=False)
    table.add_column("experiment", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("claim, and the figures it rests on", overflow="fold")
    for finding in found:
        for index, claim in enumerate(finding.claims):
            table.add_row(
                finding.name if index == 0 else "",
                "holds" if claim.holds else "[bold]FAILS[/bold]",
                Text(f"{claim.text}: {claim.figures}"),
            )
    return table


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
