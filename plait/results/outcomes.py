"""What each node of a job had at its end, and how the parts become one result.

A node reports a `NodeOutcome`; `merged` adds them up: counts are summed, dead letters sorted by
their place and cut at the failure, latencies merged by bucket, outputs put one after the other in
the order of ranks. In total order only the home node has sinks, so its outputs are the job's. The
failure that counts is the one with the smallest place: a sequential run would have met it first.
Pure; nothing here knows the graph, so that a client which only has the job's name can do it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Protocol

from plait.errors import InternalError
from plait.graph.operators import Graph, SinkOp, SourceOp
from plait.protocol.keeps import KEEP_ALL
from plait.protocol.part_use import average_cores, merge_uses
from plait.protocol.rates import merge_rates
from plait.results.result import (
    Account,
    DeadLetter,
    DegreeStep,
    KeepStep,
    Latency,
    LevelStep,
    OperatorCounts,
    Result,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from plait.protocol.part_use import PartUse
    from plait.protocol.rates import SourceReport

Place = tuple[int, int, int, int]
"""Epoch, source, row and operator of a record: the order in which a sequential run meets them."""

KEPT_LETTERS = 10_000
COUNTED = (
    "records_in",
    "records_out",
    "filtered",
    "skipped",
    "dead_lettered",
    "made",
    "copied",
    "late",
    "absorbed",
    "shed",
)
"""What the engine counts for each operator, in its order."""
SUMMED = (*(name for name in COUNTED if name != "copied"), "unfinished")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cuts:
    """How many rows of a source a node read in each epoch."""

    first_epoch: int = 0
    rows: tuple[int, ...] = ()
    stamps: tuple[int, ...] = ()
    """When it cut each, if the job uses that clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOutcome:
    """One node's part of a result."""

    rank: int
    seconds: float
    account: Account
    operators: tuple[OperatorCounts, ...]
    """Of every operator of the job, in the order of their numbers."""
    letters: tuple[tuple[Place, DeadLetter], ...] = ()
    latency: tuple[tuple[int, int], ...] = ()
    """A histogram: (upper edge in nanoseconds, how many), edges ascending, none empty."""
    latency_max_ns: int = 0
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """What each sink returned, by its label; empty on nodes without sinks."""
    cuts: Mapping[str, Cuts] = field(default_factory=dict)
    """Of each source that this node read, by its label."""
    error: BaseException | None = None
    failed_at: Place | None = None
    """The place of the record that failed; None where the error is not of a record."""
    stopped: tuple[str, ...] = ()
    """The labels of the sources that were stopped before their end."""
    stops_early: bool = False
    """Whether a sink may end the run before the sources do: records are then left over."""
    levels: tuple[LevelStep, ...] = ()
    degrees: tuple[DegreeStep, ...] = ()
    keeps: tuple[KeepStep, ...] = ()
    """Every change of what is kept, while this node was a member."""
    rates: tuple[SourceReport, ...] = ()
    """Of the sources that this node read, as they were last."""
    tasks: tuple[PartUse, ...] = ()
    """What each sub-pipeline used on this node."""
    other_cpu_s: float = 0.0
    attempt: int = 0
    """Of a job with checkpoints: the claim under which it ran."""
    left_at: int = 0
    """Of a node that left: the epoch from which on it had nothing to do."""
    restored: tuple[tuple[int, int], ...] = ()
    """Of a job with checkpoints: at which epoch each attempt began, ascending."""


Plan = tuple[int, tuple[int, ...]]
"""An epoch, and the threshold of each query from it on; none: all is kept."""


def keep_steps(graph: Graph, plans: Iterable[Plan]) -> tuple[KeepStep, ...]:
    """What each plan changes, by query."""
    labels = [op.label for op in graph.operators if isinstance(op, SinkOp)]
    before = tuple(KEEP_ALL for _ in labels)
    steps: list[KeepStep] = []
    for epoch, thresholds in plans:
        now = thresholds or tuple(KEEP_ALL for _ in labels)
        steps += [
            KeepStep(epoch=epoch, query=label, threshold=new)
            for label, old, new in zip(labels, before, now, strict=True)
            if old != new
        ]
        before = now
    return tuple(steps)


def merge_keeps(parts: Sequence[NodeOutcome]) -> tuple[KeepStep, ...]:
    """What all nodes had alike, each from the epoch at which it began."""
    steps = {step: None for part in parts for step in part.keeps}
    return tuple(sorted(steps, key=lambda step: step.epoch))


def tally(
    graph: Graph, counts: Sequence[Sequence[int]], unfinished: Mapping[int, int]
) -> tuple[Account, tuple[OperatorCounts, ...]]:
    """The account and the operators' counts from the engine's numbers for each operator, in the
    order of `COUNTED`. `unfinished`: of each operator that has any."""
    found = [
        {**dict(zip(COUNTED, numbers, strict=True)), "unfinished": unfinished.get(number, 0)}
        for number, numbers in enumerate(counts)
    ]
    operators = tuple(
        OperatorCounts(
            number=number,
            name=op.name,
            at=str(op.at),
            **{name: numbers[name] for name in SUMMED},
        )
        for number, (op, numbers) in enumerate(zip(graph.operators, found, strict=True))
    )

    def total(what: str, kind: type | None = None) -> int:
        pairs = zip(graph.operators, found, strict=True)
        return sum(numbers[what] for op, numbers in pairs if kind is None or isinstance(op, kind))

    account = Account(
        read=total("records_in", SourceOp),
        delivered=total("records_out", SinkOp),
        made=total("made"),
        copied=total("copied"),
        filtered=total("filtered"),
        skipped=total("skipped"),
        dead_lettered=total("dead_lettered"),
        late=total("late"),
        absorbed=total("absorbed"),
        shed=total("shed"),
        unfinished=total("unfinished"),
    )
    return account, operators


class StoppedEngine(Protocol):
    """An engine whose run is over."""

    def was_stopped(self, source: int) -> bool: ...


def stopped_sources(graph: Graph, engine: StoppedEngine) -> tuple[str, ...]:
    """The labels of the sources that were stopped before their end."""
    labels = [op.label for op in graph.operators if isinstance(op, SourceOp)]
    return tuple(sorted(label for i, label in enumerate(labels) if engine.was_stopped(i)))


def leave_out_repeated(outcomes: Iterable[NodeOutcome]) -> list[NodeOutcome]:
    """Without nodes that left after the checkpoint to which the job went back: what they did was
    done again, and what they did before it is in the counts of the checkpoint."""
    parts = list(outcomes)
    history = max((part.restored for part in parts), default=())

    def counts(part: NodeOutcome) -> bool:
        later = [epoch for attempt, epoch in history if attempt > part.attempt]
        return not later or part.left_at <= later[0]

    return [part for part in parts if counts(part)]


def merge_outcomes(job: str, outcomes: Iterable[NodeOutcome]) -> Result:
    """The result of the whole job, errors left out (`first_error` has them)."""
    parts = sorted(leave_out_repeated(outcomes), key=lambda part: part.rank)
    if not parts:
        raise InternalError(f'the job "{job}" has no node that tells its outcome')
    failed = [part.failed_at for part in parts if part.failed_at is not None]
    return Result(
        job=job,
        seconds=max(part.seconds for part in parts),
        account=summed_accounts([part.account for part in parts]),
        operators=summed_operators([part.operators for part in parts]),
        latency=merged_latency(parts),
        outputs=merge_outputs([part.outputs for part in parts]),
        dead_letters=merged_letters(parts, min(failed) if failed else None),
        cuts=merged_cuts(parts),
        stamps=merge_stamps(parts),
        stopped=tuple(sorted({label for part in parts for label in part.stopped})),
        levels=tuple(replace(step, node=part.rank) for part in parts for step in part.levels),
        degrees=tuple(replace(step, node=part.rank) for part in parts for step in part.degrees),
        keeps=merge_keeps(parts),
        rates=merge_rates([part.rates for part in parts]),
        tasks=average_cores(
            merge_uses(part.tasks for part in parts), max(part.seconds for part in parts)
        ),
        other_cpu_s=sum(part.other_cpu_s for part in parts),
    )


def first_error(outcomes: Iterable[NodeOutcome]) -> BaseException | None:
    """What a sequential run would have raised: the failed record with the smallest place.

    An error that is not of a record (a sink, a link) counts only if no record failed. Which of
    several records of one place came first only the node with the sinks knows; the exception that
    was the cause only the node where the record failed.
    """
    parts = [(part.error, part) for part in outcomes if part.error is not None]
    if not parts:
        return None
    parts.sort(
        key=lambda found: (
            found[1].failed_at is None,
            found[1].failed_at or (),
            not found[1].outputs,
            found[1].rank,
        )
    )
    first, at = parts[0][0], parts[0][1].failed_at
    for error, part in parts:
        if part.failed_at == at and error.__cause__ is not None and same_failure(error, first):
            return error
    return first


def same_failure(one: BaseException, other: BaseException) -> bool:
    return repr(getattr(one, "record", one)) == repr(getattr(other, "record", other))


def check_conserved(result: Result, outcomes: Iterable[NodeOutcome]) -> None:
    """The conservation law over all nodes, for a job that came to its end."""
    parts = list(outcomes)
    if result.account.difference and not any(part.stops_early for part in parts):
        raise InternalError(
            f"records were lost or doubled: {result.account}\n"
            f"  difference {result.account.difference}; please report this with the job"
        )
    for counts in result.operators:
        if counts.difference and not any(part.stops_early for part in parts):
            raise InternalError(
                f"{counts.name} at {counts.at} lost or doubled {counts.difference} records:"
                f" {counts}; please report this with the job"
            )


def summed_accounts(accounts: Sequence[Account]) -> Account:
    names = [one.name for one in fields(Account)]
    return Account(**{name: sum(getattr(one, name) for one in accounts) for name in names})


def summed_operators(parts: Sequence[tuple[OperatorCounts, ...]]) -> tuple[OperatorCounts, ...]:
    return tuple(
        replace(same[0], **{name: sum(getattr(one, name) for one in same) for name in SUMMED})
        for same in zip(*parts, strict=True)
    )


def merged_letters(parts: Sequence[NodeOutcome], end: Place | None) -> tuple[DeadLetter, ...]:
    """Those before the failure: a sequential run would not have met the others."""
    found = [pair for part in parts for pair in part.letters if end is None or pair[0] < end]
    found.sort(key=lambda pair: pair[0])
    return tuple(letter for _, letter in found[:KEPT_LETTERS])


def merged_latency(parts: Sequence[NodeOutcome]) -> Latency:
    counts: dict[int, int] = {}
    for part in parts:
        for edge, count in part.latency:
            counts[edge] = counts.get(edge, 0) + count
    most = max(part.latency_max_ns for part in parts)
    return Latency(
        p50_ms=percentile_ns(counts, most, 50.0) / 1e6,
        p99_ms=percentile_ns(counts, most, 99.0) / 1e6,
        p999_ms=percentile_ns(counts, most, 99.9) / 1e6,
        max_ms=most / 1e6,
    )


def percentile_ns(counts: Mapping[int, int], most: int, percent: float) -> int:
    """The edge that `percent` of the values do not exceed, never above the largest value."""
    rank = max(1, math.ceil(percent / 100.0 * sum(counts.values())))
    seen = 0
    for edge in sorted(counts):
        seen += counts[edge]
        if seen >= rank:
            return min(edge, most)
    return most


def merge_outputs(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    labels = dict.fromkeys(label for part in parts for label in part)
    return {
        label: join_outputs([part[label] for part in parts if label in part]) for label in labels
    }


def join_outputs(values: Sequence[Any]) -> Any:
    """One output of the outputs of several nodes: tables and lists one after the other, counts
    added; what cannot be joined stays a tuple."""
    if len(values) == 1:
        return values[0]
    if all(hasattr(value, "num_rows") and hasattr(value, "schema") for value in values):
        import pyarrow as pa

        return pa.concat_tables(values)
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return sum(values)
    if all(isinstance(value, list) for value in values):
        return [one for value in values for one in value]
    if all(value is None for value in values):
        return None
    return tuple(values)


def merged_cuts(parts: Sequence[NodeOutcome]) -> dict[str, tuple[int, ...]]:
    """The rows of each epoch over all nodes; a node that joined later begins at its epoch."""
    labels = dict.fromkeys(label for part in parts for label in part.cuts)
    found: dict[str, tuple[int, ...]] = {}
    for label in labels:
        cuts = [part.cuts[label] for part in parts if label in part.cuts]
        rows = [0] * max(one.first_epoch + len(one.rows) if one.rows else 0 for one in cuts)
        for one in cuts:
            for epoch, count in enumerate(one.rows, one.first_epoch):
                rows[epoch] += count
        found[label] = tuple(rows)
    return found


def merge_stamps(parts: Sequence[NodeOutcome]) -> dict[str, tuple[int, ...]]:
    """When each epoch was cut: at the last of its parts."""
    found: dict[str, tuple[int, ...]] = {}
    for label in dict.fromkeys(label for part in parts for label in part.cuts):
        latest: dict[int, int] = {}
        for one in (part.cuts[label] for part in parts if label in part.cuts):
            for epoch, stamp in enumerate(one.stamps, one.first_epoch):
                latest[epoch] = max(latest.get(epoch, 0), stamp)
        if latest:
            found[label] = tuple(latest.get(epoch, 0) for epoch in range(max(latest) + 1))
    return found
