"""Records that are tried again: what is refused when the job is built, what counts as a failure of
the function, and that nothing of a failed try is left. The same jobs on every entry point are in
test_entry_points.py.
"""

from __future__ import annotations

import threading
from array import array
from collections import Counter
from collections.abc import Iterator  # noqa: TC003 (an annotation that is read)
from dataclasses import dataclass
from typing import Any

import pytest

import plait
from plait import col
from plait.errors import Interrupted, JobError, RecordError
from plait.execution.local_run import start
from plait.graph.operators import CallOp, Retrying
from plait.node_runtime.functions.retries import LONGEST_PAUSE_S, again_of, pauses_s
from plait.node_runtime.native._calls import beat_at


@dataclass
class Order:
    n: int
    price: float = 1.5


def orders(count: int) -> plait.Stream:
    return plait.stream([Order(n) for n in range(count)])


def call_of(stream: plait.Stream) -> CallOp:
    node = stream._op
    assert isinstance(node, CallOp)
    return node


class Late:
    """A function that raises for a record until it was called `tries` times with it."""

    def __init__(self, tries: int = 3) -> None:
        self.tries = tries
        self.calls: Counter[int] = Counter()

    def late(self, n: int) -> None:
        self.calls[n] += 1
        if n % 5 == 2 and self.calls[n] < self.tries:
            raise ConnectionError(f"try {self.calls[n]} of {n}")

    def same(self, order: Order) -> Order:
        order.price += 1
        self.late(order.n)
        return order

    def kept(self, order: Order) -> bool:
        self.late(order.n)
        return order.n % 2 == 0

    def pair(self, order: Order) -> Iterator[Order]:
        yield Order(order.n, 1)
        self.late(order.n)
        yield Order(order.n, 2)

    def fee(self, n: int) -> int:
        self.late(n)
        return n * 10

    def table(self, table: Any) -> Any:
        self.late(table["n"][0].as_py())
        return table


def same(order: Order) -> Order:
    return order


VERBS: list[tuple[str, Any]] = [
    ("map", lambda s, **given: s.map(same, **given)),
    ("filter", lambda s, **given: s.filter(lambda order: True, **given)),
    ("flat_map", lambda s, **given: s.flat_map(lambda order: [order], **given)),
    ("with_columns", lambda s, **given: s.with_columns(fee=lambda n: n, **given)),
    ("map_batches", lambda s, **given: s.map_batches(lambda table: table, **given)),
]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"retries": -1}, "retries is -1; it must be a whole number from 0 to 100"),
        ({"retries": 101}, "retries is 101"),
        ({"retries": True}, "retries is True"),
        ({"retries": "3"}, "retries is '3'"),
        ({"retries": 1, "backoff": 2}, "2 is not a duration"),
        ({"on_error": "again"}, 'one of "fail", "skip", "dead_letter", "retry"'),
        ({"on_error": "retry", "retries": 0}, 'retries is 0 with on_error="retry"'),
    ],
)
@pytest.mark.parametrize(("verb", "made"), VERBS)
def test_arguments_that_are_refused(verb: str, made: Any, given: Any, words: str) -> None:
    with pytest.raises(JobError) as caught:
        made(orders(1), **given)
    assert str(caught.value).startswith(f"{verb} at test_retries.py:")
    assert words in str(caught.value)


@pytest.mark.parametrize("given", [{"retries": 1}, {"on_error": "retry"}])
def test_expressions_are_not_tried_again(given: Any) -> None:
    words = "an expression gives the same at every try"
    with pytest.raises(JobError, match=words):
        orders(1).filter(col("n") > 1, **given)
    with pytest.raises(JobError, match=words):
        orders(1).with_columns(m=col("n") + 1, **given)


def test_states_are_not_tried_again() -> None:
    with pytest.raises(JobError, match="only functions of single records are retried"):
        orders(1).key_by("n").fold(0, lambda state, order: state, type=int, on_error="retry")  # type: ignore[arg-type]


@pytest.mark.parametrize(("verb", "made"), VERBS)
def test_what_a_node_says(verb: str, made: Any) -> None:
    assert call_of(made(orders(1))).retrying is None
    assert call_of(made(orders(1), retries=0)).retrying is None
    node = call_of(made(orders(1), retries=5, backoff="1s", on_error="skip"))
    assert (node.on_error, node.retrying) == ("skip", Retrying(retries=5, backoff_us=1_000_000))
    node = call_of(made(orders(1), on_error="retry"))
    assert (node.on_error, node.retrying) == ("fail", Retrying(retries=3, backoff_us=50_000))
    node = call_of(made(orders(1), on_error="retry", retries=7))
    assert (node.on_error, node.retrying) == ("fail", Retrying(retries=7, backoff_us=50_000))


def test_functions_and_expressions_together() -> None:
    late = Late()
    stream = orders(4).with_columns(fee=late.fee, m=col("n") + 1, retries=2, backoff="1ms")
    assert [(one.fee, one.m) for one in stream.collect()] == [(0, 1), (10, 2), (20, 3), (30, 4)]


def test_map_async_knows_retry_too() -> None:
    async def lookup(order: Order) -> Order:
        return order

    node = call_of(orders(1).map_async(lookup, on_error="retry"))
    assert node.awaiting is not None
    assert (node.on_error, node.awaiting.retries) == ("fail", 3)


def test_explain_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    orders(1).map(same, retries=2, backoff="2s").explain()
    assert "    tries: 3, the second after 2s\n" in capsys.readouterr().out


def test_pauses_double_up_to_a_limit() -> None:
    assert pauses_s(Retrying(retries=3, backoff_us=100_000)) == (0.1, 0.2, 0.4)
    assert pauses_s(Retrying(retries=20, backoff_us=1_000_000))[-1] == LONGEST_PAUSE_S
    assert pauses_s(Retrying(retries=3, backoff_us=60_000_000)) == (60.0, 60.0, 60.0)
    assert pauses_s(Retrying(retries=2, backoff_us=0)) == (0.0, 0.0)
    assert again_of(None) is None
    assert again_of(Retrying(retries=0, backoff_us=1)) is None


def test_a_record_is_new_at_every_try() -> None:
    late = Late()
    found = orders(10).map(late.same, retries=2, backoff="1ms", route="inline").collect()
    assert [(one.n, one.price) for one in found] == [(n, 2.5) for n in range(10)]
    assert late.calls == {n: 3 if n % 5 == 2 else 1 for n in range(10)}


def test_a_filter_and_columns_and_tables() -> None:
    tries: dict[str, Any] = {"retries": 2, "backoff": "1ms", "route": "inline"}
    late = Late()
    kept = orders(10).filter(late.kept, **tries).collect()
    assert [one.n for one in kept] == [0, 2, 4, 6, 8]
    assert late.calls[2] == 3
    both, other = Late(), Late(tries=2)
    columns = orders(10).with_columns(a=other.fee, b=both.fee, **{**tries, "retries": 3}).collect()
    assert [(one.a, one.b) for one in columns] == [(10 * n, 10 * n) for n in range(10)]
    assert (other.calls[2], both.calls[2]) == (4, 3), "all functions of the record are tried again"
    late = Late()
    tables = orders(10).map_batches(late.table, **tries).collect(epoch_records=1)
    assert [one.n for one in tables] == list(range(10))
    assert late.calls[2] == late.calls[7] == 3


def test_nothing_is_left_of_half_a_flat_map() -> None:
    late = Late()
    found = orders(10).flat_map(late.pair, retries=2, backoff="1ms", route="inline").collect()
    assert [(one.n, one.price) for one in found] == [(n, p) for n in range(10) for p in (1, 2)]


@pytest.mark.parametrize("workers", [1, 2])
def test_when_all_tries_are_used_up(workers: int) -> None:
    late = Late(tries=4)
    with pytest.raises(RecordError, match="ConnectionError: try 3 of 2") as caught:
        orders(10).map(late.same, retries=2, backoff="1ms", route="inline").collect(workers=workers)
    assert (caught.value.row, caught.value.record) == (3, Order(2))
    late = Late(tries=4)
    stream = orders(10).map(
        late.same, retries=2, backoff="1ms", route="inline", on_error="dead_letter"
    )
    stream.sink(plait.Collect(), name="out")
    result = stream.run(workers=workers)
    assert [letter.row for letter in result.dead_letters] == [3, 8]
    assert [letter.record.price for letter in result.dead_letters] == [1.5, 1.5]
    assert late.calls[2] == late.calls[7] == 3
    assert result.account.difference == 0


def test_a_result_that_does_not_fit_is_not_tried_again() -> None:
    calls: list[int] = []

    def wrong(order: Order) -> Any:
        calls.append(order.n)
        return {"n": "text"}

    with pytest.raises(RecordError):
        orders(1).map(wrong, schema={"n": int}, retries=5, backoff="1ms").collect()
    assert calls == [0]

    async def also_wrong(order: Order) -> Any:
        return asleep()

    async def asleep() -> None:
        calls.append(7)

    with pytest.raises(RecordError, match="write `return await"):
        orders(1).map_async(also_wrong, schema={"n": int}, retries=5, backoff="1ms").collect()
    assert calls == [0]


def test_who_leaves_the_interpreter_is_not_called_again() -> None:
    calls: list[int] = []

    def leaves(order: Order) -> Order:
        calls.append(order.n)
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        orders(1).map(leaves, retries=5, backoff="1ms").collect()
    assert calls == [0]


def test_the_end_does_not_wait_for_a_pause() -> None:
    there = threading.Event()

    def refuses(order: Order) -> Order:
        there.set()
        raise ConnectionError("never")

    stream = orders(10).map(refuses, retries=3, backoff="1h", route="inline")
    stream.sink(plait.Discard())
    run = start(stream.job, workers=2)
    assert there.wait(30)
    run.abort()
    with pytest.raises(Interrupted):
        run.wait()


shown = array("Q", [0, 0])
"""Where this process shows that it gets on, from the test below on."""


def test_a_pause_is_no_hang() -> None:
    """A worker process shows all the time that it is alive."""
    beat_at(shown.buffer_info()[0])
    before = shown[0]
    again = again_of(Retrying(retries=2, backoff_us=200_000))
    assert again is not None
    assert again(0)
    assert shown[0] >= before + 3
    assert not again(2)
