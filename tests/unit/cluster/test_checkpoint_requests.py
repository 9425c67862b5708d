"""What a user asks about checkpoints, and what the coordinator is asked for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import plait
from plait.checkpoints.config import Checkpoint
from plait.cluster.job_handle import JobHandle
from plait.cluster.submit import checkpoint_spec
from plait.coordinator.messages.request_checks import objection_to
from plait.coordinator.messages.requests import Accepted, Reply, Request, Save, Submit
from plait.coordinator.messages.spec import CheckpointSpec
from plait.coordinator.messages.views import CheckpointView, JobQuality, JobView, RecoveryView
from plait.errors import ClusterError, JobError
from tests.sim.simulator import spec_of

if TYPE_CHECKING:
    from plait.results.outcomes import NodeOutcome

VIEW = JobView(name="job", phase="running", nodes=(), home=0, order="total", bins=8)
NONE = CheckpointView(url="/ckpt", every_s=10.0)


class FakeLink:
    """A manager that shows these views, one after the other, and then the last one."""

    def __init__(self, *views: CheckpointView | None) -> None:
        self.views_left = list(views)
        self.asked: list[Request] = []

    def request(self, request: Request, timeout_s: float = 0.0) -> Reply:
        self.asked.append(request)
        return Accepted(job="job", number=4)

    def view(self, job: str) -> JobView | None:
        known = self.views_left.pop(0) if len(self.views_left) > 1 else self.views_left[0]
        return replace(VIEW, checkpoint=known)

    def views(self) -> tuple[JobView, ...]:
        return ()

    def quality(self, job: str) -> JobQuality:
        return JobQuality()

    def outcome(self, job: str, rank: int) -> NodeOutcome | None:
        return None

    def explain(self, job: str, rank: int) -> str:
        return ""

    def logs(self, job: str, rank: int, lines: int) -> list[str]:
        return []


def test_a_checkpoint_is_waited_for() -> None:
    link = FakeLink(replace(NONE, number=3), replace(NONE, number=3), replace(NONE, number=5))
    assert JobHandle(link, "job").checkpoint() == 5
    assert link.asked == [Save(job="job")]


def test_a_savepoint_is_known_by_its_name() -> None:
    link = FakeLink(replace(NONE, number=9), replace(NONE, number=10, savepoints=("a", "b")))
    assert JobHandle(link, "job").savepoint("b") == 10
    with pytest.raises(JobError, match="needs a name"):
        JobHandle(link, "job").savepoint("")


def test_a_checkpoint_that_was_given_up_is_an_error() -> None:
    older = (3, "", "before it was asked for")
    link = FakeLink(replace(NONE, failed=(older,)), replace(NONE, failed=(older, (4, "", "full"))))
    with pytest.raises(ClusterError, match="was made: full"):
        JobHandle(link, "job").checkpoint()


def test_where_a_job_is_saved() -> None:
    assert checkpoint_spec(None) is None
    given = Checkpoint("s3://bucket/carts", every="2s", keep=5, max_age="1m")
    assert checkpoint_spec(given) == CheckpointSpec(
        url="s3://bucket/carts", every_s=2.0, keep=5, max_age_s=60.0
    )
    found = checkpoint_spec("ckpt")
    assert found is not None
    assert found.url.startswith("/")
    assert found.oldest_s == 100.0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (CheckpointSpec(url=""), "a path or an address"),
        (CheckpointSpec(url="x", every_s=0.0), "every is 0.0"),
        (CheckpointSpec(url="x", keep=0), "keep is 0"),
        (CheckpointSpec(url="x", max_age_s=1.0), "max_age is 1.0"),
        (CheckpointSpec(url="x", restarts=-1), "restarts is -1"),
        (CheckpointSpec(url="x", start="latest"), "start='latest' is not known; write"),
        (CheckpointSpec(url="x", start="savepoint:"), '"savepoint:NAME"'),
        (CheckpointSpec(url="x", start="savepoint:a/b"), "cannot name a savepoint"),
        (CheckpointSpec(url="x", start="checkpoint:x"), '"checkpoint:NUMBER"'),
        (CheckpointSpec(url="x", start=7), "start=7"),  # type: ignore[arg-type]
        ("ckpt", "must be a CheckpointSpec"),
    ],
)
def test_what_cannot_be_is_refused(given: object, words: str) -> None:
    spec = replace(spec_of(), checkpoint=given)  # type: ignore[arg-type]
    assert words in objection_to(Submit(spec=spec))


@pytest.mark.parametrize("start", ["", "new", "checkpoint:0", "savepoint:before-upgrade"])
def test_where_a_job_begins(start: str) -> None:
    made = checkpoint_spec("s3://bucket/carts", start)
    assert made is not None
    assert made.start == start
    assert objection_to(Submit(spec=replace(spec_of(), checkpoint=made))) == ""


def test_a_start_needs_checkpoints_and_sense() -> None:
    job = plait.Job("started")
    job.source([1], name="in").sink(plait.Discard())
    with pytest.raises(JobError, match="say where the checkpoints are"):
        plait.submit(job, start="new")
    with pytest.raises(JobError, match="start='old' is not known"):
        plait.submit(job, checkpoint="ckpt", start="old")


def test_checkpoints_need_the_total_order() -> None:
    spec = replace(spec_of(), checkpoint=CheckpointSpec(url="x"))
    assert objection_to(Submit(spec=spec)) == ""
    assert 'order="total"' in objection_to(Submit(spec=replace(spec, order="key")))


@pytest.mark.parametrize("name", ["a/b", "..", ".hidden", "x" * 300, 7])
def test_a_savepoint_has_the_name_of_a_file(name: object) -> None:
    assert objection_to(Save(job="job", name=name))  # type: ignore[arg-type]
    assert objection_to(Save(job="job", name="before-upgrade_2.1")) == ""


def test_the_status_tells_of_checkpoints() -> None:
    back = RecoveryView(
        attempt=2,
        reason="node-1 was lost",
        number=7,
        began_at=1.0,
        ended_at=2.5,
        steps=(("halt", 0.5), ("survey", 1.0)),
    )
    known = replace(NONE, number=8, age_s=3.0, size_bytes=2_000_000, seconds=0.25, recovery=back)
    text = str(replace(VIEW, checkpoint=known))
    assert "8 is 3.0 s old" in text
    assert "attempt 2 went back to checkpoint 7 in 1.50 s (halt 0.50 s, survey 1.00 s)" in text
