"""The declared type of the state of a fold or a state machine, if there is one, and types in plain
data.

Of a fold it is the type of its column: `type=`, the annotation of the step, or the type of the
first state. Of a state machine it is the annotation of the step: its parameter, or State of
`tuple[State, Out | None]`; or the type of the first state, if that is a number, text or bytes.

    >>> import plait
    >>> def step(state: dict[str, int], record) -> dict[str, int]: ...
    >>> folded = plait.stream([1]).fold(dict, step)
    >>> state_type(folded.job.graph().operators[-1])
    dict[str, int]
"""

from __future__ import annotations

import dataclasses
import datetime
import inspect
import types
import typing
from typing import TYPE_CHECKING, Any

from plait.graph.operators import FoldOp
from plait.model.schema import Type

if TYPE_CHECKING:
    from plait.graph.operators import StatefulOp

Description = str | list[Any]
"""A type in plain data: the name of a scalar, or a list that begins with a kind."""
SCALARS: dict[Any, str] = {int: "int", float: "float", bool: "bool", str: "str", bytes: "bytes"}
TIME = "datetime"
DEPTH = 8
"""The deepest nesting of a type."""


def state_type(op: FoldOp | StatefulOp) -> Any:
    """The declared type; None: there is none."""
    if isinstance(op, FoldOp):
        field = op.schema.fields[-1]
        found = field.declared if field.type is Type.OBJECT else field.type.python
        return found | None if found is not None and field.nullable else found
    hints = hints_of(op.step)
    first = next(iter(parameters_of(op.step)), "")
    if first in hints:
        return hints[first]
    returned = typing.get_args(hints.get("return"))
    if typing.get_origin(hints.get("return")) is tuple and len(returned) == 2:
        return returned[0]
    return type(op.init) if type(op.init) in SCALARS else None


def hints_of(function: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except Exception:  # names that are not known here, or a function without annotations
        return {}


def parameters_of(function: Any) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def describe(hint: Any, depth: int = DEPTH) -> Description | None:
    """The description of a type; None: it is not one of those that can be written as plain data."""
    if hint in SCALARS:
        return SCALARS[hint]
    if hint is datetime.datetime:
        return TIME
    if depth == 0:
        return None
    inner = [describe(arg, depth - 1) for arg in typing.get_args(hint) if arg is not Ellipsis]
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        args = typing.get_args(hint)
        some = [one for one, arg in zip(inner, args, strict=True) if arg is not type(None)]
        return None if len(args) != 2 or len(some) != 1 or some[0] is None else ["maybe", some[0]]
    if origin is not None and None in inner:
        return None
    if origin is list:
        return ["list", *inner]
    if origin is dict:
        return ["dict", *inner] if isinstance(inner[0], str) and inner[0] != TIME else None
    if origin is tuple:
        return ["tuples" if Ellipsis in typing.get_args(hint) else "tuple", *inner]
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return describe_class(hint, depth)
    return None


def describe_class(cls: Any, depth: int) -> Description | None:
    try:
        hints = typing.get_type_hints(cls)
    except Exception:  # names that are not known here
        return None
    found = [
        [one.name, describe(hints[one.name], depth - 1), has_default(one)]
        for one in dataclasses.fields(cls)
    ]
    return None if any(one is None for _, one, _ in found) else ["class", cls.__name__, found]


def has_default(one: Any) -> bool:
    missing = dataclasses.MISSING
    return one.default is not missing or one.default_factory is not missing
