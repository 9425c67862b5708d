"""Two jobs whose results depended on how they were run: windows over late records, and timers.

Both are given as a plain `for` loop, and every way to run them gives the rows of that loop: epochs
and polls of any size, worker processes, one to three nodes.
"""

from __future__ import annotations

import datetime
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import plait
from plait.graph.operators import TimedOp
from plait.testing.nodes import run_on_nodes
from tests.property.promise.polls import in_pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plait.graph.operators import Graph

    Run = Callable[[plait.Job], plait.Result]

BASE = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
RECORDS = 100_000
SECOND = 1_000_000


def run(job: plait.Job, **settings: Any) -> plait.Result:
    return plait.run(job, timeout=60, **settings)


def in_polls(job: plait.Job) -> plait.Result:
    return plait.run(in_pieces(job.graph(), 7), epoch_records=500, timeout=60)


def on_nodes(job: plait.Job, nodes: int, **settings: Any) -> plait.Result:
    return run_on_nodes(job, nodes, workers=1, timeout=60.0, **settings)


WAYS: dict[str, Run] = {
    "by default": run,
    "epochs of 20": lambda job: run(job, epoch_records=20),
    "three workers": lambda job: run(job, epoch_records=333, workers=3),
    "random polls": in_polls,
    "one node": lambda job: on_nodes(job, 1),
    "two nodes": lambda job: on_nodes(job, 2, epoch_records=8192),
    "three nodes": lambda job: on_nodes(job, 3, epoch_records=12_288),
}


def times() -> list[int]:
    """A record each millisecond, up to three seconds late; microseconds."""
    chance = random.Random(1)
    return [n * 1000 - chance.randrange(3 * SECOND) for n in range(RECORDS)]


def counted(given: list[int]) -> tuple[list[tuple[int, int]], int]:
    """The windows of a second and their counts, and how many records are late, by the loop."""
    windows: dict[int, int] = {}
    now, found, late = given[0], [], 0
    for time in given:
        now = max(now, time)
        watermark = now - SECOND
        for end in sorted(end for end in windows if end <= watermark):
            found.append((end, windows.pop(end)))
        end = time // SECOND * SECOND + SECOND
        if end <= watermark:
            late += 1
        else:
            windows[end] = windows.get(end, 0) + 1
    return found + sorted(windows.items()), late


@pytest.mark.parametrize("way", WAYS)
def test_counts_in_windows_over_late_records(way: str) -> None:
    given = times()
    wanted, late = counted(given)
    start = np.datetime64(BASE.replace(tzinfo=None), "us")
    moments = start + np.array(given, dtype="timedelta64[us]")
    table = pa.table({"ts": pa.array(moments, pa.timestamp("us", tz="UTC"))})
    job = plait.Job("late")
    windows = job.source(plait.Table(table), event_time="ts", out_of_order="1s")
    windows.tumbling("1s").count().sink(plait.Collect(), name="out")
    result = WAYS[way](job)
    found = [
        (round((row["window_end"] - BASE) / datetime.timedelta(microseconds=1)), row["count"])
        for row in result.outputs["out"].to_pylist()
    ]
    assert found == wanted
    assert result.account.late == late
    assert 10_000 < late < RECORDS / 2


class Quiet(plait.Process):
    """Reports a sensor that has been silent for five minutes."""

    state: ClassVar = {"last": plait.Timestamp}
    out: ClassVar = {"sensor": str, "since": plait.Timestamp}

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> None:
        state.last = record.ts
        timers.at(record.ts + plait.minutes(5))

    def on_timer(self, key: Any, at: Any, state: Any, timers: Any) -> Iterator[tuple[Any, Any]]:
        if at - state.last >= plait.minutes(5):
            yield key, state.last


def door_and_roof() -> list[dict[str, Any]]:
    at = [("door", n) for n in (0, 20, 400, 420, 900, 910)]
    at += [("roof", n) for n in range(0, 1001, 10)]
    return [
        {"sensor": sensor, "ts": BASE + plait.seconds(n)}
        for sensor, n in sorted(at, key=lambda one: one[1])
    ]


def silences(records: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """Each silence of five minutes, when it is over, by the loop."""
    last: dict[str, datetime.datetime] = {}
    found: list[tuple[str, datetime.datetime]] = []
    five = plait.minutes(5)
    for record in records:
        due = sorted(
            (at + five, sensor) for sensor, at in last.items() if at + five <= record["ts"]
        )
        for _, sensor in due:
            if (sensor, last[sensor]) not in found:
                found.append((sensor, last[sensor]))
        last[record["sensor"]] = record["ts"]
    found += sorted(
        [one for one in last.items() if one not in found], key=lambda one: (one[1], one[0])
    )
    return [(sensor, round((at - BASE).total_seconds())) for sensor, at in found]


def in_pool(graph: Graph) -> Graph:
    operators = tuple(
        replace(op, route="pool") if isinstance(op, TimedOp) else op for op in graph.operators
    )
    return replace(graph, operators=operators)


QUIET_WAYS: dict[str, Run] = {
    **WAYS,
    "worker processes": lambda job: plait.run(in_pool(job.graph()), pool=2, epoch_records=50),
}


@pytest.mark.parametrize("way", QUIET_WAYS)
def test_silences_among_records_in_order(way: str) -> None:
    given = door_and_roof()
    wanted = silences(given)
    assert wanted == [("door", 20), ("door", 420), ("door", 910), ("roof", 1000)]
    job = plait.Job("quiet")
    readings = job.source(plait.Items(given), event_time="ts")
    readings.key_by("sensor").process(Quiet()).sink(plait.Collect(), name="out")
    rows = QUIET_WAYS[way](job).outputs["out"].to_pylist()
    assert [(r["sensor"], round((r["since"] - BASE).total_seconds())) for r in rows] == wanted
