"""Flows: connections become the job that calls would make, and what cannot be connected."""

from __future__ import annotations

from typing import Any

import pytest

import plait
from plait import col

NAMES = [{"id": 1, "name": "ada"}, {"id": 2, "name": ""}, {"id": 3, "name": "cyd"}]
VALUES = [{"value": n} for n in (10, 20, 30)]


@plait.operator(inputs=("left", "right"))
async def barrier(ctx: plait.Context) -> None:
    while await ctx.wait_all(left=1, right=1):
        ctx.emit(out=(ctx.pop("left"), ctx.pop("right")))


@plait.operator
async def same(ctx: plait.Context, plus: int = 0) -> None:
    while await ctx.wait_all(records=1):
        record = ctx.pop("records")
        if hasattr(record, "value"):
            record.value += plus
        ctx.emit(record)


@plait.operator(outputs={"even": "records", "odd": "records"})
async def split(ctx: plait.Context) -> None:
    while await ctx.wait_all(records=1):
        record = ctx.pop("records")
        ctx.emit(**{"odd" if record.value // 10 % 2 else "even": record})


def named(stream: plait.Stream) -> plait.Stream:
    return stream.filter(col("name") != "")


def nodes_of(job: plait.Job) -> list[tuple[Any, ...]]:
    return [(node.name, node.inputs, str(node.schema)) for node in job.graph().operators]


def test_a_flow_is_the_job_that_calls_make() -> None:
    flow = plait.Flow("sample")
    names = flow.source(NAMES, name="names")
    values = flow.source(VALUES, name="values")
    combiner = flow.operator(barrier, name="combiner")
    names >> named >> combiner.left
    values >> combiner.right
    flow.sink(combiner.out, plait.Collect(), name="pairs")

    job = plait.Job("sample")
    left, right = job.source(NAMES, name="names"), job.source(VALUES, name="values")
    barrier(left=named(left), right=right).out.sink(plait.Collect(), name="pairs")
    wanted = [(n.replace("barrier", "combiner"), *more) for n, *more in nodes_of(job)]
    assert nodes_of(flow.job()) == wanted
    assert flow.run().outputs["pairs"].to_pylist() == plait.run(job).outputs["pairs"].to_pylist()


def test_connections_in_any_order_and_chains() -> None:
    flow = plait.Flow("any")
    last = flow.operator(same, "last", plus=1)
    last >> plait.Collect()
    flow.source(VALUES) >> same >> same >> last
    result = flow.run()
    assert list(result.outputs) == ["sink-1"]
    assert [row["value"] for row in result.outputs["sink-1"].to_pylist()] == [11, 21, 31]
    assert [c.name for c in result.operators] == ["source", "same", "same_", "last", "sink"]


def test_fan_out_and_fan_in() -> None:
    flow = plait.Flow("fan")
    values = flow.source(VALUES, name="values")
    parts = flow.operator(split)
    both = flow.operator(same, "both")
    values >> parts
    parts.even >> both
    parts.odd >> both
    flow.sink(both, plait.Collect(), "both")
    flow.sink(values, plait.Collect(), "all")
    outputs = flow.run(workers=2).outputs
    assert outputs["both"].to_pylist() == outputs["all"].to_pylist() == VALUES


def test_streams_can_be_connected() -> None:
    flow = plait.Flow("mixed")
    combiner = flow.operator(barrier)
    plait.stream(NAMES) >> combiner.left
    plait.stream(VALUES).filter(col("value") > 10) >> combiner.right
    combiner >> plait.Collect()
    rows = flow.run().outputs["sink-1"].to_pylist()
    assert [(row["left_id"], row["right_value"]) for row in rows] == [(1, 20), (2, 30)]


def refused(connect: Any) -> str:
    flow = plait.Flow("wrong")
    with pytest.raises(plait.JobError) as raised:
        connect(flow)
    assert "test_flow.py:" in str(raised.value)
    return str(raised.value)


def test_what_is_refused() -> None:
    def two_inputs(flow: plait.Flow) -> None:
        flow.source(VALUES) >> flow.operator(barrier)

    def two_outputs(flow: plait.Flow) -> None:
        flow.operator(split) >> plait.Collect()

    def twice(flow: plait.Flow) -> None:
        flow.operator(same)
        flow.operator(same)

    def open_end(flow: plait.Flow) -> None:
        combiner = flow.operator(barrier, "combiner")
        flow.source(VALUES) >> combiner.left
        combiner >> plait.Collect()
        flow.job()

    def cycle(flow: plait.Flow) -> None:
        one, two = flow.operator(same, "one"), flow.operator(same, "two")
        one >> two
        two >> one
        flow.job()

    def another(flow: plait.Flow) -> None:
        flow.source(VALUES) >> plait.Flow("other").operator(same).records

    def late(flow: plait.Flow) -> None:
        values = flow.source(VALUES)
        values >> plait.Collect()
        flow.job()
        values >> same

    assert "barrier has the inputs left, right; name one" in refused(two_inputs)
    assert "split has the outputs even, odd; name one" in refused(two_outputs)
    assert 'the flow has an operator "same"; give this one another name=' in refused(twice)
    assert "nothing is connected to combiner.right" in refused(open_end)
    assert "it would read its own output" in refused(cycle)
    assert "same.records does not belong to the flow wrong" in refused(another)
    assert "is built already; connect everything before" in refused(late)
    assert "takes no records" in refused(lambda flow: flow.source(VALUES) >> 7)
    assert "takes no records" in refused(lambda flow: flow.source(VALUES) >> plait.Collect)
    assert "7 gives no records" in refused(lambda flow: 7 >> flow.operator(same).records)
    assert "is not an operator; make one" in refused(lambda flow: flow.operator(len))
    assert "is not a sink" in refused(lambda flow: flow.sink(flow.source(VALUES), 7))


def test_a_port_that_is_not_there() -> None:
    placed = plait.Flow("ports").operator(barrier)
    with pytest.raises(AttributeError, match='barrier has no port "up"; it has left, right, out'):
        _ = placed.up
