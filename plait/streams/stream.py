"""Job and streams: the fluent builder. Every method adds nodes to the job's graph; nothing runs.

A stream is a place in a job: the number of the node that makes it. Each method checks what it was
given against the stream's schema and raises a JobError that names the operator and the user's line,
so a job that could be built can run. `plait.stream` makes a job without a name; when streams of
such jobs meet in a union, the jobs become one.

    >>> bids = stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 12}])
    >>> bids.filter(col("price") > 20).key_by("auction").count().schema
    auction: int64, count: int64
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from plait import projections
from plait.checks import (
    checked_keys,
    checked_policy,
    checked_records,
    checked_sink,
    key_name,
    own_label,
)
from plait.connected import processed
from plait.errors import JobError
from plait.event_time import (
    NEVER,
    Time,
    behind,
    none_null,
    of_union,
    source_time,
    still_time,
    ttl_of,
)
from plait.expr import col
from plait.graph import (
    AnyNode,
    Graph,
    OnError,
    Route,
    SinkNode,
    SourceNode,
    UnionNode,
    check,
    cut_out,
    upstream,
)
from plait.joins import Joining
from plait.labels import labelled
from plait.model import Schema
from plait.narrow import narrowed
from plait.place import Place
from plait.regions import current as region
from plait.rowwise import Manner, Rowwise, chosen, computed
from plait.running import Over, Running
from plait.streaming import Site
from plait.typing_rules import known
from plait.unions import union_schema
from plait.windowed import Windowing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.process import Process
    from plait.result import Result
    from plait.sinks.base import Sink


class Job:
    """A named set of sources, operators and sinks."""

    def __init__(self, name: str, *, dead_letters: Sink | None = None) -> None:
        """`dead_letters` is a sink for records that an operator with on_error="dead_letter" could
        not take; without it they are in `Result.dead_letters` alone."""
        if not isinstance(name, str) or not name:
            raise JobError(f"a job needs a name, not {name!r}")
        self.name = name
        self.dead_letters = None if dead_letters is None else checked_sink(dead_letters)
        self._nodes: list[AnyNode] = []
        self._nameless = False
        self._merged: tuple[Job, int] | None = None
        """The job that took this one's nodes, and what their numbers moved by."""

    def __repr__(self) -> str:
        return f'Job("{self.name}", {len(self._nodes)} operators)'

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
        with Place("source") as place:
            opened = converted(source)
            given = Schema.of(opened.schema)
            fixed = type(opened).__name__ == "Items"
            told = source_time(given, event_time, out_of_order, max_jump, idle, fixed)
            time = none_null(opened, told)
            taken = [node.label for node in self._nodes if isinstance(node, SourceNode)]
            node = SourceNode(
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
            return self._add(node, NEVER if time.column is None else col(time.column))

    def graph(self) -> Graph:
        """The job as plain data, checked."""
        nodes = narrowed(labelled(self._nodes))
        graph = Graph(name=self.name, nodes=nodes, dead_letters=self.dead_letters)
        check(graph)
        return graph

    def explain(self, **settings: Any) -> None:
        """Prints the stages of the job and, for each function, the route it takes and why."""
        from plait.explain import explained

        print(explained(self.graph(), settings))

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
        from plait.run import run

        return run(
            self, workers=workers, limit=limit, timeout=timeout, progress=progress, **settings
        )

    def _add(self, node: AnyNode, time: Time) -> Stream:
        here = region.get()
        self._nodes.append(node if here is None else replace(node, region=here))
        return Stream(self, len(self._nodes) - 1, time)

    def _absorb(self, other: Job) -> None:
        """Takes over the nodes of a job without a name; its streams find them by `_merged`."""
        offset = len(self._nodes)
        for node in other._nodes:
            inputs = tuple(given + offset for given in node.inputs)
            self._nodes.append(replace(node, inputs=inputs))
        other._nodes.clear()
        other._merged = (self, offset)


class Stream(Rowwise["Stream"], Running["Stream"], Windowing["Stream"], Joining["Stream"]):
    """Records of one schema, in order. Made by `plait.stream`, `Job.source` and its own methods."""

    def __init__(self, job: Job, number: int, time: Time = NEVER) -> None:
        self._made_in = job
        self._made_as = number
        self._time = time
        """The event time, an expression over the columns."""

    def __repr__(self) -> str:
        return f"Stream({self.schema}) made by {self._node}"

    @property
    def job(self) -> Job:
        """The job that this stream belongs to."""
        return self._found()[0]

    @property
    def schema(self) -> Schema:
        """The columns of the stream."""
        return self._node.schema

    @property
    def _number(self) -> int:
        return self._found()[1]

    @property
    def _node(self) -> AnyNode:
        job, number = self._found()
        return job._nodes[number]

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

    def _united(self, place: Place, others: Sequence[Stream], name: str) -> Stream:
        return united(place, (self, *others), name)

    def _made(self, node: AnyNode, time: Time | None = None) -> Stream:
        """The stream of a node that reads this one; `time`: its event time, if it has another."""
        return self.job._add(node, behind(node, self._time) if time is None else time)

    def with_event_time(self, column: str) -> Stream:
        """The same records with another column as their event time.

        The watermark stays that of the sources: a record whose new time is far behind it is late.
        """
        with Place("with_event_time"):
            field = self.schema[known(column, self.schema)]
            if not still_time(col(column), self.schema):
                raise JobError(f"column {field} is no event time; it must be a timestamp, not null")
            nodes = self.job._nodes
            above = [nodes[number] for number in upstream(nodes, self._number)]
            if not any(isinstance(one, SourceNode) and one.event_time for one in above):
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
        with Place("key_by") as place:
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
        with Place("union") as place:
            return united(place, (self, *others))

    def sink(self, sink: Sink, name: str | None = None) -> Stream:
        """Sends the records to a sink. Returns this stream, so that it can go on or be `run`.

        `name` is the sink's name in `Result.outputs`.
        """
        with Place("sink") as place:
            checked_sink(sink)
            taken = [node.label for node in self.job._nodes if isinstance(node, SinkNode)]
            node = SinkNode(
                name="sink",
                at=place.at,
                inputs=(self._number,),
                schema=self.schema,
                sink=sink,
                label=own_label(name, sink, taken),
            )
            self._made(node)
            return self

    def run(self, **settings: Any) -> Result:
        """Runs the whole job of this stream to its sinks; arguments as of `Job.run`."""
        return self.job.run(**settings)

    def to_arrow(self, **settings: Any) -> Any:
        """Runs what makes this stream and gives its records as a `pyarrow.Table`."""
        with Place("to_arrow") as place:
            alone = self._alone(place, None)
        return alone.run(**settings).outputs[COLLECTED]

    def collect(self, **settings: Any) -> list[Any]:
        """Runs what makes this stream and gives its records as a list."""
        from plait.records import records_of

        with Place("collect") as place:
            alone = self._alone(place, None)
        table = alone.run(**settings).outputs[COLLECTED]
        return [record for batch in table.to_batches() for record in records_of(batch, self.schema)]

    def show(self, n: int = 10, **settings: Any) -> None:
        """Runs what makes this stream until `n` records are there, and prints them as a table."""
        from plait.sinks.text import format_table

        with Place("show") as place:
            if not isinstance(n, int) or n < 1:
                raise JobError(f"n is {n!r}; it must be a whole number above 0")
            alone = self._alone(place, n)
        print(format_table(alone.run(**settings).outputs[COLLECTED], n, self.schema))

    def explain(self, **settings: Any) -> None:
        """Prints the stages that make this stream and the route of each function, and why."""
        from plait.explain import explained

        with Place("explain") as place:
            alone = self._alone(place, None)
        print(explained(alone.graph(), settings))

    def _alone(self, place: Place, limit: int | None) -> Job:
        """A job of what makes this stream and a sink that collects it; other sinks stay out."""
        from plait.sinks.memory import Collect

        nodes = labelled(self.job._nodes)
        keep = upstream(nodes, self._number)
        job = Job(self.job.name)
        job._nodes.extend(cut_out(nodes, keep))
        Stream(job, len(keep) - 1).sink(Collect(limit=limit), name=COLLECTED)
        job._nodes[-1] = replace(job._nodes[-1], name=place.name, at=place.at)
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
        with Place("process") as place:
            return processed(place, self._site(), process, on_error, route)

    def _over(self) -> Over:
        number, schema = self._stream._number, self.schema
        return Over(number=number, schema=schema, keys=self.keys, on_error=self._on_error)

    def _site(self) -> Site[Stream]:
        ttl_us, on_error = self._ttl_us, self._on_error
        return Site(stream=self._stream, keys=self.keys, on_error=on_error, ttl_us=ttl_us)

    def _kept(self) -> Site[Stream] | None:
        return self._site() if self._ttl_us else None

    def _made(self, node: AnyNode) -> Stream:
        return self._stream._made(node)


COLLECTED = "collected"
"""The label of the sink behind collect, show and to_arrow."""


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


def union(*streams: Stream) -> Stream:
    """Streams of the same columns as one, in the order of their records."""
    with Place("union") as place:
        return united(place, streams)


def united(place: Place, streams: Sequence[Stream], name: str = "union") -> Stream:
    if not streams:
        raise JobError("give at least one stream")
    for one in streams:
        if not isinstance(one, Stream):
            raise JobError(f"{one!r} is not a stream")
    if len(streams) == 1:
        return streams[0]
    schema = union_schema([(one._node, one.schema) for one in streams])
    job = same_job([one.job for one in streams])
    inputs: list[int] = []
    for one in streams:
        again = one._number in inputs
        inputs.append(passed_on(place, one)._number if again else one._number)
    node = UnionNode(name=name, at=place.at, inputs=tuple(inputs), schema=schema)
    return job._add(node, of_union([one._time for one in streams]))


def passed_on(place: Place, one: Stream) -> Stream:
    """The same records from a node of their own, so that a stream can meet itself."""
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


def converted(source: Any) -> Any:
    """The source object for whatever the user gave."""
    from plait.sources.base import Source

    if isinstance(source, Source):
        return source
    if isinstance(source, Stream | KeyedStream | Job):
        raise JobError(f"{source!r} is not a source; call its methods")
    from plait.sources.convert import to_source

    return to_source(source)
