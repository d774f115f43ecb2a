"""Figure 11 (a–d): the relative discretization error at both weight decays."""

from ...runs.configuration import Configuration
from ...runs.run import Run
from ...runs.training import Training
from ..curves import error_panel, on_further_orders
from ..experiment import Experiment
from ..finding import Claim, Finding, Panel
from ..solver_error import solver_claim
from ..trainings import all_pairs, at_weight_decay, beyond_stability, series
from . import figure3, figure4


def _trainings(configuration: Configuration) -> tuple[Training, ...]:
    return (*all_pairs(configuration), beyond_stability(configuration))


def _finding(run: Run) -> Finding:
    configuration = run.configuration
    panels: list[Panel] = []
    claims: list[Claim] = []
    for decay in configuration.weight_decays:
        at = [series(run, one) for one in at_weight_decay(configuration, decay)]
        small = figure4.small_rates(run, decay)
        for label, shown in (
            ("", at),
            (", magnified", small),
        ):
            letter = "abcdefgh"[len(panels) % 8]
            title = f"({letter}) λ = {decay:g}{label}"
            panels.append(error_panel(shown, "relative_error", title, configuration.learning_rates))
        text = f"the paper: the error explodes at η = {{rate}}, λ = {decay:g} (beyond ‖θ‖/10)"
        claims.append(figure3.explosion(at[0], text))
        claims += figure4.claims(at[:1], "relative_error")
        claims += figure4.claims(small, "relative_error")
    large = series(run, beyond_stability(configuration))
    title = f"beyond 2/sharpness, λ = {large.training.weight_decay:g}"
    panels.append(error_panel([large], "relative_error", title))
    claims.append(
        figure3.explosion(large, "the error explodes at η = {rate}, beyond 2/sharpness", True)
    )
    claims.append(solver_claim([series(run, one) for one in _trainings(configuration)]))
    return Finding(
        "figure11",
        "Figure 11: relative discretization error",
        "The error over the length of the weight vector: all learning rates, and the smaller ones "
        "magnified, at each weight decay." + on_further_orders(configuration.orders),
        tuple(claims),
        tuple(panels),
    )


EXPERIMENT = Experiment("figure11", _finding, _trainings)
