"""From the sinks upwards: which samples of its stream every operator's readers want; pure.

A demand is what one query wants of a stream. By key it begins at an operator that must see whole
keys, with that operator's key, and is followed up to the sources through projections. Where a
column of the key is computed the demand ends: the shedder stands there. All inputs of a join must
be sampled by the same columns of its key, so one that is lost on one way is given up on all.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from plait.errors import JobError
from plait.graph.operators import CallOp, FoldOp, ProjectOp, ShedOp, StatefulOp, TimedOp, upstream
from plait.graph.shedders.modes import STATE, mode_of
from plait.graph.shedders.quality import Sample
from plait.graph.temporal import JoinSpec, OperatorSpec, ProcessSpec, SpanSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from plait.graph.operators import AnyOp, SinkOp

UNBOUND = -1
"""The origin of a demand by key that no operator has given its key yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a query wants of a stream: all of it, or a sample by row, or one by these columns."""

    query: int
    by: Literal["all", "records", "keys"]
    origin: int = UNBOUND
    """The operator whose key it is."""
    columns: tuple[str, ...] = ()
    places: tuple[int, ...] = ()
    """Of each column: its place in the key of the origin."""

    @property
    def is_unbound(self) -> bool:
        return self.by == "keys" and self.origin == UNBOUND


@dataclass(slots=True)
class Query:
    """A sink, with how its records are chosen."""

    number: int
    """Among the sinks."""
    op: int
    sink: SinkOp
    by: Literal["all", "records", "keys"] = "all"
    needy: tuple[int, ...] = ()
    """Operators that must see whole keys."""
    why: str = ""


@dataclass(slots=True)
class Demands:
    """What all queries want, after a pass over the graph."""

    of: dict[int, set[Demand]] = field(default_factory=dict)
    """What is wanted of an operator's output."""
    at: dict[int, set[Demand]] = field(default_factory=dict)
    """What an operator wants of its inputs, in their columns."""
    settled: dict[int, set[Demand]] = field(default_factory=dict)
    """Demands that end behind an operator, which makes their columns."""
    lost: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    """Query, origin and place of a column that is not known everywhere."""


def queries_of(operators: Sequence[AnyOp], sinks: Sequence[int]) -> list[Query]:
    """The queries of a graph. JobError if one of them cannot be sampled as it asks to be."""
    found: list[Query] = []
    for number, op in enumerate(sinks):
        sink = operators[op]
        query = Query(number=number, op=op, sink=sink)  # type: ignore[arg-type]
        if not query.sink.quality.lossless:
            before = upstream(operators, op)
            mode, query.needy, query.why = mode_of(operators, query.sink, before)
            query.by = "keys" if mode == "keys" else "records"
        found.append(query)
    return found


def trace(operators: Sequence[AnyOp], queries: Sequence[Query]) -> Demands:
    """What all queries want, everywhere."""
    dropped: set[tuple[int, int, int]] = set()
    while True:
        demands = Pass(operators, queries, dropped).run()
        more = set(demands.lost) - dropped
        if not more:
            return demands
        dropped |= more


class Pass:
    """One way from the sinks to the sources, without the key columns that were `dropped`."""

    def __init__(
        self,
        operators: Sequence[AnyOp],
        queries: Sequence[Query],
        dropped: set[tuple[int, int, int]],
    ) -> None:
        self.operators = operators
        self.queries = queries
        self.dropped = dropped
        self.demands = Demands()

    def run(self) -> Demands:
        demands = self.demands
        sinks = {query.op: query for query in self.queries}
        for number in reversed(range(len(self.operators))):
            op = self.operators[number]
            if number in sinks:
                query = sinks[number]
                demands.at[number] = {Demand(query=query.number, by=query.by)}
            else:
                wanted = demands.of.get(number, set())
                demands.at[number] = {self.before(number, one) for one in wanted}
            for given in op.inputs:
                demands.of.setdefault(given, set()).update(demands.at[number])
        return demands

    def before(self, number: int, demand: Demand) -> Demand:
        """What a demand for the output of an operator is for its input."""
        op = self.operators[number]
        if demand.by != "keys":
            return demand
        if demand.is_unbound:
            needs = isinstance(op, STATE) and number in self.queries[demand.query].needy
            return self.begin(number, op.keys, demand) if needs else demand  # type: ignore[union-attr]
        names = input_names(op)
        kept = [
            (name, place)
            for column, place in zip(demand.columns, demand.places, strict=True)
            if (name := names.get(column))
        ]
        if not op.inputs:
            return demand
        if not kept:
            return self.settle(number, demand)
        for place in set(demand.places) - {place for _, place in kept}:
            self.demands.lost[demand.query, demand.origin, place] += 1
        columns, places = zip(*kept, strict=True)
        return replace(demand, columns=columns, places=places)

    def begin(self, number: int, keys: tuple[str, ...], demand: Demand) -> Demand:
        kept = [
            (name, place)
            for place, name in enumerate(keys)
            if (demand.query, number, place) not in self.dropped
        ]
        if not kept:
            raise JobError(self.refusal(number, demand.query, None))
        columns, places = zip(*kept, strict=True)
        return replace(demand, origin=number, columns=columns, places=places)

    def settle(self, number: int, demand: Demand) -> Demand:
        """The key is made here: it cannot be told before."""
        query = self.queries[demand.query]
        above = set(upstream(self.operators, number)) & {*query.needy}
        if above:
            raise JobError(self.refusal(demand.origin, demand.query, self.operators[max(above)]))
        self.demands.settled.setdefault(number, set()).add(demand)
        return Demand(query=demand.query, by="all")

    def refusal(self, origin: int, query: int, other: AnyOp | None) -> str:
        sink, op = self.queries[query].sink, self.operators[origin]
        keys = ", ".join(getattr(op, "keys", ())) or "no key"
        between = f"{op} (by {keys})"
        if other is not None:
            between += f" and {other} (by {', '.join(getattr(other, 'keys', ())) or 'no key'})"
        advice = "leave out min_accuracy=, or give the query a key that all of them have"
        if sink.quality.shed == "auto":
            advice = 'write shed="records" if a sample of records will do, or ' + advice
        return (
            f"{sink}: its records cannot be shed by key: {between} have no column of a key in"
            f" common that is known where records come in; {advice}"
            if other is not None
            else f"{sink}: its records cannot be shed by key: {between} has no column of a key that"
            f" is known on all its inputs; {advice}"
        )


def input_names(op: AnyOp) -> Mapping[str, str]:
    """Of the columns of the output that are columns of the input: their names there. Of operators
    with state only those of the key."""
    same = {name: name for name in op.schema.names}
    match op:
        case ProjectOp():
            return {name: str(expr.value) for name, expr in op.columns if expr.op == "col"}
        case CallOp(mode="filter"):
            return same
        case ShedOp(ratio=told):
            return {name: name for name in same if name != told}
        case CallOp(columns=columns) if columns:
            made = {name for name, _ in columns}
            return {name: name for name in same if name not in made}
        case CallOp() | StatefulOp():
            return {}
        case TimedOp(spec=ProcessSpec() | OperatorSpec()):
            return {}
        case TimedOp(spec=JoinSpec() | SpanSpec() as spec):
            right = spec.right.columns if isinstance(spec, JoinSpec) else ()
            pairs = zip(op.schema.names, (*spec.left.columns, *right), strict=False)
            return {name: column for name, column in pairs if column in op.keys}
        case TimedOp() | FoldOp():
            return {name: name for name in op.keys}
    return same if not isinstance(op, STATE) else {name: name for name in op.keys}


def samples_of(demands: Iterable[Demand]) -> tuple[Sample, ...] | None:
    """The samples that demands come to; None: somebody wants all records."""
    found: dict[tuple[str, ...], set[int]] = {}
    for demand in demands:
        if demand.by == "all":
            return None
        found.setdefault(demand.columns, set()).add(demand.query)
    return tuple(
        Sample(columns=columns, queries=tuple(sorted(queries)))
        for columns, queries in sorted(found.items())
    )
