"""The loop of the oracle: one epoch of one source after the other, through all operators.

Within a unit each operator is run over all the marks and rows of its inputs, which gives what
pushing them one by one would, because every operator is a function of the sequence of its inputs
and a union orders by (row, half, input). `plait.testing.oracle` has the order, and what becomes of
failures.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from plait.connectors.bad_rows import BadRow
from plait.errors import RecordError
from plait.graph.operators import (
    AnyOp,
    CallOp,
    EventTimeOp,
    Graph,
    ShedOp,
    SinkOp,
    SourceOp,
    TimedOp,
    UnionOp,
)
from plait.graph.temporal import OperatorSpec
from plait.results.result import Account, DeadLetter, OperatorCounts
from plait.testing.oracle.loop_operators import Loops
from plait.testing.oracle.process import Processes
from plait.testing.oracle.row_operators import Batches, Operator, described, operator_of
from plait.testing.oracle.shedding import Shedding
from plait.testing.oracle.temporal import Timing, timed_operator
from plait.testing.oracle.time import (
    ALL_TIME,
    Fate,
    Time,
    TimedOperator,
    TimerFault,
    Watermarks,
)
from plait.testing.oracle.values import Fault, Values, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from plait.model.schema import Schema
    from plait.results.result import KeepStep
    from plait.testing.oracle.epochs import Row

UNLIKE_ROWS = UnionOp | ShedOp | SinkOp | TimedOp | EventTimeOp
"""They do not take one record at a time, whatever came before."""

Position = tuple[int, int]
"""A row number of the unit's source, counted from the source's start, and the half: 0 for what is
given at the mark of that row, 1 for what is made of the record."""

Item = tuple[Position, Values]


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
    """Where a stream ended for good."""

    position: Position
    failure: RecordError


@dataclass(slots=True)
class Stream:
    """One operator's output in one unit; with an end it is all that there is."""

    items: list[Item]
    end: End | None = None


class Loop:
    """The state of a run: the operators, and all that was counted and delivered so far."""

    def __init__(self, graph: Graph, keeps: Sequence[KeepStep] = ()) -> None:
        self.graph = graph
        self.shedding = Shedding(graph, keeps)
        self.operators: dict[int, Operator] = {
            i: operator_of(op, self.schema_in(op))
            for i, op in enumerate(graph.operators)
            if op.inputs and not isinstance(op, UNLIKE_ROWS) and not is_batches(op)
        }
        self.timings = {
            i: Timing(op.time, self.schema_in(op))
            for i, op in enumerate(graph.operators)
            if isinstance(op, EventTimeOp)
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
        """Tells of each stream that the operator reads whether its sources are at their end, or
        were stopped."""
        several = isinstance(op.spec, OperatorSpec) and len(op.spec.inputs) > 1
        streams = self.graph.operators[op.inputs[0]].inputs if several else op.inputs
        reaching = [self.watermarks.reaching[i] for i in streams]
        return lambda: [
            sources <= self.watermarks.over | self.watermarks.cut | self.watermarks.flushed
            for sources in reaching
        ]

    def close(self) -> None:
        for operator in self.timed.values():
            if isinstance(operator, Loops):
                operator.close()

    def leave(self) -> None:
        """The run is stopped: counts what each operator that knows time would still give."""
        for i, operator in self.timed.items():
            if i in self.ended or isinstance(operator, Loops):
                continue
            if isinstance(operator, Processes):
                self.counts[i, "unfinished"] = operator.pending()
            else:
                self.counts[i, "unfinished"] = len(operator.due(self.watermarks.now[i], ALL_TIME))

    def schema_in(self, op: AnyOp) -> Schema:
        return self.graph.operators[op.inputs[0]].schema

    def unit(
        self,
        source: int,
        rows: list[Row],
        *,
        over: bool = False,
        idle: bool = False,
        cut: bool = False,
        flushed: bool = False,
        stamp: int = 0,
    ) -> None:
        """Runs one epoch of one source through all the operators. `over`: the source is at its end;
        `flushed`: it was stopped and counts as if it were;
        `idle`: it has been silent for so long that nothing waits for it; `cut`: it was stopped
        before its end; `stamp`: the wall clock when the epoch was cut."""
        origin = self.graph.operators[source]
        assert isinstance(origin, SourceOp)
        cuts = self.cuts.setdefault(origin.label, [])
        first = sum(cuts)
        if rows or not (over or cut or flushed):
            cuts.append(len(rows))
        if cut:
            self.watermarks.cut |= {source}
        if flushed:
            self.watermarks.flushed |= {source}
        good = [(n, row) for n, row in enumerate(rows, first) if not isinstance(row, BadRow)]
        read = [None if isinstance(row, BadRow) else row for row in rows]
        self.watermarks.read(source, read, first, over, idle, stamp)
        streams: dict[int, Stream] = {}
        letters: list[tuple[Position, DeadLetter]] = []
        self.set_aside(source, rows, first, letters)
        failures: list[End] = []
        before = {label: len(items) for label, items in self.outputs.items()}
        for i, op in enumerate(self.graph.operators):
            if i in self.ended or source not in self.watermarks.reaching[i]:
                streams[i] = Stream([])
            elif isinstance(op, SourceOp):
                streams[i] = Stream([((row, 1), values) for row, values in good])
            elif isinstance(op, UnionOp):
                streams[i] = merged([streams[j] for j in op.inputs])
            elif isinstance(op, SinkOp):
                streams[i] = streams[op.inputs[0]]
                self.outputs[op.label] += streams[i].items
            else:
                given = streams[op.inputs[0]]
                if isinstance(op, TimedOp):
                    streams[i] = self.run_timed(i, given, origin.label, letters)
                elif isinstance(op, ShedOp):
                    streams[i] = self.run_shed(i, op, given, source)
                elif isinstance(op, EventTimeOp):
                    streams[i] = self.run_timing(i, given, origin.label, letters)
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
            self.stop(min(failures, key=lambda end: end.position), before)

    def set_aside(
        self, i: int, rows: list[Row], first: int, letters: list[tuple[Position, DeadLetter]]
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
                            (row, 1),
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
                kept = [item for item in new if here or item[0] < end.position]
                self.stopped[op.label] = old + kept

    def run_node(
        self, i: int, given: Stream, source: str, letters: list[tuple[Position, DeadLetter]]
    ) -> Stream:
        """Runs one operator over its input, record by record, by its policy for failing ones."""
        op = self.graph.operators[i]
        if is_batches(op):
            return self.run_batch(i, given, source, letters)
        items: list[Item] = []
        for position, values in given.items:
            try:
                results = self.operators[i].apply(values)
            except Fault as fault:
                end = self.failed(i, (position, values), source, fault, letters)
                if end is not None:
                    return Stream(items, end)
                continue
            self.counts[i, "filtered" if not results else "made"] += abs(len(results) - 1)
            items += [(position, result) for result in results]
        return Stream(items, given.end)

    def run_shed(self, i: int, op: ShedOp, given: Stream, source: int) -> Stream:
        """Lets through what is in a sample."""
        schema = self.schema_in(op)
        told = (self.shedding.ratio(op),) if op.ratio else ()
        items = [
            (position, (*values, *told))
            for position, values in given.items
            if self.shedding.keeps(op, schema, source, position[0], values)
        ]
        self.counts[i, "shed"] += len(given.items) - len(items)
        return Stream(items, given.end)

    def run_timing(
        self, i: int, given: Stream, source: str, letters: list[tuple[Position, DeadLetter]]
    ) -> Stream:
        """Runs an operator that names the event time: the rows that pass move its time."""
        stream = Stream([], given.end)
        times: list[tuple[Position, int]] = []
        for position, values in given.items:
            try:
                times.append((position, self.timings[i].time_of(values)))
            except Fault as fault:
                end = self.failed(i, (position, values), source, fault, letters)
                if end is not None:
                    stream.end = end
                    break
                continue
            stream.items.append((position, values))
        if stream.end is not None:
            ended = stream.end.position
            times = [(position, time) for position, time in times if position < ended]
        self.watermarks.pass_rows(i, times)
        return stream

    def run_timed(
        self, i: int, given: Stream, source: str, letters: list[tuple[Position, DeadLetter]]
    ) -> Stream:
        """Runs an operator that knows time: at each mark it first takes what came before, at its
        watermark as it was, and then gives what is due."""
        operator = self.timed[i]
        operator.now = self.watermarks.clock[i]
        items: list[Item] = []
        taken = 0
        for mark, before, watermark in self.watermarks.steps(i):
            here = (mark.row, 0)
            while taken < len(given.items) and given.items[taken][0] <= here:
                end = self.take(i, given.items[taken], before, source, items, letters)
                if end is not None:
                    return Stream(items, end)
                taken += 1
            if given.end is not None and given.end.position <= here:
                break
            try:
                operator.held = self.watermarks.held[i]
                due = operator.due(before, watermark)
                self.give(i, here, due, items)
                if mark.behind:
                    self.give(i, here, operator.behind(before, at_end=watermark == ALL_TIME), items)
            except TimerFault as fault:
                self.give(i, here, fault.rows, items)
                return Stream(items, End(here, self.error(i, mark.row, source, fault, None)))
        return Stream(items, given.end)

    def take(
        self,
        i: int,
        item: Item,
        watermark: Time,
        source: str,
        items: list[Item],
        letters: list[tuple[Position, DeadLetter]],
    ) -> End | None:
        """Gives a record to an operator that knows time, and adds what comes of it to `items`; the
        end if it fails for good."""
        position, values = item
        self.places[i] += 1
        end = None
        try:
            results = self.timed[i].take(self.places[i], values, watermark)
        except Fault as fault:
            return self.failed(i, item, source, fault, letters)
        except TimerFault as fault:
            results = fault.rows
            end = End(position, self.error(i, position[0] + 1, source, fault, None))
        if isinstance(results, Fate):
            self.counts[i, results.value] += 1
        else:
            self.counts[i, "absorbed"] += 1
            self.give(i, position, results, items)
        return end

    def give(self, i: int, position: Position, rows: list[Values], items: list[Item]) -> None:
        self.counts[i, "made"] += len(rows)
        items += [(position, values) for values in rows]

    def run_batch(
        self, i: int, given: Stream, source: str, letters: list[tuple[Position, DeadLetter]]
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
        letters: list[tuple[Position, DeadLetter]],
    ) -> End | None:
        """What becomes of a failing record; an end when the policy is to fail."""
        op = self.graph.operators[i]
        position, values = item
        row = position[0]
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
            letters.append((position, letter))
            return None
        return End(position, self.error(i, row + 1, source, fault, record))

    def error(self, i: int, row: int, source: str, fault: Exception, record: Any) -> RecordError:
        op = self.graph.operators[i]
        failure = RecordError(
            f"{op.name} at {op.at}: {fault}\n  record {row} of source {source}: {record!r}",
            operator=op.name,
            at=str(op.at),
            source=source,
            row=row,
            record=record,
        )
        cause: BaseException = fault
        while cause.__cause__ is not None:
            cause = cause.__cause__
        failure.__cause__ = cause
        return failure

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
            shed=self.counts[i, "shed"],
            unfinished=self.counts[i, "unfinished"],
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
            shed=total("shed"),
            unfinished=total("unfinished"),
        )


def is_batches(op: AnyOp) -> bool:
    return isinstance(op, CallOp) and op.mode == "batches"


def merged(inputs: Sequence[Stream]) -> Stream:
    """A union: by row and half, then by the position of the input, then as they came."""
    places = [(*item, number) for number, stream in enumerate(inputs) for item in stream.items]
    places.sort(key=lambda place: (place[0], place[2]))
    ends = [(s.end.position, number, s.end) for number, s in enumerate(inputs) if s.end is not None]
    last = min(ends, key=lambda one: one[:2], default=None)
    kept = [p for p in places if last is None or (p[0], p[2]) <= last[:2]]
    return Stream([(position, values) for position, values, _ in kept], last and last[2])
