"""The manager with nodes in threads: a job's whole life, a restart, a failing part, a lost node."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from plait.coordinator.journal.store import FileJournal, MemoryJournal
from plait.coordinator.messages.requests import (
    Accepted,
    Cancel,
    Drain,
    Forget,
    PauseMigration,
    Rejected,
    Rescale,
    Stop,
    Submit,
)
from plait.coordinator.messages.spec import JobSpec, Policy, SourceSpec
from plait.coordinator.shell.local_gateway import LocalGateway
from plait.coordinator.shell.manager import JobManager
from plait.errors import TimedOut
from plait.node_runtime.host.once import Once
from plait.protocol.messages import (
    Answer,
    Begin,
    BinLoad,
    Command,
    Commit,
    Done,
    End,
    Expect,
    Layout,
    Lift,
    NodeReport,
    Peer,
    Prepare,
    Promise,
    Refused,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from plait.coordinator.messages.commands import StopNode
    from plait.coordinator.messages.views import JobView


def spec_of(name: str = "job", nodes: int = 2, *, payload: str = "") -> JobSpec:
    return JobSpec(
        name=name,
        payload=payload,
        token="secret",
        bin_bits=4,
        sources=(SourceSpec(label="in", splits=False),),
        nodes=nodes,
    )


@dataclass
class StepNode:
    """A small agent: every report is five epochs later. It says what it was told."""

    rank: int
    phase: str = "made"
    epoch: int = 0
    fence: int | None = None
    stop_at: int = 1 << 60
    layouts: list[Layout] = field(default_factory=list)
    told: list[Command] = field(default_factory=list)
    fails: str = ""
    ready: int = 0

    def peer(self) -> Peer:
        return Peer(rank=self.rank, host="local", port=7000 + self.rank)

    def apply(self, command: Command) -> Answer:
        self.told.append(command)
        match command:
            case Prepare():
                self.phase = "prepared"
            case Begin(layout=layout):
                self.phase, self.epoch, self.layouts = "running", layout.epoch, [layout]
            case Expect(number=number):
                self.ready = number
            case Promise():
                self.fence = self.epoch + 3
                return Done(epoch=self.fence)
            case Commit(layouts=layouts, stop_at=stop_at):
                self.fence = None
                self.layouts += layouts
                self.stop_at = self.stop_at if stop_at is None else stop_at
            case Lift():
                self.fence = None
            case End():
                self.phase = "ended"
            case _:
                pass
        return Done()

    def report(self, loads: bool = False) -> NodeReport:
        if self.phase == "running":
            limit = self.stop_at if self.fence is None else min(self.fence, self.stop_at)
            self.epoch = min(self.epoch + 5, limit)
            if self.epoch >= self.stop_at:
                self.phase = "ended"
            elif self.rank not in self.layout().members:
                self.phase = "left"
        mine = [b for b, o in enumerate(self.layout().owners) if o == self.rank] if loads else []
        return NodeReport(
            rank=self.rank,
            phase="failed" if self.fails else self.phase,  # type: ignore[arg-type]
            epoch=self.epoch,
            delivered_epoch=self.epoch - 1,
            read=self.epoch * 100,
            ready=self.ready,
            loads=tuple(BinLoad(bin=b, records=10, size_bytes=1000) for b in mine),
            error=self.fails,
        )

    def layout(self) -> Layout:
        return [one for one in self.layouts if one.epoch <= self.epoch][-1]

    def close(self) -> None:
        self.phase = "closed"


@dataclass
class Cluster:
    """A manager, its nodes, and a way to wait for what it shows."""

    manager: JobManager
    gateway: LocalGateway
    agents: dict[tuple[str, int], StepNode]

    def until(self, holds: Callable[[JobView], bool], job: str = "job") -> JobView:
        view = self.manager.wait(job, lambda v: v is not None and holds(v), 60.0)
        assert view is not None
        assert holds(view), f"never came: {view}\n{self.manager.stats}"
        return view

    def phase(self, *phases: str) -> JobView:
        return self.until(lambda view: view.phase in phases)


POLICY = Policy(tick_s=0.005, report_s=0.02, silence_s=30.0, resend_s=5.0, measure_s=60.0)


def cluster_of(journal: MemoryJournal | FileJournal, policy: Policy = POLICY) -> Cluster:
    agents: dict[tuple[str, int], StepNode] = {}

    def make(job: str, rank: int, spec: JobSpec) -> StepNode:
        if spec.payload == "bad":
            raise ValueError("this payload cannot be loaded")
        agents[job, rank] = StepNode(rank=rank)
        return agents[job, rank]

    gateway = LocalGateway(make)
    return Cluster(JobManager(journal, gateway, policy=policy), gateway, agents)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = cluster_of(MemoryJournal())
    yield made
    made.manager.close()
    made.gateway.shut_down()


def test_a_job_lives_grows_shrinks_and_stops(cluster: Cluster) -> None:
    ask = cluster.manager.request
    assert ask(Submit(spec=spec_of())) == Accepted(job="job")
    cluster.phase("running")
    plan = ask(Rescale(job="job", nodes=3, dry_run=True))
    assert isinstance(plan, Accepted)
    assert "node-2 will join" in plan.plan
    assert "bins" in plan.plan
    ask(Rescale(job="job", nodes=3))
    view = cluster.until(lambda v: v.migration is not None and v.migration.phase == "done")
    assert [node.phase for node in view.nodes] == ["member"] * 3
    assert sum(node.bins for node in view.nodes) == 16
    assert {node.bins for node in view.nodes} <= {5, 6}
    ask(Drain(job="job", rank=1))
    view = cluster.until(
        lambda v: v.migration is not None and (v.migration.number, v.migration.phase) == (2, "done")
    )
    assert [node.phase for node in view.nodes] == ["member", "left", "member"]
    ask(Stop(job="job"))
    view = cluster.phase("ended")
    assert view.over
    assert ask(Forget(job="job")) == Accepted(job="job")
    assert cluster.manager.view("job") is None
    stats = cluster.manager.stats
    assert stats.failures == 0, stats.last_failure
    assert stats.commands > 20


def test_a_view_prints_as_a_table(cluster: Cluster) -> None:
    cluster.manager.request(Submit(spec=spec_of()))
    view = cluster.until(lambda v: v.phase == "running" and all(n.read_per_s for n in v.nodes))
    lines = str(view).splitlines()
    assert lines[0].startswith("job  running for ")
    assert lines[0].endswith("2 nodes, 16 bins")
    assert lines[1].split()[:5] == ["node", "host", "phase", "bins", "epoch"]
    assert lines[2].split()[:4] == ["node-0", "local", "member", "8"]


def test_wrong_requests_are_rejected_in_words(cluster: Cluster) -> None:
    ask = cluster.manager.request
    ask(Submit(spec=spec_of()))
    cluster.phase("running")
    for request, word in [
        (Submit(spec=spec_of()), "there is a job job already"),
        (Submit(spec=spec_of("other", 0)), "at least one node"),
        (Submit(spec=spec_of("other", 99)), "99 nodes need at least as many bins, got 16"),
        (Rescale(job="nope", nodes=2), "there is no job nope"),
        (Rescale(job="job", nodes=0), "at least one node"),
        (Rescale(job="job", throttle_bytes_per_s=-1.0), "throttle"),
        (Drain(job="job", rank=9), "has no node-9; it has node-0, node-1"),
        (Drain(job="job", rank=0), "has its sinks and cannot leave"),
        (PauseMigration(job="job"), "no migration of job is running"),
        (Forget(job="job"), "cancel it before"),
    ]:
        reply = ask(request)  # type: ignore[arg-type]
        assert isinstance(reply, Rejected)
        assert word in reply.reason


def test_a_request_asked_again_is_done_once(cluster: Cluster) -> None:
    first = cluster.manager.request(Submit(spec=spec_of()), request_id="mine")
    assert cluster.manager.request(Submit(spec=spec_of()), request_id="mine") == first
    cluster.phase("running")
    assert len(cluster.agents) == 2


def test_a_node_that_fails_fails_the_job(cluster: Cluster) -> None:
    cluster.manager.request(Submit(spec=spec_of()))
    cluster.phase("running")
    cluster.agents["job", 1].fails = "ValueError: bad record"
    view = cluster.phase("failed")
    assert view.error == "node-1: ValueError: bad record"
    assert End(good=False) in cluster.agents["job", 0].told


def test_a_node_that_cannot_be_made_fails_the_job_after_some_tries(cluster: Cluster) -> None:
    cluster.manager.request(Submit(spec=spec_of(payload="bad")))
    view = cluster.phase("failed")
    assert "ValueError: this payload cannot be loaded" in view.error
    assert {node.phase for node in view.nodes} == {"lost"}


def test_a_lost_node_fails_the_job_and_says_what_is_gone(cluster: Cluster) -> None:
    cluster.manager.request(Submit(spec=spec_of()))
    cluster.phase("running")
    cluster.gateway.nodes.pop(("job", 1)).todo.put(None)
    view = cluster.phase("failed")
    assert "node-1 on local was lost (it is not there) with the state of 8 of 16 bins" in view.error
    assert "no checkpoint" in view.error


def test_two_jobs_at_once_and_cancel(cluster: Cluster) -> None:
    ask = cluster.manager.request
    ask(Submit(spec=spec_of("a")))
    ask(Submit(spec=spec_of("b", 1)))
    cluster.until(lambda v: v.phase == "running", "a")
    cluster.until(lambda v: v.phase == "running", "b")
    ask(Cancel(job="a"))
    cluster.until(lambda v: v.phase == "cancelled", "a")
    assert {view.name: view.phase for view in cluster.manager.views()}["b"] == "running"
    again = ask(Cancel(job="a"))
    assert isinstance(again, Rejected)


def test_ranks_are_not_used_again_under_a_name(cluster: Cluster) -> None:
    ask = cluster.manager.request
    ask(Submit(spec=spec_of()))
    cluster.phase("running")
    ask(Cancel(job="job"))
    cluster.phase("cancelled")
    ask(Forget(job="job"))
    ask(Submit(spec=spec_of()))
    view = cluster.phase("running")
    assert [node.rank for node in view.nodes] == [2, 3]
    assert view.home == 2


def test_a_manager_comes_back_from_its_journal(tmp_path: Path) -> None:
    first = cluster_of(FileJournal(tmp_path))
    first.manager.request(Submit(spec=spec_of()), request_id="mine")
    first.phase("running")
    first.manager.close()
    gateway, agents = first.gateway, first.agents
    second = Cluster(JobManager(FileJournal(tmp_path), gateway, policy=POLICY), gateway, agents)
    again = second.manager.request(Submit(spec=spec_of()), request_id="mine")
    assert again == Accepted(job="job")
    second.manager.request(Rescale(job="job", nodes=3))
    second.until(lambda v: v.migration is not None and v.migration.phase == "done")
    second.manager.request(Stop(job="job"))
    second.phase("ended")
    second.manager.close()
    gateway.shut_down()
    assert len(agents) == 3


def test_a_failing_part_does_not_stop_the_others(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = cluster.manager.request
    ask(Submit(spec=spec_of("a")))
    cluster.until(lambda v: v.phase == "running", "a")
    ask(Cancel(job="a"))
    cluster.until(lambda v: v.phase == "cancelled", "a")

    def broken(command: StopNode) -> None:
        raise OSError("no such cluster")

    monkeypatch.setattr(cluster.gateway, "stop_node", broken)
    ask(Forget(job="a"))
    ask(Submit(spec=spec_of("b")))
    cluster.until(lambda v: v.phase == "running", "b")
    assert cluster.manager.stats.failures > 0
    assert "no such cluster" in cluster.manager.stats.last_failure
    monkeypatch.undo()


def test_a_request_without_a_reply_times_out(cluster: Cluster) -> None:
    cluster.manager.request(Submit(spec=spec_of()))
    cluster.phase("running")
    agent, go_on = cluster.agents["job", 1], threading.Event()
    report = agent.report

    def held_up(loads: bool = False) -> NodeReport:
        go_on.wait()
        return report(loads)

    agent.report = held_up  # type: ignore[method-assign]
    with pytest.raises(TimedOut, match="ask again with the same request id"):
        cluster.manager.request(Rescale(job="job", nodes=3), timeout=0.01, request_id="mine")
    go_on.set()
    reply = cluster.manager.request(Rescale(job="job", nodes=3), request_id="mine")
    assert isinstance(reply, Accepted)


def test_once_repeats_answers_and_refuses_what_is_late() -> None:
    told: list[Command] = []

    def apply(command: Command) -> Answer:
        told.append(command)
        if isinstance(command, End):
            raise ValueError("cannot end")
        return Done(epoch=len(told))

    once = Once(apply)
    promise = Promise(round=5, margin_s=0.1)
    assert once.tell(5, promise) == Done(epoch=1)
    assert once.tell(7, Lift(round=5)) == Done(epoch=2)
    assert once.tell(5, promise) == Done(epoch=1)
    assert isinstance(once.tell(6, promise), Refused)
    assert once.tell(8, End(good=True)) == Refused(reason="ValueError: cannot end")
    assert len(told) == 3
