"""The ports of sources and sinks: what a connector implements, in plain Python.

A `Source` is a description (frozen, picklable, opens nothing); `open` makes a `Reader`. A reader
never blocks: when nothing is there it says how long to wait. After every poll its position can be
taken; a reader opened at that position goes on with the next record. One poll's rows are one epoch
of the source. A `Sink` is a description too; `open` makes a `Writer`, which gets the output's
batches in order, one call at a time, and is closed exactly once: `close` after the last batch, or
`abort` when the run failed or was stopped. A reader or writer is called by the thread that opened
it, and by no other.

    >>> class Countdown(Source):
    ...     schema = Schema.of({"n": int})
    ...     def open(self, position=None):
    ...         return CountdownReader(10 if position is None else position)
    >>> class CountdownReader(Reader):
    ...     def __init__(self, left): self.left = left
    ...     def poll(self, max_rows):
    ...         if self.left == 0: return None
    ...         rows = [{"n": n} for n in range(self.left, max(0, self.left - max_rows), -1)]
    ...         self.left -= len(rows)
    ...         return rows
    ...     def position(self): return self.left
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.errors import JobError

if TYPE_CHECKING:
    from plait.model.schema import Schema


@dataclass(frozen=True, slots=True)
class Wait:
    """What a reader's `poll` returns when nothing is there: ask again after this many seconds.

    >>> Wait(0.05).seconds
    0.05
    """

    seconds: float


class Reader:
    """An open source: what `Source.open` returns. Subclass it; `poll` must not block.

    >>> class Once(Reader):
    ...     rows = [{"n": 1}]
    ...     def poll(self, max_rows):
    ...         rows, self.rows = self.rows, None
    ...         return rows
    ...     def position(self):
    ...         return None
    """

    def poll(self, max_rows: int) -> Any:
        """At most `max_rows` rows, as a pyarrow RecordBatch or Table of the source's schema or as
        a list of records (dicts, dataclasses, tuples); `Wait(seconds)` when nothing is there; None
        at the end."""
        raise TypeError(f"{type(self).__name__} has no method poll(max_rows)")

    def poll_with_bad(self, max_rows: int) -> Any:
        """Asked instead of `poll` if the source has on_error="skip" or "dead_letter". Records that
        `poll` gives and that do not fit the schema are then left out; a reader for which a bad row
        is an error of `poll` itself gives `plait.connectors.bad_rows.PolledRows` here."""
        return self.poll(max_rows)

    def require(self, schema: Schema) -> None:
        """Told before the first poll: the columns of the source, in which the event time is never
        null. Rows are checked against it anyway; a reader that takes note gives better errors."""

    def position(self) -> Any:
        """Where the next poll starts: None, a number, a string, or a list or dict of these."""
        raise TypeError(f"{type(self).__name__} has no method position()")

    def close(self) -> None:
        """Gives back what the reader holds. Called once, also after an error."""


class Source:
    """A description of where records come from: picklable, opens nothing. Subclass it with a
    `schema` and `open`.

    >>> import plait
    >>> class Countdown(Source):
    ...     schema = plait.Schema.of({"n": int})
    ...     def open(self, position=None):
    ...         return plait.Items([{"n": n} for n in (3, 2, 1)]).open(position)
    >>> [record.n for record in plait.stream(Countdown()).collect()]
    [3, 2, 1]
    """

    schema: Schema
    """The columns of its records."""
    label: str = ""
    """Its name in results and errors; "" for one made by plait."""
    bounded: bool = True
    """Whether it ends by itself. Several sources that do, and have an event time, are read in step
    by slices of it: each waits for the others."""
    repeatable: bool = False
    """Whether it can be opened a second time and then gives the same records, without waiting:
    what `schema="infer"` needs."""
    fixed: bool = False
    """Whether its records come as they are and it hands on the nulls its schema allows, so that an
    event-time column must be declared without nulls. Other readers refuse such a null."""

    def nulls(self, column: str) -> int:
        """How many values of a column are null, as far as that is known before anything is
        read; a reader checks what it reads."""
        return 0

    def check(self) -> None:
        """Raises SourceError if it cannot be read as described; called while a job is built."""

    def open(self, position: Any = None) -> Reader:
        """A reader at the start, or at a position that a reader of this source has returned.

        It may yield the records instead; then the position is the number of records so far.
        """
        raise TypeError(f"{type(self).__name__} has no method open(position)")


class Writer:
    """An open sink: what `Sink.open` returns. Calls come one at a time, in the order of the
    output; `close` or `abort` comes once, at the end.

    >>> class Length(Writer):
    ...     rows = 0
    ...     def write(self, batch):
    ...         self.rows += batch.num_rows
    ...     def close(self):
    ...         return self.rows
    """

    def write(self, batch: Any) -> None:
        """Takes the next rows: a pyarrow RecordBatch of the sink's schema, never empty."""
        raise TypeError(f"{type(self).__name__} has no method write(batch)")

    def close(self) -> Any:
        """Finishes; what it returns is the sink's entry in `Result.outputs`."""
        return None

    def abort(self) -> Any:
        """The run did not end well: keep what was delivered, give back what is held. Same return
        as `close`."""
        return self.close()


class Sink:
    """A description of where records go: picklable, opens nothing. Subclass it with `open`.

    >>> import plait
    >>> class Lengths(Sink):
    ...     def open(self, schema):
    ...         return plait.Discard().open(schema)
    >>> plait.stream([1, 2, 3]).sink(Lengths(), "n").run().outputs["n"]
    3
    """

    label: str = ""
    """Its name in results and errors; "" for one made by plait."""

    def check(self, schema: Schema) -> None:
        """Raises SinkError if rows of this schema cannot be written; called while a job is
        built."""

    def open(self, schema: Schema) -> Writer:
        """A writer for rows of this schema."""
        raise TypeError(f"{type(self).__name__} has no method open(schema)")


def checked_sink(sink: Any) -> Any:
    """The sink, if it is one; JobError says what to write instead."""
    if isinstance(sink, Sink):
        return sink
    advice = "give a sink such as plait.Print() or plait.Collect()"
    if isinstance(sink, str | Path):
        advice = f'write plait.Files("{sink}")'
    elif isinstance(sink, type) and issubclass(sink, Sink):
        advice = f"write {sink.__name__}(...)"
    elif callable(sink):
        advice = "write plait.Call(function)"
    raise JobError(f"{sink!r} is not a sink; {advice}")
