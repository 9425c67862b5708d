"""Random jobs that know time, built through the public API step by step.

Sources have a key, values and an event time that goes on with repeats, gaps, records out of order,
runs of late ones and, now and then, a wild one. Its steps are lengths that the job uses too, so
that records come exactly at ends, gaps and timers. Streams that have an event time get windows of
every kind, joins and processes, and chains of these, and any stream windows by arrival; around them
are the operators of any other random job.
"""

from __future__ import annotations

import datetime
import random
from typing import TYPE_CHECKING, Any

from plait.errors import JobError
from plait.expr import aggregates
from plait.expr.tree import Expr, col, lit
from plait.model.schema import Field, Schema, Type
from plait.streams.process_verbs import connect
from plait.streams.stream import Stream, union
from plait.streams.windows import Rows, Session, Sliding, Tumbling
from plait.testing.random_jobs import TYPES, functions, values
from plait.testing.random_jobs.job_graphs import JobDrawer
from plait.testing.random_jobs.processes import Met, Patient, Watched

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plait.expr.aggregates import Aggregate
    from plait.functions.process import Process

START = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
KEYS = (Type.INT64, Type.INT64, Type.STRING, Type.FLOAT64, Type.BOOL, Type.TIMESTAMP)
VALUES = (Type.INT64, Type.FLOAT64, Type.FLOAT64, Type.STRING)
STEPS = (0, 0, 1, 1, 2, 3, 5, 20, -1, -2, -4, -10)
"""From one event time to the next, in units; and the lengths of the job."""
LENGTHS = (1, 2, 3, 5, 7, 10, 24)
WILD = (-(10**8), 10**6, 10**8)
BOUNDS = ("window_start", "window_end")


class TimedDrawer(JobDrawer):
    """Draws one job whose sources have event times."""

    def __init__(
        self, draw: Callable[[Any], Any], max_rows: int, sources: Sequence[int], processes: bool
    ) -> None:
        super().__init__(draw, max_rows)
        self.sources = sources
        self.unit_us = self.pick([1_000_000, 1_000_000, 1])
        self.lengths = [self.pick(LENGTHS) for _ in range(self.pick([1, 2, 3, 4]))]
        self.processes = processes
        self.paired = False
        """Whether there is a join that gives pairs: two could make too many rows for a test."""

    def read(self) -> None:
        schema = self.timed_schema()
        for _ in range(self.pick(self.sources)):
            if self.pick([False, False, True]):
                schema = self.timed_schema()
            source = self.source(schema, self.timed_rows(schema))
            self.open.append(self.job.source(source, **self.clock()))
        while len(self.open) > 2:
            self.open = [self.unite(self.open[0], self.open[1]), *self.open[2:]]

    def timed_schema(self) -> Schema:
        return Schema(
            (
                Field("k", self.pick(KEYS), self.pick([True, False])),
                Field("v", self.pick(VALUES), self.pick([True, False])),
                Field("w", self.pick(VALUES), self.pick([True, False])),
                Field("ts", Type.TIMESTAMP),
                Field("until", Type.TIMESTAMP),
            )
        )

    def timed_rows(self, schema: Schema) -> list[tuple[Any, ...]]:
        """Rows from a seed: the draws that count are those of the job."""
        from hypothesis import strategies as st

        few: list[list[Any]] = []
        for field in schema.fields[:3]:
            one = values(field.type, far_times=False, huge=False)
            found = self.draw(st.lists(one, min_size=1, max_size=4))
            few.append([None, *found, *found] if field.nullable else found)
        chance = random.Random(self.draw(st.integers(0, 2**32 - 1)))
        size = self.draw(st.integers(0, self.max_rows))
        size = size if self.pick([False, False, True]) else max(size, self.max_rows * 3 // 4)
        rows: list[tuple[Any, ...]] = []
        now = behind = 0
        for _ in range(size):
            now += chance.choice((*STEPS, *self.lengths))
            if chance.randrange(60) == 0:
                now += chance.choice((10, 100)) * chance.choice(self.lengths)  # over many windows
            if chance.randrange(6) == 0:
                behind = chance.choice((0, 0, 1, 2)) * chance.choice(self.lengths)
            wild = chance.choice(WILD) if chance.randrange(60) == 0 else 0
            time = now - behind + wild
            times = [time, time + chance.choice((-1, *LENGTHS, *(-one for one in self.lengths)))]
            ends = [START + datetime.timedelta(microseconds=t * self.unit_us) for t in times]
            rows.append((*map(chance.choice, few), *ends))
        return rows

    def clock(self) -> dict[str, Any]:
        """What a source says of its event time; a few have none."""
        if self.pick([False] * 11 + [True]):
            return {}
        found: dict[str, Any] = {"event_time": "ts"}
        if self.pick([True, False]):
            found["out_of_order"] = self.length()
        if self.pick([True, False, False]):
            found["max_jump"] = self.length()
        return found

    def length(self) -> datetime.timedelta:
        """A length of time like those between records."""
        return datetime.timedelta(microseconds=self.pick(self.lengths) * self.unit_us)

    def step(self) -> None:
        """An operator that cannot be built on this stream is no step."""
        nodes, open_streams = len(self.job._operators), list(self.open)
        try:
            super().step()
        except JobError:
            del self.job._operators[nodes:]
            self.open = open_streams

    def kinds(self, stream: Stream) -> Sequence[Callable[[Stream], Stream]]:
        kinds: list[Callable[[Stream], Stream]] = []
        if all(name in stream.schema for name in BOUNDS):
            kinds += [self.regroup] * 8
        if isinstance(stream._time, Expr):
            kinds += [self.add_windows] * 8 + [self.add_top] * 3 + [self.late] * 2
            kinds += [self.add_join] * 6 + [self.spans] * 3 + [self.forgetting] * 4
            kinds += [self.chained] * 2 + [self.beside] * 2
            if self.processes:
                kinds += [self.add_process] * 3
        kinds += [self.last_rows, self.count_windows, self.add_join, self.arrived]
        if any(field.type is Type.TIMESTAMP for field in stream.schema):
            kinds += [self.retime] * 3 + [self.pieces] + [self.both]
        plain = [
            self.add_filter,
            self.add_flat_map,
            self.add_map,
            self.add_aggregates,
            self.add_columns,
        ]
        if not isinstance(stream._time, Expr):
            return [*kinds, *super().kinds(stream)]
        return [*kinds, *plain]

    def over(self, stream: Stream, most: int = 2, *, forgets: bool = False) -> Any:
        """The stream, keyed or not; `forgets`: maybe with a ttl."""
        keys = [key for key in self.keys(stream) if key not in BOUNDS][:most]
        timed = isinstance(stream._time, Expr)
        ttl = self.length() if forgets and timed and self.pick([True, False]) else None
        return stream.key_by(*keys, ttl=ttl) if keys else stream

    def noun(self) -> Any:
        match self.pick(["tumbling", "sliding", "sliding", "session", "session"]):
            case "tumbling":
                return Tumbling(self.length(), offset=self.pick([None, self.length()]))
            case "sliding":
                return self.sliding()
        return Session(self.length())

    def sliding(self) -> Sliding:
        """A record is in a few windows only: windows behind windows would become too many rows."""
        one, other = self.length(), self.length()
        size = max(one, other)
        return Sliding(size, every=max(one - other, other - one, size / 4) or size)

    def results(
        self, stream: Stream, *, distinct: bool, joined: bool = False
    ) -> dict[str, Aggregate]:
        found: dict[str, Aggregate] = {}
        for number in range(self.pick([1, 1, 2, 3])):
            one = self.aggregate(stream, joined=joined)
            if distinct and self.pick([True, False, False, False]):
                names = [field.name for field in stream.schema if field.type in TYPES]
                one = aggregates.distinct(col(self.pick(names))) if names else one
            found[f"a{number}"] = one
        return found

    def lateness(self) -> Any:
        return self.length() if self.pick([False, False, True]) else None

    def add_windows(self, stream: Stream) -> Stream:
        early = self.length() if self.pick([False, False, False, True]) else None
        noun = self.noun()
        complete = self.pick([None, None, "whole"])
        window = self.over(stream).window(
            noun, lateness=self.lateness(), early=early, complete=complete
        )
        joined = not isinstance(noun, Tumbling)
        results = self.results(stream, distinct=True, joined=joined)
        made: Stream = window.aggregate(**results, on_error=self.policy())
        return made

    def add_top(self, stream: Stream) -> Stream:
        window = self.over(stream).window(self.noun(), lateness=self.lateness())
        return self.top_of(stream, window)

    def top_of(self, stream: Stream, window: Any) -> Stream:
        names = [field.name for field in stream.schema if field.type in TYPES]
        made: Stream = window.top(
            self.pick([1, 1, 2, 5]),
            by=self.pick(names),
            ties=self.pick([True, False]),
            least=self.pick([True, False]),
            on_error=self.policy(),
        )
        return made

    def arrived(self, stream: Stream) -> Stream:
        """Windows by arrival: shorter than the time between epochs, a few epochs, the whole run."""
        noun = self.pick([Tumbling, Session])(self.pick(["1us", "50us", "500us", "1h"]))
        if self.pick([False, False, True]):
            noun = Sliding("300us", every=self.pick(["100us", "200us"]))
        early = self.pick([None, None, "1us", "200us"])
        if early is None and self.pick([False, False, True]):
            return self.top_of(stream, self.over(stream).window(noun, by="arrival"))
        complete = self.pick([None, None, "whole"])
        window = self.over(stream).window(noun, early=early, complete=complete, by="arrival")
        joined = not isinstance(noun, Tumbling)
        results = self.results(stream, distinct=True, joined=joined)
        made: Stream = window.aggregate(**results, on_error=self.policy())
        return made

    def late(self, stream: Stream) -> Stream:
        made: Stream = self.over(stream).window(self.noun(), lateness=self.lateness()).late()
        return made

    def regroup(self, stream: Stream) -> Stream:
        window = self.over(stream, 1).by_window(lateness=self.lateness())
        if self.pick([True, False]):
            return self.top_of(stream, window)
        results = self.results(stream, distinct=True)
        made: Stream = window.aggregate(**results, on_error=self.policy())
        return made

    def chained(self, stream: Stream) -> Stream:
        """Three operators that know time, one behind the other."""
        made = self.regroup(self.add_windows(stream))
        kinds = [self.add_windows, self.add_top, self.late, self.regroup, self.forgetting]
        if not isinstance(made._time, Expr):
            return made
        add: Callable[[Stream], Stream] = self.pick(kinds)
        return add(made)

    def beside(self, stream: Stream) -> Stream:
        """The records, and the windows that they close, as one stream."""
        keys = [key for key in self.keys(stream) if key not in BOUNDS]
        over: Any = stream.key_by(*keys) if keys else stream
        window = over.window(self.noun(), lateness=self.lateness())
        end = window.aggregate(n_=aggregates.count())
        ends = end.select(*keys, at=col("window_end"), n_=col("n_")).with_event_time("at")
        records = stream.select(*keys, at=stream._time, n_=lit(0)).with_event_time("at")
        return union(ends, records) if self.pick([True, False]) else union(records, ends)

    def retime(self, stream: Stream) -> Stream:
        """An event time named here: a column, or something about it."""
        names = [field.name for field in stream.schema if field.type is Type.TIMESTAMP]
        time: Expr = col(self.pick(names))
        if self.pick([False, False, True]):
            time = time + lit(self.length())
        given: dict[str, Any] = {"on_error": self.policy()}
        if self.pick([True, False]):
            given["out_of_order"] = self.length()
        if self.pick([True, False, False]):
            given["max_jump"] = self.length()
        return stream.with_event_time(time, **given)

    def pieces(self, stream: Stream) -> Stream:
        """The same behind records that became several of different times, or none."""
        names = [field.name for field in stream.schema if field.type is Type.TIMESTAMP]
        step = functions.Pieces(self.pick(names), self.length())
        made = stream.flat_map(step, schema=stream.schema, on_error=self.policy())
        if self.pick([True, False]):
            made = made.filter(lit(True)) if self.pick([True, False]) else self.add_filter(made)
        return self.retime(made)

    def both(self, stream: Stream) -> Stream:
        """The records by their own time, and by one named for some of them."""
        if not isinstance(stream._time, Expr) or stream._time.op != "col":
            return self.retime(stream)
        time = stream._time
        kept = self.add_filter(stream) if self.pick([True, False]) else stream
        other = kept.with_event_time(time, out_of_order=self.pick([None, self.length()]))
        return union(stream, other) if self.pick([True, False]) else union(other, stream)

    def last_rows(self, stream: Stream) -> Stream:
        last = self.over(stream, forgets=True).last_n(self.pick([1, 2, 3, 10]))
        results = self.results(stream, distinct=False)
        made: Stream = last.aggregate(**results, on_error=self.policy())
        return made

    def count_windows(self, stream: Stream) -> Stream:
        window = self.over(stream, forgets=True).window(
            Rows(self.pick([1, 2, 3, 5]), every=self.pick([None, 1, 2, 3]))
        )
        results = self.results(stream, distinct=True)
        made: Stream = window.aggregate(**results, on_error=self.policy())
        return made

    def forgetting(self, stream: Stream) -> Stream:
        """A state for each key that is forgotten."""
        keys = self.keys(stream) or [self.column(stream)]
        over = stream.key_by(*keys, ttl=self.length(), on_error=self.policy())
        made: Stream
        kinds = ["aggregate", "aggregate", *(["fold", "stateful"] if self.processes else [])]
        match self.pick(kinds):
            case "fold":
                step: Any = self.of_column(functions.Numbered, stream)
                made = over.fold(7, step, type=int)
            case "stateful":
                step = self.of_column(functions.Alternating, stream)
                made = over.stateful(0, step, schema=stream.schema)
            case _:
                results: dict[str, Any] = self.results(stream, distinct=False)
                made = over.aggregate(**results)
        return made

    def other(self, stream: Stream) -> Stream:
        """A stream to join with, maybe the same."""
        others = [one for one in self.open if one is not stream]
        found: Stream = self.pick([*others * 3, stream])
        return found

    def on(self, left: Stream, right: Stream) -> list[tuple[str, str]]:
        """One or two pairs of columns of the same type, that of the key first."""
        pairs = [
            (one.name, two.name)
            for one in left.schema
            for two in right.schema
            if one.type is two.type and one.type is not Type.OBJECT
        ]
        if not pairs:
            raise JobError("nothing to join by")
        first = self.pick([*[pair for pair in pairs if pair == ("k", "k")] * 20, *pairs])
        return [first, self.pick(pairs)] if self.pick([False, False, False, True]) else [first]

    def add_join(self, stream: Stream) -> Stream:
        other = self.other(stream)
        given: dict[str, Any] = {"on": self.on(stream, other)}
        how = self.pick(["inner", "inner", "left", "semi", "anti", "late"])
        match self.pick(["all", "ttl", "window", "between", "between", "as of", "as of"]):
            case "ttl":
                given["ttl"] = self.length()
            case "window":
                given["window"] = self.pick([Tumbling(self.length()), self.sliding()])
            case "between":
                low, high = sorted((self.length(), self.length()))
                given["between"] = self.pick(
                    [(-high, low), (-low, high), (low, high), (-high, -low), (low, low)]
                )
            case "as of":
                tolerance = self.pick([None, self.length()])
                how = self.pick(["left", "inner", "late"])
                return stream.join_as_of(other, tolerance=tolerance, how=how, **given)
        if how in ("inner", "left"):
            if self.paired:
                raise JobError("enough pairs")
            self.paired = True
        made: Stream = stream.join(other, how=how, on_error=self.policy(), **given)
        return made

    def spans(self, stream: Stream) -> Stream:
        if "until" not in stream.schema or "ts" not in stream.schema:
            raise JobError("no spans")
        other = self.other(stream)
        spans = stream.join(
            other,
            on=self.on(stream, other),
            how=self.pick(["inner", "left"]),
            between=(col("ts"), col("until")),
            wait=self.pick([None, self.length()]),
        )
        results: dict[str, Any] = self.results(other, distinct=False)
        made: Stream = spans.aggregate(**results, on_error=self.policy())
        return made

    def add_process(self, stream: Stream) -> Stream:
        time = stream._time
        if not isinstance(time, Expr) or time.op != "col" or not self.keys(stream):
            raise JobError("no process")
        delay, column = self.length(), self.column(stream)
        over = self.over(stream, forgets=True)
        if isinstance(over, Stream):
            raise JobError("a process is by key")
        other = self.open[-1]
        both = isinstance(other._time, Expr) and other._time.op == "col"
        if both and self.pick([True, False]):
            assert isinstance(other._time, Expr)
            pairs = self.on(stream, other)
            ttl = self.pick([None, self.length()])
            keyed = (
                stream.key_by(*dict.fromkeys(a for a, _ in pairs), ttl=ttl),
                other.key_by(*dict.fromkeys(b for _, b in pairs), ttl=ttl),
            )
            return connect(*keyed).process(
                Met(column, (time.value, other._time.value), delay), on_error=self.policy()
            )
        failing = self.pick([0, 0, 7])
        process: Process = Watched(time.value, column, delay, failing)
        if self.pick([True, False]):
            patience = self.pick(["1us", "50us", "500us", "1h"])
            process = Patient(time.value, column, (delay, patience), failing)
        made: Stream = over.process(process, on_error=self.policy())
        return made
