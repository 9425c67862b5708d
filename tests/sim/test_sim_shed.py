"""What is kept of each query, from a request to all nodes: every step, bugs put in, a restart."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from plait.coordinator.machine import epoch_agreement, rescale
from plait.coordinator.machine.transitions import TABLE, Transition
from plait.coordinator.messages.requests import Accepted, Rejected, Rescale, Shed, Submit
from plait.errors import InternalError
from plait.shedding.plan import thresholds
from tests.sim.directed import QUERIES, DirectedSimulator, follow
from tests.sim.histories import history
from tests.sim.nodes import SimNode, Violation
from tests.sim.simulator import Simulator, spec_of

if TYPE_CHECKING:
    from plait.coordinator.machine.state import Aim, JobState
    from plait.coordinator.messages.requests import Request
    from plait.protocol.messages import Layout

HALF = thresholds({0: 0.5}, 2)
KEEPING = ("keep_promise", "keep_lift", "keep_commit", "keep_pass")
BEFORE = {"keep_lift": "quiet quiet keep_promise:refuse"}
ACTIONS = (
    "cancel",
    "stop",
    "shed",
    "rescale",
    "fail",
    "lose_home",
    "lose_spare",
    "refuse",
    "satisfy",
    "break_turn",
)
DETOURS = (
    "keep_promise:refuse keep_lift:lose_spare",
    "keep_promise:refuse keep_promise:refuse keep_promise:refuse",
    "keep_promise:refuse keep_promise:refuse keep_promise:refuse keep_lift:rescale",
    "keep_promise:refuse keep_promise:refuse keep_promise:refuse keep_lift:stop",
    "keep_commit:lose_spare",
)


def shed_job(request: Request, *, nodes: int = 2) -> Simulator:
    sim = Simulator(seed=1, epochs=400)
    sim.ask(Submit(spec=spec_of(nodes=nodes, queries=QUERIES)))
    sim.run(lambda: "job" in sim.state.jobs and sim.job().phase == "running")
    sim.asked(request)
    return sim


def test_every_step_of_a_round_for_what_is_kept_happens() -> None:
    seen: set[Transition] = set()
    for wait in KEEPING:
        for action in ACTIONS:
            steps = f"{BEFORE.get(wait, 'quiet quiet')} {wait}:{action}"
            seen |= follow(steps, "shed").transitions
    for steps in DETOURS:
        seen |= follow(f"quiet quiet {steps}", "shed").transitions
    rows = {Transition(before, cause, a) for before, cause, after in TABLE for a in after.split()}
    mine = {row for row in rows if "keep_" in row.before + row.after and row.cause != "refused"}
    assert sorted(mine - seen) == []


def keep_half_through_a_join() -> None:
    sim = shed_job(Shed(job="job", query="out", ratio=0.5), nodes=3)
    sim.run(lambda: sim.job().layout.keep == HALF and len(sim.job().layouts) == 1)
    sim.asked(Rescale(job="job", nodes=4))
    sim.run(lambda: len(sim.job().members) == 4)
    assert sim.job().layout.keep == HALF
    sim.run(sim.over)
    sim.judge()
    kept = sim.ledgers["job"].kept
    assert {*kept.values()} == {(), HALF}
    first = min(epoch for epoch, keep in kept.items() if keep)
    assert all(keep == (HALF if epoch >= first else ()) for epoch, keep in kept.items())


def test_all_members_keep_the_same_from_an_epoch_on() -> None:
    keep_half_through_a_join()


def test_what_is_kept_lost_at_a_join_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = epoch_agreement.round_layouts

    def forgetful(job: JobState, aim: Aim, epoch: int) -> tuple[JobState, tuple[Layout, ...]]:
        job, layouts = right(job, aim, epoch)
        return job, tuple(replace(one, keep=()) if aim == "join" else one for one in layouts)

    monkeypatch.setattr(epoch_agreement, "round_layouts", forgetful)
    with pytest.raises(AssertionError):
        keep_half_through_a_join()


def test_a_bound_is_lifted_again() -> None:
    sim = shed_job(Shed(job="job", query="out", ratio=0.5))
    sim.asked(Shed(job="job", query="out", ratio=None))
    sim.run(sim.over)
    assert sim.job().keep == ()
    assert sim.job().layout.keep == ()


@pytest.mark.parametrize(
    ("query", "ratio", "words"),
    [
        ("none", 0.5, 'no query "none"; it has: out, lossless'),
        ("lossless", 0.5, "lossless of job cannot be kept at 0.5: it is lossless"),
        ("out", 0.05, "out of job cannot be kept at 0.05: its floor is 0.1"),
        ("out", 1.5, "the share to keep is 1.5"),
    ],
)
def test_a_bound_that_breaks_a_promise_is_refused(query: str, ratio: float, words: str) -> None:
    sim = shed_job(Rescale(job="job", nodes=2, dry_run=True))
    sim.ask(Shed(job="job", query=query, ratio=ratio))
    sim.run(lambda: isinstance(last_reply(sim), Rejected))
    reply = last_reply(sim)
    assert isinstance(reply, Rejected)
    assert words in reply.reason
    assert sim.job().keep == ()


def last_reply(sim: Simulator) -> Accepted | Rejected:
    return list(sim.replies.values())[-1]


def found() -> bool:
    """Whether some history shows the bug."""
    for seed in range(40):
        try:
            history(seed)
        except (Violation, InternalError):
            return True
    return False


def test_a_threshold_one_epoch_late_on_one_node_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = SimNode.at

    def late(node: SimNode, epoch: int) -> Layout:
        layout = right(node, epoch)
        if node.rank == 1 and epoch > 0 and layout.epoch == epoch:
            return replace(layout, keep=right(node, epoch - 1).keep)
        return layout

    monkeypatch.setattr(SimNode, "at", late)
    assert found()


def test_a_wish_that_is_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(job: JobState) -> bool:
        return False

    monkeypatch.setattr(rescale, "wants_keep", forgets)
    assert found()


def test_a_lost_node_does_not_stop_the_round() -> None:
    sim: DirectedSimulator = follow("quiet quiet keep_pass:lose_spare drop_drop", "shed")
    assert sim.job().layout.keep == HALF
