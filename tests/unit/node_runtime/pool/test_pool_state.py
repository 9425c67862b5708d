"""Keyed Python state in worker processes: the same answer, the same errors, whatever dies."""

from __future__ import annotations

import datetime
import functools
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

import plait
from plait.execution.local_run import start
from plait.graph.explain import explain_text
from plait.model.key_hash import bin_of
from plait.testing import Feed, sequential
from plait.testing.check import compare_accounts, compare_letters, rows_of_arrow
from tests.unit.node_runtime.pool.pool_runs import (
    kill_and_go_on,
    leaves_nothing_when_killed,
    more_batches,
    no_process_left,
    start_gated,
    wait_for,
)
from tests.unit.node_runtime.state.state_jobs import (
    ENDINGS,
    ROWS,
    STATES,
    DeadlyTimer,
    Quiet,
    Seen,
    deadly,
    endless,
    given,
    job_of,
    leaves,
    locked,
    seen,
    summed,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["no_process_left"]

SETTINGS: dict[str, Any] = {"epoch_records": 32, "workers": 2, "pool": 2, "timeout": 60}


def assert_right(name: str, job: plait.Job, result: plait.Result, epoch_records: int) -> None:
    wanted = sequential(job.graph(), epoch_records=epoch_records, stamps=result.stamps)
    assert rows_of_arrow(result.outputs["out"], wanted.schemas["out"]) == wanted.outputs["out"]
    compare_accounts(name, result, wanted)
    compare_letters(name, result.dead_letters, wanted.dead_letters)


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("name", STATES)
def test_the_pool_gives_what_the_plain_loop_gives(name: str, processes: int) -> None:
    job = job_of(STATES[name], "pool")
    chosen = {**SETTINGS, "pool": processes, "workers": processes, "pool_replay_bytes": 4_000}
    result = plait.run(job, **chosen)
    assert_right(name, job, result, SETTINGS["epoch_records"])
    assert result.routes
    assert all(words.startswith(f"pool of {processes}") for words in result.routes.values())


class Slow(Quiet):
    """Records of one key take their time."""

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> Any:
        if key == "slow":
            time.sleep(0.1)
        return super().on_record(key, record, state, timers)

    def on_timer(self, key: Any, at: Any, state: Any, timers: Any) -> Any:
        yield key, state.seen, "timer", at


def half_of(key: str) -> int:
    return bin_of((key,), (plait.Type.STRING,), 1)


def test_timers_before_1970_while_their_lane_is_busy() -> None:
    """A snapshot says nothing to a lane of how far time is."""
    other = next(key for key in map(str, range(99)) if half_of(key) != half_of("slow"))
    start_at = datetime.datetime(1960, 1, 1, tzinfo=datetime.UTC)
    rows = [
        {"k": "slow" if n < 4 else other, "n": n, "ts": start_at + plait.seconds(n)}
        for n in range(60)
    ]
    feed = Feed({"k": str, "n": int, "ts": plait.Timestamp})
    job = plait.Job("states")
    stream = job.source(feed, name="given", event_time="ts")
    stream.key_by("k").process(Slow(), route="pool").sink(plait.Collect(), name="out")
    run = start(job, workers=2, pool=2, epoch_records=1)
    feed.push(rows[:1])
    wait_for(lambda: run.engine.records_read() >= 1)
    run.snapshot()
    feed.push(rows[1:])
    feed.close()
    result = run.wait()
    cuts = {label: list(sizes) for label, sizes in result.cuts.items()}
    wanted = sequential(job.graph(), epoch_records=1, cuts=cuts)
    got = rows_of_arrow(result.outputs["out"], wanted.schemas["out"])
    assert got == wanted.outputs["out"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_error_reads_as_it_does_inline(ending: str) -> None:
    told: dict[str, BaseException] = {}
    for route in ("inline", "pool"):
        with pytest.raises(plait.RecordError) as raised:
            plait.run(job_of(ENDINGS[ending], route), **SETTINGS)
        told[route] = raised.value
    inline, pool = told["inline"], told["pool"]
    assert str(pool) == str(inline)
    for name in ("operator", "at", "source", "row", "record"):
        assert getattr(pool, name) == getattr(inline, name)
    assert type(pool.__cause__) is type(inline.__cause__)
    assert "raised in a worker process" in pool.__cause__.__notes__[-1]  # type: ignore[union-attr]


def test_what_leaves_the_interpreter_ends_the_run() -> None:
    with pytest.raises(SystemExit):
        plait.run(job_of(lambda s, r: s.key_by("k").fold(0, leaves, route=r), "pool"), **SETTINGS)


@pytest.mark.parametrize("policy", ["fail", "skip", "dead_letter"])
def test_rows_that_kill_their_process(policy: Any) -> None:
    """The rows of their lane in the batch fail; the state goes on without them."""
    job = job_of(lambda s, r: s.key_by("k").fold(0, deadly, on_error=policy, route=r), "pool")
    words = "the worker process was killed by SIGKILL on its batch, 3 times"
    if policy == "fail":
        with pytest.raises(plait.RecordError, match=words) as raised:
            plait.run(job, **SETTINGS)
        assert 289 <= raised.value.row <= 301
        return
    result = plait.run(job, **SETTINGS)
    failed = result.account.skipped + result.account.dead_lettered
    assert 1 <= failed <= 32
    assert result.outputs["out"].num_rows == 500 - failed
    if policy == "dead_letter":
        rows = {letter.row - 1 for letter in result.dead_letters}
        assert 300 in rows
        assert rows <= set(range(288, 320))
        assert {letter.error for letter in result.dead_letters} == {words}
        assert result.outputs["out"].to_pylist() == plain_sums(rows)


def plain_sums(without: set[int]) -> list[dict[str, Any]]:
    totals: dict[str, int] = {}
    made = []
    for n in range(500):
        if n not in without:
            key = f"key {n * 7 % 13}"
            totals[key] = totals.get(key, 0) + n
            made.append({"k": key, "value": totals[key]})
    return made


def test_timers_go_on_without_rows_that_kill() -> None:
    job = job_of(
        lambda s, r: s.key_by("k").process(Quiet(dies=300), on_error="dead_letter", route=r), "pool"
    )
    result = plait.run(job, **SETTINGS)
    lost = {letter.row - 1 for letter in result.dead_letters}
    assert 300 in lost
    kept = plait.Job("kept")
    source = kept.source(plait.Table(job_table()), name="given", event_time="ts")
    there = source.filter(~plait.col("n").is_in(sorted(lost)))
    there.key_by("k").process(Quiet()).sink(plait.Collect(), name="out")
    wanted = sequential(kept.graph(), epoch_records=SETTINGS["epoch_records"])
    got = rows_of_arrow(result.outputs["out"], wanted.schemas["out"])
    assert got == wanted.outputs["out"]


def job_table(rows: int = ROWS) -> Any:
    return given(rows)


def test_a_timer_that_kills_ends_the_run() -> None:
    job = job_of(lambda s, r: s.key_by("k").process(DeadlyTimer(), route=r), "pool")
    with pytest.raises(plait.RecordError, match="killed by SIGKILL on its batch, 3 times"):
        plait.run(job, **SETTINGS)


def test_a_step_that_hangs() -> None:
    job = job_of(lambda s, r: s.key_by("k").fold(0, endless, on_error="skip", route=r), "pool")
    result = plait.run(job, **SETTINGS, pool_hang_s=0.3)
    assert 500 - 32 <= result.outputs["out"].num_rows < 500


def counts(state: int, record: Any) -> int:
    return state + 1


def slow_counts(state: int, record: Any) -> int:
    for _ in range(200):
        pass
    return state + 1


def running(step: Any, route: Any, **settings: Any) -> tuple[Any, threading.Event]:
    def build(stream: Any) -> Any:
        return stream.key_by("k").fold(0, step, type=int, route=route)

    return start_gated(build, **settings)


def assert_counted(result: plait.Result) -> None:
    rows = result.account.read
    assert result.outputs["out"]["value"].to_pylist() == [n // 17 + 1 for n in range(rows)]


@pytest.mark.parametrize("victim", ["worker", "zygote"])
@pytest.mark.parametrize("replay_bytes", [1, 20_000, 1 << 25])
def test_state_survives_the_death_of_its_process(victim: str, replay_bytes: int) -> None:
    run, enough = running(counts, "pool", pool=2, pool_replay_bytes=replay_bytes)
    kill_and_go_on(run.parts.pools.pool, victim)
    enough.set()
    assert_counted(run.wait())


def test_what_is_kept_to_be_done_again_is_bounded() -> None:
    run, enough = running(counts, "pool", pool=2, pool_replay_bytes=50_000)
    (way,) = run.parts.pools.ways
    most = 0
    for _ in range(20):
        more_batches(run.parts.pools.pool)
        most = max(most, way.outside.log_bytes)
    enough.set()
    assert_counted(run.wait())
    # Two lanes, each with what the ring holds beside it: 16 slots of 64 rows, 16 bytes a row.
    assert 0 < most <= 2 * (50_000 + 16 * 2_000)


def test_a_state_that_costs_enough_moves_to_the_pool_in_the_middle() -> None:
    run, enough = running(slow_counts, "auto")
    (way,) = run.parts.pools.ways
    assert way.outside.here
    wait_for(lambda: not way.outside.here)
    wait_for(lambda: run.parts.pools.pool.native.batches > 50)
    enough.set()
    result = run.wait()
    assert_counted(result)
    (words,) = result.routes.values()
    assert words.startswith("pool of 2 worker processes after ")
    assert " us a record" in words


def test_a_process_moves_with_its_timers() -> None:
    feed = Feed({"k": str, "n": int, "ts": plait.Timestamp})
    job = plait.Job("moving")
    source = job.source(feed, name="given", event_time="ts")
    source.key_by("k").process(Laborious()).sink(plait.Collect(), name="out")
    run: Any = start(job, workers=2, epoch_records=16)
    (way,) = run.parts.pools.ways
    rows = job_table(20_000).select(["k", "n", "ts"]).to_pylist()
    at = 0
    while way.outside.here:
        feed.push(rows[at : at + 10])
        at += 10
        wait_for(functools.partial(lambda n: run.engine.records_read() >= n, at))
        run.snapshot()
    feed.push(rows[at : at + 100])
    feed.close()
    result = run.wait()
    cuts = {label: list(sizes) for label, sizes in result.cuts.items()}
    wanted = sequential(job.graph(), epoch_records=16, cuts=cuts)
    got = rows_of_arrow(result.outputs["out"], wanted.schemas["out"])
    assert got == wanted.outputs["out"]


class Laborious(plait.Process):
    """Like Quiet, with work to do."""

    state: ClassVar[Any] = {"seen": int}
    out: ClassVar[Any] = {"k": str, "seen": int, "ts": plait.Timestamp}

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> Any:
        for _ in range(10_000):
            pass
        state.seen += 1
        timers.at(record.ts + plait.seconds(40))

    def on_timer(self, key: Any, at: Any, state: Any, timers: Any) -> Any:
        yield key, state.seen, at


def test_a_state_that_costs_little_stays() -> None:
    job = job_of(lambda s, r: s.key_by("k").fold(0, summed, route=r), "auto")
    result = plait.run(job, workers=2)
    (words,) = result.routes.values()
    assert words.startswith("inline: 500 records in ")


LOCKED = {"k": str, "n": int}


def test_a_state_that_cannot_be_pickled_is_told_with_its_place() -> None:
    job = job_of(lambda s, r: s.key_by("k").stateful(0, locked, schema=LOCKED, route=r), "pool")
    with pytest.raises(plait.JobError) as raised:
        plait.run(job, **SETTINGS)
    words = str(raised.value)
    assert words.startswith("stateful at test_pool_state.py:")
    assert "its state cannot be in a worker process" in words
    assert "cannot pickle '_thread.lock' object" in words
    assert 'use route="inline"' in words


def test_a_state_that_cannot_be_pickled_stays_by_itself() -> None:
    run, enough = start_gated(
        lambda stream: stream.key_by("k").stateful(0, slow_locked, schema={"n": int})
    )
    (way,) = run.parts.pools.ways
    wait_for(lambda: way.outside.why_here)
    before = run.engine.records_read()
    wait_for(lambda: run.engine.records_read() > before + 1_000)
    enough.set()
    result = run.wait()
    assert result.outputs["out"]["n"].to_pylist() == list(range(result.account.read))
    (words,) = result.routes.values()
    assert words.startswith("inline: StateError: bin ")
    assert "cannot be pickled" in words


def slow_locked(state: Any, record: Any) -> Any:
    for _ in range(200):
        pass
    return threading.Lock(), {"n": record.n}


def test_what_cannot_be_sent_is_told_when_the_job_is_built() -> None:
    lock = threading.Lock()

    def held(state: Any, record: Any) -> Any:
        with lock:
            return state

    keyed = plait.stream([{"k": 1, "n": 1}]).key_by("k")
    builds: tuple[Callable[[], Any], ...] = (
        lambda: keyed.fold(0, held, route="pool"),
        lambda: keyed.stateful(0, held, route="pool"),
        lambda: plait.stream([{"k": 1}]).fold(0, held, route="pool"),
    )
    for build in builds:
        with pytest.raises(plait.JobError, match='it holds "lock"'):
            build()
    with pytest.raises(plait.JobError, match="route is 'fast'"):
        keyed.fold(0, summed, route="fast")  # type: ignore[arg-type]
    timed = plait.stream([{"k": 1, "n": 1}]).key_by("k")
    with pytest.raises(plait.JobError, match="cannot be sent to a worker process"):
        timed.process(Holding(lock), route="pool")


class Holding(plait.Process):
    out: ClassVar[Any] = {"n": int}

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> Any:
        yield (record.n,)


class Counting(plait.Process):
    """Keeps a count of all keys beside its state: several processes would have several."""

    out: ClassVar[Any] = {"n": int}

    def __init__(self) -> None:
        self.all = 0

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> Any:
        self.all += 1
        yield (self.all,)


def route_of(make: Any, **settings: Any) -> str:
    job = job_of(make, "auto")
    lines = explain_text(job.graph(), {"workers": 2, **settings}).splitlines()
    at = next(i for i, line in enumerate(lines) if ": state " in line or ": process " in line)
    return lines[at + 2].strip()


def test_explain_says_where_the_state_is() -> None:
    fold = lambda s, r: s.key_by("k").fold(0, summed, route=r)  # noqa: E731
    assert "when it has cost 50 ms" in route_of(fold)
    assert route_of(fold, pool=3).startswith(
        "pool: state and function are Python objects: in 3 worker processes"
    )
    assert "pool=0" in route_of(fold, pool=0)
    assert "one worker" in route_of(fold, workers=1)
    whole = lambda s, r: s.fold(0, summed, route=r)  # noqa: E731
    assert "one state for all records" in route_of(whole)
    keeps = lambda s, r: s.key_by("k").process(Counting(), route=r)  # noqa: E731
    assert "it sets self.all" in route_of(keeps)
    fine = lambda s, r: s.key_by("k").process(Quiet(), route=r)  # noqa: E731
    assert "when it has cost 50 ms" in route_of(fine)
    found: dict[int, int] = {}

    def noted(state: int, record: Any) -> int:
        found[record.n] = state
        return state

    told = lambda s, r: s.key_by("k").fold(0, noted, route=r)  # noqa: E731
    assert "it refers to a dict `found` of yours" in route_of(told)


@pytest.mark.parametrize("first", ["pool", "inline"])
@pytest.mark.parametrize("second", ["pool", "inline"])
@pytest.mark.parametrize("name", ["states of a class", "process", "fold with ttl"])
def test_a_snapshot_goes_on_on_any_route(first: str, second: str, name: str) -> None:
    """Classes of the user's are the same wherever the state was packed."""
    schema = {"k": str, "n": int, "v": int | None, "ts": plait.Timestamp}
    feed, rows = Feed(schema), job_table().to_pylist()

    def job(route: str, source: Any) -> plait.Job:
        made = plait.Job("states")
        stream = made.source(source, name="given", event_time="ts")
        STATES[name](stream, route).sink(plait.Collect(), name="out")
        return made

    run = start(job(first, feed), workers=2, pool=2, epoch_records=16, bin_bits=4)
    feed.push(rows[:200])
    wait_for(lambda: run.engine.records_read() >= 200)
    snapshot = run.snapshot()
    feed.push(rows[200:])
    feed.close()
    whole = run.wait()
    again = Feed(schema)
    again.push(rows[:200])
    again.push(rows[200:])
    again.close()
    resumed = start(
        job(second, again), state=snapshot, workers=1, pool=3, epoch_records=16, bin_bits=4
    )
    rest = resumed.wait().outputs["out"].to_pylist()
    wanted = whole.outputs["out"].to_pylist()
    assert rest
    assert rest == wanted[len(wanted) - len(rest) :]


def test_bins_are_taken_and_put_while_it_runs() -> None:
    feed = Feed({"k": int, "n": int})
    job = plait.Job("states")
    job.source(feed, name="given").key_by("k").fold(0, counts, type=int, route="pool").sink(
        plait.Collect(), name="out"
    )
    run = start(job, workers=2, pool=2, epoch_records=16, bin_bits=3)
    node = next(i for i, one in enumerate(job.graph().operators) if one.name == "fold")
    feed.push([(n % 5, n) for n in range(50)])
    wait_for(lambda: run.engine.records_read() >= 50)
    taken = run.take_bins(node, range(8))
    assert sorted(taken) == list(range(8))
    with pytest.raises(plait.StateError, match="checksum"):
        run.put_bins(node, {n: held[:-1] + b"\x00" for n, held in taken.items()})
    run.put_bins(node, taken)
    with pytest.raises(plait.StateError, match="already"):
        run.put_bins(node, taken)
    feed.push([(n % 5, n) for n in range(50, 60)])
    wait_for(lambda: run.engine.records_read() >= 60)
    run.take_bins(node, range(8))
    feed.push([(n % 5, n) for n in range(60, 65)])
    feed.close()
    result = run.wait()
    values = result.outputs["out"]["value"].to_pylist()
    assert values == [*(n // 5 + 1 for n in range(60)), *[1] * 5]


def test_an_abort_does_not_wait_for_a_step() -> None:
    run, enough = running(stuck, "pool", pool=2)
    wait_for(lambda: run.engine.records_read() > 300)
    run.abort()
    enough.set()
    with pytest.raises(plait.Interrupted):
        run.wait()


def stuck(state: int, record: Any) -> int:
    return endless(state, record)


def test_nothing_is_left_when_the_parent_is_killed(tmp_path: Path) -> None:
    leaves_nothing_when_killed(tmp_path, "test_pool_state", "counts", batches=50)


def test_classes_of_a_script_come_back_as_themselves() -> None:
    """What a worker process packs is loaded with this process's classes."""
    feed = Feed({"k": str, "n": int})
    job = plait.Job("states")
    job.source(feed, name="given").key_by("k").stateful(
        Seen, seen, schema={"k": str, "c": int, "l": str, "m": str}, route="pool"
    ).sink(plait.Collect(), name="out")
    run = start(job, workers=2, pool=2, bin_bits=2)
    feed.push([("a", 1), ("b", 2)])
    wait_for(lambda: run.engine.records_read() >= 2)
    snapshot = run.snapshot()
    feed.close()
    run.wait()
    from plait.node_runtime.state.bin_bytes import HEADER
    from plait.node_runtime.state.pickling import loads

    states = [one for _, _, held in snapshot.bins for one in loads(held[HEADER.size :]).values()]
    assert len(states) == 2
    assert all(type(one) is Seen for one in states)
