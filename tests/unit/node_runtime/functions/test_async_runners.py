"""Rows that share a task of the event loop: what one row does to its task reaches no other."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

import plait
from tests.unit.node_runtime.functions.async_jobs import Gate, Order, numbers, orders


def test_functions_that_never_wait_share_a_task() -> None:
    tasks: set[Any] = set()

    async def note(order: Order) -> Order:
        tasks.add(asyncio.current_task())
        return order

    assert numbers(orders(5_000).map_async(note).collect()) == [*range(5_000)]
    assert len(tasks) < 500


def test_rows_that_wait_have_a_task_each() -> None:
    gate = Gate(opens_at=40)
    assert numbers(orders(40).map_async(gate, concurrency=40).collect()) == [*range(40)]
    assert gate.most == 40


def test_concurrency_holds_for_functions_that_wait_now_and_then() -> None:
    inside = most = 0

    async def now_and_then(order: Order) -> Order:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        if order.n % 3 == 0:
            await asyncio.sleep(0)
        inside -= 1
        return order

    assert numbers(orders(2_000).map_async(now_and_then, concurrency=3).collect()) == [*range(2000)]
    assert 1 < most <= 3


class Odd:
    """Cannot be compared."""

    def __eq__(self, other: object) -> bool:
        raise TypeError("odd")

    __hash__ = None  # type: ignore[assignment]


seen: ContextVar[tuple[Any, ...]] = ContextVar("seen", default=())


@pytest.mark.parametrize("value", [1, Odd()])
@pytest.mark.parametrize("waits", [False, True])
def test_a_context_variable_that_is_set_reaches_no_other_row(waits: bool, value: Any) -> None:
    async def setting(order: Order) -> Order:
        if order.n % 3 == 0:
            seen.set((*seen.get(), value))
        if waits:
            await asyncio.sleep(0)
        return Order(len(seen.get()))

    stream = orders(600).map_async(setting, concurrency=4)
    assert numbers(stream.collect()) == [1, 0, 0] * 200


@pytest.mark.parametrize("waits", [False, True])
def test_a_function_that_cancels_itself_reaches_no_other_row(waits: bool) -> None:
    async def leaving(order: Order) -> Order:
        if order.n % 100 == 7:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            if waits:
                await asyncio.sleep(0)
        return order

    job = orders(1_000).map_async(leaving, on_error="dead_letter").sink(plait.Collect(), "out").job
    result = plait.run(job)
    assert result.outputs["out"]["n"].to_pylist() == [n for n in range(1_000) if n % 100 != 7]
    assert len(result.dead_letters) == 10
    assert all("was cancelled" in str(letter.error) for letter in result.dead_letters)


def test_a_timeout_that_is_swallowed_reaches_no_other_row() -> None:
    async def stubborn(order: Order) -> Order:
        if order.n == 3:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return order
        assert asyncio.current_task() is not None
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
        return order

    stream = orders(200).map_async(stubborn, timeout="20ms", concurrency=1)
    assert numbers(stream.collect()) == [*range(200)]


def test_only_the_row_that_lasts_too_long_is_cancelled() -> None:
    async def slow(order: Order) -> Order:
        if order.n % 50 == 3:
            await asyncio.Event().wait()
        return order

    stream = orders(200).map_async(slow, timeout="20ms", on_error="dead_letter")
    result = plait.run(stream.sink(plait.Collect(), "out").job)
    assert [letter.record.n for letter in result.dead_letters] == [3, 53, 103, 153]
    assert all("no result within 0.02 s" in str(letter.error) for letter in result.dead_letters)


@dataclass
class Picky:
    n: int
    strict: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if Picky.strict and self.n == 70:
            raise ValueError("70 is refused")


def test_a_record_that_cannot_be_made_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def same(one: Picky) -> Order:
        return Order(one.n)

    records = [Picky(n) for n in range(100)]
    monkeypatch.setattr(Picky, "strict", True)
    stream = plait.stream(records).map_async(same, on_error="dead_letter")
    result = plait.run(stream.sink(plait.Collect(), "out").job)
    assert result.outputs["out"]["n"].to_pylist() == [n for n in range(100) if n != 70]
    assert ["70 is refused" in str(letter.error) for letter in result.dead_letters] == [True]
