"""The commands for clusters and the handle behind them, over a cluster of plain data."""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait.cli import main
from plait.cluster.job_handle import JobHandle, rank_of
from plait.cluster.migration_handle import bytes_per_s, gap_epochs
from plait.cluster.submit import settings_for_nodes, submit
from plait.coordinator.messages.requests import (
    AbortMigration,
    Accepted,
    Cancel,
    Drain,
    PauseMigration,
    Rejected,
    Rescale,
    ResumeMigration,
    Save,
    Stop,
    Throttle,
)
from plait.coordinator.messages.views import (
    CheckpointView,
    JobQuality,
    JobView,
    MigrationView,
    NodeView,
)
from plait.errors import ClusterError
from plait.protocol.quality import Alert, QualityStep, QueryQuality, Reason
from plait.results.outcomes import NodeOutcome
from plait.results.result import Account, OperatorCounts

if TYPE_CHECKING:
    from plait.coordinator.messages.requests import Reply, Request


def node(rank: int, **given: Any) -> NodeView:
    facts: dict[str, Any] = {"host": f"10.0.0.{rank}", "phase": "member", "bins": 512}
    return NodeView(rank=rank, **{**facts, **given})


RUNNING = JobView(
    name="carts",
    phase="running",
    nodes=(node(0, read=70, delivered=60, read_per_s=7.0), node(1, read=30, p99_ms=4.5)),
    home=0,
    order="total",
    bins=1024,
    began_at=10.0,
    now=12.0,
)
DONE = MigrationView(number=1, strategy="fluid", phase="done", bins=8, bins_moved=8)


def part(rank: int, **given: Any) -> NodeOutcome:
    operators = (OperatorCounts(number=0, name="source", at="a.py:1", records_in=5, records_out=5),)
    facts: dict[str, Any] = {"account": Account(read=5, delivered=5), "operators": operators}
    return NodeOutcome(rank=rank, seconds=1.0, **{**facts, **given})


STEPS = tuple(
    QualityStep(
        at_s=2.5, reason=Reason(subject=query, was="1.00", now="0.50", because="so", query=query)
    )
    for query in ("tips", "fares")
)


@dataclass
class PlainLink:
    """A cluster that remembers what it was asked."""

    job: JobView = RUNNING
    parts: dict[int, NodeOutcome] = field(default_factory=dict)
    refusal: str = ""
    asked: list[Request] = field(default_factory=list)

    def request(self, request: Request, timeout_s: float = 1.0) -> Reply:
        self.asked.append(request)
        if self.refusal:
            return Rejected(reason=self.refusal)
        if isinstance(request, Rescale | Drain) and not request.dry_run:
            self.job = replace(self.job, migration=DONE)
        if isinstance(request, Cancel):
            self.job = replace(self.job, phase="cancelled")
        if isinstance(request, Stop):
            self.job = replace(self.job, phase="ended")
        return Accepted(job=self.job.name, plan="8 bins, 1 kB")

    def view(self, job: str) -> JobView | None:
        return self.job if job == self.job.name else None

    def views(self) -> tuple[JobView, ...]:
        return (self.job,)

    def quality(self, job: str) -> JobQuality:
        return JobQuality(steps=STEPS)

    def outcome(self, job: str, rank: int) -> NodeOutcome | None:
        return self.parts.get(rank)

    def explain(self, job: str, rank: int) -> str:
        return f"stages of {job} on node-{rank}"

    def logs(self, job: str, rank: int, lines: int) -> list[str]:
        return [f"line {n}" for n in range(lines)]


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> PlainLink:
    found = PlainLink()
    module = importlib.import_module("plait.cluster.submit")

    def attach(name: str, address: str | None = None, *, namespace: str = "plait") -> JobHandle:
        if found.view(name) is None:
            raise plait.JobError(f'there is no job "{name}"')
        return JobHandle(found, name)

    monkeypatch.setattr(module, "attach", attach)
    monkeypatch.setattr(module, "jobs", lambda address, namespace: found.views())
    return found


def test_ls_shows_every_job(link: PlainLink, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls"]) == 0
    assert "carts  running" in capsys.readouterr().out
    assert main(["ls", "--json"]) == 0
    (view,) = json.loads(capsys.readouterr().out)
    assert [one["rank"] for one in view["nodes"]] == [0, 1]


def test_status_is_a_table_or_json(link: PlainLink, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "carts"]) == 0
    assert "node-1" in capsys.readouterr().out
    assert main(["status", "carts", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["phase"] == "running"


def test_an_error_is_one_message_and_status_2(
    link: PlainLink, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "other"]) == 2
    told = capsys.readouterr()
    assert told.err == 'plait: JobError: there is no job "other"\n'
    link.refusal = "it is being rescaled"
    assert main(["rescale", "carts", "--nodes", "3"]) == 2
    assert capsys.readouterr().err == "plait: JobError: it is being rescaled\n"


def test_a_savepoint_is_waited_for(link: PlainLink, capsys: pytest.CaptureFixture[str]) -> None:
    known = CheckpointView(url="saved", every_s=10.0, number=6, savepoints=("before-upgrade",))
    link.job = replace(RUNNING, checkpoint=known)
    assert main(["savepoint", "carts", "before-upgrade"]) == 0
    assert capsys.readouterr().out == "carts: savepoint before-upgrade is checkpoint 6\n"
    assert link.asked == [Save(job="carts", name="before-upgrade")]
    assert main(["checkpoint", "carts"]) == 0
    assert capsys.readouterr().out == "carts: checkpoint 6\n"
    failed = replace(known, savepoints=(), failed=((7, "again", "the store is full"),))
    link.job = replace(RUNNING, checkpoint=failed)
    assert main(["savepoint", "carts", "again"]) == 2
    assert capsys.readouterr().err == (
        'plait: ClusterError: no checkpoint of the job "carts" was made: the store is full\n'
    )


def test_rescale_shows_the_plan_and_waits(
    link: PlainLink, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--nodes", "3", "--strategy", "batched", "--gap", "4", "--throttle", "5MB"]
    assert main(["rescale", "carts", *arguments]) == 0
    assert capsys.readouterr().out == "8 bins, 1 kB\n"
    (request,) = link.asked
    assert request == Rescale(
        job="carts", nodes=3, strategy="batched", gap_epochs=4, throttle_bytes_per_s=5e6
    )


def test_a_dry_run_starts_nothing(link: PlainLink, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rescale", "carts", "--nodes", "3", "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"job": "carts", "plan": "8 bins, 1 kB", "migration": None}
    assert link.job.migration is None


def test_drain_and_its_json(link: PlainLink, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drain", "carts", "node-1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["migration"]["phase"] == "done"
    assert link.asked == [Drain(job="carts", rank=1)]


def test_cancel_at_once_or_after_what_was_read(
    link: PlainLink, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cancel", "carts", "--drain"]) == 0
    assert capsys.readouterr().out == "carts is ended\n"
    assert main(["cancel", "carts"]) == 0
    assert capsys.readouterr().out == "carts is cancelled\n"
    assert link.asked == [Stop(job="carts"), Cancel(job="carts")]


def test_logs_and_explain(link: PlainLink, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "carts", "node-1", "--lines", "2"]) == 0
    assert capsys.readouterr().out == "node-1  line 0\nnode-1  line 1\n"
    assert main(["explain", "carts"]) == 0
    assert capsys.readouterr().out == "stages of carts on node-0\n"


def test_top_once(link: PlainLink, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once"]) == 0
    told = capsys.readouterr().out
    assert "carts" in told
    assert "node-1" in told


@pytest.mark.parametrize("command", ["submit", "ls", "status", "rescale", "drain", "cancel"])
def test_help_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"example:\n  plait {command}" in capsys.readouterr().out


def test_a_result_is_made_of_all_parts() -> None:
    link = PlainLink(job=replace(RUNNING, phase="ended"), parts={0: part(0), 1: part(1)})
    assert JobHandle(link, "carts").result().account == Account(read=10, delivered=10)


def test_a_part_that_is_gone_is_not_passed_over() -> None:
    link = PlainLink(job=replace(RUNNING, phase="ended"), parts={0: part(0)})
    with pytest.raises(ClusterError, match="gone with node-1"):
        JobHandle(link, "carts").result()


def test_the_first_error_of_all_parts_is_raised() -> None:
    late = part(0, error=plait.RecordError("late"), failed_at=(9, 0, 0, 1))
    early = part(1, error=plait.RecordError("early"), failed_at=(3, 0, 0, 1))
    link = PlainLink(job=replace(RUNNING, phase="failed"), parts={0: late, 1: early})
    with pytest.raises(plait.RecordError, match="early"):
        JobHandle(link, "carts").result()


def test_a_job_that_failed_without_a_record_says_why() -> None:
    link = PlainLink(job=replace(RUNNING, phase="failed", error="node-1 is gone"))
    with pytest.raises(ClusterError, match="node-1 is gone"):
        JobHandle(link, "carts").result()


def test_a_cancelled_job_gives_what_was_done() -> None:
    link = PlainLink(job=replace(RUNNING, phase="cancelled"), parts={0: part(0)})
    with pytest.raises(plait.Interrupted) as raised:
        JobHandle(link, "carts").result()
    assert raised.value.result.account.read == 5


def test_waiting_has_a_limit() -> None:
    with pytest.raises(plait.TimedOut, match="still running"):
        JobHandle(PlainLink(), "carts").result(timeout=0)


def test_a_change_is_steered() -> None:
    link = PlainLink()
    change = JobHandle(link, "carts").rescale(4)
    change.pause()
    change.resume()
    change.throttle("1MB")
    change.abort()
    assert link.asked[1:] == [
        PauseMigration(job="carts"),
        ResumeMigration(job="carts"),
        Throttle(job="carts", bytes_per_s=1e6),
        AbortMigration(job="carts"),
    ]
    assert change.wait().progress() == DONE


def test_a_plan_must_be_started_before_it_is_waited_for() -> None:
    plan = JobHandle(PlainLink(), "carts").rescale(4, dry_run=True)
    with pytest.raises(plait.JobError, match="only a plan"):
        plan.wait()
    assert str(plan.start().wait()) == "8 bins, 1 kB"


def test_a_change_that_was_given_up_says_why() -> None:
    link = PlainLink()
    change = JobHandle(link, "carts").rescale(4)
    link.job = replace(link.job, migration=replace(DONE, phase="failed", reason="node-3 is gone"))
    with pytest.raises(plait.JobError, match="node-3 is gone"):
        change.wait()


def test_metrics_are_of_the_whole_job() -> None:
    found = JobHandle(PlainLink(), "carts").metrics()
    assert (found["read"], found["delivered"], found["nodes"]) == (100, 60, 2)
    assert (found["read_per_s"], found["p99_ms"]) == (7.0, 4.5)


@pytest.mark.parametrize(("given", "rank"), [("node-2", 2), (2, 2), ("3", 3)])
def test_nodes_by_name(given: str | int, rank: int) -> None:
    assert rank_of(given) == rank


@pytest.mark.parametrize("given", ["node-x", "", -1, True])
def test_no_nodes(given: Any) -> None:
    with pytest.raises(plait.JobError, match="no such node"):
        rank_of(given)


def test_sizes_and_gaps() -> None:
    assert bytes_per_s(None) is None
    assert bytes_per_s("1.5 GB/s") == 1.5e9
    assert bytes_per_s(10) == 10.0
    assert gap_epochs(3, lambda: 1.0) == 3
    assert gap_epochs("50ms", lambda: 100.0) == 5
    for wrong in ("fast", 0, "0MB"):
        with pytest.raises(plait.JobError, match="throttle"):
            bytes_per_s(wrong)
    with pytest.raises(plait.JobError, match="gap"):
        gap_epochs(-1, lambda: 1.0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"queue": "shared"}, 'use "lanes" on nodes'),
        ({"order": "none"}, 'use "total" or "key"'),
        ({"timeout_s": 3.0}, "handle.result"),
        ({"colour": 1}, "colour"),
    ],
)
def test_settings_of_one_process_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(plait.JobError, match=words):
        settings_for_nodes(settings)


def test_a_wrong_number_of_nodes_is_refused() -> None:
    job = plait.Job("j")
    job.source(plait.Items([{"n": 1}])).sink(plait.Collect())
    for nodes in (0, -1, True, 1.5):
        with pytest.raises(plait.JobError, match="nodes is"):
            submit(job, nodes=nodes)  # type: ignore[arg-type]


def test_why_shows_queries_alerts_and_decisions(
    link: PlainLink, capsys: pytest.CaptureFixture[str]
) -> None:
    alert = Alert(
        job="carts", query="tips", since=1.0, floor=0.5, attainable=0.4, because="too much"
    )
    link.job = replace(
        RUNNING,
        queries=tuple(
            QueryQuality(query=query, floor=0.5, asked=0.5) for query in ("tips", "fares")
        ),
        alerts=(alert,),
    )
    assert main(["why", "carts", "tips"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "alert: tips: too much"
    assert shown[1].startswith("tips: exact, 1.00 of its input (asked 0.50, floor 0.50")
    assert shown[2:] == ["   2.5 s  tips 1.00 -> 0.50: so"]
    assert main(["why", "carts", "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)
    assert [step["reason"]["query"] for step in steps] == ["tips", "fares"]
    assert main(["why", "carts", "tisp"]) == 2
    assert "its queries are: 'tips', 'fares'" in capsys.readouterr().err
    assert main(["status", "carts"]) == 0
    assert "  alert: tips: too much" in capsys.readouterr().out
