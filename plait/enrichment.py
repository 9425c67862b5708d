"""Columns of a table beside each record of a stream: the function of batches behind `enrich`.

A lookup by key in a table that is held in memory: one row for each record, in order, null where the
table has no such key. Whole numbers are looked up by array (directly where they are dense, else by
bisection), other keys in a dict. With `refresh` a table that is a path is read again when it is
older than that: which record meets which version is then no longer the same in every run, so each
row says in `read_at` when its version was read.
"""

from __future__ import annotations

import datetime
import time
from typing import TYPE_CHECKING, Any

from plait.errors import JobError
from plait.files import Files
from plait.model import Field, Schema, Type
from plait.sources.columns import canonical

if TYPE_CHECKING:
    from collections.abc import Sequence

FOUND, READ_AT = "found", "read_at"
DENSE = 4
"""Whole numbers that span no more than so many times their count are looked up directly."""


class Lookup:
    """The place of each key in a table."""

    def __init__(self, table: Any, keys: Sequence[str]) -> None:
        columns = [table.column(key) for key in keys]
        self.first = 0
        self.sorted: Any = None
        """Whole numbers in order, ..."""
        self.order: Any = None
        """... the place of each, ..."""
        self.direct: Any = None
        """... and, where they are dense, the place of each number from the first on."""
        self.places: dict[Any, int] = {}
        self.plain = len(columns) == 1 and whole_numbers(columns[0])
        if self.plain:
            self.index(columns[0].to_numpy())
            return
        for place, key in enumerate(rows_of(columns)):
            if None in key:
                continue
            if key in self.places:
                raise twice(keys, key)
            self.places[key] = place

    def index(self, values: Any) -> None:
        import numpy as np

        self.order = np.argsort(values, kind="stable")
        self.sorted = values[self.order]
        again = np.flatnonzero(self.sorted[1:] == self.sorted[:-1])
        if len(again):
            raise twice(("its key",), (int(self.sorted[again[0]]),))
        if len(values) and int(self.sorted[-1]) - int(self.sorted[0]) <= DENSE * len(values):
            self.first = int(self.sorted[0])
            self.direct = np.full(int(self.sorted[-1]) - self.first + 1, -1, np.int64)
            self.direct[values - self.first] = np.arange(len(values))

    def find(self, columns: Sequence[Any]) -> Any:
        """The places of the keys of a batch; -1: there is none."""
        import numpy as np

        if self.plain and not columns[0].null_count:
            return self.find_numbers(columns[0].to_numpy())
        if self.plain:
            filled = self.find_numbers(columns[0].fill_null(0).to_numpy())
            return np.where(columns[0].is_valid().to_numpy(zero_copy_only=False), filled, -1)
        get = self.places.get
        found = (get(key, -1) for key in rows_of(columns))
        return np.fromiter(found, np.int64, len(columns[0]))

    def find_numbers(self, values: Any) -> Any:
        import numpy as np

        if not len(self.sorted):
            return np.full(len(values), -1, np.int64)
        if self.direct is not None:
            inside = (values >= self.first) & (values <= self.sorted[-1])
            return np.where(inside, self.direct[np.where(inside, values - self.first, 0)], -1)
        at = np.minimum(np.searchsorted(self.sorted, values), len(self.sorted) - 1)
        return np.where(self.sorted[at] == values, self.order[at], -1)


def whole_numbers(column: Any) -> bool:
    import pyarrow as pa

    return bool(column.type == pa.int64() and not column.null_count)


def rows_of(columns: Sequence[Any]) -> Any:
    return zip(*(column.to_pylist() for column in columns), strict=True)


def twice(keys: Sequence[str], key: Sequence[Any]) -> JobError:
    shown = ", ".join(repr(value) for value in key)
    return JobError(
        f"the table has the key {shown} twice ({', '.join(keys)}); a record meets one row of it"
    )


class Enrich:
    """The function of batches. Made once for a job; each process reads a path for itself."""

    def __init__(
        self,
        table: Any,
        on: Sequence[tuple[str, str]],
        columns: Sequence[tuple[str, str]],
        *,
        marked: bool,
        refresh_us: int,
    ) -> None:
        """`table` is an Arrow table or `Files`; `on` pairs of columns of record and table;
        `columns` pairs of table column and name; `marked`: a column says whether it was found."""
        self.table = table
        self.on = tuple(on)
        self.columns = tuple(columns)
        self.marked = marked
        self.refresh_us = refresh_us
        self.held: tuple[Any, Lookup] | None = None
        self.read_at = datetime.datetime.fromtimestamp(0, datetime.UTC)
        self.read_clock = 0.0
        self.__name__ = "enrich"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "held": None}

    def __call__(self, batch: Any) -> Any:
        import pyarrow as pa

        table, lookup = self.current()
        places = lookup.find([batch.column(ours).combine_chunks() for ours, _ in self.on])
        chosen = pa.array(places, mask=places < 0)
        for theirs, name in self.columns:
            batch = batch.append_column(name, table.column(theirs).take(chosen))
        if self.marked:
            batch = batch.append_column(FOUND, pa.array(places >= 0))
        if self.refresh_us:
            stamp = pa.scalar(self.read_at, pa.timestamp("us", "UTC"))
            batch = batch.append_column(READ_AT, pa.repeat(stamp, batch.num_rows))
        return batch

    def current(self) -> tuple[Any, Lookup]:
        """The table and its keys; read when it is first needed, and again when it is old."""
        now = time.monotonic()
        old = self.refresh_us and now - self.read_clock >= self.refresh_us / 1e6
        if self.held is None or old:
            table = self.table if not isinstance(self.table, Files) else read(self.table)
            self.held = table, Lookup(table, [theirs for _, theirs in self.on])
            self.read_clock = now
            self.read_at = datetime.datetime.now(datetime.UTC)
        return self.held


def read(files: Files) -> Any:
    """All rows of some files as one table."""
    import pyarrow as pa

    reader = files.open_reader(None)
    batches = []
    try:
        while (batch := reader.poll(1 << 20)) is not None:
            batches.append(batch)
    finally:
        reader.close()
    whole = pa.Table.from_batches(
        batches, batches[0].schema if batches else files.schema.to_arrow()
    )
    return canonical(whole, files.schema).combine_chunks()


def enriched_schema(
    given: Schema, columns: Sequence[Field], *, inner: bool, refresh: bool
) -> Schema:
    """The record, then the table's columns; null where there is no row, unless those are left
    out."""
    more = [Field(field.name, field.type, True) for field in columns]
    more += [Field(FOUND, Type.BOOL)] if inner else []
    more += [Field(READ_AT, Type.TIMESTAMP)] if refresh else []
    for field in more:
        if field.name in given:
            raise JobError(f'the stream has a column "{field.name}" already; rename it')
    return Schema((*given.fields, *more))
