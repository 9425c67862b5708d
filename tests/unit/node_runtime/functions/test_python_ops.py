"""Operators that call Python functions: results, places in the order, and failing rows."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from plait.errors import JobError
from plait.graph.operators import CallOp
from plait.model.records import Misfit, error_text
from plait.model.schema import Location, Schema
from plait.node_runtime.functions.calls import CallResult, compile_call
from plait.node_runtime.native._batch import NativeBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

BIDS = Schema.of({"auction": int, "price": float, "note": str | None})
AT = Location("job.py", 1)


@dataclasses.dataclass(slots=True)
class Bid:
    auction: int
    price: float
    note: str | None


def batch(count: int, schema: Schema = BIDS) -> NativeBatch:
    rows = [
        {"auction": i, "price": i / 2, "note": None if i % 3 == 0 else f"n{i}"}
        for i in range(count)
    ]
    return NativeBatch.from_arrow(
        pa.RecordBatch.from_pylist(rows, schema=schema.to_arrow()), schema
    )


def run(
    mode: Any,
    function: Any,
    out: Any = BIDS,
    *,
    columns: Any = (),
    on_error: Any = "skip",
    given: Any = BIDS,
    count: int = 6,
) -> CallResult:
    node = CallOp(
        name=mode,
        at=AT,
        inputs=(0,),
        schema=Schema.of(out),
        on_error=on_error,
        mode=mode,
        function=function,
        columns=columns,
    )
    schema = Schema.of(given)
    return compile_call(node, schema)(batch(count, schema))


def rows(result: CallResult, schema: Any) -> list[tuple[Any, ...]]:
    arrow = result.out.to_arrow(Schema.of(schema))
    arrow.validate(full=True)
    return [tuple(row.values()) for row in arrow.to_pylist()]


def kept(result: CallResult) -> list[int]:
    places = result.out.row_numbers()
    if result.kept is not None:
        assert list(result.kept) == places
    return places


def test_map_record_to_record() -> None:
    result = run("map", lambda b: dataclasses.replace(b, price=b.price + 1))
    assert rows(result, BIDS)[1:3] == [(1, 1.5, "n1"), (2, 2.0, "n2")]
    assert result.kept is None
    assert kept(result) == [0, 1, 2, 3, 4, 5]
    assert result.failures == []


def test_the_function_gets_the_users_class() -> None:
    seen: set[type] = set()

    def see(bid: Any) -> Any:
        seen.add(type(bid))
        return bid

    run("map", see, given=Bid)
    assert seen == {Bid}


def test_map_to_other_columns() -> None:
    out = {"a": int, "text": str}
    assert rows(run("map", lambda b: (b.auction, "x"), out), out)[5] == (5, "x")
    assert rows(run("map", lambda b: {"text": "y", "a": b.auction}, out), out)[5] == (5, "y")
    assert rows(run("map", lambda b: b.auction * 2, {"value": int}), {"value": int})[5] == (10,)


def picky(bid: Any) -> Any:
    if bid.auction == 2:
        raise KeyError("two")
    if bid.auction == 4:
        return (4, "n/a", None)
    return bid


def test_a_failing_row_is_told_and_the_others_go_on() -> None:
    result = run("map", picky)
    assert [row[0] for row in rows(result, BIDS)] == [0, 1, 3, 5]
    assert kept(result) == [0, 1, 3, 5]
    assert [row for row, _ in result.failures] == [2, 4]
    raised, misfit = (error for _, error in result.failures)
    assert error_text(raised) == "KeyError: 'two'"
    assert isinstance(misfit, Misfit)
    assert error_text(misfit) == """column "price": expected float64, got 'n/a' (str)"""
    assert "schema=" in misfit.__notes__[0]


def test_with_the_policy_fail_nothing_comes_after_the_first_failure() -> None:
    calls: list[int] = []

    def counted(bid: Any) -> Any:
        calls.append(bid.auction)
        return picky(bid)

    result = run("map", counted, on_error="fail")
    assert [row[0] for row in rows(result, BIDS)] == [0, 1]
    assert [row for row, _ in result.failures] == [2]
    assert calls == [0, 1, 2]


@pytest.mark.parametrize("mode", ["map", "filter", "flat_map", "columns", "batches"])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_goes_through(mode: str, kind: type[BaseException]) -> None:
    def interrupt(auction: Any) -> Any:
        raise kind

    out = {"auction": int, "price": float, "note": str | None}
    with pytest.raises(kind):
        run(mode, interrupt, out, columns=(("auction", interrupt),))


def test_stop_iteration_of_a_function_is_a_failure() -> None:
    def stop(bid: Any) -> Any:
        return next(iter(()))

    for mode in ("map", "filter", "flat_map"):
        result = run(mode, stop, count=2)
        assert [error_text(error) for _, error in result.failures] == ["StopIteration: "] * 2


def test_filter_keeps_rows_and_their_places() -> None:
    result = run("filter", lambda b: b.auction % 2)
    assert [row[0] for row in rows(result, BIDS)] == [1, 3, 5]
    assert kept(result) == [1, 3, 5]
    everything = run("filter", lambda b: True)
    assert everything.kept is None
    assert rows(run("filter", lambda b: False), BIDS) == []


def test_a_filter_whose_answer_has_no_truth_fails_the_row() -> None:
    import numpy as np

    result = run("filter", lambda b: np.array([1, 2]) if b.auction == 1 else True, count=3)
    assert [row for row, _ in result.failures] == [1]
    assert kept(result) == [0, 2]


def test_flat_map_repeats_the_place_of_its_record() -> None:
    def copies(bid: Any) -> Iterator[Any]:
        for i in range(bid.auction % 3):
            yield (bid.auction, float(i), None)

    result = run("flat_map", copies, count=100)
    assert kept(result) == [i for i in range(100) for _ in range(i % 3)]
    assert rows(result, BIDS)[:4] == [
        (1, 0.0, None),
        (2, 0.0, None),
        (2, 1.0, None),
        (4, 0.0, None),
    ]


def test_a_generator_that_fails_half_way_leaves_nothing() -> None:
    def half(bid: Any) -> Iterator[Any]:
        yield (bid.auction, 0.0, "first")
        if bid.auction == 1:
            raise ValueError("half-way")
        yield (bid.auction, "x" if bid.auction == 2 else 1.0, None)

    result = run("flat_map", half, count=4)
    assert kept(result) == [0, 0, 3, 3]
    assert [error_text(error) for _, error in result.failures] == [
        "ValueError: half-way",
        """column "price": expected float64, got 'x' (str)""",
    ]


def test_what_is_not_iterable_fails_the_row() -> None:
    result = run("flat_map", lambda b: None, count=1)
    assert error_text(result.failures[0][1]) == "TypeError: 'NoneType' object is not iterable"


def fee(price: float, auction: int) -> int:
    return auction * 10 if price > 0.5 else 1 // auction


def test_functions_of_columns_add_and_replace() -> None:
    out = {"auction": int, "price": float, "note": str, "fee": int}
    columns = (("fee", fee), ("note", lambda *, note: str(note)))
    result = run("columns", fee, out, columns=columns)
    assert rows(result, out)[:2] == [(1, 0.5, "n1", 1), (2, 1.0, "n2", 20)]
    assert kept(result) == [1, 2, 3, 4, 5]
    assert [(row, error_text(error)) for row, error in result.failures] == [
        (0, "ZeroDivisionError: integer division or modulo by zero")
    ]
    dense = run("columns", fee, out, columns=(("fee", lambda price: 1), columns[1]))
    assert dense.kept is None
    assert [row[3] for row in rows(dense, out)] == [1] * 6


def test_results_of_columns_are_checked_after_all_calls_in_the_order_of_the_output() -> None:
    out = {"auction": int, "price": float, "note": str | None, "z": int}
    bad = (("z", lambda price: "z"), ("auction", lambda price: "a"))
    result = run("columns", bad[0][1], out, columns=bad, count=1)
    assert 'column "auction"' in error_text(result.failures[0][1])
    worse = (("z", lambda price: "z"), ("auction", lambda price: 1 // 0))
    result = run("columns", bad[0][1], out, columns=worse, count=1)
    assert error_text(result.failures[0][1]).startswith("ZeroDivisionError")


def test_columns_stop_at_the_first_failure() -> None:
    out = {"auction": int, "price": float, "note": str | None}
    columns = (("price", lambda auction: 1.0 if auction < 2 else "no"),)
    result = run("columns", columns[0][1], out, columns=columns, on_error="fail")
    assert len(result.failures) == 1
    assert rows(result, out) == [(0, 1.0, None), (1, 1.0, "n1")]


def test_a_parameter_that_is_no_column_is_told() -> None:
    with pytest.raises(JobError, match='parameter "prise" of its function names no column'):
        run("columns", None, {"x": int}, columns=(("x", lambda prise: 1),))


def test_batches() -> None:
    result = run("batches", lambda t: t.select(["note", "price", "auction"]).slice(0, 4))
    assert [row[0] for row in rows(result, BIDS)] == [0, 1, 2, 3]
    assert kept(result) == [0, 1, 2, 3]
    same = run("batches", lambda t: t.to_batches()[0])
    assert same.kept is None
    twice = run("batches", lambda t: pa.concat_tables([t, t]), count=2)
    assert kept(twice) == [0, 1, 1, 1]
    assert rows(run("batches", lambda t: t.slice(0, 0)), BIDS) == []


def test_a_batch_function_is_not_called_for_nothing() -> None:
    result = run("batches", lambda t: 1 // 0, count=0)
    assert (rows(result, BIDS), result.failures) == ([], [])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda t: 1 // 0, "ZeroDivisionError: integer division"),
        (lambda t: t.select(["price"]), "expected the columns auction, price, note"),
        (lambda t: None, ""),
        (
            lambda t: t.set_column(0, "auction", pa.array([None] * 3, pa.int64())),
            'column "auction": expected int64, got None',
        ),
        (lambda t: t.set_column(0, "auction", pa.array(["x"] * 3)), "x"),
    ],
)
def test_a_failing_batch_fails_all_its_rows(function: Any, message: str) -> None:
    result = run("batches", function, count=3)
    assert rows(result, BIDS) == []
    assert [row for row, _ in result.failures] == [0, 1, 2]
    assert message in error_text(result.failures[0][1])
    assert [row for row, _ in run("batches", function, on_error="fail", count=3).failures] == [0]
