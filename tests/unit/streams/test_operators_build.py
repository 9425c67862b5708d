"""Operators with their own loop in the builder: ports, parameters, schemas, and what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import plait
from plait import col
from plait.graph.operators import UnionOp
from plait.graph.stages import make_pipeline
from plait.streams.event_time import Lost


@dataclasses.dataclass
class Click:
    user: str
    page: str


@dataclasses.dataclass
class Pair:
    user: str
    price: float | None


CLICKS = [Click("ann", "/a"), Click("bob", "/b")]
BIDS = [{"user": "ann", "price": 2.5}, {"user": "cid", "price": 7.0}]


@plait.operator(inputs=("left", "right"))
async def barrier(ctx: plait.Context) -> None:
    while await ctx.wait_all(left=1, right=1):
        ctx.emit(out=(ctx.pop("left"), ctx.pop("right")))


@plait.operator(inputs=("left", "right"), outputs={"both": Pair, "lonely": "left", "n": int})
async def matched(ctx: plait.Context, most: int, *, word: str = "") -> None:
    while await ctx.wait_all(left=1, right=1):
        left, right = ctx.pop("left"), ctx.pop("right")
        if left.user == right.user:
            ctx.emit(both=Pair(left.user, right.price))
        else:
            ctx.emit(lonely=left, n=most)


def clicks() -> plait.Stream:
    return plait.stream(CLICKS)


def bids() -> plait.Stream:
    return plait.stream(BIDS)


def test_a_tuple_of_records_is_columns_side_by_side() -> None:
    out = barrier(left=clicks(), right=bids()).out
    assert str(out.schema) == (
        "left_user: string?, left_page: string?, right_user: string?, right_price: float64?"
    )
    assert [(one.left_user, one.right_price) for one in out.collect()] == [
        ("ann", 2.5),
        ("bob", 7.0),
    ]


def test_an_input_alone_gives_its_schema() -> None:
    @plait.operator
    async def same(ctx: plait.Context) -> None:
        while await ctx.wait_all(records=1):
            ctx.emit(ctx.pop("records"))

    assert same(clicks()).out.collect() == CLICKS
    assert same(records=clicks()).out.schema.record_class is Click


def test_outputs_say_their_schema() -> None:
    both, lonely, n = matched(clicks(), bids(), most=5)
    assert both.schema.record_class is Pair
    assert lonely.schema.record_class is Click
    assert both.collect() == [Pair("ann", 2.5)]
    assert lonely.collect() == [Click("bob", "/b")]
    assert [one.value for one in n.collect()] == [5]


def test_an_output_is_made_once() -> None:
    outputs = matched(clicks(), bids(), most=5)
    assert outputs.both is outputs["both"]
    assert dir(outputs) == ["both", "lonely", "n"]
    assert repr(outputs) == "matched: both, lonely, n"


def test_only_outputs_that_are_read_are_there() -> None:
    outputs = matched(clicks(), bids(), most=5)
    outputs.both.sink(plait.Collect())
    names = [node.name for node in outputs.both.job.graph().operators]
    assert "matched.both" in names
    assert "matched.lonely" not in names


def test_streams_of_the_same_columns_share_them() -> None:
    """Then objects can go to several ports, too."""
    one = plait.stream([{"x": 1, "o": (1, 2)}])
    other = plait.stream([{"x": 2, "o": [3]}])

    @plait.operator(inputs=("a", "b"), outputs={"out": "a"})
    async def merged(ctx: plait.Context) -> None:
        while await ctx.wait_any(a=1, b=1):
            for port in ctx.inputs:
                while ctx.size(port):
                    ctx.emit(ctx.pop(port))

    out = merged(one, other).out
    assert [record.o for record in out.collect()] == [(1, 2), [3]]
    united = next(node for node in out.job._operators if isinstance(node, UnionOp))
    assert united.schema.names == ("side", "i_x", "i_o")


def test_the_same_stream_at_two_ports() -> None:
    both = clicks()
    found = barrier(left=both, right=both.filter(col("user") == "bob")).out.collect()
    assert [(one.left_user, one.right_user) for one in found] == [("ann", "bob")]


def test_the_plan_and_what_explain_says(capsys: pytest.CaptureFixture[str]) -> None:
    out = barrier(left=clicks(), right=bids(), bound=50).out
    out.sink(plait.Collect())
    kinds = [stage.kind for stage in make_pipeline(out.job.graph()).stages]
    assert kinds == ["source", "native", "source", "native", "union", "process", "sink"]
    out.explain()
    text = capsys.readouterr().out
    assert "left, right -> out, at most 50 wait at a port" in text
    assert "a coroutine in Python with its own loop" in text


def timed(*names: str) -> list[plait.Stream]:
    """Streams of one job that have the same columns and the event times of these names."""
    job = plait.Job("timed")
    schema = {"user": str, "ts": plait.Timestamp, "seen": plait.Timestamp}
    items = plait.Items([], schema=schema)
    return [job.source(items, f"in-{n}", event_time=name) for n, name in enumerate(names)]


@plait.operator(inputs=("left", "right"), outputs={"out": "left", "n": {"n": int}})
async def some(ctx: plait.Context) -> None:
    while await ctx.wait_any(left=1, right=1):
        for port in ctx.inputs:
            for record in ctx.pop(port, ctx.size(port)):
                ctx.emit(out=record)


def test_event_time_is_kept_where_its_column_is() -> None:
    left, right = timed("ts", "ts")
    parts = some(left, right)
    parts.out.tumbling("1s").count()
    with pytest.raises(plait.JobError, match=r"emits other columns; name their time with"):
        parts.n.tumbling("1s").count()
    with pytest.raises(plait.JobError, match=r"emits other columns; name their time with"):
        barrier(left, right).out.tumbling("1s").count()


def test_event_times_of_inputs_that_differ() -> None:
    left, right = timed("ts", "seen")
    with pytest.raises(plait.JobError, match=r"the inputs of some at .* have different ones: col"):
        some(left, right).out.tumbling("1s").count()
    some(left, right).out.with_event_time("seen").tumbling("1s").count()


def test_no_event_time_comes_of_none() -> None:
    out = barrier(left=clicks(), right=bids()).out
    assert isinstance(out._time, Lost)
    with pytest.raises(plait.JobError, match="its source names none"):
        out.tumbling("1s").count()


def test_what_it_is() -> None:
    assert repr(matched) == "matched(left, right) -> both, lonely, n"
    assert matched.name == "matched"


async def anything(ctx: Any) -> None: ...


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: plait.operator(len), "is not a coroutine function; write async def"),
        (lambda: plait.operator(inputs=())(anything), "at least one input; inputs= names none"),
        (lambda: plait.operator(outputs=())(anything), "at least one output; outputs= names none"),
        (lambda: plait.operator(inputs=("a", "a"))(anything), '"a" is named twice'),
        (lambda: plait.operator(inputs=("in",))(anything), "'in' cannot name a port"),
        (lambda: plait.operator(inputs=(3,))(anything), "3 cannot name a port"),
        (lambda: plait.operator(outputs="_x")(anything), "begins with an underscore"),
        (lambda: plait.operator(inputs="bound")(anything), '"bound" is an argument of every call'),
        (lambda: barrier(clicks(), bids(), clicks()), "3 streams for the inputs left, right"),
        (lambda: barrier(clicks()), "no stream for right; write right=stream"),
        (lambda: barrier(clicks(), left=bids()), 'the input "left" is given twice'),
        (lambda: barrier(left=clicks(), right=7), "right=7 is not a stream"),
        (lambda: barrier(clicks(), bids().key_by("user")), "right=: the stream is keyed"),
        (lambda: barrier(clicks(), bids(), up=1), "unexpected keyword argument 'up'; its inputs"),
        (lambda: matched(clicks(), bids()), "missing a required argument: 'most'"),
        (lambda: barrier(clicks(), bids(), bound=0), "bound=0: it must be a whole number"),
        (lambda: barrier(clicks(), bids(), bound=True), "bound=True: it must be a whole number"),
        (
            lambda: barrier(clicks(), bids(), on_error="skip"),
            "so it cannot skip a record; catch the exception",
        ),
        (
            lambda: plait.operator(outputs={"out": "left"})(anything)(clicks()),
            'output "out": no input "left"; the inputs are records',
        ),
        (lambda: plait.operator(outputs={"out": 3})(anything)(clicks()), 'output "out": cannot'),
        (
            lambda: barrier(clicks(), plait.stream([{"o": (1,)}])),
            'column "o" of right is object, which needs streams of the same columns',
        ),
        (
            lambda: plait.operator(inputs=("a", "a_b"))(anything)(
                plait.stream([{"b_c": 1}]), plait.stream([{"c": 1}])
            ),
            'two columns would have the name "a_b_c"; give the schema',
        ),
    ],
)
def test_what_is_refused(make: Any, said: str) -> None:
    with pytest.raises(plait.JobError) as raised:
        make()
    assert said in str(raised.value)
    assert "test_operators_build.py:" in str(raised.value)


def test_a_parameter_that_is_an_input() -> None:
    async def wrong(ctx: Any, left: int) -> None: ...

    with pytest.raises(plait.JobError, match='"left" is an input and a parameter of "wrong"'):
        plait.operator(inputs=("left",))(wrong)


def test_no_context() -> None:
    async def wrong() -> None: ...

    with pytest.raises(plait.JobError, match='"wrong" has no parameter; the first one must be its'):
        plait.operator(wrong)


def test_an_output_that_is_not_there() -> None:
    outputs = barrier(clicks(), bids())
    with pytest.raises(AttributeError, match='barrier has no output "output"; it has out'):
        _ = outputs.output
    with pytest.raises(KeyError, match="barrier has no output 'output'; it has out"):
        _ = outputs["output"]


def test_an_operator_that_nobody_reads() -> None:
    job = plait.Job("j")
    read = job.source(CLICKS)
    read.sink(plait.Collect())
    barrier(read, read)
    with pytest.raises(plait.JobError, match="nothing reads the stream made by barrier at "):
        job.graph()
