"""Records that failed: dead letters collected during a run, and the error that ends one.

The engine names a failed record by operator, source and row, with the row itself; here it becomes
something a person can read. The engine counts rows from 0; people, and all that is public, count
records from 1.
"""

from __future__ import annotations

import base64
import json
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
    from collections.abc import Iterator, Sequence

    from plait.graph.operators import AnyOp
    from plait.graph.temporal import InputPort
    from plait.results.engine_failures import EngineFailure

KEPT = 10_000
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
    """Dead letters of a run: all of them to the job's sink, if it has one, the first in memory."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.found: list[tuple[tuple[int, int, int, int], DeadLetter]] = []
        sink = graph.dead_letters
        with dead_letter_sink():
            self.writer = sink.open(LETTER_SCHEMA) if sink is not None else None
        if sink is not None and not callable(getattr(self.writer, "write", None)):
            raise JobError(
                f"the sink for dead letters: {type(sink).__name__}.open returned"
                f" {describe(self.writer)}; return an object of a subclass of plait.Writer"
            )

    def add(self, letters: Sequence[EngineFailure]) -> None:
        made = [(letter.place, letter_of(letter, self.graph)) for letter in letters]
        self.found.extend(made[: max(0, KEPT - len(self.found))])
        if made and self.writer is not None:
            with dead_letter_sink():
                self.writer.write(batch_of([letter for _, letter in made]))

    def kept(self) -> tuple[DeadLetter, ...]:
        """In the order of the records."""
        return tuple(letter for _, letter in sorted(self.found, key=lambda pair: pair[0]))

    def close(self, good: bool) -> None:
        if self.writer is None:
            return
        if good:
            with dead_letter_sink():
                self.writer.close()
        else:
            with suppress(Exception):  # there is something worse to tell
                self.writer.abort()


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
