"""Moves bins between the nodes of a running benchmark, and reads the latencies meanwhile.

`migrate` carries out a plan as the coordinator does: memory is made ready first, then the bins move
chunk by chunk, a round for each, the next when all nodes have passed the last. Latencies are read
as they come in; a window is the difference of two readings, so nothing has to stop for it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.support.common import CheckFailed
from benchmarks.support.nodes import PATIENCE_S, Histogram, Nodes, Reading
from plait.coordinator.messages.spec import Policy
from plait.migration import machine
from plait.migration.bins import BinMap
from plait.migration.plan import Strategy, make_plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

POLL_S = 0.002
CALM_MS = 20.0
"""A window whose worst latency is below this has no backlog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A migration that was made."""

    asked: float
    """When the nodes were told what will move; it began when memory was ready for it."""
    began: float
    ended: float
    bins: int
    size_bytes: int
    """As the nodes counted them in: copies and differences, too."""
    rounds: int
    agreed_s: float
    """The longest round, from the promise to the last answer to the commit."""

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    @property
    def ready_s(self) -> float:
        return self.began - self.asked


def migrate(
    nodes: Nodes,
    owners: Sequence[int],
    strategy: Strategy,
    sizes: Mapping[int, int],
    epochs_per_s: float,
) -> Moved:
    """Gives every bin to its owner in `owners`; returns when all nodes have passed."""
    now = time.monotonic
    before = sum(report.moved_bytes for report in nodes.reports())
    plan = make_plan(
        BinMap(version=0, owners=tuple(nodes.layout.owners)),
        BinMap(version=1, owners=tuple(owners)),
        strategy,
        sizes,
    )
    policy = Policy()
    asked_at = now()
    nodes.expect(plan)
    while not nodes.ready() and now() < asked_at + policy.ready_s:
        time.sleep(POLL_S)
    began = now()
    rounds = 0
    move = machine.begin(plan, began)
    agreed_s = 0.0
    while (chunk := machine.next_chunk(move, epochs_per_s, policy.chunk_s)) is not None:
        chunk = replace(chunk, epochs=chunk.epochs[: policy.chunk_layouts])
        move = machine.issue_chunk(move, chunk)
        asked = now()
        layouts = nodes.round(partial(machine.chunk_layouts, move, chunk, nodes.layout))
        agreed_s = max(agreed_s, now() - asked)
        move = machine.commit_chunk(move, layouts[-1].epoch)
        rounds += 1
        deadline = now() + PATIENCE_S
        while nodes.passed() < layouts[-1].epoch:
            if now() > deadline:
                raise CheckFailed(f"{strategy}: a chunk is never passed: {nodes.reports()}")
            time.sleep(POLL_S)
        move = machine.finish_chunk(move, now())
    ended = now()
    after = sum(report.moved_bytes for report in nodes.reports())
    return Moved(
        asked=asked_at,
        began=began,
        ended=ended,
        bins=plan.bins,
        size_bytes=after - before,
        rounds=rounds,
        agreed_s=agreed_s,
    )


def joined(parts: Sequence[Sequence[Reading]]) -> list[Reading]:
    """The readings of all nodes as one: at each reading of the first, what the others last had."""
    first, *others = [part for part in parts if part]
    places = [0] * len(others)
    found: list[Reading] = []
    for reading in first:
        counts = dict(reading.counts)
        for i, other in enumerate(others):
            while places[i] + 1 < len(other) and other[places[i] + 1].at <= reading.at:
                places[i] += 1
            for edge, count in other[places[i]].counts.items():
                counts[edge] = counts.get(edge, 0) + count
        found.append(Reading(at=reading.at, counts=counts))
    return found


def between(before: Reading, after: Reading) -> Histogram:
    """What was delivered between two readings."""
    return {
        edge: count - before.counts.get(edge, 0)
        for edge, count in after.counts.items()
        if count > before.counts.get(edge, 0)
    }


def percentile_ms(counts: Histogram, percent: float) -> float:
    from plait.results.outcomes import percentile_ns

    return percentile_ns(counts, max(counts), percent) / 1e6 if counts else 0.0


def max_ms(counts: Histogram) -> float:
    return max(counts, default=0) / 1e6


def windows(readings: Sequence[Reading], seconds: float, zero: float) -> list[dict[str, float]]:
    """p50, p99 and the maximum of every `seconds`, by the time from `zero` on."""
    found: list[dict[str, float]] = []
    last = readings[0]
    for reading in readings[1:]:
        if reading.at - last.at < seconds:
            continue
        counts = between(last, reading)
        found.append(
            {
                "at_s": round(reading.at - zero, 3),
                "p50_ms": round(percentile_ms(counts, 50.0), 3),
                "p99_ms": round(percentile_ms(counts, 99.0), 3),
                "max_ms": round(max_ms(counts), 3),
                "records": sum(counts.values()),
            }
        )
        last = reading
    return found


def watched(nodes: Nodes, seconds: float) -> list[Reading]:
    """The readings of so many seconds."""
    nodes.all("watch")
    time.sleep(seconds)
    return joined(nodes.all("watched"))


def settle(nodes: Nodes, patience_s: float) -> bool:
    """Waits until records are delivered without backlog; False: it did not come to that."""
    deadline = time.monotonic() + patience_s
    while True:
        readings = watched(nodes, 0.25)
        counts = between(readings[0], readings[-1])
        if counts and max_ms(counts) < CALM_MS:
            return True
        if time.monotonic() > deadline:
            return False


def sizes_of(nodes: Nodes) -> dict[int, int]:
    """The bytes of each bin; keys are spread evenly here, so all are alike."""
    reports: list[Any] = nodes.reports()
    bins = len(nodes.layout.owners)
    each = sum(report.state_bytes for report in reports) // bins
    return dict.fromkeys(range(bins), each)
