"""The job as plain data: operators in the order they were made, each with its inputs, schema and
line.

Few core operators; the fluent builder composes the rest of them. Fan-out is several operators that
name the same input. Their numbers are their indices in `Graph.operators`, and inputs come before
their users. Expressions in them are bound: checked, and settled by `plait.expr.type_checker.bind`.

The order that defines a right answer: a record's place is its order tag (epoch, source, row),
sources numbered in the order of their operators. Every source emits one batch for every epoch.
Operators keep the tags; `flat_map` gives all its results the tag of the record they came from. A
union emits, epoch by epoch and source by source, the rows of its inputs by row number, and rows of
the same number by the position of the input.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from plait.errors import InternalError, JobError
from plait.graph.regions import check_regions
from plait.graph.shedders.quality import LOSSLESS, Quality

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plait.expr.aggregates import Aggregate
    from plait.expr.tree import Expr
    from plait.graph.regions import Region
    from plait.graph.shedders.quality import Sample
    from plait.graph.temporal import TimedSpec
    from plait.model.schema import Location, Schema

OnError = Literal["fail", "skip", "dead_letter"]
CallMode = Literal["map", "filter", "flat_map", "columns", "batches", "async"]
Route = Literal["auto", "pool", "inline"]
"""Where a plain Python function runs: in worker processes, in the engine's, or what pays."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Op:
    """What all operators share. `name` is the verb the user wrote.

    Nodes are compared by identity: two equal ones are still two operators.
    """

    name: str
    at: Location
    inputs: tuple[int, ...]
    schema: Schema
    on_error: OnError = "fail"
    region: Region | None = None
    """The part of the job it is in, if that has its own threading model."""
    named: str = ""
    """The id that the user gave it, for its state; see `graph.operator_ids`."""
    was: str = ""
    """The id that it had before, if its state is still kept under that one."""

    def __str__(self) -> str:
        return f"{self.name} at {self.at}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SourceOp(Op):
    """Where records come from. `label` names it in errors and results."""

    source: Any
    label: str
    event_time: str | None = None
    """The timestamp column that is its event time; see `plait.graph.temporal`."""
    computed_time: Expr | None = None
    """An event time that is an expression over its columns. An operator right behind the source
    names it; here it is for the order of several sources."""
    clock: str | None = None
    """Of a source with partitions: the integer column that says how far its time is at each row, in
    place of the greatest event time so far. It is dropped right after the source."""
    out_of_order_us: int = 0
    max_jump_us: int = 86_400_000_000
    idle_us: int = 0
    """After this long without records the source no longer holds back the watermark; 0: it does."""
    epoch_records: int | None = None
    """The most records it puts into an epoch; None: as many as the settings say."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FilterOp(Op):
    """Keeps the rows for which the predicate is true; false and null are filtered."""

    predicate: Expr


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProjectOp(Op):
    """Computes each output column from the input row: select, with_columns, rename and drop."""

    columns: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaiting:
    """How a function is awaited: how many records at a time, how long a try may take, how often a
    record that failed is tried again, and the pause before that, which doubles from try to try."""

    concurrency: int
    timeout_us: int | None
    retries: int
    backoff_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """How often a record whose function raised is tried again, and the pause before that, which
    doubles from try to try."""

    retries: int
    backoff_us: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CallOp(Op):
    """A Python function.

    map: record -> record; filter: record -> truth; flat_map: record -> iterable of records;
    columns: each (name, function) adds or replaces a column, the function's parameters named after
    the columns it reads, all of them columns of the input; `function` is the first of them;
    batches: pyarrow.Table (one batch) -> pyarrow.Table or RecordBatch, any number of rows;
    async: record -> awaitable of a record, with `awaiting`; if there are `columns`, each function
    gives an awaitable of its column.
    """

    mode: CallMode
    function: Callable[..., Any]
    columns: tuple[tuple[str, Callable[..., Any]], ...] = ()
    awaiting: Awaiting | None = None
    retrying: Retrying | None = None
    """Of a plain function: `on_error` decides about a record when all its tries have failed. Of
    columns all functions are tried again, of batches the whole one."""
    route: Route = "auto"
    repeatable: bool = False
    """Whether the user says that it gives the same for the same records, whatever batches they are
    in and whenever it is called."""

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return tuple(function for _, function in self.columns) or (self.function,)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AggregateOp(Op):
    """Running aggregates by key: one output row for each input row, key columns, then results.

    Nulls are skipped by all but count of rows; a result is null until its first value (count: 0).
    min and max leave NaN out unless there is nothing else; first and last are of the values that
    are not null. No keys: one state.
    """

    keys: tuple[str, ...]
    aggregates: tuple[tuple[str, Aggregate], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FoldOp(Op):
    """A running fold in Python: state = step(state, record); for each row: keys and `value`."""

    keys: tuple[str, ...]
    init: Any
    """A value (deep-copied for each key) or a function without parameters that makes one."""
    step: Callable[[Any, Any], Any]
    route: Route = "auto"
    version: int = 1
    """Of its state; see `graph.versions`."""
    migrate: Callable[[Any, int], Any] | None = None

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return (self.step, self.init) if callable(self.init) else (self.step,)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StatefulOp(Op):
    """A state machine in Python: state, out = step(state, record); `out` is a record or None."""

    keys: tuple[str, ...]
    init: Any
    step: Callable[[Any, Any], tuple[Any, Any]]
    route: Route = "auto"
    version: int = 1
    migrate: Callable[[Any, int], Any] | None = None

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return (self.step, self.init) if callable(self.init) else (self.step,)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TimedOp(Op):
    """Windows, joins, timers: an event-time operator by key; `graph.temporal` defines it.

    Its event time is `time`, a timestamp column of the input ("" if the operator has no use for
    it, or its sides have their own)."""

    keys: tuple[str, ...]
    time: str
    spec: TimedSpec
    route: Route = "auto"
    """Of a process; the others are native."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EventTimeOp(Op):
    """Names the event time of the records that pass: what is behind it goes by their time, and no
    longer by that of the sources. A record whose time is null or too far off fails.

    `graph.temporal` defines what that is worth. Its schema is its input's, without null where the
    time is a column."""

    time: Expr
    """A timestamp over the columns of the input."""
    out_of_order_us: int = 0
    max_jump_us: int = 86_400_000_000
    idle_us: int = 0
    """Without records for so long, by the stamps of units, it does not hold back the watermark; 0:
    it does."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnionOp(Op):
    """Several streams of one schema as one, in the order of their tags (see above)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShedOp(Op):
    """Lets through the records that are in one of its samples; the others are shed, and counted.
    `Job.graph` puts it in where a query has a floor. Its schema is its input's.

    With `ratio` it is where a user asks what is kept: it adds a column of that name. `Job.graph`
    gives it the sample of the queries behind it, of which all others were shed before."""

    samples: tuple[Sample, ...]
    why: str
    """Why these are the samples, for `explain`."""
    ratio: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SinkOp(Op):
    """Where records go. Its schema is its input's."""

    sink: Any
    label: str
    quality: Quality = LOSSLESS


AnyOp = (
    SourceOp
    | FilterOp
    | ProjectOp
    | CallOp
    | AggregateOp
    | FoldOp
    | StatefulOp
    | TimedOp
    | EventTimeOp
    | UnionOp
    | ShedOp
    | SinkOp
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Graph:
    """All operators of a job."""

    name: str
    operators: tuple[AnyOp, ...]
    dead_letters: Any = None
    """The sink for records that an operator with on_error="dead_letter" could not take, or None."""
    dropped: tuple[str, ...] = ()
    """The ids of operators whose state in a checkpoint is given up."""

    def users(self, op: int) -> tuple[int, ...]:
        """The operators that read from `operator`, in their order."""
        return tuple(i for i, other in enumerate(self.operators) if op in other.inputs)

    @property
    def sources(self) -> tuple[int, ...]:
        """The sources, in the order that order tags number them."""
        return tuple(i for i, op in enumerate(self.operators) if isinstance(op, SourceOp))

    @property
    def sinks(self) -> tuple[int, ...]:
        return tuple(i for i, op in enumerate(self.operators) if isinstance(op, SinkOp))


def check(graph: Graph) -> None:
    """Raises a JobError unless every record that is read arrives at a sink or is filtered."""
    for number, op in enumerate(graph.operators):
        if any(not 0 <= given < number for given in op.inputs):
            raise InternalError(f"{op} is operator {number} and reads from {op.inputs}")
    check_regions(op.region for op in graph.operators)
    if not graph.sinks:
        raise JobError(f'the job "{graph.name}" has no sink; add .sink(...) to a stream of it')
    read = {given for op in graph.operators for given in op.inputs}
    for number, op in enumerate(graph.operators):
        if number not in read and not isinstance(op, SinkOp):
            advice = "; to keep one side only, use filter" if op.name == "branch" else ""
            raise JobError(f"nothing reads the stream made by {op}; add .sink(...){advice}")


def upstream(operators: Sequence[AnyOp], op: int) -> tuple[int, ...]:
    """The operator and all that it reads from, directly or not, in their order."""
    found = {op}
    for number in range(op, -1, -1):
        if number in found:
            found.update(operators[number].inputs)
    return tuple(sorted(found))


def cut_out(operators: Sequence[AnyOp], keep: Sequence[int]) -> tuple[AnyOp, ...]:
    """Only these operators, renumbered. What a kept operator reads from must be kept."""
    number = {old: new for new, old in enumerate(keep)}
    return tuple(
        replace(operators[old], inputs=tuple(number[given] for given in operators[old].inputs))
        for old in keep
    )
