"""Faults planted in the rules of time, which random jobs must find.

Each fault is in a copy of the plain loop, and some job must give other rows by it than by the
rules. A fault that no job shows would be one that the property tests cannot find in the engine
either. The native programs have faults of their own (tests/native/test_native_time.py).

Semi and outer joins in windows with windows behind them are rare among random jobs: that nothing
waits for their results is for the laws of `test_time_laws` to find.

That a record is judged before its own time counts is no fault: what moves time is never late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from plait.graph import delays
from plait.testing import sequential
from plait.testing.oracle import loop, temporal, time
from plait.testing.oracle.loop import Loop, Stream
from plait.testing.oracle.time import ALL_TIME, NO_TIME, Watermarks, moved
from plait.testing.random_jobs import timed_graphs
from tests.property import test_time_laws

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from plait.graph.operators import Graph

    Patch = pytest.MonkeyPatch

CASES = 500
"""More than any of these faults needs: most are found by one of the first ten jobs."""


def one_row_behind(patch: Patch) -> None:
    """A record is handled, and then moves time."""

    def steps(self: Watermarks, op: int) -> Iterator[tuple[Any, float, float]]:
        for n, mark in enumerate(self.marks):
            before = self.now[op]
            known = mark if mark.behind or n == 0 else self.marks[n - 1]
            after = before if n == 0 and not mark.behind else self.least(op, known)
            yield mark, before, max(before, after)
            self.now[op] = max(before, after)

    patch.setattr(Watermarks, "steps", steps)


def at_the_end_of_a_unit(patch: Patch) -> None:
    """The watermark moves behind the rows of a unit."""

    def steps(self: Watermarks, op: int) -> Iterator[tuple[Any, float, float]]:
        for mark in self.marks:
            before = self.now[op]
            after = max(before, self.least(op, mark)) if mark.behind else before
            yield mark, before, after
            self.now[op] = after

    patch.setattr(Watermarks, "steps", steps)


def due_rows_last(patch: Patch) -> None:
    """What falls due at a row comes after what is made of the row, not before."""
    real = Loop.run_timed

    def run_timed(self: Loop, i: int, *rest: Any) -> Stream:
        made = real(self, i, *rest)
        last = self.watermarks.marks[-1].row
        items = [
            ((row, 2) if half == 0 and row < last else (row, half), values)
            for (row, half), values in made.items
        ]
        items.sort(key=lambda item: item[0])
        return Stream([((row, min(half, 1)), values) for (row, half), values in items], made.end)

    patch.setattr(Loop, "run_timed", run_timed)


def late_by_the_end_of_the_unit(patch: Patch) -> None:
    """Whether a record is late is judged when its unit is over."""

    def at(self: Loop, i: int, position: Any, watermark: float) -> float:
        rows = [self.watermarks.least(i, mark) for mark in self.watermarks.marks[:-1]]
        return max([watermark, *rows])

    judged_at(patch, at)


def results_after_the_mark(patch: Patch) -> None:
    """The mark goes on before what was due at it: results come at the watermark behind them."""

    def at(self: Loop, i: int, position: Any, watermark: float) -> float:
        here = [m for m in self.watermarks.marks if m.row == position[0] and position[1] == 0]
        return max([watermark, *(self.watermarks.least(i, mark) for mark in here)])

    judged_at(patch, at)


def judged_at(patch: Patch, at: Callable[[Loop, int, Any, float], float]) -> None:
    """Records are taken at another watermark."""
    real = Loop.take

    def take(self: Loop, i: int, item: Any, watermark: float, *rest: Any) -> Any:
        return real(self, i, item, at(self, i, item[0], watermark), *rest)

    patch.setattr(Loop, "take", take)


def one_jump_a_unit(patch: Patch) -> None:
    """max_jump is counted from where time was before the unit."""
    real = Watermarks.read

    def read(self: Watermarks, source: int, *rest: Any) -> None:
        self.before = self.times.get(source, NO_TIME)  # type: ignore[attr-defined]
        real(self, source, *rest)

    def move(self: Watermarks, source: int, values: Any) -> None:
        op = self.sources[source]
        if op.event_time is not None:
            value = values[op.schema.index(op.event_time)]
            if abs(value) <= time.FARTHEST_US:
                since = self.before  # type: ignore[attr-defined]
                now = self.times[source]
                free = moved(NO_TIME if since == NO_TIME else since, value, op.max_jump_us)
                self.times[source] = max(now, free)

    patch.setattr(Watermarks, "read", read)
    patch.setattr(Watermarks, "move", move)


def time_of_the_first_source(patch: Patch) -> None:
    """The watermark is the greatest over the origins, not the least."""

    def least(self: Watermarks, op: int, mark: Any, *, held: bool = False) -> float:
        if self.reaching[op] <= mark.over | (frozenset() if held else mark.flushed):
            return ALL_TIME
        times = [mark.times[i] - delay for i, delay in self.delays[op].items() if i in mark.times]
        return max(times, default=NO_TIME)

    patch.setattr(Watermarks, "least", least)


def no_hold(patch: Patch) -> None:
    """Nothing waits for the old results of semi and outer joins."""

    def without(operators: Sequence[Any]) -> list[dict[int, int]]:
        with mock.patch.object(delays, "hold_us", return_value=0):
            return delays.watermark_delays(operators)

    patch.setattr(time, "watermark_delays", without)


def no_out_of_order(patch: Patch) -> None:
    """`out_of_order` is left out."""

    def without(operators: Sequence[Any]) -> list[dict[int, int]]:
        return [dict.fromkeys(one, 0) for one in delays.watermark_delays(operators)]

    patch.setattr(time, "watermark_delays", without)


def union_without_halves(patch: Patch) -> None:
    """A union puts what was due at a row and the row in the order of its inputs."""

    def merged(inputs: Sequence[Stream]) -> Stream:
        rows = [(at[0], n, at, values) for n, one in enumerate(inputs) for at, values in one.items]
        rows.sort(key=lambda row: row[:2])
        ends = [one.end for one in inputs if one.end is not None]
        end = min(ends, key=lambda one: one.position, default=None)
        return Stream([(at, values) for _, _, at, values in rows], end)

    patch.setattr(loop, "merged", merged)


def due_one_later(patch: Patch) -> None:
    """Windows and timers are due when the watermark is above them."""
    due_at(patch, -1)


def due_one_earlier(patch: Patch) -> None:
    """What waits for times up to t is due when the watermark is at t."""
    due_at(patch, 1)


def due_at(patch: Patch, more: int) -> None:
    real = temporal.timed_operator

    def shifted(*args: Any) -> Any:
        operator = real(*args)
        due = operator.due
        operator.due = lambda before, watermark: due(before + more, watermark + more)  # type: ignore[method-assign]
        return operator

    patch.setattr(loop, "timed_operator", shifted)


FAULTS = (
    one_row_behind,
    at_the_end_of_a_unit,
    due_rows_last,
    late_by_the_end_of_the_unit,
    results_after_the_mark,
    one_jump_a_unit,
    time_of_the_first_source,
    no_out_of_order,
    union_without_halves,
    due_one_later,
    due_one_earlier,
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault.__name__))
def test_random_jobs_show_it(fault: Callable[[Patch], None]) -> None:
    with pytest.raises(AssertionError):
        no_difference(fault)


@pytest.mark.parametrize("chain", ["behind semi", "behind left"])
def test_the_laws_show_that_nothing_waits_for_old_results(chain: str, monkeypatch: Patch) -> None:
    no_hold(monkeypatch)
    with pytest.raises(AssertionError):
        test_time_laws.test_no_record_in_order_is_late(chain)


@seed(1)
@settings(max_examples=CASES, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(graph=timed_graphs(), epoch_records=st.sampled_from([3, 4096]))
def no_difference(fault: Callable[[Patch], None], graph: Graph, epoch_records: int) -> None:
    right = sequential(graph, epoch_records=epoch_records)
    with pytest.MonkeyPatch.context() as patch:
        fault(patch)
        wrong = sequential(graph, epoch_records=epoch_records)
    assert repr(wrong.outputs) == repr(right.outputs)
    assert wrong.account == right.account
