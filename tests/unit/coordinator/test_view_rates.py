"""Rates in a job's view are those of now: what is over, or has left, reads nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from plait.cluster.job_handle import metrics_of
from plait.coordinator.machine.job_view import view_of
from plait.coordinator.machine.observations import epochs_per_s
from plait.coordinator.machine.state import (
    JobState,
    JobWait,
    JobWatch,
    NodeState,
    Quiet,
    ReportPair,
)
from plait.coordinator.messages.spec import JobSpec
from plait.protocol.messages import Layout, NodeReport
from plait.protocol.rates import SourceRate, SourceReport

if TYPE_CHECKING:
    from plait.coordinator.messages.views import JobPhase, NodePhase

RATES = ("read_per_s", "delivered_per_s", "injected_per_s", "lag", "lag_s", "cpu_cores")


def pair(rank: int, *, due: float | None = None, per_s: float = 500.0) -> ReportPair:
    """Two reports a second apart: 1,000 records were read between them, and 100 are waiting."""
    rate = SourceRate(per_s=per_s, lag=100.0, lag_s=0.1, trust=1.0)
    source = SourceReport(label="numbers", rate=rate, read=400, due=due)
    report = NodeReport(rank=rank, phase="running", read=2000, delivered=2000, sources=(source,))
    before = NodeReport(rank=rank, phase="running", read=1000, delivered=1000)
    return ReportPair(report=report, at=2.0, before=before, before_at=1.0)


def job_of(phase: JobPhase, nodes: dict[int, tuple[NodePhase, ReportPair]]) -> JobState:
    spec = JobSpec(name="job", payload="", token="", bin_bits=2, sources=(), nodes=len(nodes))
    return JobState(
        spec=spec,
        phase=phase,
        wait=JobWait(id=1, kind=Quiet(), since=0.0, cause=""),
        next_wait=2,
        next_rank=len(nodes),
        nodes={rank: NodeState(rank=rank, host="a", phase=p) for rank, (p, _) in nodes.items()},
        watch=JobWatch(reports={rank: reports for rank, (_, reports) in nodes.items()}),
    )


def test_a_job_that_runs_has_rates() -> None:
    view = view_of(job_of("running", {0: ("member", pair(0))}), 2.1)
    figures = metrics_of(view)
    assert (figures["read_per_s"], figures["injected_per_s"], figures["lag"]) == (1000, 500, 100)
    assert "source numbers: 500/s come in" in str(view)


@pytest.mark.parametrize("phase", ["ending", "ended", "failed", "cancelled"])
def test_a_job_that_is_over_has_none(phase: JobPhase) -> None:
    view = view_of(job_of(phase, {0: ("member", pair(0))}), 100.0)
    figures = metrics_of(view)
    assert {name: figures[name] for name in RATES} == dict.fromkeys(RATES, 0.0)
    assert (figures["read"], figures["delivered"]) == (2000, 2000)
    assert "/s come in" not in str(view)


def test_a_node_that_left_counts_by_what_it_has_read_only() -> None:
    """The source is read by node-1 now, whose rate is less sure yet than that of the other was."""
    here = pair(1, per_s=20.0)
    (source,) = here.report.sources
    unsure = replace(source, rate=replace(source.rate, trust=0.3))
    here = replace(here, report=replace(here.report, sources=(unsure,)))
    view = view_of(job_of("running", {0: ("left", pair(0)), 1: ("member", here)}), 2.1)
    assert (view.sources["numbers"].per_s, view.sources["numbers"].trust) == (20.0, 0.3)


def test_what_a_node_that_left_has_read_of_a_clock_is_read() -> None:
    nodes: dict[int, tuple[NodePhase, ReportPair]] = {
        0: ("left", pair(0, due=700.0)),
        1: ("member", pair(1, due=1000.0)),
    }
    rate = view_of(job_of("running", nodes), 2.1).sources["numbers"]
    assert (rate.per_s, rate.lag, rate.trust) == (500.0, 200.0, 1.0)


def test_a_node_that_has_just_joined_has_no_pace() -> None:
    """Its first report is of before it began: the epochs between were not emitted by it."""

    def at(rank: int, before: int, now: int) -> ReportPair:
        reports = pair(rank)
        return replace(
            reports,
            report=replace(reports.report, epoch=now),
            before=replace(reports.before, epoch=before),
        )

    nodes: dict[int, tuple[NodePhase, ReportPair]] = {
        0: ("member", at(0, 441_500, 442_000)),
        1: ("member", at(1, 0, 442_000)),
    }
    job = job_of("running", nodes)
    layout = Layout(epoch=1, members=(0, 1), owners=(0, 0, 1, 1), readers=(0,))
    assert epochs_per_s(replace(job, layouts=(layout,))) == 500.0
