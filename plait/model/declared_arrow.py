"""Declared types as Arrow types, for Parquet: which have one, and how a value looks there.

What is written reads back as what it was, with the same declaration; a type of which that is not
sure is refused when the job is built. A Decimal has 38 digits, 18 of them after the point, which is
also what Spark takes it for; an Enum is its value, a `UUID` its text.

    >>> import datetime
    >>> arrow_of(list[datetime.date])
    ListType(list<element: date32[day]>)
    >>> why_not_arrow(dict[int, str])
    'the keys of dict[int, str] are not texts'
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import enum
import types
import typing
import uuid
from typing import Any

from plait.model.declared_types import (
    DICTS,
    LISTS,
    Refused,
    has_fields,
    hints_of,
    shown,
    without_marks,
)

SETS = (set, frozenset, collections.abc.Set)
DIGITS, SCALE = 38, 18
"""Of a Decimal: all, and those after the point."""


def why_not_arrow(hint: Any) -> str | None:
    """Why values of the type cannot be in a Parquet file; None if they can."""
    try:
        arrow_of(hint)
    except Refused as reason:
        return str(reason)
    return None


def arrow_of(hint: Any, inside: tuple[Any, ...] = ()) -> Any:
    """The Arrow type of a declared type, or `Refused`. `inside`: the classes that it is a part
    of."""
    import pyarrow as pa

    hint = without_optional(hint)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    kind = origin or hint
    if origin is typing.Literal:
        return arrow_of_values(args, hint)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return arrow_of_values([one.value for one in kind], hint)
    if kind in SCALARS:
        return SCALARS[kind](pa)
    if kind in LISTS or kind in SETS or (kind is tuple and args[1:] == (Ellipsis,)):
        if not args:
            raise Refused(f"{shown(hint)} does not say what is in it")
        return pa.list_(pa.field("element", arrow_of(args[0], inside)))
    if kind in DICTS:
        if not args or without_marks(args[0]) is not str:
            raise Refused(f"the keys of {shown(hint)} are not texts")
        return pa.map_(pa.string(), arrow_of(args[1], inside))
    if not has_fields(kind):
        raise Refused(f"{shown(hint)} has no type in Arrow")
    if kind in inside:
        raise Refused(f"{shown(hint)} holds itself")
    if typing.is_typeddict(kind) and kind.__optional_keys__:
        raise Refused(f"{shown(hint)} has keys that may be missing")
    hints = fields_of(kind)
    if not hints:
        raise Refused(f"{shown(hint)} has no fields")
    return pa.struct([(name, arrow_of(one, (*inside, kind))) for name, one in hints.items()])


SCALARS: dict[Any, Any] = {
    int: lambda pa: pa.int64(),
    float: lambda pa: pa.float64(),
    bool: lambda pa: pa.bool_(),
    str: lambda pa: pa.string(),
    bytes: lambda pa: pa.binary(),
    decimal.Decimal: lambda pa: pa.decimal128(DIGITS, SCALE),
    datetime.date: lambda pa: pa.date32(),
    datetime.datetime: lambda pa: pa.timestamp("us", "UTC"),
    datetime.time: lambda pa: pa.time64("us"),
    uuid.UUID: lambda pa: pa.string(),
}


def without_optional(hint: Any) -> Any:
    """The type of the values that are not null, or `Refused` if they have several."""
    hint = without_marks(hint)
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint
    members = [one for one in typing.get_args(hint) if one is not type(None)]
    if len(members) != 1:
        raise Refused(f"values of {shown(hint)} have several types")
    return without_marks(members[0])


def arrow_of_values(values: collections.abc.Iterable[Any], hint: Any) -> Any:
    """The type of the values of an Enum or a Literal."""
    kinds = {type(value) for value in values}
    if len(kinds) != 1 or not kinds <= {int, str}:
        raise Refused(f"the values of {shown(hint)} are neither all texts nor all whole numbers")
    return arrow_of(kinds.pop())


def fields_of(kind: Any) -> dict[str, Any]:
    """The fields of a class that it is made from, with their types."""
    hints = hints_of(kind)
    if not dataclasses.is_dataclass(kind):
        return hints
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}


def arrow_value(value: Any, hint: Any) -> Any:
    """A value of a declared type as pyarrow takes it for `arrow_of` of the type."""
    if value is None:
        return None
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, datetime.time) and value.tzinfo is not None:
        raise ValueError(f"{value!r} has a time zone, which a time in Parquet has not")
    hint = without_optional(hint)
    kind, args = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in DICTS:
        return [(name, arrow_value(one, args[1])) for name, one in value.items()]
    if has_fields(kind):
        mapping = isinstance(value, collections.abc.Mapping)
        get = value.__getitem__ if mapping else lambda name: getattr(value, name)
        return {name: arrow_value(get(name), one) for name, one in fields_of(kind).items()}
    if isinstance(value, set | frozenset):  # a set has no order of its own
        value = sorted(value, key=repr)
    if isinstance(value, list | tuple):
        return [arrow_value(one, args[0]) for one in value]
    return value
