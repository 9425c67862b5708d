"""Records that failed: dead letters collected during a run, and the error that ends one.

The engine names a failed record by operator, source and row, with the row itself; here it becomes
something a person can read.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
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
from plait.model.records import Misfit, records_of
from plait.model.schema import Schema
from plait.results.result import DeadLetter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plait.graph.operators import AnyOp
    from plait.graph.temporal import InputPort

NO_OPERATOR = (1 << 32) - 1
"""In place of an operator: the scheduler failed."""
KEPT = 10_000
SHOWN = 300
"""How many characters of a record an error shows."""

LETTER_SCHEMA = Schema.of(
    {"operator": str, "at": str, "source": str, "row": int, "error": str, "record": str}
)
"""What a sink for dead letters gets."""


class Letters:
    """Dead letters of a run: all of them to the job's sink, if it has one, the first in memory."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.found: list[tuple[tuple[int, int, int, int], DeadLetter]] = []
        sink = graph.dead_letters
        with dead_letter_sink():
            self.writer = sink.open(LETTER_SCHEMA) if sink is not None else None

    def add(self, letters: Sequence[Any]) -> None:
        made = [(place_of(letter), letter_of(letter, self.graph)) for letter in letters]
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
        }
        for letter in letters
    ]
    return pa.RecordBatch.from_pylist(rows, schema=LETTER_SCHEMA.to_arrow())


def place_of(letter: Any) -> tuple[int, int, int, int]:
    op, source, epoch, row = letter[:4]
    return epoch, source, row, op


def record_of(letter: Any, graph: Graph) -> Any:
    """The failed record as the user's operator saw it."""
    op = graph.operators[letter[0]]
    schema = graph.operators[op.inputs[0]].schema
    row = letter[6].to_arrow(schema)
    if (port := port_of(letter, graph)) is not None:
        schema = port.schema
        row = row.select(list(port.columns)).rename_columns(list(schema.names))
    try:
        return records_of(row, schema)[0]
    except Exception:  # a class of the user's that refuses these values
        return row.to_pylist()[0]


def port_of(letter: Any, graph: Graph) -> InputPort | None:
    """The port at which the record was, if its operator has ports."""
    op = graph.operators[letter[0]]
    if not isinstance(op, TimedOp) or not isinstance(op.spec, OperatorSpec):
        return None
    ports = op.spec.inputs
    if len(ports) == 1:
        return ports[0]
    row = letter[6].to_arrow(graph.operators[op.inputs[0]].schema)
    return ports[int(row.column(SIDE)[0].as_py())]


def letter_of(letter: Any, graph: Graph) -> DeadLetter:
    op = graph.operators[letter[0]]
    return DeadLetter(
        operator=op.name,
        at=str(op.at),
        source=source_label(graph, letter[1]),
        row=letter[3],
        error=letter[4],
        record=record_of(letter, graph),
    )


def source_label(graph: Graph, source: int) -> str:
    return [op.label for op in graph.operators if isinstance(op, SourceOp)][source]


def error_of(letter: Any, graph: Graph, raised: Sequence[Any]) -> BaseException:
    """The exception to raise for the failure that ended a run."""
    number, source, _, row, message, handle, _ = letter
    cause = raised[handle] if handle >= 0 else None
    if number == NO_OPERATOR:
        return scheduler_error(message, cause)
    op = graph.operators[number]
    if row < 0:
        return end_error(op, message, cause)
    label = source_label(graph, source)
    if not len(letter[6]):  # a timer: it is due behind the records of its epoch
        failed = RecordError(
            f"{describe_op(op)}: {message}\n  it was due behind record {row:,} of source {label}; "
            "all before it was delivered, nothing after it",
            operator=op.name,
            at=str(op.at),
            source=label,
            row=row,
        )
        failed.__cause__ = cause
        return failed
    record = record_of(letter, graph)
    port = port_of(letter, graph)
    where = "" if port is None else f", at port {port.name}"
    advice = 'use on_error="dead_letter" to go on past bad records'
    if port is not None:
        advice = "an operator with its own loop goes on from what it catches itself"
    error = RecordError(
        f"{describe_op(op)} {said(message, cause)}\n"
        f"  record {row + 1:,} of source {label}{where}: {short(repr(record))}\n"
        f"  the {row:,} records before it were delivered, nothing after it; {advice}",
        operator=op.name,
        at=str(op.at),
        source=label,
        row=row,
        record=record,
    )
    error.__cause__ = cause
    return error


def scheduler_error(message: str, cause: BaseException | None) -> BaseException:
    if isinstance(cause, KeyboardInterrupt | SystemExit):
        return cause
    error = SchedulerError(message)
    error.__cause__ = cause
    return error


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


def end_error(op: AnyOp, message: str, cause: BaseException | None) -> BaseException:
    """A source or sink that failed, or the runtime itself."""
    if isinstance(cause, PlaitError | KeyboardInterrupt | SystemExit):
        return cause
    made: PlaitError
    if isinstance(op, SourceOp) and cause is not None:
        made = SourceError(f"source {op.label} at {op.at}: {message}")
    elif isinstance(op, SinkOp) and cause is not None:
        made = SinkError(f"sink {op.label} at {op.at}: {message}")
    elif message.startswith("the pool of worker processes "):
        made = JobError(f"{op}: {message}")
    elif message.startswith("the worker process "):  # a timer, or the state itself, killed it
        made = RecordError(f"{describe_op(op)}: {message}", operator=op.name, at=str(op.at))
    elif cause is not None and not isinstance(cause, Exception):
        made = RecordError(f"{describe_op(op)} raised {message}", operator=op.name, at=str(op.at))
    else:
        made = InternalError(f"{op}: {message}")
    made.__cause__ = cause
    return made


def short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text):,} characters)"
