"""The time of a source with partitions, against the definition as a plain loop."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plait.connectors.kafka.part_times import find_ahead
from plait.connectors.kafka.partition_clock import FARTHEST_US, NO_TIME, REST, PartitionClock

FAR = 2**62 + 1
TIMES = st.integers(0, 40) | st.sampled_from([-FAR, FAR, 10**9])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), st.lists(st.tuples(st.integers(0, 3), TIMES), max_size=9)),
        st.tuples(st.just("rest"), st.sets(st.integers(0, 4))),
        st.tuples(st.just("add"), st.just(4)),
        st.tuples(st.just("go on"), st.none()),
    ),
    max_size=12,
)


class Loop:
    """The definition."""

    def __init__(self, partitions: int, max_jump: int) -> None:
        self.times: dict[int, int | None] = dict.fromkeys(range(partitions))
        self.idle: set[int] = set()
        self.now: int | None = None
        self.max_jump = max_jump

    def row(self, partition: int, time: int) -> int | None:
        self.idle -= {partition}
        before = self.times[partition]
        if abs(time) <= FARTHEST_US:
            self.times[partition] = (
                time if before is None else max(before, min(time, before + self.max_jump))
            )
        running = [at for p, at in self.times.items() if p not in self.idle]
        if None not in running:
            least = min(at for at in running if at is not None)
            self.now = least if self.now is None else max(self.now, least)
        return self.now

    def rest(self, idle: set[int]) -> None:
        self.idle = idle & self.times.keys()
        known = [at for at in (self.now, *self.times.values()) if at is not None]
        if self.idle == self.times.keys() and known:
            self.now = max(known)


@given(steps=STEPS, max_jump=st.sampled_from([1, 7, 10**12]))
def test_the_clock_is_that_of_the_loop(steps: list[Any], max_jump: int) -> None:
    loop = Loop(4, max_jump)
    clock = PartitionClock(range(4), max_jump_us=max_jump)
    for kind, what in steps:
        if kind == "rows":
            wanted = [loop.row(partition, time) for partition, time in what]
            found = clock.read([p for p, _ in what], [time for _, time in what]).tolist()
            assert found == [NO_TIME if at is None else at for at in wanted]
            assert found == sorted(found)
        elif kind == "rest":
            loop.rest(what)
            clock.rest(what)
        elif kind == "add" and what not in loop.times:
            loop.times[what] = loop.now
            clock.add([what])
        elif kind == "go on":  # as from a checkpoint, where nothing is idle
            loop.idle = set()
            clock = PartitionClock(
                clock.times, max_jump_us=max_jump, times=clock.times, now=clock.now
            )
        least = [at for p, at in loop.times.items() if p not in loop.idle]
        if least and None not in least:
            assert clock.least() == min(at for at in least if at is not None)


def test_who_waits_for_the_slowest() -> None:
    times = {0: 5, 1: 70, 2: 40}
    assert find_ahead(times, 5, set(), 60) == {1}
    assert find_ahead(times, 5, {2}, 60) == {1, 2}  # until it is half of that
    assert find_ahead(times, 15, {1, 2}, 60) == {1}
    assert find_ahead(times, NO_TIME, set(), 60) == set()  # nothing is known of one of them
    assert find_ahead(times, REST, {1}, 60) == set()  # all are idle


@given(
    counts=st.lists(st.integers(1, 60), min_size=1, max_size=5),
    step=st.integers(1, 5),
    chance=st.randoms(use_true_random=False),
)
def test_no_partition_runs_ahead_and_none_waits_for_ever(
    counts: list[int], step: int, chance: Any
) -> None:
    """Backlogs of any length, a few rows of any partition that does not wait at a time."""
    drift = 10
    clock = PartitionClock(range(len(counts)))
    left = {p: list(range(count)) for p, count in enumerate(counts)}
    held: set[int] = set()
    while any(left.values()):
        idle = [p for p, rows in left.items() if not rows]
        clock.rest(idle)
        held = find_ahead(clock.times, clock.least(), held, drift)
        partition = chance.choice([p for p, rows in left.items() if rows and p not in held])
        taken, left[partition] = left[partition][:step], left[partition][step:]
        clock.read([partition] * len(taken), taken)
        known = [at for p, at in clock.times.items() if left[p]]
        if known and NO_TIME not in known:
            assert clock.times[partition] <= min(known) + drift + step
