"""The ends of a running job: opens readers and writers, and closes each exactly once.
 Tables, generated records, `Collect` and `Discard` are known to the engine and never enter Python
per batch; every other source and sink is reached through the ports of `sources.base` and
`sinks.base`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from plait.connectors.bad_rows import poll_rows, sort_out
from plait.connectors.base import Reader, Wait
from plait.connectors.columns import canonical, to_batch
from plait.connectors.memory_sinks import Collect, Discard
from plait.connectors.memory_sources import ItemsReader, Table, has_bad_rows
from plait.connectors.opening import open_reader, open_writer, wait_seconds
from plait.connectors.rate import Rate
from plait.errors import PlaitError, SinkError, SourceError
from plait.graph.operators import Graph, SinkOp, SourceOp
from plait.model.records import TooMuchText, describe, pack_object
from plait.node_runtime.assembly.engine_parts import (
    ElsewhereEnd,
    RateEnd,
    ReaderEnd,
    SinkEnd,
    SourceEnd,
    TableEnd,
)
from plait.node_runtime.host.end_thread import ThreadReader, ThreadWriter, open_end
from plait.node_runtime.host.source_rates import Gauge
from plait.node_runtime.native._batch import NativeBatch
from plait.node_runtime.native._records import Shape
from plait.results.failures import BAD_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from plait.connectors.base import Resume, Writer
    from plait.model.schema import Schema
    from plait.node_runtime.assembly.engine_parts import EngineParts
    from plait.node_runtime.native.stage_specs import WithBadRows

EMPTY_WAIT_S = 0.001
"""How soon a reader is asked again that gave no rows and did not say when."""


class Ends:
    """All open ends of a run."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.sources: dict[int, SourceEnd] = {}
        self.sinks: dict[int, SinkEnd] = {}
        self.readers: list[Reader] = []
        self.reader_of: dict[int, Reader] = {}
        """Of each source that has one."""
        self.gauges: dict[int, Gauge] = {}
        """Of sources that can tell what waits to be read."""
        self.writers: dict[int, Writer] = {}
        self.stops_early = False
        """Whether a sink ends the run before the sources do."""
        self.kept: dict[int, list[Any]] = {}
        """Of sinks that keep their rows: the batches from before the last mark."""

    def cpu_s(self) -> dict[int, float]:
        """Processor time of the threads that call a user's readers and writers, by operator."""
        ends: dict[int, Any] = {**self.reader_of, **self.writers}
        return {
            op: end.thread.cpu_s()
            for op, end in ends.items()
            if isinstance(end, ThreadReader | ThreadWriter)
        }

    def close(self, good: bool, parts: EngineParts) -> dict[str, Any]:
        """Closes everything; gives what each sink returned, by its label."""
        outputs: dict[str, Any] = {}
        errors: list[Exception] = []
        for reader in self.readers:
            attempt(reader.close, errors)
        for number, op in enumerate(self.graph.operators):
            if isinstance(op, SinkOp) and number in self.sinks:
                closing = partial(call_endpoint, self.closer(number, op, good, parts), op)
                outputs[op.label] = attempt(closing, errors)
        if errors and good:
            raise errors[0]
        return outputs

    def closer(self, number: int, op: SinkOp, good: bool, parts: EngineParts) -> Callable[[], Any]:
        if number in self.writers:
            writer = self.writers[number]
            return writer.close if good else writer.abort
        if self.sinks[number].keep:
            return lambda: self.kept_table(parts, number, op.schema)
        return lambda: parts.engine.counts(number)[1]

    def kept_until_mark(self, number: int, parts: EngineParts, *, at_end: bool) -> list[Any]:
        """The batches that a sink kept before the last mark, or `at_end` all of them."""
        op = self.graph.operators[number]
        stage = parts.sink_stages[number]
        kept = self.kept.setdefault(number, [])
        kept += (batch.to_arrow(op.schema) for batch in parts.engine.take_closed(stage))
        if not at_end:
            return kept
        return [*kept, *(b.to_arrow(op.schema) for b in parts.engine.kept_batches(stage))]

    def kept_table(self, parts: EngineParts, number: int, schema: Schema) -> Any:
        """All rows that a sink kept, after the run."""
        return table_of(self.kept_until_mark(number, parts, at_end=True), schema)

    def first_position(self, number: int) -> Any:
        """Where a source begins, as a checkpoint keeps it; None: at its first row."""
        end = self.sources[number]
        return [end.position(), 0] if isinstance(end, ReaderEnd) else None

    def abort(self) -> None:
        """Closes what was opened for a run that never started."""
        ignored: list[Exception] = []
        for reader in self.readers:
            attempt(reader.close, ignored)
        for writer in self.writers.values():
            attempt(writer.abort, ignored)


def call_endpoint(action: Callable[[], Any], op: SourceOp | SinkOp) -> Any:
    """Runs the user's side of an end; what it raises names the end and the line."""
    try:
        return action()
    except PlaitError:
        raise
    except Exception as error:
        kind = SourceError if isinstance(op, SourceOp) else SinkError
        raise kind(f"{op.label} ({op}): {type(error).__name__}: {error}") from error


def attempt(action: Callable[[], Any], errors: list[Exception]) -> Any:
    """One end that fails to close must not keep the others open."""
    try:
        return action()
    except Exception as error:
        errors.append(error)
        return None


def table_of(batches: Sequence[Any], schema: Schema) -> Any:
    import pyarrow as pa

    return pa.Table.from_batches(batches, schema.to_arrow())


def open_ends(
    graph: Graph,
    positions: Mapping[str, Any],
    here: Collection[int] | None = None,
    resumes: Mapping[int, Resume] | None = None,
) -> Ends:
    """Opens all ends, sources at their positions. `here`: the ends of this node, if there are
    others. `resumes`: in a job with checkpoints, where each sink goes on."""
    ends = Ends(graph)
    try:
        for number, op in enumerate(graph.operators):
            open_here = here is None or number in here
            if isinstance(op, SourceOp) and not open_here:
                ends.sources[number] = ElsewhereEnd()
            elif isinstance(op, SourceOp):
                opened = open_source(ends, op, positions.get(op.label))
                ends.sources[number] = measured(ends, number, op, opened)
                if isinstance(opened, ReaderEnd):
                    ends.reader_of[number] = ends.readers[-1]
            elif isinstance(op, SinkOp) and open_here:
                resume = None if resumes is None else resumes[number]
                ends.sinks[number] = open_sink(ends, number, op, resume)
    except BaseException:
        ends.abort()
        raise
    return ends


def open_source(ends: Ends, op: SourceOp, position: Any) -> SourceEnd:
    source = op.source
    if type(source) is Table and not has_bad_rows(op):
        chunks = [NativeBatch.from_arrow(c, op.schema) for c in source.arrow().to_batches()]
        rate = source.rate_per_s or 0.0
        return TableEnd(chunks=chunks, rate_per_s=rate, first=source.row_at(position))
    if type(source) is Rate:
        total = -1 if source.total is None else source.total
        return RateEnd(
            rate_per_s=source.rate_per_s,
            total=total,
            start_us=source.start_us,
            first=source.row_at(position),
        )
    opened = partial(open_reader, source, op.schema, position, str(op))
    opening = partial(open_end, op.label, source, opened, partial(ThreadReader, op))
    reader = call_endpoint(opening, op)
    ends.readers.append(reader)
    threaded = isinstance(reader, ThreadReader)
    inner = reader.reader if threaded else reader
    if op.on_error != "fail":
        poll = poll_with_bad(inner, op)
        call = partial(reader.thread.call, poll) if threaded else poll
        return ReaderEnd(poll=call, position=reader.position)
    if type(inner) is ItemsReader and inner.schema.fields == op.schema.fields:
        items = ItemsPoll(inner, op)
        if threaded:
            call = reader.thread.call
            return ReaderEnd(poll=partial(call, items.poll), position=partial(call, items.position))
        return ReaderEnd(poll=items.poll, position=items.position)
    return ReaderEnd(poll=poll_of(reader, op), position=reader.position)


def measured(ends: Ends, number: int, op: SourceOp, end: SourceEnd) -> SourceEnd:
    """The end, and a gauge for its rate if the reader can tell what waits to be read."""
    if not isinstance(end, ReaderEnd):
        return end
    reader: Any = ends.readers[-1]
    threaded = isinstance(reader, ThreadReader)
    inner = reader.reader if threaded else reader
    gauge = Gauge(inner)
    if not gauge.asks and gauge.looking is None:
        return end
    ends.gauges[number] = gauge
    if not gauge.asks:
        return end
    asked = partial(reader.thread.call, inner.backlog) if threaded else inner.backlog
    return replace(end, poll=gauge.around(end.poll, lambda: call_endpoint(asked, op), str(op)))


class ItemsPoll:
    """Python records straight into native columns; the rows before a bad record are delivered.

    What the native conversion does not take (a key left out, a bad value) goes the slow way through
    Arrow, which takes it or says what is wrong with it. Records with more text than a column of a
    unit holds are given in several units.
    """

    def __init__(self, reader: ItemsReader, op: SourceOp) -> None:
        self.reader = reader
        self.op = op
        self.shape = Shape(reader.schema)
        self.held: list[Any] = []
        """Records taken and not converted yet: the first of them is a bad one, or there was too
        much text."""
        self.most: int | None = None
        """How many records had little enough text, where there was too much before."""

    def poll(self, max_rows: int) -> NativeBatch | None:
        records = self.held or self.reader.take(max_rows)
        if not records:
            return None
        count = len(records) if self.most is None else min(self.most, len(records))
        while True:
            try:
                batch, _, failures = self.shape.from_records(records[:count], True)
                break
            except TooMuchText:
                if count == 1:
                    raise
                count = self.most = count // 2
        if self.most is not None:
            self.most *= 2
        if failures:
            return self.slowly(records[:count], records[count:])
        self.held = records[count:]
        return batch

    def slowly(self, records: list[Any], rest: list[Any]) -> NativeBatch:
        try:
            batch = self.reader.batch(records, len(rest))
        except SourceError:
            good = self.good_of(records, len(rest))
            if good == 0:
                raise
            self.held = records[good:] + rest
            batch = self.reader.batch(records[:good], len(self.held))
        else:
            self.held = rest
        return NativeBatch.from_arrow(batch, self.reader.schema)

    def good_of(self, records: list[Any], behind: int) -> int:
        """How many records there are before the first bad one; `behind`: those after all these."""
        for i in range(len(records)):
            try:
                self.reader.batch(records[i : i + 1], len(records) - i - 1 + behind)
            except SourceError:
                return i
        return len(records)

    def position(self) -> Any:
        return self.reader.position_before(len(self.held))


def one_batch(table: Any, label: str) -> Any:
    """The rows of a table as one batch."""
    batches = table.combine_chunks().to_batches()
    if len(batches) != 1:
        raise SourceError(
            f"{label}: poll returned {table.num_rows:,} rows with more than 2 GiB in a column;"
            " return fewer rows at a time, or set epoch_records= to less"
        )
    return batches[0]


def poll_of(reader: Reader, op: SourceOp) -> Callable[[int], NativeBatch | float | None]:
    """The reader's poll with its answer in native form, checked. The rows before a bad record are
    delivered; it is the next answer."""
    import pyarrow as pa

    schema, arrow = op.schema, op.schema.to_arrow()
    named = reader.reader if isinstance(reader, ThreadReader) else reader
    where = f"source {op.label} at {op.at}: {type(named).__name__}"
    read = 0
    failed: SourceError | None = None

    def batch_of(records: Sequence[Any], at: int) -> Any:
        try:
            return to_batch(records, schema, read + at)
        except SourceError as error:
            raise SourceError(f"{where}: {error}") from None

    def poll(max_rows: int) -> NativeBatch | float | None:
        nonlocal read, failed
        if failed is not None:
            raise failed
        answer = reader.poll(max_rows)
        if answer is None:
            return None
        if isinstance(answer, Wait):
            return wait_seconds(answer, where)
        if isinstance(answer, list | tuple):
            rows = sort_out(answer, batch_of)
            answer = rows.good
            if rows.bad:
                failed = rows.bad[0].error()
                answer = rows.split(rows.bad[0].row)[0].good
                if answer.num_rows == 0:
                    raise failed
        if not isinstance(answer, pa.RecordBatch | pa.Table):
            raise SourceError(
                f"{where}: poll returned {describe(answer)}; it must return a list of records, "
                "a RecordBatch, a Table, plait.Wait(seconds), or None at the end"
            )
        if answer.num_rows > max_rows:
            raise too_many(where, max_rows, answer.num_rows)
        if answer.num_rows == 0:
            return EMPTY_WAIT_S
        if answer.schema != arrow:
            answer = canonical(answer, schema)
        if isinstance(answer, pa.Table):
            answer = one_batch(answer, op.label)
        read += answer.num_rows
        return NativeBatch.from_arrow(answer, schema)

    return poll


def poll_with_bad(
    reader: Reader, op: SourceOp
) -> Callable[[int], NativeBatch | WithBadRows | float | None]:
    """The reader's poll with its answer in native form, bad rows beside the good ones."""
    where = f"source {op.label} at {op.at}: {type(reader).__name__}"
    read = 0

    def poll(max_rows: int) -> NativeBatch | WithBadRows | float | None:
        nonlocal read
        rows = poll_rows(reader, op.schema, max_rows, read, where)
        if rows is None:
            return None
        if isinstance(rows, Wait):
            return wait_seconds(rows, where)
        if len(rows) > max_rows:
            raise too_many(where, max_rows, len(rows))
        if len(rows) == 0:
            return EMPTY_WAIT_S
        read += len(rows)
        good = NativeBatch.from_arrow(rows.good, op.schema)
        if not rows.bad:
            return good
        kept = rows.bad if op.on_error == "dead_letter" else ()
        records = to_batch([(picklable(bad.record),) for bad in kept], BAD_SCHEMA)
        return (
            good,
            [bad.row for bad in rows.bad],
            [bad.reason for bad in rows.bad],
            NativeBatch.from_arrow(records, BAD_SCHEMA),
        )

    return poll


def picklable(record: Any) -> Any:
    """The record, or its text if it is something that cannot be sent."""
    try:
        pack_object(record)
    except Exception:
        return repr(record)
    return record


def too_many(where: str, asked: int, got: int) -> SourceError:
    return SourceError(f"{where}: poll({asked}) returned {got} rows; never return more")


def open_sink(ends: Ends, number: int, op: SinkOp, resume: Resume | None = None) -> SinkEnd:
    sink, schema = op.sink, op.schema
    if type(sink) is Collect:
        most = -1 if sink.limit is None else sink.limit
        ends.stops_early = ends.stops_early or most >= 0
        return SinkEnd(keep=True, most=most)
    if type(sink) is Discard:
        return SinkEnd()
    opened = partial(open_writer, sink, schema, str(op), resume)
    opening = partial(open_end, op.label, sink, opened, ThreadWriter)
    writer = ends.writers[number] = call_endpoint(opening, op)

    def write(batch: NativeBatch) -> None:
        call_endpoint(lambda: writer.write(batch.to_arrow(schema)), op)

    if resume is None:
        return SinkEnd(write=write)
    return SinkEnd(
        write=write,
        mark=lambda boundary: call_endpoint(lambda: writer.mark(boundary), op),
        commits=sink.commit is not None,
        delivered_before=resume.boundary if sink.kind == "decider" else 0,
    )
