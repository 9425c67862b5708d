"""Windows on a stream: tumbling, sliding, session, rows, by_window, last_n, and what is computed in
them.

    bids.key_by("auction").tumbling("10s").count()
    bids.key_by("auction").sliding("10s", every="2s").count().by_window().top(1, by="count")
    clicks.key_by("user").session(gap="60m").aggregate(pages=plait.count())

A window gives one row for each key: the key, `window_start`, `window_end` and the results, once the
watermark has passed the end of the window. Every operator made here is a `TimedOp`
(`graph.temporal` defines what it does). Where its event time is not a column, a projection before
it adds one, and a projection after it removes it again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from plait.errors import JobError
from plait.expr.aggregates import distinct
from plait.expr.text import text
from plait.expr.tree import Expr, col
from plait.expr.type_checker import bind
from plait.graph import temporal
from plait.graph.temporal import END, START
from plait.model.call_site import CallSite
from plait.model.durations import Duration, microseconds
from plait.model.schema import Field, Schema, Type
from plait.streams.aggregate_verbs import AggregateVerbs, BoundResults, bind_results
from plait.streams.arguments import keyed_schema
from plait.streams.event_time import at_least_zero, require_time, window_time
from plait.streams.stream_protocol import S, Site, Verbs, timed_input, unused_name
from plait.streams.windows import (
    By,
    Window,
    arguments_text,
    checked_by,
    checked_count,
    checked_window,
    grid,
    row_window,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from plait.expr.aggregates import Aggregate
    from plait.graph.operators import OnError

BOUNDS = (Field(START, Type.TIMESTAMP), Field(END, Type.TIMESTAMP))


class WindowVerbs(Verbs[S]):
    """The methods that make windows, on streams and keyed streams."""

    def tumbling(
        self,
        size: Duration,
        *,
        offset: Duration | None = None,
        lateness: Duration | None = None,
        early: Duration | None = None,
        complete: str | None = None,
        by: By = "event_time",
    ) -> Windowed[S]:
        """Windows of `size`, one after the other: [0s, 10s), [10s, 20s), ...

        >>> from plait.testing import table
        >>> bids = plait.stream(table('''
        ...     auction | price | ts
        ...     1       | 10    | 1s
        ...     1       | 30    | 4s
        ...     1       | 20    | 12s
        ... '''), event_time="ts")
        >>> bids.key_by("auction").tumbling("10s").count().select("auction", "count").collect()
        [Record(auction=1, count=2), Record(auction=1, count=1)]

        Args:
            size: how long a window is, such as "10s" or a `timedelta`.
            offset: shifts the windows, which otherwise start at 1970-01-01 00:00 UTC.
            lateness: how long after its end a window still takes records; results that change are
                given again. Records later than that are counted as late and left out.
            early: how often, in event time, a window that has not ended gives the results that
                changed.
            complete: the name of a column to add to the results, a bool: whether the window was
                over when the result was given. Early results are not complete, nor are windows
                that a stopped run gives with finish="flush".
            by: "event_time", or "arrival": the wall clock when a record was read. Windows then
                end by the clock, also if no record comes, no record is late, and the stream needs
                no event time:

                >>> clicks = plait.stream([{"user": "ada"}, {"user": "bob"}, {"user": "ada"}])
                >>> counts = clicks.key_by("user").tumbling("10s", by="arrival").count()
                >>> counts.select("user", "count").collect()
                [Record(user='ada', count=2), Record(user='bob', count=1)]
        """
        with CallSite("tumbling"):
            shown = f"tumbling({arguments_text(size, offset=offset)})"
            spec = grid(size, size, offset)
            return make_windows(self._site(), spec, shown, lateness, early, complete, by)

    def sliding(
        self,
        size: Duration,
        *,
        every: Duration,
        offset: Duration | None = None,
        lateness: Duration | None = None,
        early: Duration | None = None,
        complete: str | None = None,
        by: By = "event_time",
    ) -> Windowed[S]:
        """Overlapping windows of `size`, one starting every `every`; a record is in several.

        >>> from plait.testing import table
        >>> bids = plait.stream(table('''
        ...     auction | price | ts
        ...     1       | 10    | 1s
        ...     1       | 30    | 4s
        ...     1       | 20    | 12s
        ... '''), event_time="ts")
        >>> bids.sliding("10s", every="5s").count().select("count").collect()
        [Record(count=2), Record(count=2), Record(count=1), Record(count=1)]

        With by="arrival" a record is in the windows of the wall clock when it was read:

        >>> bids.sliding("10s", every="5s", by="arrival").count().select("count").collect()
        [Record(count=3), Record(count=3)]

        The other arguments are those of `tumbling`.
        """
        with CallSite("sliding"):
            shown = f"sliding({arguments_text(size, every=every, offset=offset)})"
            spec = grid(size, every, offset)
            return make_windows(self._site(), spec, shown, lateness, early, complete, by)

    def session(
        self,
        *,
        gap: Duration,
        lateness: Duration | None = None,
        early: Duration | None = None,
        complete: str | None = None,
        by: By = "event_time",
    ) -> Windowed[S]:
        """One window for records of a key that are less than `gap` apart.

        >>> from plait.testing import table
        >>> bids = plait.stream(table('''
        ...     auction | price | ts
        ...     1       | 10    | 1s
        ...     1       | 30    | 4s
        ...     1       | 20    | 12s
        ... '''), event_time="ts")
        >>> bids.key_by("auction").session(gap="5s").count().select("count").collect()
        [Record(count=2), Record(count=1)]

        A session ends `gap` after its last record. With by="arrival" that is by the wall clock:

        >>> bids.key_by("auction").session(gap="5s", by="arrival").count().select("count").collect()
        [Record(count=3)]

        The other arguments are those of `tumbling`.
        """
        with CallSite("session"):
            spec = temporal.SessionWindow(gap_us=microseconds(gap))
            shown = f"session(gap={gap!r})"
            return make_windows(self._site(), spec, shown, lateness, early, complete, by)

    def rows(self, size: int, *, every: int | None = None) -> Windowed[S]:
        """Windows of the last `size` records of a key, one whenever `every` more have come.

        >>> bids = plait.stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 50}])
        >>> bids.key_by("auction").rows(2).mean("price").collect()
        [Record(auction=1, mean=40.0)]

        `every` is `size` by default. A result comes at the place of the record that completes its
        window, and has no `window_start` and `window_end`. No event time is needed.
        """
        with CallSite("rows"):
            shown = f"rows({arguments_text(size, every=every)})"
            return make_windows(
                self._site(), row_window(size, every), shown, None, None, None, "event_time"
            )

    def window(
        self,
        window: Window,
        *,
        lateness: Duration | None = None,
        early: Duration | None = None,
        complete: str | None = None,
        by: By = "event_time",
    ) -> Windowed[S]:
        """Windows given as an object: `plait.Tumbling("10s")`, or Sliding, Session, Rows.

        >>> bids = plait.stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 50}])
        >>> bids.window(plait.Rows(2)).sum("price").collect()
        [Record(sum=80)]

        The other arguments are those of `tumbling`.
        """
        with CallSite("window"):
            noun = checked_window(window)
            return make_windows(self._site(), noun.spec, repr(noun), lateness, early, complete, by)

    def by_window(
        self, *, lateness: Duration | None = None, complete: str | None = None
    ) -> Windowed[S]:
        """Groups the results of windows by their window, to aggregate across keys.

        >>> from plait.testing import table
        >>> bids = plait.stream(table('''
        ...     auction | price | ts
        ...     1       | 10    | 1s
        ...     1       | 30    | 4s
        ...     1       | 20    | 12s
        ... '''), event_time="ts")
        >>> counts = bids.key_by("auction").tumbling("10s").count()
        >>> counts.by_window().top(1, by="count").select("auction", "count").collect()
        [Record(auction=1, count=2), Record(auction=1, count=1)]

        The stream needs its columns `window_start` and `window_end`. Early and repeated results
        count again, like any other record. The arguments are as in `tumbling`.
        """
        with CallSite("by_window"):
            site = self._site()
            for field in BOUNDS:
                if field.name not in site.stream.schema:
                    raise JobError(
                        f'no column "{field.name}"; call by_window after a window, before its'
                        " columns are dropped or renamed"
                    )
                column = site.stream.schema[field.name]
                if column != field:
                    raise JobError(f"column {column} must be {field} to give the window")
            clash = [key for key in site.keys if key in (START, END)]
            if clash:
                raise JobError(f'"{clash[0]}" is a key; leave it out, by_window uses it already')
            refuse_ttl(site, "by_window()")
            window, late_us = temporal.CarriedWindow(), lateness_us(lateness)
            return Windowed(site, window, "by_window()", late_us, 0, checked_name(complete))

    def last_n(self, n: int) -> LastN[S]:
        """The last `n` records of the key, for every record.

        >>> bids = plait.stream([{"auction": 1, "price": 30}, {"auction": 1, "price": 50}])
        >>> bids.key_by("auction").last_n(10).mean("price").collect()
        [Record(auction=1, mean=30.0), Record(auction=1, mean=40.0)]
        """
        with CallSite("last_n"):
            return LastN(self._site(), checked_count("n", n))


def make_windows(
    site: Site[S],
    spec: temporal.Window,
    shown: str,
    lateness: Duration | None,
    early: Duration | None,
    complete: str | None,
    by: By,
) -> Windowed[S]:
    by_arrival = checked_by(by)
    if isinstance(spec, temporal.RowWindow):
        if by_arrival:
            raise JobError("row windows count records; leave out by=")
        if lateness is not None or early is not None:
            raise JobError("row windows do not support lateness= or early=")
        if complete is not None:
            raise JobError("row windows are always complete; leave out complete=")
    else:
        if by_arrival and lateness is not None:
            raise JobError('no record is late by="arrival"; leave out lateness=')
        if by_arrival:
            shown = f"{shown} by arrival"
        else:
            require_window_time(site, shown)
        refuse_ttl(site, shown)
        refuse_bound_keys(site)
    early_us = 0 if early is None else microseconds(early)
    late_us, whole = lateness_us(lateness), checked_name(complete)
    return Windowed(site, spec, shown, late_us, early_us, whole, by_arrival)


def require_window_time(site: Site[S], shown: str) -> None:
    try:
        require_time(site.stream._time, f"a window such as {shown}")
    except JobError as error:
        raise JobError(
            f'{error}\n  or use the time at which records arrive: by="arrival"'
        ) from None


def checked_name(complete: str | None) -> str:
    """The name of the column that `complete` adds, or ""."""
    if complete is not None and (not isinstance(complete, str) or not complete):
        raise JobError(
            f"complete is {complete!r}; it must be the name of a column to add to the results"
        )
    return complete or ""


def complete_field(complete: str, others: Iterable[str]) -> tuple[Field, ...]:
    """The column that `complete` adds behind the others."""
    if complete in others:
        raise JobError(f'complete="{complete}" is the name of another column; choose another')
    return (Field(complete, Type.BOOL),) if complete else ()


def lateness_us(given: Duration | None) -> int:
    return 0 if given is None else at_least_zero("lateness", given)


def refuse_ttl(site: Site[S], shown: str) -> None:
    if site.ttl_us:
        raise JobError(
            f"the state of {shown} is dropped when its windows end; leave out ttl= of key_by, which"
            " is for running aggregates, fold, stateful, process, rows and last_n"
        )


def refuse_bound_keys(site: Site[S]) -> None:
    for key in site.keys:
        if key in (START, END):
            raise JobError(
                f'the key "{key}" would be there twice: every window adds a column of that name;'
                " rename the key, or use by_window() to stay in the same window"
            )


class Windowed(AggregateVerbs[S]):
    """Records in windows, made by `tumbling`, `sliding`, `session`, `rows` and `by_window`.

    Its methods give streams again, with one row for each key and window: the key columns,
    `window_start`, `window_end` and the results.

    >>> from plait.testing import table
    >>> bids = plait.stream(table('''
    ...     auction | price | ts
    ...     1       | 10    | 1s
    ...     1       | 30    | 4s
    ...     1       | 20    | 12s
    ... '''), event_time="ts")
    >>> windows = bids.key_by("auction").tumbling("10s")
    >>> windows.aggregate(n=plait.count(), top=plait.max("price")).schema.names
    ('auction', 'window_start', 'window_end', 'n', 'top')
    """

    def __init__(
        self,
        site: Site[S],
        window: temporal.Window,
        shown: str,
        lateness_us: int,
        early_us: int,
        complete: str,
        by_arrival: bool = False,
    ) -> None:
        self._at = site
        self._window = window
        self._shown = shown
        self._lateness_us = lateness_us
        self._early_us = early_us
        self._complete = complete
        self._by_arrival = by_arrival

    def __repr__(self) -> str:
        by = f" by {', '.join(self._at.keys)}" if self._at.keys else ""
        return f"Windowed({self._at.stream.schema}){by} in {self._shown}"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"a stream in windows has no {name}; first call count, sum, min, max, mean, first,"
            f" last, distinct, aggregate, top or late, and then {name}"
        )

    def distinct(self, over: str | Expr, *, on_error: OnError | None = None) -> S:
        """The number of distinct values that are not null, as column "distinct".

        >>> from plait.testing import table
        >>> bids = plait.stream(table('''
        ...     auction | price | ts
        ...     1       | 10    | 1s
        ...     1       | 30    | 4s
        ...     1       | 20    | 12s
        ... '''), event_time="ts")
        >>> bids.tumbling("10s").distinct("auction").select("distinct").collect()
        [Record(distinct=1), Record(distinct=1)]
        """
        with CallSite("distinct") as call:
            return self._add_results(call, {"distinct": distinct(over)}, on_error)

    def top(
        self,
        k: int,
        *,
        by: str | Expr,
        ties: bool = False,
        least: bool = False,
        on_error: OnError | None = None,
    ) -> S:
        """The `k` records of each key and window with the greatest `by`, greatest first.

        >>> from plait.testing import table
        >>> bids = plait.stream(table('''
        ...     auction | price | ts
        ...     1       | 10    | 1s
        ...     1       | 30    | 4s
        ...     1       | 20    | 12s
        ... '''), event_time="ts")
        >>> bids.tumbling("1m").top(2, by="price").select("price").collect()
        [Record(price=30), Record(price=20)]

        Args:
            k: how many records.
            by: a column or an expression; records where it is null or NaN are left out.
            ties: whether all records equal to the last one are given too.
            least: whether to give those with the least `by` instead.
            on_error: what happens to a record whose `by` cannot be computed.

        Returns:
            A stream of whole records with `window_start` and `window_end`. Of equal records the
            one that came first is first.
        """
        with CallSite("top") as call:
            if isinstance(self._window, temporal.RowWindow):
                raise JobError("top() needs a time window; rows() windows are not supported")
            if self._early_us:
                raise JobError("top() gives no early results; leave out early=")
            site = self._at.with_policy(on_error)
            spec = temporal.TopSpec(
                window=self._window,
                k=checked_count("k", k),
                by="",
                greatest=not least,
                ties=bool(ties),
                lateness_us=self._lateness_us,
                complete=self._complete,
                by_arrival=self._by_arrival,
            )
            return add_top(call, site, spec, by)

    def late(self) -> S:
        """The records that come too late for their windows, unchanged.

        >>> from plait.testing import table
        >>> bids = plait.stream(table('''
        ...     price | ts
        ...     10    | 1s
        ...     30    | 25s
        ...     20    | 2s
        ... '''), event_time="ts", epoch_records=1)
        >>> windows = bids.tumbling("10s", lateness="5s")
        >>> windows.late().select("price").collect()
        [Record(price=20)]

        Other methods count late records (`Result.account.late`) and leave them out.
        """
        with CallSite("late") as call:
            if isinstance(self._window, temporal.RowWindow | temporal.CarriedWindow):
                raise JobError(f"no record is late for {self._shown}; late() needs a time window")
            if self._by_arrival:
                raise JobError(f"no record is late for {self._shown}")
            spec = temporal.LateSpec(window=self._window, lateness_us=self._lateness_us)
            before = timed_input(call, self._at)
            return before.finish(call, self._at, spec, before.stream.schema, before.stream._time)

    def _bind(self, results: Mapping[str, Aggregate]) -> BoundResults:
        return bind_results(results, self._at.stream.schema, distinct=True)

    def _aggregate(self, call: CallSite, results: BoundResults, on_error: OnError | None) -> S:
        site = self._at.with_policy(on_error)
        spec = temporal.WindowSpec(
            window=self._window,
            aggregates=results.aggregates,
            lateness_us=self._lateness_us,
            early_us=self._early_us,
            ttl_us=site.ttl_us,
            complete=self._complete,
            by_arrival=self._by_arrival,
        )
        timeless = isinstance(self._window, temporal.RowWindow)
        bounds = () if timeless else BOUNDS
        for field in results.fields:
            if field.name in (START, END) and bounds:
                raise JobError(
                    f'the result "{field.name}" has the name of a column of the window; choose'
                    " another"
                )
        fields = (*bounds, *results.fields)
        taken = (*site.keys, *(field.name for field in fields))
        fields += complete_field(self._complete, taken)
        schema = keyed_schema(site.stream.schema, site.keys, fields)
        timed = isinstance(self._window, temporal.Grid | temporal.SessionWindow)
        use_time = bool(site.ttl_us) or (timed and not self._by_arrival)
        before = timed_input(call, site, use_time=use_time)
        return before.add(call, site, spec, schema, None if timeless else window_time())


class LastN(AggregateVerbs[S]):
    """The last records of each key, made by `last_n`.

    Its methods give streams again, with one row for each record: the key columns and the results
    over the last `n` records of the key, this one included.

        bids.key_by("auction").last_n(10).mean("price")
    """

    def __init__(self, site: Site[S], n: int) -> None:
        self._at = site
        self._n = n

    def __repr__(self) -> str:
        return f"LastN({self._n})"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"last_n has no {name}; first call count, sum, min, max, mean, first, last or"
            f" aggregate, and then {name}"
        )

    def _bind(self, results: Mapping[str, Aggregate]) -> BoundResults:
        return bind_results(results, self._at.stream.schema, distinct=False)

    def _aggregate(self, call: CallSite, results: BoundResults, on_error: OnError | None) -> S:
        site = self._at.with_policy(on_error)
        schema = keyed_schema(site.stream.schema, site.keys, results.fields)
        spec = temporal.LastSpec(n=self._n, aggregates=results.aggregates, ttl_us=site.ttl_us)
        before = timed_input(call, site, use_time=bool(site.ttl_us))
        return before.add(call, site, spec, schema, None)


def add_top(call: CallSite, site: Site[S], spec: temporal.TopSpec, by: str | Expr) -> S:
    """Adds the operator; `by` of the spec is set here."""
    given = isinstance(spec.window, temporal.CarriedWindow)
    schema = site.stream.schema
    if not given:
        for name in (START, END):
            if name in schema:
                raise JobError(
                    f'the stream has a column "{name}" already, from an earlier window; rename or'
                    " drop it, or use by_window() to stay in the same window"
                )
    order = col(by) if isinstance(by, str) else by
    if not isinstance(order, Expr):
        raise JobError(f"by is {by!r}; it must be the name of a column or an expression")
    bound = bind(order, schema)
    if bound.type in (None, Type.OBJECT):
        raise JobError(f"by={text(order)} is {bound}, which has no order")
    extra = {} if order.op == "col" else {unused_name("by", schema.names): order}
    before = timed_input(call, site, use_time=not (given or spec.by_arrival), extra=extra)
    spec = replace(spec, by=next(iter(extra), order.value))
    fields = before.stream.schema.fields if given else (*before.stream.schema.fields, *BOUNDS)
    fields += complete_field(spec.complete, [field.name for field in fields])
    same = given and not spec.complete
    out = Schema(fields, before.stream.schema.record_class if same else None)
    return before.finish(call, site, spec, out, window_time())
