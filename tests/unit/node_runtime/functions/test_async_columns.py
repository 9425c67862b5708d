"""with_columns_async: what is refused, columns in their places, and one that fails."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest

import plait
from plait.errors import JobError, RecordError
from plait.testing import sequential
from plait.testing.check import rows_of_arrow
from tests.unit.node_runtime.functions.async_jobs import Gate, Order, Stuck, orders, yielding


async def fee(n: int, price: float) -> float:
    await asyncio.sleep(0)
    return n + price


async def of_nothing(prise: float) -> float:
    return prise


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "name at least one column"),
        (
            {"fee": plait.col("n")},
            '"fee" is not an async function; add it with with_columns(fee=...)',
        ),
        ({"fee": lambda n: n}, "is not async"),
        ({"fee": yielding}, '"yielding" yields'),
        ({"fee": of_nothing}, 'did you mean "price"?'),
        ({"fee": fee, "schema": {"fees": int}}, 'schema= names "fees"'),
        ({"fee": fee, "concurrency": 0}, "concurrency is 0"),
        ({"fee": fee, "on_error": "again"}, "on_error is 'again'"),
    ],
)
def test_columns_that_are_refused(given: Any, words: str) -> None:
    with pytest.raises(JobError, match=r"with_columns_async at .*test_async_columns.py") as caught:
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
