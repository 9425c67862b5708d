"""Sinks in this process: keep the rows, throw them away, hand them to a function, print them.

Each writer gets batches in order, one call at a time; what `close` returns is the sink's entry in
`Result.outputs`. An aborted writer returns the same of what came until then.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal, TextIO

from plait.connectors.base import Sink, Writer
from plait.errors import JobError, SinkError
from plait.model.records import records_of
from plait.text.tables import TableLayout, more_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.connectors.base import Resume
    from plait.model.schema import Schema


class Collect(Sink):
    """Keeps the rows, or the first `limit` of them; its output is a pyarrow Table.

    >>> import plait
    >>> job = plait.stream([{"n": 1}, {"n": 2}]).sink(Collect(), "rows")
    >>> job.run().outputs["rows"].to_pylist()
    [{'n': 1}, {'n': 2}]
    """

    def __init__(self, limit: int | None = None, label: str = "") -> None:
        self.limit = checked("Collect: limit", limit)
        self.label = label

    def open(self, schema: Schema, resume: Resume | None = None) -> CollectWriter:
        """A writer that keeps rows of this schema."""
        return CollectWriter(schema, self.limit)


TOGETHER = 256
"""So many batches that came become one, which takes far less memory where they are small ..."""
COPIED_BYTES = 1 << 26
"""... unless they are larger than this together."""


class CollectWriter(Writer):
    """Keeps batches. `full` says that no further row would be kept, so the run may stop."""

    def __init__(self, schema: Schema, limit: int | None) -> None:
        self.schema = schema
        self.limit = limit
        self.rows = 0
        self.kept: list[Any] = []
        self.latest: list[Any] = []
        """What came after those, as it came."""

    @property
    def full(self) -> bool:
        return self.limit is not None and self.rows >= self.limit

    def write(self, batch: Any) -> None:
        if self.limit is not None:
            batch = batch.slice(0, self.limit - self.rows)
        if batch.num_rows:
            self.latest.append(batch)
            self.rows += batch.num_rows
            if len(self.latest) == TOGETHER:
                self.keep_latest()

    def keep_latest(self) -> None:
        import pyarrow as pa

        small = sum(batch.nbytes for batch in self.latest) <= COPIED_BYTES
        self.kept += [pa.concat_batches(self.latest)] if small else self.latest
        self.latest = []

    def close(self) -> Any:
        import pyarrow as pa

        return pa.Table.from_batches([*self.kept, *self.latest], self.schema.to_arrow())


class Discard(Sink):
    """Throws the rows away; its output is their number.

    >>> import plait
    >>> plait.stream([{"n": 1}, {"n": 2}]).sink(Discard(), "rows").run().outputs["rows"]
    2
    """

    def __init__(self, label: str = "") -> None:
        self.label = label

    def open(self, schema: Schema, resume: Resume | None = None) -> DiscardWriter:
        """A writer that counts."""
        return DiscardWriter()


class DiscardWriter(Writer):
    """Counts."""

    def __init__(self) -> None:
        self.rows = 0

    def write(self, batch: Any) -> None:
        self.rows += batch.num_rows

    def close(self) -> int:
        return self.rows


class Call(Sink):
    """Calls a function with each record, or with each batch as a pyarrow RecordBatch.

    Calls come one at a time and in order, maybe from different threads; the output is the number of
    rows. When the function raises, the run fails with a SinkError.

    >>> import plait
    >>> job = plait.stream([{"n": 1}, {"n": 2}]).sink(Call(lambda record: print(record.n)), "rows")
    >>> job.run().outputs["rows"]
    1
    2
    2
    """

    def __init__(
        self,
        function: Callable[[Any], object],
        each: Literal["record", "batch"] = "record",
        label: str = "",
    ) -> None:
        if not callable(function):
            raise JobError(f"Call: {function!r} is not a function")
        if each not in ("record", "batch"):
            raise JobError(f'Call: each is {each!r}; it must be "record" or "batch"')
        self.function = function
        self.each = each
        self.label = label

    def open(self, schema: Schema, resume: Resume | None = None) -> CallWriter:
        """A writer that calls the function."""
        return CallWriter(self, schema)


class CallWriter(Writer):
    """Calls the function and counts the rows it took."""

    def __init__(self, sink: Call, schema: Schema) -> None:
        self.sink = sink
        self.schema = schema
        self.rows = 0

    def write(self, batch: Any) -> None:
        if self.sink.each == "batch":
            self.call(batch)
            self.rows += batch.num_rows
            return
        for record in records_of(batch, self.schema):
            self.call(record)
            self.rows += 1

    def call(self, given: Any) -> None:
        function = self.sink.function
        try:
            function(given)
        except Exception as error:
            name = getattr(function, "__name__", type(function).__name__)
            which = f"record {self.rows + 1:,}" if self.sink.each == "record" else "a batch"
            raise SinkError(
                f"the sink's function {name} raised {type(error).__name__} at {which}: {error}"
            ) from error

    def close(self) -> int:
        return self.rows


class Print(Sink):
    """Prints rows as a table as they come, or the first `n`; its output is the number of rows.

    The columns are as wide as the first batch needs: a later wide value moves its line.

    >>> import plait
    >>> _ = plait.stream([{"n": 1}, {"n": 22}]).sink(Print()).run()
        n
    int64
    -----
        1
       22
    """

    def __init__(self, n: int | None = None, file: TextIO | None = None, label: str = "") -> None:
        self.n = checked("Print: n", n)
        self.file = file
        self.label = label

    def open(self, schema: Schema, resume: Resume | None = None) -> PrintWriter:
        """A writer that prints to `file`, or to stdout as it is then."""
        return PrintWriter(schema, self.n, self.file or sys.stdout)


class PrintWriter(Writer):
    """Prints."""

    def __init__(self, schema: Schema, n: int | None, file: TextIO) -> None:
        self.schema = schema
        self.n = n
        self.file = file
        self.rows = 0
        self.layout: TableLayout | None = None

    def write(self, batch: Any) -> None:
        left = batch.num_rows if self.n is None else max(0, self.n - self.rows)
        self.rows += batch.num_rows
        if left:
            self.print(batch.slice(0, left))

    def print(self, batch: Any) -> None:
        head = self.layout is None
        if self.layout is None:
            self.layout = TableLayout.of(batch, self.schema)
        print(self.layout.text(batch, head=head), file=self.file, flush=True)

    def close(self) -> int:
        if self.layout is None:
            self.print(self.schema.to_arrow().empty_table())
        if self.n is not None and self.rows > self.n:
            print(more_rows(self.rows - self.n), file=self.file, flush=True)
        return self.rows


def checked(what: str, number: int | None) -> int | None:
    if number is not None and (not isinstance(number, int) or number < 0):
        raise JobError(f"{what} is {number!r}; it must be a whole number, 0 or more")
    return number
