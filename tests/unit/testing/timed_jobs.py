"""Small jobs around one operator that knows time, made node by node, for tests of the plain loop.

Tables go in and come out as text, so that a test reads like an example. Times are seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait.expr.aggregates import Aggregate
from plait.expr.tree import Expr
from plait.graph.operators import (
    AnyOp,
    Graph,
    ProjectOp,
    SinkOp,
    SourceOp,
    TimedOp,
    UnionOp,
)
from plait.graph.temporal import SIDE, JoinSpec, Side, SpanSpec
from plait.model.schema import Field, Location, Schema, Type
from plait.testing import Capture, sequential, table
from plait.testing.difference import story

if TYPE_CHECKING:
    from plait.graph.temporal import TimedSpec
    from plait.model.settings import Order
    from plait.testing import OracleResult

S = 1_000_000
COUNT = Aggregate(kind="count", over=None)


def col(name: str) -> Expr:
    return Expr("col", (), name)


def agg(kind: Any, over: str) -> Aggregate:
    return Aggregate(kind=kind, over=col(over))


def schema_of(text: str) -> Schema:
    """A schema from the words of a table's header: "k: int | n: int?"."""
    parts = (cell.split(":") for cell in text.split("|"))
    return Schema.of({name.strip(): kind.strip() for name, kind in parts})


class Nodes:
    """A graph node by node; each method returns the number of the new node."""

    def __init__(self) -> None:
        self.nodes: list[AnyOp] = []

    def add(self, kind: Any, *inputs: int, name: str = "", **more: Any) -> int:
        schema = more.pop("schema", None) or self.nodes[inputs[0]].schema
        name = name or kind.__name__.removesuffix("Op").lower()
        at = Location("job.py", len(self.nodes) + 1)
        self.nodes.append(kind(name=name, at=at, inputs=inputs, schema=schema, **more))
        return len(self.nodes) - 1

    def source(self, given: str, label: str = "in", time: str | None = "ts", **more: Any) -> int:
        """`more` in seconds: out_of_order, max_jump."""
        rows = table(given)
        facts: dict[str, Any] = {f"{name}_us": int(value * S) for name, value in more.items()}
        return self.add(
            SourceOp, schema=rows.schema, source=rows, label=label, event_time=time, **facts
        )

    def timed(
        self,
        node: int,
        spec: TimedSpec,
        out: str | Schema | None,
        keys: tuple[str, ...] = ("k",),
        time: str = "ts",
        **more: Any,
    ) -> int:
        schema = schema_of(out) if isinstance(out, str) else out
        return self.add(TimedOp, node, spec=spec, schema=schema, keys=keys, time=time, **more)

    def sink(self, node: int, label: str = "out") -> int:
        return self.add(SinkOp, node, sink=Capture(), label=label)

    def graph(self) -> Graph:
        return Graph(name="test", operators=tuple(self.nodes))

    def run(self, epoch: int = 1, order: Order = "total") -> OracleResult:
        """By default `epoch` says how the sources follow each other."""
        result = sequential(self.graph(), epoch_records=epoch, order=order)
        if result.failure is None:
            assert result.account.difference == 0, str(result.account)
            assert all(counts.difference == 0 for counts in result.operators)
        return result

    def united(self, left: int, right: int) -> int:
        """Both streams with the columns side, k, l_..., r_...: null in rows of the other side."""
        columns: list[tuple[str, Field, int]] = []
        for side, (node, prefix) in enumerate(((left, "l_"), (right, "r_"))):
            for one in self.nodes[node].schema:
                field = Field(prefix + one.name, one.type, True)
                columns.append((one.name, field, side))
        key = self.nodes[left].schema["k"]
        either = key.nullable or self.nodes[right].schema["k"].nullable
        fields = (
            Field(SIDE, Type.INT64),
            Field("k", key.type, either),
            *(field for _, field, _ in columns),
        )
        parts = []
        for side, node in enumerate((left, right)):
            exprs = [(SIDE, Expr("lit", (), side)), ("k", col("k"))]
            for name, field, of in columns:
                null = Expr("cast", (Expr("lit", (), None),), field.type)
                exprs.append((field.name, col(name) if of == side else null))
            parts.append(self.add(ProjectOp, node, columns=tuple(exprs), schema=Schema(fields)))
        return self.add(UnionOp, *parts)


def windowed(
    given: str,
    spec: TimedSpec,
    out: str | None,
    *,
    keys: tuple[str, ...] = ("k",),
    epoch: int = 1,
    **more: Any,
) -> OracleResult:
    """A source, one timed operator and a sink."""
    nodes = Nodes()
    nodes.sink(nodes.timed(nodes.source(given, **more), spec, out, keys))
    return nodes.run(epoch)


def joined(
    left: str,
    right: str,
    *,
    epoch: int = 1,
    aggregates: Any = None,
    span: tuple[str, str] | None = None,
    out_of_order: float = 0,
    **more: Any,
) -> OracleResult:
    """Two sources with columns k and ts, a join and a sink: a join, or spans if they are named.

    The left source's unit comes first in each epoch.
    """
    nodes = Nodes()
    sources = [
        nodes.source(left, "left", out_of_order=out_of_order),
        nodes.source(right, "right", out_of_order=out_of_order),
    ]
    both = nodes.united(*sources)
    names = [
        tuple(f.name for f in nodes.nodes[both].schema if f.name[:2] == p) for p in ("l_", "r_")
    ]
    sides = [Side(columns=names[0], time="l_ts"), Side(columns=names[1], time="r_ts")]
    fields = nodes.nodes[both].schema
    spec: JoinSpec | SpanSpec
    if span is not None:
        spec = SpanSpec(
            left=sides[0], right=sides[1], start=span[0], end=span[1], aggregates=aggregates, **more
        )
        kinds = {"count": Type.INT64, "distinct": Type.INT64}
        results = [
            Field(name, kinds.get(one.kind) or fields[one.over.value].type, True)
            for name, one in aggregates
        ]
        out = Schema((*(fields[name] for name in names[0]), *results))
    else:
        spec = JoinSpec(left=sides[0], right=sides[1], **more)
        alone = spec.how in ("semi", "anti")
        out = Schema(tuple(fields[name] for name in (names[0] if alone else sum(names, ()))))
    nodes.sink(nodes.timed(both, spec, out, time=""))
    return nodes.run(epoch)


def assert_rows(result: OracleResult, expected: str, label: str = "out") -> None:
    """The rows at a sink, in order; only the columns that the text names."""
    schema = result.schemas[label]
    want = table(expected)
    places = [schema.index(name) for name in want.schema.names]
    got = [tuple(row[i] for i in places) for row in result.beyond[label]]
    shown = Schema(tuple(schema.fields[i] for i in places))
    told = story(label, shown, got, list(want), "expected")
    assert not told, told
