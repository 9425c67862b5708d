"""The oracle on jobs whose answers were computed by hand, for every kind of node."""

from __future__ import annotations

import dataclasses
import datetime
import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from plait.connectors.base import Reader, Source
from plait.expr.aggregates import Aggregate
from plait.expr.tree import Expr
from plait.graph.operators import (
    AggregateOp,
    AnyOp,
    CallOp,
    FilterOp,
    FoldOp,
    Graph,
    ProjectOp,
    SinkOp,
    SourceOp,
    StatefulOp,
    UnionOp,
)
from plait.model.schema import Location, Schema
from plait.results.result import Account
from plait.testing.clock import Capture, Feed
from plait.testing.oracle import OracleResult, sequential
from plait.testing.tables import Rows

if TYPE_CHECKING:
    from collections.abc import Iterator

KV = Schema.of({"k": int, "v": "int64?"})


def col(name: str) -> Expr:
    return Expr("col", (), name)


def lit(value: Any) -> Expr:
    return Expr("lit", (), value)


def above(name: str, least: int) -> Expr:
    return Expr("gt", (col(name), lit(least)))


class Builder:
    """A graph node by node; each method returns the number of the new node."""

    def __init__(self) -> None:
        self.nodes: list[AnyOp] = []

    def add(self, kind: Any, name: str, *inputs: int, **more: Any) -> int:
        schema = more.pop("schema", None)
        self.nodes.append(
            kind(
                name=name,
                at=Location("job.py", len(self.nodes) + 1),
                inputs=inputs,
                schema=schema or self.nodes[inputs[0]].schema,
                **more,
            )
        )
        return len(self.nodes) - 1

    def source(self, schema: Any, rows: Any, label: str = "in") -> int:
        source = rows if hasattr(rows, "open") else Rows(schema, rows)
        return self.add(SourceOp, "source", schema=source.schema, source=source, label=label)

    def filter(self, node: int, predicate: Expr, **more: Any) -> int:
        return self.add(FilterOp, "filter", node, predicate=predicate, **more)

    def call(self, node: int, mode: str, function: Any, **more: Any) -> int:
        return self.add(CallOp, mode, node, mode=mode, function=function, **more)

    def sink(self, node: int, label: str = "out") -> int:
        return self.add(SinkOp, "sink", node, sink=Capture(), label=label)

    def run(self, **more: Any) -> OracleResult:
        return sequential(Graph(name="test", operators=tuple(self.nodes)), **more)


def through(
    given: Any, rows: Any, kind: Any, /, *, epoch_records: int = 2, **more: Any
) -> OracleResult:
    """A source, one node and a sink."""
    build = Builder()
    build.sink(build.add(kind, "step", build.source(given, rows), **more))
    result = build.run(epoch_records=epoch_records)
    if result.failure is None:
        assert result.account.difference == 0
    return result


def test_source_to_sink() -> None:
    build = Builder()
    build.sink(build.source(KV, [(1, 2), (3, None)]))
    result = build.run()
    assert result.outputs == {"out": [(1, 2), (3, None)]}
    assert result.account == Account(read=2, delivered=2)
    assert [(c.records_in, c.records_out) for c in result.operators] == [(2, 2), (2, 2)]
    assert result.cuts == {"in": (2,)}


def test_filter_drops_false_and_null() -> None:
    result = through(KV, [(1, 5), (2, None), (3, 1)], FilterOp, predicate=above("v", 3))
    assert result.outputs["out"] == [(1, 5)]
    assert result.account == Account(read=3, delivered=1, filtered=2)


def test_project_computes_and_widens() -> None:
    columns = (("x", Expr("add", (col("k"), lit(1)))), ("y", col("v")))
    out = Schema.of({"x": float, "y": "int64?"})
    result = through(KV, [(1, 5), (2, None)], ProjectOp, columns=columns, schema=out)
    assert result.outputs["out"] == [(2.0, 5), (3.0, None)]


def test_map_takes_the_users_class_and_checks_what_comes_back() -> None:
    @dataclasses.dataclass
    class Bid:
        price: float
        ts: datetime.datetime

    def later(bid: Bid) -> Bid:
        assert type(bid) is Bid
        return dataclasses.replace(bid, ts=bid.ts + datetime.timedelta(seconds=1))

    at = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    result = through(Bid, [(1, at)], CallOp, mode="map", function=later)
    assert result.outputs["out"] == [(1.0, at + datetime.timedelta(seconds=1))]
    result = through(Bid, [(1, at)], CallOp, mode="map", function=lambda bid: ("one", at))
    assert result.failure is not None
    assert "column \"price\": expected float64, got 'one'" in str(result.failure)
    assert result.outputs["out"] == []


def test_filter_function_by_truth() -> None:
    result = through(KV, [(0, 1), (2, 1)], CallOp, mode="filter", function=lambda r: r.k)
    assert result.outputs["out"] == [(2, 1)]


def test_flat_map_counts_what_it_makes() -> None:
    rows = [(0, None), (1, None), (3, None)]
    function = lambda r: ((n, r.k) for n in range(r.k))  # noqa: E731
    result = through(KV, rows, CallOp, mode="flat_map", function=function)
    assert result.outputs["out"] == [(0, 1), (0, 3), (1, 3), (2, 3)]
    assert result.account == Account(read=3, made=2, delivered=4, filtered=1)


def test_flat_map_that_fails_midway_keeps_nothing_of_the_record() -> None:
    def function(record: Any) -> Iterator[tuple[int, int]]:
        yield (record.k, 1)
        if record.k == 2:
            raise ValueError("two")
        yield (record.k, 2)

    rows = [(1, None), (2, None), (3, None)]
    result = through(KV, rows, CallOp, mode="flat_map", function=function, on_error="dead_letter")
    assert result.outputs["out"] == [(1, 1), (1, 2), (3, 1), (3, 2)]
    assert [(d.row, d.error) for d in result.dead_letters] == [(2, "ValueError: two")]


def test_columns_reads_the_input_by_parameter_names() -> None:
    columns = (("v", lambda k, /: k + 1), ("w", lambda v, more=0, k=0: v * k + more))
    out = Schema.of({"k": int, "v": "int64?", "w": int})
    result = through(
        KV, [(2, 5)], CallOp, mode="columns", function=len, columns=columns, schema=out
    )
    assert result.outputs["out"] == [(2, 3, 10)]


def test_batches_get_one_epoch_and_share_its_fate() -> None:
    def function(table: pa.Table) -> pa.Table:
        if 4 in table.column("k").to_pylist():
            raise ValueError("four")
        return pa.concat_tables([table, table.slice(0, 1)])

    rows = [(1, None), (2, None), (3, None), (4, None), (5, None)]
    result = through(KV, rows, CallOp, mode="batches", function=function, on_error="skip")
    assert [k for k, _ in result.outputs["out"]] == [1, 2, 1, 5, 5]
    assert result.account == Account(read=5, made=2, delivered=5, skipped=2)


def test_aggregates_of_every_kind_by_key() -> None:
    kinds = ("count", "sum", "min", "max", "mean", "first", "last")
    aggregates = [("rows", Aggregate(kind="count", over=None))]
    aggregates += [(kind, Aggregate(kind=kind, over=col("v"))) for kind in kinds]  # type: ignore[arg-type]
    out = Schema.of(
        {"k": int, "rows": int, "count": int}
        | dict.fromkeys(kinds[1:], "int64?")
        | {"mean": "float64?"}
    )
    rows = [(1, None), (1, 4), (2, 7), (1, 2)]
    result = through(KV, rows, AggregateOp, keys=("k",), aggregates=tuple(aggregates), schema=out)
    assert result.outputs["out"] == [
        (1, 1, 0, None, None, None, None, None, None),
        (1, 2, 1, 4, 4, 4, 4.0, 4, 4),
        (2, 1, 1, 7, 7, 7, 7.0, 7, 7),
        (1, 3, 2, 6, 2, 4, 3.0, 4, 2),
    ]


def aggregated(kind: Any, given: str, values: list[Any], wrap: bool = False) -> list[Any]:
    schema = Schema.of({"v": given})
    out = Schema.of({"r": {"mean": "float64?"}.get(kind, given)})
    one = (("r", Aggregate(kind=kind, over=col("v"), wrap=wrap)),)
    rows = [(value,) for value in values]
    result = through(schema, rows, AggregateOp, keys=(), aggregates=one, schema=out)
    return [row[0] for row in result.outputs["out"]]


def test_aggregates_at_the_edges() -> None:
    nan = math.nan
    assert aggregated("sum", "int64?", [2**63 - 1, 1], wrap=True) == [2**63 - 1, -(2**63)]
    assert aggregated("sum", "int64?", [2**63 - 1, 1]) == [2**63 - 1]  # the second record fails
    assert aggregated("sum", "int64?", [2**63 - 1, -1, 1]) == [2**63 - 1, 2**63 - 2, 2**63 - 1]
    assert str(aggregated("sum", "float64?", [-0.0, 0.0])) == "[-0.0, 0.0]"
    assert str(aggregated("min", "float64?", [nan, 3.0, nan, 1.0])) == "[nan, 3.0, 3.0, 1.0]"
    assert str(aggregated("max", "float64?", [nan, -0.0, 0.0])) == "[nan, -0.0, -0.0]"
    assert aggregated("min", "string?", ["\U00010000", None, "\uffff"])[1:] == [
        "\U00010000",
        "\uffff",
    ]
    assert aggregated("max", "bool?", [False, True]) == [False, True]
    assert aggregated("mean", "int64?", [2**62, 2**62, 2**62]) == [2.0**62] * 3


def test_keys_null_is_a_key_zeros_are_one_and_nan_is_none() -> None:
    schema = Schema.of({"k": "float64?"})
    rows = [(0.0,), (-0.0,), (None,), (math.nan,), (None,)]
    out = Schema.of({"k": "float64?", "n": int})
    one = (("n", Aggregate(kind="count", over=None)),)
    result = through(
        schema, rows, AggregateOp, keys=("k",), aggregates=one, schema=out, on_error="dead_letter"
    )
    assert str(result.outputs["out"]) == "[(0.0, 1), (-0.0, 2), (None, 1), (None, 2)]"
    assert [(d.row, d.error) for d in result.dead_letters] == [(4, "NaN cannot be a key")]


def test_fold_keeps_its_state_when_a_step_fails() -> None:
    def step(total: int, record: Any) -> int:
        if record.v is None:
            raise KeyError("v")
        return total + int(record.v)

    rows = [(1, 5), (2, 1), (1, None), (1, 2)]
    out = Schema.of({"k": int, "value": int})
    result = through(KV, rows, FoldOp, keys=("k",), init=10, step=step, schema=out, on_error="skip")
    assert result.outputs["out"] == [(1, 15), (2, 11), (1, 17)]
    assert result.account == Account(read=4, delivered=3, skipped=1)


def test_fold_makes_a_state_for_each_key_and_its_values_do_not_change_later() -> None:
    def step(seen: list[int], record: Any) -> list[int]:
        seen.append(record.k)
        return seen

    out = Schema.of({"k": int, "value": object})
    inits: list[Any] = [[], list]
    for init in inits:
        rows = [(1, None), (2, None), (1, None)]
        result = through(KV, rows, FoldOp, keys=("k",), init=init, step=step, schema=out)
        assert result.outputs["out"] == [(1, [1]), (2, [2]), (1, [1, 1])]


def test_stateful_filters_and_refuses_nonsense() -> None:
    def step(last: int, record: Any) -> Any:
        if record.v is None:
            return "nonsense"
        return record.v, ((record.k, last) if record.v > last else None)

    rows = [(1, 5), (1, 3), (1, None), (1, 4), (2, 1)]
    result = through(KV, rows, StatefulOp, keys=("k",), init=0, step=step, on_error="skip")
    assert result.outputs["out"] == [(1, 0), (1, 3), (2, 0)]
    assert result.account == Account(read=5, delivered=3, filtered=1, skipped=1)


def test_sources_take_turns_by_epoch() -> None:
    build = Builder()
    a = build.source({"n": int}, [(n,) for n in range(5)], "a")
    b = build.source({"n": int}, [(n,) for n in range(10, 12)], "b")
    build.sink(build.add(UnionOp, "union", b, a))
    assert [n for (n,) in build.run(epoch_records=2).outputs["out"]] == [0, 1, 10, 11, 2, 3, 4]
    cuts = {"a": (1, 4), "b": (2, 0)}
    result = build.run(epoch_records=3, cuts=cuts)
    assert [n for (n,) in result.outputs["out"]] == [0, 10, 11, 1, 2, 3, 4]
    assert result.cuts == cuts
    assert [n for (n,) in build.run(limit=1).outputs["out"]] == [0, 10]


def test_union_orders_branches_by_row_then_input() -> None:
    build = Builder()
    source = build.source({"n": int}, [(n,) for n in range(3)])
    twice = build.call(source, "flat_map", lambda r: [(r.n + 10,), (r.n + 20,)])
    odd = build.filter(source, above("n", 0))
    build.sink(build.add(UnionOp, "union", odd, twice, source))
    result = build.run()
    assert [n for (n,) in result.outputs["out"]] == [10, 20, 0, 1, 11, 21, 1, 2, 12, 22, 2]
    assert result.account == Account(read=3, made=3, copied=6, delivered=11, filtered=1)
    assert result.account.difference == 0


def test_union_of_a_stream_with_itself() -> None:
    build = Builder()
    source = build.source({"n": int}, [(1,), (2,)])
    build.sink(build.add(UnionOp, "union", source, source))
    result = build.run()
    assert result.outputs["out"] == [(1,), (1,), (2,), (2,)]
    assert result.account.difference == 0


def test_a_failure_ends_what_depends_on_it() -> None:
    build = Builder()
    source = build.source({"n": int}, [(n,) for n in range(6)])
    half = build.add(
        ProjectOp,
        "select",
        source,
        columns=(("n", Expr("floordiv", (lit(12), Expr("sub", (col("n"), lit(3)))))),),
    )
    build.sink(half, "half")
    build.sink(source, "all")
    result = build.run(epoch_records=2)
    assert result.failure is not None
    assert (result.failure.operator, result.failure.at) == ("select", "job.py:2")
    assert (result.failure.source, result.failure.row) == ("in", 4)
    assert result.failure.record.n == 3
    assert result.outputs == {"half": [(-4,), (-6,), (-12,)], "all": [(0,), (1,), (2,)]}
    assert result.beyond == {"half": [(-4,), (-6,), (-12,)], "all": [(n,) for n in range(6)]}
    assert result.ends == {"half": result.failure}


def test_a_failing_record_keeps_the_earlier_results_of_its_row() -> None:
    build = Builder()
    source = build.source({"n": int}, [(1,), (2,)])
    many = build.call(source, "flat_map", lambda r: [(r.n,), (2 - r.n,), (9,)])
    check = build.filter(many, above("n", 0))
    inverse = build.add(
        ProjectOp, "select", many, columns=(("n", Expr("floordiv", (lit(1), col("n")))),)
    )
    build.sink(build.add(UnionOp, "union", inverse, check))
    result = build.run()
    assert result.outputs["out"] == [(1,), (1,), (0,), (1,), (1,), (9,), (0,)]
    assert result.failure is not None
    assert result.failure.row == 2


def test_the_first_failure_in_the_order_is_the_one_reported() -> None:
    build = Builder()
    source = build.source({"n": int}, [(n,) for n in range(6)])

    def refuse(bad: int) -> Any:
        def function(record: Any) -> Any:
            if record.n == bad:
                raise ValueError(bad)
            return record

        return function

    late = build.call(source, "map", refuse(4))
    early = build.call(late, "map", refuse(1))
    build.sink(early, "early")
    build.sink(late, "late")
    result = build.run()
    assert result.failure is not None
    assert result.failure.row == 2
    assert {label: error.row for label, error in result.ends.items()} == {"early": 2, "late": 5}
    assert result.outputs == {"early": [(0,)], "late": [(0,)]}
    assert result.beyond == {"early": [(0,)], "late": [(0,), (1,), (2,), (3,)]}


def test_dead_letters_come_in_order() -> None:
    build = Builder()
    source = build.source({"n": int}, [(n,) for n in range(4)])
    inverse = (("n", Expr("floordiv", (lit(1), Expr("mod", (col("n"), lit(2)))))),)
    first = build.add(ProjectOp, "first", source, columns=inverse, on_error="dead_letter")
    second = build.call(source, "map", lambda r: "no" if r.n == 1 else r, on_error="dead_letter")
    build.sink(build.add(UnionOp, "union", first, second))
    result = build.run()
    assert [(d.row, d.operator) for d in result.dead_letters] == [
        (1, "first"),
        (2, "map"),
        (3, "first"),
    ]
    assert result.dead_letters[1].record.n == 1
    assert result.account.difference == 0


def test_a_feed_is_cut_as_it_was_pushed() -> None:
    feed = Feed({"n": int})
    feed.push([(1,), (2,)])
    feed.push([])
    feed.push([{"n": 3}])
    feed.close()
    build = Builder()
    build.sink(build.source(None, feed))
    result = build.run()
    assert result.cuts == {"in": (2, 1)}
    assert result.waited
    assert build.run(cuts={"in": (1, 0, 2)}).cuts == {"in": (1, 0, 2)}
    assert result.outputs["out"] == [(1,), (2,), (3,)]


def test_times_outside_a_datetime_are_kept_but_fail_in_python() -> None:
    year = datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC)
    far = (("t", Expr("add", (col("t"), lit(datetime.timedelta(days=400))))),)
    build = Builder()
    later = build.add(
        ProjectOp, "select", build.source({"t": datetime.datetime}, [(year,)]), columns=far
    )
    build.sink(later, "far")
    build.sink(build.call(later, "map", lambda r: r), "mapped")
    result = build.run()
    assert isinstance(result.beyond["far"][0][0], int)
    assert "outside the years" in str(result.failure)


class Broken(Source):
    """A source whose reader fails and notes whether it was closed."""

    schema = Schema.of({"n": int})

    def __init__(self) -> None:
        self.closed = 0

    def open(self, position: Any = None) -> Reader:
        return BrokenReader(self)


class BrokenReader(Reader):
    def __init__(self, source: Broken) -> None:
        self.source = source

    def poll(self, max_rows: int) -> Any:
        raise OSError("gone")

    def close(self) -> None:
        self.source.closed += 1


def test_a_reader_is_closed_once_when_the_run_fails() -> None:
    source = Broken()
    build = Builder()
    build.sink(build.source(None, source))
    with pytest.raises(OSError, match="gone"):
        build.run()
    assert source.closed == 1
