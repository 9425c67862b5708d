"""Sources that are already in memory: Python records (`Items`) and tables (`Table`).

Both only describe: nothing is read before the schema is asked for. The schema of items without
`schema=` comes from the first records; those of a one-shot iterator are kept and read again, so
that none is lost. The position of either is the number of records read, with the number there are
and a digest of the schema: a run that goes on with other data is refused.

    >>> Items([{"user": "ann", "price": 3}, {"user": "bob", "price": 4.5}]).schema
    user: string, price: float64
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import TYPE_CHECKING, Any

from plait.connectors.bad_rows import sort_out, without_nulls
from plait.connectors.base import Reader, Source
from plait.connectors.columns import Rounding, canonical, check_rounding, infer, to_batch
from plait.errors import SourceError
from plait.model.records import describe
from plait.model.schema import Schema

if TYPE_CHECKING:
    from plait.graph.operators import SourceOp

LOOKED_AT = 1000
"""How many first records the schema is taken from."""


class Counted(Source):
    """A source whose position is a number of records, and what says which records."""

    def named(self) -> str:
        """As errors name it."""
        return f"{type(self).__name__} {self.label}".rstrip()

    def length(self) -> int | None:
        """The number of its records; None: not known before they are read."""
        return None

    def position_at(self, row: int) -> Any:
        rows = self.length()
        return {"row": row, "rows": rows, "digest": digest_of(self.schema, rows)}

    def row_at(self, position: Any) -> int:
        if not isinstance(position, dict):
            return super().row_at(position)
        rows = self.length()
        if position["rows"] != rows:
            then, now = (
                "not known" if number is None else f"{number:,}"
                for number in (position["rows"], rows)
            )
            raise SourceError(
                f"{self.named()} is to go on after record {position['row']:,}, but is not the same:"
                f" {then} records then, {now} now"
            )
        if position["digest"] != digest_of(self.schema, rows):
            raise SourceError(
                f"{self.named()} is to go on after record {position['row']:,}, but its columns"
                f" are not those of the run before; now: {self.schema}"
            )
        return int(position["row"])


def digest_of(schema: Schema, rows: int | None) -> str:
    return hashlib.sha256(f"{schema} {rows}".encode()).hexdigest()[:16]


class Items(Counted):
    """The records of an iterable, or of a function that returns an iterator.

    Records are dicts, dataclasses, named tuples, tuples (columns c0, c1, ...) or scalars (column
    "value"). Without `schema=` the first 1,000 records give the schema. A list or a function can
    be read again and resumed; an iterator can be read once.

    >>> Items([("ann", 3), ("bob", 4)]).schema
    c0: string, c1: int64
    """

    fixed = True

    def __init__(
        self,
        items: Iterable[Any] | Callable[[], Iterable[Any]],
        schema: Any = None,
        label: str = "",
    ) -> None:
        if not callable(items) and not isinstance(items, Iterable):
            raise SourceError(
                f"Items: {describe(items)} is neither an iterable nor a function that returns one"
            )
        self.items = items
        self.label = label
        self.inferred = schema is None
        self.one_shot = not callable(items) and iter(items) is items
        self.repeatable = self.replayable = not self.one_shot
        self.opened = False
        self.looked_at: list[Any] = []
        """The first records of a one-shot iterator, taken for the schema and not yet read."""
        if schema is not None:
            self.schema = Schema.of(schema)

    def __getattr__(self, name: str) -> Any:
        # Reached only while the schema is not known yet.
        if name != "schema" or "items" not in self.__dict__:
            raise AttributeError(name)
        first = list(itertools.islice(self.iterator(), LOOKED_AT))
        if self.one_shot:
            self.looked_at = first
        if not first:
            raise SourceError(
                f"{self.named()} has no record to take the schema from; name the columns:"
                ' plait.Items(records, schema={"user": str, "price": float})'
            )
        try:
            self.schema = infer(first)
        except SourceError as error:
            raise SourceError(f"{self.named()}: {error}") from None
        return self.schema

    def length(self) -> int | None:
        """The number of records of a list; None for any other iterable."""
        return len(self.items) if isinstance(self.items, Sized) else None

    def position_at(self, row: int) -> Any:
        """An iterator that is read once has only the number."""
        return row if self.one_shot else super().position_at(row)

    def iterator(self) -> Iterator[Any]:
        """The records from the start."""
        given = self.items() if callable(self.items) else self.items
        if not isinstance(given, Iterable):
            raise SourceError(
                f"{self.named()}: the function returned {describe(given)}, not an iterator"
            )
        return iter(given)

    def open(self, position: Any = None) -> Reader:
        """A reader at the start, or after the first `position` records."""
        schema = self.schema  # may take the first records: before they are chained below
        if self.one_shot and (self.opened or position):
            raise SourceError(
                f"{self.named()} is an iterator, which can be read once and from its start; "
                "give a list, or a function that returns a new iterator"
            )
        self.opened = True
        records = itertools.chain(self.looked_at, self.iterator())
        skip = self.row_at(position)
        for read in range(skip):
            if next(records, records) is records:
                raise SourceError(
                    f"{self.named()} is to go on after record {skip:,} but has {read:,} now"
                )
        self.looked_at = []
        return ItemsReader(self, schema, records, skip)


class ItemsReader(Reader):
    """Reads an iterator in batches."""

    def __init__(self, source: Items, schema: Schema, records: Iterator[Any], read: int) -> None:
        self.source = source
        self.schema = schema
        self.records = records
        self.read = read

    def poll(self, max_rows: int) -> Any:
        records = self.take(max_rows)
        return self.batch(records) if records else None

    def poll_with_bad(self, max_rows: int) -> Any:
        records = self.take(max_rows)
        if not records:
            return None
        return sort_out(records, lambda some, at: self.batch(some, len(records) - at - len(some)))

    def require(self, schema: Schema) -> None:
        self.schema = schema

    def take(self, max_rows: int) -> list[Any]:
        """The next records as they are; none at the end."""
        records = list(itertools.islice(self.records, max_rows))
        self.read += len(records)
        return records

    def batch(self, records: Sequence[Any], behind: int = 0) -> Any:
        """Records just taken, up to the `behind` last of them, as a RecordBatch."""
        inferred = self.source.inferred and self.schema.record_class is None
        before = self.read - behind - len(records)
        try:
            return to_batch(records, self.schema, before)
        except SourceError as error:
            hint = (
                f"; the schema was taken from the first {LOOKED_AT:,} records, "
                "give schema= if they are not like the rest"
            )
            raise SourceError(f"{self.source.named()}: {error}{hint if inferred else ''}") from None

    def position(self) -> Any:
        return self.position_before(0)

    def position_before(self, held: int) -> Any:
        """The position before the last records that were taken."""
        return self.source.position_at(self.read - held)

    def close(self) -> None:
        self.records = iter(())


class Table(Counted):
    """A table in memory: pyarrow, pandas, polars, or anything with Arrow's C interface. A single
    column (a series, an array) is a table of it, under its name or "value".

    With `rate_per_s` the engine releases that many rows a second; without, as fast as it can.
    Times that are finer than a microsecond are an error, or cut with `rounding="down"`.

    >>> import pyarrow as pa
    >>> Table(pa.table({"n": [1, 2]})).schema
    n: int64?
    """

    def __init__(
        self,
        data: Any,
        rate_per_s: float | None = None,
        label: str = "",
        *,
        rounding: Rounding = "error",
    ) -> None:
        if rate_per_s is not None and not rate_per_s > 0:
            raise SourceError(f"Table: rate_per_s is {rate_per_s!r}; it must be above 0")
        table = as_arrow(data)
        if not table.num_columns:
            raise SourceError("Table: the table has no columns")
        self.schema = Schema.of(table.schema)
        self.table = canonical(table, self.schema, check_rounding("Table", rounding))
        self.rate_per_s = rate_per_s
        self.repeatable = rate_per_s is None
        self.label = label

    def arrow(self) -> Any:
        """The pyarrow Table in plait's own Arrow types."""
        return self.table

    def nulls(self, column: str) -> int:
        """The number of nulls in a column."""
        return int(self.table.column(column).null_count)

    def length(self) -> int:
        """The number of rows."""
        return int(self.table.num_rows)

    def open(self, position: Any = None) -> Reader:
        """A reader at the start, or after the first rows."""
        return TableReader(self, self.row_at(position))


def has_bad_rows(op: SourceOp) -> bool:
    """Whether rows of the source are left out as they are read: a table with nulls in its event
    time, and on_error= other than "fail". It is then read like any other source, by one node."""
    column = op.event_time
    return op.on_error != "fail" and column is not None and op.source.nulls(column) > 0


class TableReader(Reader):
    """Reads a table in slices. A paced table is read unpaced here: pacing is the engine's."""

    def __init__(self, source: Table, row: int) -> None:
        table = source.arrow()
        if not 0 <= row <= table.num_rows:
            raise SourceError(f"Table is to go on at row {row:,} but has {table.num_rows:,} rows")
        self.source = source
        self.schema = source.schema
        self.row = row
        self.chunks = table.slice(row).to_batches()

    def poll(self, max_rows: int) -> Any:
        """A poll ends where a chunk of the table does, as it does in the engine."""
        while self.chunks and self.chunks[0].num_rows == 0:
            self.chunks.pop(0)
        if not self.chunks:
            return None
        rows = self.chunks[0].slice(0, max_rows)
        self.chunks[0] = self.chunks[0].slice(max_rows)
        self.row += rows.num_rows
        return rows

    def poll_with_bad(self, max_rows: int) -> Any:
        before = self.row
        rows = self.poll(max_rows)
        return None if rows is None else without_nulls(rows, self.schema, "record", before + 1)

    def require(self, schema: Schema) -> None:
        self.schema = schema

    def position(self) -> Any:
        return self.source.position_at(self.row)


def is_table(given: Any) -> bool:
    """Whether `Table` takes it. A class that has the interface is not a table itself."""
    if isinstance(given, type):
        return False
    return hasattr(given, "__arrow_c_stream__") or hasattr(given, "__arrow_c_array__")


def is_column(given: Any) -> bool:
    """Whether it is a column of a table: a series of pandas or polars, an array of pyarrow."""
    library = type(given).__module__.split(".")[0]
    names = {"pandas": ("Series", "Index"), "polars": ("Series",), "pyarrow": ("ChunkedArray",)}
    if type(given).__name__ in names.get(library, ()):
        return True
    return library == "pyarrow" and hasattr(given, "__arrow_c_array__") and hasattr(given, "type")


def column_to_arrow(column: Any) -> Any:
    """A table of one column, under its name or "value"."""
    import pyarrow as pa

    name = getattr(column, "name", None)
    values = column.to_arrow() if hasattr(column, "to_arrow") else column
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        values = pa.array(values, from_pandas=True)
    return pa.table({name if isinstance(name, str) and name else "value": values})


def as_arrow(data: Any) -> Any:
    """A pyarrow Table of table-like data, without copying where the data is Arrow already."""
    import pyarrow as pa

    if isinstance(data, pa.Table):
        return data
    if is_column(data) and not isinstance(data, pa.StructArray):
        return column_to_arrow(data)
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if not is_table(data):
        raise SourceError(
            f"Table: {describe(data)} is not a table; give a pyarrow, pandas or polars table"
        )
    try:
        if type(data).__module__.split(".")[0] == "pandas":
            return from_pandas(data)
        return pa.table(data)
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
        raise SourceError(
            f"Table: {type(data).__name__} cannot be read as a table: {error}"
        ) from None


def from_pandas(frame: Any) -> Any:
    """A data frame's columns, and its index where that has a name."""
    import pyarrow as pa

    names: Sequence[Any] = frame.index.names
    if any(name is not None for name in names):
        frame = frame.reset_index()
    return pa.Table.from_pandas(frame, preserve_index=False)
