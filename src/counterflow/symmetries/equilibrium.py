"""How far a real run of descent is from the equilibrium of a scale-invariant layer.

Under full-batch descent neither `r_A` nor `c = ‖∇_A f(θ̂_A + θ_{A^c})‖` becomes constant. What holds
of any run is the average of its exact law over it,

    (2λ − ηλ²)⟨r²⟩ = η⟨c²/r²⟩    up to the drift (r_0² − r_k²)/(kη).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from ..counter_terms.update_rule import descend
from ..dynamics.gradient_descent import GradientDescent
from ..problem.problem import Problem
from ..problem.requirements import at_the_door
from ..problem.tree import add_scaled, is_finite, on_device
from ..solvers.interruption import RunInterrupted
from ..solvers.requirements import require_progress, require_steps
from ..solvers.trajectory import Status
from .fixed_point import equilibrium_angle, require_decay
from .requirements import require_scale, require_symmetry
from .scale import Scale
from .scale_motion import angular_update


@dataclass(frozen=True, eq=False)
class Equilibrium:
    """How far a run of gradient descent is from equilibrium, one window of steps after the other.

    A window is one unit of intrinsic time, `1/(ηλ)` steps, or longer. Arrays are over windows and,
    of several, units.

    Attributes:
        learning_rate: The learning rate η.
        weight_decay: The weight decay λ.
        steps: The step number at the end of each window.
        radius_mean: The mean of `r_A` in the window.
        radius_deviation: Its standard deviation.
        gradient_mean: The mean of `c = ‖∇_A f(θ̂_A + θ_{A^c})‖`.
        gradient_deviation: Its standard deviation.
        radius_squared: The mean of `r_A²`.
        force_squared: The mean of `c²/r_A² = ‖∇_A f‖²`.
        angle_mean: The mean of the angular update Δ.
        drift: `(r_0² − r_k²)/(kη)` over the whole run.
        status: How the run ended.
        params: The params at the end.
    """

    learning_rate: float
    weight_decay: float
    steps: np.ndarray
    radius_mean: np.ndarray
    radius_deviation: np.ndarray
    gradient_mean: np.ndarray
    gradient_deviation: np.ndarray
    radius_squared: np.ndarray
    force_squared: np.ndarray
    angle_mean: np.ndarray
    drift: np.ndarray
    status: Status
    params: PyTree

    @property
    def radius_fluctuation(self) -> np.ndarray:
        """The standard deviation of r in a window over its mean, on average."""
        return _mean(self.radius_deviation / self.radius_mean)

    @property
    def gradient_fluctuation(self) -> np.ndarray:
        """The standard deviation of c in a window over its mean, on average."""
        return _mean(self.gradient_deviation / self.gradient_mean)

    @property
    def radius_drift(self) -> np.ndarray:
        """How much the mean of r changes from one window to the next, relatively, on average."""
        return _mean(np.abs(np.diff(self.radius_mean, axis=0)) / self.radius_mean[1:])

    @property
    def gradient_drift(self) -> np.ndarray:
        """How much the mean of c changes from one window to the next, relatively, on average."""
        return _mean(np.abs(np.diff(self.gradient_mean, axis=0)) / self.gradient_mean[1:])

    @property
    def averaged_law(self) -> tuple[np.ndarray, np.ndarray]:
        """Both sides of the averaged law, `(2λ − ηλ²)⟨r²⟩` and `η⟨c²/r²⟩`, the drift left out."""
        rate, decay = self.learning_rate, self.weight_decay
        left = (2 * decay - rate * decay**2) * self._over_run(self.radius_squared)
        return np.asarray(left), np.asarray(rate * self._over_run(self.force_squared))

    @property
    def angle(self) -> np.ndarray:
        """The mean angular update Δ over the run."""
        return self._over_run(self.angle_mean)

    def _over_run(self, means: np.ndarray) -> np.ndarray:
        lengths = np.diff(self.steps, prepend=0)
        return np.asarray(np.average(means, axis=0, weights=lengths))

    def __repr__(self) -> str:
        if not len(self.steps):
            return f"Equilibrium({self.status} before the first window)"
        left, right = self.averaged_law
        angles = equilibrium_angle(self.learning_rate, self.weight_decay)
        rows = [
            f"Equilibrium after {self.steps[-1]} steps, {len(self.steps)} windows; {self.status}",
            f"  r        fluctuates by {_percent(self.radius_fluctuation)}, "
            f"drifts by {_percent(self.radius_drift)} per window",
            f"  c        fluctuates by {_percent(self.gradient_fluctuation)}, "
            f"drifts by {_percent(self.gradient_drift)} per window",
            f"  averaged law  {_span(left)} against {_span(right)}",
            f"  Δ        {_span(self.angle)}, at equilibrium {angles.exact:.3g}",
        ]
        return "\n".join(rows)


def _mean(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.mean(values, axis=0)) if len(values) else np.full(values.shape[1:], np.nan)


def _span(values: np.ndarray) -> str:
    low, high = float(np.min(values)), float(np.max(values))
    return f"{low:.4g}" if np.ndim(values) == 0 else f"{low:.4g} … {high:.4g}"


def _percent(values: np.ndarray) -> str:
    return _span(100 * np.asarray(values)) + " %"


class _Sums(NamedTuple):
    """Sums over the steps of a window, one number per unit."""

    radius: Any
    radius_squared: Any
    gradient: Any
    gradient_squared: Any
    force_squared: Any
    angle: Any


def equilibrium(
    problem: Problem,
    scale: Scale,
    params: PyTree,
    learning_rate: Any,
    steps: int,
    *,
    windows: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Equilibrium:
    """How far a run of gradient descent is from the equilibrium of Corollaries 5.1 and 5.2.

    Descent runs from `params`; where the start is not to count, run it before and start here from
    where it got. No trajectory is stored.

    Args:
        problem: The problem, with its weight decay, which must be positive.
        scale: The scale-invariant layer A, or its units.
        params: The params at step 0.
        learning_rate: The learning rate η.
        steps: The number of steps to run.
        windows: How many windows to divide them into; by default of `1/(ηλ)` steps each, but at
            least one and at most a thousand.
        progress: Called with the number of windows done and to do, after each.

    Example:
        In the plane, on a field that goes round, the fixed point is reached.

        >>> import jax.numpy as jnp
        >>> import counterflow as cf
        >>> def round_the_origin(z):
        ...     return jnp.array([-z[1], z[0]]) / jnp.sum(z**2)
        >>> problem = cf.Problem.from_gradient(round_the_origin, weight_decay=0.5)
        >>> run = cf.equilibrium(problem, cf.Scale(""), jnp.array([1.0, 0.0]), 0.5, steps=200)
        >>> fixed = cf.equilibrium_radius(0.5, 0.5, gradient_norm=1.0)
        >>> print(f"{run.radius_mean[-1]:.6f} {fixed.exact:.6f}")
        0.869442 0.869442
    """
    descent = GradientDescent(problem, learning_rate)
    steps = require_steps(steps)
    require_progress(progress)
    params = at_the_door(problem, params)
    require_scale(scale)
    require_symmetry(scale, problem, params)
    rate, decay = require_decay(learning_rate, problem.weight_decay)
    if windows is None:
        windows = int(np.clip(round(steps * rate * decay), 1, 1000))
    windows = min(require_steps(windows, "windows"), steps)
    ends = np.rint(np.linspace(0, steps, windows + 1)).astype(int)[1:]
    start = scale.charge(params)
    descent, found, done = on_device(descent), [], 0
    status, interruption = Status.COMPLETED, None
    try:
        for index, end in enumerate(ends):
            count = int(end) - done
            there, sums = _descend(descent, scale, params, jnp.asarray(count, jnp.int32))
            if not bool(is_finite(there)):
                status = Status.NON_FINITE
                break
            params, done = there, int(end)
            found.append([np.asarray(part) / count for part in sums])
            if progress is not None:
                progress(index + 1, len(ends))
    except KeyboardInterrupt as error:
        status, interruption = Status.INTERRUPTED, error
    means = _Sums(*np.moveaxis(np.array(found).reshape(-1, 6, *start.shape), 1, 0))
    result = Equilibrium(
        learning_rate=rate,
        weight_decay=decay,
        steps=ends[: len(found)],
        radius_mean=means.radius,
        radius_deviation=_deviation(means.radius, means.radius_squared),
        gradient_mean=means.gradient,
        gradient_deviation=_deviation(means.gradient, means.gradient_squared),
        radius_squared=means.radius_squared,
        force_squared=means.force_squared,
        angle_mean=means.angle,
        drift=np.asarray((start - scale.charge(params)) / max(done * rate, rate)),
        status=status,
        params=params,
    )
    if interruption is not None:
        raise RunInterrupted(f"{status}: {status.remedy}", result) from interruption
    return result


def _deviation(mean: np.ndarray, mean_square: np.ndarray) -> np.ndarray:
    return np.sqrt(np.maximum(mean_square - mean**2, 0))


@eqx.filter_jit
def _descend(
    descent: GradientDescent, scale: Scale, params: PyTree, count: Int[Array, ""]
) -> tuple[PyTree, _Sums]:
    """The params after `count` steps, and the sums over the params they were taken from."""
    zero = jnp.zeros_like(scale.charge(params))

    def body(_: Any, carry: tuple[PyTree, _Sums]) -> tuple[PyTree, _Sums]:
        params, sums = carry
        bare = descent.problem.loss_gradient(params)
        gradient = add_scaled(bare, descent.problem.weight_decay, params)
        after = descend(params, gradient, descent.learning_rate)
        squared, force = scale.charge(params), scale.selection.sum(jax.tree.map(jnp.square, bare))
        c_squared = squared * force  # ∇_A f(θ̂ + θ_{A^c}) = r ∇_A f(θ)
        new = _Sums(
            radius=jnp.sqrt(squared),
            radius_squared=squared,
            gradient=jnp.sqrt(c_squared),
            gradient_squared=c_squared,
            force_squared=force,
            angle=angular_update(scale, params, after),
        )
        return after, _Sums(*(a + b for a, b in zip(sums, new, strict=True)))

    return jax.lax.fori_loop(0, count, body, (params, _Sums(*[zero] * 6)))
