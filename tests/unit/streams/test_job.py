"""The fluent builder: which nodes each method adds, with which schema, at which line."""

from __future__ import annotations

import dataclasses
import datetime
import doctest
import inspect
from typing import Any

import pytest

import plait
import plait.expr.aggregates
import plait.model.call_site
import plait.streams.job
from plait import col
from plait.connectors.base import Source
from plait.graph.operators import (
    AggregateOp,
    CallOp,
    FilterOp,
    FoldOp,
    ProjectOp,
    SinkOp,
    SourceOp,
    StatefulOp,
    UnionOp,
)
from plait.model.schema import Schema


@dataclasses.dataclass
class Bid:
    auction: int
    bidder: int
    price: float
    name: str | None
    ts: plait.Timestamp


class Bids(Source):
    """A source that is described and never opened."""

    def __init__(self, schema: Any = Bid, label: str = "") -> None:
        self.schema = Schema.of(schema)
        self.label = label


def bids() -> plait.Stream:
    return plait.Job("test").source(Bids())


def last(stream: plait.Stream) -> Any:
    return stream.sink(plait.Discard()).job.graph().operators[-2]


def line() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def test_a_source() -> None:
    job = plait.Job("carts")
    stream = job.source(Bids())
    assert stream.job is job
    assert stream.schema == Schema.of(Bid)
    assert stream.schema.record_class is Bid
    node = last(stream)
    assert isinstance(node, SourceOp)
    assert (node.label, node.at.line > 0, str(node.at).startswith("test_job.py:")) == (
        "source-1",
        True,
        True,
    )


def test_every_operator_knows_its_line() -> None:
    start = line()
    stream = (
        bids()
        .filter(col("price") > 1)
        .select("auction", "price")
        .with_columns(
            euro=col("price") * 2,
        )
        .key_by("auction")
        .count()
    )
    nodes = stream.sink(plait.Discard()).job.graph().operators
    lines = [node.at.line - start for node in nodes[1:-1]]
    assert lines == [3, 4, 5, 9]
    assert [node.name for node in nodes[1:]] == [
        "filter",
        "select",
        "with_columns",
        "count",
        "sink",
    ]


def test_filter_by_expression_and_by_function() -> None:
    node = last(bids().filter((col("price") > 1) & (col("auction") == 2), on_error="skip"))
    assert isinstance(node, FilterOp)
    assert repr(node.predicate) == '(col("price") > 1.0) & (col("auction") == 2)'
    assert (node.on_error, node.schema.record_class) == ("skip", Bid)
    called = last(bids().filter(lambda bid: bid.price > 1))
    assert isinstance(called, CallOp)
    assert (called.mode, called.schema) == ("filter", Schema.of(Bid))


def test_branch_keeps_nulls_in_the_rest() -> None:
    matched, rest = bids().branch(col("name") == "a")
    matched.sink(plait.Discard())
    rest.sink(plait.Discard())
    nodes = matched.job.graph().operators
    assert isinstance(nodes[1], FilterOp)
    assert isinstance(nodes[2], FilterOp)
    assert nodes[1].inputs == nodes[2].inputs == (0,)
    assert repr(nodes[2].predicate) == "~(col(\"name\") == 'a').fill_null(False)"


def test_branch_by_function() -> None:
    matched, rest = bids().branch(lambda bid: bid.price > 1)
    matched.sink(plait.Discard())
    nodes = rest.sink(plait.Discard()).job.graph().operators
    functions = [node.function for node in nodes if isinstance(node, CallOp)]
    bid = Bid(1, 2, 3.0, None, datetime.datetime.now(datetime.UTC))
    assert [function(bid) for function in functions] == [True, False]


def test_select() -> None:
    node = last(bids().select("auction", col("price"), id="bidder", double=col("price") * 2))
    assert isinstance(node, ProjectOp)
    assert str(node.schema) == "auction: int64, price: float64, id: int64, double: float64"
    assert node.schema.record_class is None
    assert [repr(expr) for _, expr in node.columns][2] == 'col("bidder")'


def test_drop_and_rename() -> None:
    assert bids().drop("ts", "name").schema.names == ("auction", "bidder", "price")
    renamed = bids().rename(seller="bidder", cost="price")
    assert renamed.schema.names == ("auction", "seller", "cost", "name", "ts")
    swapped = bids().rename(bidder="auction", auction="bidder")
    assert swapped.schema.names[:2] == ("bidder", "auction")


def test_with_columns_replaces_in_place_and_adds_behind() -> None:
    stream = bids().with_columns(high=col("price") > 100, price=col("price") * 2)
    assert stream.schema.names == ("auction", "bidder", "price", "name", "ts", "high")
    assert stream.schema.record_class is None
    kept = bids().with_columns(price=col("price") * 2)
    assert kept.schema.record_class is Bid
    changed = bids().with_columns(price=col("price").cast(int))
    assert changed.schema.record_class is None
    assert bids().with_columns(one=1).schema["one"] == plait.Field("one", plait.Type.INT64)


def fee(price: float, bidder: int) -> int:
    return int(price) // 100 if bidder > 5000 else 0


def test_functions_of_columns() -> None:
    node = last(bids().with_columns(fee=fee, name=lambda name: name))
    assert isinstance(node, CallOp)
    assert (node.mode, [name for name, _ in node.columns]) == ("columns", ["fee", "name"])
    assert node.function is fee
    assert str(node.schema["fee"]) == "fee: int64"
    assert str(node.schema["name"]) == "name: string?"


def test_a_function_that_says_no_type_makes_an_object_or_what_schema_says() -> None:
    assert str(bids().with_columns(x=lambda price: price).schema["x"]) == "x: object?"
    typed = bids().with_columns(schema={"x": float}, x=lambda price: price)
    assert str(typed.schema["x"]) == "x: float64"


def test_functions_and_expressions_both_see_the_record_that_came_in() -> None:
    stream = bids().with_columns(price=fee, euro=col("price") * 2, more=fee)
    nodes = stream.sink(plait.Discard()).job.graph().operators
    assert isinstance(nodes[1], CallOp)
    assert isinstance(nodes[2], ProjectOp)
    made = dict(nodes[2].columns)
    assert stream.schema.names == ("auction", "bidder", "price", "name", "ts", "euro", "more")
    assert repr(made["euro"]) == 'col("price") * 2.0'
    assert repr(made["price"]) == 'col("price_new")'
    assert str(stream.schema["price"]) == "price: int64"


@plait.compiled
def bucket(price: float, auction: int) -> int:
    return int(price) % auction


def test_a_compiled_function_of_columns_is_an_expression() -> None:
    by_name = last(bids().with_columns(b=bucket))
    by_call = last(bids().with_columns(b=bucket(col("auction"), 3)))
    assert isinstance(by_name, ProjectOp)
    assert repr(by_name.columns[-1][1]) == 'bucket(col("price"), col("auction"))'
    assert repr(by_call.columns[-1][1]) == 'bucket(col("auction").cast(float64), 3)'
    assert str(by_name.schema["b"]) == "b: int64"


AGGREGATES = [
    ("sum", "auction", "int64"),
    ("sum", "price", "float64"),
    ("min", "name", "string?"),
    ("max", "ts", "timestamp"),
    ("mean", "auction", "float64"),
    ("first", "name", "string?"),
    ("last", "price", "float64"),
]


@pytest.mark.parametrize(("kind", "column", "expected"), AGGREGATES)
def test_aggregates(kind: str, column: str, expected: str) -> None:
    keyed = bids().key_by("bidder")
    node = last(getattr(keyed, kind)(column))
    assert isinstance(node, AggregateOp)
    assert (node.name, node.keys) == (kind, ("bidder",))
    assert str(node.schema) == f"bidder: int64, {kind}: {expected}"
    alone = last(getattr(bids(), kind)(col(column)))
    assert (alone.keys, str(alone.schema)) == ((), f"{kind}: {expected}")


def test_count_and_aggregate() -> None:
    keyed = bids().key_by("auction", "name")
    assert str(last(keyed.count()).schema) == "auction: int64, name: string?, count: int64"
    keyed = bids().key_by("auction")
    node = last(
        keyed.aggregate(n=plait.count(), m=plait.count("name"), t=plait.sum(col("price") * 2))
    )
    assert [(name, a.kind) for name, a in node.aggregates] == [
        ("n", "count"),
        ("m", "count"),
        ("t", "sum"),
    ]
    assert node.aggregates[0][1].over is None
    assert repr(node.aggregates[2][1].over) == 'col("price") * 2.0'
    assert bids().count().schema.names == ("count",)


def test_computed_keys() -> None:
    counted = bids().key_by("auction", bucket=col("price") // 100).count()
    nodes = counted.sink(plait.Discard()).job.graph().operators
    assert isinstance(nodes[1], ProjectOp)
    assert nodes[1].name == "key_by"
    assert str(counted.schema) == "auction: int64, bucket: float64, count: int64"


def test_the_policy_of_key_by_is_that_of_what_follows() -> None:
    keyed = bids().key_by("price", on_error="skip")
    assert last(keyed.count()).on_error == "skip"
    assert last(keyed.count(on_error="dead_letter")).on_error == "dead_letter"


def test_fold() -> None:
    node = last(bids().key_by("auction").fold(0.0, lambda total, bid: total + bid.price))
    assert isinstance(node, FoldOp)
    assert (str(node.schema), node.init) == ("auction: int64, value: float64", 0.0)
    assert str(bids().fold(0, lambda n, bid: n + 1).schema) == "value: int64"
    assert str(bids().fold(list, lambda seen, bid: [*seen, bid]).schema) == "value: object?"
    assert str(bids().fold(int, lambda n, bid: n + 1).schema) == "value: int64"
    assert str(bids().fold(None, lambda n, bid: bid, type=str | None).schema) == "value: string?"


@dataclasses.dataclass
class Alert:
    auction: int
    text: str


def watch(state: float, bid: Bid) -> tuple[float, Alert | None]:
    return bid.price, Alert(bid.auction, "up") if bid.price > state else None


def test_stateful() -> None:
    node = last(bids().key_by("auction").stateful(0.0, watch))
    assert isinstance(node, StatefulOp)
    assert node.schema.record_class is Alert
    assert bids().stateful(0, lambda s, r: (s, r)).schema == Schema.of(Bid)
    assert bids().stateful(0, lambda s, r: (s, r), schema={"a": int}).schema.names == ("a",)


def test_union() -> None:
    job = plait.Job("test")
    one, two = job.source(Bids()), job.source(Bids())
    node = last(one.union(two))
    assert isinstance(node, UnionOp)
    assert (node.inputs, node.schema.record_class) == ((0, 1), Bid)
    assert plait.union(one) is one


def test_a_union_may_be_null_where_one_stream_may_be() -> None:
    job = plait.Job("test")
    one = job.source(Bids({"a": int}))
    two = job.source(Bids({"a": int | None}))
    assert str(plait.union(one, two).schema) == "a: int64?"


def test_a_stream_can_meet_itself() -> None:
    stream = bids()
    node = last(stream.union(stream, stream.filter(col("price") > 1), stream))
    assert len(set(node.inputs)) == 4


def test_jobs_without_a_name_become_one_in_a_union() -> None:
    first, second, third = (plait.stream(Bids()) for _ in range(3))
    cheap = second.filter(col("price") < 5)
    both = plait.union(first, cheap)
    every = plait.union(third, both)
    assert len({stream.job for stream in (first, second, third, cheap, both, every)}) == 1
    second.sink(plait.Discard())  # a stream of a merged job is still a place in it
    every.sink(plait.Discard())
    graph = every.job.graph()
    labels = [node.label for node in graph.operators if isinstance(node, SourceOp)]
    assert labels == ["source-1", "source-2", "source-3"]
    assert len(graph.sinks) == 2
    for number, node in enumerate(graph.operators):
        assert all(given < number for given in node.inputs)
    named = plait.Job("named")
    joined = plait.union(plait.stream(Bids()), named.source(Bids()))
    assert joined.job is named


def test_labels_are_unique() -> None:
    job = plait.Job("test")
    streams = [
        job.source(Bids(label="bids")),
        job.source(Bids(label="bids")),
        job.source(Bids(), name="mine"),
        job.source(Bids()),
    ]
    united = plait.union(*streams).sink(plait.Discard(), name="out").sink(plait.Discard())
    nodes = united.job.graph().operators
    assert [n.label for n in nodes if isinstance(n, SourceOp)] == [
        "bids",
        "bids-2",
        "mine",
        "source-4",
    ]
    assert [n.label for n in nodes if isinstance(n, SinkOp)] == ["out", "sink-2"]


def test_sink_gives_the_stream_back() -> None:
    stream = bids()
    assert stream.sink(plait.Discard()) is stream
    assert stream.job.graph().sinks == (1,)


def test_dead_letters_are_in_the_graph() -> None:
    letters = plait.Collect()
    job = plait.Job("test", dead_letters=letters)
    job.source(Bids()).sink(plait.Discard())
    assert job.graph().dead_letters is letters


def test_what_collect_runs_is_what_makes_the_stream_and_nothing_else() -> None:
    stream = bids()
    stream.filter(col("price") > 1).sink(plait.Discard())
    wanted = stream.filter(col("price") > 2).select("auction")
    alone = wanted._alone(plait.model.call_site.CallSite("collect"), 5)
    graph = alone.graph()
    assert [node.name for node in graph.operators] == ["source", "filter", "select", "collect"]
    assert [node.inputs for node in graph.operators] == [(), (0,), (1,), (2,)]
    assert len(stream.job._operators) == 5  # the job itself is as it was


def test_reprs() -> None:
    stream = bids().select("auction")
    assert repr(stream).startswith("Stream(auction: int64) made by select at test_job.py:")
    assert repr(stream.key_by("auction")) == "KeyedStream(auction: int64) by auction"
    assert repr(stream.job) == 'Job("test", 2 operators)'


@pytest.mark.parametrize("module", [plait.expr.aggregates, plait.streams.job])
def test_examples_in_docstrings(module: Any) -> None:
    results = doctest.testmod(module, extraglobs={"plait": plait}, optionflags=doctest.ELLIPSIS)
    assert results.attempted
    assert not results.failed
