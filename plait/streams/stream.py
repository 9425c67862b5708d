"""Streams: the fluent builder. Every method adds operators to the job's graph; nothing runs.

A stream is a place in a job: the number of the operator that makes it. Each method checks what it
was given against the stream's schema and raises a JobError that names the operator and the user's
line, so a job that could be built can run. When streams of jobs without a name meet in a union, the
jobs become one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from plait.errors import JobError
from plait.expr.tree import col
from plait.expr.type_checker import check_column
from plait.graph.labels import with_labels
from plait.graph.operators import (
    AnyOp,
    OnError,
    Route,
    SinkOp,
    SourceOp,
    UnionOp,
    cut_out,
    upstream,
)
from plait.model.call_site import CallSite
from plait.streams import projections
from plait.streams.arguments import (
    checked_keys,
    checked_policy,
    checked_sink,
    key_name,
    own_label,
)
from plait.streams.event_time import (
    NEVER,
    Time,
    behind,
    of_union,
    still_time,
    ttl_of,
)
from plait.streams.join_verbs import Joining
from plait.streams.process_verbs import processed
from plait.streams.row_verbs import Manner, Rowwise, chosen, computed
from plait.streams.state_verbs import Over, Running
from plait.streams.stream_protocol import Site
from plait.streams.union_schema import union_schema
from plait.streams.window_verbs import Windowing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.connectors.base import Sink
    from plait.functions.process import Process
    from plait.model.schema import Schema
    from plait.results.result import Result
    from plait.streams.job import Job


class Stream(Rowwise["Stream"], Running["Stream"], Windowing["Stream"], Joining["Stream"]):
    """Records of one schema, in order. Made by `plait.stream`, `Job.source` and its own methods."""

    def __init__(self, job: Job, number: int, time: Time = NEVER) -> None:
        self._made_in = job
        self._made_as = number
        self._time = time
        """The event time, an expression over the columns."""

    def __repr__(self) -> str:
        return f"Stream({self.schema}) made by {self._op}"

    @property
    def job(self) -> Job:
        """The job that this stream belongs to."""
        return self._found()[0]

    @property
    def schema(self) -> Schema:
        """The columns of the stream."""
        return self._op.schema

    @property
    def _number(self) -> int:
        return self._found()[1]

    @property
    def _op(self) -> AnyOp:
        job, number = self._found()
        return job._operators[number]

    def _found(self) -> tuple[Job, int]:
        job, number = self._made_in, self._made_as
        while job._merged is not None:
            job, offset = job._merged
            number += offset
        return job, number

    def _over(self) -> Over:
        return Over(number=self._number, schema=self.schema)

    def _site(self) -> Site[Stream]:
        return Site(stream=self)

    def _left(self) -> Stream:
        return self

    def _rows(self) -> Stream:
        return self

    def _united(self, place: CallSite, others: Sequence[Stream], name: str) -> Stream:
        return united(place, (self, *others), name)

    def _made(self, op: AnyOp, time: Time | None = None) -> Stream:
        """The stream of an operator that reads this one; `time`: its event time, if it has
        another."""
        return self.job._add(op, behind(op, self._time) if time is None else time)

    def with_event_time(self, column: str) -> Stream:
        """The same records with another column as their event time.

        The watermark stays that of the sources: a record whose new time is far behind it is late.
        """
        with CallSite("with_event_time"):
            field = self.schema[check_column(column, self.schema)]
            if not still_time(col(column), self.schema):
                raise JobError(f"column {field} is no event time; it must be a timestamp, not null")
            operators = self.job._operators
            above = [operators[number] for number in upstream(operators, self._number)]
            if not any(isinstance(one, SourceOp) and one.event_time for one in above):
                raise JobError(
                    "no source of the stream has an event time, so there is no watermark;"
                    ' say it there: source(..., event_time="ts")'
                )
            return Stream(self.job, self._number, col(column))

    def key_by(
        self, *columns: Any, on_error: OnError = "fail", ttl: Any = None, **named: Any
    ) -> KeyedStream:
        """Records with equal values in these columns share a state; `named` computes key columns.

        A NaN cannot be a key; null is a key of its own. With `ttl="1h"` the state of a key is
        forgotten when so much event time has gone by since its last record.
        """
        with CallSite("key_by") as place:
            names = [key_name(column) for column in columns]
            policy = checked_policy(on_error)
            ttl_us = ttl_of(ttl, self._time)
            if not named:
                return KeyedStream(self, checked_keys(names, self.schema), policy, ttl_us)
            calls, projection = projections.with_columns(self.schema, named, None)
            made = projection or calls
            assert made is not None
            keys = checked_keys((*names, *named), made.schema)
            stream = computed(place, self, (calls, projection), Manner(on_error=policy))
            return KeyedStream(stream, keys, policy, ttl_us)

    def union(self, *others: Stream) -> Stream:
        """This stream and others of the same columns as one."""
        with CallSite("union") as place:
            return united(place, (self, *others))

    def sink(self, sink: Sink, name: str | None = None) -> Stream:
        """Sends the records to a sink. Returns this stream, so that it can go on or be `run`.

        `name` is the sink's name in `Result.outputs`.
        """
        with CallSite("sink") as place:
            checked_sink(sink)
            taken = [op.label for op in self.job._operators if isinstance(op, SinkOp)]
            op = SinkOp(
                name="sink",
                at=place.at,
                inputs=(self._number,),
                schema=self.schema,
                sink=sink,
                label=own_label(name, sink, taken),
            )
            self._made(op)
            return self

    def run(self, **settings: Any) -> Result:
        """Runs the whole job of this stream to its sinks; arguments as of `Job.run`."""
        return self.job.run(**settings)

    def to_arrow(self, **settings: Any) -> Any:
        """Runs what makes this stream and gives its records as a `pyarrow.Table`."""
        with CallSite("to_arrow") as place:
            alone = self._alone(place, None)
        return alone.run(**settings).outputs[COLLECTED]

    def collect(self, **settings: Any) -> list[Any]:
        """Runs what makes this stream and gives its records as a list."""
        from plait.model.records import records_of

        with CallSite("collect") as place:
            alone = self._alone(place, None)
        table = alone.run(**settings).outputs[COLLECTED]
        return [record for batch in table.to_batches() for record in records_of(batch, self.schema)]

    def show(self, n: int = 10, **settings: Any) -> None:
        """Runs what makes this stream until `n` records are there, and prints them as a table."""
        from plait.text.tables import format_table

        with CallSite("show") as place:
            if not isinstance(n, int) or n < 1:
                raise JobError(f"n is {n!r}; it must be a whole number above 0")
            alone = self._alone(place, n)
        print(format_table(alone.run(**settings).outputs[COLLECTED], n, self.schema))

    def explain(self, **settings: Any) -> None:
        """Prints the stages that make this stream and the route of each function, and why."""
        from plait.graph.explain import explain_text

        with CallSite("explain") as place:
            alone = self._alone(place, None)
        print(explain_text(alone.graph(), settings))

    def _alone(self, place: CallSite, limit: int | None) -> Job:
        """A job of what makes this stream and a sink that collects it; other sinks stay out."""
        from plait.connectors.memory_sinks import Collect

        operators = with_labels(self.job._operators)
        keep = upstream(operators, self._number)
        job = type(self.job)(self.job.name)
        job._operators.extend(cut_out(operators, keep))
        Stream(job, len(keep) - 1).sink(Collect(limit=limit), name=COLLECTED)
        job._operators[-1] = replace(job._operators[-1], name=place.name, at=place.at)
        return job


class KeyedStream(Running[Stream], Windowing[Stream]):
    """A stream whose records are told apart by key. Its methods give streams again."""

    def __init__(
        self, stream: Stream, keys: tuple[str, ...], on_error: OnError, ttl_us: int = 0
    ) -> None:
        self._stream = stream
        self._on_error = on_error
        self._ttl_us = ttl_us
        self.keys = keys

    def __repr__(self) -> str:
        return f"KeyedStream({self.schema}) by {', '.join(self.keys)}"

    def __getattr__(self, name: str) -> NoReturn:
        if hasattr(Joining, name) and not name.startswith("_"):
            raise AttributeError(
                f"a keyed stream has no {name}, which goes by on=; write it before key_by"
            )
        if hasattr(Stream, name) and not name.startswith("_"):
            raise AttributeError(
                f"a keyed stream has no {name}; after key_by comes count, sum, aggregate, fold,"
                f" stateful, process or a window, and then {name}"
            )
        raise AttributeError(f"a keyed stream has no {name}")

    @property
    def schema(self) -> Schema:
        """The columns of the records."""
        return self._stream.schema

    @property
    def job(self) -> Job:
        """The job that this stream belongs to."""
        return self._stream.job

    def process(
        self, process: Process, *, on_error: OnError | None = None, route: Route = "auto"
    ) -> Stream:
        """State of your own: `process(Spike())`, where Spike is a `plait.Process`.

        The event time is kept if what it yields has the columns of it, of the same types. `route`:
        as of `fold`.
        """
        with CallSite("process") as place:
            return processed(place, self._site(), process, on_error, route)

    def _over(self) -> Over:
        number, schema = self._stream._number, self.schema
        return Over(number=number, schema=schema, keys=self.keys, on_error=self._on_error)

    def _site(self) -> Site[Stream]:
        ttl_us, on_error = self._ttl_us, self._on_error
        return Site(stream=self._stream, keys=self.keys, on_error=on_error, ttl_us=ttl_us)

    def _kept(self) -> Site[Stream] | None:
        return self._site() if self._ttl_us else None

    def _made(self, op: AnyOp) -> Stream:
        return self._stream._made(op)


COLLECTED = "collected"
"""The label of the sink behind collect, show and to_arrow."""


def union(*streams: Stream) -> Stream:
    """Streams of the same columns as one, in the order of their records."""
    with CallSite("union") as place:
        return united(place, streams)


def united(place: CallSite, streams: Sequence[Stream], name: str = "union") -> Stream:
    if not streams:
        raise JobError("give at least one stream")
    for one in streams:
        if not isinstance(one, Stream):
            raise JobError(f"{one!r} is not a stream")
    if len(streams) == 1:
        return streams[0]
    schema = union_schema([(one._op, one.schema) for one in streams])
    job = same_job([one.job for one in streams])
    inputs: list[int] = []
    for one in streams:
        again = one._number in inputs
        inputs.append(passed_on(place, one)._number if again else one._number)
    op = UnionOp(name=name, at=place.at, inputs=tuple(inputs), schema=schema)
    return job._add(op, of_union([one._time for one in streams]))


def passed_on(place: CallSite, one: Stream) -> Stream:
    """The same records from an operator of their own, so that a stream can meet itself."""
    columns = [(name, col(name)) for name in one.schema.names]
    return chosen(place, one, projections.projection(columns, one.schema), "fail")


def same_job(jobs: Sequence[Job]) -> Job:
    """The job that holds all of these; those without a name go into the one with a name, if any."""
    every = list(dict.fromkeys(jobs))
    named = [job for job in every if not job._nameless]
    if len(named) > 1:
        names = " and ".join(f'"{job.name}"' for job in named)
        raise JobError(f"the streams are of several jobs, {names}; make their sources in one job")
    home = named[0] if named else every[0]
    for job in every:
        if job is not home:
            home._absorb(job)
    return home
