"""The fields that can be swept, and the values that each can have."""

import difflib
from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ..runs.analysis import Analysis
from ..runs.configuration import Configuration

# What one's own file says about its problem is not for others to set.
_OF_THE_MODEL = ("model", "digest", "weight_decay")

#: By field, the type of its values: of the paper's experiments, and of one's own problem.
PAPER: dict[str, Any] = get_type_hints(Configuration)
OWN: dict[str, Any] = {
    name: kind for name, kind in get_type_hints(Analysis).items() if name not in _OF_THE_MODEL
}
#: Which of one's own problem have a default, and which.
OWN_DEFAULTS: dict[str, Any] = {
    field.name: field.default
    for field in fields(Analysis)
    if field.name in OWN and field.default is not MISSING
}


def typed(known: dict[str, Any], field: str, value: Any) -> Any:
    """A value from a TOML file as its field has it: lists as tuples, numbers as floats.

    A single value stands for a list of one.

    >>> typed(PAPER, "learning_rates", 1), typed(PAPER, "hidden_widths", [8, 8])
    ((1.0,), (8, 8))

    Raises:
        ValueError: If there is no such field, or the value is of another type.
    """
    if field not in known:
        if known is OWN and field == "weight_decay":
            raise ValueError(
                "`weight_decay` belongs to the problem: set it in the file of the model"
            )
        near = difflib.get_close_matches(field, known, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ValueError(f"there is no field `{field}`: {hint}known are {', '.join(known)}")
    found = _cast(known[field], value)
    if found is None:
        raise ValueError(f"`{field}` must be {_said(known[field])}, got {_shown(value)}")
    return found


def _cast(kind: Any, value: Any) -> Any:
    """The value as one of its kind, or nothing if it is none."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return value if isinstance(value, str) and value in inner else None
    if origin in (Union, UnionType):
        found = (_cast(one, value) for one in inner if one is not NoneType)
        return next((one for one in found if one is not None), None)
    if origin is tuple:
        return _cast_list(inner, value)
    if isinstance(value, bool):  # which Python takes for a number
        return None
    if kind is float and isinstance(value, int | float):
        # A whole number beyond what a float holds is infinite, and refused as that.
        return float(value) if abs(value) < 2**1023 or isinstance(value, float) else float("inf")
    return value if kind is int and isinstance(value, int) else None


def _cast_list(kinds: tuple[Any, ...], value: Any) -> tuple[Any, ...] | None:
    endless = kinds[-1] is Ellipsis
    values = value if isinstance(value, list) else [value]
    if not endless and len(values) != len(kinds):
        return None
    found = [_cast(kinds[0 if endless else i], one) for i, one in enumerate(values)]
    return None if None in found else tuple(found)


def _said(kind: Any) -> str:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return f"one of {', '.join(inner)}"
    if origin in (Union, UnionType):
        return " or ".join(_said(one) for one in inner if one is not NoneType)
    if origin is tuple:
        many = {int: "whole numbers", float: "numbers"}[inner[0]]
        return f"a list of {many}" if inner[-1] is Ellipsis else f"a list of {len(inner)} {many}"
    return {int: "a whole number", float: "a number"}[kind]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
