"""How fast weight decay shrinks what the loss does not see, per step."""

from math import log1p
from typing import Any

from ..problem.numbers import require_learning_rate, require_order, require_weight_decay


def decay_rate(learning_rate: Any, weight_decay: Any, order: int | None = None) -> float:
    """The decay rate per step of `θ_{A⊥}`, and of `r_A` where its gradient terms vanish.

    A flow of order γ gives the partial sum `Σ_{m=1}^{γ+1} (ηλ)^m / m`: ηλ for gradient flow,
    `ηλ(1 + ηλ/2)` for the paper's equation of motion (Theorems 5.1 and 5.2, Table 1). Gradient
    descent, and all orders together, give `−log(1 − ηλ)`.

    Args:
        learning_rate: The learning rate η.
        weight_decay: The weight decay λ.
        order: The order γ of the flow; `None` for gradient descent.

    Example:
        >>> import counterflow as cf
        >>> for order in (0, 1, 2, None):
        ...     print(f"{cf.decay_rate(0.1, 0.01, order):.13f}")
        0.0010000000000
        0.0010005000000
        0.0010005003333
        0.0010005003336
    """
    product = float(require_learning_rate(learning_rate)) * float(
        require_weight_decay(weight_decay)
    )
    if order is None:
        if product >= 1:
            raise ValueError(
                f"`learning_rate` times `weight_decay` must be below 1, got {product:g}: from "
                "there on descent does not decay but alternates"
            )
        return -log1p(-product)
    order = require_order(order, "order", "0 is gradient flow; None means gradient descent")
    return sum(product**power / power for power in range(order + 1, 0, -1))
