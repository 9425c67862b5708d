"""A job whose fate is written down: in this wait that happens, in the next one something else.

`follow("quiet join_make:stop")` lets a job live until it is quiet, then until it waits for new
nodes, and stops it there, before any message of that wait has arrived. What happens is said by
word (`ACTIONS`). The story of the job around it is one of `STORIES`: requests, each made when the
job is quiet.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from plait.coordinator.machine.state import is_needed
from plait.coordinator.machine.transitions import wait_name
from plait.coordinator.messages.events import (
    Answered,
    Asked,
    HostsSeen,
    NodeFailed,
    NodeLost,
    NodeMade,
    NodeNotMade,
    Reported,
)
from plait.coordinator.messages.requests import (
    AbortMigration,
    Cancel,
    Drain,
    PauseMigration,
    Request,
    Rescale,
    Shed,
    Stop,
    Submit,
)
from plait.coordinator.messages.spec import QuerySpec
from plait.protocol.messages import Peer, Refused
from tests.sim.simulator import SIM_POLICY, Simulator, spec_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.coordinator.machine.state import JobState
    from plait.coordinator.messages.events import Event

POLICY = replace(SIM_POLICY, chunk_layouts=2, round_tries=2, tries=2)


@dataclass(slots=True)
class DirectedSimulator(Simulator):
    steps: list[tuple[str, str]] = field(default_factory=list)
    """Waits, and what happens when they are entered, in this order."""
    wishes: list[Callable[[JobState], Request]] = field(default_factory=list)
    seen_wait: int = 0

    def coordinate(self, event: Event) -> None:
        Simulator.coordinate(self, event)
        job = self.state.jobs.get("job")
        if job is None or job.wait.id == self.seen_wait:
            return
        self.seen_wait = job.wait.id
        name = wait_name(job)
        if self.steps and name == self.steps[0][0]:
            _, action = self.steps.pop(0)
            self.after(0.0, lambda: ACTIONS[action](self))
        if name == "quiet" and self.wishes:
            self.after(0.0002, lambda: self.request(self.wishes.pop(0)(self.job())))

    def request(self, request: Request) -> None:
        """A request that arrives at once, and once."""
        name = f"request {next(self.counter)}"
        self.coordinate(Asked(at=self.now, request_id=name, request=request))

    def spare_ranks(self) -> list[int]:
        """The nodes without which the job can go on."""
        job = self.job()
        return [rank for rank in job.live if not is_needed(job, rank)]

    def lose(self, rank: int) -> None:
        self.kill(rank)
        self.lost.add(("job", rank))
        self.coordinate(NodeLost(at=self.now, job="job", rank=rank, reason="killed"))

    def lose_spare(self) -> None:
        """A member that has nothing; if there is none, a node that is to join."""
        spare = self.spare_ranks()
        members = [rank for rank in spare if rank in self.job().members]
        for rank in (members or spare)[:1]:
            self.lose(rank)

    def lose_last_spare(self) -> None:
        """The node that came last."""
        for rank in self.spare_ranks()[-1:]:
            self.lose(rank)

    def lose_leaving(self) -> None:
        """A node that is about to leave."""
        for rank, node in self.job().nodes.items():
            if node.phase == "leaving":
                self.lose(rank)
                return

    def replace_home(self) -> None:
        """Another process says that it is the home."""
        job = self.job()
        if job.nodes[job.home].peer is None:
            return
        self.kill(job.home)
        peer = Peer(rank=job.home, host="other", port=1)
        event = NodeMade(at=self.now, job="job", rank=job.home, host="host0", peer=peer, pid=1)
        self.coordinate(event)

    def fail_to_make(self) -> None:
        for rank, node in self.job().nodes.items():
            if node.phase == "starting" and node.peer is None and node.host:
                self.lost.add(("job", rank))
                event = NodeNotMade(at=self.now, job="job", rank=rank, reason="no room")
                self.coordinate(event)
                return

    def break_node(self, *phases: str) -> None:
        """The first node that is made and in one of these phases, or in any, fails."""
        for rank in self.job().live:
            if not phases or self.job().nodes[rank].phase in phases:
                self.fail(rank)
                self.lost.add(("job", rank))
                self.coordinate(NodeFailed(at=self.now, job="job", rank=rank, error="bad"))
                return

    def break_first_made(self) -> None:
        """As soon as a node is made while others are not."""
        if any(n.phase == "starting" and n.peer for n in self.job().nodes.values()):
            self.break_node("starting")
        elif wait_name(self.job()) in ("start_make", "join_make"):
            self.after(0.0002, self.break_first_made)

    def lose_first_made(self) -> None:
        """One node cannot be made after the other was."""
        if any(n.phase == "starting" and n.peer for n in self.job().nodes.values()):
            self.fail_to_make()
        elif wait_name(self.job()) in ("start_make", "join_make"):
            self.after(0.0002, self.lose_first_made)

    def refuse(self) -> None:
        job = self.job()
        for rank in sorted(job.watch.missing)[-1:]:
            self.lost.add(("job", rank))
            event = Answered(
                at=self.now,
                job="job",
                rank=rank,
                command_id=job.wait.id,
                answer=Refused(reason="it will not"),
            )
            self.coordinate(event)

    def satisfy(self) -> None:
        """A sink has all it wanted."""
        job = self.job()
        node = self.nodes.get(("job", job.home))
        if node is None or node.phase == "made":
            return
        if not node.layouts:
            # It has not begun, though it may have been told to.
            self.after(0.0002, self.satisfy)
        else:
            report = replace(node.report(loads=False), satisfied=True)
            self.coordinate(Reported(at=self.now, job="job", rank=job.home, report=report))

    def abort_and_stop(self) -> None:
        self.request(AbortMigration(job="job"))
        self.request(Stop(job="job"))

    def break_turn(self) -> None:
        """The coordinator cannot follow the next fact about the job."""
        rank = next(iter(self.job().nodes))
        self.lost.add(("job", rank))
        self.breaks.add("job")
        self.coordinate(NodeLost(at=self.now, job="job", rank=rank, reason="who knows"))

    def see_no_hosts(self) -> None:
        self.lost.add(("job", 0))
        self.coordinate(HostsSeen(at=self.now, hosts=()))


ACTIONS: dict[str, Callable[[DirectedSimulator], None]] = {
    "": lambda sim: None,
    "cancel": lambda sim: sim.request(Cancel(job="job")),
    "stop": lambda sim: sim.request(Stop(job="job")),
    "abort": lambda sim: sim.request(AbortMigration(job="job")),
    "abort_and_stop": DirectedSimulator.abort_and_stop,
    "shed": lambda sim: sim.request(Shed(job="job", query="out", ratio=0.25)),
    "rescale": lambda sim: sim.request(Rescale(job="job")),
    "pause": lambda sim: sim.request(PauseMigration(job="job")),
    "lose_home": lambda sim: sim.lose(sim.job().home) if sim.job().layouts else None,
    "lose_spare": DirectedSimulator.lose_spare,
    "lose_last_spare": DirectedSimulator.lose_last_spare,
    "lose_leaving": DirectedSimulator.lose_leaving,
    "replace_home": DirectedSimulator.replace_home,
    "fail_to_make": DirectedSimulator.fail_to_make,
    "fail": DirectedSimulator.break_node,
    "fail_joining": lambda sim: sim.break_node("joining"),
    "fail_made": DirectedSimulator.break_first_made,
    "lose_made": DirectedSimulator.lose_first_made,
    "refuse": DirectedSimulator.refuse,
    "satisfy": DirectedSimulator.satisfy,
    "break_turn": DirectedSimulator.break_turn,
    "no_hosts": DirectedSimulator.see_no_hosts,
}


def grow(job: JobState) -> Request:
    """To four nodes. An owner leaves, and with two bins some nodes get none."""
    owners = {*job.layout.owners} - {job.home}
    return Rescale(job="job", nodes=4, away=(min(owners),))


def swap_spare(job: JobState) -> Request:
    """A node that has nothing leaves, two join, and no bin moves."""
    spare = next(rank for rank in job.members if not is_needed(job, rank))
    return Rescale(job="job", nodes=len(job.members) + 1, away=(spare,))


def shrink(job: JobState) -> Request:
    """A node that has nothing leaves."""
    spare = next(rank for rank in job.members if not is_needed(job, rank))
    return Rescale(job="job", away=(spare,))


def join(job: JobState) -> Request:
    return Rescale(job="job", nodes=len(job.members) + 1)


def drain(job: JobState) -> Request:
    return Drain(job="job", rank=1)


def keep(job: JobState) -> Request:
    """Nothing joins, moves or leaves."""
    return Rescale(job="job")


def shed(job: JobState) -> Request:
    return Shed(job="job", query="out", ratio=0.5)


def stop(job: JobState) -> Request:
    return Stop(job="job")


QUERIES = (QuerySpec(label="out", min_accuracy=0.1), QuerySpec(label="lossless"))

STORIES: dict[str, tuple[int, tuple[Callable[[JobState], Request], ...]]] = {
    "grow": (1, (grow, grow, stop)),
    "swap": (1, (grow, swap_spare, stop)),
    "shrink": (1, (grow, shrink, stop)),
    "join": (4, (join, drain, stop)),
    "keep": (4, (keep, stop)),
    "shed": (1, (grow, shed, stop)),
}
"""By name: the bits of the bins, and what is asked for whenever the job is quiet."""


def follow(steps: str, story: str = "grow") -> DirectedSimulator:
    """A job that starts on two nodes, in which these things happen, until it is over."""
    pairs = [(wait, action) for wait, _, action in (step.partition(":") for step in steps.split())]
    bin_bits, wishes = STORIES[story]
    sim = DirectedSimulator(seed=1, policy=POLICY, epochs=1000, steps=pairs, wishes=list(wishes))
    sim.ask(Submit(spec=spec_of(nodes=2, bin_bits=bin_bits, queries=QUERIES)))
    sim.run(sim.over, 300.0)
    assert not sim.steps, f"{steps!r} did not come to {sim.steps[0]}"
    if "satisfy" not in steps:
        sim.judge()
    return sim
