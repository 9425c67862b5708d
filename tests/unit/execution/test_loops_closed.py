"""Every event loop that a run makes is closed when the run is over, however it ended.

A loop that is dropped open is found by the garbage collector only, in some later test or in the
user's program. So it is called here after all of them, and may report nothing.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait.execution.local_run import start
from plait.node_runtime.native._outside import interrupt
from plait.testing import Feed
from plait.testing.changes import Join, Leave
from plait.testing.nodes import run_on_nodes
from tests.open_loops import open_loops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plait.execution.local_run import LocalRun

HANG_S = 60.0


@pytest.fixture(autouse=True, scope="module")
def nothing_dropped() -> Iterator[None]:
    """What the garbage collector finds after the tests, or is reported before."""
    gc.collect()
    before, found = open_loops(), list[str]()
    shown, sys.unraisablehook = sys.unraisablehook, lambda told: found.append(repr(told.exc_value))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
            gc.collect()
    finally:
        sys.unraisablehook = shown
    assert found == []
    assert open_loops() == before


@plait.operator
async def passing(ctx: plait.Context) -> None:
    while await ctx.wait_all(records=1):
        ctx.emit(ctx.pop("records"))


@plait.operator
async def raising(ctx: plait.Context) -> None:
    while await ctx.wait_all(records=1):
        record = ctx.pop("records")
        if record.n == 7:
            raise ValueError("seven")
        ctx.emit(record)


@plait.operator
async def first_only(ctx: plait.Context) -> None:
    await ctx.wait_all(records=1)
    ctx.emit(ctx.pop("records"))


@plait.operator
async def leaving_tasks(ctx: plait.Context) -> None:
    """Begins what it does not wait for."""
    task = asyncio.create_task(asyncio.Event().wait())
    while await ctx.wait_all(records=1):
        ctx.emit(ctx.pop("records"))
    assert not task.done()


@plait.operator
async def cleaning_badly(ctx: plait.Context) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        raise SystemExit(3)


async def same(record: Any) -> Any:
    await asyncio.sleep(0)
    return record


async def bad_seven(record: Any) -> Any:
    if record.n == 7:
        raise ValueError("seven")
    return record


class Breaking(plait.Source):
    """Has some records, and then none but an error."""

    schema = plait.Schema.of({"n": int})

    def open(self, position: Any = None) -> plait.Reader:
        return BreakingReader()


class BreakingReader(plait.Reader):
    n = 0

    def poll(self, max_rows: int) -> list[dict[str, int]]:
        self.n += 1
        if self.n > 5:
            raise OSError("the source is gone")
        return [{"n": self.n}]

    def position(self) -> int:
        return self.n


def numbers(count: int = 20) -> plait.Stream:
    return plait.stream([{"n": n} for n in range(count)])


def awaited(stream: plait.Stream, function: Any = same, **given: Any) -> plait.Stream:
    return stream.map_async(function, schema=stream.schema, **given)


def job_of(stream: Any) -> Any:
    stream.sink(plait.Collect(), name="out")
    return stream.job


ENDS: dict[str, Callable[[], Any]] = {
    "finished": lambda: passing(passing(numbers()).out).out,
    "no records": lambda: passing(numbers(0)).out,
    "returned early": lambda: first_only(numbers()).out,
    "tasks of its own": lambda: leaving_tasks(numbers()).out,
    "failed record": lambda: passing(raising(numbers()).out).out,
    "failed record elsewhere": lambda: (
        passing(numbers().map(lambda r: {"n": 7 // (r.n - 7)}, schema=numbers().schema)).out
    ),
    "failed source": lambda: passing(plait.stream(Breaking())).out,
    "awaited": lambda: awaited(numbers()),
    "awaited and failed": lambda: passing(awaited(numbers(), bad_seven)).out,
    "awaited, failed source": lambda: passing(awaited(plait.stream(Breaking()))).out,
}


def test_a_run_by_itself(entry_point: Callable[..., Any]) -> None:
    for made in ENDS.values():
        with suppress(plait.PlaitError):
            entry_point(job_of(made()), epoch_records=2)


@pytest.mark.parametrize("function", [passing, awaited])
def test_a_sink_that_has_enough(function: Any, capsys: pytest.CaptureFixture[str]) -> None:
    stream = function(plait.stream(plait.Rate(1e6)))
    getattr(stream, "out", stream).show(3)
    assert capsys.readouterr().out


@pytest.mark.parametrize("function", [passing, awaited])
@pytest.mark.parametrize("end", ["stop", "abort", "drop"])
def test_a_run_that_is_ended(function: Any, end: str) -> None:
    """Whether the coroutine has begun by then or not."""
    feed = Feed({"n": int})
    for rows in ([], [{"n": 1}]):
        stream = function(plait.Job("ended").source(feed))
        running: LocalRun | None = start(job_of(getattr(stream, "out", stream)), workers=2)
        assert running is not None
        feed.push(rows)
        if end == "drop":
            running = None
        else:
            getattr(running, end)()
            with suppress(plait.Interrupted):
                running.wait()


def test_a_timeout() -> None:
    feed = Feed({"n": int})
    stream = awaited(passing(plait.Job("late").source(feed)).out)
    with pytest.raises(plait.TimedOut):
        plait.run(job_of(stream), timeout=0.01)


def test_a_build_that_fails_after_the_loop_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine cannot start, as when there are too many threads."""

    def refused(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    job = job_of(awaited(passing(numbers()).out))
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError, match="new thread"):
            start(job)
        with pytest.raises(plait.InternalError, match="new thread"):
            run_on_nodes(job, 2)


def test_a_clean_up_that_asks_for_the_end_of_the_process() -> None:
    running = start(job_of(passing(cleaning_badly(passing(numbers()).out).out).out), workers=1)
    running.abort()
    with suppress(plait.Interrupted, SystemExit):
        running.wait()


def test_nodes_that_join_and_leave() -> None:
    changes = (Join(bins=range(0, 16, 2), at=2), Leave(rank=1, at=4))
    result = run_on_nodes(
        job_of(awaited(passing(numbers(50)).out)), 2, changes=changes, epoch_records=1, bin_bits=4
    )
    assert result.account.delivered == 50


def test_an_interrupt_just_when_a_loop_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """An aborted run interrupts its workers, wherever they are. So none of them makes a loop: it
    would be lost before it has a name."""
    make, here = asyncio.new_event_loop, threading.get_ident()

    def made() -> asyncio.AbstractEventLoop:
        loop = make()
        if threading.get_ident() != here:
            interrupt(threading.get_ident())
        return loop

    monkeypatch.setattr(asyncio, "new_event_loop", made)
    assert plait.run(job_of(passing(numbers()).out), workers=1).account.delivered == 20


def test_aborts_at_any_time() -> None:
    """From before the first record to after the last one."""
    rows = [{"n": n} for n in range(30)]
    for looks in range(0, 3_000, 50):
        stream: Any = plait.stream(rows)
        for _ in range(4):
            stream = passing(stream).out
        running = start(job_of(stream), workers=1, epoch_records=1)
        for _ in range(looks):
            running.engine.records_read()
        running.abort()
        with pytest.raises(plait.Interrupted):
            running.wait()
