"""`counterflow run`: the analysis of one's own network, and its report."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import jax
import tyro
from rich.console import Console

from ..experiments.analyse import analyse, prepared, spread
from ..experiments.carry_out import Watcher
from ..runs.analysis import Analysis, digest_of
from ..runs.processes import same_everywhere
from ..runs.run import Run
from .launch import PATIENCE, together
from .models import blaming, load_model
from .printing import say
from .processes import Processes
from .working import CommandError, work


def run_command(given: Sequence[str], typed: str) -> Callable[..., int]:
    """The command, from its arguments and as it was typed."""

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
        if not same_everywhere(digest):
            raise CommandError(
                f"{model} must be the same problem with the same params in every process: draw "
                "random numbers with a seed"
            )
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
