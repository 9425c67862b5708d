"""Where the records of a job change nodes, and what keeps them in order on the way.

Pure: a pipeline in, its exchanges out. In front of every keyed or stateful stage the records
go to the owner of their bin; in front of the sinks of a job in total order, and of operators with a
loop of their own, they go to the home node. A record's place is its tag, and where several records
have the same tag (a flat_map, a union) and may come to different nodes, their order among each
other rides along in `sub` bits, of which there are 64. What an operator that knows time makes comes
together at one node, which puts it in order and numbers it: from there on a row's `sub` is its
index in the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from plait.errors import JobError
from plait.graph.operators import AggregateOp, CallOp, FoldOp, StatefulOp, TimedOp
from plait.graph.stages import has_loop

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.graph.stages import Pipeline, PipelineStage

REPEAT_BITS = 16
"""A record may become so many (2 ** 16) between two exchanges."""

INDEX_BITS = 26
"""An epoch may have so many rows (2 ** 26) behind an operator that knows time."""

INDEXED = -1
"""As the width of the subs that tell rows of a unit apart: they do so alone, whatever the tags."""

PLAIN_BITS = 4
"""Tags and subs so wide tell rows of a unit apart together; others are indexed first."""

EPOCH_S = 0.002
"""How long an epoch of sources with a rate is: what a record waits at most for the others of its
epoch."""

By = Literal["key", "bin", "home", "pinned"]
"""pinned: to the home node, and the others go on with nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """An exchange in front of a stage."""

    channel: int
    by: By
    repeats: bool
    """Rows of one tag are numbered before they part."""
    unique: bool
    """No two rows that arrive have the same tag."""
    tags: bool = True
    """Somebody behind looks at tags: to merge, or to name a record."""
    index: bool = False
    """The rows are numbered where they arrive."""


@dataclass(frozen=True, slots=True)
class ExchangePlan:
    """The exchanges of a job, by the stage behind each; and the width of subs at each union."""

    before: dict[int, Exchange] = field(default_factory=dict)
    union_bits: dict[int, int] = field(default_factory=dict)
    """Of a union whose inputs may hold the same record: how wide their subs are."""
    first: dict[int, Exchange] = field(default_factory=dict)
    """In front of that: an exchange by which rows are indexed."""
    behind: dict[int, Exchange] = field(default_factory=dict)
    """Behind a stage that knows time: where its rows are put in order."""
    place_bits: dict[int, int] = field(default_factory=dict)
    """Of a stage that knows time: the width of its rows' subs, or INDEXED."""

    @property
    def count(self) -> int:
        return len(self.before) + len(self.first) + len(self.behind)


def plan_exchanges(pipeline: Pipeline, total: bool) -> ExchangePlan:
    """The exchanges of `pipeline`; `total`: its sinks are on one node."""
    made = ExchangePlan()
    repeats: list[bool] = []
    bits: list[int] = []
    exchanged: list[bool] = []
    indexed: list[bool] = []
    for number, stage in enumerate(pipeline.stages):
        before = any(exchanged[i] for i in stage.inputs)
        repeated = any(repeats[i] for i in stage.inputs)
        width = max((bits[i] for i in stage.inputs), default=0)
        index = bool(stage.inputs) and all(indexed[i] for i in stage.inputs)
        if stage.kind in ("timed", "process"):
            by = by_of(pipeline, stage)
            one: By = "pinned" if by == "pinned" else "bin"
            if repeated or (width > PLAIN_BITS and not index):
                made.first[number] = Exchange(
                    channel=made.count, by=one, repeats=False, unique=False, index=True
                )
                repeated, index, width = False, True, INDEX_BITS
            made.place_bits[number] = INDEXED if index else width
            made.before[number] = Exchange(
                channel=made.count, by=by, repeats=False, unique=width == 0
            )
            if total or not ends_behind(pipeline, number):
                made.behind[number] = Exchange(
                    channel=made.count, by=one, repeats=False, unique=False, index=True
                )
            repeated, index, width = False, True, INDEX_BITS
        elif stage.kind in ("keyed", "state") or (stage.kind == "sink" and total):
            by = by_of(pipeline, stage)
            made.before[number] = Exchange(
                channel=made.count,
                by=by,
                repeats=repeated and by == "key",
                unique=not repeated and width == 0,
                tags=before or repeated or total or not ends_behind(pipeline, number),
            )
            if repeated and by == "key":
                repeated, width, index = False, width + REPEAT_BITS, False
        elif stage.kind == "union" and share_sources(pipeline, stage):
            made.union_bits[number] = width
            width += (len(stage.inputs) - 1).bit_length()
            index = False
        elif stage.kind == "python":
            repeated = repeated or any(multiplies(pipeline, op) for op in stage.operators)
        if width > 64:
            first = pipeline.graph.operators[stage.operators[0]]
            raise JobError(
                f"{first}: too many flat_maps and unions one behind the "
                "other to keep the order over several nodes; run it with plait.run, or put fewer "
                "of them between keyed operators"
            )
        repeats.append(repeated)
        bits.append(width)
        exchanged.append(before or number in made.before)
        indexed.append(index)
    return made


def paced_rows(rates: Mapping[int, float], epoch_records: int) -> dict[int, float]:
    """Rows in an epoch of each source with a rate, by source: epochs of the same duration for all,
    with at least a row and at most `epoch_records` of the fastest."""
    fastest = max(rates.values(), default=0.0)
    if fastest <= 0.0:
        return {}
    epoch_s = min(epoch_records / fastest, max(EPOCH_S, 1.0 / fastest))
    return {source: rate * epoch_s for source, rate in rates.items() if rate > 0.0}


def by_of(pipeline: Pipeline, stage: PipelineStage) -> By:
    if stage.kind == "sink":
        return "home"
    keyed = (AggregateOp, FoldOp, StatefulOp, TimedOp)
    op = next(n for i in stage.operators if isinstance(n := pipeline.graph.operators[i], keyed))
    if has_loop(op):
        return "pinned"
    return "key" if op.keys else "bin"


def ends_behind(pipeline: Pipeline, number: int) -> bool:
    """Whether the state is the stage's last operator and only sinks read from it."""
    stage = pipeline.stages[number]
    users = [other for other in pipeline.stages if number in other.inputs]
    last = isinstance(pipeline.graph.operators[stage.last], AggregateOp | TimedOp)
    return last and all(other.kind == "sink" for other in users)


def multiplies(pipeline: Pipeline, number: int) -> bool:
    """Whether one record may become several."""
    op = pipeline.graph.operators[number]
    return isinstance(op, CallOp) and op.mode in ("flat_map", "batches")


def share_sources(pipeline: Pipeline, stage: PipelineStage) -> bool:
    """Whether a record can reach the union by two inputs."""
    carried = [set(pipeline.sources_of(i)) for i in stage.inputs]
    return sum(len(sources) for sources in carried) > len(set().union(*carried))
