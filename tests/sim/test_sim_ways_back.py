"""A job with checkpoints takes every step of the table that is its own, and loses nodes in every
wait: it goes back, and ends well."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from plait.coordinator.machine.state import is_needed
from plait.coordinator.machine.transitions import (
    BEGUN,
    RETURNS,
    TABLE,
    WITH_STATE,
    Transition,
    wait_name,
)
from plait.coordinator.messages.events import Answered, Asked, NodeFailed, NodeLost, NodeNotMade
from plait.coordinator.messages.requests import (
    AbortMigration,
    Cancel,
    PauseMigration,
    Request,
    Rescale,
    Save,
    Shed,
    Stop,
    Submit,
)
from plait.protocol.messages import Refused
from tests.sim.saving import SavingSimulator, saved_spec
from tests.sim.simulator import SIM_POLICY
from tests.sim.test_sim_transitions import is_saved

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.coordinator.messages.events import Event

POLICY = replace(SIM_POLICY, chunk_layouts=2, round_tries=2, tries=2)


@dataclass(slots=True)
class Directed(SavingSimulator):
    """As `directed.DirectedSimulator`, for jobs with checkpoints."""

    steps: list[tuple[str, str]] = field(default_factory=list)
    wishes: list[Request] = field(default_factory=list)
    seen_wait: int = 0

    def coordinate(self, event: Event) -> None:
        SavingSimulator.coordinate(self, event)
        job = self.state.jobs.get("job")
        if job is None or job.wait.id == self.seen_wait:
            return
        self.seen_wait = job.wait.id
        name = wait_name(job)
        if self.steps and name == self.steps[0][0]:
            _, action = self.steps.pop(0)
            self.after(0.0, lambda: ACTIONS[action](self))
        if name == "quiet" and job.phase == "running" and self.wishes:
            self.after(0.01, self.wish)

    def wish(self) -> None:
        if self.wishes and self.job().phase == "running":
            self.request(self.wishes.pop(0))

    def request(self, request: Request) -> None:
        name = f"request {next(self.counter)}"
        self.coordinate(Asked(at=self.now, request_id=name, request=request))

    def lose(self, rank: int) -> None:
        self.kill(rank)
        self.lost.add(("job", rank))
        self.coordinate(NodeLost(at=self.now, job="job", rank=rank, reason="killed"))

    def lose_home(self) -> None:
        live = self.job().live
        home = self.job().home
        for rank in ([home] if home in live else list(live))[:1]:
            self.lose(rank)

    def lose_spare(self) -> None:
        """A member that has nothing."""
        job = self.job()
        for rank in [one for one in job.members if not is_needed(job, one)][:1]:
            self.lose(rank)

    def stop_badly(self) -> None:
        self.break_store()
        self.request(Stop(job="job"))

    def lose_all(self) -> None:
        for rank in list(self.job().live):
            self.lose(rank)

    def fail_to_make(self) -> None:
        for rank, node in list(self.job().nodes.items()):
            if node.phase == "starting" and node.peer is None:
                self.coordinate(NodeNotMade(at=self.now, job="job", rank=rank, reason="no room"))
                return

    def lose_links(self) -> None:
        """A node cannot go on, and no record is to blame."""
        for rank in self.job().live[:1]:
            attempt = self.job().attempt
            event = NodeFailed(
                at=self.now, job="job", rank=rank, error="no links", lost_peer=True, attempt=attempt
            )
            self.lost.add(("job", rank))
            self.coordinate(event)

    def refuse(self) -> None:
        job = self.job()
        for rank in sorted(job.watch.missing)[-1:]:
            self.lost.add(("job", rank))
            answer = Refused(reason="it will not")
            event = Answered(
                at=self.now, job="job", rank=rank, command_id=job.wait.id, answer=answer
            )
            self.coordinate(event)

    def break_store(self) -> None:
        """From now on nothing can be saved, sealed or published; it mends after a while."""
        self.error_ratio = 1.0

        def mend() -> None:
            self.error_ratio = 0.0

        self.after(1.5, mend)


ACTIONS: dict[str, Callable[[Directed], None]] = {
    "": lambda sim: None,
    "lose_home": Directed.lose_home,
    "lose_spare": Directed.lose_spare,
    "stop_badly": Directed.stop_badly,
    "lose_all": Directed.lose_all,
    "lose_links": Directed.lose_links,
    "fail_to_make": Directed.fail_to_make,
    "refuse": Directed.refuse,
    "break_store": Directed.break_store,
    "stop": lambda sim: sim.request(Stop(job="job")),
    "cancel": lambda sim: sim.request(Cancel(job="job")),
    "abort": lambda sim: sim.request(AbortMigration(job="job")),
    "pause": lambda sim: sim.request(PauseMigration(job="job")),
    "save": lambda sim: sim.request(Save(job="job")),
    "rescale": lambda sim: sim.request(Rescale(job="job", nodes=3)),
}


def follow(steps: str, *, bin_bits: int = 3, stops: bool = True) -> Directed:
    """A job that grows and shrinks and stops; what is written down happens to it on the way."""
    pairs = [(wait, action) for wait, _, action in (step.partition(":") for step in steps.split())]
    away = (1,) if bin_bits == 1 else ()
    wishes: list[Request] = [
        Rescale(job="job", nodes=4, away=away),
        Rescale(job="job", nodes=2),
    ]
    if "keep_" in steps:
        wishes.insert(1, Shed(job="job", query="out", ratio=0.5))
    if stops:
        wishes.append(Stop(job="job"))
    sim = Directed(seed=2, policy=POLICY, epochs=400, steps=pairs, wishes=wishes)
    sim.ask(Submit(spec=saved_spec(nodes=2, bin_bits=bin_bits, every_s=0.3)))
    sim.run(sim.over, 300.0)
    assert not sim.steps, f"{steps!r} did not come to {sim.steps[0]}"
    sim.judge()
    return sim


LED = {
    "save_lift": "save_promise:refuse",
    "keep_lift": "keep_promise:refuse",
    "chunk_pace": "chunk_pass:pause",
    "chunk_lift": "chunk_promise:refuse",
    "join_lift": "join_promise:refuse",
    "leave_lift": "leave_promise:refuse",
    "stop_lift": "stop_promise:refuse",
    "restore_halt": "quiet:lose_home",
    "restore_place": "quiet:lose_all",
    "restore_make": "quiet:lose_all",
}
NOT_HERE = ("drop_drop",)
"""No node is without bins in these jobs: nobody is dropped."""
REACHED = tuple(
    name for name in WITH_STATE if name not in NOT_HERE and not name.startswith("start_")
)


@pytest.mark.parametrize("wait", REACHED)
def test_a_node_is_lost_in_every_wait(wait: str) -> None:
    for action in ("lose_home", "lose_links", "lose_all"):
        sim = follow(f"{LED.get(wait, '')} {wait}:{action}")
        job = sim.job()
        assert job.phase == "ended", job.error
        if wait not in ("restore_place", "restore_make") and action != "lose_links":
            assert job.attempt > 1
        assert job.layout.keep == job.keep


DETOURS = (
    "restore_survey:break_store",
    "quiet:lose_home restore_prepare:refuse",
    "quiet:lose_home restore_begin:refuse",
    "restore_prepare:refuse",
    "restore_begin:refuse",
    "restore_survey:stop",
    "restore_prepare:stop",
    "restore_load:stop",
    "restore_begin:stop",
    "quiet:lose_all restore_place:fail_to_make",
    "quiet:lose_all restore_make:fail_to_make",
    "quiet:lose_home restore_begin:stop",
    "save_promise:refuse",
    "save_promise:refuse save_lift:stop",
    "save_commit:stop_badly",
    "ready_wait:save save_promise:abort",
    "ready_wait:save save_promise:refuse save_lift:abort",
    "save_commit:refuse",
    "save_commit:stop",
    "save_commit:break_store",
    "stop_wait:break_store",
    "chunk_pass:save",
    "chunk_pass:pause chunk_pace:save",
    "chunk_pass:save save_promise:refuse",
    "chunk_pass:save save_promise:abort",
    "chunk_pass:save save_commit:abort",
)


def test_every_step_of_a_job_with_checkpoints_happens() -> None:
    seen: set[Transition] = set()
    for steps in DETOURS:
        for stops in (True, False):
            seen |= follow(steps, stops=stops).transitions
    for steps in ("save_promise:lose_spare", "save_commit:lose_spare"):
        seen |= follow(f"ready_wait:save {steps}", bin_bits=1).transitions
    for steps in ("save_commit:rescale", "save_promise:refuse save_lift:rescale"):
        seen |= follow(f"quiet quiet quiet {steps}", stops=False).transitions
    for wait in REACHED:
        for action in ("lose_home", "lose_links"):
            seen |= follow(f"{LED.get(wait, '')} {wait}:{action}").transitions
    rows = {Transition(before, cause, a) for before, cause, after in TABLE for a in after.split()}
    missing = {row for row in rows - seen if is_saved(row)}
    assert sorted(missing) == []
    back = {row.before for row in seen if row.after == "restore_halt"}
    assert back >= {*RETURNS["node lost"]} - {*NOT_HERE}
    assert {row.before for row in seen if row.cause == "job over"} & {*BEGUN}
