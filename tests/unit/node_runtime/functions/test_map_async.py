"""map_async: what is refused when it is built, the order, limits, tries and policies.

Nothing here waits for a clock where it can wait for an event: functions meet at gates that open
when as many are there as the test expects.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

import plait
from plait.errors import JobError, RecordError
from plait.testing import assert_same, sequential
from plait.testing.check import rows_of_arrow
from tests.unit.node_runtime.functions.async_jobs import (
    Gate,
    Order,
    numbers,
    orders,
    same,
    yielding,
)


async def refusing(order: Order) -> Order:
    """Refuses one in ten, after others that began later."""
    await asyncio.sleep(0.001 * (order.n % 3))
    if order.n % 10 == 7:
        raise ValueError(f"{order.n} is refused")
    return replace(order, price=order.n / 2)


def blocking(order: Order) -> Order:
    return order


async def of_two(order: Order, other: Order) -> Order:
    return order


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (blocking, '"blocking" is not async'),
        (lambda order: same(order), "asyncio.to_thread"),
        (yielding, '"yielding" yields'),
        (of_two, "cannot be called with a record"),
        (7, "7 is not a function"),
    ],
)
def test_functions_that_are_refused(function: Any, words: str) -> None:
    with pytest.raises(JobError, match=r"map_async at .*test_map_async.py") as caught:
        orders(1).map_async(function)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"concurrency": 0}, "concurrency is 0"),
        ({"concurrency": 2.0}, "concurrency is 2.0"),
        ({"timeout": 2}, "2 is not a duration"),
        ({"retries": -1}, "retries is -1"),
        ({"backoff": "soon"}, '"soon" is not a duration'),
        ({"on_error": "again"}, "on_error is 'again'"),
        ({"on_error": "retry", "retries": 0}, 'retries is 0 with on_error="retry"'),
        ({"name": ""}, "name is ''"),
    ],
)
def test_arguments_that_are_refused(given: Any, words: str) -> None:
    with pytest.raises(JobError) as caught:
        orders(1).map_async(same, **given)
    assert words in str(caught.value)


@pytest.mark.parametrize("verb", ["map", "filter", "flat_map"])
def test_plain_verbs_say_where_async_functions_go(verb: str) -> None:
    with pytest.raises(JobError, match="use map_async"):
        getattr(orders(1), verb)(same)


def test_a_plain_function_that_returns_a_coroutine_is_told() -> None:
    for stream in (orders(3).map(lambda order: same(order)), orders(3).filter(lambda o: same(o))):
        with pytest.raises(RecordError, match="goes with map_async"):
            stream.collect()

    async def forgets(order: Order) -> Order:
        return same(order)  # type: ignore[return-value]

    with pytest.raises(RecordError, match="write `return await"):
        orders(3).map_async(forgets).collect()


def test_partials_and_callable_objects_are_fine() -> None:
    async def add(more: int, order: Order) -> Order:
        return replace(order, n=order.n + more)

    assert numbers(orders(3).map_async(functools.partial(add, 10)).collect()) == [10, 11, 12]
    assert numbers(orders(3).map_async(Gate(1)).collect()) == [0, 1, 2]


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("epoch_records", [1, 7, 4096])
def test_records_come_in_order(workers: int, epoch_records: int) -> None:
    async def reversing(order: Order) -> Order:
        for _ in range(50 - order.n % 50):
            await asyncio.sleep(0)
        return replace(order, price=float(order.n))

    made = orders(500).map_async(reversing).collect(workers=workers, epoch_records=epoch_records)
    assert made == [Order(n, float(n)) for n in range(500)]


async def each_third_late(order: Order) -> Order:
    await asyncio.sleep(0.0 if order.n % 3 else 0.01)
    return order


def test_state_is_updated_in_order_where_outputs_are_not() -> None:
    """order="none": a batch does not overtake another on its way to state."""
    late = orders(40).map_async(each_third_late, concurrency=20)
    late.fold(0, lambda total, order: (total * 31 + order.n) % 1_000_003).sink(plait.Discard())
    assert_same(late.job.graph(), {"order": "none", "epoch_records": 1, "workers": 2})


def test_the_output_is_as_the_annotation_says() -> None:
    async def size(order: Order) -> int:
        return order.n * 2

    stream = orders(3).map_async(size)
    assert str(stream.schema) == "value: int64"
    assert stream.to_arrow()["value"].to_pylist() == [0, 2, 4]


@pytest.mark.parametrize("epoch_records", [1, 4096])
def test_concurrency_is_reached_and_kept_over_batches(epoch_records: int) -> None:
    gate = Gate(20)
    stream = orders(100).map_async(gate, concurrency=20)
    assert numbers(stream.collect(epoch_records=epoch_records, queue_batches=2)) == [*range(100)]
    assert gate.most == 20


def test_operators_share_one_loop() -> None:
    loops, threads = set(), set()

    async def seen(order: Order) -> Order:
        loops.add(id(asyncio.get_running_loop()))
        threads.add(threading.current_thread().name)
        return order

    orders(10).map_async(seen).map_async(seen).map_async(seen).collect()
    assert len(loops) == 1
    assert threads == {"plait-async"}


def test_a_record_is_tried_again() -> None:
    tries: Counter[int] = Counter()

    async def flaky(order: Order) -> Order:
        tries[order.n] += 1
        order.price += 1.0  # the next try has the record as it came
        if tries[order.n] <= order.n % 4:
            raise ConnectionError("not yet")
        return order

    stream = orders(40).map_async(flaky, retries=2, backoff="1ms", on_error="dead_letter")
    job = stream.sink(plait.Collect(), name="out").job
    result = plait.run(job)
    assert result.outputs["out"]["n"].to_pylist() == [n for n in range(40) if n % 4 < 3]
    assert set(result.outputs["out"]["price"].to_pylist()) == {2.5}
    assert [letter.row for letter in result.dead_letters] == [*range(4, 41, 4)]
    assert {letter.error for letter in result.dead_letters} == {"ConnectionError: not yet"}
    assert tries == {n: min(n % 4 + 1, 3) for n in range(40)}


def test_a_try_that_takes_too_long_fails() -> None:
    tries: Counter[int] = Counter()

    async def slow(order: Order) -> Order:
        tries[order.n] += 1
        if order.n % 5 == 2 or (order.n % 5 == 3 and tries[order.n] == 1):
            await asyncio.Event().wait()
        return order

    stream = orders(20).map_async(
        slow, timeout="50ms", retries=1, backoff="1ms", on_error="dead_letter"
    )
    result = plait.run(stream.sink(plait.Collect(), name="out").job)
    assert result.outputs["out"]["n"].to_pylist() == [n for n in range(20) if n % 5 != 2]
    assert [letter.row for letter in result.dead_letters] == [3, 8, 13, 18]
    assert {letter.error for letter in result.dead_letters} == {
        "TimeoutError: no result within 0.05 s"
    }
    assert all(tries[n] == (2 if n % 5 in (2, 3) else 1) for n in range(20))


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_policies_are_those_of_the_plain_loop(policy: Any) -> None:
    job = orders(100).map_async(refusing, on_error=policy).sink(plait.Collect(), name="out").job
    result, wanted = plait.run(job, epoch_records=8), sequential(job.graph(), epoch_records=8)
    assert (
        rows_of_arrow(result.outputs["out"], job.graph().operators[-1].schema)
        == wanted.outputs["out"]
    )
    assert result.dead_letters == wanted.dead_letters
    account = result.account
    assert account.read == 100 == account.delivered + account.skipped + account.dead_lettered


def test_fail_delivers_what_came_before_and_cancels_the_rest() -> None:
    cancelled: list[int] = []
    began: list[int] = []

    async def failing(order: Order) -> Order:
        began.append(order.n)
        if order.n == 30:
            raise ValueError("no more")
        try:
            await (asyncio.sleep(0.01) if order.n < 30 else asyncio.Event().wait())
        except asyncio.CancelledError:
            cancelled.append(order.n)
            raise
        return order

    delivered: list[int] = []
    stream = orders(1000).map_async(failing, concurrency=60, name="lookup")
    stream.sink(plait.Call(lambda order: delivered.append(order.n)))
    with pytest.raises(RecordError) as caught:
        stream.run(epoch_records=8)
    assert delivered == [*range(30)]
    assert caught.value.record == Order(30)
    assert caught.value.row == 31
    assert str(caught.value).startswith('lookup "failing" at ')
    assert "raised ValueError: no more" in str(caught.value)
    assert sorted(cancelled) == [n for n in began if n > 30]
    assert max(began) < 100


def test_an_earlier_failure_that_comes_later_counts() -> None:
    async def failing(late: asyncio.Event, order: Order) -> Order:
        if order.n == 12:
            late.set()
            raise ValueError("the second")
        if order.n == 3:
            await late.wait()
            raise ValueError("the first")
        return order

    for epoch_records in (1, 8, 64):
        called = functools.partial(failing, asyncio.Event())
        with pytest.raises(RecordError, match="the first") as caught:
            orders(40).map_async(called).collect(epoch_records=epoch_records)
        assert caught.value.row == 4


def test_a_result_that_does_not_fit_is_a_failure_of_its_record() -> None:
    async def odd(order: Order) -> Order:
        return "three" if order.n == 3 else order  # type: ignore[return-value]

    job = orders(6).map_async(odd, retries=5, on_error="dead_letter").sink(plait.Collect()).job
    result = plait.run(job)
    (letter,) = result.dead_letters
    assert (letter.row, letter.record) == (4, Order(3))
    with pytest.raises(RecordError, match="failed: expected") as caught:
        orders(6).map_async(odd).collect()
    assert caught.value.row == 4


def test_lookups_over_real_connections() -> None:
    """An echo server on this machine; every record opens a connection of its own."""
    server = EchoServer()
    with server:

        async def looked_up(order: Order) -> Order:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            try:
                writer.write(f"{order.n}\n".encode())
                answer = await reader.readline()
            finally:
                writer.close()
                await writer.wait_closed()
            return replace(order, price=float(answer))

        made = orders(200).map_async(looked_up, concurrency=20).collect(epoch_records=16)
    assert made == [Order(n, n * 2.0) for n in range(200)]
    assert 2 <= server.most <= 20


class EchoServer:
    """Answers every line with twice its number, in a thread of its own."""

    def __enter__(self) -> None:
        self.inside = self.most = self.port = 0
        self.loop = asyncio.new_event_loop()
        self.over = asyncio.Event()
        ready = threading.Event()
        self.thread = threading.Thread(target=self.run, args=(ready,))
        self.thread.start()
        assert ready.wait(60)

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.over.set)
        self.thread.join()

    def run(self, ready: threading.Event) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self.serve(ready))

    async def serve(self, ready: threading.Event) -> None:
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        async with server:
            await self.over.wait()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        number = int(await reader.readline())
        await asyncio.sleep(0.001)
        writer.write(f"{number * 2}\n".encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        self.inside -= 1


def test_explain_says_how_it_is_awaited(capsys: Any) -> None:
    orders(1).map_async(same, concurrency=2_000, timeout="2s", retries=3).explain()
    shown = capsys.readouterr().out
    assert "async: awaited in the engine's event loop" in shown
    assert "up to 2,000 records at a time, at most 2s each, 4 tries" in shown
