"""A rescale is not sent away for something that is over in a moment and that nobody can see: the
members are told of nodes that are gone, as after every rescale in which some leave, or a mark is
set. It is looked at after that, once, and its client has an answer whatever happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plait.coordinator.machine.state import is_needed
from plait.coordinator.machine.transitions import wait_name
from plait.coordinator.messages.events import Asked, NodeLost
from plait.coordinator.messages.requests import (
    Accepted,
    Cancel,
    Rejected,
    Request,
    Rescale,
    Stop,
    Submit,
)
from tests.sim.saving import SavingSimulator, saved_spec
from tests.sim.simulator import SIM_POLICY, Simulator, spec_of

if TYPE_CHECKING:
    from collections.abc import Callable

WISH = "the rescale in question"
ROUNDS = ("save_promise", "save_commit")


def until(sim: Simulator, *waits: str) -> None:
    """Lets the job live until it is in one of these waits."""
    sim.run(lambda: "job" in sim.state.jobs and wait_name(sim.job()) in waits, 300.0)


def ask(sim: Simulator, request: Request, key: str = WISH) -> None:
    """The request arrives at once."""
    sim.coordinate(Asked(at=sim.now, request_id=key, request=request))


def shrinking() -> Simulator:
    """A job of three nodes, of which one has just left; the others are told."""
    sim = Simulator(seed=3, policy=SIM_POLICY, epochs=600)
    sim.ask(Submit(spec=spec_of(nodes=3)))
    until(sim, "quiet")
    sim.ask(Rescale(job="job", nodes=2))
    until(sim, "drop_drop")
    change = sim.job().change
    assert change is not None
    assert change.phase == "done"
    return sim


def saving(wait: str) -> Simulator:
    """A job of two nodes that is about to be saved."""
    sim = SavingSimulator(seed=3, policy=SIM_POLICY, epochs=600)
    sim.ask(Submit(spec=saved_spec(nodes=2)))
    until(sim, wait)
    return sim


BUSY: dict[str, Callable[[], Simulator]] = {
    "a node has left": shrinking,
    **{wait: lambda wait=wait: saving(wait) for wait in ROUNDS},  # type: ignore[misc]
}


def end_well(sim: Simulator) -> None:
    sim.run(sim.over, 300.0)
    sim.judge()


@pytest.mark.parametrize("busy", BUSY)
def test_it_is_planned_when_the_job_is_quiet(busy: str) -> None:
    sim = BUSY[busy]()
    ask(sim, Rescale(job="job", nodes=4))
    assert WISH not in sim.replies
    until(sim, "measure")
    until(sim, "quiet")
    assert isinstance(sim.replies[WISH], Accepted)
    assert len(sim.job().members) == 4
    end_well(sim)


@pytest.mark.parametrize("busy", BUSY)
def test_asked_again_it_is_the_same_one(busy: str) -> None:
    sim = BUSY[busy]()
    for _ in range(3):
        ask(sim, Rescale(job="job", nodes=4))
    until(sim, "measure")
    rescaling = sim.job().change
    before = rescaling.number if rescaling else 0
    ask(sim, Rescale(job="job", nodes=4))
    until(sim, "quiet")
    change = sim.job().change
    assert change is not None
    assert change.number == before + 1
    end_well(sim)


@pytest.mark.parametrize("busy", BUSY)
def test_a_second_one_is_told_of_the_first(busy: str) -> None:
    sim = BUSY[busy]()
    ask(sim, Rescale(job="job", nodes=4))
    ask(sim, Rescale(job="job", nodes=1), "another")
    answer = sim.replies["another"]
    assert isinstance(answer, Rejected)
    assert "about to be rescaled" in answer.reason
    end_well(sim)


@pytest.mark.parametrize("busy", BUSY)
def test_what_is_wrong_with_it_is_said(busy: str) -> None:
    sim = BUSY[busy]()
    ask(sim, Rescale(job="job", away=(77,)))
    until(sim, "quiet")
    answer = sim.replies[WISH]
    assert isinstance(answer, Rejected)
    assert "has no node-77" in answer.reason
    end_well(sim)


@pytest.mark.parametrize("busy", BUSY)
@pytest.mark.parametrize(
    ("request_", "words"),
    [(Stop(job="job"), "stopping"), (Cancel(job="job"), "ended first")],
    ids=["stop", "cancel"],
)
def test_a_job_that_ends_first_refuses_it(busy: str, request_: Request, words: str) -> None:
    sim = BUSY[busy]()
    ask(sim, Rescale(job="job", nodes=4))
    sim.ask(request_)
    sim.run(lambda: WISH in sim.replies)
    answer = sim.replies[WISH]
    assert isinstance(answer, Rejected)
    assert words in answer.reason
    end_well(sim)


@pytest.mark.parametrize("busy", BUSY)
def test_the_coordinator_may_crash_meanwhile(busy: str) -> None:
    """What it holds back is in its journal."""
    sim = BUSY[busy]()
    ask(sim, Rescale(job="job", nodes=4))
    sim.crash(0.5)
    sim.run(lambda: WISH in sim.replies)
    assert isinstance(sim.replies[WISH], Accepted)
    end_well(sim)


def test_a_job_that_goes_back_refuses_it() -> None:
    sim = saving("save_commit")
    ask(sim, Rescale(job="job", nodes=4))
    sim.kill(1)
    sim.coordinate(NodeLost(at=sim.now, job="job", rank=1, reason="killed"))
    answer = sim.replies[WISH]
    assert isinstance(answer, Rejected)
    assert "went back to a checkpoint" in answer.reason
    end_well(sim)
    assert sim.job().phase == "ended"


def test_a_measurement_that_is_interrupted_is_still_the_only_one() -> None:
    """A node without bins is lost while they are weighed: nobody is asked twice, all are told."""
    sim = Simulator(seed=3, policy=SIM_POLICY, epochs=600)
    sim.ask(Submit(spec=spec_of(nodes=2, bin_bits=1)))
    until(sim, "quiet")
    sim.asked(Rescale(job="job", nodes=4, away=(1,)))  # an owner leaves: two bins, four nodes
    until(sim, "quiet")
    spare = next(rank for rank in sim.job().members if not is_needed(sim.job(), rank))
    ask(sim, Rescale(job="job", nodes=4))
    until(sim, "measure")
    sim.kill(spare)
    until(sim, "drop_drop")
    ask(sim, Rescale(job="job", nodes=4))
    ask(sim, Rescale(job="job", nodes=1), "another")
    answer = sim.replies["another"]
    assert isinstance(answer, Rejected)
    assert "being measured" in answer.reason
    sim.ask(Cancel(job="job"))
    sim.run(sim.over, 300.0)
    assert WISH in sim.replies
