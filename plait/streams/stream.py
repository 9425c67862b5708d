"""Streams: the fluent builder. Every method adds operators to the job's graph; nothing runs.

A stream is a job and the number of the operator whose output it is. Each method checks its
arguments against the stream's schema and raises a JobError that names the operator and the user's
line, so a job that could be built can run. When streams of jobs without a name meet in a union, the
jobs become one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from plait.connectors.base import checked_sink
from plait.errors import JobError
from plait.expr.tree import Expr, col
from plait.graph.labels import with_labels
from plait.graph.naming import name_operator
from plait.graph.operators import (
    AnyOp,
    OnError,
    Route,
    ShedOp,
    SinkOp,
    SourceOp,
    UnionOp,
    cut_out,
    upstream,
)
from plait.graph.shedders.arguments import checked_quality
from plait.model.call_site import CallSite
from plait.model.schema import Schema
from plait.streams import projections
from plait.streams.arguments import (
    checked_keys,
    checked_policy,
    key_name,
    own_label,
    split_named,
)
from plait.streams.event_time import (
    NEVER,
    Time,
    key_ttl_us,
    time_after,
    union_time,
)
from plait.streams.join_verbs import JoinVerbs
from plait.streams.output_schemas import check_repeatable, union_schema
from plait.streams.process_verbs import add_process
from plait.streams.row_verbs import Manner, RowVerbs, add_columns, add_select
from plait.streams.state_verbs import StateVerbs
from plait.streams.stream_protocol import Site, add_event_time
from plait.streams.window_verbs import WindowVerbs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.connectors.base import Sink
    from plait.functions.process import Process
    from plait.graph.shedders.quality import BelowFloor, ShedMode
    from plait.model.durations import Duration
    from plait.results.result import Result
    from plait.streams.job import Job


class Stream(RowVerbs["Stream"], StateVerbs["Stream"], WindowVerbs["Stream"], JoinVerbs["Stream"]):
    """Records of one schema, in order. Made by `plait.stream`, `Job.source` and other streams.

    >>> bids = plait.stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 50}])
    >>> bids.filter(plait.col("price") > 0).key_by("auction").sum("price").collect()
    [Record(auction=1, sum=30), Record(auction=1, sum=80)]

    A stream describes what to compute; nothing runs before `run`, `collect`, `show` or `to_arrow`.
    It can be used more than once. Its aggregates and states are over all records; use `key_by` for
    one by key.
    """

    def __init__(self, job: Job, number: int, time: Time = NEVER) -> None:
        self._made_in = job
        self._made_as = number
        self._time = time
        """The event time, an expression over the columns."""

    def __repr__(self) -> str:
        return f"Stream({self.schema}) made by {self._op}"

    if not TYPE_CHECKING:  # a type checker knows the methods

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"a stream has no {name}{OTHER_WORDS.get(name, '')}")

    @property
    def job(self) -> Job:
        """The job that this stream belongs to."""
        return self._resolve()[0]

    @property
    def schema(self) -> Schema:
        """The columns: their names, types, and whether they may be null."""
        return self._op.schema

    @property
    def _number(self) -> int:
        return self._resolve()[1]

    @property
    def _op(self) -> AnyOp:
        job, number = self._resolve()
        return job._operators[number]

    def _resolve(self) -> tuple[Job, int]:
        """The job that holds the operator now, and its number there."""
        job, number = self._made_in, self._made_as
        while job._merged is not None:
            job, offset = job._merged
            number += offset
        return job, number

    def _site(self) -> Site[Stream]:
        return Site(stream=self)

    def _union(self, call: CallSite, others: Sequence[Stream], name: str) -> Stream:
        return add_union(call, (self, *others), name)

    def _append(self, op: AnyOp, time: Time | None = None) -> Stream:
        return self.job._add(op, time_after(op, self._time) if time is None else time)

    def with_keep_ratio(self, name: str = "keep_ratio") -> Stream:
        """Adds a column with the share of the input that is kept under overload.

        >>> bids = plait.stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 50}])
        >>> bids.with_keep_ratio().collect()[0]
        Record(auction=1, price=30, keep_ratio=1.0)

        It is 1 as long as nothing is shed, and of a stream that a lossless query reads. Each
        record stands for `1 / keep_ratio` records of the input: the sum of that over a window
        estimates how many there were, and the number of records over that sum is how complete it
        is (`docs/shedding.md`). Write it before windows and joins, on the branch of the query.
        """
        with CallSite("with_keep_ratio") as call:
            if name in self.schema.names:
                raise JobError(f'there is a column "{name}" already: with_keep_ratio("other")')
            made = Schema.of({name: float}).fields
            op = ShedOp(
                name="with_keep_ratio",
                at=call.at,
                inputs=(self._number,),
                schema=Schema((*self.schema.fields, *made)),
                samples=(),
                why="what is kept is told here",
                ratio=name,
            )
            return self._append(op)

    def with_event_time(
        self,
        time: str | Expr,
        *,
        out_of_order: Duration | None = None,
        max_jump: Duration | None = "1d",
        idle: Duration | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """Names the event time of the records as they are here: a column or an expression.

        >>> lines = plait.stream(["1,1700000000", "2,1700000090"])
        >>> def parse(line):
        ...     order, at = line.value.split(",")
        ...     return {"order": int(order), "at": int(at)}
        >>> orders = lines.map(parse, schema={"order": int, "at": int})
        >>> timed = orders.with_event_time(plait.col("at").to_timestamp(unit="s"))
        >>> timed.tumbling("1m").count().select("count").collect()
        [Record(count=1), Record(count=1)]

        It may follow any operator: a function that decodes records, a `flat_map`, a union, a window
        or a join. From here on only the records that pass here move time; the event time of the
        sources has no effect any more. The pieces of one record of a `flat_map` count together, so
        they do not make each other late.

        Args:
            time: the name of a column, or an expression that is a timestamp.
            out_of_order: how much earlier than the latest time so far a record may be without
                being late (default: not at all).
            max_jump: the most that one record may advance the watermark (None: any).
            idle: after this long without records here, by the wall clock, the operators after it
                no longer wait for more.
            on_error: what happens to a record whose time is null, cannot be computed, or is more
                than 146,000 years from 1970: "fail", "skip" or "dead_letter".
        """
        with CallSite("with_event_time") as call:
            return add_event_time(call, self, time, out_of_order, max_jump, idle, on_error)

    def key_by(
        self,
        *columns: str | Expr | Mapping[str, Any],
        on_error: OnError = "fail",
        ttl: Duration | None = None,
        **named: Any,
    ) -> KeyedStream:
        """Partitions the stream by these columns. Keyword arguments add computed key columns.

        >>> bids = plait.stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 50}])
        >>> bids.key_by("auction").sum("price").collect()
        [Record(auction=1, sum=30), Record(auction=1, sum=80)]
        >>> bids.key_by(cheap=plait.col("price") < 40).count().collect()
        [Record(cheap=True, count=1), Record(cheap=False, count=1)]

        Args:
            columns: names of columns, `col("name")`, or dicts like `named`. Records with equal
                values share a state. A null is a key like any other; a NaN cannot be one.
            on_error: what happens to a record whose key cannot be computed or is NaN, and the
                default for the operators after it: "fail", "skip" or "dead_letter".
            ttl: the state of a key is dropped after this much event time without a record.
            named: expressions or functions, as in `with_columns`.
        """
        with CallSite("key_by") as call:
            plain, named = split_named(columns, named)
            names = [key_name(column) for column in plain]
            policy = checked_policy(on_error)
            ttl_us = key_ttl_us(ttl, self._time)
            if not named:
                return KeyedStream(self, checked_keys(names, self.schema), policy, ttl_us)
            calls, projection = projections.with_columns(self.schema, named, None)
            last = projection or calls
            assert last is not None
            keys = checked_keys((*names, *named), last.schema)
            stream = add_columns(call, self, (calls, projection), Manner(on_error=policy))
            return KeyedStream(stream, keys, policy, ttl_us)

    def union(self, *others: Stream) -> Stream:
        """This stream and others with the same columns as one.

        >>> clicks, views = plait.stream(["a", "b"]), plait.stream(["c"])
        >>> clicks.union(views).count().collect()[-1].count
        3

        Records keep the order in which their sources read them.
        """
        with CallSite("union") as call:
            return add_union(call, (self, *others))

    def sink(
        self,
        sink: Sink,
        name: str | None = None,
        *,
        priority: int = 0,
        min_accuracy: float = 1.0,
        freshness: Duration | None = None,
        shed: ShedMode = "auto",
        below_floor: BelowFloor = "wait",
    ) -> Stream:
        """Writes the records to a sink and returns this stream.

        >>> bids = plait.stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 50}])
        >>> bids.count().sink(plait.Collect(), name="counts").run().outputs["counts"].num_rows
        2

        A sink with all that leads to it is a query. With `min_accuracy` below 1 records that only
        such queries read may be dropped under overload (`docs/shedding.md`); they are counted.

        Args:
            sink: a `plait.Sink`.
            name: of the sink in `Result.outputs`. It is unique in a job. In a notebook a sink
                replaces the one with its name, so a cell can be run again.
            priority: queries of a lower one give way first.
            min_accuracy: the floor: the least share of its input that must be processed, 0 to 1.
                By default nothing is dropped.
            freshness: how old results may become before records are dropped.
            shed: "records" drops single ones, "keys" all records of a key or none; "auto" what the
                operators before the sink need. `explain` shows which, and why.
            below_floor: what becomes of the query if its floor cannot be met: sources "wait", or
                the query is told to "suspend".
        """
        with CallSite("sink") as call:
            quality = checked_quality(
                priority=priority,
                min_accuracy=min_accuracy,
                freshness=freshness,
                shed=shed,
                below_floor=below_floor,
            )
            checked_sink(sink).check(self.schema)
            label = own_label(name, sink, self.job._names(SinkOp, call))
            if name is not None:
                self.job._free_name(SinkOp, name)
            op = SinkOp(
                name="sink",
                at=call.at,
                inputs=(self._number,),
                schema=self.schema,
                sink=sink,
                label=label,
                quality=quality,
            )
            self._append(op)
            return self

    def named(self, name: str, *, was: str = "") -> Stream:
        """Names the operator that made this stream. Its state is kept under that name.

        >>> bids = plait.stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 50}])
        >>> bids.key_by("auction").sum("price").named("spent").collect()
        [Record(auction=1, sum=30), Record(auction=1, sum=80)]

        A checkpoint finds the state of an operator by its name. Without one it is made of the verb,
        its keys and what comes before, and a job in which these change cannot go on with the state.

        Args:
            name: any text without line breaks; once in a job.
            was: the id that it had in earlier checkpoints, if that was another one; it goes on with
                the state that is kept under it. `plait restore --dry-run` shows the ids.

        Returns:
            This stream.
        """
        with CallSite("named"):
            name_operator(self.job._operators, self._number, name, was)
        return self

    def run(self, **settings: Any) -> Result:
        """Runs the whole job of this stream, with all its sinks. Arguments as in `Job.run`.

        >>> plait.stream([1, 2, 3]).sink(plait.Discard()).run().account.delivered
        3
        """
        return self.job.run(**settings)

    def to_arrow(self, **settings: Any) -> Any:
        """Computes this stream and returns its records as a `pyarrow.Table`.

        >>> plait.stream([1, 2, 3]).to_arrow(limit=2).to_pydict()
        {'value': [1, 2]}

        Sinks of the job are left out. Arguments as in `Job.run`.
        """
        with CallSite("to_arrow") as call:
            alone = self._alone(call, None)
        return alone.run(**settings).outputs[COLLECTED]

    def collect(self, **settings: Any) -> list[Any]:
        """Computes this stream and returns its records as a list.

        >>> plait.stream([1, 2, 3]).filter(plait.col("value") > 1).collect()
        [Record(value=2), Record(value=3)]

        Sinks of the job are left out. Arguments as in `Job.run`.
        """
        from plait.model.records import records_of

        with CallSite("collect") as call:
            alone = self._alone(call, None)
        table = alone.run(**settings).outputs[COLLECTED]
        return [record for batch in table.to_batches() for record in records_of(batch, self.schema)]

    def show(self, n: int = 10, **settings: Any) -> None:
        """Computes this stream until there are `n` records and prints them as a table.

        >>> bids = plait.stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 50}])
        >>> bids.show(1)
        auction  price
          int64  int64
        -------  -----
              1     30
        """
        from plait.text.tables import format_table

        with CallSite("show") as call:
            if not isinstance(n, int) or n < 1:
                raise JobError(f"n is {n!r}; it must be a whole number above 0")
            alone = self._alone(call, n)
        print(format_table(alone.run(**settings).outputs[COLLECTED], n, self.schema))

    def explain(self, **settings: Any) -> None:
        """Prints the stages of this stream and, for each Python function, where it runs and why.

        >>> plait.stream([1, 2, 3]).explain(workers=4)
        job job: 4 workers, scheduler ct, total order, ...

        `settings` are those of `Job.run`, such as `workers=4`. With `checkpoint=` the plan says how
        each sink delivers, and whether each source can be read again.
        """
        from plait.graph.explain import explain_text

        with CallSite("explain") as call:
            alone = self._alone(call, None)
        print(explain_text(alone.graph(), settings))

    def _first_records(self, call: CallSite, limit: int) -> list[Any]:
        from plait.model.records import records_of

        operators = with_labels(self.job._operators)
        above = [operators[number] for number in upstream(operators, self._number)]
        check_repeatable([op for op in above if isinstance(op, SourceOp)])
        alone = self._alone(call, None)
        table = alone.run(workers=1, limit=limit, progress=False).outputs[COLLECTED]
        return [record for batch in table.to_batches() for record in records_of(batch, self.schema)]

    def _alone(self, call: CallSite, limit: int | None) -> Job:
        """A job with the operators of this stream and a sink that collects it, and no other."""
        from plait.connectors.memory_sinks import Collect

        operators = with_labels(self.job._operators)
        keep = upstream(operators, self._number)
        self.job._looked_at.update(keep)
        job = type(self.job)(self.job.name)
        job._operators.extend(cut_out(operators, keep))
        Stream(job, len(keep) - 1).sink(Collect(limit=limit), name=COLLECTED)
        job._operators[-1] = replace(job._operators[-1], name=call.name, at=call.at)
        return job


class KeyedStream(StateVerbs[Stream], WindowVerbs[Stream]):
    """A stream partitioned by key, made by `Stream.key_by`.

    >>> bids = plait.stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 50}])
    >>> bids.key_by("auction").max("price").collect()
    [Record(auction=1, max=30), Record(auction=1, max=50)]

    Its aggregates, states, windows and processes work on each key separately, and give streams
    again. The columns of the key come first in their output. `keys` are their names.
    """

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
        if hasattr(JoinVerbs, name) and not name.startswith("_"):
            raise AttributeError(
                f"a keyed stream has no {name}; call it before key_by and name the columns in on="
            )
        if hasattr(Stream, name) and not name.startswith("_"):
            raise AttributeError(
                f"a keyed stream has no {name}; first call count, sum, aggregate, fold, stateful,"
                f" process or a window, and then {name}"
            )
        raise AttributeError(f"a keyed stream has no {name}{OTHER_WORDS.get(name, '')}")

    @property
    def schema(self) -> Schema:
        """The columns of the records.

        >>> bids = plait.stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 50}])
        >>> bids.key_by("auction").schema
        auction: int64, price: int64
        """
        return self._stream.schema

    @property
    def job(self) -> Job:
        """The job that this stream belongs to."""
        return self._stream.job

    def process(
        self, process: Process, *, on_error: OnError | None = None, route: Route = "auto"
    ) -> Stream:
        """Runs a `plait.Process`: custom state by key, timers, any number of outputs.

        >>> class Rises(plait.Process):
        ...     state = {"last": int}
        ...     out = {"item": str, "price": int}
        ...     def on_record(self, key, bid, state, timers):
        ...         if bid.price > state.last:
        ...             yield key, bid.price
        ...         state.last = bid.price
        >>> bids = [{"item": "tea", "price": price} for price in (3, 2, 5)]
        >>> plait.stream(bids).key_by("item").process(Rises()).collect()
        [Record(item='tea', price=3), Record(item='tea', price=5)]

        Args:
            process: an object of a subclass of `plait.Process`.
            on_error: "fail", "skip" or "dead_letter", when a handler raises (default: that of
                `key_by`).
            route: as in `fold`.

        Returns:
            A stream of what the handlers yield. It has the event time of this stream if it has the
            columns of it, with the same types.
        """
        with CallSite("process") as call:
            return add_process(call, self._site(), process, on_error, route)

    def _site(self) -> Site[Stream]:
        ttl_us, on_error = self._ttl_us, self._on_error
        return Site(stream=self._stream, keys=self.keys, on_error=on_error, ttl_us=ttl_us)


OTHER_WORDS = {
    "process": '; first partition it: key_by("column").process(...)',
    "agg": "; use aggregate",
    "assign": "; use with_columns",
    "apply": "; use map",
    "distinct": '; use key_by("column").count().filter(col("count") == 1) for the first of each',
    "drop_duplicates": "; use key_by(...).count() and filter the first of each",
    "foreach": "; use sink(plait.Call(function))",
    "group_by": "; use key_by",
    "groupby": "; use key_by",
    "head": "; use show(n), or collect(limit=n)",
    "limit": "; use show(n), collect(limit=n) or run(limit=n)",
    "order_by": "; a stream has no end to sort at; use top in a window, or sort what collect gives",
    "print": "; use show, or sink(plait.Print())",
    "reduce": "; use fold(init, step)",
    "sort": "; a stream has no end to sort at; use top in a window, or sort what collect gives",
    "take": "; use show(n), collect(limit=n) or run(limit=n)",
    "to_list": "; use collect",
    "to_pandas": "; use to_arrow().to_pandas()",
    "where": "; use filter",
    "window": "; use tumbling, sliding, session or rows",
    "with_column": "; use with_columns",
    "write": '; use sink, such as sink(plait.Files("out.csv"))',
}
"""What plait has for the words of others."""
COLLECTED = "collected"
"""The label of the sink of collect, show and to_arrow."""


def union(*streams: Stream) -> Stream:
    """Streams with the same columns as one, in the order in which their sources are read.

    >>> clicks, views = plait.stream(["a", "b"]), plait.stream(["c"])
    >>> sorted(record.value for record in plait.union(clicks, views).collect())
    ['a', 'b', 'c']
    """
    with CallSite("union") as call:
        return add_union(call, streams)


def add_union(call: CallSite, streams: Sequence[Stream], name: str = "union") -> Stream:
    """The union of some streams; of a single one that stream itself."""
    if not streams:
        raise JobError("give at least one stream")
    for stream in streams:
        if not isinstance(stream, Stream):
            raise JobError(f"{stream!r} is not a stream")
    if len(streams) == 1:
        return streams[0]
    schema = union_schema([(stream._op, stream.schema) for stream in streams])
    job = same_job([stream.job for stream in streams])
    inputs: list[int] = []
    for stream in streams:
        again = stream._number in inputs
        inputs.append(copy_stream(call, stream)._number if again else stream._number)
    op = UnionOp(name=name, at=call.at, inputs=tuple(inputs), schema=schema)
    return job._add(op, union_time([stream._time for stream in streams]))


def copy_stream(call: CallSite, stream: Stream) -> Stream:
    """The same records as the output of another operator, for a union of a stream with itself."""
    columns = [(name, col(name)) for name in stream.schema.names]
    return add_select(call, stream, projections.projection(columns, stream.schema), "fail")


def same_job(jobs: Sequence[Job]) -> Job:
    """One job for all of these: those without a name become part of the one with a name, if any."""
    every = list(dict.fromkeys(jobs))
    named = [job for job in every if not job._nameless]
    if len(named) > 1:
        names = " and ".join(f'"{job.name}"' for job in named)
        raise JobError(
            f"the streams belong to several jobs, {names}; make their sources in one job"
        )
    home = named[0] if named else every[0]
    for job in every:
        if job is not home:
            home._absorb(job)
    return home
