"""The whole paper: its experiments on its network, after a look at the network's symmetries."""

from collections.abc import Callable, Sequence
from pathlib import Path

from ..data.dataset import Dataset
from ..runs.configuration import Configuration
from ..runs.processes import in_turn
from ..runs.run import Run
from .carry_out import Watcher, carry_out
from .experiment import Experiment
from .paper.setting import PaperSetting
from .registry import with_symmetries


def reproduce(
    experiments: Sequence[Experiment],
    configuration: Configuration,
    folder: Path,
    load: Callable[[], Dataset],
    command: str,
    watcher: Watcher,
    stopping: Callable[[], bool],
) -> Run | None:
    """The run of a configuration with everything that experiments of the paper need.

    As `carry_out`, whose arguments these are.

    Args:
        experiments: The experiments.
        configuration: The configuration.
        folder: Where the runs are.
        load: Loads the data, called only if something is to be computed.
        command: The command at work.
        watcher: Hears how it is going.
        stopping: Asked after each record and result.
    """
    chosen = with_symmetries(experiments)

    def prepare() -> PaperSetting:
        return PaperSetting(configuration, in_turn(load))

    return carry_out(chosen, configuration, folder, prepare, command, watcher, stopping)
