"""The fields that can be swept, and the values that each can have."""

import difflib
from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ..runs.analysis import Analysis
from ..runs.configuration import Configuration
from ..runs.fields import conforms

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
    found = _normal(known[field], value)
    # A sweep says what is to be set, and leaves out what is not.
    if found is None or not conforms(found, known[field]):
        raise ValueError(f"`{field}` must be {_said(known[field])}, got {_shown(value)}")
    return found


def _normal(kind: Any, value: Any) -> Any:
    """A value as its kind has it, where it can be one at all."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _normal(next(one for one in inner if one is not NoneType), value)
    if origin is tuple:
        return tuple(
            _normal(inner[0], one) for one in (value if isinstance(value, list) else [value])
        )
    return float(value) if kind is float and conforms(value, float) else value


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
