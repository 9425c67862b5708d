"""The oracle: a slow, obviously right executor of a graph. What it gives is the right answer.

The order is a plain loop: for every epoch, for every source in the order of the operators, for
every row. One source's rows of one epoch are a unit; within a unit each operator is run over all
the rows of its inputs, which gives what pushing row by row would, because every operator is a
function of the sequence of its inputs and a union orders by (row, input). It shares no code with
the runtime.

Rows that are due by time come behind all rows of their unit: as if the unit had one more row. When
all sources are at their end one more epoch without rows follows, and then all is due.

A record that fails ends the streams that depend on it: each sink after the failing operator has
what came before that record. `outputs` is what the loop had delivered when it stopped at the first
failure; `beyond` is what each sink gets if only streams that depend on a failure end.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from plait.connectors.bad_rows import BadRow
from plait.errors import RecordError
from plait.graph.operators import (
    AnyOp,
    CallOp,
    Graph,
    SinkOp,
    SourceOp,
    TimedOp,
    UnionOp,
)
from plait.graph.temporal import OperatorSpec
from plait.results.result import Account, DeadLetter, OperatorCounts
from plait.testing.oracle.epochs import Row, epochs
from plait.testing.oracle.loop_operators import Loops
from plait.testing.oracle.process import Processes
from plait.testing.oracle.row_operators import Batches, Operator, described, operator_of
from plait.testing.oracle.temporal import timed_operator
from plait.testing.oracle.time import Fate, TimedOperator, TimerFault, Watermarks
from plait.testing.oracle.values import Fault, Values, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from plait.model.schema import Schema

Item = tuple[int, Values]
"""A row number of the unit's source, counted from the source's start, and the values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleResult:
    """The right answer. Counts and account are those of `beyond`; without a failure of all."""

    outputs: Mapping[str, list[Values]]
    beyond: Mapping[str, list[Values]]
    schemas: Mapping[str, Schema]
    """Of each sink."""
    account: Account
    operators: tuple[OperatorCounts, ...]
    dead_letters: tuple[DeadLetter, ...]
    cuts: Mapping[str, tuple[int, ...]]
    failure: RecordError | None = None
    """The first failing record in the order."""
    ends: Mapping[str, RecordError] = field(default_factory=dict)
    """The failure that ended a sink's stream, by the label of the sink."""
    waited: bool = False
    """Whether a source had nothing at some time: then the epochs of another run may differ."""


@dataclass(slots=True)
class End:
    """Where a stream ended for good: `row` of the unit in which it did."""

    row: int
    failure: RecordError


@dataclass(slots=True)
class Stream:
    """One operator's output in one unit; with an end it is all that there is."""

    items: list[Item]
    end: End | None = None


def sequential(
    graph: Graph,
    *,
    epoch_records: int = 4096,
    cuts: Mapping[str, Sequence[int]] | None = None,
    stamps: Mapping[str, Sequence[int]] | None = None,
    limit: int | None = None,
    stop_at: int | None = None,
) -> OracleResult:
    """Runs the graph as the plain loop would.

    Args:
        epoch_records: the most rows of an epoch of a source.
        cuts: the rows of each epoch of a source by its label, as in `Result.cuts`.
        stamps: when each was cut, as in `Result.stamps`; otherwise all at 0.
        limit: the most records read from each source.
        stop_at: the epoch from which on no source is read.
    """
    loop = Loop(graph)
    waits: list[str] = []
    sources = [(i, op) for i, op in enumerate(graph.operators) if isinstance(op, SourceOp)]
    streams = {
        i: epochs(
            op,
            op.epoch_records or epoch_records,
            cuts.get(op.label) if cuts else None,
            limit,
            waits,
        )
        for i, op in sources
    }
    over: set[int] = set()
    epoch = 0
    try:
        while len(over) < len(sources):
            taken: dict[int, list[Row]] = {}
            for i, _op in sources:
                stopped = i in over or epoch == stop_at
                rows = None if stopped else next(streams[i], None)
                if rows is None:
                    over.add(i)
                taken[i] = rows or []
            # The last time round no source has rows: the closing epoch.
            for i, op in sources:
                at = (stamps or {}).get(op.label, ())
                stamp = at[epoch] if epoch < len(at) else 0
                loop.unit(i, taken[i], over=i in over, stamp=stamp)
            epoch += 1
    finally:
        loop.close()
        for stream in streams.values():
            stream.close()  # type: ignore[attr-defined]
    return replace(loop.result(), waited=bool(waits))


class Loop:
    """The state of a run: the operators, and all that was counted and delivered so far."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.operators: dict[int, Operator] = {
            i: operator_of(op, self.schema_in(op))
            for i, op in enumerate(graph.operators)
            if op.inputs and not isinstance(op, UnionOp | SinkOp | TimedOp) and not is_batches(op)
        }
        self.watermarks = Watermarks(graph)
        self.timed: dict[int, TimedOperator] = {
            i: timed_operator(op, self.schema_in(op), self.ends(op))
            for i, op in enumerate(graph.operators)
            if isinstance(op, TimedOp)
        }
        self.ended: dict[int, RecordError] = {}
        self.failure: RecordError | None = None
        self.counts: Counter[tuple[int, str]] = Counter()
        self.places: Counter[int] = Counter()
        """How many rows an operator that knows time has been given: the last one's place."""
        self.letters: list[DeadLetter] = []
        self.cuts: dict[str, list[int]] = {}
        labels = [op.label for op in graph.operators if isinstance(op, SinkOp)]
        self.outputs: dict[str, list[Item]] = {label: [] for label in labels}
        self.stopped: dict[str, list[Item]] | None = None

    def ends(self, op: TimedOp) -> Callable[[], list[bool]]:
        """Tells of each stream that the operator reads whether its sources are at their end."""
        several = isinstance(op.spec, OperatorSpec) and len(op.spec.inputs) > 1
        streams = self.graph.operators[op.inputs[0]].inputs if several else op.inputs
        reaching = [self.watermarks.reaching[i] for i in streams]
        return lambda: [all(source.over for source in sources) for sources in reaching]

    def close(self) -> None:
        for operator in self.timed.values():
            if isinstance(operator, Loops):
                operator.close()

    def schema_in(self, op: AnyOp) -> Schema:
        return self.graph.operators[op.inputs[0]].schema

    def unit(self, source: int, rows: list[Row], *, over: bool = False, stamp: int = 0) -> None:
        """Runs one epoch of one source through all the operators. `over`: the source is at its end;
        `stamp`: the wall clock when it was cut."""
        origin = self.graph.operators[source]
        assert isinstance(origin, SourceOp)
        cuts = self.cuts.setdefault(origin.label, [])
        first = sum(cuts)
        behind = first + len(rows)
        if not over:
            cuts.append(len(rows))
        good = [(n, row) for n, row in enumerate(rows, first) if not isinstance(row, BadRow)]
        self.watermarks.read(source, [values for _, values in good], over, stamp)
        streams: dict[int, Stream] = {}
        letters: list[tuple[int, DeadLetter]] = []
        self.set_aside(source, rows, first, letters)
        failures: list[End] = []
        before = {label: len(items) for label, items in self.outputs.items()}
        for i, op in enumerate(self.graph.operators):
            if i in self.ended:
                streams[i] = Stream([])
            elif isinstance(op, SourceOp):
                streams[i] = Stream(good if i == source else [])
            elif isinstance(op, UnionOp):
                streams[i] = merged([streams[j] for j in op.inputs])
            elif isinstance(op, SinkOp):
                streams[i] = streams[op.inputs[0]]
                self.outputs[op.label] += streams[i].items
            else:
                given = streams[op.inputs[0]]
                if isinstance(op, TimedOp):
                    streams[i] = self.run_timed(i, given, behind, origin.label, letters)
                else:
                    streams[i] = self.run_node(i, given, origin.label, letters)
                own = streams[i].end
                if own is not None and own is not given.end:
                    failures.append(own)
            given_items = [streams[j].items for j in op.inputs or (i,)]  # a source reads its own
            self.counts[i, "in"] += sum(map(len, given_items))
            self.counts[i, "out"] += len(streams[i].items)
        for i, stream in streams.items():
            if stream.end is not None:
                self.ended[i] = stream.end.failure
        self.letters += [letter for _, letter in sorted(letters, key=lambda pair: pair[0])]
        if failures and self.stopped is None:
            self.stop(min(failures, key=lambda end: end.row), before)

    def set_aside(
        self, i: int, rows: list[Row], first: int, letters: list[tuple[int, DeadLetter]]
    ) -> None:
        """Rows that their source could not read, by its policy."""
        op = self.graph.operators[i]
        assert isinstance(op, SourceOp)
        for row, bad in enumerate(rows, first):
            if isinstance(bad, BadRow):
                self.counts[i, "in"] += 1
                self.counts[i, "skipped" if op.on_error == "skip" else "dead_lettered"] += 1
                if op.on_error == "dead_letter":
                    letters.append(
                        (
                            row,
                            DeadLetter(
                                operator=op.name,
                                at=str(op.at),
                                source=op.label,
                                row=row + 1,
                                error=bad.reason,
                                record=bad.record,
                            ),
                        )
                    )

    def stop(self, end: End, before: dict[str, int]) -> None:
        """Keeps what the loop had delivered when it came to the first failing record."""
        self.failure = end.failure
        self.stopped = {}
        for i, op in enumerate(self.graph.operators):
            if isinstance(op, SinkOp):
                items = self.outputs[op.label]
                old, new = items[: before[op.label]], items[before[op.label] :]
                here = self.ended.get(i) is end.failure
                kept = [item for item in new if item[0] < end.row + here]
                self.stopped[op.label] = old + kept

    def run_node(
        self, i: int, given: Stream, source: str, letters: list[tuple[int, DeadLetter]]
    ) -> Stream:
        """Runs one operator over its input, record by record, by its policy for failing ones."""
        op = self.graph.operators[i]
        if is_batches(op):
            return self.run_batch(i, given, source, letters)
        items: list[Item] = []
        for row, values in given.items:
            try:
                results = self.operators[i].apply(values)
            except Fault as fault:
                end = self.failed(i, (row, values), source, fault, letters)
                if end is not None:
                    return Stream(items, end)
                continue
            self.counts[i, "filtered" if not results else "made"] += abs(len(results) - 1)
            items += [(row, result) for result in results]
        return Stream(items, given.end)

    def run_timed(
        self,
        i: int,
        given: Stream,
        behind: int,
        source: str,
        letters: list[tuple[int, DeadLetter]],
    ) -> Stream:
        """Runs an operator that knows time: the rows of the unit, then what is due; the latter has
        the row number `behind`."""
        before, watermark = self.watermarks.step(i)
        operator = self.timed[i]
        if isinstance(operator, Processes):
            operator.now = self.watermarks.clock[i]
        items: list[Item] = []
        for row, values in given.items:
            self.places[i] += 1
            try:
                results = operator.take(self.places[i], values, before)
            except Fault as fault:
                end = self.failed(i, (row, values), source, fault, letters)
                if end is not None:
                    return Stream(items, end)
                continue
            if isinstance(results, Fate):
                self.counts[i, results.value] += 1
                continue
            self.counts[i, "absorbed"] += 1
            self.counts[i, "made"] += len(results)
            items += [(row, result) for result in results]
        if given.end is not None:
            return Stream(items, given.end)
        last = given.end
        try:
            due = operator.due(before, watermark)
        except TimerFault as fault:
            due = fault.rows
            last = End(behind, self.error(i, behind, source, fault, None))
        self.counts[i, "made"] += len(due)
        return Stream([*items, *((behind, values) for values in due)], last)

    def run_batch(
        self, i: int, given: Stream, source: str, letters: list[tuple[int, DeadLetter]]
    ) -> Stream:
        op = self.graph.operators[i]
        assert isinstance(op, CallOp)
        if not given.items:
            return given
        function = Batches(op, self.schema_in(op))
        try:
            results = function.apply_all([values for _, values in given.items])
        except Fault as fault:
            for item in given.items:
                end = self.failed(i, item, source, fault, letters)
                if end is not None:
                    return Stream([], end)
            return Stream([], given.end)
        more = len(results) - len(given.items)
        self.counts[i, "made" if more > 0 else "filtered"] += abs(more)
        last = len(given.items) - 1
        rows = [given.items[min(n, last)][0] for n in range(len(results))]
        return Stream(list(zip(rows, results, strict=True)), given.end)

    def failed(
        self,
        i: int,
        item: Item,
        source: str,
        fault: Fault,
        letters: list[tuple[int, DeadLetter]],
    ) -> End | None:
        """What becomes of a failing record; an end when the policy is to fail."""
        op = self.graph.operators[i]
        row, values = item
        operator = self.timed.get(i)
        record = (
            operator.shown(values)
            if isinstance(operator, Loops)
            else described(values, self.schema_in(op))
        )
        at = str(op.at)
        if op.on_error == "skip":
            self.counts[i, "skipped"] += 1
            return None
        if op.on_error == "dead_letter":
            self.counts[i, "dead_lettered"] += 1
            letter = DeadLetter(
                operator=op.name,
                at=at,
                source=source,
                row=row + 1,
                error=str(fault),
                record=record,
            )
            letters.append((row, letter))
            return None
        return End(row, self.error(i, row + 1, source, fault, record))

    def error(self, i: int, row: int, source: str, fault: Exception, record: Any) -> RecordError:
        op = self.graph.operators[i]
        return RecordError(
            f"{op.name} at {op.at}: {fault}\n  record {row} of source {source}: {record!r}",
            operator=op.name,
            at=str(op.at),
            source=source,
            row=row,
            record=record,
        )

    def result(self) -> OracleResult:
        operators = self.graph.operators
        sinks = [(i, op) for i, op in enumerate(operators) if isinstance(op, SinkOp)]
        delivered = {
            op.label: [shown(values, op.schema) for _, values in self.outputs[op.label]]
            for _, op in sinks
        }
        kept = self.outputs if self.stopped is None else self.stopped
        return OracleResult(
            outputs={label: rows[: len(kept[label])] for label, rows in delivered.items()},
            beyond=delivered,
            schemas={op.label: op.schema for _, op in sinks},
            account=self.account(),
            operators=tuple(self.operator_counts(i, op) for i, op in enumerate(operators)),
            dead_letters=tuple(self.letters),
            cuts={label: tuple(sizes) for label, sizes in self.cuts.items()},
            failure=self.failure,
            ends={op.label: self.ended[i] for i, op in sinks if i in self.ended},
        )

    def operator_counts(self, i: int, op: AnyOp) -> OperatorCounts:
        out = "in" if isinstance(op, SinkOp) else "out"
        return OperatorCounts(
            number=i,
            name=op.name,
            at=str(op.at),
            records_in=self.counts[i, "in"],
            records_out=self.counts[i, out],
            filtered=self.counts[i, "filtered"],
            skipped=self.counts[i, "skipped"],
            dead_lettered=self.counts[i, "dead_lettered"],
            made=self.counts[i, "made"],
            late=self.counts[i, "late"],
            absorbed=self.counts[i, "absorbed"],
        )

    def account(self) -> Account:
        operators = self.graph.operators

        def total(what: str) -> int:
            return sum(self.counts[i, what] for i in range(len(operators)))

        readers = Counter(j for op in operators for j in op.inputs)
        sources = [i for i, op in enumerate(operators) if isinstance(op, SourceOp)]
        sinks = [i for i, op in enumerate(operators) if isinstance(op, SinkOp)]
        return Account(
            read=sum(self.counts[i, "in"] for i in sources),
            made=total("made"),
            copied=sum(
                self.counts[i, "out"] * max(0, readers[i] - 1) for i in range(len(operators))
            ),
            delivered=sum(self.counts[i, "in"] for i in sinks),
            filtered=total("filtered"),
            skipped=total("skipped"),
            dead_lettered=total("dead_lettered"),
            late=total("late"),
            absorbed=total("absorbed"),
        )


def is_batches(op: AnyOp) -> bool:
    return isinstance(op, CallOp) and op.mode == "batches"


def merged(inputs: Sequence[Stream]) -> Stream:
    """A union: by row, then by the position of the input, then as they came."""
    places = [
        (row, position, n, values)
        for position, stream in enumerate(inputs)
        for n, (row, values) in enumerate(stream.items)
    ]
    places.sort(key=lambda place: place[:3])
    ends = [(s.end.row, position, s.end) for position, s in enumerate(inputs) if s.end is not None]
    if not ends:
        return Stream([(row, values) for row, _, _, values in places])
    row_end, position_end, end = min(ends, key=lambda one: one[:2])
    kept = [p for p in places if p[:2] <= (row_end, position_end)]
    return Stream([(row, values) for row, _, _, values in kept], end)
