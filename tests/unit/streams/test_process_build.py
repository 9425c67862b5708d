"""Processes in the builder: typed state, handlers, two streams as one, and what is refused."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import doctest
import pickle
from typing import TYPE_CHECKING, Any

import pytest

import plait
import plait.functions.process
from plait.connectors.base import Source
from plait.functions.process import KeyState, Timers
from plait.graph import temporal
from plait.graph.operators import TimedOp
from plait.graph.stages import make_pipeline
from plait.model.schema import Schema
from plait.streams.event_time import Lost
from plait.testing.oracle import sequential

if TYPE_CHECKING:
    from collections.abc import Iterator

UTC = datetime.UTC


@dataclasses.dataclass
class Bid:
    auction: int
    price: float
    ts: plait.Timestamp


@dataclasses.dataclass
class Paid:
    order: int
    amount: float
    ts: plait.Timestamp


@dataclasses.dataclass
class Alert:
    auction: int
    price: float


class Spike(plait.Process):
    """Alerts when a price doubles within a minute."""

    state = {"last": float, "seen": int}  # noqa: RUF012
    out = Alert

    def on_record(self, key: int, bid: Bid, state: Any, timers: Timers) -> Iterator[Alert]:
        if state.seen and bid.price > 2 * state.last:
            yield Alert(key, bid.price)
        state.last, state.seen = bid.price, state.seen + 1
        timers.at(bid.ts + plait.minutes(1))

    def on_timer(self, key: int, at: datetime.datetime, state: Any, timers: Timers) -> None:
        state.clear()


class Match(plait.Process):
    state = {"waiting": list[float]}  # noqa: RUF012
    out = {"ts": plait.Timestamp, "amount": float}  # noqa: RUF012

    def on_left(self, key: int, bid: Bid, state: Any, timers: Timers) -> None:
        state.waiting.append(bid.price)

    def on_right(self, key: int, paid: Paid, state: Any, timers: Timers) -> Iterator[Any]:
        yield paid.ts, paid.amount


class Described(Source):
    """A source that is described and never opened."""

    def __init__(self, schema: Any) -> None:
        self.schema = Schema.of(schema)


def bids(event_time: str | None = "ts") -> plait.Stream:
    return plait.Job("test").source(Described(Bid), event_time=event_time)


def nodes(stream: plait.Stream) -> tuple[Any, ...]:
    return stream.sink(plait.Discard()).job.graph().operators


def test_a_process() -> None:
    spike = Spike()
    stream = bids().key_by("auction", on_error="skip").process(spike)
    node = nodes(stream)[-2]
    assert isinstance(node, TimedOp)
    assert isinstance(node.spec, temporal.ProcessSpec)
    assert (node.name, node.keys, node.time, node.on_error) == (
        "process",
        ("auction",),
        "ts",
        "skip",
    )
    assert stream.schema.record_class is Alert
    bound = node.spec.process
    assert isinstance(bound, Spike)
    assert [shape.record_class for shape in bound.shapes] == [Bid]
    assert (spike.shapes, node.spec.sides) == ((), ())
    assert isinstance(stream._time, Lost)
    pipeline = make_pipeline(stream.job.graph())
    assert [stage.kind for stage in pipeline.stages] == ["source", "process", "sink"]


def test_a_process_does_not_fuse() -> None:
    keyed = bids().filter(plait.col("price") > 1).key_by("auction")
    stream = keyed.process(Spike()).filter(plait.col("price") > 2)
    pipeline = make_pipeline(stream.sink(plait.Discard()).job.graph())
    assert [stage.kind for stage in pipeline.stages] == [
        "source",
        "native",
        "process",
        "native",
        "sink",
    ]


def test_a_process_of_two_streams() -> None:
    one = bids()
    other = one.job.source(Described(Paid), event_time="ts")
    stream = plait.connect(one.key_by("auction"), other.key_by("order")).process(Match())
    node = nodes(stream)[-2]
    assert (node.keys, node.time) == (("k_0",), "")
    assert node.spec.sides == (
        temporal.Side(columns=("k_0", "l_price", "l_ts"), time="l_ts"),
        temporal.Side(columns=("k_0", "r_amount", "r_ts"), time="r_ts"),
    )
    assert [shape.record_class for shape in node.spec.process.shapes] == [Bid, Paid]
    assert str(stream.schema) == "ts: timestamp, amount: float64"
    assert repr(stream._time) == 'col("ts")'


def test_explain_says_that_it_is_python(capsys: pytest.CaptureFixture[str]) -> None:
    bids().key_by("auction").process(Spike()).explain()
    told = capsys.readouterr().out
    assert "by auction, Spike" in told
    assert "inline: state and function are Python objects: one core; when it has cost" in told


def test_state() -> None:
    kinds = {
        "n": int,
        "x": float,
        "yes": bool,
        "name": str,
        "raw": bytes,
        "at": datetime.datetime,
        "all": list[int],
        "by": dict[str, float],
    }
    state = KeyState(kinds)
    first = {
        "n": 0,
        "x": 0.0,
        "yes": False,
        "name": "",
        "raw": b"",
        "at": None,
        "all": [],
        "by": {},
    }
    assert state.values() == first
    state.n, state.x, state.at = 3, 2, datetime.datetime(2026, 1, 1, tzinfo=UTC)
    state.all.append(4)
    assert (state.n, state.x, state.all) == (3, 2.0, [4])
    assert isinstance(state.x, float)
    assert KeyState(kinds, state.values()).values() == state.values()
    state.clear()
    assert state.values() == first
    with pytest.raises(TypeError, match=r"state\.n is int, got 'x' \(str\)"):
        state.n = "x"
    with pytest.raises(TypeError, match=r"state\.n is int, got True"):
        state.n = True
    with pytest.raises(AttributeError, match='the state has no "m"; it has n, x'):
        state.m = 1
    with pytest.raises(AttributeError, match='the state has no "m"'):
        _ = state.m


def test_lists_and_dicts_of_two_keys_are_two() -> None:
    one, other = KeyState({"all": list[int]}), KeyState({"all": list[int]})
    one.all.append(1)
    assert other.all == []


def test_a_copy_of_a_state_is_another_one() -> None:
    state = KeyState({"all": list[int], "n": int})
    state.all.append(1)
    for again in (copy.deepcopy(state), pickle.loads(pickle.dumps(state))):
        again.all.append(2)
        again.n = 5
        assert (state.values(), again.values()) == (
            {"all": [1], "n": 0},
            {"all": [1, 2], "n": 5},
        )


def test_timers() -> None:
    timers = Timers()
    timers.at(datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    assert timers.wanted == [1_000_000]
    with pytest.raises(TypeError, match="a time with a zone"):
        timers.at(datetime.datetime(1970, 1, 1))  # noqa: DTZ001


def process_with(**members: Any) -> plait.Process:
    def on_record(self: Any, key: Any, record: Any, state: Any, timers: Any) -> None:
        pass

    made: plait.Process = type(
        "Made", (plait.Process,), {"on_record": on_record, "out": Alert} | members
    )()
    return made


def short(self: Any, key: Any, record: Any) -> None:
    pass


def full(self: Any, key: Any, record: Any, state: Any, timers: Any) -> None:
    pass


class Misspelt(plait.Process):
    out = Alert

    def on_recrod(self, key: Any, record: Any, state: Any, timers: Timers) -> None:
        pass


class Unheard(plait.Process):
    """Sets timers that no handler takes."""

    out = Alert

    def on_record(self, key: Any, record: Any, state: Any, clock: Timers) -> None:
        if record.price > 1:
            clock.at(record.ts)


class Untimed(plait.Process):
    out = Alert

    def on_record(self, key: Any, record: Any, state: Any, timers: Timers) -> None:
        timers.after("1s")


class Spread(plait.Process):
    """Sets its timers in another function, which nobody can see."""

    out = Alert

    def on_record(self, key: Any, record: Any, state: Any, timers: Timers) -> None:
        self.remind(timers, record.ts)

    def remind(self, timers: Timers, at: datetime.datetime) -> None:
        timers.at(at)


class Returning(plait.Process):
    """Returns a record where a list of them is due."""

    out = Alert

    def __init__(self, returned: Any) -> None:
        self.returned = returned

    def on_record(self, key: Any, record: Any, state: Any, timers: Timers) -> Any:
        return self.returned


@pytest.mark.parametrize(
    ("process", "message"),
    [
        (Spike, r"Spike is a class; give an object: Spike\(\)"),
        (3, "3 is not a plait.Process"),
        (Match(), "Match has no on_record; a process of one stream needs it"),
        (process_with(out=None), "out is missing"),
        (process_with(out=3), "Made.out: cannot make a schema"),
        (process_with(on_record=short), "cannot be called with a key and a record and a state"),
        (process_with(on_timer=short), "cannot be called with a key and a time"),
        (process_with(on_left=full), "Made has on_left, which is for a process of two streams"),
        (process_with(state=[]), "Made.state is"),
        (process_with(state={"a b": int}), "'a b' cannot be the name"),
        (process_with(state={"clear": int}), '"clear" is taken'),
        (process_with(state={"_x": int}), '"_x" is taken'),
        (process_with(state={"x": set}), '"x" is set; it must be one of int, float'),
        (process_with(state={"x": list}), '"x" is list; it must be'),
        (process_with(state={"x": list[list[int]]}), "it must be one of int, float"),
        (process_with(state={"x": dict[str, Any]}), "it must be one of int, float"),
        (process_with(state={"x": []}), r"it must be one of int, float.*for example, list\[int\]"),
        (process_with(state={"x": dict}), r"write, for example, dict\[str, int\]"),
        (process_with(state={"x": 0}), '"x" is 0; .*write its type, int, which starts as 0'),
        (process_with(states={"x": int}), "Made has states, which nothing reads; did you mean st"),
        (process_with(outs=Alert, out=None), "Made has outs, .* did you mean out?"),
        (process_with(on_timers=full), "Made has on_timers, .* did you mean on_timer?"),
        (process_with(on_timout=full), "Made has on_timout, .* did you mean on_timeout?"),
        (Misspelt(), "Misspelt has on_recrod, .*; did you mean on_record?"),
        (
            Unheard(),
            r"Unheard.on_record calls clock.at at test_process_build.py:\d+, and there is no",
        ),
        (
            Untimed(),
            r"Untimed.on_record calls timers.after at .*, and there is no on_timeout; write",
        ),
    ],
)
def test_mistakes(process: Any, message: str) -> None:
    with pytest.raises(plait.JobError, match=message) as caught:
        bids().key_by("auction").process(process)
    assert str(caught.value).startswith("process at test_process_build.py:")


def test_a_method_of_the_users_own_is_no_misspelling() -> None:
    nodes(bids().key_by("auction").process(process_with(on_error=full, on_records=full, price=3)))


def one_bid() -> plait.Stream:
    at = datetime.datetime(2026, 1, 1, tzinfo=UTC)
    return plait.stream([Bid(1, 2.0, at)], event_time="ts")


def test_a_timer_that_nothing_takes_fails_its_record() -> None:
    stream = one_bid().key_by("auction").process(Spread())
    with pytest.raises(
        plait.RecordError, match=r"timers.at calls on_timer.*, which this process la"
    ):
        stream.collect()
    assert loop_failure(stream) is not None
    assert loop_failure(one_bid().key_by("auction").process(Spike())) is None


def loop_failure(stream: plait.Stream) -> Any:
    """What the plain loop fails with, if it fails."""
    return sequential(stream.sink(plait.Discard()).job.graph()).failure


@pytest.mark.parametrize("returned", [3, {"auction": 1, "price": 2.0}, "text", Alert(1, 2.0)])
def test_a_handler_that_returns_one_thing_fails_its_record(returned: Any) -> None:
    stream = one_bid().key_by("auction").process(Returning(returned))
    with pytest.raises(plait.RecordError, match=r"the handler returned .*; yield records, or ret"):
        stream.collect()
    assert loop_failure(stream) is not None


def test_a_stream_without_a_key_says_what_process_needs() -> None:
    with pytest.raises(AttributeError, match=r'first partition it: key_by\("column"\).process'):
        bids().process  # type: ignore[attr-defined]  # noqa: B018


def test_timers_need_event_time() -> None:
    with pytest.raises(plait.JobError, match="Spike has on_timer, and the stream has no event"):
        bids(None).key_by("auction").process(Spike())
    assert nodes(bids(None).key_by("auction").process(process_with()))[-2].time == ""


def test_mistakes_of_connect() -> None:
    one = bids()
    other = one.job.source(Described(Paid), event_time="ts")
    with pytest.raises(plait.JobError, match=r"connect at .*is not keyed"):
        plait.connect(one, other.key_by("order"))
    with pytest.raises(plait.JobError, match="both streams need the same number"):
        plait.connect(one.key_by("auction"), other.key_by("order", "amount"))
    with pytest.raises(plait.JobError, match="make them the same"):
        plait.connect(one.key_by("auction"), other.key_by("amount"))
    with pytest.raises(plait.JobError, match="Spike has no on_left"):
        plait.connect(one.key_by("auction"), other.key_by("order")).process(Spike())


def test_a_process_in_a_graph_can_be_pickled() -> None:
    node = nodes(bids().key_by("auction").process(Spike()))[-2]
    again = pickle.loads(pickle.dumps(node.spec.process))
    assert again.shapes[0].names == ("auction", "price", "ts")


def test_examples() -> None:
    assert doctest.testmod(plait.functions.process).failed == 0
