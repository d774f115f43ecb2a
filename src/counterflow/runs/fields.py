"""What was read as JSON or from a database, against the types that it must have."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from inspect import formatannotation
from reprlib import Repr
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

Settings = TypeVar("Settings")
_SHORT = Repr()  # what is read may be of any length


def from_fields(kind: type[Settings], stored: Any) -> Settings:
    """The settings of a kind, a frozen dataclass, from JSON values by name.

    Raises:
        ValueError: If a value is missing, of another type, or of no setting.
    """
    if not conforms(stored, dict[str, Any]):
        raise ValueError(f"a configuration must be an object of JSON, got {_SHORT.repr(stored)}")
    known = {field.name: field for field in fields(cast(Any, kind))}
    if unknown := set(stored) - set(known):
        raise ValueError(
            f"a configuration has no {sorted(unknown)}: it was written by another version of "
            f"counterflow; known are {sorted(known)}"
        )
    hints = get_type_hints(kind)
    for name, field in known.items():
        if name not in stored and field.default is MISSING:
            raise ValueError(
                f"a configuration must have `{name}`, but this one has only {sorted(stored)}: it "
                "is damaged, or was written by another version of counterflow"
            )
        if name in stored and not conforms(stored[name], hints[name]):
            raise ValueError(
                f"`{name}` must be {formatannotation(hints[name])}, got "
                f"{_SHORT.repr(stored[name])}: the configuration is damaged, or was written by "
                "another version of counterflow"
            )
    return kind(**{n: tuple(v) if isinstance(v, list) else v for n, v in stored.items()})


def conforms(value: Any, hint: Any) -> bool:
    """Whether a value that was read is of a type; a list will do for a tuple, an int for a float.

    >>> conforms([1, 2], tuple[int, ...]), conforms("1", int | None), conforms(10**400, float)
    (True, False, False)
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(conforms(value, one) for one in arguments)
    if origin is Literal:
        return isinstance(value, str) and value in arguments
    if origin in (tuple, list):
        if not isinstance(value, tuple | list):
            return False
        if origin is list or arguments[-1] is Ellipsis:
            return all(conforms(one, arguments[0]) for one in value)
        return len(value) == len(arguments) and all(map(conforms, value, arguments))
    if origin is dict:
        return isinstance(value, Mapping) and all(
            conforms(key, arguments[0]) and conforms(one, arguments[1])
            for key, one in value.items()
        )
    if hint is int:
        return type(value) is int and -(2**63) <= value < 2**63
    if hint is float:
        return type(value) is float or conforms(value, int)
    return type(value) is hint and hint in (str, bool, NoneType)
