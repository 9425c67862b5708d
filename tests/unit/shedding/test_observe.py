"""Views made of reports."""

from __future__ import annotations

import math

from plait.protocol.messages import TaskReport
from plait.protocol.rates import SourceRate
from plait.shedding.observe import (
    SeenHost,
    SeenJob,
    SeenPart,
    SeenQuery,
    SeenTask,
    TaskRates,
    is_warm,
    key_of,
    make_view,
    task_rates,
)


def report(
    cpu_s: float, taken: int, *, shed: int = 0, waiting: int = 0, part: int = 0
) -> TaskReport:
    return TaskReport(
        part=part,
        cpu_s=cpu_s,
        taken=taken,
        offered=taken,
        kept=taken - shed,
        shed=shed,
        waiting=waiting,
    )


def test_rates_are_differences_and_what_waits_is_not_done() -> None:
    """Of 200 rows 50 were shed, and 30 more wait than before."""
    [rates] = task_rates(
        [report(1.0, 100, waiting=10)], [report(2.0, 300, shed=50, waiting=40)], 2.0
    )
    assert (rates.cpu, rates.taken, rates.offered, rates.waiting) == (0.5, 60.0, 100.0, 40.0)


def test_reports_of_another_engine_say_nothing() -> None:
    assert task_rates([report(1.0, 1)], [report(2.0, 2, part=1)], 1.0) == ()
    assert task_rates([report(1.0, 1)], [report(2.0, 2)], 0.0) == ()
    [rates] = task_rates([report(5.0, 9)], [report(1.0, 3)], 1.0)
    assert (rates.cpu, rates.taken, rates.offered) == (0.0, 0.0, 0.0)


def test_a_task_is_warm_after_two_reports_or_a_minute() -> None:
    assert not is_warm(1, 5.0)
    assert is_warm(2, 0.5)
    assert is_warm(0, 60.0)


def rate(per_s: float, lag: float, trust: float = 1.0) -> SourceRate:
    return SourceRate(per_s=per_s, lag=lag, lag_s=lag / per_s, trust=trust)


def job(name: str, **sources: SourceRate) -> SeenJob:
    """A source, and a branch for each of two queries; only the second task is on a known host."""
    return SeenJob(
        name=name,
        queries=(
            SeenQuery(label="high", priority=5, floor=0.5, freshness_s=2.0),
            SeenQuery(label="low", bound=0.5, suspends=True, floor=0.25),
        ),
        parts=(
            SeenPart(label="in", inputs=(), queries=("high", "low"), sources=("a", "b")),
            SeenPart(label="high", inputs=(0,), queries=("high",)),
            SeenPart(label="low", inputs=(0,), queries=("low",)),
        ),
        tasks=tuple(
            SeenTask(
                rates=TaskRates(part=part, cpu=0.5, taken=10.0, offered=20.0),
                rank=rank,
                host=host,
                most=2.0,
            )
            for part, rank, host in ((0, 0, "host-1"), (1, 1, "host-2"), (2, 1, "gone"))
        ),
        sources=sources,
    )


def test_rows_become_columns() -> None:
    hosts = [
        SeenHost(name="host-1", cores=4.0, used=3.0),
        SeenHost(name="host-2", cores=2.0, used=1.0),
    ]
    jobs = [job("one", a=rate(100.0, 50.0), b=rate(10.0, 10.0)), job("two")]
    view = make_view(7.0, hosts, jobs)
    assert view.jobs == ("one", "two")
    assert view.hosts.ours.tolist() == [1.0, 1.0]
    assert view.parts.injected[0] == 110.0
    assert view.parts.backlog[0] == 60.0
    assert all(math.isnan(value) for value in view.parts.injected[[1, 2, 3]])
    assert view.tasks.part.tolist() == [0, 1, 3, 4]  # the host of the third is not known
    assert view.queries.lag_s.tolist() == [1.0, 1.0, 0.0, 0.0]
    assert view.queries.freshness_s.tolist() == [2.0, 5.0, 2.0, 5.0]
    assert view.behind.left.tolist() == [0, 0, 1, 2, 3, 3, 4, 5]
    assert view.behind.right.tolist() == [0, 1, 0, 1, 2, 3, 2, 3]
    assert view.edges.left.tolist() == [0, 0, 3, 3]
    assert len(set(view.queries.key.tolist())) == 4


def test_a_rate_without_trust_is_none() -> None:
    view = make_view(0.0, [], [job("one", a=rate(100.0, 0.0, trust=0.1))])
    assert math.isnan(view.parts.injected[0])
    assert view.queries.lag_s.tolist() == [0.0, 0.0]


def test_keys_are_the_same_in_every_process() -> None:
    assert key_of("job", "tips") == key_of("job", "tips") != key_of("jobt", "ips")
    assert 0 <= key_of("job", "tips") < 2**63
