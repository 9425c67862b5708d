"""A job: sources, operators and sinks under a name. `plait.stream` makes one without a name.

>>> bids = stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 12}])
>>> bids.filter(col("price") > 20).key_by("auction").count().schema
auction: int64, count: int64
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from plait.connectors.base import checked_sink
from plait.errors import JobError
from plait.expr.tree import Expr, col
from plait.expr.type_checker import check_column
from plait.graph.labels import with_labels
from plait.graph.operators import (
    AnyOp,
    Graph,
    OnError,
    SinkOp,
    SourceOp,
    check,
    cut_out,
    upstream,
)
from plait.graph.prune_columns import prune_columns
from plait.graph.regions import current as region
from plait.graph.shedders.insert import with_shedders
from plait.graph.user_functions import check_functions
from plait.model.call_site import CallSite, was_typed_in
from plait.model.durations import LONGEST_US
from plait.model.schema import Schema
from plait.streams import projections
from plait.streams.arguments import (
    checked_policy,
    checked_records,
    old_to_new,
    own_label,
)
from plait.streams.event_time import (
    NEVER,
    Time,
    by_partition,
    computed_source_time,
    refuse_nulls,
    source_time,
)
from plait.streams.row_verbs import add_select
from plait.streams.stream import KeyedStream, Stream
from plait.streams.stream_protocol import add_event_time

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from plait.checkpoints.config import Checkpoint
    from plait.connectors.base import Sink, Source
    from plait.model.durations import Duration
    from plait.results.result import Result


class Job:
    """Sources, operators and sinks that run together, under a name.

    >>> job = plait.Job("totals")
    >>> bids = job.source([{"auction": 1, "price": 30}, {"auction": 1, "price": 50}])
    >>> bids.key_by("auction").sum("price").sink(plait.Collect(), name="totals").schema
    auction: int64, sum: int64
    >>> job.run().outputs["totals"].to_pylist()
    [{'auction': 1, 'sum': 30}, {'auction': 1, 'sum': 80}]

    Use it for several sources or sinks, or to give the job a name; `plait.stream` is shorter for
    one source.
    """

    def __init__(self, name: str, *, dead_letters: Sink | None = None) -> None:
        """A job without operators.

        Args:
            name: of the job in results, errors and on a cluster.
            dead_letters: a sink for the records that failed at an operator with
                on_error="dead_letter". The first of them are in `Result.dead_letters` anyway.
        """
        if not isinstance(name, str) or not name:
            raise JobError(f"a job needs a name, not {name!r}")
        self.name = name
        self.dead_letters = None if dead_letters is None else checked_sink(dead_letters)
        self._operators: list[AnyOp] = []
        self._nameless = False
        self._merged: tuple[Job, int] | None = None
        """The job that took over this one's operators, and by how much their numbers moved."""
        self._looked_at: set[int] = set()
        """Operators of streams that were shown or collected: they need no sink."""
        self._replaced: set[int] = set()
        """Sinks whose name a cell of a notebook, run again, has given to another one."""

    def __repr__(self) -> str:
        return f'Job("{self.name}", {len(self._operators)} operators)'

    def source(
        self,
        source: Any,
        name: str | None = None,
        *,
        event_time: str | Expr | None = None,
        out_of_order: Duration | None = None,
        max_jump: Duration | None = "1d",
        idle: Duration | None = None,
        epoch_records: int | None = None,
        on_error: OnError = "fail",
        rename: Mapping[str, str] | None = None,
    ) -> Stream:
        """Adds a source and returns the stream of its records.

        >>> job = plait.Job("totals")
        >>> job.source([{"auction": 1, "price": 30}], name="bids").schema
        auction: int64, price: int64
        >>> job.source(
        ...     "bids/*.parquet", event_time="ts", out_of_order="5s"
        ... )  # doctest: +SKIP

        Args:
            source: a path or glob (Parquet, CSV, JSONL), an iterable of dicts, dataclasses, tuples
                or plain values, an Arrow, pandas or polars table, or a `plait.Source`.
            name: of the source in results and errors.
            event_time: the timestamp that windows and joins use: a column, or an expression such
                as `col("ms").to_timestamp(unit="ms")`.
            out_of_order: how much earlier than the latest time so far a record may be without
                being late (default: not at all).
            max_jump: the most that a single record may advance the watermark, so that one wrong
                time does no harm (None: any).
            idle: after this long without records the source no longer holds back the watermark.
            epoch_records: the most records the source puts into an epoch, instead of the setting.
                Live sources of different rates that are joined by time stay in step if these
                numbers are in proportion to their rates.
            on_error: what happens to a record that cannot be read (a malformed line, a value that
                does not fit its column, a null event time): "fail", "skip" or "dead_letter".
            rename: new names of columns, by the ones they have: `{"user-id": "user"}`. All other
                arguments use the new names.
        """
        with CallSite("source") as call:
            opened = source_object(source)
            opened.check()
            schema = schema_of(opened)
            policy = checked_policy(on_error)
            names = old_to_new(rename)
            computed = event_time if isinstance(event_time, Expr) else None
            column = None if isinstance(event_time, Expr) else event_time
            if names and column is not None:
                check_column(column, projections.rename(schema, names).schema)
                column = {new: old for old, new in names.items()}.get(column, column)
            fixed = opened.fixed and policy == "fail"
            if computed is None:
                time = source_time(schema, column, out_of_order, max_jump, idle, fixed)
            else:
                time = computed_source_time(schema, computed, names, max_jump)
            refuse_nulls(opened, time, policy)
            if event_time is not None:
                opened.check_time(time.column or "")
            if time.column is None:
                opened.check_untimed()
            label = own_label(name, opened, self._names(SourceOp, call))
            if name is not None:
                self._free_name(SourceOp, name)
            parted = by_partition(opened, time)
            op = SourceOp(
                name="source",
                at=call.at,
                inputs=(),
                schema=time.schema if parted is None else parted.schema,
                source=opened if parted is None else parted.source,
                label=label,
                event_time=time.column,
                computed_time=time.computed,
                clock=None if parted is None else parted.column,
                out_of_order_us=time.out_of_order_us,
                max_jump_us=time.max_jump_us if parted is None else LONGEST_US,
                idle_us=time.idle_us,
                epoch_records=checked_records(epoch_records),
                on_error=policy,
            )
            stream = self._add(op, NEVER if time.column is None else col(time.column))
            if parted is not None:
                call.name = "source.columns"
                columns = projections.drop(parted.schema, [parted.column]).columns
                own = projections.Projection(columns=columns, schema=time.schema)
                stream = add_select(call, stream, own, "fail")
            if names:
                call.name = "rename"
                renamed = projections.rename(time.schema, names)
                stream = add_select(call, stream, renamed, "fail")
            if computed is None:
                return stream
            call.name = "with_event_time"
            return add_event_time(call, stream, computed, out_of_order, max_jump, idle, policy)

    def graph(self) -> Graph:
        """The job as plain data (`plait.graph.operators.Graph`), checked.

        A stream that no sink reads is an error, unless it was looked at (`show`, `collect`) or
        typed into a notebook or a prompt: then it is left out.

        >>> job = plait.Job("totals")
        >>> _ = job.source([1, 2]).sink(plait.Discard())
        >>> [str(operator).split()[0] for operator in job.graph().operators]
        ['source', 'sink']
        """
        kept = cut_out(with_labels(self._operators), self._kept())
        operators = prune_columns(with_shedders(kept))
        graph = Graph(name=self.name, operators=operators, dead_letters=self.dead_letters)
        check(graph)
        check_functions(graph)
        return graph

    def explain(self, **settings: Any) -> None:
        """Prints the stages of the job and, for each Python function, where it runs and why.

        >>> job = plait.Job("totals")
        >>> _ = job.source([1, 2]).sink(plait.Discard())
        >>> job.explain(workers=4)
        job totals: 4 workers, scheduler ct, total order, ...

        `settings` are those of `run`, such as `workers=4`. With `checkpoint=` the plan says how
        each sink delivers, and whether each source can be read again.
        """
        from plait.graph.explain import explain_text

        print(explain_text(self.graph(), settings))

    def run(
        self,
        *,
        workers: int | Literal["elastic"] | None = None,
        limit: int | None = None,
        timeout: float | Duration | None = None,
        progress: bool | None = None,
        dead_letters: Sink | None = None,
        checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
        **settings: Any,
    ) -> Result:
        """Runs the job in this process until its sources end.

        >>> job = plait.Job("totals")
        >>> _ = job.source([1, 2]).sink(plait.Discard())
        >>> job.run(workers=4, timeout="10m").account.delivered
        2

        Args:
            workers: threads; by default one for each core. "elastic": the number that gives the
                best throughput, found while the job runs.
            limit: stop after this many records of each source.
            timeout: stop after this long and raise `plait.TimedOut`.
            progress: show a progress line; by default if stderr is a terminal.
            dead_letters: a sink for dead letters, in place of that of the job.
            checkpoint: where its state is saved while it runs; the next run goes on from there.
            settings: any other field of `plait.Settings`.

        Returns:
            The `plait.Result`: outputs, counts and dead letters.
        """
        from plait.execution.local_run import run

        return run(
            self,
            workers=workers,
            limit=limit,
            timeout=timeout,
            progress=progress,
            dead_letters=dead_letters,
            checkpoint=checkpoint,
            **settings,
        )

    def _kept(self) -> list[int]:
        """The operators that lead to a sink, and those that should."""
        last = [
            number
            for number, op in enumerate(self._operators)
            if number not in self._replaced
            and (isinstance(op, SinkOp) or not (number in self._looked_at or was_typed_in(op.at)))
        ]
        return sorted({kept for number in last for kept in upstream(self._operators, number)})

    def _names(self, kind: type[SourceOp | SinkOp], call: CallSite) -> list[str]:
        """The names of sources or sinks that are taken. A cell of a notebook may be run again, and
        uses its names again."""
        if was_typed_in(call.at):
            return []
        return [op.label for op in self._operators if isinstance(op, kind)]

    def _free_name(self, kind: type[SourceOp | SinkOp], name: str) -> None:
        """Takes a name back from the end that has it; a sink is left out from now on."""
        for number, op in enumerate(self._operators):
            if isinstance(op, kind) and op.label == name:
                self._operators[number] = replace(op, label="")
                if isinstance(op, SinkOp):
                    self._replaced.add(number)

    def _add(self, op: AnyOp, time: Time) -> Stream:
        here = region.get()
        self._operators.append(op if here is None else replace(op, region=here))
        return Stream(self, len(self._operators) - 1, time)

    def _absorb(self, other: Job) -> None:
        """Takes over the operators of a job without a name. Its streams find them by `_merged`."""
        offset = len(self._operators)
        for op in other._operators:
            inputs = tuple(number + offset for number in op.inputs)
            self._operators.append(replace(op, inputs=inputs))
        self._looked_at.update(number + offset for number in other._looked_at)
        self._replaced.update(number + offset for number in other._replaced)
        other._operators.clear()
        other._merged = (self, offset)


def stream(
    x: Any,
    name: str | None = None,
    *,
    event_time: str | Expr | None = None,
    out_of_order: Duration | None = None,
    max_jump: Duration | None = "1d",
    idle: Duration | None = None,
    epoch_records: int | None = None,
    on_error: OnError = "fail",
    rename: Mapping[str, str] | None = None,
) -> Stream:
    """A stream of what a source reads, in a new job without a name.

    >>> plait.stream([{"auction": 1, "price": 30}]).key_by("auction").count().collect()
    [Record(auction=1, count=1)]
    >>> plait.stream("bids/*.parquet", event_time="ts", out_of_order="5s")  # doctest: +SKIP

    `x` is a path or glob (Parquet, CSV, JSONL), an iterable of dicts, dataclasses, tuples or plain
    values, an Arrow, pandas or polars table, or a `plait.Source`. The other arguments are those of
    `Job.source`.
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
        on_error=on_error,
        rename=rename,
    )


def source_object(source: Any) -> Source:
    """The `plait.Source` for what the user gave."""
    from plait.connectors.base import Source

    if isinstance(source, Source):
        return source
    if isinstance(source, Stream | KeyedStream | Job):
        raise JobError(f"{source!r} is not a source; call its methods")
    from plait.connectors.convert import to_source

    return to_source(source)


def schema_of(source: Source) -> Schema:
    """The schema of a source; its class may be the user's."""
    try:
        given = source.schema
    except AttributeError as error:
        name = type(source).__name__
        raise JobError(
            f"{name} has no schema; write in the class: schema = plait.Schema.of({{...}})"
        ) from error
    return Schema.of(given)
