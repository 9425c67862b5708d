"""What composed operators mean, by running the graphs they build in the sequential oracle."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import plait
from plait import col
from plait.expr.type_checker import bind
from plait.model.schema import Schema, Type
from plait.testing.oracle import sequential
from plait.testing.oracle.expressions import compiled
from plait.testing.oracle.values import Fault, held_of
from plait.testing.random_jobs import expressions, rows, schemas

BIDS = [
    {"auction": 1, "price": 30, "name": "a"},
    {"auction": 2, "price": 5, "name": None},
    {"auction": 1, "price": 12, "name": "b"},
]


def bids() -> plait.Stream:
    schema = {"auction": int, "price": int, "name": str | None}
    return plait.stream(plait.Items(BIDS, schema=schema))


def result(stream: plait.Stream) -> list[tuple[Any, ...]]:
    """The rows of a stream."""
    graph = stream.sink(plait.Discard(), name="result").job.graph()
    done = sequential(graph)
    assert done.failure is None
    return done.outputs["result"]


def test_the_first_minute() -> None:
    assert result(bids().filter(col("price") > 10).key_by("auction").count()) == [(1, 1), (1, 2)]


def test_branch_loses_nothing() -> None:
    matched, rest = bids().branch(col("name") == "a")
    rest.sink(plait.Discard())
    assert result(matched) == [(1, 30, "a")]
    matched, rest = bids().branch(col("name") == "a")
    matched.sink(plait.Discard())
    assert result(rest) == [(2, 5, None), (1, 12, "b")]


def test_branch_by_function_loses_nothing() -> None:
    matched, rest = bids().branch(lambda bid: bid.price > 10)
    matched.sink(plait.Discard())
    assert result(rest) == [(2, 5, None)]


def half(price: int) -> int:
    return price // 2


def test_every_new_column_sees_the_record_that_came_in() -> None:
    stream = bids().with_columns(price=half, double=col("price") * 2, auction=col("price"))
    assert result(stream) == [(30, 15, "a", 60), (5, 2, None, 10), (12, 6, "b", 24)]
    swapped = bids().with_columns(price=col("auction"), auction=col("price"))
    assert result(swapped)[0] == (30, 1, "a")


def test_rename_can_swap() -> None:
    swapped = bids().rename(price="auction", auction="price")
    assert swapped.schema.names == ("price", "auction", "name")
    assert result(swapped)[0] == (1, 30, "a")


def test_computed_keys() -> None:
    stream = (
        bids().key_by(tens=col("price") // 10).aggregate(n=plait.count(), top=plait.max("price"))
    )
    assert result(stream) == [(3, 1, 30), (0, 1, 5), (1, 1, 12)]


def test_a_key_that_replaces_a_column() -> None:
    stream = bids().key_by(name=col("name").fill_null("?").upper()).count()
    assert result(stream) == [("A", 1), ("?", 1), ("B", 1)]


def test_aggregates_of_all_records() -> None:
    assert result(bids().sum("price")) == [(30,), (35,), (47,)]
    assert result(bids().aggregate(n=plait.count("name"), f=plait.last("name"))) == [
        (1, "a"),
        (1, "a"),
        (2, "b"),
    ]


def test_a_stream_that_meets_itself_gives_each_record_twice() -> None:
    stream = bids().select("price")
    assert result(stream.union(stream)) == [(30,), (30,), (5,), (5,), (12,), (12,)]


def test_streams_of_two_jobs() -> None:
    both = plait.union(bids().select("price"), bids().select(price="auction"))
    assert sorted(result(both)) == [(1,), (1,), (2,), (5,), (12,), (30,)]


def test_fold_and_stateful() -> None:
    assert result(bids().key_by("auction").fold(0, lambda total, bid: total + bid.price)) == [
        (1, 30),
        (2, 5),
        (1, 42),
    ]
    falling = bids().stateful(0, lambda seen, bid: (bid.price, bid if bid.price < seen else None))
    assert result(falling) == [(2, 5, None)]


def test_plain_values() -> None:
    stream = plait.stream(["to be", "or not"])
    words = stream.flat_map(lambda line: line.value.split())
    assert words.schema == Schema.of({"value": str})
    assert result(words.key_by("value").count())[0] == ("to", 1)


def test_the_policy_reaches_the_expression() -> None:
    stream = bids().with_columns(x=100 // (col("price") - 5), on_error="skip")
    assert [row[-1] for row in result(stream)] == [4, 14]
    with pytest.raises(AssertionError):
        result(bids().with_columns(x=100 // (col("price") - 5)))


@given(st.data())
def test_binding_changes_no_value(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    kinds = [Type.INT64, Type.FLOAT64, Type.BOOL, Type.STRING, Type.TIMESTAMP]
    expr = data.draw(expressions(schema, data.draw(st.sampled_from(kinds))))
    bound = bind(expr, schema)
    for row in data.draw(rows(schema)):
        held = held_of(row, schema)
        values = [outcome(one, held, schema) for one in (expr, bound.expr)]
        assert repr(values[0]) == repr(values[1])
        assert bound.nullable or values[1] is not None


def outcome(expr: plait.Expr, row: Any, schema: Schema) -> Any:
    try:
        return compiled(expr, schema).run(row)
    except Fault as fault:
        return str(fault)
