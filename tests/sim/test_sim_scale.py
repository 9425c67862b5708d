"""A thousand nodes and more than a hundred thousand bins: the same logic, and it stays quick.

The nodes are a lighter model: epochs go by with the clock, and a layout passes when its epoch does.
Still judged: no node hears of a layout too late, all nodes know the same layouts in the same order,
and every bin that moved was at its source.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from plait.coordinator.machine.invariants import check
from plait.coordinator.messages.requests import Drain, Rescale, Stop, Submit
from plait.coordinator.shell.manager import recover
from plait.protocol.messages import BinLoad, NodeReport
from tests.sim.nodes import Ledger, SimNode, Violation
from tests.sim.simulator import Faults, Simulator, spec_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plait.coordinator.messages.commands import StartNode
    from plait.protocol.messages import Answer, Command, Layout

SIZES = [(100, 14), pytest.param(1000, 17, marks=pytest.mark.slow)]
"""Nodes, and bits of bins."""


@dataclass(slots=True)
class LightNode(SimNode):
    """A node whose epochs follow the clock."""

    clock: Callable[[], float] = float
    epoch_s: float = 0.02
    history: dict[int, Layout] = field(default_factory=dict)
    """The layouts that all nodes together have heard of, by epoch; shared."""

    def apply(self, command: Command) -> Answer:
        self.follow_clock()
        return SimNode.apply(self, command)

    def follow_clock(self) -> None:
        if self.phase == "running" and not self.stopped:
            wall = int(self.clock() / self.epoch_s)
            self.epoch = max(self.epoch, min(wall, self.end, *self.fences.values(), 1 << 60))
            self.done = self.epoch
            while len(self.layouts) > 1 and self.layouts[1].epoch <= self.epoch:
                del self.layouts[0]
            if self.rank not in self.layouts[0].members:
                self.phase = "left"
            elif self.epoch >= self.end:
                self.phase = "ended"

    def take(self, layouts: tuple[Layout, ...], stop_at: int | None) -> None:
        SimNode.take(self, layouts, stop_at)
        for layout in layouts:
            known = self.history.setdefault(layout.epoch, layout)
            if known is not layout and known != layout:
                raise Violation(f"node {self.rank} knows another layout at {layout.epoch}")

    def turn(self) -> None:
        return

    def report(self, loads: bool) -> NodeReport:
        self.follow_clock()
        weights: tuple[BinLoad, ...] = ()
        if loads:
            weights = tuple(
                BinLoad(bin=bin, records=100 + bin % 13, size_bytes=10_000)
                for bin in owned_bins(self.layouts[-1].owners).get(self.rank, ())
            )
        return NodeReport(
            rank=self.rank,
            phase=self.phase,
            epoch=self.epoch,
            delivered_epoch=self.epoch - 1,
            ready=max((number for number, at in self.expects if at <= self.epoch), default=0),
            loads=weights,
        )


CACHE: dict[int, tuple[object, dict[int, list[int]]]] = {}


def owned_bins(owners: Sequence[int]) -> dict[int, list[int]]:
    """The bins of every node; counted once for a map, not once for a node."""
    known = CACHE.get(id(owners))
    if known is None or known[0] is not owners:
        found: dict[int, list[int]] = {}
        for bin, owner in enumerate(owners):
            found.setdefault(owner, []).append(bin)
        CACHE.clear()
        known = CACHE[id(owners)] = (owners, found)
    return known[1]


@dataclass(slots=True)
class BigSimulator(Simulator):
    history: dict[int, Layout] = field(default_factory=dict)

    def make(self, command: StartNode) -> SimNode:
        ledger = self.ledgers.setdefault(
            command.job, Ledger(bins=command.spec.bins, last_epoch=self.epochs)
        )
        return LightNode(
            rank=command.rank,
            ledger=ledger,
            ship=lambda s, t, b, e: None,
            margin=lambda: self.random.randint(1, 6),
            clock=lambda: self.now,
            history=self.history,
        )

    def live(self, node: SimNode) -> None:
        return


@pytest.mark.parametrize(("nodes", "bin_bits"), SIZES)
def test_many_nodes_and_bins(seed: int, nodes: int, bin_bits: int) -> None:
    sim = BigSimulator(
        seed=seed,
        faults=Faults(loss=0.001, twice=0.01),
        epochs=1 << 40,
        hosts=nodes // 4,
        checked=False,
        snapshot_ratio=0.0,
    )
    sim.ask(Submit(spec=spec_of(nodes=nodes, bin_bits=bin_bits, seed=seed)))
    sim.run(lambda: "job" in sim.state.jobs and sim.job().phase == "running")
    check(sim.state)
    each = (1 << bin_bits) // nodes
    assert spread_of(sim) == (nodes, each, each + 1)

    reply = sim.asked(Rescale(job="job", nodes=nodes + nodes // 10, strategy="batched"))
    assert "will join" in str(reply)
    sim.run(lambda: sim.job().phase == "running", 300.0)
    check(sim.state)
    assert_done(sim, 1)
    count, least, most = spread_of(sim)
    assert count == nodes + nodes // 10
    assert most - least < 30

    sim.asked(Drain(job="job", rank=7, strategy="fluid"))
    sim.run(lambda: sim.job().phase == "running", 300.0)
    check(sim.state)
    assert_done(sim, 2)
    assert 7 not in sim.job().members
    assert 7 not in set(sim.job().layout.owners)

    again, _ = recover(sim.journal, sim.policy)
    assert again.jobs["job"].layouts == sim.job().layouts
    assert again.jobs["job"].nodes == sim.job().nodes

    sim.asked(Stop(job="job"))
    sim.run(sim.over, 300.0)
    assert sim.job().phase == "ended"


def spread_of(sim: Simulator) -> tuple[int, int, int]:
    counts = Counter(sim.job().layout.owners)
    return len(counts), min(counts.values()), max(counts.values())


def assert_done(sim: Simulator, number: int) -> None:
    change = sim.job().change
    assert change is not None
    assert (change.number, change.phase) == (number, "done"), change.reason
