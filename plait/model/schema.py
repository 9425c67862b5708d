"""The vocabulary: types, fields, schemas, and where in the user's code something was written.
 A schema is an ordered tuple of named, typed fields; it comes from a dataclass, a dict or an Arrow
schema. Everything here is plain data and loads nothing heavy; Arrow appears only inside functions
that are given or asked for Arrow objects.

    >>> Schema.of({"user": str, "price": float | None}).names
    ('user', 'price')
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from plait.errors import SchemaError
from plait.model.declared_types import (
    check_classes,
    hints_to_send,
    is_checked,
    make_known,
    without_marks,
)

Timestamp = datetime.datetime
"""A point in time: microseconds since 1970 in UTC; in Python an aware `datetime` in UTC."""

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
FIELDS = "__plait_fields__"
"""The attribute of a record class made by plait that has the fields it was made from."""


class Type(enum.Enum):
    """The types a column can have. Each Python type stands for one: `int` for `Type.INT64`, and
    so on. The value is the word used in messages and in state headers.

    >>> Type.INT64, Type.FLOAT64.python, Type("string")
    (int64, <class 'float'>, string)
    """

    INT64 = "int64"
    FLOAT64 = "float64"
    BOOL = "bool"
    STRING = "string"
    BYTES = "bytes"
    TIMESTAMP = "timestamp"
    OBJECT = "object"
    """Any picklable Python value, carried as its pickle: honest, and slow."""

    def __repr__(self) -> str:
        return self.value

    @property
    def code(self) -> int:
        """The number of this type in the native runtime."""
        return CODES[self]

    @property
    def python(self) -> type:
        """The Python type of its values."""
        return PYTHON[self]


CODES = {kind: code for code, kind in enumerate(Type)}
PYTHON: dict[Type, type] = {
    Type.INT64: int,
    Type.FLOAT64: float,
    Type.BOOL: bool,
    Type.STRING: str,
    Type.BYTES: bytes,
    Type.TIMESTAMP: datetime.datetime,
    Type.OBJECT: object,
}
FROM_PYTHON = {python: kind for kind, python in PYTHON.items()}
FROM_WORD = {kind.value: kind for kind in Type} | {
    "int": Type.INT64,
    "float": Type.FLOAT64,
    "str": Type.STRING,
}


@dataclass(frozen=True, slots=True)
class Field:
    """One column of a schema: its name, its type, and whether it may be null.

    >>> print(Field("price", Type.FLOAT64, nullable=True))
    price: float64?
    """

    name: str
    type: Type
    nullable: bool = False
    declared: Any = dataclasses.field(default=None, compare=False, repr=False)
    """The type the user declared for an object column, such as `list[int]`; None: anything."""

    def __str__(self) -> str:
        return f"{self.name}: {self.type.value}{'?' if self.nullable else ''}"

    def __reduce__(self) -> tuple[Any, ...]:
        hints = () if self.declared is None else hints_to_send(self.declared)
        return load_field, (self.name, self.type, self.nullable, self.declared, hints)


def load_field(name: str, type: Type, nullable: bool, declared: Any, hints: Any) -> Field:
    """A field from its pickle. Values of its column can be unpickled from then on."""
    if declared is not None:
        make_known(declared, hints)
    return Field(name, type, nullable, declared)


@dataclass(frozen=True, slots=True)
class Location:
    """A line of the user's code."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file.rsplit('/', 1)[-1]}:{self.line}"


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """Named, typed columns in order, and the class of a record of them.

    Made with `Schema.of` from a dataclass, a dict or an Arrow schema. A name is any text that is
    not empty; `T | None` is a column that may be null.

    >>> schema = Schema.of({"item": str, "price": float | None})
    >>> schema
    item: string, price: float64?
    >>> schema["price"].nullable, schema.names
    (True, ('item', 'price'))
    """

    fields: tuple[Field, ...]
    record_class: type | None = None
    """The user's dataclass when the schema came from one."""
    complete: bool = False
    """Whether a dict must have every column, also one that may be null: so where the user did not
    write the schema of what a function returns."""
    places: Mapping[str, int] = dataclasses.field(init=False)
    """The position of each column."""

    def __post_init__(self) -> None:
        if not self.fields:
            raise SchemaError("a schema needs at least one column")
        places: dict[str, int] = {}
        for place, field in enumerate(self.fields):
            if not isinstance(field.name, str) or not field.name:
                raise SchemaError(f"a column needs a name, not {field.name!r}")
            if field.name in places:
                raise SchemaError(f'column "{field.name}" is there twice')
            places[field.name] = place
        object.__setattr__(self, "places", places)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.fields == other.fields

    def __hash__(self) -> int:
        return hash(self.fields)

    def __getstate__(self) -> list[Any]:
        return [self.fields, self.record_class, self.complete]

    def __setstate__(self, state: list[Any]) -> None:
        for name, value in zip(("fields", "record_class", "complete"), state, strict=True):
            object.__setattr__(self, name, value)
        self.__post_init__()

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self.places

    def __getitem__(self, name: str) -> Field:
        return self.fields[self.places[name]]

    def __str__(self) -> str:
        return ", ".join(str(field) for field in self.fields)

    __repr__ = __str__

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(self.places)

    def index(self, name: str) -> int:
        """The position of a column; ValueError if there is none with this name."""
        if name not in self.places:
            raise ValueError(f"no column {name!r}")
        return self.places[name]

    @classmethod
    def of(cls, given: Any) -> Schema:
        """A schema from a Schema, a dataclass, a dict of name to type, or an Arrow schema. A type
        is a Python type, a `Type`, or a word such as "int64?"."""
        if isinstance(given, Schema):
            return given
        if isinstance(given, type) and FIELDS in vars(given):
            return cls(getattr(given, FIELDS))
        if isinstance(given, type) and dataclasses.is_dataclass(given):
            return cls(tuple(fields_of_dataclass(given)), given)
        if isinstance(given, Mapping):
            return cls(tuple(field_of(name, hint) for name, hint in given.items()))
        if hasattr(given, "__arrow_c_schema__"):
            return from_arrow(given)
        raise SchemaError(
            f"cannot make a schema from {given!r}; "
            "give a dataclass, a dict of name to type, or an Arrow schema"
        )

    def inherit(self) -> Schema:
        """The same columns as the schema of what a function returns that does not say its own."""
        return dataclasses.replace(self, complete=True)

    def to_arrow(self) -> Any:
        """The pyarrow schema of batches of this schema."""
        return arrow_schema(self.fields)


@functools.lru_cache(maxsize=1024)
def arrow_schema(fields: tuple[Field, ...]) -> Any:
    """Made once for equal fields: every batch that leaves the engine asks for it."""
    import pyarrow as pa

    return pa.schema([pa.field(f.name, arrow_type(f.type), f.nullable) for f in fields])


def fields_of_dataclass(given: type) -> Iterator[Field]:
    try:
        hints = typing.get_type_hints(given)
    except NameError as error:
        raise SchemaError(f"{given.__name__}: cannot resolve an annotation: {error}") from None
    for field in dataclasses.fields(given):
        yield field_of(field.name, hints[field.name])


def field_of(name: str, hint: Any) -> Field:
    """A field from a name and a type: a Type, a Python type, `T | None`, or a word such as
    "int64"."""
    nullable = False
    if isinstance(hint, Field):
        return Field(name, hint.type, hint.nullable, hint.declared)
    if isinstance(hint, str):
        nullable, hint = hint.endswith("?"), FROM_WORD.get(hint.removesuffix("?"), hint)
    declared = hint = without_marks(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        members = [member for member in typing.get_args(hint) if member is not type(None)]
        nullable = len(members) < len(typing.get_args(hint))
        hint = without_marks(members[0]) if len(members) == 1 else object
        declared = hint if len(members) == 1 else declared
    if isinstance(hint, Type):
        return Field(name, hint, nullable)
    if hint is Any:
        return Field(name, Type.OBJECT, True)
    if hint in FROM_PYTHON and declared is hint:
        return Field(name, FROM_PYTHON[hint], nullable)
    if typing.get_origin(hint) is not None or isinstance(hint, type) or hint is object:
        check_classes(name, declared)
        return Field(name, Type.OBJECT, nullable, declared if is_checked(declared) else None)
    raise SchemaError(f'column "{name}": {hint!r} is not a type plait knows; use one of {words()}')


def words() -> str:
    return "int, float, bool, str, bytes, plait.Timestamp, or object"


def arrow_type(kind: Type) -> Any:
    import pyarrow as pa

    return {
        Type.INT64: pa.int64,
        Type.FLOAT64: pa.float64,
        Type.BOOL: pa.bool_,
        Type.STRING: pa.string,
        Type.BYTES: pa.binary,
        Type.TIMESTAMP: lambda: pa.timestamp("us", "UTC"),
        Type.OBJECT: pa.binary,
    }[kind]()


def from_arrow(given: Any) -> Schema:
    """The plait schema that an Arrow schema maps to: small integers widen, what plait has no type
    for is object."""
    import pyarrow as pa

    arrow = given if isinstance(given, pa.Schema) else pa.schema(given)
    return Schema(tuple(Field(f.name, type_of_arrow(f.type), f.nullable) for f in arrow))


def type_of_arrow(given: Any) -> Type:
    import pyarrow.types as at

    if at.is_dictionary(given):
        return type_of_arrow(given.value_type)
    tests: Iterable[tuple[Any, Type]] = (
        (at.is_integer, Type.INT64),
        (at.is_floating, Type.FLOAT64),
        (at.is_boolean, Type.BOOL),
        (at.is_string, Type.STRING),
        (at.is_large_string, Type.STRING),
        (at.is_string_view, Type.STRING),
        (at.is_binary, Type.BYTES),
        (at.is_large_binary, Type.BYTES),
        (at.is_fixed_size_binary, Type.BYTES),
        (at.is_binary_view, Type.BYTES),
        (at.is_timestamp, Type.TIMESTAMP),
        (at.is_date, Type.TIMESTAMP),
    )
    return next((kind for test, kind in tests if test(given)), Type.OBJECT)
