"""The ports of sources and sinks: what a connector implements, in plain Python.

A `Source` is a description (frozen, picklable, opens nothing); `open` makes a `Reader`. A reader
never blocks: when nothing is there it says how long to wait. After every poll its position can be
taken; a reader opened at that position goes on with the next record. One poll's rows are one epoch
of the source. A `Sink` is a description too; `open` makes a `Writer`, which gets the output's
batches in order, one call at a time, and is closed exactly once: `close` after the last batch, or
`abort` when the run failed or was stopped. A reader or writer is called by the thread that opened
it, and by no other.

In a job with `checkpoint=` a sink can deliver exactly once: its output becomes visible up to a
boundary at a time, and whoever keeps the output keeps the boundary with it (`Sink.kind`).

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
from typing import TYPE_CHECKING, Any, Literal

from plait.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.checkpoints.choices import ChoiceLog
    from plait.model.durations import Duration
    from plait.model.schema import Schema


@dataclass(frozen=True, slots=True)
class Wait:
    """What a reader's `poll` returns when nothing is there: ask again after this many seconds.

    >>> Wait(0.05).seconds
    0.05
    """

    seconds: float


@dataclass(frozen=True, slots=True)
class Resume:
    """From where a sink goes on in a job with `checkpoint=`: what `Sink.open` of followers and
    deciders is given.

    >>> Resume(position=None, boundary=0, run="3f2a-1").boundary
    0
    """

    position: Any
    """What `Writer.prepare` gave for the checkpoint that is restored; None: from the start."""
    boundary: int
    """The boundary of that checkpoint; 0: from the start. For a decider: the one that `survey` gave
    if that is further; what comes to `write` is behind it."""
    run: str
    """The name of this run, another for each attempt: for the names of hidden files."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """What a decider has delivered: everything before the boundary, and nothing after it.

    >>> Delivered(42)
    Delivered(boundary=42, notes=b'')
    """

    boundary: int
    notes: bytes = b""
    """What `Writer.commit` was given with this boundary, and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What waits for a reader: rows that are there and not read, and how long the oldest has
    waited.

    >>> Backlog(rows=1000, oldest_s=2.5).rows
    1000
    """

    rows: int
    oldest_s: float


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

    def log_choices(self, again: Sequence[bytes]) -> ChoiceLog | None:
        """Told before the first poll in a job that may have to repeat epochs after a crash. A
        reader whose order of records depends on when they come returns a log
        (`plait.checkpoints.choices`), to which each poll with rows adds what it chose, as bytes.
        `again`: what was chosen before from this position on; each of the next polls is to give the
        rows of one of these, all of them. None: the order is always the same."""
        return None

    def backlog(self) -> Backlog | None:
        """What waits to be read; None: it is not known. Asked after a poll, at most five times a
        second, for the rate and the lag of the source (`Result.rates`, `plait status`)."""
        return None

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
    replayable: bool = True
    """Whether it can be opened at a position of an earlier run, in another process too. A job with
    one that cannot (an iterator that can be read once) is refused `checkpoint=`."""
    fixed: bool = False
    """Whether its records come as they are and it hands on the nulls its schema allows, so that an
    event-time column must be declared without nulls. Other readers refuse such a null."""

    def nulls(self, column: str) -> int:
        """How many values of a column are null, as far as that is known before anything is
        read; a reader checks what it reads."""
        return 0

    def check(self) -> None:
        """Raises SourceError if it cannot be read as described; called while a job is built."""

    def check_time(self, column: str) -> None:
        """Raises SourceError if rows in this order have no event time; called while a job is built
        that wants one. `column`: which it is to be; "" if it is computed."""

    def check_untimed(self) -> None:
        """Raises JobError if it cannot be read without an event time that is one of its columns;
        called while a job is built that has none."""

    def by_partition(self, column: str, max_jump_us: int, idle_us: int) -> Source | None:
        """Of a source with partitions, in a job that uses the event time in `column`: the same
        source with one more column at the end, an integer. It says how far the time of the source
        is at each row, in microseconds since 1970, never falls, and is used in place of the
        greatest event time so far: the least of the partitions, so that one that lags behind has no
        late rows. `idle_us`: after how long without rows a partition does not hold the others back;
        0: not said. None: the source has no partitions."""
        return None

    def release(self, positions: Sequence[Any], who: str) -> None:
        """In a job with `checkpoint=`, after old checkpoints were removed: `positions` are those of
        all that are kept, savepoints too. No run of the job goes back before the least of them, so
        what is before it may be removed. `who`: the job and the source, the same in all runs.

        Called on the description, by the node that keeps the checkpoints; what it raises is told in
        the log, and it is called again with the next checkpoint.
        """

    def position_at(self, row: int) -> Any:
        """The position after so many records, of a source of plait's own whose records the engine
        counts; a checkpoint keeps it."""
        return row

    def row_at(self, position: Any) -> int:
        """The number of records before a position that `position_at` gave; SourceError if it cannot
        be one of this source."""
        return int(position or 0)

    def position_after(self, until: Any) -> Any:
        """The position of a reader that has read everything before `until`, which is what a user
        wrote in `plait.backfill(until=)`: here a position itself."""
        return until

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

    In a job with `checkpoint=` the writers of followers and deciders are told of boundaries too:
    `mark(n)`, `prepare(n)` and, when the checkpoint is safe, `commit(n)`. The next mark comes after
    the commit, or after the checkpoint was given up; then its rows belong to the next boundary. Of
    a sink that commits between checkpoints every mark is followed by its commit, and `prepare` only
    says what the next `survey` is to be told.

    >>> class Table(Writer):
    ...     def __init__(self): self.open, self.closed, self.visible = [], [], []
    ...     def write(self, batch): self.open += batch.to_pylist()
    ...     def mark(self, boundary):
    ...         self.closed += self.open
    ...         self.open = []
    ...     def commit(self, boundary, notes=b""):
    ...         self.visible += self.closed
    ...         self.closed = []
    """

    def write(self, batch: Any) -> None:
        """Takes the next rows: a pyarrow RecordBatch of the sink's schema, never empty."""
        raise TypeError(f"{type(self).__name__} has no method write(batch)")

    def mark(self, boundary: int) -> None:
        """Between two batches: all rows that came so far are before this boundary. It must be
        quick: a worker waits for it."""

    def prepare(self, boundary: int) -> Any:
        """Makes the rows before the boundary durable, but not visible, while `write` goes on with
        those after it. What it returns is kept in the checkpoint and given back in `Resume`: None,
        a number, a text, bytes, or a list or dict of these."""
        return None

    def commit(self, boundary: int, notes: bytes = b"") -> None:
        """The checkpoint is safe, or the sink commits between checkpoints (`Sink.commit`): makes
        all rows before the boundary visible. It may be called again for the same boundary. A
        decider keeps the boundary and the notes, in place of those before, in the same transaction
        as the rows."""

    def close(self) -> Any:
        """Finishes; what it returns is the sink's entry in `Result.outputs`. In a job with
        `checkpoint=` it comes after the last commit and has no rows left to write."""
        return None

    def abort(self) -> Any:
        """The run did not end well: keep what was delivered, give back what is held. Same return
        as `close`. A follower or decider in a job with `checkpoint=` drops what was not committed:
        it comes again in the next run."""
        return self.close()


Kind = Literal["plain", "follower", "decider"]


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
    kind: Kind = "plain"
    """How it delivers in a job with `checkpoint=`. "plain": at least once, rows since the last
    checkpoint come again after a crash. "follower": exactly once, because what its writer prepared
    can be made visible any number of times (files that get their names). "decider": exactly once,
    because it keeps rows and boundary in one transaction (a database). A follower or decider
    has `open(schema, resume=None)`, and a decider `survey`."""
    commit: Duration | None = None
    """Of a decider: how often it commits between checkpoints ("100ms"), so that output is visible
    sooner. After a crash the epochs since the last checkpoint are repeated without output up to
    where the sink is, so functions before it must give the same again. None: at checkpoints."""

    def check(self, schema: Schema) -> None:
        """Raises SinkError if rows of this schema cannot be written; called while a job is
        built."""

    def survey(self, seen: Any) -> Delivered | None:
        """Of a decider, before it is opened in a job with `checkpoint=`: makes sure that no writer
        of an earlier run can deliver any more, then says what is delivered; None: nothing ever.
        `seen`: what `prepare` gave for the newest checkpoint, or None without one."""
        raise TypeError(f"{type(self).__name__} has no method survey(seen)")

    if TYPE_CHECKING:
        # For a type checker: a sink may have open(schema) or open(schema, resume=None).
        def open(self, *args: Any, **kwargs: Any) -> Writer: ...

    else:

        def open(self, schema: Schema, resume: Resume | None = None) -> Writer:
            """A writer for rows of this schema.

            `resume` is given to followers and deciders, and only in a job with `checkpoint=`: the
            writer makes visible what is prepared at `resume.position`, removes what earlier runs
            left after it, and goes on. A plain sink may leave it out: `open(self, schema)`.
            """
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
