"""What an engine and its stages are made from: one plain structure for each, read by `_engine`.

The fields are those of the structures in `engine/stage_specs.hpp`, in Python's words. A spec holds
what its stage needs and nothing of the stages around it, so stages can be added in any order and
then connected by their numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plait.model.schema import Schema, Type
    from plait.model.settings import Queue, Threading
    from plait.node_runtime.native._batch import NativeBatch
    from plait.node_runtime.native._cluster import NativeCluster
    from plait.node_runtime.native._kernels import NativeProgram
    from plait.node_runtime.native._outside import NativeTray
    from plait.node_runtime.native._pool import NativeLanes, NativeWay
    from plait.node_runtime.native._timed import NativeTimedPlan

KeyColumns = list[tuple[int, "Type"]]
"""Column and type of each key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    operators: int
    """How many operators are counted."""
    sources: int
    workers: int
    scheduler: str
    scheduler_seed: int
    slice_ns: float
    queue_batches: int
    queue_records: int
    queue_bytes: int
    locked_reorder: bool
    cluster: NativeCluster | None = None
    """The links of this node, if the job runs on several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterSpec:
    op: int
    on_error: str
    program: NativeProgram


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSpec:
    op: int
    on_error: str
    items: Sequence[NativeProgram | int]
    """A program, or the number of an input column that is passed on as it is."""
    hidden: bool = False
    """Its rows are not counted: it prepares those of the operator after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTimeSpec:
    """Names the event time of the rows that pass."""

    op: int
    on_error: str
    time: NativeProgram | int
    """A program, or the number of an input column."""
    origin: int
    """Its number among the origins of time: behind the sources, in the order of the operators."""
    read: bool
    """Whether an operator goes by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceTimeSpec:
    """The event time of a source that the order of several sources goes by."""

    time: NativeProgram | int
    """A program, or the number of a column."""
    computed: bool
    """Whether an expression names it: some of its rows may be without a time."""
    max_jump_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSpec:
    """A user's function: `function(batch) -> (out, origin or None, [(row, exception)])`."""

    op: int
    on_error: str
    function: Callable[[NativeBatch], Any]
    schema: Schema
    whole: bool = False
    """It takes batches, not rows: what fails is a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NanKeySpec:
    """Before a keyed operator: counts its rows, and takes out those with a NaN in a key or an event
    time that is too far off."""

    op: int
    on_error: str
    float_keys: Sequence[int]
    times: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShedSpec:
    """Drops the rows that are in none of the samples: key columns (none: by row), and queries."""

    op: int
    seed: int
    samples: Sequence[tuple[KeyColumns, Sequence[int]]]
    ratio: bool = False
    """It adds the share that is kept as one more column."""


RowOperatorSpec = FilterSpec | ProjectSpec | EventTimeSpec | CallSpec | NanKeySpec | ShedSpec
"""What runs on the rows of a batch, inside a stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpec:
    """What every stage has."""

    name: str
    threading: Threading = "dynamic"
    region: int = 0
    """Stages of one manual region share a thread."""
    ordered: bool = True
    """Its batches leave in the order in which they came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelStageSpec:
    stage: StageSpec
    operators: Sequence[RowOperatorSpec]
    python: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TrayStageSpec:
    """One operator whose batches wait in the tray for those who work on them."""

    stage: StageSpec
    op: int
    on_error: str
    schema: Schema
    tray: NativeTray
    in_flight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStageSpec:
    """Functions in worker processes, or here until the pool is used."""

    stage: StageSpec
    calls: Sequence[CallSpec]
    way: NativeWay


@dataclass(frozen=True, slots=True, kw_only=True)
class StateErrorsSpec:
    """What becomes of rows that do not fit a sum."""

    on_error: str
    record: Sequence[int] = ()
    """The columns of the rows that reach the state which are the record as the operator got it;
    none: the record is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedStageSpec:
    """A running aggregate, and the row operators before and after it."""

    stage: StageSpec
    op: int
    keys: KeyColumns
    aggregates: list[tuple[str, int, Type, bool]]
    """Kind, column or -1, type, whether it may be null."""
    bin_bits: int
    lane_bits: int
    queue: Queue
    errors: StateErrorsSpec
    before: Sequence[RowOperatorSpec] = ()
    after: Sequence[RowOperatorSpec] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedStageSpec:
    """An event-time operator, and the row operators before and after it."""

    stage: StageSpec
    op: int
    plan: NativeTimedPlan
    queue: Queue
    errors: StateErrorsSpec
    before: Sequence[RowOperatorSpec] = ()
    after: Sequence[RowOperatorSpec] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLanesSpec:
    """Where state goes when it leaves this process."""

    lanes: NativeLanes
    keys: KeyColumns
    bin_bits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StateStageSpec:
    """A fold or a state machine: `call.function` holds the state, and has its bins."""

    stage: StageSpec
    call: CallSpec
    keyless: bool
    pool: PoolLanesSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStageSpec:
    """A process with timers: `state` is called with every unit, and has its bins."""

    stage: StageSpec
    op: int
    on_error: str
    plan: NativeTimedPlan
    """Only what it says of time and order counts."""
    state: Any
    schema: Schema
    keyless: bool
    pool: PoolLanesSpec | None = None
    pinned: bool = False
    """An operator with its own loop, which stays where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteStageSpec:
    """The sending side of an exchange: by "key", to the node of the one "bin" of the operator, or
    to the "home" node, which has the only stage after it unless `by` is "pinned"."""

    stage: StageSpec
    channel: int
    by: str
    op: int
    home: int
    keys: KeyColumns
    bin_bits: int
    repeats: bool
    tags: bool
    operators: Sequence[RowOperatorSpec] = ()
    """They run before the rows go to their nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherStageSpec:
    """The receiving side of an exchange."""

    stage: StageSpec
    channel: int
    op: int
    sources: Sequence[int]
    unique: bool
    tags: bool
    index: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UnionStageSpec:
    stage: StageSpec
    op: int
    carries: Sequence[Sequence[int]]
    """Of each input, the sources that reach it."""
    sub_bits: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkStageSpec:
    """Rows go to `write`, stay in memory (`keep`), or are let go."""

    stage: StageSpec
    op: int
    write: Callable[[NativeBatch], None] | None = None
    mark: Callable[[int], None] | None = None
    """Called at every mark, between two batches, with its boundary; beside a `write` only."""
    keep: bool = False
    limit: int = -1
    """Rows after which the run ends; -1: none."""
    last_source: int = -1
    """Of a sink that commits between marks: the last of the sources that reach it."""
    delivered_before: int = 0
    """What is in epochs before this one is delivered already, and not written again."""


WithBadRows = tuple["NativeBatch", "Sequence[int]", "Sequence[str]", "NativeBatch"]
"""Rows that were read, and of those that could not be: their numbers (among all of the poll,
ascending), what was wrong, and what they were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStageSpec:
    stage: StageSpec
    op: int
    source: int
    """Its number among the sources."""
    schema: Schema
    epoch_records: int
    limit: int = -1
    """Rows after which it ends; -1: none."""
    on_error: str = "fail"
    """What becomes of rows that could not be read."""
