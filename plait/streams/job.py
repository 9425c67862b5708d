"""A job: a named set of sources, operators and sinks. `plait.stream` makes one without a name.

>>> bids = stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 12}])
>>> bids.filter(col("price") > 20).key_by("auction").count().schema
auction: int64, count: int64
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from plait.errors import JobError
from plait.expr.tree import col
from plait.graph.labels import with_labels
from plait.graph.operators import (
    AnyOp,
    Graph,
    SourceOp,
    check,
)
from plait.graph.prune_columns import prune_columns
from plait.graph.regions import current as region
from plait.model.call_site import CallSite
from plait.model.schema import Schema
from plait.streams.arguments import (
    checked_records,
    checked_sink,
    own_label,
)
from plait.streams.event_time import (
    NEVER,
    Time,
    none_null,
    source_time,
)
from plait.streams.stream import KeyedStream, Stream

if TYPE_CHECKING:
    from plait.connectors.base import Sink
    from plait.results.result import Result


class Job:
    """A named set of sources, operators and sinks."""

    def __init__(self, name: str, *, dead_letters: Sink | None = None) -> None:
        """`dead_letters` is a sink for records that an operator with on_error="dead_letter" could
        not take; without it they are in `Result.dead_letters` alone."""
        if not isinstance(name, str) or not name:
            raise JobError(f"a job needs a name, not {name!r}")
        self.name = name
        self.dead_letters = None if dead_letters is None else checked_sink(dead_letters)
        self._operators: list[AnyOp] = []
        self._nameless = False
        self._merged: tuple[Job, int] | None = None
        """The job that took this one's operators, and what their numbers moved by."""

    def __repr__(self) -> str:
        return f'Job("{self.name}", {len(self._operators)} operators)'

    def source(
        self,
        source: Any,
        name: str | None = None,
        *,
        event_time: str | None = None,
        out_of_order: Any = None,
        max_jump: Any = "1d",
        idle: Any = None,
        epoch_records: int | None = None,
    ) -> Stream:
        """A stream of what a source reads: a path or glob, an iterable, a table, a source object.

        `name` is the source's name in results and errors. `event_time` names the timestamp column
        that windows and joins go by; records may come `out_of_order` by so much and are not late.
        One wild time cannot put the clock forward by more than `max_jump` (None: any). A source
        that has been `idle` for so long holds nobody up. `epoch_records`: how many records it puts
        into an epoch at most, instead of what the settings say; sources of different size that are
        joined by time keep in step with each other if these are as their sizes.
        """
        with CallSite("source") as place:
            opened = converted(source)
            given = Schema.of(opened.schema)
            told = source_time(given, event_time, out_of_order, max_jump, idle, opened.fixed)
            time = none_null(opened, told)
            taken = [op.label for op in self._operators if isinstance(op, SourceOp)]
            op = SourceOp(
                name="source",
                at=place.at,
                inputs=(),
                schema=time.schema,
                source=opened,
                label=own_label(name, opened, taken),
                event_time=time.column,
                out_of_order_us=time.out_of_order_us,
                max_jump_us=time.max_jump_us,
                idle_us=time.idle_us,
                epoch_records=checked_records(epoch_records),
            )
            return self._add(op, NEVER if time.column is None else col(time.column))

    def graph(self) -> Graph:
        """The job as plain data, checked."""
        operators = prune_columns(with_labels(self._operators))
        graph = Graph(name=self.name, operators=operators, dead_letters=self.dead_letters)
        check(graph)
        return graph

    def explain(self, **settings: Any) -> None:
        """Prints the stages of the job and, for each function, the route it takes and why."""
        from plait.graph.explain import explain_text

        print(explain_text(self.graph(), settings))

    def run(
        self,
        *,
        workers: int | Literal["elastic"] | None = None,
        limit: int | None = None,
        timeout: Any = None,
        progress: Any = None,
        **settings: Any,
    ) -> Result:
        """Runs the job to its end in this process; settings are those of `plait.Settings`."""
        from plait.execution.local_run import run

        return run(
            self, workers=workers, limit=limit, timeout=timeout, progress=progress, **settings
        )

    def _add(self, op: AnyOp, time: Time) -> Stream:
        here = region.get()
        self._operators.append(op if here is None else replace(op, region=here))
        return Stream(self, len(self._operators) - 1, time)

    def _absorb(self, other: Job) -> None:
        """Takes over the operators of a job without a name; its streams find them by `_merged`."""
        offset = len(self._operators)
        for op in other._operators:
            inputs = tuple(given + offset for given in op.inputs)
            self._operators.append(replace(op, inputs=inputs))
        other._operators.clear()
        other._merged = (self, offset)


def stream(
    x: Any,
    name: str | None = None,
    *,
    event_time: str | None = None,
    out_of_order: Any = None,
    max_jump: Any = "1d",
    idle: Any = None,
    epoch_records: int | None = None,
) -> Stream:
    """A stream in a job of its own; event time as of `Job.source`.

    `x` is a path or glob (Parquet, CSV, JSONL), an iterable of dicts, dataclasses, tuples or plain
    values, an Arrow, pandas or polars table, or a source object.
    """
    job = Job("job")
    job._nameless = True
    return job.source(
        x,
        name,
        event_time=event_time,
        out_of_order=out_of_order,
        max_jump=max_jump,
        idle=idle,
        epoch_records=epoch_records,
    )


def converted(source: Any) -> Any:
    """The source object for whatever the user gave."""
    from plait.connectors.base import Source

    if isinstance(source, Source):
        return source
    if isinstance(source, Stream | KeyedStream | Job):
        raise JobError(f"{source!r} is not a source; call its methods")
    from plait.connectors.convert import to_source

    return to_source(source)
