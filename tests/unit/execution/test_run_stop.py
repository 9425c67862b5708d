"""Runs that are stopped: Ctrl-C, timeouts, functions that never return, and the handle's own verbs.

What could hang runs in a process of its own with its own timeout. A stopped run delivers what was
read, says so, and leaves neither a thread nor a wall of traceback.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from typing import Any

import pytest

import plait
from plait.execution.local_run import start
from plait.testing import Capture, Feed, assert_same
from tests.endless_job import ENDLESS, HANG_S, signalled

WAITS = "stopping: waiting for {}, for [0-9.]+ s until now\n"
"""What a stopped run says that does not get on."""
PRELUDE = f"""
import sys, time
{ENDLESS}
import plait.execution.local_run
from plait import col

sys.modules["plait.execution.local_run"].GRACE_S = 1.0

def told(run):
    try:
        run()
    except (plait.Interrupted, plait.TimedOut) as error:
        print(type(error).__name__, error, flush=True)
        print(error.result.account.read == error.result.account.delivered, flush=True)
"""


def script(body: str) -> list[str]:
    return [sys.executable, "-X", "faulthandler", "-c", PRELUDE + textwrap.dedent(body)]


def finished(body: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(script(body), capture_output=True, text=True, timeout=HANG_S, check=False)


def interrupted(body: str, twice: bool = False) -> tuple[int, str, str]:
    return signalled(script(body), twice=twice)


class TestInterrupt:
    def test_what_was_read_is_delivered(self) -> None:
        code, out, errors = interrupted(
            """
            counts = plait.stream(Endless()).key_by("n").count()
            told(lambda: counts.sink(plait.Discard()).job.run())
            """
        )
        assert (code, errors) == (0, "")
        assert out.startswith("Interrupted interrupted: ")
        assert out.splitlines()[-1] == "True"

    def test_a_function_in_progress_comes_to_its_end(self) -> None:
        code, out, errors = interrupted(
            """
            def slow(record):
                time.sleep(0.001)
                return record
            told(lambda: plait.stream(Endless()).map(slow).sink(plait.Discard()).job.run())
            """
        )
        assert (code, errors) == (0, "")
        assert out.splitlines()[-1] == "True"

    def test_a_second_one_ends_at_once(self) -> None:
        """The function never returns; the first signal waits for it, the second one does not."""
        code, out, errors = interrupted(
            """
            sys.modules["plait.execution.local_run"].GRACE_S = 50.0
            def stuck(record):
                print("reading", flush=True)
                while True:
                    pass
            job = plait.stream([{"n": 1}]).map(stuck).sink(plait.Discard()).job
            told(lambda: job.run(progress=True))
            """,
            twice=True,
        )
        assert (code, errors) == (0, "")
        assert out.startswith("Interrupted interrupted: ")

    def test_an_operator_that_awaits_what_never_comes(self) -> None:
        code, out, errors = interrupted(
            """
            import asyncio
            @plait.operator
            async def stuck(ctx):
                await ctx.wait_all(records=1)
                print("reading", flush=True)
                try:
                    await asyncio.Event().wait()
                finally:
                    print("cleaned up", flush=True)
            job = stuck(plait.stream([{"n": 1}])).out.sink(plait.Discard()).job
            told(job.run)
            """
        )
        assert code == 0
        assert re.fullmatch(WAITS.format("stuck at <string>:[0-9]+"), errors)
        assert out.startswith("cleaned up\nInterrupted interrupted: ")


class TestTimeout:
    def test_an_endless_source(self) -> None:
        stream = plait.stream(plait.Rate(1000.0))
        stream.sink(plait.Discard())
        with pytest.raises(plait.TimedOut, match=r"the timeout passed: .* read") as caught:
            plait.run(stream.job, timeout=0.2)
        account = caught.value.result.account
        assert account.read == account.delivered > 0

    def test_a_source_that_waits_for_an_hour(self) -> None:
        """Waiting is no reason to overstay: the grace of a stopped run is not needed."""
        feed = Feed({"n": int}, wait_s=3600.0)
        feed.push([(1,)])
        stream = plait.stream(feed)
        stream.sink(Capture())
        with pytest.raises(plait.TimedOut, match="1 read, 1 delivered"):
            plait.run(stream.job, timeout=0.2)

    @pytest.mark.parametrize("policy", ["fail", "skip", "dead_letter"])
    def test_a_function_that_loops_for_ever(self, policy: str) -> None:
        """Each record of each batch would loop again: one interrupt would not be enough."""
        done = finished(
            f"""
            def loops(record):
                while True:
                    pass
            stream = plait.stream([{{"n": n}} for n in range(100)]).map(loops, on_error="{policy}")
            told(lambda: stream.sink(plait.Discard()).job.run(timeout=0.2, epoch_records=1))
            """
        )
        assert done.returncode == 0
        where = r'map "loops" at <string>:[0-9]+ \(now at <string>:[0-9]+\)'
        assert re.fullmatch(WAITS.format(where), done.stderr)
        assert done.stdout.startswith("TimedOut the timeout passed: ")

    def test_a_function_that_cannot_be_interrupted(self) -> None:
        done = finished(
            """
            import os
            def sleeps(record):
                time.sleep(1000)
            stream = plait.stream([{"n": 1}]).map(sleeps)
            told(lambda: stream.sink(plait.Discard()).job.run(timeout=0.2))
            sys.stdout.flush()
            os._exit(0)
            """
        )
        assert done.returncode == 0
        assert 'waiting for map "sleeps" at <string>:' in done.stderr
        assert "a function of the job does not return, its thread was left behind" in done.stdout

    def test_a_fold_that_loops_for_ever(self) -> None:
        done = finished(
            """
            def step(state, record):
                while True:
                    pass
            stream = plait.stream([{"n": 1}, {"n": 2}]).key_by("n").fold(0, step)
            told(lambda: stream.sink(plait.Discard()).job.run(timeout=0.2, epoch_records=1))
            """
        )
        assert done.returncode == 0
        assert 'waiting for fold "step" at <string>:' in done.stderr
        assert done.stdout.startswith("TimedOut")

    def test_a_sink_and_a_source_that_loop_for_ever(self) -> None:
        done = finished(
            """
            def loops(batch):
                while True:
                    pass
            told(lambda: plait.stream([{"n": 1}]).sink(plait.Call(loops)).job.run(timeout=0.2))
            EndlessReader.poll = loops.__get__
            class Loops(Endless):
                def open(self, position=None):
                    reader = EndlessReader()
                    reader.poll = loops
                    return reader
            told(lambda: plait.stream(Loops()).sink(plait.Discard()).job.run(timeout=0.2))
            """
        )
        assert done.returncode == 0
        assert "waiting for sink at <string>:" in done.stderr
        assert "waiting for source at <string>:" in done.stderr
        assert done.stdout.count("TimedOut") == 2


class TestHandle:
    def test_stop_delivers_what_was_read(self) -> None:
        stream = plait.stream(plait.Rate(10_000.0))
        sink = Capture()
        stream.sink(sink)
        running = start(stream.job, workers=2)
        while running.engine.records_delivered() < 100:
            running.engine.wait(0.001)
        running.stop()
        result = running.wait()
        assert (
            result.account.read == result.account.delivered == sum(b.num_rows for b in sink.batches)
        )
        assert sink.ended == "close"

    def test_abort_says_that_it_was_no_end(self) -> None:
        stream = plait.stream(plait.Rate(10_000.0))
        sink = Capture()
        stream.sink(sink)
        running = start(stream.job, workers=2)
        running.abort()
        with pytest.raises(plait.Interrupted, match="interrupted: "):
            running.wait()
        assert sink.ended == "abort"

    def test_a_handle_may_be_forgotten(self) -> None:
        """The engine ends with its handle; the fixture finds a thread that stays."""
        stream = plait.stream(plait.Rate(10_000.0))
        stream.sink(plait.Discard())
        start(stream.job, workers=2)

    def test_a_limit_stops_each_source(self) -> None:
        stream = plait.stream(plait.Rate(1e6))
        stream.sink(plait.Collect(), name="out")
        result = plait.run(stream.job, limit=1234, timeout=HANG_S)
        assert result.outputs["out"].num_rows == result.account.read == 1234


def test_sources_stop_at_the_same_epoch() -> None:
    """A failure stops the job; a sink that does not depend on it has what comes first."""

    def failing(record: Any) -> Any:
        if record.n == 3:
            raise ValueError("three")
        return record

    for _ in range(20):
        job = plait.Job("two")
        left = job.source(plait.Items([{"n": n} for n in range(200)]))
        right = job.source(plait.Items([{"n": -n} for n in range(300)]))
        both = left.union(right)
        both.map(failing).sink(plait.Collect())
        both.sink(plait.Collect())
        assert_same(job.graph(), {"workers": 4, "epoch_records": 1, "queue_batches": 2})
