"""Cores from what nodes report: over half a second, the middle one of three, shown by name."""

from __future__ import annotations

from dataclasses import replace

from plait.coordinator.machine.job_view import uses_of
from plait.coordinator.messages.spec import JobSpec, PartSpec
from plait.coordinator.messages.views import JobView, NodeView
from plait.protocol.messages import NodeReport, TaskReport
from plait.protocol.part_use import cores_by_query, merge_uses
from plait.shedding.cpu_rates import CpuWatch, note_cpu

SPEC = JobSpec(
    name="job",
    payload="",
    token="",
    bin_bits=4,
    sources=(),
    nodes=1,
    parts=(
        PartSpec(name="in", kind="rows", queries=("a", "b")),
        PartSpec(name="a", kind="keys", inputs=(0,), queries=("a",)),
    ),
)


def report(first_s: float, second_s: float, process_s: float, attempt: int = 0) -> NodeReport:
    tasks = (TaskReport(part=0, cpu_s=first_s, taken=10), TaskReport(part=1, cpu_s=second_s))
    return NodeReport(
        rank=0, phase="running", tasks=tasks, process_cpu_s=process_s, attempt=attempt
    )


def play(*looks: tuple[float, NodeReport]) -> CpuWatch:
    watch: CpuWatch | None = None
    for at, seen in looks:
        watch = note_cpu(watch, seen, at)
    assert watch is not None
    return watch


def test_a_rate_is_over_half_a_second() -> None:
    first = (0.0, report(0.0, 0.0, 5.0))
    assert play(first).cores == ()
    assert play(first, (0.4, report(0.4, 0.0, 5.5))).cores == ()
    assert play(first, (0.4, report(0.4, 0.0, 5.5)), (0.5, report(0.1, 0.2, 5.5))).cores == (
        1.0,
        0.2,
        0.4,
    )


def test_the_middle_one_of_three_counts() -> None:
    watch = play(
        (0.0, report(0.0, 0.0, 0.0)),
        (1.0, report(0.5, 0.0, 1.0)),
        (2.0, report(1.0, 0.0, 2.0)),
        (3.0, report(9.0, 0.0, 9.0)),
    )
    assert watch.cores == (1.0, 0.5, 0.0)
    watch = note_cpu(watch, report(10.0, 0.0, 12.0), 4.0)
    watch = note_cpu(watch, report(11.0, 0.0, 15.0), 5.0)
    assert watch.cores == (3.0, 1.0, 0.0), "only the last three are kept"


def test_an_engine_that_was_built_anew_begins_anew() -> None:
    watch = play((0.0, report(5.0, 5.0, 10.0)), (1.0, report(6.0, 5.0, 11.0)))
    assert watch.cores
    again = note_cpu(watch, report(0.0, 0.0, 11.5, attempt=1), 2.0)
    assert again.cores == ()
    assert note_cpu(again, report(0.5, 0.0, 12.5, attempt=1), 3.0).cores == (1.0, 0.5, 0.0)


def test_sub_pipelines_and_queries_of_a_job() -> None:
    watch = play((0.0, report(0.0, 0.0, 0.0)), (1.0, report(0.5, 0.25, 1.0)))
    tasks = uses_of(SPEC, watch, watch.report)
    assert [(use.name, use.cores, use.taken) for use in tasks] == [("in", 0.5, 10), ("a", 0.25, 0)]
    both = merge_uses([tasks, tasks])
    assert [(use.cores, use.taken) for use in both] == [(1.0, 20), (0.5, 0)]
    assert cores_by_query(both) == {"a": 1.0, "b": 0.5}
    old = replace(SPEC, parts=())
    assert uses_of(old, watch, watch.report) == (), "a job that does not say what it is cut into"


def test_a_view_shows_them_as_a_table() -> None:
    watch = play((0.0, report(0.0, 0.0, 0.0)), (1.0, report(0.5, 0.25, 1.0)))
    tasks = uses_of(SPEC, watch, watch.report)
    node = NodeView(
        rank=0, host="a", phase="member", tasks=tasks, cpu_cores=1.0, other_cpu_cores=0.25
    )
    view = JobView(
        name="job", phase="running", nodes=(node,), home=0, order="total", bins=16, parts=tasks
    )
    shown = str(view).split("\n")
    assert shown[-6].split() == [
        *("sub-pipeline", "for", "cores", "cpu", "s", "ns/record", "taken", "waiting"),
        *("blocked", "s"),
    ]
    assert shown[-4].split()[:5] == ["in", "a,", "b", "0.50", "0.50"]
    assert shown[-2].split()[:2] == ["(other)", "0.25"]
    assert shown[-1].strip() == "cores by query: a 0.50, b 0.25"
