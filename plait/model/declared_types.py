"""Columns of nested and library types: values become what the user declared, where they come in.

A column has one of few native types; all others travel as Python objects. What the user declared
for such a column (`list[Item]`, `Decimal`, `date`, an Enum, `UUID`, a dataclass) is kept with its
field, and every value is checked against it when it enters the column. What has one meaning is
converted: a dict to a dataclass, a text to a date, `UUID` or `Decimal`, a value to its Enum. All
else is refused. `declared_json.py` has the other direction.

    >>> import datetime
    >>> as_declared(["2024-03-01"], list[datetime.date])
    [datetime.date(2024, 3, 1)]
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import enum
import functools
import importlib
import math
import sys
import types
import typing
import uuid
from typing import Any

from plait.errors import SchemaError

if typing.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Convert = Callable[[Any], Any]

NOT_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
LISTS = (list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
DICTS = (dict, collections.abc.Mapping)


class Refused(ValueError):
    """A value is not what was declared; the text says why, or nothing."""


def as_declared(value: Any, hint: Any) -> Any:
    """The value in its declared type, or `Refused`."""
    return converter_of(hint)(value)


def is_checked(hint: Any) -> bool:
    """Whether the type says anything; raises SchemaError where it cannot be looked up."""
    return converter_of(hint) is not keep


def keep(value: Any) -> Any:
    return value


@functools.cache
def converter_of(hint: Any) -> Convert:
    return make_converter(hint, {})


def make_converter(hint: Any, open_classes: dict[type, Convert]) -> Convert:
    """`open_classes`: those whose fields are being looked at, for classes that hold themselves."""
    hint = without_marks(hint)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is None or hint is type(None):
        return exact(type(None))
    if origin in (typing.Union, types.UnionType):
        return union_converter(args, open_classes)
    if origin is typing.Literal:
        return literal_converter(args)
    if typing.is_typeddict(hint):
        return typed_dict_converter(hint, open_classes)
    kind = origin or hint
    unchecked = kind in (Any, object) or getattr(kind, "_is_protocol", False)
    if unchecked or not isinstance(kind, type):
        return keep  # Any, a type variable, a protocol: nothing to check
    if kind in SCALARS:
        return SCALARS[kind]
    if kind in LISTS or kind in (set, frozenset, collections.abc.Set):
        target: Any = list if kind in LISTS else frozenset if kind is frozenset else set
        return sequence_converter(target, make_converter(args[0], open_classes) if args else keep)
    if kind in DICTS:
        pair = args or (Any, Any)
        return dict_converter(*(make_converter(one, open_classes) for one in pair))
    if kind is tuple:
        return tuple_converter(args, open_classes)
    if issubclass(kind, enum.Enum):
        return functools.partial(to_enum, kind)
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        return class_converter(kind, open_classes)
    return exact(kind)


def without_marks(hint: Any) -> Any:
    """The type inside `Annotated`, `NewType` and the like."""
    while True:
        if typing.get_origin(hint) in (typing.Annotated, typing.Required, typing.NotRequired):
            hint = typing.get_args(hint)[0]
        elif hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        else:
            return hint


def shown(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")


def types_in(hint: Any, seen: set[Any]) -> set[Any]:
    """All types that a type is made of."""
    hint = without_marks(hint)
    if isinstance(hint, list) or hint in seen:  # a list: the parameters of a Callable
        return seen
    seen.add(hint)
    for one in typing.get_args(hint) if typing.get_origin(hint) is not typing.Literal else ():
        types_in(one, seen)
    if has_fields(hint):
        for one in hints_of(hint).values():
            types_in(one, seen)
    return seen


def check_classes(name: str, hint: Any) -> None:
    """Raises for a class whose objects cannot be sent to another process."""
    for kind in own_classes(hint):
        if "<locals>" in kind.__qualname__:
            raise SchemaError(
                f'column "{name}": {kind.__name__} is defined inside a function, so its objects'
                " cannot travel between processes; define it at the top of a module"
            )


def own_classes(hint: Any) -> Iterator[type]:
    """The classes in a type whose objects plait may make."""
    for one in types_in(hint, set()):
        is_enum = isinstance(one, type) and issubclass(one, enum.Enum)
        if is_enum or (has_fields(one) and not typing.is_typeddict(one)):
            yield one


def make_known(hint: Any, hints: tuple[tuple[Any, Hints], ...]) -> None:
    """Puts the classes of a type that came by value where pickle looks for them: the module they
    were defined in, as `__main__`, is another one in this process."""
    sent_hints.update(hints)
    for kind in own_classes(hint):
        *outer, name = kind.__qualname__.split(".")
        place: Any = module_of(kind)
        for one in outer:
            place = getattr(place, one, None)
        if place is not None and getattr(place, name, None) is not kind:
            setattr(place, name, kind)


def module_of(kind: type) -> types.ModuleType:
    name = kind.__module__
    if name not in sys.modules:
        try:
            importlib.import_module(name)
        except Exception:  # a module of the user's may raise anything when it is imported
            sys.modules[name] = types.ModuleType(name)
    return sys.modules[name]


def exact(kind: type) -> Convert:
    def convert(value: Any) -> Any:
        if not isinstance(value, kind):
            raise Refused
        return value

    return convert


def union_converter(members: tuple[Any, ...], open_classes: dict[type, Convert]) -> Convert:
    """A value that is of one of the types stays as it is; then they are tried in their order."""
    converts = [make_converter(member, open_classes) for member in members]
    kinds = tuple(one for one in map(without_marks, members) if isinstance(one, type))

    def convert(value: Any) -> Any:
        if type(value) in kinds:
            return converts[members.index(type(value))](value) if type(value) in members else value
        for one in converts:
            try:
                return one(value)
            except Refused:
                continue
        raise Refused

    return convert


def literal_converter(values: tuple[Any, ...]) -> Convert:
    def convert(value: Any) -> Any:
        if not any(type(value) is type(one) and value == one for one in values):
            raise Refused(f"; it must be one of {', '.join(map(repr, values))}")
        return value

    return convert


def sequence_converter(target: Any, element: Convert) -> Convert:
    def convert(value: Any) -> Any:
        if not isinstance(value, list | tuple | set | frozenset):
            raise Refused
        return target([element(one) for one in value])

    return convert


def dict_converter(key: Convert, element: Convert) -> Convert:
    def convert(value: Any) -> Any:
        if isinstance(value, list) and all(type(one) is tuple and len(one) == 2 for one in value):
            value = dict(value)  # a map of Arrow
        if not isinstance(value, collections.abc.Mapping):
            raise Refused
        return {key(name): element(one) for name, one in value.items()}

    return convert


def tuple_converter(args: tuple[Any, ...], open_classes: dict[type, Convert]) -> Convert:
    if not args or (len(args) == 2 and args[1] is Ellipsis):
        return sequence_converter(tuple, make_converter(args[0], open_classes) if args else keep)
    elements = [make_converter(one, open_classes) for one in args]

    def convert(value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) != len(elements):
            raise Refused(f"; it must have {len(elements)} elements")
        return tuple(one(part) for one, part in zip(elements, value, strict=True))

    return convert


Hints = dict[str, Any]
sent_hints: dict[Any, Hints] = {}
"""The types of the fields of classes that came by value, whose annotations may be texts that
cannot be looked up in this process."""


def hints_of(kind: Any) -> Hints:
    """The types of the fields of a class."""
    if kind in sent_hints:
        return sent_hints[kind]
    try:
        return typing.get_type_hints(kind)
    except NameError as error:
        raise SchemaError(f"{kind.__name__}: cannot resolve an annotation: {error}") from None


def hints_to_send(hint: Any) -> tuple[tuple[Any, Hints], ...]:
    """What another process must be told of the classes in a type."""
    fields = (one for one in types_in(hint, set()) if has_fields(one))
    return tuple((one, hints_of(one)) for one in fields)


def has_fields(hint: Any) -> bool:
    """Whether it is a class with annotated fields: a dataclass, a named tuple, a `TypedDict`."""
    made = dataclasses.is_dataclass(hint) or hasattr(hint, "_fields")
    return isinstance(hint, type) and (made or typing.is_typeddict(hint))


def class_converter(kind: Any, open_classes: dict[type, Convert]) -> Convert:
    """A dataclass or a named tuple: an object of it, or a dict (or list) of its fields."""
    if kind in open_classes:
        return open_classes[kind]
    fields: dict[str, Convert] = {}

    def convert(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        if isinstance(value, list | tuple) and len(value) == len(getattr(kind, "_fields", ())):
            value = dict(zip(kind._fields, value, strict=True))
        if not isinstance(value, collections.abc.Mapping):
            raise Refused
        unknown = [str(name) for name in value if name not in fields]
        if unknown:
            raise Refused(f'; {kind.__name__} has no field "{unknown[0]}"')
        try:
            return kind(**{name: fields[name](one) for name, one in value.items()})
        except TypeError as error:
            raise Refused(f"; {error}") from error

    open_classes[kind] = convert
    hints = hints_of(kind)
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind) if field.init]
    else:
        names = list(kind._fields)
    fields |= {name: make_converter(hints.get(name, Any), open_classes) for name in names}
    return convert


def typed_dict_converter(kind: Any, open_classes: dict[type, Convert]) -> Convert:
    fields = {name: make_converter(hint, open_classes) for name, hint in hints_of(kind).items()}

    def convert(value: Any) -> Any:
        if not isinstance(value, collections.abc.Mapping):
            raise Refused
        wrong = [*(kind.__required_keys__ - value.keys()), *(value.keys() - fields.keys())]
        if wrong:
            what = "has no key" if wrong[0] in fields else "must not have the key"
            raise Refused(f'; it {what} "{wrong[0]}"')
        return {name: fields[name](one) for name, one in value.items()}

    return convert


def to_enum(kind: type[enum.Enum], value: Any) -> Any:
    if isinstance(value, kind):
        return value
    try:
        return kind(value)
    except ValueError:
        raise Refused(f"; its values are {', '.join(repr(one.value) for one in kind)}") from None


def to_int(value: Any) -> int:
    value = plain_scalar(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Refused
    return value


def to_float(value: Any) -> float:
    value = plain_scalar(value)
    if isinstance(value, str) and value in NOT_NUMBERS:
        return NOT_NUMBERS[value]
    if not isinstance(value, float | int | decimal.Decimal) or isinstance(value, bool):
        raise Refused
    return float(value)


def to_decimal(value: Any) -> decimal.Decimal:
    if isinstance(value, decimal.Decimal):
        return value
    if isinstance(value, float):
        raise Refused("; a float is not exact: give a Decimal, an int or a text")
    if not isinstance(value, int | str) or isinstance(value, bool):
        raise Refused
    try:
        return decimal.Decimal(value)
    except decimal.InvalidOperation:
        raise Refused from None


def to_date(value: Any) -> datetime.date:
    if isinstance(value, datetime.datetime):
        raise Refused("; it has a time of day")
    if isinstance(value, datetime.date):
        return value
    parsed: datetime.date = parse(datetime.date.fromisoformat, value)
    return parsed


def to_datetime(value: Any) -> datetime.datetime:
    if isinstance(value, datetime.datetime):
        if value.utcoffset() is None:
            raise Refused("without a time zone; add one, such as tzinfo=datetime.UTC")
        return value
    moment: datetime.datetime = parse(datetime.datetime.fromisoformat, value)
    return moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)


def to_time(value: Any) -> datetime.time:
    if isinstance(value, datetime.time):
        return value
    parsed: datetime.time = parse(datetime.time.fromisoformat, value)
    return parsed


def to_uuid(value: Any) -> uuid.UUID:
    if isinstance(value, uuid.UUID):
        return value
    parsed: uuid.UUID = parse(uuid.UUID, value)
    return parsed


def parse(parser: Callable[[str], Any], value: Any) -> Any:
    if not isinstance(value, str):
        raise Refused
    try:
        return parser(value)
    except ValueError:
        raise Refused from None


def plain_scalar(value: Any) -> Any:
    """A numpy scalar as Python's."""
    if hasattr(value, "dtype") and getattr(value, "shape", None) == ():
        return value.item()
    return value


SCALARS: dict[Any, Convert] = {
    int: to_int,
    float: to_float,
    decimal.Decimal: to_decimal,
    datetime.date: to_date,
    datetime.datetime: to_datetime,
    datetime.time: to_time,
    uuid.UUID: to_uuid,
}
