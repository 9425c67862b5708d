"""How a run with functions that are awaited ends, by itself or not, and what a snapshot holds."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

import plait
from plait.errors import InternalError, Interrupted
from plait.execution.local_run import start
from plait.node_runtime.functions import event_loop
from tests.unit.node_runtime.functions.async_jobs import Order, Stuck, orders


def test_an_exit_in_a_function_ends_the_run() -> None:
    async def leaving(order: Order) -> Order:
        if order.n == 5:
            raise SystemExit(3)
        return order

    with pytest.raises(SystemExit):
        orders(10).map_async(leaving, on_error="skip").collect()


def test_a_loop_that_dies_ends_the_run() -> None:
    def leave() -> None:
        raise SystemExit(3)

    async def breaking(order: Order) -> Order:
        asyncio.get_running_loop().call_soon(leave)
        await asyncio.Event().wait()
        return order

    with pytest.raises(InternalError, match="the event loop ended: SystemExit"):
        orders(10).map_async(breaking).collect()


def test_stop_delivers_what_is_in_flight() -> None:
    source = plait.Rate(2_000)
    there = threading.Event()

    async def slow(record: Any) -> Any:
        there.set()
        await asyncio.sleep(0.005)
        return record

    stream = plait.stream(source)
    job = stream.map_async(slow, schema=stream.schema).sink(plait.Collect(), name="out").job
    running = start(job, workers=2)
    assert there.wait(60)
    running.stop()
    result = running.wait()
    assert result.account.read == result.account.delivered == result.outputs["out"].num_rows > 0


def test_abort_cancels_what_is_in_flight() -> None:
    stuck = Stuck(ready_at=50)
    job = orders(1000).map_async(stuck, timeout=None, concurrency=50).sink(plait.Collect()).job
    running = start(job, workers=2, epoch_records=8)
    assert stuck.there.wait(60)
    running.abort()
    with pytest.raises(Interrupted):
        running.wait()
    assert sorted(stuck.cancelled) == [*range(50)]


def test_a_limited_sink_ends_the_rest(capsys: Any) -> None:
    stuck = Stuck()

    async def half(order: Order) -> Order:
        return order if order.n < 10 else await stuck(order)

    orders(100).map_async(half, timeout=None).show(3, epoch_records=2)
    assert "price" in capsys.readouterr().out
    assert sorted(stuck.cancelled) == sorted(stuck.began)


def test_a_function_that_holds_the_loop_up_is_interrupted(monkeypatch: Any) -> None:
    monkeypatch.setattr(event_loop, "PATIENCE_S", 0.0)
    there = threading.Event()

    async def busy(order: Order) -> Order:
        there.set()
        while True:
            time.monotonic()

    running = start(orders(3).map_async(busy).sink(plait.Collect()).job, workers=1)
    assert there.wait(60)
    running.abort()
    with pytest.raises(Interrupted):
        running.wait()


def test_a_run_that_nobody_waits_for_ends() -> None:
    stuck = Stuck()
    running = start(orders(3).map_async(stuck, timeout=None).sink(plait.Collect()).job, workers=1)
    assert stuck.there.wait(60)
    assert running.parts.loop is not None
    thread = running.parts.loop.thread
    assert thread is not None
    del running
    thread.join(60)
    assert not thread.is_alive()
    assert sorted(stuck.cancelled) == sorted(stuck.began)


class Asked:
    """An engine that says when a control item was queued."""

    def __init__(self, engine: Any, queued: threading.Event) -> None:
        self.engine = engine
        self.queued = queued

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def control(self, *args: Any, **given: Any) -> Any:
        item = self.engine.control(*args, **given)
        self.queued.set()
        return item


def test_a_snapshot_holds_what_was_awaited_before_it() -> None:
    there, queued = threading.Event(), threading.Event()

    async def held(order: Order) -> Order:
        while order.n > 200 and not queued.is_set():
            there.set()
            await asyncio.sleep(0.001)
        return replace(order, n=order.n % 7)

    counted = orders(400).map_async(held, concurrency=2).key_by("n").count()
    job = counted.sink(plait.Collect(), name="out").job
    settings: Any = {"workers": 2, "epoch_records": 16, "queue_batches": 2}
    running = start(job, **settings)
    assert there.wait(60)
    engine: Any = Asked(running.engine, queued)
    running.engine = engine
    snapshot = running.snapshot()
    whole = running.wait().outputs["out"].to_pylist()
    assert whole == [{"n": n % 7, "count": n // 7 + 1} for n in range(400)]
    position = snapshot.positions["source-1"]["row"]
    assert 200 < position < 400
    rest = start(job, state=snapshot, **settings).wait().outputs["out"].to_pylist()
    assert rest == whole[position:]
