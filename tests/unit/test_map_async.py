"""map_async: what is refused when it is built, the order, limits, tries and policies, and the end.

Nothing here waits for a clock where it can wait for an event: functions meet at gates that open
when as many are there as the test expects.
"""

from __future__ import annotations

import asyncio
import datetime
import functools
import threading
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pytest

import plait
from plait.errors import InternalError, Interrupted, JobError, RecordError
from plait.node_runtime import async_loop
from plait.run import start
from plait.testing import sequential
from plait.testing.check import rows_of_arrow


@dataclass
class Order:
    n: int
    price: float = 1.5


def orders(count: int) -> plait.Stream:
    return plait.stream([Order(n) for n in range(count)])


def numbers(records: Any) -> list[int]:
    return [record.n for record in records]


async def same(order: Order) -> Order:
    return order


async def refusing(order: Order) -> Order:
    """Refuses one in ten, after others that began later."""
    await asyncio.sleep(0.001 * (order.n % 3))
    if order.n % 10 == 7:
        raise ValueError(f"{order.n} is refused")
    return replace(order, price=order.n / 2)


class Gate:
    """Opens when so many are inside, and counts the most that ever were."""

    def __init__(self, opens_at: int) -> None:
        self.opens_at = opens_at
        self.inside = self.most = 0
        self.opened = asyncio.Event()

    async def __call__(self, order: Order) -> Order:
        self.inside += 1
        self.most = max(self.most, self.inside)
        if self.inside == self.opens_at:
            self.opened.set()
        await self.opened.wait()
        await asyncio.sleep(0)
        self.inside -= 1
        return order


class Stuck:
    """Never returns; says when a record is there, and which were cancelled."""

    def __init__(self, *, ready_at: int = 1) -> None:
        self.there = threading.Event()
        self.ready_at = ready_at
        self.began: list[int] = []
        self.cancelled: list[int] = []

    async def __call__(self, order: Order) -> Order:
        self.began.append(order.n)
        if len(self.began) == self.ready_at:
            self.there.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.append(order.n)
            raise
        return order


def blocking(order: Order) -> Order:
    return order


async def yielding(order: Order) -> Any:
    yield order


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
    assert [letter.row for letter in result.dead_letters] == [*range(3, 40, 4)]
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
    assert [letter.row for letter in result.dead_letters] == [2, 7, 12, 17]
    assert {letter.error for letter in result.dead_letters} == {
        "TimeoutError: no result within 0.05 s"
    }
    assert all(tries[n] == (2 if n % 5 in (2, 3) else 1) for n in range(20))


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_policies_are_those_of_the_plain_loop(policy: Any) -> None:
    job = orders(100).map_async(refusing, on_error=policy).sink(plait.Collect(), name="out").job
    result, wanted = plait.run(job, epoch_records=8), sequential(job.graph(), epoch_records=8)
    assert (
        rows_of_arrow(result.outputs["out"], job.graph().nodes[-1].schema) == wanted.outputs["out"]
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
    assert caught.value.row == 30
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
        assert caught.value.row == 3


def test_a_result_that_does_not_fit_is_a_failure_of_its_record() -> None:
    async def odd(order: Order) -> Order:
        return "three" if order.n == 3 else order  # type: ignore[return-value]

    job = orders(6).map_async(odd, retries=5, on_error="dead_letter").sink(plait.Collect()).job
    result = plait.run(job)
    (letter,) = result.dead_letters
    assert (letter.row, letter.record) == (3, Order(3))
    with pytest.raises(RecordError, match="failed: expected") as caught:
        orders(6).map_async(odd).collect()
    assert caught.value.row == 3


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
    monkeypatch.setattr(async_loop, "PATIENCE_S", 0.0)
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
    assert running.built.loop is not None
    thread = running.built.loop.thread
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
    position = snapshot.positions["source-1"]
    assert 200 < position < 400
    rest = start(job, state=snapshot, **settings).wait().outputs["out"].to_pylist()
    assert rest == whole[position:]


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


async def fee(n: int, price: float) -> float:
    await asyncio.sleep(0)
    return n + price


async def of_nothing(prise: float) -> float:
    return prise


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "name at least one column"),
        ({"fee": plait.col("n")}, '"fee" is no async function; add it by with_columns(fee=...)'),
        ({"fee": lambda n: n}, "is not async"),
        ({"fee": yielding}, '"yielding" yields'),
        ({"fee": of_nothing}, 'did you mean "price"?'),
        ({"fee": fee, "schema": {"fees": int}}, 'schema= names "fees"'),
        ({"fee": fee, "concurrency": 0}, "concurrency is 0"),
        ({"fee": fee, "on_error": "again"}, "on_error is 'again'"),
    ],
)
def test_columns_that_are_refused(given: Any, words: str) -> None:
    with pytest.raises(JobError, match=r"with_columns_async at .*test_map_async.py") as caught:
        orders(1).with_columns_async(**given)
    assert words in str(caught.value)


def test_with_columns_says_where_async_functions_go() -> None:
    with pytest.raises(JobError, match="use with_columns_async"):
        orders(1).with_columns(fee=fee)


def test_columns_are_added_and_replaced_in_their_places() -> None:
    async def half(price: float) -> float:
        return price / 2

    stream = orders(50).with_columns_async(fee=fee, price=half, concurrency=7)
    assert str(stream.schema) == "n: int64, price: float64, fee: float64"
    found = [(one.n, one.price, one.fee) for one in stream.collect(epoch_records=4)]
    assert found == [(n, 0.75, n + 1.5) for n in range(50)]


def test_columns_of_a_record_are_awaited_at_the_same_time() -> None:
    both = Gate(opens_at=2)

    async def first(n: int) -> int:
        return (await both(Order(n))).n

    async def second(n: int) -> int:
        return (await both(Order(n))).n + 1

    found = orders(1).with_columns_async(a=first, b=second, concurrency=1).collect()
    assert [(one.a, one.b) for one in found] == [(0, 1)]


def test_the_first_column_that_failed_is_told_and_the_others_are_cancelled() -> None:
    stuck = Stuck()

    async def fails(n: int) -> int:
        await asyncio.sleep(0)
        raise ValueError(f"{n} is refused")

    async def waits(n: int) -> int:
        return (await stuck(Order(n))).n

    stream = orders(1).with_columns_async(a=fails, b=waits, timeout=None)
    with pytest.raises(RecordError, match=r'with_columns_async "fails" at .*: 0 is refused'):
        stream.collect()
    assert stuck.cancelled == [0]


def test_columns_that_do_not_fit() -> None:
    async def text(n: int) -> int:
        return "text" if n == 3 else n  # type: ignore[return-value]

    async def forgets(n: int) -> Any:
        return text(n)

    stream = orders(10).with_columns_async(a=text, b=fee, on_error="dead_letter")
    stream.sink(plait.Collect(), name="out")
    result = stream.run()
    wanted = sequential(stream.job.graph())
    assert rows_of_arrow(result.outputs["out"], wanted.schemas["out"]) == wanted.outputs["out"]
    assert [letter.error for letter in result.dead_letters] == [
        letter.error for letter in wanted.dead_letters
    ]
    with pytest.raises(RecordError, match="write `return await"):
        orders(1).with_columns_async(a=forgets, retries=3).collect()


@pytest.mark.parametrize("others", [0, 1])
def test_a_column_that_leaves_the_interpreter(others: int) -> None:
    async def leaves(n: int) -> int:
        raise SystemExit(3)

    more: dict[str, Any] = {"fee": fee} if others else {}
    with pytest.raises(SystemExit):
        orders(3).with_columns_async(a=leaves, **more).collect()


def test_columns_keep_the_event_time_unless_they_replace_it() -> None:
    async def later(ts: plait.Timestamp) -> plait.Timestamp:
        return ts

    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    stream = plait.stream([{"n": 1, "price": 2.0, "ts": start}], event_time="ts")
    kept = stream.with_columns_async(fee=fee).tumbling("10s").count().collect()
    assert [one.count for one in kept] == [1]
    with pytest.raises(JobError, match="dropped or replaced"):
        stream.with_columns_async(ts=later).tumbling("10s")
