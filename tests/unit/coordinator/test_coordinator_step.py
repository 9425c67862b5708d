"""The job manager as a function, driven by hand: one event in, the commands out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from plait.coordinator.machine import rescale
from plait.coordinator.machine.advance import advance
from plait.coordinator.machine.invariants import check
from plait.coordinator.machine.start_nodes import with_pending_nodes
from plait.coordinator.machine.state import JobState, Pacing, Readying, State
from plait.coordinator.machine.transitions import wait_name
from plait.coordinator.messages.commands import (
    AskHosts,
    AskReport,
    Outgoing,
    ReplyTo,
    StartNode,
    StopNode,
    Tell,
)
from plait.coordinator.messages.events import (
    Answered,
    Asked,
    Event,
    Heard,
    HostsSeen,
    NodeLost,
    NodeMade,
    NodeNotMade,
    Reported,
    Restarted,
    Tick,
)
from plait.coordinator.messages.hosts import HostView
from plait.coordinator.messages.requests import (
    AbortMigration,
    Accepted,
    Cancel,
    PauseMigration,
    Rejected,
    Request,
    Rescale,
    ResumeMigration,
    Stop,
    Submit,
)
from plait.coordinator.messages.spec import JobSpec, SourceSpec
from plait.protocol.messages import (
    Answer,
    Begin,
    BinLoad,
    Commit,
    Connect,
    Done,
    Drop,
    End,
    Expect,
    Lift,
    NodeReport,
    Peer,
    Prepare,
    Promise,
    Refused,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

HOSTS = tuple(HostView(host=name, cores=4, cpu_ratio=0.0) for name in "abc")


@dataclass
class Hand:
    """Holds the state, and answers for the nodes where a test does not."""

    splits: bool = False
    silence_s: float | None = None
    state: State = field(default_factory=State)
    now: float = 0.0
    sent: list[Outgoing] = field(default_factory=list)
    replies: dict[str, Accepted | Rejected] = field(default_factory=dict)
    room: int = 1 << 30
    """The last Expect for which all nodes are ready."""

    def give(self, event: Event) -> list[Outgoing]:
        self.state, _, out = advance(self.state, event)
        check(self.state)
        self.sent += out
        self.replies |= {one.request_id: one.reply for one in out if isinstance(one, ReplyTo)}
        return out

    def ask(self, request: Request) -> list[Outgoing]:
        return self.give(Asked(at=self.now, request_id=f"r{len(self.replies)}", request=request))

    def tick(self, seconds: float = 0.1) -> list[Outgoing]:
        self.now += seconds
        return self.give(Tick(at=self.now))

    @property
    def job(self) -> JobState:
        return self.state.jobs["job"]

    def submit(self, nodes: int = 2) -> list[Outgoing]:
        spec = JobSpec(
            name="job",
            payload="",
            token="t",
            bin_bits=3,
            sources=(SourceSpec(label="in", splits=self.splits),),
            nodes=nodes,
            silence_s=self.silence_s,
        )
        return self.ask(Submit(spec=spec))

    def answer(self, command: Outgoing, answer: Answer | None = None) -> list[Outgoing]:
        """A node or the cluster does as it is told."""
        match command:
            case AskHosts():
                return self.give(HostsSeen(at=self.now, hosts=HOSTS))
            case StartNode(rank=rank, host=host):
                peer = Peer(rank=rank, host=host, port=1)
                return self.give(
                    NodeMade(at=self.now, job="job", rank=rank, host=host, peer=peer, pid=rank)
                )
            case Tell(rank=rank, command_id=number, command=told):
                said = answer or Done(epoch=100 + rank if isinstance(told, Promise) else 0)
                return self.give(
                    Answered(at=self.now, job="job", rank=rank, command_id=number, answer=said)
                )
            case AskReport(rank=rank, loads=loads):
                return self.give(self.report(rank, loads))
            case StopNode() | ReplyTo():
                return []

    def report(self, rank: int, loads: bool = False, epoch: int = 1 << 30) -> Reported:
        node = self.job.nodes[rank]
        mine = [b for b, o in enumerate(self.job.layout.owners) if o == rank] if loads else []
        report = NodeReport(
            rank=rank,
            phase="left" if node.phase == "leaving" and rank not in self.job.members else "running",
            epoch=epoch,
            delivered_epoch=epoch,
            ready=self.room,
            loads=tuple(BinLoad(bin=b, records=1, size_bytes=1_000_000) for b in mine),
        )
        return Reported(at=self.now, job="job", rank=rank, report=report, loads=loads)

    def go(self, out: list[Outgoing], until: Callable[[Outgoing], bool]) -> list[Outgoing]:
        """Everything is answered, in order, until a command is one that the test wants itself."""
        for _ in range(1000):
            while out:
                if until(out[0]):
                    return [one for one in out if until(one)]
                out = out[1:] + self.answer(out[0])
            if self.job.over:
                return []
            out = self.tick()
        raise AssertionError(f"it never came to that: {self.job.wait}")

    def running(self, nodes: int = 2) -> Hand:
        out = self.submit(nodes)
        while out:
            out = out[1:] + self.answer(out[0])
        assert self.job.phase == "running"
        return self


def tells(kind: type) -> Callable[[Outgoing], bool]:
    return lambda one: isinstance(one, Tell) and isinstance(one.command, kind)


def test_a_job_is_placed_made_prepared_and_begun() -> None:
    hand = Hand()
    out = hand.submit(3)
    assert [type(one) for one in out] == [ReplyTo, AskHosts]
    starts = hand.answer(out[1])
    assert {one.host for one in starts if isinstance(one, StartNode)} == {"a", "b", "c"}
    prepares = [one for start in starts for one in hand.answer(start)]
    told = [one.command for one in prepares if isinstance(one, Tell)]
    assert all(isinstance(one, Prepare) for one in told)
    assert [[peer.rank for peer in one.peers] for one in told if isinstance(one, Prepare)] == [
        [1, 2],
        [0, 2],
        [0, 1],
    ]
    begins = [one for tell in prepares for one in hand.answer(tell)]
    assert all(tells(Begin)(one) for one in begins)
    for tell in begins:
        hand.answer(tell)
    assert hand.job.phase == "running"


def test_a_node_that_joins_goes_to_a_host_without_one_though_it_is_busy() -> None:
    hand = Hand().running(2)
    (third,) = {"a", "b", "c"} - {node.host for node in hand.job.nodes.values()}
    (asked,) = hand.go(hand.ask(Rescale(job="job", nodes=3)), lambda one: isinstance(one, AskHosts))
    assert isinstance(asked, AskHosts)
    busy = tuple(replace(one, cpu_ratio=0.9) if one.host == third else one for one in HOSTS)
    out = hand.give(HostsSeen(at=hand.now, hosts=busy))
    assert [one.host for one in out if isinstance(one, StartNode)] == [third]


def test_a_node_counts_as_one_core_until_it_has_run_for_two_seconds() -> None:
    hand = Hand().running(1)
    (node,) = hand.job.nodes.values()
    assert node.made_at is not None
    assert hand.job.began_at is not None
    began = max(node.made_at, hand.job.began_at)

    def unmeasured(at: float) -> dict[str, int]:
        seen = with_pending_nodes(HOSTS, hand.state.jobs, at)
        return {host.host: host.unmeasured_tasks for host in seen}

    assert unmeasured(began + 1.9)[node.host] == 1
    assert unmeasured(began + 2.0)[node.host] == 0


def test_a_command_is_told_again_with_its_id_until_it_is_answered() -> None:
    hand = Hand()
    first = hand.go(hand.submit(), tells(Prepare))
    hand.answer(first[0])
    again = [one for one in hand.tick(1.0) if isinstance(one, Tell)]
    assert again == first[1:]
    after_crash = hand.give(Restarted(at=hand.now))
    assert [one for one in after_crash if isinstance(one, Tell)] == first


def test_a_node_that_is_not_made_is_replaced_on_another_host() -> None:
    hand = Hand()
    out = hand.submit(1)
    start = hand.answer(out[1])[0]
    assert isinstance(start, StartNode)
    out = hand.give(NodeNotMade(at=0.0, job="job", rank=0, reason="no room"))
    assert StopNode(job="job", rank=0, cause="") in out
    second = hand.answer(next(one for one in out if isinstance(one, AskHosts)))[0]
    assert isinstance(second, StartNode)
    assert second.rank == 1
    assert second.host != start.host
    late = hand.answer(start)
    assert [type(one) for one in late] == [StopNode], "the first one shows up after all"


def test_a_node_lost_while_preparing_lets_all_begin_anew() -> None:
    hand = Hand()
    hand.go(hand.submit(), tells(Prepare))
    out = hand.give(NodeLost(at=0.0, job="job", rank=1, reason="killed"))
    assert {one.rank for one in out if isinstance(one, StopNode)} == {0, 1}
    begins = hand.go([one for one in out if not isinstance(one, StopNode)], tells(Begin))
    assert {one.rank for one in begins if isinstance(one, Tell)} == {2, 3}
    assert hand.job.home == 2


def listen(hand: Hand, ticks: int, answering: tuple[int, ...] = (0,)) -> None:
    """Time passes, a tenth of a second a tick, and these nodes report."""
    for _ in range(ticks):
        for one in hand.tick():
            if isinstance(one, AskReport) and one.rank in answering:
                hand.answer(one)


def test_silence_is_loss_and_what_a_lost_node_says_does_not_count() -> None:
    hand = Hand().running()
    listen(hand, 99)
    assert hand.job.phase == "running", "silence is 10 s by default"
    listen(hand, 5)
    assert hand.job.end_as == "failed"
    assert "node-1" in hand.job.error
    assert "nothing was heard of it for 10." in hand.job.error
    assert "no heartbeat and no report; silence is 10 s" in hand.job.error
    assert hand.give(hand.report(1)) == [StopNode(job="job", rank=1, cause="fenced")]


def test_the_silence_of_a_job_is_its_own() -> None:
    hand = Hand(silence_s=2.0).running()
    listen(hand, 25)
    assert hand.job.end_as == "failed"
    assert "silence is 2 s" in hand.job.error


def test_a_heart_that_beats_is_not_silence() -> None:
    """A call holds the interpreter: the node neither reports nor answers."""
    hand = Hand(silence_s=2.0).running()
    for _ in range(20):
        listen(hand, 10)
        hand.give(Heard(at=hand.now, job="job", rank=1))
    assert hand.job.phase == "running"
    listen(hand, 25)
    assert hand.job.end_as == "failed"


def test_on_a_crowded_machine_silence_may_last_longer() -> None:
    hand = Hand(silence_s=2.0).running()
    report = hand.report(1)
    hand.give(replace(report, report=replace(report.report, crowd=2.5)))
    listen(hand, 45)
    assert hand.job.phase == "running"
    listen(hand, 10)
    assert hand.job.end_as == "failed"
    assert "silence is 2 s, 5.0 s while 2.5 threads want each core" in hand.job.error


def test_a_plan_that_cannot_be_made_is_refused_and_the_job_runs_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hand = Hand().running()

    def broken(*given: object) -> None:
        raise OverflowError("too large")

    monkeypatch.setattr(rescale, "plan_migration", broken)
    out = hand.ask(Rescale(job="job", nodes=3))
    while out:
        out = out[1:] + hand.answer(out[0])
    assert list(hand.replies.values())[-1] == Rejected(reason="OverflowError: too large")
    assert wait_name(hand.job) == "quiet"


def test_a_coordinator_that_was_away_blames_nobody() -> None:
    hand = Hand().running()
    hand.tick()
    hand.tick(60.0)
    assert hand.job.phase == "running"


def test_a_refused_promise_lifts_the_round_and_is_tried_again() -> None:
    hand = Hand().running()
    first = hand.go(hand.ask(Rescale(job="job", nodes=1)), tells(Promise))
    assert isinstance(first[0], Tell)
    number = first[0].command_id
    hand.answer(first[0])
    lifts = hand.answer(first[1], Refused(reason="busy"))
    told = [one.command for one in lifts if isinstance(one, Tell)]
    assert told == [Lift(round=number)] * 2
    again = hand.go(lifts, tells(Promise))
    assert len(again) == 2
    assert hand.job.changing is not None


def test_a_commit_is_for_the_greatest_fence() -> None:
    hand = Hand().running(3)
    promises = hand.go(hand.ask(Rescale(job="job", nodes=2)), tells(Promise))
    out: list[Outgoing] = []
    for one, fence in zip(promises, (7, 12, 9), strict=True):
        assert not out, "no commit before the last promise"
        out = hand.answer(one, Done(epoch=fence))
    commits = [one.command for one in out if isinstance(one, Tell)]
    assert len(commits) == 3
    assert all(isinstance(one, Commit) and one.layouts[0].epoch == 12 for one in commits)


def test_pause_holds_the_next_chunk_and_resume_goes_on() -> None:
    hand = Hand().running()
    commits = hand.go(hand.ask(Rescale(job="job", nodes=1)), tells(Commit))
    hand.ask(PauseMigration(job="job"))
    hand.go(commits, lambda one: isinstance(hand.job.wait.kind, Pacing))
    for _ in range(10):
        assert not any(isinstance(one, Tell) for one in hand.tick())
    out = hand.ask(ResumeMigration(job="job"))
    assert any(tells(Promise)(one) for one in out)


def test_the_nodes_hear_of_their_moves_before_the_first_chunk() -> None:
    hand = Hand().running(3)
    told = hand.go(hand.ask(Rescale(job="job", nodes=2)), tells(Expect))
    assert [one.rank for one in told if isinstance(one, Tell)] == [0, 1, 2]
    plans = {one.rank: one.command for one in told if isinstance(one, Tell)}
    leaving = plans[2]
    assert isinstance(leaving, Expect)
    owned = tuple(bin for bin, owner in enumerate(hand.job.layout.owners) if owner == 2)
    assert sorted(leaving.bins) == sorted(owned)
    assert set(leaving.sources) == {2}
    for rank, plan in plans.items():
        assert isinstance(plan, Expect)
        assert all(rank in pair for pair in zip(plan.sources, plan.targets, strict=True))
    promises = hand.go(told, tells(Promise))
    assert len(promises) == 3
    assert not any(tells(Expect)(one) for one in hand.go(promises, tells(Commit)))


def test_a_migration_waits_until_those_who_get_bins_have_room() -> None:
    hand = Hand(room=0).running(3)
    told = hand.go(hand.ask(Rescale(job="job", nodes=2)), tells(Expect))
    for one in told:
        hand.answer(one)
    awaits = hand.job.wait.kind
    assert isinstance(awaits, Readying)
    assert awaits.ranks == (0, 1), "the one that leaves gets nothing"
    asked = [one for one in hand.tick() if isinstance(one, AskReport)]
    assert {0, 1} <= {one.rank for one in asked}
    for one in asked:
        assert not any(tells(Promise)(o) for o in hand.answer(one)), "room for an older plan"
    hand.room = awaits.number
    out = [o for one in hand.tick() if isinstance(one, AskReport) for o in hand.answer(one)]
    assert any(tells(Promise)(one) for one in hand.go(out, tells(Promise)))


def test_a_migration_does_not_wait_for_room_for_ever() -> None:
    hand = Hand(room=0).running()
    told = hand.go(hand.ask(Rescale(job="job", nodes=1)), tells(Expect))
    for one in told:
        hand.answer(one)
    began = hand.now
    assert hand.go([], tells(Promise))
    assert hand.now - began > hand.state.policy.ready_s


def test_a_restart_tells_the_plan_again_and_a_refusal_of_it_holds_nothing_up() -> None:
    hand = Hand().running()
    told = hand.go(hand.ask(Rescale(job="job", nodes=1)), tells(Expect))
    again = hand.give(Restarted(at=hand.now))
    assert [one for one in again if isinstance(one, Tell)] == told
    for one in told:
        hand.answer(one, Refused(reason="it has no memory for that"))
    assert hand.go([], tells(Promise))


def test_an_abort_while_memory_is_made_ready_moves_nothing() -> None:
    hand = Hand(room=0).running()
    told = hand.go(hand.ask(Rescale(job="job", nodes=1)), tells(Expect))
    for one in told:
        hand.answer(one)
    before = hand.job.layout.owners
    hand.go(hand.ask(AbortMigration(job="job")), lambda one: hand.job.changing is None)
    assert hand.job.layout.owners == before
    assert hand.job.members == (0, 1)
    assert hand.job.change is not None
    assert hand.job.change.reason == "aborted by the user"
    assert not any(tells(Commit)(one) for one in hand.sent)


def test_a_node_that_is_to_get_bins_is_lost_while_memory_is_made_ready() -> None:
    hand = Hand(room=0).running()
    out = hand.go(hand.ask(Rescale(job="job", nodes=3)), tells(Expect))
    for one in out:
        hand.answer(one)
    assert isinstance(hand.job.wait.kind, Readying)
    before = hand.job.layout.owners
    out = hand.give(NodeLost(at=hand.now, job="job", rank=2, reason="killed"))
    hand.go(out, lambda one: hand.job.changing is None)
    assert hand.job.phase == "running"
    assert (hand.job.members, hand.job.layout.owners) == ((0, 1), before)


def test_an_aborted_rescale_leaves_what_has_moved_and_lets_idle_nodes_go() -> None:
    hand = Hand().running()
    out = hand.go(hand.ask(Rescale(job="job", nodes=3)), tells(Connect))
    before = hand.job.layout.owners
    out = hand.ask(AbortMigration(job="job")) + out
    hand.go(out, lambda one: hand.job.changing is None)
    assert hand.job.layout.owners == before
    assert hand.job.members == (0, 1)
    assert hand.job.change is not None
    assert hand.job.change.reason == "aborted by the user"
    assert any(isinstance(o, StopNode) and o.rank == 2 for o in hand.sent)
    assert any(tells(Drop)(o) for o in hand.sent)


def test_stop_ends_all_sources_at_one_epoch_also_during_a_rescale() -> None:
    hand = Hand().running()
    commits = hand.go(hand.ask(Rescale(job="job", nodes=1)), tells(Commit))
    out = hand.ask(Stop(job="job")) + commits
    stops = hand.go(
        out, lambda o: isinstance(o, Tell) and getattr(o.command, "stop_at", None) is not None
    )
    assert len({one.command for one in stops if isinstance(one, Tell)}) == 1
    assert hand.job.phase == "stopping"


def test_a_second_rescale_is_refused_while_the_first_is_planned() -> None:
    hand = Hand().running()
    reports = [one for one in hand.ask(Rescale(job="job", nodes=1)) if isinstance(one, AskReport)]
    out = hand.give(Asked(at=hand.now, request_id="second", request=Rescale(job="job", nodes=3)))
    reason = "job is being measured for another rescale: rescale it when it runs"
    assert [o.reply for o in out if isinstance(o, ReplyTo)] == [Rejected(reason=reason)]
    for report in reports:
        hand.answer(report)
    assert isinstance(hand.replies["r1"], Accepted)
    assert hand.job.changing is not None
    assert hand.job.changing.leaving == (1,)


def test_cancel_answers_a_rescale_that_was_being_planned() -> None:
    hand = Hand().running()
    hand.ask(Rescale(job="job", nodes=1))
    assert len(hand.replies) == 1
    out = hand.give(Asked(at=hand.now, request_id="cancel", request=Cancel(job="job")))
    rejected = [o.reply for o in out if isinstance(o, ReplyTo) and isinstance(o.reply, Rejected)]
    assert rejected == [Rejected(reason="job ended first")]
    ends = [one for one in out if tells(End)(one)]
    for one in ends:
        hand.answer(one)
    assert hand.job.phase == "cancelled"


def test_a_joiner_that_owns_nothing_is_dropped_also_where_all_nodes_read() -> None:
    """Slices are of those who own bins: it has read nothing."""
    for splits in (False, True):
        hand = Hand(splits=splits).running()
        out = hand.go(hand.ask(Rescale(job="job", nodes=3)), tells(Begin))
        hand.give(NodeLost(at=hand.now, job="job", rank=2, reason="killed"))
        hand.go([o for o in out if isinstance(o, Tell) and o.rank != 2], tells(Drop))
        assert hand.job.phase == "rescaling"


def test_a_member_that_reads_cannot_be_lost() -> None:
    hand = Hand(splits=True).running()
    hand.give(NodeLost(at=hand.now, job="job", rank=1, reason="killed"))
    assert hand.job.end_as == "failed"
    assert "a part of the input" in hand.job.error
