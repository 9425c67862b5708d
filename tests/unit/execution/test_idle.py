"""A source that has nothing for a while does not hold up the time of the others."""

from __future__ import annotations

import datetime
import time

import plait
from plait.execution.local_run import start
from plait.testing import Capture, Feed

START = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
PATIENCE_S = 60.0


def test_an_idle_source_holds_nobody_up() -> None:
    """Windows end while one of two sources is silent; what it then has is late, and counted."""
    feeds = [Feed({"k": str, "ts": datetime.datetime}, f"in-{n}") for n in range(2)]
    job = plait.Job("idle")
    one, two = (job.source(feed, event_time="ts", idle="5ms") for feed in feeds)
    found = Capture()
    one.union(two).key_by("k").tumbling("10s").count().sink(found, name="out")
    feeds[1].push([("b", START)])
    running = start(job, workers=2)
    patience = time.monotonic() + PATIENCE_S
    pushed = 0
    while not found.batches and time.monotonic() < patience:
        feeds[0].push([("a", START + plait.seconds(20 + pushed))])
        pushed += 1
        time.sleep(0.001)
    assert found.batches, "no window ended while a source was idle"
    feeds[1].push([("b", START + plait.seconds(1))])
    for feed in feeds:
        feed.close()
    result = running.wait()
    assert result.account.late == 1
    assert found.batches[0].to_pylist()[0]["k"] == "b"


def test_records_that_do_not_pass_for_long_hold_nobody_up() -> None:
    """An operator that names the time is idle by the stamps of units; the loop repeats it."""
    feed = Feed({"k": str, "ts": datetime.datetime}, "in")
    job = plait.Job("idle")
    stream = job.source(feed, event_time="ts")
    named = stream.filter(plait.col("k") == "a").with_event_time("ts", idle="5ms")
    found = Capture()
    stream.union(named).key_by("k").tumbling("10s").count().sink(found, name="out")
    feed.push([("a", START)])
    running = start(job, workers=2)
    patience = time.monotonic() + PATIENCE_S
    pushed = 0
    while not found.batches and time.monotonic() < patience:
        feed.push([("b", START + plait.seconds(20 + pushed))])
        pushed += 1
        time.sleep(0.001)
    assert found.batches, "no window ended while no record passed"
    feed.close()
    result = running.wait()
    assert found.batches[0].to_pylist()[0]["k"] == "a"
    assert result.account.late == 0
