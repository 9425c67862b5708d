"""The simulator tested: bugs put in on purpose are found. If not, its silence means nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from plait.coordinator.machine import advance, observations
from plait.coordinator.messages.requests import Rescale, Submit
from plait.errors import InternalError
from tests.sim.nodes import Violation
from tests.sim.simulator import Faults, Simulator, spec_of

if TYPE_CHECKING:
    import pytest

    from plait.coordinator.machine.observations import ObserveResult
    from plait.coordinator.machine.state import JobState, State
    from plait.coordinator.messages.events import Answered, Fact, Observation

FOUND = (Violation, InternalError)
BAD_NETWORK = Faults(loss=0.02, twice=0.3, slow=0.1)


def life(seed: int, *, once: bool = True, kill: bool = False) -> None:
    """A job that joins a node and gives it bins; the last node may be frozen on the way."""
    sim = Simulator(seed=seed, faults=BAD_NETWORK, epochs=200, once=once)
    sim.ask(Submit(spec=spec_of(nodes=3)))
    sim.run(lambda: "job" in sim.state.jobs and sim.job().phase == "running")
    sim.ask(Rescale(job="job", nodes=4))
    if kill:
        sim.run(lambda: ("job", 3) in sim.nodes and sim.nodes["job", 3].phase == "prepared")
        sim.freeze(3, 4.0)
    sim.run(sim.over)
    sim.judge()


def found(**how: bool) -> bool:
    """Whether some of the first seeds shows a violation."""
    for seed in range(30):
        try:
            life(seed, **how)
        except FOUND:
            return True
    return False


def test_the_right_logic_passes() -> None:
    for seed in range(30):
        life(seed)
        life(seed, kill=True)


def test_commit_before_all_promises_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = observations.note_answer

    def hasty(job: JobState, event: Answered) -> tuple[JobState, list[Fact]]:
        job, facts = right(job, event)
        return replace(job, watch=replace(job.watch, missing=frozenset())), facts

    monkeypatch.setattr(observations, "note_answer", hasty)
    assert found()


def test_a_fence_that_is_not_the_greatest_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = observations.note_answer

    def last(job: JobState, event: Answered) -> tuple[JobState, list[Fact]]:
        return right(replace(job, watch=replace(job.watch, fence=0)), event)

    monkeypatch.setattr(observations, "note_answer", last)
    assert found()


def test_no_fencing_of_lost_nodes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = observations.observe

    def trusting(state: State, event: Observation) -> ObserveResult:
        state, facts, out = right(state, event)
        return state, facts, [one for one in out if getattr(one, "cause", "") not in LATER]

    monkeypatch.setattr(advance, "observe", trusting)
    # The first StopNode goes to a frozen node and is lost with it: only fencing is left.
    monkeypatch.setattr(
        Simulator, "stop", lambda sim, job, rank: stop_unless_frozen(sim, job, rank)
    )
    assert found(kill=True)


LATER = ("fenced", "sweep")


def stop_unless_frozen(sim: Simulator, job: str, rank: int) -> None:
    node = sim.nodes.get((job, rank))
    if node is not None and not node.frozen:
        node.stopped = True


def test_a_frozen_node_is_stopped_when_it_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same world with the right logic: fencing finds it."""
    monkeypatch.setattr(
        Simulator, "stop", lambda sim, job, rank: stop_unless_frozen(sim, job, rank)
    )
    for seed in range(10):
        life(seed, kill=True)


def test_double_apply_is_found() -> None:
    assert found(once=False)


def test_a_stage_done_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next chunk begins before the bins of the last are in: the ledger or the check sees it."""
    monkeypatch.setattr(observations, "has_passed", lambda job, awaits, rank, report: True)
    right = observations.note_answer

    def hasty(job: JobState, event: Answered) -> tuple[JobState, list[Fact]]:
        job, facts = right(job, event)
        return replace(job, watch=replace(job.watch, missing=frozenset(), fence=1)), facts

    monkeypatch.setattr(observations, "note_answer", hasty)
    assert found()
