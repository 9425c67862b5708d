"""`enrich`: adds the columns of a table to a stream, by a function of batches that looks them up.

The table is in memory: one row for each record, in order, null where the table has no such key.
Whole numbers are looked up in an array (directly where they are dense, else by bisection), other
keys in a dict. A key that is there twice is an error when the job is built, also in files, which
the run then reads for itself. With `refresh` a path is read again when the table is older than
that. Which record sees which version then differs from run to run, so the column `read_at` says
when it was read.
"""

from __future__ import annotations

import datetime
import time
from typing import TYPE_CHECKING, Any, Literal

from plait.connectors.files import Files
from plait.errors import JobError, SourceError
from plait.expr.tree import col
from plait.graph.operators import CallOp, FilterOp
from plait.model.durations import Duration, microseconds
from plait.model.schema import Field, Schema, Type
from plait.streams.arguments import checked_policy
from plait.streams.join_arguments import JoinRequest, right_fields
from plait.streams.stream_protocol import S, add_projection
from plait.streams.two_inputs import checked_on
from plait.text.tables import shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.graph.operators import OnError
    from plait.model.call_site import CallSite

FOUND, READ_AT = "found", "read_at"
DENSE = 4
"""Whole numbers whose range is at most this many times their count are looked up directly."""


def add_enrich(
    call: CallSite,
    stream: S,
    table: Any,
    on: Any,
    how: Literal["left", "inner"],
    refresh: Duration | None,
    suffix: str,
    on_error: OnError,
) -> S:
    """Adds the lookup in a table: Arrow in plait's types, or `Files`."""
    in_files = isinstance(table, Files)
    if refresh is not None and not in_files:
        raise JobError("refresh= needs a path to read again; this table is in memory")
    theirs = Schema.of(table.schema)
    keys = checked_on(on, stream.schema, theirs)
    if how not in ("left", "inner"):
        raise JobError(f'how is {how!r}; it must be "left" or "inner"')
    spec = JoinRequest(within=None, how=how, ttl_us=0, suffix=suffix)
    fields = right_fields(stream.schema, theirs, keys, spec)
    function = Enrich(
        table,
        tuple(zip(keys.left, keys.right, strict=True)),
        tuple((name, field.name) for name, field in fields.items()),
        marked=how == "inner",
        refresh_us=0 if refresh is None else microseconds(refresh),
    )
    function.check_keys()
    inner, fresh = how == "inner", refresh is not None
    schema = enriched_schema(stream.schema, tuple(fields.values()), inner=inner, refresh=fresh)
    op = CallOp(
        name=call.name,
        at=call.at,
        inputs=(stream._number,),
        schema=schema,
        on_error=checked_policy(on_error),
        mode="batches",
        function=function,
    )
    enriched = stream._append(op)
    if not inner:
        return enriched
    found = FilterOp(
        name=f"{call.name}.found",
        at=call.at,
        inputs=(enriched._number,),
        schema=schema,
        on_error="fail",
        predicate=col(FOUND),
    )
    columns = [(name, col(name)) for name in schema.names if name != FOUND]
    return add_projection(enriched._append(found), call, columns, "fail", "columns")


class Lookup:
    """The row number of each key in a table."""

    def __init__(self, table: Any, keys: Sequence[str]) -> None:
        columns = [comparable(table.column(key)) for key in keys]
        self.first = 0
        self.sorted: Any = None
        """Whole numbers in order, ..."""
        self.order: Any = None
        """... the row of each, ..."""
        self.direct: Any = None
        """... and, where they are dense, the row of each number from the first on."""
        self.places: dict[Any, int] = {}
        self.plain = len(columns) == 1 and whole_numbers(columns[0])
        if self.plain:
            twice = self.index(columns[0].to_numpy())
            if twice is not None:
                raise doubled_key(table, keys, *twice)
            return
        self.alone = len(columns) == 1
        for place, key in enumerate(keys_of(columns)):
            if key is None or (not self.alone and None in key):
                continue
            if key in self.places:
                raise doubled_key(table, keys, self.places[key], place)
            self.places[key] = place

    def index(self, values: Any) -> tuple[int, int] | None:
        """Sorts whole numbers, and where they are dense makes the direct array. Returns two rows
        with the same number, if there are any."""
        import numpy as np

        self.order = np.argsort(values, kind="stable")
        self.sorted = values[self.order]
        again = np.flatnonzero(self.sorted[1:] == self.sorted[:-1])
        if len(again):
            return int(self.order[again[0]]), int(self.order[again[0] + 1])
        if len(values) and int(self.sorted[-1]) - int(self.sorted[0]) <= DENSE * len(values):
            self.first = int(self.sorted[0])
            self.direct = np.full(int(self.sorted[-1]) - self.first + 1, -1, np.int64)
            self.direct[values - self.first] = np.arange(len(values))
        return None

    def find(self, columns: Sequence[Any]) -> Any:
        """The row of each key of a batch; -1: the table has no such key."""
        import numpy as np

        given = [comparable(column) for column in columns]
        if self.plain and not given[0].null_count:
            return self.find_numbers(given[0].to_numpy())
        if self.plain:
            filled = self.find_numbers(given[0].fill_null(0).to_numpy())
            return np.where(given[0].is_valid().to_numpy(zero_copy_only=False), filled, -1)
        get = self.places.get
        return np.array([get(key, -1) for key in keys_of(given)], np.int64)

    def find_numbers(self, values: Any) -> Any:
        """The same for whole numbers without nulls."""
        import numpy as np

        if not len(self.sorted):
            return np.full(len(values), -1, np.int64)
        if self.direct is not None:
            # As unsigned numbers those before the first are beyond the last.
            at = (values - self.first).view(np.uint64)
            inside = at < len(self.direct)
            if inside.all():
                return self.direct[at]
            return np.where(inside, self.direct[np.where(inside, at, 0)], -1)
        at = np.minimum(np.searchsorted(self.sorted, values), len(self.sorted) - 1)
        return np.where(self.sorted[at] == values, self.order[at], -1)


def whole_numbers(column: Any) -> bool:
    import pyarrow as pa

    return bool(column.type == pa.int64() and not column.null_count)


def comparable(column: Any) -> Any:
    """The column in one piece, a time as its number of microseconds."""
    import pyarrow as pa

    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], whole.type)
    return whole.cast(pa.int64()) if pa.types.is_timestamp(whole.type) else whole


def keys_of(columns: Sequence[Any]) -> Any:
    """The key of each row: the value itself, or a tuple of several."""
    import pyarrow.types as at

    values = [
        # Arrow converts text faster this way, and numbers with nulls the other way.
        column.to_numpy(zero_copy_only=False).tolist()
        if at.is_string(column.type) or at.is_binary(column.type) or not column.null_count
        else column.to_pylist()
        for column in columns
    ]
    return values[0] if len(values) == 1 else zip(*values, strict=True)


def doubled_key(table: Any, keys: Sequence[str], first: int, second: int) -> JobError:
    """Names the key and shows both rows, counted from 1."""
    rows = [(place + 1, table.slice(place, 1).to_pylist()[0]) for place in (first, second)]
    key = ", ".join(repr(rows[0][1][name]) for name in keys)
    shown = [f"\n  row {number:,}: {shorten(str(row), 100)}" for number, row in rows]
    return JobError(
        f"the table has the key {key} twice ({', '.join(keys)}), and each record takes one row;"
        f" keep one row for each key{''.join(shown)}"
    )


class Enrich:
    """The function of batches. Made once for a job; each process reads the path itself."""

    def __init__(
        self,
        table: Any,
        on: Sequence[tuple[str, str]],
        columns: Sequence[tuple[str, str]],
        *,
        marked: bool,
        refresh_us: int,
    ) -> None:
        """`table` is an Arrow table or `Files`; `on` are pairs of columns of record and
        table; `columns` pairs of table column and output name; `marked` adds the column `found`."""
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
        places = lookup.find([batch.column(ours) for ours, _ in self.on])
        chosen = pa.array(places, mask=places < 0)
        for theirs, name in self.columns:
            batch = batch.append_column(name, table.column(theirs).take(chosen))
        if self.marked:
            batch = batch.append_column(FOUND, pa.array(places >= 0))
        if self.refresh_us:
            stamp = pa.scalar(self.read_at, pa.timestamp("us", "UTC"))
            batch = batch.append_column(READ_AT, pa.repeat(stamp, batch.num_rows))
        return batch

    def check_keys(self) -> None:
        """Raises if a key is there twice now. Files are read again by the run, as they are then."""
        found = self.read()
        if not isinstance(self.table, Files):
            self.held = found

    def read(self) -> tuple[Any, Lookup]:
        in_files = isinstance(self.table, Files)
        table = read_files(self.table) if in_files else self.table.combine_chunks()
        return table, Lookup(table, [theirs for _, theirs in self.on])

    def current(self) -> tuple[Any, Lookup]:
        """The table and its lookup; read on first use, and again when older than `refresh`."""
        now = time.monotonic()
        old = self.refresh_us and now - self.read_clock >= self.refresh_us / 1e6
        if self.held is None or old:
            try:
                self.held = self.read()
            except JobError as error:  # the files have changed since the job was built
                raise SourceError(f"{', '.join(self.table.given)}: {error}") from None
            self.read_clock = now
            self.read_at = datetime.datetime.now(datetime.UTC)
        return self.held


def read_files(files: Files) -> Any:
    """All rows of some files as one table."""
    import pyarrow as pa

    reader = files.open_reader(None)
    batches = []
    try:
        while (batch := reader.poll(1 << 20)) is not None:
            batches.append(batch)
    finally:
        reader.close()
    schema = batches[0].schema if batches else files.schema.to_arrow()
    return pa.Table.from_batches(batches, schema).combine_chunks()


def enriched_schema(
    given: Schema, columns: Sequence[Field], *, inner: bool, refresh: bool
) -> Schema:
    """The columns of the record, then those of the table, which are nullable."""
    more = [Field(field.name, field.type, True) for field in columns]
    more += [Field(FOUND, Type.BOOL)] if inner else []
    more += [Field(READ_AT, Type.TIMESTAMP)] if refresh else []
    for field in more:
        if field.name in given:
            raise JobError(f'the stream already has a column "{field.name}"; rename it')
    return Schema((*given.fields, *more))
