"""Rates of the sources of a run: by the clock, by the backlog of a reader of one's own, or none."""

from __future__ import annotations

import json
import threading
from typing import Any, Literal

import pyarrow as pa
import pytest

import plait
from plait.errors import SourceError
from plait.execution.progress import format_result, result_facts
from plait.node_runtime.host.source_rates import Gauge, next_ask
from plait.protocol.rates import Looks, Sample, SourceRate, SourceReport, merge_rates


class Numbers(plait.Source):
    """Gives ten numbers, and says that something waits."""

    label = "numbers"
    schema = plait.Schema.of({"n": int})

    def __init__(self, backlog: Any) -> None:
        self.backlog = backlog
        self.threads: set[int] = set()

    def open(self, position: Any = None) -> plait.Reader:
        return NumbersReader(self)


class NumbersReader(plait.Reader):
    def __init__(self, source: Numbers) -> None:
        self.source = source
        self.left = 10

    def poll(self, max_rows: int) -> Any:
        self.source.threads.add(threading.get_ident())
        count, self.left = min(self.left, max_rows), max(0, self.left - max_rows)
        return [{"n": n} for n in range(count)] or None

    def position(self) -> int:
        return 10 - self.left

    def backlog(self) -> Any:
        self.source.threads.add(threading.get_ident())
        given = self.source.backlog
        return given() if callable(given) else given


def run(source: plait.Source, **settings: Any) -> Any:
    return plait.run(plait.stream(source).sink(plait.Discard()).job, workers=1, **settings)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_a_reader_of_ones_own_tells_what_waits(on_error: Literal["fail", "skip"]) -> None:
    source = Numbers(plait.Backlog(rows=70, oldest_s=3.0))
    stream = plait.stream(source, on_error=on_error)
    result = plait.run(stream.sink(plait.Discard()).job, workers=1)
    rate = result.rates["numbers"]
    assert rate.lag == 70.0
    assert (rate.lag_s or 0.0) >= 3.0
    assert result.account.read == 10
    assert len(source.threads) == 1  # as any call to a reader of a user's


def test_what_is_read_and_what_waits_are_what_came_in() -> None:
    """Two looks a second apart: 40 more were read, and 60 more wait."""
    gauge = Gauge(NumbersReader(Numbers(None)))
    gauge.note(plait.Backlog(rows=10, oldest_s=0.0), 1.0)
    gauge.read = 40
    gauge.note(plait.Backlog(rows=70, oldest_s=0.0), 2.0)
    assert gauge.rate(2.0).per_s == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("took", "pause"), [(0.0, 0.2), (0.004, 0.2), (0.01, 0.5), (0.05, 2.5), (3.0, 10.0)]
)
def test_a_backlog_that_takes_long_is_asked_less_often(took: float, pause: float) -> None:
    assert next_ask(100.0, 100.0 + took) == pytest.approx(100.0 + pause)


def test_a_reader_that_does_not_know_has_no_lag() -> None:
    assert run(Numbers(None)).rates["numbers"].lag is None


@pytest.mark.parametrize("given", [17, "many", plait.Backlog(rows=-1, oldest_s=0.0)])
def test_a_backlog_that_is_none_is_refused(given: Any) -> None:
    with pytest.raises(SourceError, match=r"backlog returned .*plait\.Backlog\(rows="):
        run(Numbers(given))


def test_a_backlog_that_fails_names_the_source() -> None:
    def fail() -> None:
        raise OSError("the queue is gone")

    with pytest.raises(SourceError, match=r"numbers .*OSError: the queue is gone"):
        run(Numbers(fail))


def test_records_due_by_the_clock_are_known_exactly() -> None:
    job = plait.stream(plait.Rate(1000.0, label="clock")).sink(plait.Discard()).job
    running = plait.start(job, workers=1)
    rate = running.rates()["clock"]
    assert (rate.per_s, rate.trust) == (1000.0, 1.0)
    running.stop()
    assert running.wait(progress=False).rates["clock"].per_s == 1000.0


def test_a_table_at_a_rate_has_no_rate_when_all_its_rows_were_due() -> None:
    table = plait.Table(pa.table({"n": list(range(50))}), rate_per_s=10_000.0, label="rows")
    rate = run(table).rates["rows"]
    assert rate == SourceRate(per_s=0.0, lag=0.0, lag_s=0.0, trust=1.0)


def test_what_is_read_as_fast_as_it_is_taken_has_no_rate() -> None:
    assert plait.stream([1, 2, 3]).sink(plait.Discard()).run().rates == {}
    assert run(plait.Rate(1000.0, total=5)).rates == {}


def test_a_result_tells_its_rates_in_text_and_to_scripts() -> None:
    result = run(Numbers(plait.Backlog(rows=70, oldest_s=3.0)))
    assert "numbers: 0/s come in, 70 behind" in format_result(result)
    facts = json.loads(json.dumps(result_facts(result)))
    assert facts["rates"]["numbers"]["lag"] == 70.0


class Topic(plait.Reader):
    """Looks at two partitions."""

    def __init__(self) -> None:
        self.at = 0.0

    def look(self) -> Looks:
        self.at += 1.0
        return Looks(
            samples={
                "0": Sample(at=self.at, position=0.0, end=100.0 * self.at),
                "1": Sample(at=self.at, position=0.0, end=7.0),
            },
            positions={"0": 50.0 * self.at, "1": 7.0},
            passed=50.0 * self.at,
            records=25.0 * self.at,
        )


def test_partitions_are_summed_and_offsets_become_records() -> None:
    """Half of the offsets that were read were records."""
    reader = Topic()
    gauge = Gauge(reader)
    for second in range(1, 5):
        gauge.take(reader.look(), float(second))
    rate = gauge.rate(4.0)
    assert rate.per_s == pytest.approx(50.0)
    assert rate.lag == 100.0
    assert [(name, each.lag) for name, each in rate.partitions] == [("0", 100.0), ("1", 0.0)]


def test_nodes_that_read_parts_are_merged() -> None:
    """1,000 were due, 300 and 600 were read; the node that began later knows of fewer."""
    rate = SourceRate(per_s=100.0, lag=0.0, lag_s=0.0, trust=1.0)
    other = SourceRate(per_s=5.0, lag=2.0, lag_s=0.4, trust=0.5)
    merged = merge_rates(
        [
            [SourceReport(label="clock", rate=rate, read=300, due=1000.0)],
            [
                SourceReport(label="clock", rate=rate, read=600, due=900.0),
                SourceReport(label="kafka", rate=other),
            ],
        ]
    )
    assert merged["clock"] == SourceRate(per_s=100.0, lag=100.0, lag_s=1.0, trust=1.0)
    assert merged["kafka"] == other


def test_on_several_nodes_the_rate_is_in_the_result() -> None:
    from plait.testing.nodes import run_on_nodes

    source = Numbers(plait.Backlog(rows=70, oldest_s=3.0))
    result = run_on_nodes(plait.stream(source).sink(plait.Discard()).job, nodes=2)
    assert result.rates["numbers"].lag == 70.0
