"""A rescale in which something breaks at every single fact: one after the other, all of them.

The script: two nodes, a third joins and takes bins in several chunks, then one of the first two is
drained. At the k-th fact the coordinator crashes (before or after that fact is on record), or a
node is killed, or frozen and comes back. The ledger shows that no epoch of a bin is lost or
doubled. make test takes every third fact, which ones is up to the seed; make test-long all.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import pytest

from plait.coordinator.messages.requests import Drain, Rescale, Strategy, Submit
from tests.sim.simulator import SIM_POLICY, Simulator, When, spec_of

if TYPE_CHECKING:
    from plait.coordinator.machine.state import JobState

WHENS: tuple[When, ...] = ("before journal", "after journal")
POLICY = replace(SIM_POLICY, chunk_layouts=2)
STRIDE = 1 if os.environ.get("PLAIT_LONG", "") not in ("", "0") else 3
STRATEGIES: tuple[Strategy, ...] = ("fluid", "batched", "optimised", "all_at_once")


def script(sim: Simulator, strategy: Strategy) -> JobState:
    """Join and drain, asked for as soon as possible, whatever happens meanwhile."""

    def when_running(number: int, ask: Rescale | Drain) -> None:
        job = sim.state.jobs.get("job") if sim.up else None
        if job is not None and (job.over or job.phase == "ending"):
            return
        if job is None or job.phase != "running" or job.began_at is None:
            sim.after(0.05, lambda: when_running(number, ask))
            return
        sim.ask(ask, f"wish {number}")
        if number == 1:
            sim.after(0.5, lambda: when_running(2, Drain(job="job", rank=1, strategy=strategy)))

    sim.ask(Submit(spec=spec_of(nodes=2)), "submit")
    when_running(1, Rescale(job="job", nodes=3, strategy=strategy))
    sim.run(sim.over, 300.0)
    sim.judge()
    return sim.job()


def fresh(strategy: Strategy) -> Simulator:
    return Simulator(seed=STRATEGIES.index(strategy), policy=POLICY, epochs=250)


@cache
def facts_of(strategy: Strategy) -> int:
    """How many facts the undisturbed script has."""
    sim = fresh(strategy)
    job = script(sim, strategy)
    assert job.phase == "ended"
    assert job.change is not None
    assert (job.change.number, job.change.phase) == (2, "done")
    assert job.members == (0, 2)
    return sim.facts


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_coordinator_crashes_at_every_fact(seed: int, strategy: Strategy) -> None:
    for k in range(1 + seed % STRIDE, facts_of(strategy) + 1, STRIDE):
        for when in WHENS:
            sim = fresh(strategy)
            sim.crash_at[k] = when
            job = script(sim, strategy)
            assert job.phase == "ended", f"{when} {k}: {job.error}"
            assert job.change is not None
            assert job.change.phase == "done", f"{when} {k}: {job.change.reason}"


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("how", ["kill", "freeze"])
def test_a_node_is_lost_at_every_fact(seed: int, strategy: Strategy, rank: int, how: str) -> None:
    outcomes = set()
    for k in range(1 + seed % STRIDE, facts_of(strategy) + 1, STRIDE):
        sim = fresh(strategy)

        def harm(sim: Simulator = sim) -> None:
            if how == "kill":
                sim.kill(rank)
            else:
                sim.freeze(rank, 4.0)

        sim.on_fact[k] = harm
        job = script(sim, strategy)
        outcomes.add(job.phase)
        if job.phase == "failed":
            assert f"node-{rank}" in job.error, f"{k}: {job.error}"
            assert "no checkpoint" in job.error
        else:
            assert job.phase == "ended"
    # The home and the first owners are needed as soon as the job began; a joining node is not.
    assert outcomes == {"ended", "failed"}


def test_a_lost_target_falls_back_to_the_source() -> None:
    sim = fresh("fluid")
    sim.ask(Submit(spec=spec_of(nodes=2)))
    sim.run(lambda: "job" in sim.state.jobs and sim.job().phase == "running")
    before = sim.job().layout.owners
    sim.asked(Rescale(job="job", nodes=3))
    sim.run(lambda: (("job", 2) in sim.nodes) and sim.nodes["job", 2].phase == "prepared")
    sim.kill(2)
    sim.run(lambda: sim.job().changing is None)
    change = sim.job().change
    assert change is not None
    assert change.phase == "failed"
    assert "node 2 was lost" in change.reason
    assert sim.job().layout.owners == before
    sim.run(sim.over)
    sim.judge()
    assert sim.job().phase == "ended"
