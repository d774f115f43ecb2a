"""`counterflow reproduce`: the experiments of the paper, and their report."""

import argparse
import difflib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, get_args

import jax
import tyro
from rich.console import Console

from ..data.dataset import load
from ..experiments.carry_out import Watcher
from ..experiments.experiment import Experiment
from ..experiments.registry import EXPERIMENTS, with_symmetries
from ..experiments.reproduce import reproduce as reproduce_experiments
from ..runs.configuration import Configuration, Data, Size, default_configuration
from ..runs.run import Run
from .downloads import download_view
from .launch import PATIENCE, together
from .processes import Processes
from .working import CommandError, work


def reproduce_command(given: Sequence[str], typed: str) -> Callable[..., int]:
    """The command, from its arguments and as it was typed.

    The defaults of its settings are those of the size and data that were given.
    """
    default = _default(given)

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
