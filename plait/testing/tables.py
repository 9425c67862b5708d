"""Small tables written as text, for tests: a header, then one row a line, cells between `|`.

Types come from the cells: `12` int, `1.5` float, `true`, `3s` a time since 1970 (or an ISO time
ending in Z), b"..." bytes, anything else a string; an empty cell or `null` is null. Quotes make a
string of anything; a header cell may name its type: `price: float?`. A table is a source, so it can
be given to `plait.stream`; its text, read again, is the same table.

    >>> print(table('''
    ...     auction | price | ts
    ...     1       | 10    | 0s
    ...     2       |       | 3s
    ... '''))
    auction | price | ts
    1       | 10    | 0s
    2       | null  | 3s
"""

from __future__ import annotations

import ast
import datetime
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from plait.connectors.base import Reader, Source
from plait.errors import SchemaError
from plait.model.durations import signed_microseconds
from plait.model.records import datetime_of, microseconds_of, values_of
from plait.model.schema import Field, Schema, Type, field_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

CELL = re.compile(
    r"""\s*(?P<text>b?"(?:[^"\\]|\\.)*"|b?'(?:[^'\\]|\\.)*'|[^|]*?)\s*(?:\||$)""", re.ASCII
)
INTEGER = re.compile(r"[+-]?[0-9]+")
FLOAT = re.compile(r"[+-]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=e))(e[+-]?[0-9]+)?|nan|[+-]?inf")
TIME = re.compile(r"-?([0-9]+(\.[0-9]+)?(us|ms|s|m|h|d))+")
ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z")
DAY_US = 86_400_000_000


class Cell(NamedTuple):
    """A cell's own type and value; no type for null."""

    type: Type | None
    value: Any
    text: str


class Rows(Source):
    """A table of plain Python rows. It is a source and can be read any number of times.

    >>> rows = Rows({"auction": int, "price": int}, [(1, 10), (1, 20)])
    >>> rows
    auction | price
    1       | 10
    1       | 20
    >>> plait.stream(rows).sum("price").collect()
    [Record(sum=10), Record(sum=30)]
    """

    def __init__(self, schema: Any, rows: Iterable[Any], label: str = "") -> None:
        self.schema = Schema.of(schema)
        self.rows = tuple(values_of(row, self.schema) for row in rows)
        self.label = label

    def open(self, position: Any = None) -> Reader:
        return RowsReader(self.rows, position or 0)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rows) and (self.schema, self.rows) == (other.schema, other.rows)

    def __hash__(self) -> int:
        return hash((self.schema, self.rows))

    def __str__(self) -> str:
        return format_rows(self.schema, self.rows)

    __repr__ = __str__


class RowsReader(Reader):
    def __init__(self, rows: tuple[tuple[Any, ...], ...], first: int) -> None:
        self.rows = rows
        self.next = first

    def poll(self, max_rows: int) -> Any:
        if self.next >= len(self.rows):
            return None
        taken = list(self.rows[self.next : self.next + max_rows])
        self.next += len(taken)
        return taken

    def position(self) -> int:
        return self.next


def table(text: str) -> Rows:
    """The table that a text shows: a header, then one row a line. `plait.stream` takes it.

    >>> bids = table('''
    ...     auction | price
    ...     1       | 10
    ...     1       | 20
    ... ''')
    >>> bids.schema, list(bids)
    (auction: int64, price: int64, [(1, 10), (1, 20)])
    """
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if not lines:
        raise SchemaError("a table needs at least a header, such as: auction | price")
    header = [cell.text for cell in cells(lines[0])]
    rows = [cells(line) for line in lines[1:]]
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            raise SchemaError(
                f"row {number} of the table has {len(row)} cells, the header {len(header)}: "
                f"{lines[number]}"
            )
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(header)
    fields = tuple(field_in(title, column) for title, column in zip(header, columns, strict=True))
    return Rows(Schema(fields), (tuple(map(fit, row, fields)) for row in rows))


def cells(line: str) -> list[Cell]:
    """The cells of one line."""
    found: list[Cell] = []
    start = 0
    while True:
        match = CELL.match(line, start)
        if match is None:
            raise SchemaError(f"cannot read this line of a table: {line}")
        found.append(cell(match["text"]))
        start = match.end()
        if not match.group().endswith("|"):
            return found


def cell(text: str) -> Cell:
    if text in ("", "null"):
        return Cell(None, None, text)
    if re.fullmatch(r"""b?(".*"|'.*')""", text, re.DOTALL):
        value = ast.literal_eval(text)
        return Cell(Type.BYTES if text[0] == "b" else Type.STRING, value, text)
    if text in ("true", "false"):
        return Cell(Type.BOOL, text == "true", text)
    if INTEGER.fullmatch(text):
        return Cell(Type.INT64, int(text), text)
    if FLOAT.fullmatch(text):
        return Cell(Type.FLOAT64, float(text), text)
    if TIME.fullmatch(text):
        sign = -1 if text.startswith("-") else 1
        since = sign * signed_microseconds(text.removeprefix("-"))
        return Cell(Type.TIMESTAMP, datetime_of(since), text)
    if ISO.fullmatch(text):
        return Cell(Type.TIMESTAMP, datetime.datetime.fromisoformat(text), text)
    return Cell(Type.STRING, text, text)


def field_in(title: str, column: Sequence[Cell]) -> Field:
    """The field of a column: what its header says, else what its cells are."""
    name, colon, hint = (part.strip() for part in title.partition(":"))
    if colon:
        return field_of(name, hint)
    kinds = {one.type for one in column if one.type is not None}
    nullable = not kinds or any(one.type is None for one in column)
    if kinds == {Type.INT64, Type.FLOAT64}:
        return Field(name, Type.FLOAT64, nullable)
    return Field(name, kinds.pop() if len(kinds) == 1 else Type.STRING, nullable)


def fit(one: Cell, field: Field) -> Any:
    """The value of a cell in its column: a number in a column of strings is its text."""
    if field.type is Type.STRING and one.type not in (None, Type.STRING):
        return one.text
    return one.value


def format_rows(schema: Schema, rows: Iterable[Sequence[Any]]) -> str:
    """The text of a table, aligned; `table` reads it back unless it holds objects.

    >>> print(format_rows(Schema.of({"auction": int, "price": int}), [(1, 10), (12, 5)]))
    auction | price
    1       | 10
    12      | 5
    """
    kept = [list(row) for row in rows]
    body = [[format_cell(v, f) for v, f in zip(row, schema, strict=True)] for row in kept]
    titles = []
    for i, field in enumerate(schema):
        seen = [cell(row[i]) for row in body]
        plain = field.type is Type.OBJECT or field_in(field.name, seen) == field
        hint = f": {field.type.value}{'?' if field.nullable else ''}"
        titles.append(field.name if plain else field.name + hint)
    widths = [max(map(len, column)) for column in zip(titles, *body, strict=True)]
    lines = [
        " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in [titles, *body]
    ]
    return "\n".join(lines)


def format_cell(value: Any, field: Field) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float() if field.type is not Type.OBJECT:
            return repr(value)
        case datetime.datetime():
            return format_time(microseconds_of(value), value)
        case str() if field.type is Type.STRING:
            bare = (
                value.isprintable()
                and "|" not in value
                and cell(value) == (field.type, value, value)
            )
            return (
                value if bare and value.strip() == value else json.dumps(value, ensure_ascii=False)
            )
    return repr(value)


def format_time(since: int, value: datetime.datetime) -> str:
    """Seconds since 1970 for times of its first days, else the date."""
    if 0 <= since < 100 * DAY_US:
        whole, rest = divmod(since, 1_000_000)
        return f"{whole}.{rest:06d}".rstrip("0").rstrip(".") + "s"
    return value.isoformat().replace("+00:00", "Z")
