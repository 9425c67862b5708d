"""What must not hurt a job: requests without meaning, a journal that cannot be written for a
moment, a bug in the turn of another job, nodes that are silent and alive, joiners that die.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from plait.coordinator.journal import store
from plait.coordinator.journal.codec import encode
from plait.coordinator.machine.invariants import check
from plait.coordinator.messages.request_checks import objection_to
from plait.coordinator.messages.requests import (
    Accepted,
    Cancel,
    Drain,
    Rejected,
    Rescale,
    Stop,
    Submit,
)
from plait.coordinator.shell.manager import calm
from tests.sim.histories import KINDS, nonsense
from tests.sim.simulator import SIM_POLICY, Faults, Simulator, spec_of

if TYPE_CHECKING:
    from plait.coordinator.machine.state import JobState

RIGHT: dict[str, Any] = {
    "spec": spec_of("other"),
    "replace": False,
    "job": "job",
    "nodes": 3,
    "away": (1,),
    "strategy": "fluid",
    "gap_epochs": 0,
    "throttle_bytes_per_s": None,
    "balance": True,
    "dry_run": False,
    "rank": 1,
    "finish": "flush",
    "name": "evening",
    "bytes_per_s": 1e6,
    "query": "out",
    "ratio": 0.5,
}
"""A value for every field of every request, with nothing wrong with it."""


def running(sim: Simulator, *, nodes: int = 2, splits: bool = False) -> None:
    sim.ask(Submit(spec=spec_of(nodes=nodes, splits=splits)))
    sim.run(lambda: "job" in sim.state.jobs and sim.job().phase == "running")


def ends_well(sim: Simulator) -> JobState:
    sim.run(sim.over, 300.0)
    sim.judge()
    assert sim.job().phase == "ended", sim.job().error
    return sim.job()


@pytest.mark.parametrize("kind", KINDS)
def test_requests_without_meaning_are_refused_and_hurt_nobody(kind: type[Any], seed: int) -> None:
    """Every kind of request there is, a hundred times; answers come within a second."""
    draw = Random(seed)
    sim = Simulator(seed=seed, epochs=100_000)
    running(sim)
    before = sim.job()
    for _ in range(100):
        request = nonsense(draw, kind)
        turns, at = sim.turns, sim.now
        reply = sim.asked(request)
        assert isinstance(reply, Rejected), f"{request}: {reply}"
        assert reply.reason
        assert sim.turns - turns < 100, "it was answered, but late"
        assert sim.now - at < 1.0
    job = sim.job()
    assert (job.phase, job.layouts, job.nodes) == ("running", before.layouts, before.nodes)
    assert set(sim.state.jobs) == {"job"}
    sim.asked(Rescale(job="job", nodes=3))
    sim.run(lambda: sim.job().phase == "running" and len(sim.job().members) == 3)
    sim.asked(Stop(job="job"))
    ends_well(sim)


def test_requests_of_all_kinds_one_after_the_other(seed: int) -> None:
    draw = Random(seed)
    sim = Simulator(seed=seed, epochs=100_000)
    running(sim)
    for _ in range(500):
        assert isinstance(sim.asked(nonsense(draw)), Rejected)
    sim.asked(Stop(job="job"))
    ends_well(sim)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_request_is_checked(kind: type[Any]) -> None:
    """None is only unknown to the check, and in none a field goes unchecked."""
    names = [field.name for field in fields(kind)]
    wrong = kind(**dict.fromkeys(names, object()))
    assert "no such request" not in objection_to(wrong)
    for name in names:
        given = {other: RIGHT[other] for other in names} | {name: object()}
        assert "<object objec" in objection_to(kind(**given)), name
    assert objection_to(kind(**{name: RIGHT[name] for name in names})) == ""


def test_a_strategy_that_does_not_exist_is_refused_in_words() -> None:
    sim = Simulator(seed=1)
    running(sim)
    for request in (
        Rescale(job="job", nodes=3, strategy="flud"),  # type: ignore[arg-type]
        Rescale(job="job", nodes=3, strategy="flud", dry_run=True),  # type: ignore[arg-type]
        Drain(job="job", rank=1, strategy="flud"),  # type: ignore[arg-type]
    ):
        reply = sim.asked(request)
        assert isinstance(reply, Rejected)
        assert 'strategy is \'flud\'; it must be one of "all_at_once", "fluid"' in reply.reason
    ends_well(sim)


@pytest.mark.parametrize("ratio", [0.1, 0.5])
def test_writes_that_fail_cost_time_and_nothing_else(seed: int, ratio: float) -> None:
    for number in range(20):
        sim = Simulator(seed=seed + number, faults=Faults(unwritten=ratio), epochs=400)
        sim.ask(Submit(spec=spec_of(nodes=2)), "submit")
        insist(sim, Rescale(job="job", nodes=3))
        sim.after(2.0, partial(sim.crash, 0.3))
        ends_well(sim)


def insist(sim: Simulator, request: Rescale) -> None:
    """Asks again, as something new, until it is accepted."""

    def again(number: int) -> None:
        if "job" not in sim.state.jobs and isinstance(sim.replies.get("submit"), Rejected):
            del sim.replies["submit"]
            sim.ask(Submit(spec=spec_of(nodes=2)), "submit")
        job = sim.state.jobs.get("job")
        if job is not None and (job.over or job.change is not None):
            return
        if job is not None and job.phase == "running":
            sim.ask(request, f"wish {number}")
        sim.after(0.3, lambda: again(number + 1))

    again(0)


def test_a_request_that_cannot_be_written_is_refused_and_changes_nothing() -> None:
    sim = Simulator(seed=3)
    running(sim)
    sim.faults = Faults(unwritten=1.0)
    before, facts = sim.job(), sim.facts
    reply = sim.asked(Rescale(job="job", nodes=3))
    assert isinstance(reply, Rejected)
    assert "cannot write its journal (OSError: no space left on device)" in reply.reason
    # Longer than nodes may be silent: what they report counts all the same.
    end = sim.now + 3 * SIM_POLICY.silence_s
    sim.run(lambda: sim.now > end)
    assert sim.facts == facts
    assert (sim.job().phase, sim.job().wait) == ("running", before.wait)
    sim.faults = Faults()
    ends_well(sim)


def test_a_bug_in_the_turn_of_a_job_is_the_end_of_that_job_alone() -> None:
    sim = Simulator(seed=4)
    running(sim)
    sim.asked(Submit(spec=spec_of("other")))
    sim.run(lambda: sim.job("other").phase == "running")
    sim.breaks.add("other")
    sim.kill(1, "other")
    sim.run(lambda: sim.over("other"))
    assert sim.job("other").phase == "failed"
    assert "broken on purpose" in sim.job("other").error
    ends_well(sim)


@pytest.mark.parametrize("splits", [False, True])
def test_nodes_that_are_silent_and_alive_are_not_lost(seed: int, splits: bool) -> None:
    """Stopped for less than the silence, or busy for much longer: in every part of a rescale."""
    for rank in (0, 1, 2):
        for number in range(12):
            sim = Simulator(seed=seed + number, epochs=300)
            running(sim, splits=splits)
            sim.ask(Rescale(job="job", nodes=3))
            at = sim.now + 0.05 * number
            sim.run(lambda sim=sim, at=at: sim.now >= at)  # type: ignore[misc]
            if number % 2:
                sim.freeze(rank, 0.75 * SIM_POLICY.silence_s)
            else:
                sim.occupy(rank, 5 * SIM_POLICY.silence_s)
            assert ends_well(sim).nodes[rank].phase == "member"


def facts_until_it_owns(splits: bool) -> tuple[int, int]:
    """The facts of a rescale from its request until the new node is about to own bins."""
    sim = Simulator(seed=5, epochs=2000)
    running(sim, splits=splits)
    first = sim.facts
    sim.asked(Rescale(job="job", nodes=3))
    sim.run(lambda: 2 in sim.job().layout.owners)
    return first, sim.facts


@pytest.mark.parametrize("splits", [False, True])
def test_a_joiner_that_dies_before_it_owns_anything_ends_nothing(splits: bool) -> None:
    first, last = facts_until_it_owns(splits)
    joined = 0
    for number in range(first, last):
        sim = Simulator(seed=5, epochs=600)
        running(sim, splits=splits)
        sim.on_fact[number] = partial(sim.kill, 2)
        sim.asked(Rescale(job="job", nodes=3))
        job = ends_well(sim)
        joined += job.nodes[2].phase == "member"
    assert joined < last - first


def test_the_state_of_jobs_that_are_over_is_bounded() -> None:
    """Forty names, one after the other, each used once."""
    policy = replace(SIM_POLICY, keep_s=1.0, forgotten_s=1.0, sweep_s=1.0, expired=2, former=3)
    sim = Simulator(seed=6, policy=policy, checked=False)
    sizes = []
    for number in range(40):
        name = f"job-{number:03}"
        sim.asked(Submit(spec=spec_of(name, nodes=1)))
        sim.run(lambda name=name: sim.job(name).phase == "running")  # type: ignore[misc]
        sim.asked(Cancel(job=name))
        sim.run(lambda name=name: sim.over(name))  # type: ignore[misc]
        end = sim.now + 3.0
        sim.run(lambda end=end: sim.now > end)  # type: ignore[misc]
        sizes.append(len(encode(replace(sim.state, replies={}))))
    assert len(sim.state.jobs) == 3
    assert len(sim.state.former) == 3
    assert max(sizes[10:]) < 1.1 * sizes[10]
    assert all(node.stopped for node in sim.nodes.values())


def test_five_hundred_rescales_leave_no_trace(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state, its snapshot and the journal are as large after many rescales as after a few. The
    coordinator is restarted now and then; all nodes that left are known by their ranks."""
    monkeypatch.setattr(store, "SNAPSHOT_BYTES", 50_000)
    policy = replace(SIM_POLICY, gone=4, replies=16)
    sim = Simulator(
        seed=seed, policy=policy, epochs=1_000_000, checked=False, snapshot_ratio=0.0, hosts=1
    )
    sim.ask(Submit(spec=spec_of(nodes=1, bin_bits=1)))
    sim.run(lambda: "job" in sim.state.jobs and sim.job().phase == "running")
    first, states, journals = min(sim.job().members), [], []
    for number in range(500):
        size = 2 - number % 2
        assert isinstance(sim.asked(Rescale(job="job", nodes=size)), Accepted)
        sim.run(lambda size=size: is_settled(sim, size), 60.0)  # type: ignore[misc]
        if number % 50 == 49:
            sim.crash(0.1)
            sim.run(lambda: sim.up and is_settled(sim, size), 60.0)  # noqa: B023
        states.append(len(encode(sim.state)))
        journals.append(len(sim.journal.saved) + len(sim.journal.facts))
        if sim.journal.wants_snapshot(calm(sim.state)):
            sim.journal.snapshot(sim.state)
    check(sim.state)
    job = sim.job()
    assert len(job.nodes) <= 2 + policy.gone
    assert set(job.watch.reports) | set(job.watch.heard) <= set(job.nodes)
    assert not any(pair.report.loads or pair.before.loads for pair in job.watch.reports.values())
    assert sorted(job.all_ranks) == list(range(first, job.next_rank))
    assert len(job.departed) == 1
    assert max(states[50:]) < 1.1 * max(states[:50])
    assert max(journals) < 2 * max(journals[:100])
    assert all(node.stopped for (_, rank), node in sim.nodes.items() if rank not in job.members)
    sim.asked(Stop(job="job"))
    ends_well(sim)


def is_settled(sim: Simulator, size: int) -> bool:
    job = sim.job()
    return job.phase == "running" and len(job.members) == size and job.changing is None
