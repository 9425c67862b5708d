"""Declared types in JSON lines and in cells of CSV: which can be written, and how a value looks.

What is written reads back as what it was, with the same declaration; a type of which that is not
sure is refused when the job is built. Numbers that must be exact are texts.

    >>> import datetime
    >>> to_json_value({"on": datetime.date(2024, 3, 1)})
    {'on': '2024-03-01'}
    >>> why_not_json(dict[int, str])
    'the keys of dict[int, str] are not texts'
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import enum
import json
import math
import types
import typing
import uuid
from typing import Any

from plait.model.declared_types import (
    DICTS,
    LISTS,
    SCALARS,
    Refused,
    as_declared,
    shown,
    types_in,
    without_marks,
)

if typing.TYPE_CHECKING:
    from collections.abc import Sequence

JSON_SCALARS = (int, float, str, bool)
LOOSE = (Any, object)
TEXTS = (decimal.Decimal, datetime.date, datetime.time, uuid.UUID)


def is_written_as_text(hint: Any) -> bool:
    """Whether a cell of a CSV file can hold it."""
    hint = without_marks(hint)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return all(isinstance(one.value, str) for one in hint)
    return hint in TEXTS


def has_decimals(hint: Any) -> bool:
    """Whether a number in JSON may have to become a Decimal, which must not pass through float."""
    return any(one is decimal.Decimal for one in types_in(hint, set()))


def why_not_json(hint: Any) -> str | None:
    """Why values of the type would not come back from JSON as they were; None if they would."""
    for one in types_in(hint, set()):
        origin, args = typing.get_origin(one), typing.get_args(one)
        kind = origin or one
        if origin in (typing.Union, types.UnionType):
            members = [member for member in args if member is not type(None)]
            if len(members) > 1 and not all(member in JSON_SCALARS for member in members):
                return f"JSON does not say which of {shown(one)} a value is"
        elif kind in DICTS and args and without_marks(args[0]) is not str:
            return f"the keys of {shown(one)} are not texts"
        elif isinstance(kind, type) and not has_json(kind):
            return f"{kind.__name__} has no form in JSON"
    return None


def has_json(kind: type) -> bool:
    if issubclass(kind, enum.Enum):
        return all(type(one.value) in JSON_SCALARS for one in kind)
    known = (*JSON_SCALARS, *SCALARS, *LISTS, *DICTS, tuple, set, frozenset, type(None), *LOOSE)
    ours = dataclasses.is_dataclass(kind) or hasattr(kind, "_fields") or typing.is_typeddict(kind)
    return kind in known or ours or kind is collections.abc.Set


def json_values_of(values: Sequence[Any], hint: Any) -> list[Any]:
    """Values of a declared type as `json.dumps` takes them. Where the type leaves a part open, each
    is compared with what would be read again; ValueError names the first that would be another."""
    plain = [None if value is None else to_json_value(value) for value in values]
    parts = types_in(hint, set())
    if not any(one in parts for one in (*LOOSE, list, dict, tuple, set, frozenset)):
        return plain
    for value, written in zip(values, plain, strict=True):
        try:
            same = value is None or as_declared(written, hint) == value
        except Refused:
            same = False
        if not same:
            raise ValueError(f"{value!r} would not be the same when it is read again")
    return plain


def to_json_value(value: Any) -> Any:
    """A value of a declared type as `json.dumps` takes it; what has no form stays as it is."""
    if isinstance(value, enum.Enum):
        return to_json_value(value.value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, datetime.datetime):
        if value.utcoffset() == datetime.timedelta(0):
            return value.replace(tzinfo=None).isoformat() + "Z"
        return value.isoformat()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (field.name for field in dataclasses.fields(value) if field.init)
        return {name: to_json_value(getattr(value, name)) for name in fields}
    if isinstance(value, collections.abc.Mapping):
        return {name: to_json_value(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(one) for one in value]
    if isinstance(value, set | frozenset):
        return sorted(map(to_json_value, value), key=json.dumps)  # a set has no order of its own
    return value
