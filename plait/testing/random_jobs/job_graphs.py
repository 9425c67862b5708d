"""Random jobs, built through the public API step by step.

One or two streams are open at any time; a step replaces one, forks it, or unites two. At the end
every open stream gets a sink, so that a job has one or two sinks. Each node gets a line of its own,
so that results can be told apart by line.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from plait.connectors.memory_sources import Table
from plait.expr import aggregates
from plait.expr.tree import col
from plait.model.schema import Location, Type
from plait.streams.job import Job
from plait.streams.stream import Stream, union
from plait.testing.clock import Capture
from plait.testing.oracle.values import held_to_arrow, to_held
from plait.testing.random_jobs import TYPES, expressions, functions, rows, schemas
from plait.testing.tables import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plait.connectors.base import Source
    from plait.expr.aggregates import Aggregate
    from plait.graph.operators import Graph
    from plait.model.schema import Schema

POLICIES = ("fail", "skip", "dead_letter", "dead_letter")
NUMBERS = (Type.INT64, Type.FLOAT64)


class JobDrawer:
    """Draws one job."""

    def __init__(self, draw: Callable[[Any], Any], max_rows: int) -> None:
        self.draw = draw
        self.max_rows = max_rows
        self.job = Job("random")
        self.open: list[Stream] = []

    def graph(self, steps: int) -> Graph:
        self.read()
        for _ in range(steps):
            self.step()
        for stream in self.open:
            stream.sink(Capture())
        graph = self.job.graph()
        operators = [
            dataclasses.replace(op, at=Location("job.py", line))
            for line, op in enumerate(graph.operators, 1)
        ]
        return dataclasses.replace(graph, operators=tuple(operators))

    def read(self) -> None:
        """Opens the sources."""
        for _ in range(self.pick([1, 1, 2])):
            schema = self.draw(schemas(max_columns=4))
            table = self.draw(rows(schema, max_size=self.max_rows, far_times=False))
            self.open.append(self.job.source(self.source(schema, table)))

    def source(self, schema: Schema, table: list[tuple[Any, ...]]) -> Source:
        """The rows as a source of records or as an Arrow table, which the engine reads natively."""
        records = Rows(schema, table)
        if self.pick([True, False]):
            return records
        held = [tuple(map(to_held, row, [f.type for f in schema])) for row in records]
        return Table(held_to_arrow(held, schema))

    def pick(self, options: Sequence[Any]) -> Any:
        from hypothesis import strategies as st

        return self.draw(st.sampled_from(options))

    def policy(self) -> Any:
        return self.pick(POLICIES)

    def column(self, stream: Stream) -> str:
        name: str = self.pick(stream.schema.names)
        return name

    def step(self) -> None:
        """One more operator on an open stream, which may stay open beside it."""
        if len(self.open) == 2 and self.pick([True, False, False]):
            self.open = [self.unite(*self.open)]
            return
        place = self.pick(range(len(self.open)))
        made = self.pick(self.kinds(self.open[place]))(self.open[place])
        if len(self.open) == 1 and self.pick([True, False, False]):
            self.open.append(made)
        else:
            self.open[place] = made

    def kinds(self, stream: Stream) -> Sequence[Callable[[Stream], Stream]]:
        """The operators that a stream may get."""
        return [
            self.add_filter,
            self.add_columns,
            self.add_select,
            self.add_map,
            self.add_map_async,
            self.add_python_filter,
            self.add_flat_map,
            self.add_map_batches,
            self.add_aggregates,
            self.add_aggregates,
            self.add_fold,
            self.stateful,
        ]

    def expr(self, stream: Stream, kind: Type, depth: int = 2) -> Any:
        return self.draw(expressions(stream.schema, kind, depth=depth, far_times=False))

    def add_filter(self, stream: Stream) -> Stream:
        return stream.filter(self.expr(stream, Type.BOOL), on_error=self.policy())

    def add_columns(self, stream: Stream) -> Stream:
        """A column replaced by one of the same type, and maybe a new one."""
        name = self.pick([field.name for field in stream.schema if field.type in TYPES] or ["new"])
        kind = stream.schema[name].type if name in stream.schema else Type.INT64
        return stream.with_columns(**{name: self.expr(stream, kind)}, on_error=self.policy())

    def add_select(self, stream: Stream) -> Stream:
        kinds = [self.pick(TYPES) for _ in range(self.pick([1, 2, 3]))]
        named = {f"c{i}": self.expr(stream, kind) for i, kind in enumerate(kinds)}
        return stream.select(**named, on_error=self.policy())

    def of_column(self, kind: Callable[..., Any], stream: Stream) -> Any:
        return kind(self.column(stream), self.pick([0, 0, 7]))

    def with_retries(self, kind: Callable[..., Any], stream: Stream) -> tuple[Any, dict[str, Any]]:
        """A function, and how often it is tried again."""
        function, retries = self.of_column(kind, stream), self.pick([0, 0, 1, 2])
        if not retries:
            return function, {}
        return functions.Flaky(function, retries), {"retries": retries, "backoff": "1ms"}

    def add_map(self, stream: Stream) -> Stream:
        function, tries = self.with_retries(functions.Changed, stream)
        return stream.map(function, schema=stream.schema, on_error=self.policy(), **tries)

    def add_map_async(self, stream: Stream) -> Stream:
        return stream.map_async(
            self.of_column(functions.Looked, stream),
            concurrency=self.pick([1, 3, 100]),
            retries=self.pick([0, 1, 2]),
            backoff="1ms",
            schema=stream.schema,
            on_error=self.policy(),
        )

    def add_python_filter(self, stream: Stream) -> Stream:
        function, tries = self.with_retries(functions.Kept, stream)
        return stream.filter(function, on_error=self.policy(), **tries)

    def add_flat_map(self, stream: Stream) -> Stream:
        function, tries = self.with_retries(functions.Repeated, stream)
        return stream.flat_map(function, schema=stream.schema, on_error=self.policy(), **tries)

    def add_map_batches(self, stream: Stream) -> Stream:
        return stream.map_batches(functions.Halved(), on_error=self.policy())

    def keys(self, stream: Stream) -> list[str]:
        names = [field.name for field in stream.schema if field.type is not Type.OBJECT]
        count = self.pick([0, 1, 1, 1, 2])
        found: list[str] = []
        for _ in range(min(count, len(names))):
            found.append(self.pick([name for name in names if name not in found]))
        return found

    def add_aggregates(self, stream: Stream) -> Stream:
        keys = self.keys(stream)
        results = {f"r{i}": self.aggregate(stream) for i in range(self.pick([1, 1, 2, 3]))}
        results = {name: one for name, one in results.items() if name not in keys}
        results = results or {"n" if "n" not in keys else "m": aggregates.count()}
        over: Any = stream.key_by(*keys) if keys else stream
        made: Stream = over.aggregate(**results, on_error=self.policy())
        return made

    def aggregate(self, stream: Stream, *, joined: bool = False) -> Aggregate:
        """`joined`: sums are added to each other. The values are often as large as an int64 can be,
        and there a sum that does not fit ends the run."""
        kind = self.pick(["count", "sum", "min", "max", "mean", "first", "last"])
        if kind == "count" and self.pick([True, False]):
            return aggregates.count()
        types = NUMBERS if kind in ("sum", "mean") else TYPES
        names = [field.name for field in stream.schema if field.type in types]
        plain = names and self.pick([True, True, False])
        over = col(self.pick(names)) if plain else self.expr(stream, self.pick(types), 1)
        if kind == "sum":
            return aggregates.sum(over, wrap=joined or self.pick([True, False]))
        make: Callable[..., Aggregate] = getattr(aggregates, kind)
        return make(over)

    def add_fold(self, stream: Stream) -> Stream:
        keys = [key for key in self.keys(stream) if key != "value"]
        over: Any = stream.key_by(*keys) if keys else stream
        if self.pick([True, True, False]):
            step = self.of_column(functions.Numbered, stream)
            made: Stream = over.fold(7, step, type=int, on_error=self.policy())
        else:
            step = functions.Listed(self.column(stream))
            made = over.fold(self.pick([[], list]), step, type=object, on_error=self.policy())
        return made

    def stateful(self, stream: Stream) -> Stream:
        keys = self.keys(stream)
        over: Any = stream.key_by(*keys) if keys else stream
        step = self.of_column(functions.Alternating, stream)
        made: Stream = over.stateful(0, step, schema=stream.schema, on_error=self.policy())
        return made

    def unite(self, one: Stream, other: Stream) -> Stream:
        """The union of two streams, brought to the same columns where they differ."""
        same = [(f.name, f.type) for f in one.schema] == [(f.name, f.type) for f in other.schema]
        if not same:
            kinds = [self.pick(TYPES) for _ in range(self.pick([1, 2]))]
            one, other = (
                stream.select(
                    **{f"u{i}": self.expr(stream, kind, 1) for i, kind in enumerate(kinds)},
                    on_error=self.policy(),
                )
                for stream in (one, other)
            )
        return union(other, one) if self.pick([True, False]) else union(one, other)
