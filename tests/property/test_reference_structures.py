"""The native structures against their Python twins, operation by operation.

Hypothesis writes a script of operations; a small C++ program runs it on the real headers (with the
address and undefined-behaviour sanitizers on) and prints each answer; the twin runs the same
script. A callback that calls back in stands for a second worker, so delegation and the taken flag
are compared as well.
"""

from __future__ import annotations

import subprocess
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.node_runtime.reference import (
    HistogramTwin,
    HybridQueueTwin,
    ReorderBufferTwin,
    RingTwin,
)
from tests.native.native_build import build_all

SMALL = st.integers(0, 12)
COMPARE = settings(deadline=None, max_examples=60)


@pytest.fixture(scope="module")
def driver() -> str:
    (binary,) = build_all(["structure_driver:address"]).values()
    return str(binary)


def native(driver: str, header: str, script: list[str]) -> list[str]:
    done = subprocess.run(
        [driver], input="\n".join([header, *script]), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@COMPARE
@given(
    kind=st.sampled_from(["spsc", "mpmc"]),
    capacity=st.sampled_from([2, 4, 8]),
    script=st.lists(st.one_of(SMALL.map("push {}".format), st.sampled_from(["pop", "size"]))),
)
def test_rings(driver: str, kind: str, capacity: int, script: list[str]) -> None:
    twin = RingTwin[str](capacity)
    expected: list[str] = []
    for line in script:
        match line.split():
            case ["push", value]:
                expected.append(str(int(twin.try_push(value))))
            case ["pop"]:
                expected.append(twin.try_pop() or "-")
            case _:
                expected.append(str(twin.size_approx()))
    assert native(driver, f"{kind} {capacity}", script) == expected


class ReorderScript:
    """Runs a script on the twin, with a downstream that has credit and may send from inside."""

    def __init__(self, capacity: int, first: int) -> None:
        self.twin = ReorderBufferTwin[int](capacity, first)
        self.credit = 0
        self.nested: list[int] = []
        self.trace = ""

    def take(self, item: int) -> bool:
        if self.credit == 0:
            return False
        self.credit -= 1
        self.trace += f" {item}"
        if self.nested:
            serial = self.nested.pop()
            self.trace += "+" if self.twin.send(serial, serial, self.take) else "!"
        return True

    def step(self, name: str, value: int) -> str:
        self.trace, result = "", True
        match name:
            case "add":
                result = self.twin.try_add(value, value)
            case "send":
                result = self.twin.send(value, value, self.take)
            case "pending":
                self.twin.send_pending(self.take)
            case "credit":
                self.credit = value
            case "nest":
                self.nested.append(value)
        return f"{int(result)} {self.twin.next} {int(self.twin.ready())}:{self.trace}"


@COMPARE
@given(
    kind=st.sampled_from(["reorder", "locked"]),
    capacity=st.sampled_from([1, 2, 4, 8]),
    first=st.integers(0, 3),
    script=st.lists(
        st.tuples(st.sampled_from(["send", "send", "add", "pending", "credit", "nest"]), SMALL)
    ),
)
def test_reorder_buffers(
    driver: str, kind: str, capacity: int, first: int, script: list[tuple[str, int]]
) -> None:
    if kind == "locked":  # Its callback runs under the lock and must not call back.
        script = [(name, value) for name, value in script if name != "nest"]
    twin = ReorderScript(capacity, first)
    expected = [twin.step(name, value) for name, value in script]
    lines = [f"{name} {value}" for name, value in script]
    assert native(driver, f"{kind} {capacity} {first}", lines) == expected


class HybridScript:
    """Runs a script on the twin; operating on an item may consume again from inside."""

    def __init__(self, partitions: int, capacity: int) -> None:
        self.twin = HybridQueueTwin[int](partitions, capacity)
        self.nested: deque[int] = deque()
        self.trace = ""

    def operate(self, partition: int, item: int) -> None:
        self.trace += f" {partition}/{item}"
        if self.nested:
            inner = self.nested.popleft()
            self.trace += "("
            processed = self.twin.consume(self.operate, inner)
            self.trace += f"{processed})"

    def step(self, line: str) -> str:
        name, first, *rest = line.split()
        self.trace = ""
        if name == "add":
            result = int(self.twin.try_add(int(first), int(rest[0])))
        else:
            self.nested = deque(map(int, rest))
            result = self.twin.consume(self.operate, int(first))
        return f"{result} {self.twin.size_approx()}:{self.trace}"


@st.composite
def hybrid_scripts(draw: st.DrawFn) -> tuple[int, list[str]]:
    partitions = draw(st.integers(1, 3))
    add = st.tuples(st.integers(0, partitions - 1), SMALL).map(lambda t: f"add {t[0]} {t[1]}")
    consume = st.tuples(st.integers(0, 6), st.lists(st.integers(0, 3), max_size=5)).map(
        lambda t: " ".join(["consume", str(t[0]), *map(str, t[1])])
    )
    return partitions, draw(st.lists(st.one_of(add, add, consume)))


@COMPARE
@given(case=hybrid_scripts(), capacity=st.sampled_from([1, 2, 8]))
def test_hybrid_queue(driver: str, case: tuple[int, list[str]], capacity: int) -> None:
    partitions, script = case
    twin = HybridScript(partitions, capacity)
    expected = [twin.step(line) for line in script]
    assert native(driver, f"hybrid {partitions} {capacity}", script) == expected


@COMPARE
@given(
    script=st.lists(
        st.one_of(
            st.just(("merge", 0, 0)),
            st.tuples(
                st.just("record"),
                st.one_of(st.integers(0, 200), st.integers(0, 2**64 - 1)),
                st.integers(0, 5),
            ),
        )
    )
)
def test_histogram(driver: str, script: list[tuple[str, int, int]]) -> None:
    whole, part = HistogramTwin(), HistogramTwin()
    expected: list[tuple[int, int, float, list[int]]] = []
    for name, value, count in script:
        if name == "record":
            part.record(value, count)
        else:
            whole.merge(part)
            part = HistogramTwin()
        percentiles = [whole.percentile(p) for p in (0.0, 50.0, 90.0, 99.0, 99.9, 100.0)]
        expected.append((whole.count(), whole.max(), whole.mean(), percentiles))
    lines = [f"{name} {value} {count}" for name, value, count in script]
    answers = [line.split() for line in native(driver, "histogram", lines)]
    got = [(int(a[0]), int(a[1]), float.fromhex(a[2]), [int(p) for p in a[3:]]) for a in answers]
    assert got == expected
