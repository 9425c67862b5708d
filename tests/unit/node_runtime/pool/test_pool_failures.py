"""Keyed Python state in worker processes where several things go wrong at once: what is met first
in the order of the records counts, as in the plain loop."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait.execution.local_run import start
from plait.testing import Feed
from tests.unit.node_runtime.pool.pool_runs import no_process_left, wait_for
from tests.unit.node_runtime.state.state_jobs import Quiet, given

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["no_process_left"]

SETTINGS: dict[str, Any] = {"epoch_records": 32, "workers": 2, "pool": 2, "timeout": 60}


class Wrong:
    """What goes wrong at which record: all from `leaves` on leave the interpreter, that of `fails`
    fails. The keys of a batch are in both lanes."""

    def __init__(self, fails: int, leaves: int) -> None:
        self.fails = fails
        self.leaves = leaves

    def at(self, n: int) -> None:
        if n == self.fails:
            raise ValueError(f"{n} is refused")
        if n >= self.leaves:
            raise SystemExit(n)


def summing(wrong: Wrong) -> Callable[[int, Any], int]:
    def step(total: int, record: Any) -> int:
        wrong.at(record.n)
        return total + int(record.n)

    return step


class Failing(Quiet):
    def __init__(self, wrong: Wrong) -> None:
        super().__init__()
        self.wrong = wrong

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> Any:
        self.wrong.at(record.n)
        yield from super().on_record(key, record, state, timers)


class Timed(Quiet):
    """Goes wrong in its timers, which are due five seconds behind their records."""

    def __init__(self, wrong: Wrong, policy: str) -> None:
        super().__init__(fails=0 if policy == "fail" else 7)
        self.wrong = wrong

    def on_timer(self, key: Any, at: Any, state: Any, timers: Any) -> Any:
        self.wrong.at(int(at.timestamp()))
        yield key, state.seen, "timer", at


def fold(wrong: Wrong, policy: Any) -> Callable[[Any, Any], Any]:
    return lambda s, r: s.key_by("k").fold(0, summing(wrong), on_error=policy, route=r)


def stateful(wrong: Wrong, policy: Any) -> Callable[[Any, Any], Any]:
    def step(state: int, record: Any) -> Any:
        wrong.at(record.n)
        return state + 1, {"k": record.k, "n": state} if state % 2 else None

    schema = {"k": str, "n": int}
    return lambda s, r: s.key_by("k").stateful(0, step, schema=schema, on_error=policy, route=r)


def process(wrong: Wrong, policy: Any) -> Callable[[Any, Any], Any]:
    return lambda s, r: s.key_by("k").process(Failing(wrong), on_error=policy, route=r)


def timed(wrong: Wrong, policy: Any) -> Callable[[Any, Any], Any]:
    return lambda s, r: s.key_by("k").process(Timed(wrong, policy), on_error=policy, route=r)


def met(make: Any, route: str, **settings: Any) -> tuple[Any, ...]:
    """What a run raises, and what it delivers before."""
    rows: list[Any] = []
    job = plait.Job("states")
    source = job.source(plait.Table(given()), name="given", event_time="ts")
    make(source, route).sink(plait.Call(rows.append), name="out")
    with pytest.raises((plait.RecordError, SystemExit)) as raised:
        plait.run(job, **{**SETTINGS, **settings})
    error = raised.value
    return type(error), str(error), getattr(error, "row", None), rows


@pytest.mark.parametrize("policy", ["fail", "dead_letter"])
@pytest.mark.parametrize("make", [fold, stateful, process, timed])
@pytest.mark.parametrize(("fails", "leaves"), [(303, 304), (303, 309), (305, 303), (309, 303)])
def test_what_comes_first_in_the_order_of_the_records_counts(
    make: Any, policy: str, fails: int, leaves: int
) -> None:
    wrong = make(Wrong(fails, leaves), policy)
    assert met(wrong, "pool") == met(wrong, "inline")


def test_a_failed_record_counts_before_a_state_that_cannot_be_packed() -> None:
    def step(state: Any, record: Any) -> Any:
        if record.n == 20:
            raise ValueError("20 is refused")
        return threading.Lock(), {"k": record.k, "n": record.n}

    schema = {"k": str, "n": int}
    make = lambda s, r: s.key_by("k").stateful(0, step, schema=schema, route=r)  # noqa: E731
    assert met(make, "pool") == met(make, "inline")


def counted(state: int, record: Any) -> int:
    return state + 1


BINS: dict[str, Callable[[Any, Any], Any]] = {
    "fold": lambda s, r: s.key_by("k").fold(0, counted, type=int, route=r),
    "process": lambda s, r: s.key_by("k").process(Quiet(), route=r),
}
DAMAGED: dict[str, Callable[[dict[int, bytes]], dict[int, bytes]]] = {
    "the last": lambda held: held | {7: held[7][:-1] + b"?"},
    "the first": lambda held: held | {0: held[0][:-1] + b"?"},
    "one of each lane": lambda held: held | {n: held[n][:-1] + b"?" for n in (2, 5)},
    "in the other order": lambda held: {n: held[n][: -1 - n] for n in (1, 6, 5, 2)},
    "cut off": lambda held: held | {6: held[6][:5]},
}


def refused_put(make: Any, route: str, damage: Any) -> tuple[Any, ...]:
    """What is said of bins that are put where one is bad, and how the run goes on."""
    feed = Feed({"k": str, "n": int, "v": int | None, "ts": plait.Timestamp})
    job = plait.Job("states")
    made = make(job.source(feed, name="given", event_time="ts"), route)
    made.sink(plait.Collect(), name="out")
    run = start(job, epoch_records=32, workers=2, pool=2, bin_bits=3)
    node = next(i for i, one in enumerate(job.graph().operators) if one.name in BINS)
    rows = given(400).to_pylist()
    feed.push(rows[:200])
    wait_for(lambda: run.engine.records_read() >= 200)
    taken = run.take_bins(node, range(8))
    feed.push(rows[200:300])
    wait_for(lambda: run.engine.records_read() >= 300)
    run.take_bins(node, range(8))
    with pytest.raises(plait.StateError) as raised:
        run.put_bins(node, damage(taken))
    left = run.take_bins(node, range(8))
    run.put_bins(node, taken)
    feed.push(rows[300:])
    feed.close()
    told = re.sub(r"epoch \d+", "", str(raised.value))
    return told, {n: len(held) for n, held in left.items()}, run.wait().outputs["out"].to_pylist()


@pytest.mark.parametrize("name", BINS)
@pytest.mark.parametrize("damage", DAMAGED)
def test_bins_are_put_all_together_or_not_at_all(name: str, damage: str) -> None:
    pool = refused_put(BINS[name], "pool", DAMAGED[damage])
    inline = refused_put(BINS[name], "inline", DAMAGED[damage])
    assert pool == inline
    assert len(set(pool[-2].values())) == 1  # no bin has any state


def test_a_lane_takes_no_bin_of_another() -> None:
    told, left, _ = refused_put(BINS["fold"], "pool", lambda held: {6: held[1]})
    assert "bin 6: these are the states of bin 1" in told
    assert len(set(left.values())) == 1
