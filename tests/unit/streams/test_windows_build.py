"""Event time and windows in the builder: the nodes they become, and what is refused."""

from __future__ import annotations

import dataclasses
import doctest
from typing import Any

import pyarrow as pa
import pytest

import plait
import plait.streams.event_time
import plait.streams.windows
from plait import col
from plait.connectors.base import Source
from plait.graph import temporal
from plait.graph.operators import EventTimeOp, FilterOp, ProjectOp, SourceOp, TimedOp
from plait.graph.stages import make_pipeline
from plait.model.schema import Schema
from plait.streams.event_time import Lost

SECOND = 1_000_000


@dataclasses.dataclass
class Bid:
    auction: int
    bidder: int
    price: float
    hot: bool
    ts: plait.Timestamp


class Described(Source):
    """A source that is described and never opened."""

    def __init__(self, schema: Any) -> None:
        self.schema = Schema.of(schema)


def bids(**time: Any) -> plait.Stream:
    given = {"event_time": "ts", "out_of_order": "2s"} | time
    return plait.Job("test").source(Described(Bid), **given)


def nodes(stream: plait.Stream) -> tuple[Any, ...]:
    return stream.sink(plait.Discard()).job.graph().operators


def last(stream: plait.Stream) -> Any:
    return nodes(stream)[-2]


def test_a_source_with_event_time() -> None:
    node = last(bids(max_jump="1h", idle="5s"))
    assert isinstance(node, SourceOp)
    assert node.event_time == "ts"
    assert (node.out_of_order_us, node.max_jump_us, node.idle_us) == (
        2 * SECOND,
        3600 * SECOND,
        5 * SECOND,
    )
    plain = last(bids(out_of_order=None))
    assert (plain.out_of_order_us, plain.max_jump_us, plain.idle_us) == (0, 86400 * SECOND, 0)
    assert last(bids(event_time=None, out_of_order=None)).event_time is None


def test_a_column_of_a_table_that_may_be_null_becomes_one_that_must_not() -> None:
    table = pa.table({"ts": pa.array([1], pa.timestamp("us", "UTC")), "n": [1]})
    stream = plait.stream(table, event_time="ts")
    assert str(stream.schema) == "ts: timestamp, n: int64?"
    nulls = pa.table({"ts": pa.array([1, None], pa.timestamp("us", "UTC"))})
    with pytest.raises(plait.JobError, match='event_time="ts": 1 of its values are null'):
        plait.stream(nulls, event_time="ts")
    items = plait.Items([], schema={"ts": plait.Timestamp | None})
    with pytest.raises(plait.JobError, match='event_time="ts": the column may be null'):
        plait.stream(items, event_time="ts")


@pytest.mark.parametrize(
    ("time", "message"),
    [
        ({"event_time": "time"}, 'no column "time"'),
        ({"event_time": "price"}, 'event_time="price": the column is float64, not a timestamp'),
        ({"event_time": 3}, "event_time is 3; it must be the name of a column"),
        ({"event_time": None}, "out_of_order= needs event time"),
        ({"out_of_order": "-2s"}, "is not a duration"),
        ({"out_of_order": 2}, "2 is not a duration"),
        ({"max_jump": "0s"}, "must be above zero"),
        ({"idle": "soon"}, '"soon" is not a duration'),
    ],
)
def test_a_wrong_event_time(time: dict[str, Any], message: str) -> None:
    with pytest.raises(plait.JobError, match=message) as caught:
        bids(**time)
    assert str(caught.value).startswith("source at test_windows_build.py:")


def test_what_becomes_of_event_time() -> None:
    stream = bids()
    assert repr(stream.filter(col("price") > 1)._time) == 'col("ts")'
    assert repr(stream.select("ts", "price")._time) == 'col("ts")'
    assert repr(stream.select(at="ts")._time) == 'col("at")'
    assert repr(stream.select("ts", at="ts")._time) == 'col("ts")'
    assert repr(stream.rename(at="ts")._time) == 'col("at")'
    assert repr(stream.with_columns(n=col("price") * 2)._time) == 'col("ts")'
    assert repr(stream.with_columns(n=lambda price: price)._time) == 'col("ts")'
    assert repr(stream.map(lambda bid: bid)._time) == 'col("ts")'
    assert repr(stream.filter(lambda bid: True)._time) == 'col("ts")'
    assert repr(stream.union(bids_of(stream))._time) == 'col("ts")'
    assert repr(stream.key_by("ts").count()._time) == 'col("ts")'
    for lost in (
        stream.drop("ts"),
        stream.with_columns(ts=col("ts").truncate("1s")),
        stream.with_columns(ts=lambda ts: ts),
        stream.map(lambda bid: bid.price, schema={"price": float}),
        stream.map(lambda bid: bid, schema={"ts": plait.Timestamp | None}),
        stream.key_by("auction").count(),
        stream.key_by("auction").last_n(3).count(),
        stream.key_by("auction").rows(3).count(),
        stream.select("ts", "price")
        .union(
            stream.select(ts="ts", price="price")
            .drop("price")
            .with_columns(price=1.5)
            .with_event_time("ts")
        )
        .drop("ts"),
    ):
        assert isinstance(lost._time, Lost)
    assert "dropped or replaced" in stream.drop("ts")._time.why  # type: ignore[union-attr]


def bids_of(stream: plait.Stream) -> plait.Stream:
    return stream.job.source(Described(Bid), event_time="ts")


def test_event_time_can_be_said_again() -> None:
    stream = bids().with_columns(ts=col("ts").truncate("1s"))
    again = stream.with_event_time("ts", out_of_order="5s", max_jump=None, on_error="skip")
    assert repr(again._time) == 'col("ts")'
    op = again._op
    assert isinstance(op, EventTimeOp)
    assert (op.out_of_order_us, op.max_jump_us, op.on_error) == (5_000_000, 2**58, "skip")
    with pytest.raises(plait.JobError, match=r"with_event_time at .*not a timestamp; convert it"):
        stream.with_event_time("price")
    with pytest.raises(plait.JobError, match="it must be a column or an expression"):
        stream.with_event_time(5)  # type: ignore[arg-type]
    alone = bids(event_time=None, out_of_order=None).with_event_time("ts")
    alone.tumbling("10s").count()  # its own watermark is enough


def test_event_time_of_a_column_that_may_be_null() -> None:
    source = plait.Job("test").source(Described({"ts": plait.Timestamp | None, "ms": int | None}))
    assert not source.with_event_time("ts").schema["ts"].nullable
    computed = source.with_event_time(col("ms").to_timestamp(unit="ms"))
    assert computed.schema["ms"].nullable
    assert computed.tumbling("10s").count().schema.names[0] == "window_start"


def test_event_time_of_a_source_may_be_an_expression() -> None:
    source = plait.Job("test").source(
        Described({"milli": int}),
        event_time=col("ms").to_timestamp(unit="ms"),
        out_of_order="5s",
        on_error="skip",
        rename={"milli": "ms"},
    )
    op = source._op
    assert isinstance(op, EventTimeOp)
    assert (op.out_of_order_us, op.on_error) == (5_000_000, "skip")
    assert repr(source._time) == "col(\"ms\").to_timestamp(unit='ms')"


def test_a_union_of_different_times_has_none() -> None:
    one = bids().select("ts", at="ts")
    other = one.with_event_time("at")
    with pytest.raises(plait.JobError, match="the streams of a union have different ones"):
        one.union(other).tumbling("10s")


def test_a_window_needs_event_time() -> None:
    with pytest.raises(plait.JobError) as caught:
        bids(event_time=None, out_of_order=None).key_by("auction").tumbling("10s")
    assert str(caught.value).startswith("tumbling at test_windows_build.py:")
    assert 'source(..., event_time="ts")' in str(caught.value)
    with pytest.raises(plait.JobError, match=r'sliding at .*select at .* dropped or replaced "ts"'):
        bids().select("price").sliding("10s", every="2s")


def test_a_window_by_arrival_needs_none() -> None:
    def timeless() -> plait.Stream:
        return bids(event_time=None, out_of_order=None)

    with pytest.raises(plait.JobError, match=r'by="arrival"'):
        timeless().tumbling("10s")
    for stream in (timeless, bids, lambda: bids().select("auction", "price")):
        for keys in ((), ("auction",)):
            over: Any = stream().key_by(*keys) if keys else stream()
            made = over.tumbling("10s", by="arrival").count()
            *_, before, window, _ = nodes(made)
            assert isinstance(before, SourceOp | ProjectOp)
            assert (window.keys, window.time, window.spec.by_arrival) == (keys, "", True)
            assert made.by_window().top(1, by="count").schema == made.schema
            assert "window_end" in made.tumbling("1m").count().schema
    node = last(timeless().window(plait.Session("1s"), by="arrival").top(1, by="price"))
    assert (node.spec.window, node.spec.by_arrival) == (temporal.SessionWindow(gap_us=SECOND), True)
    assert repr(bids().tumbling("9s", by="arrival")).endswith("in tumbling('9s') by arrival")


def test_tumbling() -> None:
    stream = (
        bids().key_by("auction").tumbling("10s", offset="3s", lateness="1m", early="2s").count()
    )
    assert str(stream.schema) == (
        "auction: int64, window_start: timestamp, window_end: timestamp, count: int64"
    )
    node = last(stream)
    assert isinstance(node, TimedOp)
    assert (node.name, node.keys, node.time) == ("count", ("auction",), "ts")
    assert isinstance(node.spec, temporal.WindowSpec)
    assert node.spec.window == temporal.Grid(
        size_us=10 * SECOND, every_us=10 * SECOND, offset_us=3 * SECOND
    )
    assert (node.spec.lateness_us, node.spec.early_us) == (60 * SECOND, 2 * SECOND)
    assert [(name, a.kind, a.over) for name, a in node.spec.aggregates] == [
        ("count", "count", None)
    ]


@pytest.mark.parametrize(
    ("noun", "window"),
    [
        (plait.Tumbling("10s"), temporal.Grid(size_us=10 * SECOND, every_us=10 * SECOND)),
        (
            plait.Sliding("10s", every="4s", offset="-1s"),
            temporal.Grid(size_us=10 * SECOND, every_us=4 * SECOND, offset_us=3 * SECOND),
        ),
        (plait.Session(gap="60m"), temporal.SessionWindow(gap_us=3600 * SECOND)),
        (plait.Rows(100, every=10), temporal.RowWindow(size=100, every=10)),
        (plait.Rows(100), temporal.RowWindow(size=100, every=100)),
    ],
)
def test_nouns(noun: Any, window: temporal.Window) -> None:
    node = last(bids().key_by("auction").window(noun).sum("price"))
    assert node.spec.window == window


def test_verbs_are_the_nouns() -> None:
    keyed = bids().key_by("auction")
    pairs = [
        (keyed.tumbling("10s"), plait.Tumbling("10s")),
        (keyed.sliding("10s", every="2s"), plait.Sliding("10s", every="2s")),
        (keyed.session(gap="1m"), plait.Session("1m")),
        (keyed.rows(5, every=2), plait.Rows(5, every=2)),
    ]
    for verb, noun in pairs:
        assert verb._window == noun.spec


def test_several_results() -> None:
    stream = (
        bids()
        .session(gap="1m")
        .aggregate(
            n=plait.count(),
            bidders=plait.distinct("bidder"),
            hot=plait.any(col("hot")),
            dear=plait.all(col("price") > 10),
            total=plait.sum(col("price") * 2),
        )
    )
    assert str(stream.schema) == (
        "window_start: timestamp, window_end: timestamp, n: int64, bidders: int64, hot: bool,"
        " dear: bool, total: float64"
    )
    kinds = [a.kind for _, a in last(stream).spec.aggregates]
    assert kinds == ["count", "distinct", "max", "min", "sum"]
    assert last(bids().tumbling("1s").distinct("bidder")).spec.aggregates[0][1].kind == "distinct"


def test_abandoned_carts_read_as_they_should() -> None:
    clicks = plait.Job("carts").source(
        Described({"user": str, "page": str, "action": str, "ts": plait.Timestamp}),
        event_time="ts",
        out_of_order="2s",
    )
    abandoned = (
        clicks.filter(col("action") != "bot")
        .key_by("user")
        .session(gap="60m")
        .aggregate(pages=plait.count(), bought=plait.any(col("action") == "buy"))
        .filter(~col("bought"))
    )
    assert abandoned.schema.names == ("user", "window_start", "window_end", "pages", "bought")
    pipeline = make_pipeline(abandoned.sink(plait.Discard()).job.graph())
    assert [stage.kind for stage in pipeline.stages] == ["source", "timed", "sink"]


def test_rows_have_no_times() -> None:
    stream = bids(event_time=None, out_of_order=None).key_by("auction").rows(3).mean("price")
    assert str(stream.schema) == "auction: int64, mean: float64"
    assert last(stream).time == ""


def test_last_n() -> None:
    node = last(bids().key_by("auction").last_n(10).mean("price"))
    assert isinstance(node.spec, temporal.LastSpec)
    assert (node.spec.n, node.keys, node.time) == (10, ("auction",), "")
    assert str(node.schema) == "auction: int64, mean: float64"


def test_top_of_a_window() -> None:
    stream = bids().tumbling("10s").top(1, by="price", ties=True)
    node = last(stream)
    assert node.spec == temporal.TopSpec(
        window=temporal.Grid(size_us=10 * SECOND, every_us=10 * SECOND), k=1, by="price", ties=True
    )
    assert stream.schema.names == (*Schema.of(Bid).names, "window_start", "window_end")


def test_top_by_an_expression() -> None:
    stream = bids().key_by("auction").session(gap="1m").top(3, by=col("price") % 7, least=True)
    before, node, after = nodes(stream)[-4:-1]
    assert isinstance(before, ProjectOp)
    assert isinstance(after, ProjectOp)
    assert (node.spec.by, node.spec.greatest) == ("by", False)
    assert "by" not in stream.schema
    assert "window_end" in stream.schema


def test_by_window() -> None:
    counted = bids().key_by("auction").sliding("10s", every="2s").count()
    stream = counted.by_window().top(1, by="count", ties=True)
    node = last(stream)
    assert isinstance(node.spec, temporal.TopSpec)
    assert node.spec.window == temporal.CarriedWindow()
    assert (node.keys, node.time) == ((), "")
    assert stream.schema == counted.schema
    total = last(counted.by_window().sum("count"))
    assert str(total.schema) == "window_start: timestamp, window_end: timestamp, sum: int64"
    keyed = last(counted.key_by("auction").by_window(lateness="1s").count())
    assert (keyed.keys, keyed.spec.lateness_us) == (("auction",), SECOND)


def test_a_result_counts_in_the_last_moment_of_its_window() -> None:
    counted = bids().key_by("auction").tumbling("10s").count()
    stream = counted.key_by("auction").tumbling("1m").sum("count")
    before, node = nodes(stream)[-3:-1]
    assert isinstance(before, ProjectOp)
    assert node.time == "event_time"
    assert repr(dict(before.columns)["event_time"]) == (
        'col("window_end") - datetime.timedelta(microseconds=1)'
    )
    assert stream.schema.names == ("auction", "window_start", "window_end", "sum")
    late = counted.tumbling("1m").late()
    assert late.schema == counted.schema


def test_late() -> None:
    stream = bids().key_by("auction").tumbling("10s", lateness="5s").late()
    node = last(stream)
    assert node.spec == temporal.LateSpec(
        window=temporal.Grid(size_us=10 * SECOND, every_us=10 * SECOND), lateness_us=5 * SECOND
    )
    assert stream.schema.record_class is Bid
    assert repr(stream._time) == 'col("ts")'


def test_errors_are_handled_as_the_key_or_the_window_says() -> None:
    keyed = bids().key_by("auction", on_error="skip")
    assert last(keyed.tumbling("10s").count()).on_error == "skip"
    assert (
        last(keyed.tumbling("10s").sum("price", on_error="dead_letter")).on_error == "dead_letter"
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda s: s.tumbling(10), "tumbling at .*10 is not a duration"),
        (lambda s: s.tumbling("0s"), "must be above zero"),
        (lambda s: s.sliding("2s", every="10s"), "would leave records out"),
        (lambda s: s.sliding("1d", every="1ms"), "puts each record into 86,400,000 windows"),
        (lambda s: s.session(gap="x"), "is not a duration"),
        (lambda s: s.session(gap="3650000d"), "is too long"),
        (lambda s: s.rows(0), "size is 0; it must be a whole number above 0"),
        (lambda s: s.rows(3, every=True), "every is True"),
        (lambda s: s.window("10s"), r'is not a window; write plait.Tumbling\("10s"\)'),
        (lambda s: s.window(plait.Tumbling), "write plait.Tumbling"),
        (lambda s: s.window(plait.Rows(3), lateness="1s"), "do not support lateness="),
        (lambda s: s.window(plait.Rows(3), by="arrival"), "row windows count records"),
        (lambda s: s.tumbling("1s", by="time"), 'by is \'time\'; it must be "event_time" or "arr'),
        (lambda s: s.sliding("2s", every="1s", by=None), "by is None"),
        (lambda s: s.session(gap="1s", by="arrival", lateness="1s"), "leave out lateness="),
        (
            lambda s: s.tumbling("1s", by="arrival").late(),
            r"no record is late for tumbling\('1s'\)",
        ),
        (lambda s: s.tumbling("1s", lateness="-1s"), "is not a duration"),
        (lambda s: s.tumbling("1s", early="0s"), "must be above zero"),
        (lambda s: s.tumbling("1s").top(0, by="price"), "k is 0"),
        (lambda s: s.tumbling("1s").top(1, by="prise"), 'did you mean "price"'),
        (lambda s: s.tumbling("1s").top(1, by=3), "by is 3"),
        (lambda s: s.tumbling("1s", early="1s").top(1, by="price"), "no early results"),
        (lambda s: s.rows(3).top(1, by="price"), "needs a time window"),
        (lambda s: s.rows(3).late(), "no record is late"),
        (lambda s: s.by_window(), 'by_window at .*no column "window_start"'),
        (lambda s: s.tumbling("1s").aggregate(), "name at least one result"),
        (lambda s: s.tumbling("1s").aggregate(window_end=plait.count()), "name of a column of the"),
        (lambda s: s.tumbling("1s").sum("hot"), "sum needs a number"),
        (lambda s: s.tumbling("1s").aggregate(x=plait.any("price")), "any needs a bool"),
        (lambda s: s.aggregate(x=plait.distinct("price")), "in windows only"),
        (lambda s: s.last_n(3).aggregate(x=plait.distinct("price")), "in windows only"),
        (lambda s: s.last_n("3"), "n is '3'"),
        (lambda s: s.tumbling("1s").count().key_by("window_end").tumbling("1m"), "there twice"),
        (lambda s: s.tumbling("1s").count().key_by("window_end").by_window(), "leave it out"),
        (lambda s: s.tumbling("1s").count().tumbling("1m").top(1, by="count"), "has a column"),
    ],
)
def test_mistakes(make: Any, message: str) -> None:
    with pytest.raises(plait.JobError, match=message) as caught:
        make(bids())
    assert "test_windows_build.py:" in str(caught.value)


def test_what_a_window_cannot_do_says_what_it_can() -> None:
    with pytest.raises(AttributeError, match="first call count, sum"):
        bids().tumbling("10s").filter(col("price") > 1)
    with pytest.raises(AttributeError, match="first call count"):
        bids().key_by("auction").last_n(3).filter(col("price") > 1)
    with pytest.raises(AttributeError, match="process or a window, and then filter"):
        bids().key_by("auction").filter(col("price") > 1)


def test_windows_are_stages_that_take_native_operators_in() -> None:
    stream = (
        bids()
        .filter(col("price") > 1)
        .key_by("auction")
        .tumbling("10s")
        .count()
        .filter(col("count") > 2)
        .by_window()
        .top(1, by="count")
    )
    pipeline = make_pipeline(stream.sink(plait.Discard()).job.graph())
    assert [stage.kind for stage in pipeline.stages] == ["source", "timed", "timed", "sink"]
    assert len(pipeline.stages[1].operators) == 3
    assert isinstance(pipeline.graph.operators[pipeline.stages[1].operators[0]], FilterOp)


def test_explain_says_windows_and_native(capsys: pytest.CaptureFixture[str]) -> None:
    keyed = bids().key_by("auction")
    stream = keyed.sliding("10s", every="2s", lateness="1m", early="1s").count()
    stream.by_window().top(2, by="count", ties=True).explain()
    told = capsys.readouterr().out
    assert "event time ts, out of order by 2s" in told
    assert "by auction, sliding 10s every 2s, 1m of lateness, early results every 1s:" in told
    assert "the window of the records: the 2 greatest by count, with ties" in told
    assert "native: typed state by key and time, 1024 bins; no interpreter" in told
    keyed.session(gap="90s", by="arrival", early="1s").count().explain()
    told = capsys.readouterr().out
    assert "session with gap 90s by arrival, early results every 1s: count=count()" in told
    keyed.session(gap="90s").late().explain()
    assert "what comes too late for session with gap 90s" in capsys.readouterr().out


def test_repr() -> None:
    shown = repr(bids().key_by("auction").sliding("10s", every="2s"))
    assert shown.endswith("by auction in sliding('10s', every='2s')")


@pytest.mark.parametrize("module", [plait.streams.event_time, plait.streams.windows])
def test_examples(module: Any) -> None:
    assert doctest.testmod(module, extraglobs={"plait": plait}).failed == 0
