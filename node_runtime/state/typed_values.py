"""Values of declared types as plain data, and back: numbers, text, bytes, times, and tuples, lists,
dicts and dataclasses of these.

A *description* says what the values are, in plain data of its own: a name ("int"), or a list that
begins with a kind. It is written beside them, so that they can be read without the classes: a
dataclass is its fields by name, and neither its module nor the version of Python is in the bytes.
Read for a class that has changed, fields that are new get their defaults and those that are gone
are left out. A value that is not of its declared type is `Unfit`; it has to be written otherwise.
"""

from __future__ import annotations

import dataclasses
import datetime
import types
import typing
from typing import TYPE_CHECKING, Any

from plait.errors import StateError
from plait.graph.state_types import SCALARS, TIME, Description
from plait.model.records import datetime_of, microseconds_of

if TYPE_CHECKING:
    from collections.abc import Callable

Convert = typing.Callable[[Any], Any]

PLAIN = frozenset((*SCALARS, type(None)))
"""What is written as it is: the bytes themselves say which of these it was."""


class Unfit(Exception):
    """A value is not of the type that was declared."""


def encoder(hint: Any) -> Convert | None:
    """Makes a value of a type that has a description plain; None: it is so, but for a check."""
    if hint in SCALARS:
        return None
    if hint is datetime.datetime:
        return time_number
    args = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        inner = checked(next(arg for arg in args if arg is not type(None)))
        return lambda value: None if value is None else inner(value)
    if origin is dict:
        return of_dict(encoder(args[1]))
    if origin is list or (origin is tuple and Ellipsis in args):
        return of_list(origin, encoder(args[0]))
    if origin is tuple:
        return of_tuple([encoder(arg) for arg in args])
    return of_class(hint)


def checked(hint: Any) -> Convert:
    return encoder(hint) or checked_plain


def checked_plain(value: Any) -> Any:
    if type(value) not in PLAIN:
        raise Unfit(f"{value!r} is a {type(value).__name__}")
    return value


def time_number(value: Any) -> Any:
    """Microseconds since 1970; a time in another zone than UTC would come back in UTC."""
    if value is None:
        return None
    if type(value) is not datetime.datetime or value.tzinfo is not datetime.UTC:
        raise Unfit(f"{value!r} is not a time in UTC")
    return microseconds_of(value)


def of_list(kind: type[list[Any] | tuple[Any, ...]], inner: Convert | None) -> Convert:
    def encode(value: Any) -> Any:
        if type(value) is not kind:
            raise Unfit(f"{value!r} is not a {kind.__name__}")
        if inner is not None:
            return [inner(each) for each in value]
        if not PLAIN.issuperset(map(type, value)):
            raise Unfit(f"{value!r} has something else in it")
        return value

    return encode


def of_dict(inner: Convert | None) -> Convert:
    def encode(value: Any) -> Any:
        if type(value) is not dict or not PLAIN.issuperset(map(type, value)):
            raise Unfit(f"{value!r} is not a dict by plain keys")
        if inner is not None:
            return {key: inner(each) for key, each in value.items()}
        if not PLAIN.issuperset(map(type, value.values())):
            raise Unfit(f"{value!r} has something else in it")
        return value

    return encode


def of_tuple(inner: list[Convert | None]) -> Convert:
    is_plain = not any(inner)
    makers = [one or checked_plain for one in inner]

    def encode(value: Any) -> Any:
        if type(value) is not tuple or len(value) != len(makers):
            raise Unfit(f"{value!r} is not a tuple of {len(makers)}")
        if not is_plain:
            return [one(each) for one, each in zip(makers, value, strict=True)]
        if not PLAIN.issuperset(map(type, value)):
            raise Unfit(f"{value!r} has something else in it")
        return value

    return encode


def of_class(cls: Any) -> Convert:
    hints = typing.get_type_hints(cls)
    fields = [(one.name, checked(hints[one.name])) for one in dataclasses.fields(cls)]

    def encode(value: Any) -> Any:
        if type(value) is not cls:
            raise Unfit(f"{value!r} is not a {cls.__name__}")
        if len(getattr(value, "__dict__", fields)) != len(fields):
            raise Unfit(f"{value!r} has attributes that are no fields of {cls.__name__}")
        try:
            return [one(getattr(value, name)) for name, one in fields]
        except AttributeError as error:
            raise Unfit(str(error)) from None

    return encode


def decoder(found: Description, hint: Any = None) -> Convert | None:
    """Makes a value of plain data that has this description, in which lists are tuples; None: it is
    one already. With a `hint` dataclasses are made, without one they are dicts by field."""
    if isinstance(found, str):
        if found == TIME:
            return lambda value: None if value is None else datetime_of(value)
        wider = hint is float and found == "int"
        return (lambda value: float(value) if type(value) is int else value) if wider else None
    kind, *parts = found
    args = [arg for arg in typing.get_args(hint) if arg is not Ellipsis]
    if kind == "maybe":
        some = next((arg for arg in args if arg is not type(None)), None)
        return optional(decoder(parts[0], some or hint))
    if kind == "class":
        return make_class(parts[1], hint) if is_class(hint) else make_dict(parts[1])
    inner = [decoder(part, arg) for part, arg in zip(parts, args or [None] * 99, strict=False)]
    one = inner[-1]
    if kind == "list":
        return list if one is None else lambda value: [one(each) for each in value]
    if kind == "tuples":
        return None if one is None else lambda value: tuple([one(each) for each in value])
    if kind == "tuple":
        if not any(inner):
            return None
        makers = [each or same for each in inner]
        return lambda value: tuple([make(each) for make, each in zip(makers, value, strict=True)])
    if kind == "dict":
        return None if one is None else lambda value: {k: one(each) for k, each in value.items()}
    raise StateError(f"a state of the kind {kind!r} was written by a newer version of plait")


def same(value: Any) -> Any:
    return value


def optional(inner: Convert | None) -> Convert | None:
    return None if inner is None else lambda value: None if value is None else inner(value)


def is_class(hint: Any) -> bool:
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def make_dict(fields: list[Any]) -> Convert:
    names = [name for name, *_ in fields]
    makers = [decoder(part) or same for _, part, *_ in fields]
    return lambda value: {
        name: make(each) for name, make, each in zip(names, makers, value, strict=True)
    }


def make_class(fields: list[Any], cls: Any) -> Convert:
    """Instances are made as pickle makes them: without calling the class."""
    hints = typing.get_type_hints(cls)
    known = {one.name: one for one in dataclasses.fields(cls)}
    places = [
        (at, name, decoder(part, hints[name]) or same)
        for at, (name, part, *_) in enumerate(fields)
        if name in known
    ]
    there = {name for _, name, _ in places}
    missing = [first_of(one, cls) for name, one in known.items() if name not in there]

    def make(value: Any) -> Any:
        made = object.__new__(cls)
        for at, name, one in places:
            object.__setattr__(made, name, one(value[at]))
        for name, first in missing:
            object.__setattr__(made, name, first())
        return made

    return make


def first_of(one: Any, cls: Any) -> tuple[str, Callable[[], Any]]:
    """What a field begins with that older states do not have."""
    if one.default is not dataclasses.MISSING:
        return one.name, lambda: one.default
    if one.default_factory is not dataclasses.MISSING:
        return one.name, one.default_factory
    raise StateError(f"{cls.__name__}.{one.name} is new and has no default; give it one")
