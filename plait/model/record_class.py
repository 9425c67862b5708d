"""The class of records of a schema that came from no dataclass: attributes and a mapping in one.

Each schema has its own class, a slots dataclass below `Record`; equal fields share one. A column
may have any name. One that cannot be a slot (`user-id`, `class`, `__len__`) or would hide what a
mapping needs waits in a slot of another name, and `SLOTS` of the class says where: everything here
and in the native runtime goes by that table, never by the attribute.

    >>> schema = Schema.of({"user-id": int, "page": str})
    >>> record = make_class(schema.fields)(7, "/x")
    >>> record["user-id"], record.page, {**record}
    (7, '/x', {'user-id': 7, 'page': '/x'})
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import keyword
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from plait.model.schema import FIELDS, Field, Schema, Type

SLOTS = "__plait_slots__"
"""The attribute of a class that has the member of each column, by its name and in their order."""


class ShortRepr(reprlib.Repr):
    """Values as messages show them: shortened, and times as ISO 8601."""

    def repr_datetime(self, moment: datetime.datetime, level: int) -> str:
        return iso(moment)

    def repr_date(self, day: datetime.date, level: int) -> str:
        return day.isoformat()


def iso(moment: datetime.datetime) -> str:
    """A time as ISO 8601; Z stands for UTC."""
    if moment.utcoffset() == datetime.timedelta(0):
        return moment.replace(tzinfo=None).isoformat() + "Z"
    return moment.isoformat()


short = ShortRepr()
short.maxstring = short.maxother = 60
short.maxlong = 40


class Record:
    """A record as your functions get it, when its schema came from no dataclass.

    A column is an attribute, and the record is a mapping of names to values: `record["price"]`,
    `{**record, "total": 3}`, `dict(record)`, `len`, `in`, iteration over the names, `keys`,
    `values`, `items` and `get`. A column named like one of these methods is reached by
    `record["items"]`; as an attribute it is the column, except `keys`, which stays the method that
    `{**record}` needs. `record["user-id"] = 3` sets a value; a record has no other columns.

    >>> import plait
    >>> record = plait.stream([{"item": "tea", "price": 3}]).collect()[0]
    >>> record.price, record["price"], {**record, "total": 6}
    (3, 3, {'item': 'tea', 'price': 3, 'total': 6})
    >>> record
    Record(item='tea', price=3)
    """

    __slots__ = ()
    __plait_slots__: ClassVar[dict[str, Any]] = {}

    def __getitem__(self, name: str) -> Any:
        return slot_in(self, name).__get__(self)

    def __setitem__(self, name: str, value: Any) -> None:
        slot_in(self, name).__set__(self, value)

    def __iter__(self) -> Iterator[str]:
        return iter(self.__plait_slots__)

    def __len__(self) -> int:
        return len(self.__plait_slots__)

    def __contains__(self, name: object) -> bool:
        return name in self.__plait_slots__

    def keys(self) -> Any:
        """The names of the columns: `list(record.keys())`."""
        return self.__plait_slots__.keys()

    def values(self) -> tuple[Any, ...]:
        """The values, in the order of the columns: `sum(record.values())`."""
        return values_in(self)

    def items(self) -> tuple[tuple[str, Any], ...]:
        """Names and values: `for name, value in record.items()`."""
        return tuple(zip(self.__plait_slots__, values_in(self), strict=True))

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a column, or `default` if there is no such column: `record.get("note")`."""
        slot = self.__plait_slots__.get(name)
        return default if slot is None else slot.__get__(self)

    def __repr__(self) -> str:
        parts = zip(self.__plait_slots__, values_in(self), strict=True)
        return f"Record({', '.join(f'{shown_name(n)}={short.repr(v)}' for n, v in parts)})"


Mapping.register(Record)  # registered, not inherited: a plain class is made and filled faster


def slot_in(record: Record, name: str) -> Any:
    """The slot of a column, or a KeyError that says which there are."""
    slot = record.__plait_slots__.get(name)
    if slot is None:
        raise KeyError(f"no column {name!r}; the record has {', '.join(record.__plait_slots__)}")
    return slot


def values_in(record: Record) -> tuple[Any, ...]:
    """The values of a record, whatever its columns are called."""
    return tuple(slot.__get__(record) for slot in record.__plait_slots__.values())


def shown_name(name: str) -> str:
    return name if name.isidentifier() else repr(name)


@functools.cache
def make_class(fields: tuple[Field, ...]) -> type:
    """The class of records with these fields; the same one for equal fields."""
    names = tuple(field.name for field in fields)
    slots = slot_names(names)
    cls: Any = dataclasses.make_dataclass(
        "Record",
        [(slot, hint_of(field)) for slot, field in zip(slots, fields, strict=True)],
        bases=(Record,),
        slots=True,
        repr=False,
        namespace={
            "__reduce__": lambda record: (rebuild_record, (fields, *values_in(record))),
            "__module__": __name__,
        },
    )
    members = {name: cls.__dict__[slot] for name, slot in zip(names, slots, strict=True)}
    setattr(cls, SLOTS, members)
    setattr(cls, FIELDS, fields)
    if slots != names:
        give_names(cls, names, slots)
    made: type = cls
    return made


def rebuild_record(fields: tuple[Field, ...], *values: Any) -> Any:
    """A record of a made class from its pickle."""
    return make_class(fields)(*values)


def slot_names(names: Sequence[str]) -> tuple[str, ...]:
    """Where each column is held: under its own name where that can be a slot of a dataclass."""
    taken = set(names)
    slots: list[str] = []
    for i, name in enumerate(names):
        slot = name
        if not is_plain_name(name):
            slot = f"column_{i}"
            while slot in taken:
                slot += "_"
            taken.add(slot)
        slots.append(slot)
    return tuple(slots)


def is_plain_name(name: str) -> bool:
    fits = name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("__")
    return fits and not hasattr(Record, name)


def give_names(cls: Any, names: Sequence[str], slots: Sequence[str]) -> None:
    """Makes columns that are held under other names attributes and dataclass fields of their own.
    `keys` and names of the language (`__len__`) stay what they are."""
    made = cls.__init__
    own = {
        name: slot
        for name, slot in zip(names, slots, strict=True)
        if name != slot and name != "keys" and not name.endswith("__")
    }

    def init(record: Any, *args: Any, **named: Any) -> None:
        made(record, *args, **{own.get(name, name): value for name, value in named.items()})

    name_of = {slot: name for name, slot in own.items()}
    fields = cls.__dataclass_fields__
    for name, slot in own.items():
        setattr(cls, name, cls.__dict__[slot])
        fields[slot].name = name
    cls.__dataclass_fields__ = {name_of.get(slot, slot): field for slot, field in fields.items()}
    type.__setattr__(cls, "__match_args__", tuple(name_of.get(slot, slot) for slot in slots))
    cls.__init__ = init


def hint_of(field: Field) -> Any:
    if field.type is Type.OBJECT:
        return Any if field.nullable else object
    return field.type.python | None if field.nullable else field.type.python


def record_class(schema: Schema) -> type:
    """The class of a record: the user's dataclass, or a made one."""
    return schema.record_class or make_class(schema.fields)
