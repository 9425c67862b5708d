"""Ids of operators: stable where the job changes elsewhere, unique, or given by `.named`."""

from __future__ import annotations

from typing import Any

import pytest

import plait
from plait.errors import JobError
from plait.graph.operator_ids import operator_ids
from plait.graph.operators import TimedOp

col = plait.col
BIDS = [{"item": 1, "user": 2, "price": 5}]


def bids(name: str = "bids") -> plait.Stream:
    return plait.stream(BIDS, name=name)


def ids_of(*streams: plait.Stream) -> tuple[str, ...]:
    for number, stream in enumerate(streams):
        stream.sink(plait.Discard(), name=f"out-{number}")
    return operator_ids(streams[0].job.graph())


def stateful(*streams: plait.Stream) -> list[str]:
    return [id for id in ids_of(*streams) if "(" in id]


def test_an_id_is_the_verb_its_keys_and_its_source() -> None:
    assert stateful(bids().key_by("item").count()) == ["count(item) from bids"]
    assert stateful(bids().count()) == ["count() from bids"]


def test_an_operator_after_another_with_state_names_it() -> None:
    totals = bids().key_by("item").sum("price").key_by("sum").count()
    assert stateful(totals) == [
        "sum(item) from bids",
        "count(sum) after sum(item) from bids",
    ]


def test_operators_without_state_change_nothing() -> None:
    plain = bids().key_by("item").sum("price").key_by("sum").count()
    more = bids().filter(col("price") > 0).map(lambda bid: bid).key_by("item").sum("price")
    more = more.with_columns(double=col("sum") * 2).key_by("sum").count().filter(col("sum") > 1)
    before = set(stateful(plain))
    assert before <= set(ids_of(more))


def test_equal_ones_are_numbered() -> None:
    stream = bids()
    found = stateful(stream.key_by("item").count(), stream.key_by("item").count())
    assert found == ["count(item) from bids", "count(item) from bids#2"]


def test_an_operator_without_state_takes_no_id_from_one_with() -> None:
    stream = bids()
    one = stream.key_by("item").count().named("filter from bids")
    found = ids_of(one, stream.filter(col("price") > 1))
    assert found.count("filter from bids") == 1
    assert "filter from bids#2" in found


def test_all_ids_differ() -> None:
    stream = bids()
    found = ids_of(*(stream.filter(col("price") > each).count() for each in range(5)))
    assert len(set(found)) == len(found)


def test_both_sources_of_a_union_are_named() -> None:
    both = plait.union(bids("a"), bids("b"))
    assert stateful(both.key_by("item").count()) == ["count(item) from a+b"]


def test_a_name_is_the_id() -> None:
    spike = bids().key_by("item").count().named("spike")
    assert "spike" in ids_of(spike.filter(col("count") > 1))


def timed() -> plait.Stream:
    rows = [{"item": 1, "price": 2, "at": 3}]
    return plait.stream(rows, name="bids").with_event_time(col("at").to_timestamp(unit="s"))


VERBS: dict[str, Any] = {
    "count": lambda: bids().key_by("item").count(),
    "fold": lambda: bids().key_by("item").fold(0, lambda state, bid: state + bid.price),
    "tumbling": lambda: timed().key_by("item").tumbling("1m").count(),
    "computed": lambda: timed().key_by("item").tumbling("1m").aggregate(x=plait.sum("price")),
    "expression": lambda: (
        timed().key_by("item").tumbling("1m").aggregate(x=plait.sum(col("price") * 2))
    ),
    "join": lambda: bids("a").join(bids("b"), on="item"),
    "top": lambda: timed().tumbling("1m").top(2, by="price"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_the_name_goes_to_the_operator_with_state(verb: str) -> None:
    """Though the verb may add others around it."""
    stream = VERBS[verb]().named("mine")
    stream.sink(plait.Discard())
    graph = stream.job.graph()
    (op,) = (op for op in graph.operators if op.named)
    assert hasattr(op, "keys") or isinstance(op, TimedOp)
    assert "mine" in operator_ids(graph)


def test_a_name_is_given_once() -> None:
    stream = bids()
    stream.key_by("item").count().named("x")
    with pytest.raises(JobError, match=r'"x" is already the name of count at .*py:'):
        stream.key_by("user").count().named("x")


def test_names_of_jobs_that_become_one_must_differ() -> None:
    one = bids("a").key_by("item").count().named("x")
    two = bids("b").key_by("item").count().named("x")
    both = plait.union(one, two)
    with pytest.raises(JobError, match='two operators are named "x"'):
        ids_of(both)


def test_an_operator_has_one_name() -> None:
    counts = bids().key_by("item").count().named("x")
    assert counts.named("x") is counts
    with pytest.raises(JobError, match='is named "x" already'):
        counts.named("y")


@pytest.mark.parametrize("name", ["", "  ", "a\nb", None, 7, "x" * 201])
def test_what_is_not_a_name_is_refused(name: Any) -> None:
    with pytest.raises(JobError, match=r"named at .*py:\d+: "):
        bids().key_by("item").count().named(name)
