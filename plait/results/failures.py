"""Records that failed: dead letters collected during a run, and the error that ends one.

The engine names a failed record by operator, source and row, with the row itself; here it becomes
something a person can read. The engine counts rows from 0; people, and all that is public, count
records from 1.
"""

from __future__ import annotations

import base64
import json
import threading
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from plait.errors import (
    InternalError,
    JobError,
    PlaitError,
    RecordError,
    SchedulerError,
    SinkError,
    SourceError,
)
from plait.graph.operators import (
    CallOp,
    FoldOp,
    Graph,
    SinkOp,
    SourceOp,
    StatefulOp,
    TimedOp,
)
from plait.graph.temporal import SIDE, OperatorSpec
from plait.model.declared_json import to_json_value
from plait.model.records import Misfit, TooMuchText, describe, records_of
from plait.model.schema import Schema
from plait.results.engine_failures import FailureKind
from plait.results.hints import hint_of
from plait.results.result import BadLine, DeadLetter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from plait.graph.operators import AnyOp
    from plait.graph.temporal import InputPort
    from plait.results.breaker import Breaker
    from plait.results.engine_failures import EngineFailure

Placed = tuple[tuple[int, int, int, int], DeadLetter]
"""A letter with its place in the order of records; the epoch comes first."""

KEPT = 10_000
AT_ONCE = 10_000
"""How many letters a sink gets in a batch."""
SHOWN = 300
"""How many characters of a record an error shows."""

LETTER_SCHEMA = Schema.of(
    {
        "operator": str,
        "at": str,
        "source": str,
        "row": int,
        "error": str,
        "record": str,
        "json": str | None,
        "file": str | None,
        "line": int | None,
        "text": str | None,
    }
)
"""What a sink for dead letters gets. `record` is for people, `json` for programs: the record as an
object that reads back with the columns of the operator's input; null if a value has no form in
JSON. The last three are those of a `BadLine`, else null."""

BAD_SCHEMA = Schema.of({"record": object})
"""How a record that a source could not take travels to its letter."""


class Letters:
    """Dead letters of a run: all of them to the job's sink, if it has one, the first in memory.

    In a job with checkpoints (`resume`) the sink gets them at boundaries, in the order of the
    records, so that what it gets is the same in every run. Engine and checkpoints may call from
    two threads.
    """

    def __init__(
        self,
        graph: Graph,
        resume: Any = None,
        *,
        open_sink: Callable[[Any, Schema, Any], Any] | None = None,
    ) -> None:
        self.graph = graph
        self.found: list[Placed] = []
        self.total = 0
        """How many there are, those of earlier runs among them (`go_on_from`) ..."""
        self.before = 0
        """... and how many of them are before the last boundary."""
        self.after: list[int] = []
        """In a job with checkpoints: the epochs of the others."""
        self.at_boundaries = resume is not None
        self.pending: list[Placed] = []
        """In a job with checkpoints: those that no boundary was after."""
        self.lock = threading.Lock()
        self.breaker: Breaker | None = None
        """Told of every letter before it is made."""
        self.waiting: list[EngineFailure] = []
        """Those that the breaker knows, and that are not made yet."""
        sink = graph.dead_letters
        self.exact = resume is not None and sink is not None and sink.kind != "plain"
        self.decides = self.exact and sink.kind == "decider"
        self.delivered = resume.boundary if self.decides else 0
        """Letters of epochs before it are with the sink: they come again, and are not written."""
        self.as_they_are = hasattr(sink, "open_letters")
        """The sink takes letters, not rows of `LETTER_SCHEMA`."""
        given = resume if self.exact else None
        opening = open_sink or open_letter_sink
        with dead_letter_sink():
            if sink is None:
                self.writer = None
            elif self.as_they_are:
                self.writer = sink.open_letters(graph, given)
            else:
                self.writer = opening(sink, LETTER_SCHEMA, given)
        if sink is not None and not callable(getattr(self.writer, "write", None)):
            raise JobError(
                f"the sink for dead letters: {type(sink).__name__}.open returned"
                f" {describe(self.writer)}; return an object of a subclass of plait.Writer"
            )

    def add(self, letters: Sequence[EngineFailure]) -> None:
        made = [(letter.place, letter_of(letter, self.graph)) for letter in letters]
        with self.lock:
            self.total += len(made)
            self.found.extend(made[: max(0, KEPT - len(self.found))])
            if self.at_boundaries:
                self.after += [placed[0][0] for placed in made]
                if self.writer is not None:
                    self.pending += [one for one in made if one[0][0] >= self.delivered]
            else:
                self.write(made)

    def note(self, failures: Sequence[EngineFailure]) -> None:
        """The letters of these are made with the next ones; the breaker is told now."""
        self.waiting += failures
        if self.breaker is not None:
            for failure in failures:
                op = self.graph.operators[failure.op]
                self.breaker.note(op.name, str(op.at), failure.message)

    def collect(self, failures: Sequence[EngineFailure]) -> None:
        """Adds the letters of these, and of those that were noted."""
        self.note(failures)
        found, self.waiting = self.waiting, []
        self.add(found)

    def go_on_from(self, count: int) -> None:
        """So many letters are from before the checkpoint that the job goes on from."""
        self.total = self.before = count

    def write(self, letters: Sequence[Placed]) -> None:
        if self.writer is None:
            return
        for first in range(0, len(letters), AT_ONCE):
            with dead_letter_sink():
                some = [letter for _, letter in letters[first : first + AT_ONCE]]
                self.writer.write(some if self.as_they_are else batch_of(some))

    def mark(self, boundary: int) -> None:
        """All letters of the epochs before the boundary have been added: they go to the sink."""
        with self.lock:
            later = [epoch for epoch in self.after if epoch >= boundary]
            self.before += len(self.after) - len(later)
            self.after = later
            before = [placed for placed in self.pending if placed[0][0] < boundary]
            self.write(sorted(before, key=place_of))
            self.pending = [placed for placed in self.pending if placed[0][0] >= boundary]
            if self.exact and self.writer is not None and boundary >= self.delivered:
                with dead_letter_sink():
                    self.writer.mark(boundary)

    def prepare(self, boundary: int) -> Any:
        """As `Writer.prepare`."""
        if not self.exact or self.writer is None:
            return None
        with dead_letter_sink():
            return self.writer.prepare(boundary)

    def commit(self, boundary: int, notes: bytes = b"") -> None:
        """As `Writer.commit`."""
        if self.exact and self.writer is not None:
            with dead_letter_sink():
                self.writer.commit(boundary, notes)

    def kept(self) -> tuple[DeadLetter, ...]:
        """In the order of the records."""
        return tuple(letter for _, letter in sorted(self.found, key=place_of))

    def close(self, good: bool) -> None:
        if self.writer is None:
            return
        if good:
            if self.exact and self.pending:
                raise InternalError(f"{len(self.pending):,} dead letters are after the last mark")
            self.write(sorted(self.pending, key=place_of))
            with dead_letter_sink():
                self.writer.close()
        else:
            with suppress(Exception):  # there is something worse to tell
                self.writer.abort()


def place_of(placed: Placed) -> tuple[int, int, int, int]:
    return placed[0]


def open_letter_sink(sink: Any, schema: Schema, resume: Any) -> Any:
    return sink.open(schema) if resume is None else sink.open(schema, resume)


@contextmanager
def dead_letter_sink() -> Iterator[None]:
    """What the sink for dead letters raises says whose it is."""
    try:
        yield
    except PlaitError:
        raise
    except Exception as error:
        raise SinkError(f"the sink for dead letters: {type(error).__name__}: {error}") from error


NO_LINE = {"file": None, "line": None, "text": None}


def batch_of(letters: Sequence[DeadLetter]) -> Any:
    import pyarrow as pa

    rows = [
        {
            "operator": letter.operator,
            "at": letter.at,
            "source": letter.source,
            "row": letter.row,
            "error": letter.error,
            "record": repr(letter.record),
            "json": json_text(letter.record),
            **(asdict(letter.record) if isinstance(letter.record, BadLine) else NO_LINE),
        }
        for letter in letters
    ]
    return pa.RecordBatch.from_pylist(rows, schema=LETTER_SCHEMA.to_arrow())


def json_text(record: Any) -> str | None:
    """A record as a line of `Files("....jsonl")` would have it; None if it cannot be one."""
    if record is None or isinstance(record, BadLine):
        return None
    try:
        return json.dumps(to_json_value(record), ensure_ascii=False, default=bytes_text)
    except (TypeError, ValueError):
        return None


def bytes_text(value: Any) -> str:
    """Bytes as JSON lines have them; any other value has no form in JSON."""
    if not isinstance(value, bytes):
        raise TypeError(f"{describe(value)} has no form in JSON")
    return base64.b64encode(value).decode()


def record_of(failure: EngineFailure, graph: Graph) -> Any:
    """The failed record as the user's operator saw it; None if it is at another node."""
    op = graph.operators[failure.op]
    if len(failure.record) == 0:
        return None
    if isinstance(op, SourceOp):
        return records_of(failure.record.to_arrow(BAD_SCHEMA), BAD_SCHEMA)[0].record
    schema = graph.operators[op.inputs[0]].schema
    row = failure.record.to_arrow(schema)
    if (port := port_of(failure, graph)) is not None:
        schema = port.schema
        row = row.select(list(port.columns)).rename_columns(list(schema.names))
    try:
        return records_of(row, schema)[0]
    except Exception:  # a class of the user's that refuses these values, a time no datetime has
        return plain_values(row)


def plain_values(row: Any) -> dict[str, Any]:
    """The values of a row; a time that no datetime has as its microseconds since 1970."""
    import pyarrow as pa

    found: dict[str, Any] = {}
    for name, column in zip(row.schema.names, row.columns, strict=True):
        try:
            found[name] = column[0].as_py()
        except (OverflowError, ValueError):
            found[name] = column.cast(pa.int64())[0].as_py()
    return found


def port_of(failure: EngineFailure, graph: Graph) -> InputPort | None:
    """The port at which the record was, if its operator has ports."""
    op = graph.operators[failure.op]
    if not isinstance(op, TimedOp) or not isinstance(op.spec, OperatorSpec):
        return None
    ports = op.spec.inputs
    if len(ports) == 1:
        return ports[0]
    row = failure.record.to_arrow(graph.operators[op.inputs[0]].schema)
    return ports[int(row.column(SIDE)[0].as_py())]


def letter_of(failure: EngineFailure, graph: Graph) -> DeadLetter:
    op = graph.operators[failure.op]
    return DeadLetter(
        operator=op.name,
        at=str(op.at),
        source=source_label(graph, failure.source),
        row=failure.row + 1,
        error=failure.message,
        record=record_of(failure, graph),
    )


def source_label(graph: Graph, source: int) -> str:
    return [op.label for op in graph.operators if isinstance(op, SourceOp)][source]


def error_of(failure: EngineFailure, graph: Graph) -> BaseException:
    """The exception to raise for the failure that ended a run."""
    cause = failure.error
    error: BaseException
    match failure.kind:
        case FailureKind.RECORD:
            error = record_error(failure, graph)
        case FailureKind.TIMER:
            error = timer_error(failure, graph)
        case _ if isinstance(cause, KeyboardInterrupt | SystemExit):
            return cause
        case FailureKind.SCHEDULER:
            error = SchedulerError(failure.message)
        case _ if isinstance(cause, PlaitError):
            return cause
        case _:
            error = run_error(failure, graph.operators[failure.op])
    error.__cause__ = cause
    return error


def record_error(failure: EngineFailure, graph: Graph) -> RecordError:
    op, label = graph.operators[failure.op], source_label(graph, failure.source)
    record = record_of(failure, graph)
    port = port_of(failure, graph)
    where = "" if port is None else f", at port {port.name}"
    hint = hint_of(failure, graph)
    hint = f"\n  {hint}" if hint else ""
    advice = 'use on_error="dead_letter" to go on past bad records'
    if port is not None:
        advice = "an operator with its own loop goes on from what it catches itself"
    shown = "" if record is None else f": {short(repr(record))}"
    return RecordError(
        f"{describe_op(op)} {said(failure.message, failure.error)}\n"
        f"  record {failure.row + 1:,} of source {label}{where}{shown}\n"
        f"  {delivered(failure.row)}; {advice}{hint}",
        operator=op.name,
        at=str(op.at),
        source=label,
        row=failure.row + 1,
        record=record,
    )


def timer_error(failure: EngineFailure, graph: Graph) -> RecordError:
    """Its row is the number of the last record before it, which may have set it for a time gone
    by."""
    op, label = graph.operators[failure.op], source_label(graph, failure.source)
    return RecordError(
        f"{describe_op(op)}: {failure.message}\n  it was due after record {failure.row:,} of "
        f"source {label}; all before it was delivered, nothing after it",
        operator=op.name,
        at=str(op.at),
        source=label,
        row=failure.row,
    )


def run_error(failure: EngineFailure, op: AnyOp) -> PlaitError:
    """A failure for which no record is to blame: a source, a sink, the pool, the runtime itself."""
    message, cause = failure.message, failure.error
    match failure.kind:
        case FailureKind.SOURCE if isinstance(op, SourceOp):
            return SourceError(f"source {op.label} at {op.at}: {message}")
        case FailureKind.SINK if isinstance(op, SinkOp):
            return SinkError(f"sink {op.label} at {op.at}: {message}")
        case FailureKind.POOL:
            return JobError(f"{op}: {message}")
        case FailureKind.TEXT:
            return JobError(f"{describe_op(op)}: {message}")
        case _ if isinstance(cause, TooMuchText):
            return JobError(f"{describe_op(op)}: {cause}")
        case FailureKind.WORKER | FailureKind.SUM:
            return RecordError(f"{describe_op(op)}: {message}", operator=op.name, at=str(op.at))
        case _ if cause is not None and not isinstance(cause, Exception):
            text = f"{describe_op(op)} raised {message}"
            return RecordError(text, operator=op.name, at=str(op.at))
        case _:
            return InternalError(f"{op}: {message}")


def delivered(before: int) -> str:
    if before == 0:
        return "it is the first record, nothing after it was delivered"
    records = "record before it was" if before == 1 else f"{before:,} records before it were"
    return f"the {records} delivered, nothing after it"


def said(message: str, cause: BaseException | None) -> str:
    plain = cause is None or isinstance(cause, Misfit)
    return f"failed: {message}" if plain else f"raised {message}"


def describe_op(op: AnyOp) -> str:
    """The operator as an error names it: verb, function if it has a name, and line."""
    function: Any = None
    if isinstance(op, CallOp):
        function = op.function
    elif isinstance(op, FoldOp | StatefulOp):
        function = op.step
    name = getattr(function, "__name__", "")
    shown = f' "{name}"' if name and name != "<lambda>" else ""
    return f"{op.name}{shown} at {op.at}"


def short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text):,} characters)"
