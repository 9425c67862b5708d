"""Joins in the builder: two sides as one input, the columns of a pair, and NEXMark's queries."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest

import plait
from plait import col
from plait.connectors.base import Source
from plait.graph import temporal
from plait.graph.operators import FilterOp, Graph, ProjectOp, TimedOp, UnionOp
from plait.graph.stages import make_pipeline
from plait.model.call_site import CallSite
from plait.model.schema import Schema
from plait.streams.event_time import Lost
from plait.testing.oracle import sequential

SECOND = 1_000_000


@dataclasses.dataclass
class Person:
    id: int
    name: str
    city: str
    state: str
    ts: plait.Timestamp


@dataclasses.dataclass
class Auction:
    id: int
    seller: int
    category: int
    expires: plait.Timestamp
    ts: plait.Timestamp


@dataclasses.dataclass
class Bid:
    auction: int
    bidder: int
    price: int
    ts: plait.Timestamp


class Described(Source):
    """A source that is described and never opened."""

    def __init__(self, schema: Any) -> None:
        self.schema = Schema.of(schema)


def streams(event_time: str | None = "ts") -> tuple[plait.Stream, plait.Stream, plait.Stream]:
    job = plait.Job("nexmark")
    persons = job.source(Described(Person), "persons", event_time=event_time)
    auctions = job.source(Described(Auction), "auctions", event_time=event_time)
    return persons, auctions, job.source(Described(Bid), "bids", event_time=event_time)


def nodes(stream: plait.Stream) -> tuple[Any, ...]:
    """The nodes that make a stream, and a sink."""
    return stream._alone(CallSite("test"), None).graph().operators


def timed_node(stream: plait.Stream) -> TimedOp:
    return next(node for node in reversed(nodes(stream)) if isinstance(node, TimedOp))


def kinds(stream: plait.Stream) -> list[str]:
    """The stages that make a stream."""
    return [
        stage.kind for stage in make_pipeline(stream._alone(CallSite("test"), None).graph()).stages
    ]


def test_the_sides_are_one_input() -> None:
    persons, auctions, _ = streams()
    stream = auctions.join(persons.drop("city", "state"), on=("seller", "id"))
    left, right, both, node = nodes(stream)[-5:-1]
    assert isinstance(left, ProjectOp)
    assert isinstance(right, ProjectOp)
    assert isinstance(both, UnionOp)
    assert [node.name for node in (left, right, both)] == ["join.left", "join.right", "join.sides"]
    assert left.schema.names == right.schema.names == both.schema.names
    assert str(both.schema) == (
        "side: int64, k_0: int64, l_id: int64?, l_category: int64?, l_expires: timestamp?,"
        " l_ts: timestamp?, r_name: string?, r_ts: timestamp?"
    )
    assert repr(dict(right.columns)["k_0"]) == 'col("id")'
    assert isinstance(node, TimedOp)
    assert (node.keys, node.time) == (("k_0",), "")
    assert node.spec == temporal.JoinSpec(
        left=temporal.Side(columns=("l_id", "k_0", "l_category", "l_expires", "l_ts")),
        right=temporal.Side(columns=("r_name", "r_ts")),
    )
    assert str(stream.schema) == (
        "id: int64, seller: int64, category: int64, expires: timestamp, ts: timestamp,"
        " name: string, ts_right: timestamp"
    )


def test_the_time_of_a_pair_is_the_later_one() -> None:
    persons, auctions, _ = streams()
    stream = auctions.join(persons, on=("seller", "id"))
    assert repr(stream._time) == (
        'when(col("ts_right") > col("ts")).then(col("ts_right")).otherwise(col("ts"))'
    )
    assert timed_node(stream.tumbling("10s").count()).time == "event_time"
    timeless = streams(None)
    assert isinstance(timeless[1].join(timeless[0], on=("seller", "id"))._time, Lost)
    any_age = persons.join(auctions, on=("id", "seller"), how="semi")
    with pytest.raises(
        plait.JobError, match="semi without window= or ttl= gives records of any age"
    ):
        any_age.tumbling("1s")
    persons.join(auctions, on=("id", "seller"), how="semi", ttl="1s").tumbling("1s").count()


def test_several_keys() -> None:
    _, auctions, bids = streams()
    stream = bids.join(auctions, on=["ts", ("auction", "id")], suffix="_of_auction")
    node = timed_node(stream)
    assert node.keys == ("k_0", "k_1")
    assert isinstance(node.spec, temporal.JoinSpec)
    assert node.spec.left.columns == ("k_1", "l_bidder", "l_price", "k_0")
    assert stream.schema.names == (
        *("auction", "bidder", "price", "ts"),
        *("seller", "category", "expires"),
    )


def test_a_join_in_windows() -> None:
    persons, auctions, _ = streams()
    window = plait.Tumbling("10s")
    stream = persons.join(auctions, on=("id", "seller"), window=window, how="semi")
    node = timed_node(stream)
    assert node.spec == temporal.JoinSpec(
        left=temporal.Side(columns=("k_0", "l_name", "l_city", "l_state", "l_ts"), time="l_ts"),
        right=temporal.Side(columns=("r_ts",), time="r_ts"),
        how="semi",
        within=temporal.Grid(size_us=10 * SECOND, every_us=10 * SECOND),
    )
    assert stream.schema.record_class is Person
    assert repr(stream._time) == 'col("ts")'
    assert "r_seller" not in nodes(stream)[-3].schema


def test_a_join_between() -> None:
    _, auctions, bids = streams()
    stream = auctions.join(bids, on=("id", "auction"), between=("-5s", "10s"), how="left")
    spec = timed_node(stream).spec
    assert isinstance(spec, temporal.JoinSpec)
    assert spec.within == temporal.Between(low_us=-5 * SECOND, high_us=10 * SECOND)
    assert str(stream.schema["price"]) == "price: int64?"
    assert str(stream.schema["category"]) == "category: int64"
    assert repr(stream._time).startswith('when(col("ts_right").is_null()).then(col("ts") + ')


def test_a_join_with_a_ttl() -> None:
    _, auctions, bids = streams()
    spec = timed_node(auctions.join(bids, on=("id", "auction"), ttl="1h", how="anti")).spec
    assert isinstance(spec, temporal.JoinSpec)
    assert (spec.ttl_us, spec.how, spec.within) == (3600 * SECOND, "anti", None)
    assert (spec.left.time, spec.right.time) == ("l_ts", "r_ts")


def test_a_join_as_of() -> None:
    _, auctions, bids = streams()
    stream = bids.join_as_of(auctions, on=("auction", "id"), tolerance="1m")
    spec = timed_node(stream).spec
    assert isinstance(spec, temporal.JoinSpec)
    assert (spec.within, spec.how) == (temporal.AsOf(tolerance_us=60 * SECOND), "left")
    assert str(stream.schema["seller"]) == "seller: int64?"
    assert repr(stream._time) == 'col("ts")'
    inner = bids.join_as_of(auctions, on=("auction", "id"), how="inner")
    assert str(inner.schema["seller"]) == "seller: int64"


def test_a_computed_time_travels_and_is_left_out_again() -> None:
    _, _, bids = streams()
    counted = bids.key_by("auction").tumbling("10s").count()
    stream = counted.join(bids, on="auction", window=plait.Tumbling("1m"))
    spec = timed_node(stream).spec
    assert isinstance(spec, temporal.JoinSpec)
    assert spec.left.time == "l_0"
    assert stream.schema.names == (
        *("auction", "window_start", "window_end", "count"),
        *("bidder", "price", "ts"),
    )


def test_a_stream_can_be_joined_with_itself() -> None:
    _, _, bids = streams()
    stream = bids.join(bids, on="bidder", between=("0s", "1s"))
    assert "price_right" in stream.schema


def test_streams_of_two_jobs_without_names() -> None:
    one = plait.stream([{"id": 1, "a": 2}])
    other = plait.stream([{"id": 1, "b": 2}])
    stream = one.join(other, on="id")
    assert stream.schema.names == ("id", "a", "b")
    assert one.job is other.job is stream.job


def test_spans() -> None:
    _, auctions, bids = streams()
    joined = auctions.join(bids, on=("id", "auction"), between=(col("ts"), col("expires")))
    stream = joined.aggregate(price=plait.max(col("price")), n=plait.count())
    node = timed_node(stream)
    assert isinstance(node.spec, temporal.SpanSpec)
    assert (node.spec.start, node.spec.end) == ("l_ts", "l_expires")
    assert node.spec.left.columns == ("k_0", "l_seller", "l_category", "l_expires", "l_ts")
    assert node.spec.right == temporal.Side(columns=("r_price", "r_ts"), time="r_ts")
    over = [(name, a.kind, repr(a.over)) for name, a in node.spec.aggregates]
    assert over == [("price", "max", 'col("r_price")'), ("n", "count", "None")]
    assert stream.schema.names == (*Schema.of(Auction).names, "price", "n")
    assert repr(stream._time) == 'col("expires")'
    assert (node.spec.empty, node.spec.wait_us) == (False, 0)
    assert [one.name for one in nodes(stream)[-5:-1]] == [
        "join.left",
        "join.right",
        "join.sides",
        "aggregate",
    ]


def test_spans_of_computed_ends_and_values() -> None:
    _, auctions, bids = streams()
    span = (col("ts"), col("ts") + plait.minutes(1))
    joined = auctions.join(bids, on=("id", "auction"), between=span, how="left", wait="5s")
    stream = joined.aggregate(dear=plait.sum(col("price") * 2), n=plait.count())
    spec = timed_node(stream).spec
    assert isinstance(spec, temporal.SpanSpec)
    assert (spec.end, spec.empty, spec.wait_us) == ("l_0", True, 5 * SECOND)
    assert stream.schema.names == (*Schema.of(Auction).names, "dear", "n")
    assert str(stream.schema["dear"]) == "dear: int64?"
    assert str(stream.schema["n"]) == "n: int64"


def test_left_records_without_a_span_are_filtered() -> None:
    job = plait.Job("test")
    fields = {"id": int, "ts": plait.Timestamp, "end": plait.Timestamp | None}
    left = job.source(Described(fields), event_time="ts")
    right = job.source(Described(Bid), event_time="ts")
    made = left.join(right, on=("id", "auction"), between=(col("ts"), col("end"))).count()
    found = [node for node in nodes(made) if isinstance(node, FilterOp)]
    assert [repr(node.predicate) for node in found] == ['~col("end").is_null()']


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p, a, b: a.join(b, on="id"), r'in the right stream: no column "id"'),
        (lambda p, a, b: a.join(b, on=("idd", "auction")), r'in the left stream: no column "idd"'),
        (lambda p, a, b: a.join(p, on=("id", "name")), "is int64, .* is string"),
        (lambda p, a, b: a.join(p, on=("id", "id", "id")), "for several columns give a list"),
        (lambda p, a, b: a.join(p, on=[]), "on= names no column"),
        (lambda p, a, b: a.join(p, on=col("id") + 1), "add .* with with_columns first"),
        (lambda p, a, b: a.join(p, on=3), "not 3"),
        (lambda p, a, b: a.join([1], on="id"), "use enrich"),
        (lambda p, a, b: a.join(p.key_by("id"), on="id"), "leave out key_by"),
        (lambda p, a, b: a.join(p, on="id", how="outer"), 'how is .outer.; .*"inner", "left"'),
        (lambda p, a, b: a.join(p, on="id", window="10s"), "write plait.Tumbling"),
        (lambda p, a, b: a.join(p, on="id", window=plait.Rows(3)), "Tumbling or Sliding"),
        (
            lambda p, a, b: a.join(p, on="id", window=plait.Tumbling("1s"), between=("0s", "1s")),
            "not both",
        ),
        (
            lambda p, a, b: a.join(p, on="id", window=plait.Tumbling("1s"), ttl="1h"),
            "ttl= cannot be combined",
        ),
        (lambda p, a, b: a.join(p, on="id", between=("1s", "0s")), "must not be above"),
        (lambda p, a, b: a.join(p, on="id", between="1s"), "must be two durations"),
        (lambda p, a, b: a.join(p, on="id", between=(1, 2)), "1 is not a duration"),
        (lambda p, a, b: a.join(p, on="id", between=(col("ts"), "1s")), "two times of the left"),
        (
            lambda p, a, b: a.join(p, on="id", between=(col("ts"), col("id"))),
            "is int64, not a timestamp",
        ),
        (lambda p, a, b: a.join(p, on="id", between=(col("ts"), col("x"))), "in the left stream"),
        (
            lambda p, a, b: a.join(p, on="id", between=(col("ts"), col("ts")), how="semi"),
            '"inner" or "left"',
        ),
        (
            lambda p, a, b: a.join(p, on="id", between=(col("ts"), col("ts"))).max("prise"),
            'max at .*in the right stream: no column "prise"',
        ),
        (
            lambda p, a, b: a.join(p, on="id", between=(col("ts"), col("ts"))).aggregate(
                seller=plait.count()
            ),
            "name of a column of the left",
        ),
        (lambda p, a, b: a.join(p, on="id", wait="1s"), "wait= is only valid with between="),
        (lambda p, a, b: a.join(p, on="id", suffix=""), "suffix is ''"),
        (
            lambda p, a, b: a.with_columns(ts_right=1).join(p, on="id"),
            'both streams have a column "ts", and "ts_right" is taken',
        ),
        (lambda p, a, b: a.join_as_of(p, on="id", how="semi"), '"left", "inner" or "late"'),
        (lambda p, a, b: a.drop("ts").join_as_of(p, on="id"), "left stream.* needs event time"),
        (lambda p, a, b: a.join(p.drop("ts"), on="id", ttl="1h"), "right stream.* needs event"),
        (
            lambda p, a, b: a.with_columns(x=lambda seller: object()).join(p, on="id"),
            "is object, which joins and connect cannot carry",
        ),
    ],
)
def test_mistakes(make: Any, message: str) -> None:
    with pytest.raises(plait.JobError, match=message) as caught:
        make(*streams())
    assert "test_joins_build.py:" in str(caught.value)


def test_a_keyed_stream_is_joined_before_it_is_keyed() -> None:
    _, auctions, _ = streams()
    with pytest.raises(AttributeError, match="call it before key_by"):
        auctions.key_by("id").join(auctions, on="id")


def test_spans_say_what_they_need() -> None:
    persons, auctions, _ = streams()
    with pytest.raises(AttributeError, match="first call count"):
        auctions.join(persons, on="id", between=(col("ts"), col("ts"))).select("id")


def test_nexmark_reads_as_it_should() -> None:
    persons, auctions, bids = streams()
    q1 = bids.with_columns(price=col("price") * 908 // 1000)
    q2 = bids.filter(col("auction") % 123 == 0).select("auction", "price")
    q3 = (
        auctions.filter(col("category") == 10)
        .join(persons.filter(col("state").is_in(["OR", "ID", "CA"])), on=("seller", "id"))
        .select("name", "city", "state", auction="id")
    )
    closed = auctions.join(
        bids, on=("id", "auction"), between=(col("ts"), col("expires"))
    ).aggregate(price=plait.max(col("price")))
    q4 = closed.key_by("category").mean("price")
    q5 = (
        bids.key_by("auction")
        .sliding("10s", every="2s")
        .count()
        .by_window()
        .top(1, by="count", ties=True)
    )
    q6 = closed.key_by("seller").last_n(10).mean("price")
    q7 = bids.tumbling("10s").top(1, by="price", ties=True)
    q8 = persons.join(
        auctions, on=("id", "seller"), window=plait.Tumbling("10s"), how="semi"
    ).select("id", "name")
    names = [q.schema.names for q in (q1, q2, q3, q4, q5, q6, q7, q8)]
    assert names == [
        ("auction", "bidder", "price", "ts"),
        ("auction", "price"),
        ("name", "city", "state", "auction"),
        ("category", "mean"),
        ("auction", "window_start", "window_end", "count"),
        ("seller", "mean"),
        ("auction", "bidder", "price", "ts", "window_start", "window_end"),
        ("id", "name"),
    ]
    for query in (q1, q2, q3, q4, q5, q6, q7, q8):
        found = kinds(query)
        assert not {"python", "state", "process"} & set(found), "Python for each record"
    assert kinds(q3) == ["source", "source", "native", "native", "union", "timed", "sink"]
    assert kinds(q5) == ["source", "timed", "timed", "sink"]
    assert kinds(q6)[-3:] == ["timed", "timed", "sink"]


def test_explain_says_joins(capsys: pytest.CaptureFixture[str]) -> None:
    persons, auctions, bids = streams()
    auctions.join(persons, on="id", window=plait.Sliding("10s", every="5s"), how="left").explain()
    auctions.join(persons, on="id", between=("-5s", "10s")).explain()
    auctions.join_as_of(persons, on="id", tolerance="1m").explain()
    auctions.join(persons, on="id", ttl="1h").explain()
    auctions.join(bids, on=("id", "auction"), between=(col("ts"), col("expires"))).count().explain()
    told = capsys.readouterr().out
    for words in (
        "left, in sliding 10s every 5s",
        "inner, right less left from -5s to 10s",
        "left, the last one as of the left, at most 1m old",
        "inner, all that came before, records kept for 1h",
        "right records from l_ts to l_expires of the left: count=count()",
    ):
        assert words in told


def sides(stream: plait.Stream) -> list[tuple[str, ...]]:
    """The columns of each union that makes a stream."""
    return [node.schema.names for node in nodes(stream) if isinstance(node, UnionOp)]


def test_columns_that_nobody_reads_do_not_travel() -> None:
    persons, auctions, bids = streams()
    joined = auctions.join(persons, on=("seller", "id"))
    assert sides(joined.select("name", auction="id")) == [("side", "k_0", "l_id", "r_name")]
    assert sides(joined.filter(col("city") == "x").select(auction="id")) == [
        ("side", "k_0", "l_id", "r_city")
    ]
    assert sides(joined.key_by("category").count()) == [("side", "k_0", "l_category", "r_name")]
    assert sides(joined.tumbling("10s").count()) == [("side", "k_0", "l_ts", "r_ts")]
    assert len(sides(joined)[0]) == 10
    assert len(sides(joined.map(lambda pair: pair))[0]) == 10
    semi = persons.join(auctions, on=("id", "seller"), window=plait.Tumbling("10s"), how="semi")
    assert sides(semi.select("name")) == [("side", "k_0", "l_name", "l_ts", "r_ts")]
    span = (col("ts"), col("expires"))
    closed = auctions.join(bids, on=("id", "auction"), between=span).max("price")
    assert sides(closed.key_by("category").mean("max")) == [
        ("side", "k_0", "l_category", "l_expires", "l_ts", "r_ts", "r_price")
    ]


def test_two_readers_get_what_both_need() -> None:
    persons, auctions, _ = streams()
    joined = auctions.join(persons, on=("seller", "id"))
    joined.select("name").sink(plait.Discard())
    both = joined.select("city").union(joined.select(city="state"))
    assert sides(both)[0] == ("side", "k_0", "l_id", "r_city", "r_state")


def test_what_can_fail_stays() -> None:
    persons, auctions, _ = streams()
    left = auctions.with_columns(x=1 // col("id"))
    joined = left.join(persons, on=("seller", "id"), between=(col("ts"), col("ts")))
    spanned = joined.aggregate(y=plait.max(1 // col("id")))
    assert "r_0" in sides(spanned.select("id"))[0]
    graph = spanned.select("id")._alone(CallSite("test"), None).graph()
    kept = [node for node in graph.operators if node.name == "with_columns"]
    assert "x" in kept[0].schema


def test_narrow_jobs_give_the_same_records() -> None:
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    at = [start + plait.seconds(n * 7 % 40) for n in range(60)]
    job = plait.Job("narrow")
    time: dict[str, Any] = {"event_time": "ts", "out_of_order": "5s"}
    persons = job.source(
        [Person(n % 9, f"p{n}", "c", "OR", at[n]) for n in range(0, 60, 3)], **time
    )
    auctions = job.source(
        [Auction(n, n % 9, n % 4, at[n] + plait.seconds(8), at[n]) for n in range(40)], **time
    )
    bids = job.source([Bid(n % 25, n % 5, n * 37 % 101, at[n]) for n in range(60)], **time)
    on = ("id", "auction")
    queries = [
        auctions.join(persons, on=("seller", "id")).select("name", auction="id"),
        auctions.join(bids, on=on, between=("-5s", "9s"), how="left").select("id", "bidder"),
        auctions.join(bids, on=on, between=("-5s", "9s"), how="left").tumbling("5s").count(),
        auctions.join(bids, on=on, window=plait.Tumbling("20s"), how="anti").select("seller"),
        bids.join_as_of(auctions, on=("auction", "id")).select("price", "seller"),
        auctions.join(bids, on=on, between=(col("ts"), col("expires")), how="left", wait="1m")
        .aggregate(top=plait.max("price"))
        .key_by("category")
        .sum("top"),
        auctions.join(bids, on=on).tumbling("10s").top(2, by="price").select("price"),
    ]
    for query in queries:
        alone = query._alone(CallSite("test"), None)
        wide = Graph(name="wide", operators=tuple(alone._operators))
        narrow = alone.graph()
        assert sum(len(node.schema) for node in narrow.operators) < sum(
            len(node.schema) for node in wide.operators
        )
        wanted, got = sequential(wide).outputs, sequential(narrow).outputs
        assert wanted == got
        assert all(rows for rows in got.values())
