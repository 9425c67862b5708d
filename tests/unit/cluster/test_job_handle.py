"""A handle on a job, with a link that writes down what is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait.cluster.job_handle import JobHandle
from plait.coordinator.messages.requests import (
    Accepted,
    Cancel,
    Drain,
    Rejected,
    Reply,
    Request,
    Rescale,
    Take,
)
from plait.coordinator.messages.views import JobQuality, JobView, NodeView
from plait.errors import ClusterError, Interrupted, JobError
from plait.protocol.rates import SourceRate
from plait.results.outcomes import NodeOutcome
from plait.results.result import Account

if TYPE_CHECKING:
    from plait.coordinator.messages.views import NodePhase

VIEW = JobView(name="job", phase="running", nodes=(), home=0, order="total", bins=16)


class Written:
    """A link to a cluster that is a list of views; the last one stays."""

    def __init__(self, *views: JobView) -> None:
        self.seen = list(views)
        self.asked: list[Request] = []

    def request(self, request: Request, timeout_s: float = 0.0) -> Reply:
        self.asked.append(request)
        return Accepted(job="job", plan="a plan")

    def view(self, job: str) -> JobView | None:
        return self.seen.pop(0) if len(self.seen) > 1 else self.seen[0]

    def views(self) -> tuple[JobView, ...]:
        return (self.seen[0],)

    def quality(self, job: str) -> JobQuality:
        return JobQuality()

    def outcome(self, job: str, rank: int) -> NodeOutcome | None:
        return None

    def explain(self, job: str, rank: int) -> str:
        return ""

    def logs(self, job: str, rank: int, lines: int) -> list[str]:
        return []


def test_rates_of_sources_are_shown_and_are_metrics() -> None:
    parts = tuple(
        (str(number), SourceRate(per_s=100.0, lag=float(number), lag_s=0.5, trust=1.0))
        for number in range(10)
    )
    clicks = SourceRate(per_s=1000.0, lag=45.0, lag_s=0.5, trust=1.0, partitions=parts)
    clock = SourceRate(per_s=10.0, lag=None, lag_s=None, trust=0.0)
    view = replace(VIEW, sources={"clicks": clicks, "clock": clock})
    handle = JobHandle(Written(view), "job")
    figures = handle.metrics()
    assert (figures["injected_per_s"], figures["lag"], figures["lag_s"]) == (1010.0, 45.0, 0.5)
    lines = str(handle.status()).splitlines()
    assert lines[1] == "  source clicks: 1,000/s come in, 45 behind (0.5 s)"
    assert lines[2] == "    0: 100/s come in, 0 behind (0.5 s)"
    assert lines[10] == "    and 2 more"
    assert lines[11] == "  source clock: 10/s come in, the lag is not known, trust 0.0"


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"nodes": 2.5}, "nodes is 2.5; it must be a whole number from 1 to 4,096"),
    ({"nodes": "3"}, "nodes is '3'"),
    ({"nodes": True}, "nodes is True"),
    ({"nodes": 0}, "at least one node"),
    ({"nodes": 10**6}, "nodes is 1000000"),
    ({"strategy": "flud"}, "strategy is 'flud'; it must be one of \"all_at_once\""),
    ({"strategy": ["fluid"]}, "strategy is"),
    ({"gap": 10**30}, "gap is 1000000"),
    ({"gap": -1}, "gap is -1"),
    ({"gap": 1.5}, "gap is 1.5; expected a number of epochs, or a time"),
    ({"gap": True}, "gap is True"),
    ({"throttle": float("nan")}, "throttle is nan"),
    ({"throttle": "fast"}, "throttle is 'fast'"),
    ({"throttle": 0}, "throttle is 0"),
    ({"throttle": [1]}, r"throttle is \[1\]"),
    ({"dry_run": "yes"}, "dry_run is 'yes'; it must be True or False"),
]


@pytest.mark.parametrize(("given", "words"), MISTAKES)
def test_a_mistake_is_said_before_anybody_is_asked(given: dict[str, Any], words: str) -> None:
    link = Written(VIEW)
    with pytest.raises(JobError, match=words):
        JobHandle(link, "job").rescale(**given)
    if "nodes" not in given:
        with pytest.raises(JobError, match=words):
            JobHandle(link, "job").drain("node-1", **given)
    assert link.asked == []


def test_other_mistakes_are_said_too() -> None:
    handle = JobHandle(Written(VIEW), "job")
    with pytest.raises(JobError, match='finish is \'now\'; it must be one of "leave", "flush"'):
        handle.stop(finish="now")  # type: ignore[arg-type]
    with pytest.raises(JobError, match="balance is 1"):
        handle.rescale(3, balance=1)  # type: ignore[arg-type]
    with pytest.raises(JobError, match="a node is 99999999999999999999"):
        handle.drain("node-99999999999999999999")


def test_a_rescale_waits_until_the_job_runs() -> None:
    starting = replace(VIEW, phase="starting")
    link = Written(starting, replace(VIEW, phase="beginning"), VIEW)
    handle = JobHandle(link, "job")
    assert str(handle.rescale(3)) == "a plan"
    handle.drain(1)
    assert link.asked == [Rescale(job="job", nodes=3), Drain(job="job", rank=1)]


def test_a_job_that_does_not_start_cannot_be_rescaled() -> None:
    failed = replace(VIEW, phase="failed", error="no host for its nodes")
    handle = JobHandle(Written(replace(VIEW, phase="placing"), failed), "job")
    with pytest.raises(ClusterError, match='"job" did not start: no host for its nodes'):
        handle.rescale(3)


def test_a_coordinator_that_hangs_is_not_waited_for() -> None:
    stale = replace(VIEW, stale_s=31.0, warning="the coordinator has not looked after its jobs")
    for wait in (JobHandle.wait, JobHandle.result):
        with pytest.raises(ClusterError, match='"job" is running, but the coordinator has not'):
            wait(JobHandle(Written(VIEW, stale), "job"))
    assert JobHandle(Written(stale), "job").status().stale_s == 31.0


def test_a_result_is_taken_once_it_is_here() -> None:
    link = Written(VIEW, replace(VIEW, phase="cancelled"))
    with pytest.raises(Interrupted, match="cancelled before it began"):
        JobHandle(link, "job").result()
    assert link.asked == [Take(job="job")]


def test_a_job_makes_room_for_another_of_its_name() -> None:
    link = Written(VIEW, replace(VIEW, phase="ending"), replace(VIEW, phase="cancelled"))
    JobHandle(link, "job")._end_for_another()
    assert link.asked == [Cancel(job="job")]
    over = Written(replace(VIEW, phase="ended"))
    JobHandle(over, "job")._end_for_another()
    assert over.asked == []


def test_a_request_that_is_refused_is_an_error_with_the_reason() -> None:
    class Refusing(Written):
        def request(self, request: Request, timeout_s: float = 0.0) -> Reply:
            return Rejected(reason="not now")

    with pytest.raises(JobError, match="not now"):
        JobHandle(Refusing(VIEW), "job").cancel()


SUBMITTED: list[tuple[dict[str, Any], str]] = [
    ({"nodes": 2.5}, "nodes is 2.5"),
    ({"nodes": True}, "nodes is True"),
    ({"nodes": 10**6}, "nodes is 1000000"),
    ({"name": ""}, "a name of 1 to 200 printable letters"),
    ({"name": 5}, "a name of 1 to 200 printable letters"),
    ({"prefer": "abc"}, "prefer must be names of hosts"),
    ({"prefer": [5]}, "prefer must be names of hosts"),
    ({"silence": "soon"}, "soon"),
    ({"silence": 0}, "silence is 0.0; it must be a number of seconds from 0.1"),
    ({"replace": "yes"}, "replace is 'yes'"),
    ({"wait": "ended"}, "wait is 'ended'; it must be \"running\""),
]


@pytest.mark.parametrize(("given", "words"), SUBMITTED)
def test_submit_says_mistakes_before_a_cluster_is_looked_for(
    given: dict[str, Any], words: str
) -> None:
    job = plait.Job("mistaken")
    job.source(plait.Items([{"n": 1}])).sink(plait.Collect())
    with pytest.raises(JobError, match=words):
        plait.submit(job, address="127.0.0.1:1", **given)


class Leaving(Written):
    """A link to a job that is over, with the outcomes that were stored."""

    def __init__(self, view: JobView, outcomes: dict[int, NodeOutcome]) -> None:
        super().__init__(view)
        self.stored = outcomes

    def outcome(self, job: str, rank: int) -> NodeOutcome | None:
        return self.stored.get(rank)


def part(rank: int, *, read: int, delivered: int) -> NodeOutcome:
    account = Account(read=read, delivered=delivered)
    outputs = {"out": [delivered]} if delivered else {}
    return NodeOutcome(rank=rank, seconds=1.0, account=account, operators=(), outputs=outputs)


def node(rank: int, phase: NodePhase, **figures: Any) -> NodeView:
    return NodeView(rank=rank, host="a", phase=phase, reported="running", **figures)


HOME = node(0, "member", delivered=10)
"""Has the sinks."""


def ended(*nodes: NodeView, **given: Any) -> JobView:
    return replace(VIEW, phase="ended", nodes=nodes, **given)


def test_the_outcomes_of_nodes_that_left_long_ago_are_a_part_of_the_result() -> None:
    view = ended(HOME, node(7, "left"), departed=((1, 2), (4, 4)))
    reads = {1: 1, 2: 2, 4: 3, 7: 1}
    parts = {rank: part(rank, read=read, delivered=0) for rank, read in reads.items()}
    link = Leaving(view, {0: part(0, read=3, delivered=10), **parts})
    result = JobHandle(link, "job").result()
    assert (result.account.read, result.account.delivered, result.without) == (10, 10, ())


@pytest.mark.parametrize("gone", [node(1, "lost", read=4), node(1, "left", read=4)])
def test_a_result_outlives_a_node_that_died_as_it_left(gone: NodeView) -> None:
    """All records were delivered by the node with the sinks."""
    link = Leaving(ended(HOME, gone), {0: part(0, read=6, delivered=10)})
    result = JobHandle(link, "job").result()
    assert (result.outputs, result.without) == ({"out": [10]}, ("node-1",))
    assert "without the counts of node-1" in str(result)


def test_a_node_that_was_to_join_is_not_missed() -> None:
    link = Leaving(ended(HOME, node(1, "lost")), {0: part(0, read=10, delivered=10)})
    assert JobHandle(link, "job").result().without == ()


@pytest.mark.parametrize("phase", ["lost", "left"])
def test_rows_of_a_node_with_sinks_are_missed(phase: NodePhase) -> None:
    gone = node(1, phase, delivered=3)
    link = Leaving(ended(HOME, gone, order="key"), {0: part(0, read=7, delivered=7)})
    with pytest.raises(ClusterError, match=r"is gone with node-1$"):
        JobHandle(link, "job").result()


def test_a_member_is_missed() -> None:
    link = Leaving(ended(HOME, node(1, "member")), {1: part(1, read=7, delivered=7)})
    with pytest.raises(ClusterError, match=r"is gone with node-0$"):
        JobHandle(link, "job").result()


@pytest.mark.parametrize("asked", [99, "node-99"])
def test_what_a_node_printed_that_is_not_there(asked: int | str) -> None:
    view = ended(HOME, node(7, "lost"), departed=((1, 2),))
    handle = JobHandle(Written(view), "job")
    with pytest.raises(JobError, match="job has no node-99; it has node-0, node-1, node-2, node-7"):
        handle.logs(asked)
    assert [handle.logs(rank) for rank in (0, 1, "node-2", 7)] == [""] * 4
