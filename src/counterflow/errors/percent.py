"""Relative errors in words."""


def percent(value: float) -> str:
    """A relative error in words: two digits, more where they stand before the point."""
    if value >= 10:
        return "over 1000 %"
    return f"{100 * value:.2g} %" if value < 0.995 else f"{100 * value:.0f} %"
