"""The same jobs on every entry point: each gives what the plain loop gives, in order.

The entry points are a table in tests/conftest.py; a new one is one more line there. The jobs here
have one of everything: each operator, the policies for records that fail, files in and out. A new
feature adds its job to JOBS.
"""

from __future__ import annotations

import asyncio
import datetime
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait import col
from plait.testing import sequential
from plait.testing.check import compare_accounts, compare_letters, rows_of_arrow
from plait.testing.difference import story
from plait.testing.random_jobs import functions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    EntryPoint = Callable[..., plait.Result]

ROWS = 400
SETTINGS = {"epoch_records": 16, "bin_bits": 4}


def given() -> pa.Table:
    """Some keys, a column with nulls, strings, and a number that some functions refuse."""
    numbers = range(ROWS)
    return pa.table(
        {
            "k": [n * 7919 % 23 for n in numbers],
            "v": [None if n % 11 == 0 else n for n in numbers],
            "s": ["abc"[n % 3] * (n % 5) for n in numbers],
            "n": list(numbers),
        }
    )


def records() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = given().to_pylist()
    return found


def twice(record: Any) -> list[Any]:
    return [record] * (record.n % 3)


def odd(record: Any) -> Any:
    if record.n % 50 == 49:
        raise ValueError(f"{record.n} is refused")
    return record


async def fetched(record: Any) -> Any:
    await asyncio.sleep(0.0001 * (record.n * 7 % 5))
    return odd(record)


async def looked(n: int, s: str) -> str:
    await asyncio.sleep(0.0001 * (n * 7 % 5))
    if n % 50 == 49:
        raise ValueError(f"{n} is refused")
    return f"{s}{n}"


async def next_one(n: int) -> int | None:
    await asyncio.sleep(0)
    return None if n % 9 == 0 else n + 1


def flaky_fee(n: int) -> int:
    """Comes at the third try for some, and for some too late."""
    late = (0, 2, 1, 0, 3)[n % 5]
    if functions.tries.raised < late:
        functions.tries.raised = (functions.tries.raised + 1) % 3
        raise ConnectionError(f"not yet: {n}")
    functions.tries.raised = 0
    return 10 * n


def added(state: int, record: Any) -> int:
    return state + int(record.n)


def alternating(state: int, record: Any) -> Any:
    return state + 1, record if state % 2 == 0 else None


def with_double(table: Any) -> Any:
    return table.append_column("d", pa.array([2 * n for n in table["n"].to_pylist()], pa.int64()))


@plait.compiled
def half(n: int) -> int:
    return n // 2


@plait.operator(inputs=("left", "right"))
async def barrier(ctx: plait.Context) -> None:
    while await ctx.wait_all(left=1, right=1):
        ctx.emit(out=(ctx.pop("left"), ctx.pop("right")))


@plait.operator(inputs=("data", "control"), outputs={"passed": "data", "held": {"n": int}})
async def gate(ctx: plait.Context, step: int) -> None:
    """Passes as many as it is allowed to, and tells what it had to hold."""
    allowed = 0
    while await ctx.wait_any(data=1, control=1):
        while ctx.size("control"):
            ctx.pop("control")
            allowed += step
        while ctx.size("data"):
            record = ctx.pop("data")
            if allowed:
                allowed -= 1
                ctx.emit(passed=record)
            else:
                await ctx.emit(held=(record.n,), passed=record)
                ctx.emit(held=(-record.n,))


@plait.operator
async def in_threes(ctx: plait.Context) -> None:
    while await ctx.wait_all(records=3):
        for record in reversed(ctx.pop("records", 3)):
            await asyncio.sleep(0)
            ctx.emit(record)
    while ctx.size("records"):
        ctx.emit(ctx.pop("records"))


@plait.operator
async def first_ones(ctx: plait.Context, most: int) -> None:
    for _ in range(most):
        if not await ctx.wait_any(records=1):
            return
        ctx.emit(ctx.pop("records"))


def gated(s: Any) -> Any:
    outputs = gate(data=s, control=s.filter(col("n") % 4 == 1), step=2)
    return outputs.passed.select("n").union(outputs.held)


WITH_DOUBLE = {"k": int, "v": int | None, "s": str, "n": int, "d": int}

TRIES: dict[str, Any] = {"retries": 2, "backoff": "50us"}

JOBS: dict[str, Any] = {
    "filter": lambda s: s.filter(col("v") % 3 != 0),
    "projections": lambda s: s.with_columns(w=col("n") * 2).select("w", "s").rename(t="s"),
    "compiled": lambda s: s.with_columns(h=half(col("n"))),
    "overflow": lambda s: s.with_columns(
        w=col("n") * 2**55 + 2**62, h=plait.wrapping(col("n") * 2**60), on_error="dead_letter"
    ),
    "texts as times": lambda s: s.with_columns(
        t=plait.concat("2024-02-", col("n") % 40, " 10:00").to_timestamp(tz="Europe/Berlin"),
        u=(col("n") * 501).to_timestamp(unit="ns"),
        on_error="dead_letter",
    ),
    "python map": lambda s: s.map(odd, schema=s.schema, on_error="skip"),
    "async map": lambda s: s.map_async(
        fetched, schema=s.schema, concurrency=30, retries=1, backoff="1ms", on_error="skip"
    ),
    "async dead letters": lambda s: (
        s.map_async(fetched, schema=s.schema, on_error="dead_letter").key_by("k").sum("n")
    ),
    "async columns": lambda s: s.with_columns_async(
        t=looked, n=next_one, concurrency=30, on_error="skip", schema={"n": int | None}
    ),
    "async columns, dead letters": lambda s: (
        s.with_columns_async(s=looked, retries=1, backoff="1ms", on_error="dead_letter")
        .key_by("k")
        .aggregate(last=plait.last("s"))
    ),
    "map, tried again": lambda s: s.map(
        functions.Flaky(odd, 2), schema=s.schema, on_error="skip", **TRIES
    ),
    "filter, tried again": lambda s: s.filter(
        functions.Flaky(odd, 2), on_error="dead_letter", **TRIES
    ),
    "flat_map, tried again": lambda s: s.flat_map(
        functions.Flaky(twice, 2), schema=s.schema, on_error="dead_letter", **TRIES
    ),
    "columns, tried again": lambda s: (
        s.with_columns(fee=flaky_fee, on_error="dead_letter", **TRIES).key_by("k").sum("fee")
    ),
    "python filter": lambda s: s.filter(lambda record: record.n % 7 != 3),
    "flat_map": lambda s: s.flat_map(twice, schema=s.schema),
    "map_batches": lambda s: s.map_batches(with_double, schema=WITH_DOUBLE),
    "count by key": lambda s: s.key_by("k").count(),
    "aggregate by two keys": lambda s: s.key_by("k", "s").aggregate(
        n=plait.count(), total=plait.sum("v"), least=plait.min("n"), last=plait.last("s")
    ),
    "aggregate of all": lambda s: s.aggregate(n=plait.count(), mean=plait.mean("v")),
    "fold by key": lambda s: s.key_by("s").fold(0, added, type=int),
    "fold of all": lambda s: s.fold(0, added, type=int),
    "fold in the pool": lambda s: s.key_by("s").fold(0, added, type=int, route="pool"),
    "stateful in the pool": lambda s: s.key_by("k").stateful(
        0, alternating, schema=s.schema, route="pool"
    ),
    "stateful by key": lambda s: s.key_by("k").stateful(0, alternating, schema=s.schema),
    "stateful of all": lambda s: s.stateful(0, alternating, schema=s.schema),
    "two keyed operators": lambda s: (
        s.key_by("k").aggregate(c=plait.count()).with_columns(m=col("c") % 5).key_by("m").count()
    ),
    "flat_map, then by key": lambda s: s.flat_map(twice, schema=s.schema).key_by("k").count(),
    "union of two branches": lambda s: s.filter(col("n") % 2 == 0).union(
        s.filter(col("n") % 3 > 0)
    ),
    "barrier": lambda s: barrier(left=s, right=s.filter(col("n") % 3 == 0)).out,
    "two outputs": gated,
    "behind a loop, by key": lambda s: in_threes(s).out.key_by("k").count(),
    "a loop behind keys": lambda s: in_threes(s.key_by("k").count()).out,
    "a loop behind flat_map": lambda s: in_threes(s.flat_map(twice, schema=s.schema)).out,
    "a loop that ends": lambda s: first_ones(s, most=77).out,
    "loops behind each other": lambda s: barrier(in_threes(s).out, first_ones(s, most=50).out).out,
    "windows by arrival": lambda s: s.tumbling("500us", by="arrival").count(),
    "sessions by arrival": lambda s: s.key_by("k").session(gap="200us", by="arrival").sum("n"),
    "dead letters": lambda s: (
        s.map(odd, schema=s.schema, on_error="dead_letter").key_by("k").sum("n")
    ),
    "dead letters behind keys": lambda s: (
        s.key_by("k")
        .aggregate(n=plait.max("n"))
        .map(odd, schema={"k": int, "n": int | None}, on_error="dead_letter")
    ),
}


class Quiet(plait.Process):
    """Tells of keys that have been quiet for five seconds."""

    state: ClassVar[Any] = {"seen": int, "last": datetime.datetime}
    out: ClassVar[Any] = {"k": int, "seen": int, "ts": datetime.datetime}

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> None:
        state.seen += 1
        state.last = record.ts
        timers.at(record.ts + plait.seconds(5))

    def on_timer(self, key: Any, time: Any, state: Any, timers: Any) -> Any:
        if state.last + plait.seconds(5) == time:
            yield key, state.seen, time


class Patient(plait.Process):
    """Waits for a moment by the wall clock, which has passed a few epochs later."""

    state: ClassVar[Any] = {"seen": int}
    out: ClassVar[Any] = {"k": int, "seen": int, "at": datetime.datetime}

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> Any:
        state.seen += 1
        timers.after("100us")
        yield key, state.seen, timers.now

    def on_timeout(self, key: Any, at: Any, state: Any, timers: Any) -> Any:
        yield key, -state.seen, at


def timed() -> pa.Table:
    """A record a second, some out of order, some late; others in its own time."""
    start = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    behind = [n + (-30 if n % 10 == 3 else 2 if n % 4 == 1 else 0) for n in range(ROWS)]
    times = [start + datetime.timedelta(seconds=n) for n in behind]
    until = [at + datetime.timedelta(seconds=n % 9) for n, at in enumerate(times)]
    kind = pa.timestamp("us", "UTC")
    with_times = given().append_column("ts", pa.array(times, kind))
    return with_times.append_column("until", pa.array(until, kind))


def paired(join: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """A job of two streams, of the even and the odd records, with few keys."""

    def job(s: Any) -> Any:
        few = s.with_columns(k=col("n") // 3 % 4)
        odd_ones = few.filter(col("n") % 2 == 1).select("k", "v", "ts")
        return join(few.filter(col("n") % 2 == 0), odd_ones)

    return job


TIMED_JOBS: dict[str, Any] = {
    "tumbling": lambda s: s.key_by("s").tumbling("10s").count(),
    "tumbling of all": lambda s: s.tumbling("10s", lateness="5s").aggregate(
        n=plait.count(), mean=plait.mean("v"), kinds=plait.distinct("s")
    ),
    "sliding": lambda s: s.key_by("s").sliding("10s", every="4s", early="3s").sum("v"),
    "session": lambda s: (
        s.key_by("k")
        .session(gap="15s")
        .aggregate(n=plait.count(), first=plait.first("n"), last=plait.last("s"))
    ),
    "rows": lambda s: s.key_by("k").rows(5, every=2).max("n"),
    "last n": lambda s: s.key_by("k").last_n(3).mean("n"),
    "top": lambda s: s.tumbling("10s").top(2, by="k", ties=True),
    "late": lambda s: s.key_by("k").tumbling("10s").late(),
    "by window": lambda s: (
        s.key_by("k").sliding("20s", every="5s").count().by_window().top(1, by="count", ties=True)
    ),
    "windows by arrival": lambda s: s.key_by("k").tumbling("500us", by="arrival").count(),
    "by window by arrival": lambda s: (
        s.key_by("k")
        .sliding("2ms", every="1ms", by="arrival")
        .count()
        .by_window()
        .top(1, by="count", ties=True)
    ),
    "sessions by arrival, behind windows": lambda s: (
        s.key_by("k").tumbling("5s").count().session(gap="200us", by="arrival").count()
    ),
    "windows by arrival, behind the pool": lambda s: (
        s.flat_map(twice, schema=s.schema, route="pool")
        .key_by("s")
        .tumbling("500us", by="arrival")
        .sum("n")
    ),
    "windows behind windows": lambda s: (
        s.key_by("k").tumbling("5s").count().tumbling("30s").count()
    ),
    "windows behind flat_map": lambda s: (
        s.flat_map(twice, schema=s.schema).key_by("s").tumbling("10s").sum("n")
    ),
    "join": paired(lambda a, b: a.filter(col("n") < 60).join(b, on="k")),
    "join in windows": paired(
        lambda a, b: a.join(b, on="k", window=plait.Tumbling("10s"), how="semi")
    ),
    "join in between": paired(lambda a, b: a.join(b, on="k", between=("-3s", "4s"), how="left")),
    "join as of": paired(lambda a, b: a.join_as_of(b, on="k", tolerance="6s")),
    "join with ttl": paired(lambda a, b: a.join(b, on="k", ttl="1s", how="left")),
    "spans": paired(
        lambda a, b: a.join(b, on="k", between=(col("ts"), col("until"))).aggregate(
            c=plait.count(), most=plait.max("v")
        )
    ),
    "late for a join": paired(lambda a, b: b.join(a, on="k", between=("-3s", "4s"), how="late")),
    "process": lambda s: s.key_by("k").process(Quiet()),
    "timeouts": lambda s: s.key_by("k").process(Patient()),
    "process in the pool": lambda s: s.key_by("k").process(Quiet(), route="pool"),
    "timeouts in the pool": lambda s: s.key_by("k").process(Patient(), route="pool"),
    "forgotten fold in the pool": lambda s: s.key_by("k", ttl="25s").fold(
        0, added, type=int, route="pool"
    ),
    "forgotten": lambda s: s.key_by("k", ttl="25s").aggregate(n=plait.count(), last=plait.max("s")),
    "forgotten fold": lambda s: s.key_by("k", ttl="25s").fold(0, added, type=int),
    "forgotten process": lambda s: s.key_by("k", ttl="7s").process(Quiet()),
    "a loop behind windows": lambda s: in_threes(s.key_by("s").tumbling("10s").count()).out,
    "windows behind a loop": lambda s: (
        in_threes(s).out.with_event_time("ts").key_by("s").tumbling("10s").count()
    ),
}
SOURCES: dict[str, Callable[[], Any]] = {
    "a table": lambda: plait.Table(given()),
    "records": lambda: plait.Items(records()),
}


def assert_right(job: plait.Job, result: plait.Result) -> None:
    graph = job.graph()
    epoch_records = SETTINGS["epoch_records"]
    cuts = result.cuts if result.stamps else None
    wanted = sequential(graph, epoch_records=epoch_records, cuts=cuts, stamps=result.stamps)
    for label, right in wanted.outputs.items():
        rows = rows_of_arrow(result.outputs[label], wanted.schemas[label])
        told = story(label, wanted.schemas[label], rows, right, "sequential")
        assert not told, told
    compare_accounts("counts", result, wanted)
    compare_letters("dead letters", result.dead_letters, wanted.dead_letters)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", JOBS)
def test_a_job(entry_point: EntryPoint, name: str, source: str) -> None:
    job = plait.Job("entry")
    JOBS[name](job.source(SOURCES[source](), name="given")).sink(plait.Collect(), name="out")
    assert_right(job, entry_point(job, **SETTINGS))


@pytest.mark.parametrize("name", TIMED_JOBS)
def test_a_job_that_knows_time(entry_point: EntryPoint, name: str) -> None:
    job = plait.Job("entry")
    read = job.source(plait.Table(timed()), name="given", event_time="ts", out_of_order="3s")
    TIMED_JOBS[name](read).sink(plait.Collect(), name="out")
    result = entry_point(job, **SETTINGS)
    assert_right(job, result)
    assert result.account.delivered > 0


def test_two_sources_with_their_own_time(entry_point: EntryPoint) -> None:
    """The slower one holds the watermark up until it ends."""
    job = plait.Job("entry")
    one = job.source(plait.Table(timed().slice(0, 90)), name="one", event_time="ts")
    two = job.source(plait.Table(timed().slice(60)), name="two", event_time="ts")
    both = one.union(two)
    both.key_by("k").tumbling("10s").count().sink(plait.Collect(), name="counts")
    both.key_by("k").tumbling("10s").late().sink(plait.Collect(), name="late")
    one.join(two, on="n", how="left").sink(plait.Collect(), name="pairs")
    assert_right(job, entry_point(job, **SETTINGS))


def test_two_sources_and_two_sinks(entry_point: EntryPoint) -> None:
    job = plait.Job("entry")
    one = job.source(plait.Table(given().slice(0, 100)), name="one")
    two = job.source(plait.Items(records()[100:]), name="two")
    both = one.union(two)
    both.key_by("k").count().sink(plait.Collect(), name="counts")
    both.filter(col("n") % 2 == 0).sink(plait.Collect(), name="even")
    assert_right(job, entry_point(job, **SETTINGS))


def test_two_sources_of_a_loop(entry_point: EntryPoint) -> None:
    """One ends long before the other, and with it a port."""
    job = plait.Job("entry")
    one = job.source(plait.Table(given().slice(0, 30)), name="one")
    two = job.source(plait.Items(records()), name="two")
    barrier(left=one, right=two).out.sink(plait.Collect(), name="pairs")
    outputs = gate(data=two, control=one, step=3)
    outputs.passed.key_by("k").count().sink(plait.Collect(), name="passed")
    outputs.held.sink(plait.Collect(), name="held")
    assert_right(job, entry_point(job, **SETTINGS))


def test_numbered_records(entry_point: EntryPoint) -> None:
    job = plait.Job("entry")
    numbered = job.source(plait.Rate(1e9, total=ROWS), name="numbers")
    numbered.with_columns(k=col("seq") % 7).key_by("k").aggregate(n=plait.max("seq")).sink(
        plait.Collect(), name="out"
    )
    result = entry_point(job, **SETTINGS)
    assert result.outputs["out"].to_pylist() == [{"k": n % 7, "n": n} for n in range(ROWS)]
    assert result.account.difference == 0


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_files_in_and_out(entry_point: EntryPoint, tmp_path: Path, suffix: str) -> None:
    pq.write_table(given(), tmp_path / "in.parquet")
    job = plait.Job("entry")
    read = job.source(plait.Files(tmp_path / "in.parquet"), name="in")
    counts = read.key_by("k").aggregate(n=plait.count(), total=plait.sum("v"))
    counts.sink(plait.Files(tmp_path / f"out.{suffix}"), name="out")
    wanted = sequential(job.graph(), epoch_records=SETTINGS["epoch_records"])
    result = entry_point(job, **SETTINGS)
    assert result.account.delivered == ROWS
    schema = wanted.schemas["out"]
    again = plait.stream(plait.Files(tmp_path / f"out.{suffix}", schema=schema))
    assert rows_of_arrow(again.to_arrow(), schema) == wanted.outputs["out"]


def test_dead_letters_go_to_their_sink(entry_point: EntryPoint, tmp_path: Path) -> None:
    path = tmp_path / "letters.jsonl"
    job = plait.Job("entry", dead_letters=plait.Files(path))
    read = job.source(plait.Table(given()), name="given")
    read.map(odd, schema=read.schema, on_error="dead_letter").sink(plait.Collect(), name="out")
    result = entry_point(job, **SETTINGS)
    assert [letter.row for letter in result.dead_letters] == list(range(50, ROWS + 1, 50))
    letters = plait.stream(plait.Files(path)).collect()
    assert sorted(letter.row for letter in letters) == list(range(50, ROWS + 1, 50))
    assert {letter.error for letter in letters} == {
        f"ValueError: {n} is refused" for n in range(49, ROWS, 50)
    }


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("keyed", [False, True])
def test_a_record_that_fails(entry_point: EntryPoint, source: str, keyed: bool) -> None:
    job = plait.Job("entry")
    read = job.source(SOURCES[source](), name="given")
    if keyed:
        read = read.key_by("k").aggregate(n=plait.max("n"))
    read.map(odd, schema=read.schema).sink(plait.Collect(), name="out")
    with pytest.raises(plait.RecordError) as raised:
        entry_point(job, **SETTINGS)
    error = raised.value
    assert (error.operator, error.source, error.row, error.record.n) == ("map", "given", 50, 49)
    assert isinstance(error.__cause__, ValueError)
    first, *rest = str(error).splitlines()
    assert first.startswith('map "odd" at ')
    assert first.endswith(" raised ValueError: 49 is refused")
    assert rest[0].startswith("  record 50 of source given: ")


def test_a_record_that_fails_at_every_try(entry_point: EntryPoint) -> None:
    job = plait.Job("entry")
    read = job.source(plait.Table(given()), name="given")
    read.with_columns(fee=flaky_fee, on_error="retry", **TRIES).sink(plait.Collect(), name="out")
    with pytest.raises(plait.RecordError, match="ConnectionError: not yet: 4") as raised:
        entry_point(job, **SETTINGS)
    assert (raised.value.row, raised.value.record.n) == (5, 4)


def test_an_expression_that_fails(entry_point: EntryPoint) -> None:
    job = plait.Job("entry")
    read = job.source(plait.Table(given()), name="given")
    read.with_columns(q=100 // (col("n") - 60)).key_by("k").sum("q").sink(plait.Collect())
    with pytest.raises(plait.RecordError, match="record 61 of source given") as raised:
        entry_point(job, **SETTINGS)
    assert raised.value.row == 61


def test_a_sink_that_has_enough(entry_point: EntryPoint) -> None:
    job = plait.Job("entry")
    read = job.source(plait.Table(given()), name="given")
    read.key_by("k").count().sink(plait.Collect(limit=50), name="out")
    result = entry_point(job, **SETTINGS)
    assert result.outputs["out"].num_rows == 50


def test_a_limit(entry_point: EntryPoint) -> None:
    job = plait.Job("entry")
    read = job.source(plait.Table(given()), name="given")
    read.key_by("k").count().sink(plait.Collect(), name="out")
    assert entry_point(job, **SETTINGS, limit=33).account.read == 33


class LastFirst(plait.Scheduler):
    """A scheduler of the user's, which goes to every node."""

    def pick(self, stages: tuple[plait.StageView, ...]) -> int | None:
        return max((stage.number for stage in stages if stage.ready), default=None)


WHO_RUNS: dict[str, dict[str, Any]] = {
    "lru": {"scheduler": "lru", "fuse": False},
    "python": {"scheduler": LastFirst()},
    "dedicated": {"threading": "dedicated"},
    "manual": {"threading": "manual", "fuse": False},
}


@pytest.mark.parametrize("way", WHO_RUNS)
def test_who_runs_a_stage(entry_point: EntryPoint, way: str) -> None:
    job = plait.Job("entry")
    read = job.source(plait.Table(given()), name="given")
    with plait.region("doubled", threading="dedicated"):
        doubled = read.filter(col("n") % 2 == 0).with_columns(n=col("n") * 2)
    with plait.region("tripled", threading="manual"):
        tripled = read.filter(col("n") % 3 == 0).flat_map(twice, schema=read.schema)
    plait.union(doubled, tripled).key_by("k").sum("n").sink(plait.Collect(), name="out")
    assert_right(job, entry_point(job, **SETTINGS, **WHO_RUNS[way]))


def test_elastic_degrees_of_stages(entry_point: EntryPoint) -> None:
    def made() -> plait.Job:
        job = plait.Job("entry")
        read = job.source(plait.Table(given()), name="given")
        read.with_columns(q=col("n") * 2).key_by("k").sum("q").sink(plait.Collect(), name="out")
        return job

    elastic = {"stage_parallelism": "elastic", "elastic_period_ms": 1}
    found = entry_point(made(), **SETTINGS, **elastic)
    assert found.outputs["out"].equals(entry_point(made(), **SETTINGS).outputs["out"])
