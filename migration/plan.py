"""The plan of a migration: which bins move, from where to where, in which steps.

A strategy only decides how the moves are shared out over steps; every plan makes exactly the moves
between its two maps, each once. A plan can be printed before it runs.

    >>> from plait.migration.bins import BinMap
    >>> before, after = BinMap(version=0, owners=(0, 0, 0)), BinMap(version=1, owners=(0, 1, 1))
    >>> print(make_plan(before, after, "fluid", {0: 10, 1: 2_000_000, 2: 3_000_000}))
    fluid: 2 bins, 5.00 MB, 2 steps, about 10 ms
      from    to      bins    bytes
      node 0  node 1     2  5.00 MB
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, assert_never

from plait.errors import JobError
from plait.migration.batched import colours
from plait.migration.bins import BinMap, Change, changes
from plait.text.units import bytes_text, plural, seconds_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.protocol.messages import Rank

Strategy = Literal["all_at_once", "fluid", "batched", "optimised"]
STRATEGIES: tuple[Strategy, ...] = ("all_at_once", "fluid", "batched", "optimised")

STEP_BYTES = 1_000_000
"""Bins that are moved together in a fluid plan have at most so many bytes: about a millisecond of a
link's time."""
STEP_BINS = 64
"""... and are at most so many: a bin without bytes still costs a message at every operator."""
BANDWIDTH_BYTES_PER_S = 500e6
"""What a link gives to state while records flow, until it was measured: about half of what moving
bin by bin reached on one machine."""
ROUTES_SHOWN = 20
AHEAD_EPOCHS = 8
"""How long before its switch a bin of an optimised plan is copied at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move(Change):
    """One bin, from one node to another."""

    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Moves made at one epoch."""

    moves: tuple[Move, ...]

    @property
    def size_bytes(self) -> int:
        return sum(move.size_bytes for move in self.moves)

    @property
    def busiest_bytes(self) -> int:
        """The most that one node sends or receives; nodes work side by side."""
        sent: Counter[Rank] = Counter()
        received: Counter[Rank] = Counter()
        for move in self.moves:
            sent[move.source] += move.size_bytes
            received[move.target] += move.size_bytes
        return max((*sent.values(), *received.values()), default=0)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The steps from one map to another, and how fast they may follow each other."""

    strategy: Strategy
    before: BinMap
    after: BinMap
    steps: tuple[Step, ...]
    gap_epochs: int = 0
    """Epochs left free between two steps, besides those that their bytes ask for."""
    ahead_epochs: int = 0
    """Of an optimised plan: how long before its switch a bin is copied at least."""
    bandwidth_bytes_per_s: float = BANDWIDTH_BYTES_PER_S

    @cached_property
    def bins(self) -> int:
        return sum(len(step.moves) for step in self.steps)

    @cached_property
    def size_bytes(self) -> int:
        return sum(step.size_bytes for step in self.steps)

    @cached_property
    def expected_s(self) -> float:
        """From the bytes alone; gaps and short epochs come on top."""
        return sum(step.busiest_bytes for step in self.steps) / self.bandwidth_bytes_per_s

    def __str__(self) -> str:
        if not self.steps:
            return f"{self.strategy}: nothing to move"
        facts = [
            plural(self.bins, "bin"),
            bytes_text(self.size_bytes),
            plural(len(self.steps), "step"),
            f"about {seconds_text(max(self.expected_s, 0.001))}",
        ]
        if self.gap_epochs:
            facts.append(f"{plural(self.gap_epochs, 'epoch')} between steps")
        return f"{self.strategy}: {', '.join(facts)}\n{routes_text(self.steps)}"


def make_plan(
    current: BinMap,
    target: BinMap,
    strategy: Strategy,
    sizes: Mapping[int, int],
    gap_epochs: int = 0,
    *,
    step_bytes: int = STEP_BYTES,
    ahead_epochs: int = AHEAD_EPOCHS,
    bandwidth_bytes_per_s: float = BANDWIDTH_BYTES_PER_S,
) -> Plan:
    """The plan from one map to the other. `sizes` has the bytes of each bin, as far as measured;
    `step_bytes=0` makes fluid move exactly one bin a step."""
    if gap_epochs < 0 or step_bytes < 0 or bandwidth_bytes_per_s <= 0:
        raise JobError(
            "a gap and the bytes of a step must not be below zero, a bandwidth must be above: got "
            f"gap_epochs={gap_epochs}, step_bytes={step_bytes}, "
            f"bandwidth_bytes_per_s={bandwidth_bytes_per_s}"
        )
    if strategy == "optimised" and ahead_epochs < 1:
        raise JobError(f"a bin is copied at least one epoch ahead, got ahead_epochs={ahead_epochs}")
    moves = [
        Move(
            bin=one.bin,
            source=one.source,
            target=one.target,
            size_bytes=max(sizes.get(one.bin, 0), 0),
        )
        for one in changes(current, target)
    ]
    match strategy:
        case "all_at_once":
            steps = [moves] if moves else []
        case "fluid" | "optimised":
            steps = fluid(moves, sizes, step_bytes)
        case "batched":
            steps = batched(moves)
        case _:
            assert_never(strategy)
    return Plan(
        strategy=strategy,
        before=current,
        after=target,
        steps=tuple(Step(moves=tuple(step)) for step in steps),
        gap_epochs=gap_epochs,
        ahead_epochs=ahead_epochs if strategy == "optimised" else 0,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
    )


def fluid(moves: Sequence[Move], sizes: Mapping[int, int], step_bytes: int) -> list[list[Move]]:
    """Bin after bin; tiny ones together, up to `step_bytes`. A bin that was not measured may be of
    any size, so it goes alone."""
    steps: list[list[Move]] = []
    room = -1
    for move in moves:
        alone = step_bytes == 0 or move.bin not in sizes
        if alone or move.size_bytes > room or len(steps[-1]) == STEP_BINS:
            steps.append([])
            room = step_bytes
        steps[-1].append(move)
        room = -1 if alone else room - move.size_bytes
    return steps


def batched(moves: Sequence[Move]) -> list[list[Move]]:
    """The fewest steps in which every node sends at most one bin and receives at most one."""
    # Like sizes side by side: a step lasts as long as its largest bin.
    ordered = sorted(moves, key=lambda move: (-move.size_bytes, move.bin))
    steps: defaultdict[int, list[Move]] = defaultdict(list)
    for move, colour in zip(
        ordered, colours([(move.source, move.target) for move in ordered]), strict=True
    ):
        steps[colour].append(move)
    return [sorted(steps[colour], key=lambda move: move.bin) for colour in sorted(steps)]


def routes_text(steps: Sequence[Step]) -> str:
    """A small table of who sends how much to whom."""
    bins: Counter[tuple[Rank, Rank]] = Counter()
    sizes: Counter[tuple[Rank, Rank]] = Counter()
    for step in steps:
        for move in step.moves:
            bins[move.source, move.target] += 1
            sizes[move.source, move.target] += move.size_bytes
    shown = sorted(bins)[:ROUTES_SHOWN]
    rows = [("from", "to", "bins", "bytes")]
    rows += [
        (f"node {s}", f"node {t}", f"{bins[s, t]:,}", bytes_text(sizes[s, t])) for s, t in shown
    ]
    wide = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        f"  {a:<{wide[0]}}  {b:<{wide[1]}}  {c:>{wide[2]}}  {d:>{wide[3]}}" for a, b, c, d in rows
    ]
    if len(bins) > len(shown):
        lines.append(f"  ... {len(bins) - len(shown):,} more pairs of nodes")
    return "\n".join(lines)
