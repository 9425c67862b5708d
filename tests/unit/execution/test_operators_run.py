"""Operators with their own loop while they run: waits, ports, ends, failures, and other awaits.

Most are compared with the sequential run at several settings; what only a live run has (a source
that goes on, an abort, a snapshot) is driven by hand.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait.execution.local_run import start
from plait.testing import Capture, Feed, assert_same
from plait.testing.nodes import run_on_nodes

if TYPE_CHECKING:
    from collections.abc import Callable

SETTINGS: tuple[dict[str, Any], ...] = (
    {"workers": 1, "epoch_records": 1},
    {"workers": 2, "epoch_records": 3},
    {"workers": 4, "epoch_records": 4096},
)
HANG_S = 60.0


@plait.operator(inputs=("left", "right"))
async def barrier(ctx: plait.Context) -> None:
    while await ctx.wait_all(left=1, right=1):
        ctx.emit(out=(ctx.pop("left"), ctx.pop("right")))


def numbers(count: int, name: str = "n") -> plait.Stream:
    return plait.stream([{name: i} for i in range(count)])


def checked(stream: plait.Stream) -> list[Any]:
    """The records, the same at all settings and as the sequential run has them."""
    stream.sink(plait.Collect(), name="out")
    graph = stream.job.graph()
    for settings in SETTINGS:
        wanted = assert_same(graph, settings)
    return list(wanted.outputs["out"])


def failing(stream: plait.Stream, **settings: Any) -> plait.RecordError:
    with pytest.raises(plait.RecordError) as raised:
        stream.collect(**settings)
    stream.sink(plait.Collect())
    for more in SETTINGS:
        assert_same(stream.job.graph(), more)
    return raised.value


def one(function: Any, **given: Any) -> Any:
    return plait.operator(function)(numbers(10), **given).out


def test_a_zip_of_streams_of_different_length() -> None:
    assert checked(barrier(numbers(5), numbers(9, "m")).out) == [(i, i) for i in range(5)]


def test_wait_any_is_false_when_all_are_over() -> None:
    @plait.operator(inputs=("a", "b"), outputs={"out": {"what": str, "n": int}})
    async def told(ctx: plait.Context) -> None:
        while await ctx.wait_any(a=2, b=3):
            for port, count in (("a", 2), ("b", 3)):
                while ctx.size(port) >= count:
                    ctx.emit((port, sum(record.n for record in ctx.pop(port, count))))
        ctx.emit(("left", ctx.size("a") * 10 + ctx.size("b")))

    found = checked(told(numbers(5), numbers(4)).out)
    assert sorted(found) == [("a", 1), ("a", 5), ("b", 3), ("left", 11)]


def test_wait_all_is_false_as_soon_as_one_is_over() -> None:
    """Not only when all are: what comes then comes behind the last rows of that source."""

    @plait.operator(inputs=("a", "b"), outputs={"out": {"what": str, "n": int}})
    async def told(ctx: plait.Context) -> None:
        assert not ctx.over("a")
        assert not await ctx.wait_all(a=3, b=1)
        assert ctx.over("a")
        assert not ctx.over("b")
        ctx.emit(("a is over", ctx.size("b")))
        while await ctx.wait_all(b=1):
            ctx.emit(("b", ctx.pop("b").n))

    out = told(numbers(2), numbers(100)).out
    found = list(out.collect(epoch_records=1))
    assert found[0].what == "a is over"
    assert found[0].n in (2, 3)
    assert len(found) == 101
    checked(out)


def test_what_is_emitted_at_once_has_the_place_of_its_record() -> None:
    """A union by place shows where each is."""

    @plait.operator(outputs={"out": {"n": int}})
    async def doubled(ctx: plait.Context) -> None:
        ctx.emit((-1,))
        while await ctx.wait_all(records=2):
            for record in ctx.pop("records", 2):
                ctx.emit((100 + record.n,))
        ctx.emit((-2,))

    read = numbers(4)
    found = checked(read.union(doubled(read).out))
    assert [n for (n,) in found] == [0, -1, 1, 100, 101, 2, 3, 102, 103, -2]


def test_peek_size_over_and_names() -> None:
    async def looking(ctx: plait.Context) -> None:
        assert (ctx.inputs, ctx.outputs) == (("records",), ("out",))
        assert await ctx.wait_all(records=3)
        assert ctx.size("records") == 3
        assert [ctx.peek("records", i).n for i in range(3)] == [0, 1, 2]
        assert ctx.pop("records", 0) == []
        while not ctx.over("records"):
            if not await ctx.wait_all(records=ctx.size("records") + 1):
                break
        for record in ctx.pop("records", ctx.size("records")):
            await ctx.emit(record)

    assert checked(one(looking)) == [(n,) for n in range(10)]


def test_an_operator_that_returns_takes_no_more() -> None:
    """What comes later is counted as absorbed, and the run goes on to its end."""

    async def first(ctx: plait.Context, most: int) -> None:
        for _ in range(most):
            await ctx.wait_all(records=1)
            ctx.emit(ctx.pop("records"))

    out = one(first, most=3)
    assert checked(out) == [(0,), (1,), (2,)]
    out.sink(plait.Collect())
    account = out.job.run().account
    assert (account.read, account.absorbed, account.difference) == (10, 10, 0)


def test_an_operator_without_records_begins_at_the_end() -> None:
    @plait.operator(outputs={"out": {"n": int}})
    async def counted(ctx: plait.Context) -> None:
        n = 0
        while await ctx.wait_all(records=1):
            ctx.pop("records")
            n += 1
        ctx.emit((n,))

    schema = {"n": int}
    assert checked(counted(plait.stream(plait.Items([], schema=schema))).out) == [(0,)]
    assert checked(counted(numbers(7)).out) == [(7,)]


def test_a_pair_may_lack_one() -> None:
    @plait.operator(inputs=("a", "b"))
    async def longest(ctx: plait.Context) -> None:
        while await ctx.wait_any(a=1, b=1):
            if await ctx.wait_all(a=1, b=1):
                ctx.emit((ctx.pop("a"), ctx.pop("b")))
                continue
            for port, place in (("a", 0), ("b", 1)):
                while ctx.size(port):
                    pair = [None, None]
                    pair[place] = ctx.pop(port)
                    ctx.emit(pair)

    found = checked(longest(numbers(2), numbers(4, "m")).out)
    assert found == [(0, 0), (1, 1), (None, 2), (None, 3)]


def test_it_may_await_other_things() -> None:
    async def slowly(ctx: plait.Context) -> None:
        async def answer(reader: Any, writer: Any) -> None:
            while line := await reader.readline():
                writer.write(line[::-1].strip() + b"\n")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(host, port)
        try:
            while await ctx.wait_all(records=1):
                record = ctx.pop("records")
                writer.write(f"{record.n + 10}\n".encode())
                reply = await reader.readline()
                await asyncio.sleep(0)
                record.n = int(reply) + await asyncio.to_thread(int, "0")
                ctx.emit(record)
        finally:
            writer.close()
            await writer.wait_closed()
            server.close()
            await server.wait_closed()

    assert checked(one(slowly)) == [(int(str(n)[::-1]),) for n in range(10, 20)]


def test_an_exception_fails_the_record_that_came_last() -> None:
    @plait.operator(inputs=("left", "right"), outputs={"out": "left"})
    async def picky(ctx: plait.Context) -> None:
        while await ctx.wait_any(left=1, right=1):
            for port in ctx.inputs:
                while ctx.size(port):
                    record = ctx.pop(port)
                    ctx.emit(record)
                    if record.n == 3:
                        raise ValueError("3 is refused")

    read = numbers(10)
    out = picky(left=read.filter(plait.col("n") % 2 == 0), right=read).out
    with pytest.raises(plait.RecordError) as raised:
        out.collect()
    error = raised.value
    assert (error.operator, error.row, error.record.n) == ("picky", 4, 3)
    assert isinstance(error.__cause__, ValueError)
    first, second, third = str(error).splitlines()
    assert first.startswith("picky at test_operators_run.py:")
    assert first.endswith(" raised ValueError: 3 is refused")
    assert second == "  record 4 of source source-1, at port right: Record(n=3)"
    assert third.endswith("an operator with its own loop goes on from what it catches itself")
    failing(out)


def test_an_exception_at_the_end() -> None:
    async def sorry(ctx: plait.Context) -> None:
        while await ctx.wait_all(records=1):
            ctx.emit(ctx.pop("records"))
        ctx.emit((99,))
        raise ValueError("at the end")

    error = failing(one(sorry))
    assert "at the end of records: ValueError: at the end" in str(error)
    assert isinstance(error.__cause__, ValueError)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("await ctx.wait_all()", "ValueError: wait_all() waits for nothing; name ports: wait_all("),
        ("await ctx.wait_all(left=1)", 'there is no input "left"; there is records'),
        ("await ctx.wait_any(records=0)", "wait_any(records=0): a whole number above 0 is wanted"),
        ("await ctx.wait_all(records=True)", "a whole number above 0 is wanted"),
        ("await ctx.wait_all(records=6)", "at most bound=5 can wait there"),
        ("ctx.pop('records')", 'port "records" has 0 records, not 1; wait for them'),
        ("ctx.pop('records', -1)", "pop('records', -1): a whole number is wanted"),
        ("ctx.peek('records')", 'port "records" has 0 records, and none at 0'),
        ("ctx.size('right')", 'there is no input "right"'),
        ("ctx.over('right')", 'there is no input "right"'),
        ("ctx.emit(other=1)", 'emit: there is no output "other"; there is out'),
        ("ctx.emit(1, 2)", "emit: name the port of each record: out"),
        ("ctx.emit({'n': 'x'})", 'emit at "out": column "n": expected int64, got \'x\' (str)'),
        ("ctx.emit({'n': None})", 'column "n": expected int64, got None'),
    ],
)
def test_wrong_uses_of_the_context(body: str, said: str) -> None:
    names: dict[str, Any] = {}
    exec(f"async def wrong(ctx):\n    {body}", names)
    with pytest.raises(plait.RecordError) as raised:
        plait.operator(names["wrong"])(numbers(10), bound=5).out.collect()
    assert said in str(raised.value)
    assert raised.value.row == 1


def test_a_port_that_is_full() -> None:
    out = barrier(left=numbers(9), right=plait.stream([{"m": 1}]), bound=4).out
    error = failing(out, epoch_records=16)
    assert error.row == 5
    assert (
        'failed: port "left" is full: 4 records wait there while the operator waits with'
        " wait_all(left=1, right=1); let it pop them, or give bound= more or None"
    ) in str(error)
    assert len(barrier(left=numbers(9), right=numbers(9), bound=None).out.collect()) == 9


def test_a_loop_that_does_not_heed_the_end() -> None:
    async def deaf(ctx: plait.Context) -> None:
        while True:
            await ctx.wait_all(records=1)

    with pytest.raises(plait.RecordError, match=r"10,000 times in a row; end the loop then"):
        one(deaf).filter(plait.col("n") > 5).collect(limit=0)


def test_only_its_own_coroutine_may_use_the_ports() -> None:
    async def parallel(ctx: plait.Context) -> None:
        await asyncio.gather(ctx.wait_all(records=1), ctx.wait_all(records=2))

    with pytest.raises(plait.RecordError, match="only the operator's own coroutine may wait"):
        one(parallel).collect()


def test_a_misfit_may_be_caught() -> None:
    async def trying(ctx: plait.Context) -> None:
        while await ctx.wait_all(records=1):
            record = ctx.pop("records")
            try:
                ctx.emit({"n": str(record.n)})
            except ValueError:
                ctx.emit(record)

    assert len(checked(one(trying))) == 10


def test_emit_at_several_ports() -> None:
    @plait.operator(outputs={"even": "records", "odd": {"n": int, "why": str}})
    async def split(ctx: plait.Context) -> None:
        while await ctx.wait_all(records=1):
            record = ctx.pop("records")
            if record.n % 2:
                ctx.emit(odd=(record.n, "odd"))
            else:
                ctx.emit(even=record, odd={"n": -record.n, "why": "even"})

    outputs = split(numbers(5))
    assert checked(outputs.even) == [(0,), (2,), (4,)]
    wanted = [(0, "even"), (1, "odd"), (-2, "even"), (3, "odd"), (-4, "even")]
    assert checked(split(numbers(5)).odd) == wanted

    @plait.operator(outputs={"a": {"n": int}, "b": {"n": int}})
    async def nameless(ctx: plait.Context) -> None:
        ctx.emit((1,))

    with pytest.raises(plait.RecordError, match="emit: name the port of each record: a, b"):
        nameless(numbers(1)).a.collect()


def test_a_live_port_and_one_that_is_over() -> None:
    """With a source that goes on, the operator still hears that another one has ended."""
    feed = Feed({"n": int})
    job = plait.Job("live")
    live, ended = job.source(feed), job.source([{"m": 1}, {"m": 2}])
    barrier(left=live, right=ended).out.sink(plait.Collect(), name="pairs")
    heard = threading.Event()

    @plait.operator(inputs=("left", "right"), outputs={"out": "left"})
    async def hearing(ctx: plait.Context) -> None:
        await ctx.wait_all(right=3)
        heard.set()

    hearing(left=live, right=ended).out.sink(plait.Collect(), name="none")
    running = start(job, workers=2)
    try:
        while not heard.wait(0.01):
            feed.push([{"n": 1}])
    finally:
        feed.close()
        result = running.wait()
    assert heard.is_set()
    assert result.account.difference == 0


def test_an_await_that_never_ends_does_not_hang_an_abort() -> None:
    reached, cleaned = threading.Event(), threading.Event()

    async def stuck(ctx: plait.Context) -> None:
        await ctx.wait_all(records=1)
        try:
            reached.set()
            await asyncio.get_running_loop().create_future()
        finally:
            cleaned.set()

    job = plait.Job("stuck")
    plait.operator(stuck)(job.source([{"n": 1}])).out.sink(plait.Collect())
    running = start(job, workers=2)
    assert reached.wait(HANG_S)
    running.abort()
    with pytest.raises(plait.Interrupted):
        running.wait()
    assert cleaned.is_set()


def test_an_operator_that_waits_is_ended_with_the_run() -> None:
    """A sink that has enough ends the run; the coroutine's own clean-up is run."""
    cleaned = threading.Event()

    async def passing(ctx: plait.Context) -> None:
        try:
            while await ctx.wait_all(records=1):
                ctx.emit(ctx.pop("records"))
        finally:
            cleaned.set()

    numbered = plait.stream(plait.Rate(1e6))
    plait.operator(passing)(numbered).out.show(3)
    assert cleaned.is_set()


def test_a_stopped_run_tells_its_ports() -> None:
    """Stop ends the sources: what waits in the operator can still be told."""
    feed = Feed({"n": int})
    job = plait.Job("stopped")
    began = threading.Event()

    @plait.operator(outputs={"out": {"n": int}})
    async def held(ctx: plait.Context) -> None:
        while await ctx.wait_all(records=ctx.size("records") + 1):
            began.set()
        ctx.emit((ctx.size("records"),))

    held(job.source(feed)).out.sink(plait.Collect(), name="out")
    running = start(job, workers=1)
    feed.push([{"n": n} for n in range(5)])
    assert began.wait(HANG_S)
    running.stop()
    result = running.wait()
    assert result.outputs["out"].to_pylist() == [{"n": result.account.read}]


def test_a_failure_elsewhere_is_no_end_of_its_ports() -> None:
    """The run stops reading, but the source is not at its end: nothing that comes then is told."""
    feed, sink = Feed({"n": int}), Capture()
    job = plait.Job("elsewhere")
    read = job.source(feed)

    def picky(record: Any) -> Any:
        if record.n == 3:
            raise ValueError("3 is refused")
        return record

    @plait.operator(outputs={"out": {"n": int}})
    async def counted(ctx: plait.Context) -> None:
        while await ctx.wait_all(records=ctx.size("records") + 1):
            pass
        ctx.emit((ctx.size("records"),))

    read.map(picky).sink(plait.Discard())
    counted(read).out.sink(sink)
    running = start(job, workers=2)
    feed.push([{"n": n} for n in range(5)])
    with pytest.raises(plait.RecordError, match="3 is refused"):
        running.wait()
    assert sum(batch.num_rows for batch in sink.batches) == 0


def test_there_is_no_snapshot_of_it() -> None:
    feed = Feed({"n": int})
    job = plait.Job("kept")
    barrier(job.source(feed), job.source([{"m": 1}])).out.sink(plait.Collect())
    running = start(job, workers=1)
    feed.push([{"n": 1}])
    try:
        with pytest.raises(plait.StateError, match=r"barrier at .* has a loop of its own.*saved"):
            running.snapshot()
    finally:
        feed.close()
        running.wait()


def test_it_needs_the_order() -> None:
    async def never(ctx: plait.Context) -> None: ...

    with pytest.raises(plait.JobError, match=r"own loop, whose output is"):
        one(never).collect(order="none")


def test_a_failure_on_nodes_is_told_as_on_one() -> None:
    def job() -> plait.Job:
        made = plait.Job("failing")
        left, right = made.source([{"n": n} for n in range(20)]), made.source([{"m": 1}])
        barrier(left, right, bound=7).out.sink(plait.Collect())
        return made

    def told(run: Callable[..., Any], *more: Any) -> str:
        with pytest.raises(plait.RecordError) as raised:
            run(job(), *more, epoch_records=32)
        return str(raised.value).replace(" raised ", " failed: ")

    assert told(plait.run) == told(run_on_nodes, 2)
