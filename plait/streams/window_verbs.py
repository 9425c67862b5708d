"""Windows on a stream: tumbling, sliding, session, rows, by_window, last_n, and what is computed in
them.

    bids.key_by("auction").tumbling("10s").count()
    bids.key_by("auction").sliding("10s", every="2s").count().by_window().top(1, by="count")
    clicks.key_by("user").session(gap="60m").aggregate(pages=plait.count())

In a window there is one output for each key and window: the key, `window_start`, `window_end` and
the results, when the watermark has passed the window's end. Every operator made here is a `TimedOp`
(`graph.temporal` says what it does), with a projection before it where its event time is not a
column yet, and one behind it that leaves such a column out again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, NoReturn

from plait.errors import JobError
from plait.expr.aggregates import Aggregate, distinct
from plait.expr.text import text
from plait.expr.tree import Expr, col
from plait.expr.type_checker import bind, check_column
from plait.graph import temporal
from plait.graph.operators import TimedOp
from plait.graph.temporal import END, START
from plait.model.call_site import CallSite
from plait.model.durations import microseconds
from plait.model.schema import Field, Schema, Type
from plait.streams.aggregate_verbs import Aggregating, settled
from plait.streams.arguments import checked_policy, keyed_schema
from plait.streams.event_time import at_least_zero, needed, of_window
from plait.streams.projections import merged
from plait.streams.stream_protocol import S, Site, free, projected
from plait.streams.windows import grid, is_window, row_window, whole, words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.graph.operators import OnError
    from plait.streams.event_time import Time

BOUNDS = (Field(START, Type.TIMESTAMP), Field(END, Type.TIMESTAMP))


class Windowing(Generic[S]):
    """The verbs that make windows, on streams and keyed streams."""

    def _site(self) -> Site[S]:
        """The records."""
        raise TypeError(f"{type(self).__name__} has no records")

    def tumbling(
        self, size: Any, *, offset: Any = None, lateness: Any = None, early: Any = None
    ) -> Windowed[S]:
        """Windows of a size, one behind the other: `tumbling("10s").count()`.

        `lateness`: so long after its end a window still takes records, and gives its results that
        changed again. `early`: so often, in event time, a window that has not ended gives the
        results that changed. `offset` moves the windows, which begin at 1970 otherwise.
        """
        with CallSite("tumbling"):
            shown = f"tumbling({words(size, offset=offset)})"
            return windowed(self._site(), grid(size, size, offset), shown, lateness, early)

    def sliding(
        self,
        size: Any,
        *,
        every: Any,
        offset: Any = None,
        lateness: Any = None,
        early: Any = None,
    ) -> Windowed[S]:
        """Windows of a size that begin `every` so long; a record is in several of them."""
        with CallSite("sliding"):
            shown = f"sliding({words(size, every=every, offset=offset)})"
            return windowed(self._site(), grid(size, every, offset), shown, lateness, early)

    def session(self, *, gap: Any, lateness: Any = None, early: Any = None) -> Windowed[S]:
        """Windows of a key's records less than `gap` apart; one ends `gap` after its last."""
        with CallSite("session"):
            spec = temporal.SessionWindow(gap_us=microseconds(gap))
            return windowed(self._site(), spec, f"session(gap={gap!r})", lateness, early)

    def rows(self, size: int, *, every: int | None = None) -> Windowed[S]:
        """Windows of the last `size` records of a key, whenever `every` more have come.

        Results have no times: they come at the place of the record that completes the window.
        """
        with CallSite("rows"):
            shown = f"rows({words(size, every=every)})"
            return windowed(self._site(), row_window(size, every), shown, None, None)

    def window(self, window: Any, *, lateness: Any = None, early: Any = None) -> Windowed[S]:
        """Windows by a noun: `window(plait.Tumbling("10s"))`."""
        with CallSite("window"):
            noun = is_window(window)
            return windowed(self._site(), noun.spec, repr(noun), lateness, early)

    def by_window(self, *, lateness: Any = None) -> Windowed[S]:
        """The results of a window together, by the window they are of.

        `bids.key_by("auction").tumbling("10s").count().by_window().top(1, by="count")`. The stream
        needs its columns `window_start` and `window_end`. Early and repeated results are records
        like all others here: they count again.
        """
        with CallSite("by_window"):
            site = self._site()
            for field in BOUNDS:
                if field.name not in site.stream.schema:
                    raise JobError(
                        f'no column "{field.name}"; by_window comes behind a window, before its'
                        " columns are dropped or renamed"
                    )
                found = site.stream.schema[field.name]
                if found != field:
                    raise JobError(f"column {found} must be {field}; it does not say the window")
            clash = [key for key in site.keys if key in (START, END)]
            if clash:
                raise JobError(f'"{clash[0]}" is a key; leave it out, by_window goes by it')
            ends_by_itself(site, "by_window()")
            return Windowed(site, temporal.CarriedWindow(), "by_window()", lateness_of(lateness), 0)

    def last_n(self, n: int) -> LastN[S]:
        """The last `n` records of the key, for every record: `last_n(10).mean("price")`."""
        with CallSite("last_n"):
            return LastN(self._site(), whole("n", n))


def windowed(
    site: Site[S], spec: temporal.Window, shown: str, lateness: Any, early: Any
) -> Windowed[S]:
    if isinstance(spec, temporal.RowWindow):
        if lateness is not None or early is not None:
            raise JobError("windows of so many records know no lateness and no early results")
    else:
        needed(site.stream._time, f"a window such as {shown}")
        ends_by_itself(site, shown)
        free_of_bounds(site)
    early_us = 0 if early is None else microseconds(early)
    return Windowed(site, spec, shown, lateness_of(lateness), early_us)


def lateness_of(given: Any) -> int:
    return 0 if given is None else at_least_zero("lateness", given)


def ends_by_itself(site: Site[S], shown: str) -> None:
    if site.ttl_us:
        raise JobError(
            f"the state of {shown} goes when its windows end; leave out ttl= of key_by, which is"
            " for running aggregates, fold, stateful, process, rows and last_n"
        )


def free_of_bounds(site: Site[S]) -> None:
    for key in site.keys:
        if key in (START, END):
            raise JobError(
                f'the key "{key}" would be there twice: it is a column of every window\'s results;'
                " rename the key, or use by_window() to go on in the same window"
            )


class Windowed(Aggregating[S]):
    """Records in windows. Its methods give streams again, one row for each key and window."""

    def __init__(
        self, site: Site[S], window: temporal.Window, shown: str, lateness_us: int, early_us: int
    ) -> None:
        self._at = site
        self._window = window
        self._shown = shown
        self._lateness_us = lateness_us
        self._early_us = early_us

    def __repr__(self) -> str:
        by = f" by {', '.join(self._at.keys)}" if self._at.keys else ""
        return f"Windowed({self._at.stream.schema}){by} in {self._shown}"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"a stream in windows has no {name}; after a window comes count, sum, min, max, mean,"
            f" first, last, distinct, aggregate, top or late, and then {name}"
        )

    def distinct(self, over: str | Expr, *, on_error: OnError | None = None) -> S:
        """How many different values that are not null, as column "distinct"."""
        with CallSite("distinct") as place:
            return self._aggregate(place, {"distinct": distinct(over)}, on_error)

    def top(
        self,
        k: int,
        *,
        by: str | Expr,
        ties: bool = False,
        least: bool = False,
        on_error: OnError | None = None,
    ) -> S:
        """The `k` records of each key and window with the greatest `by` (or the least).

        The records are whole, with `window_start` and `window_end`; the greatest come first, and of
        equal ones the first that came. `ties`: also all that equal the last of them.
        """
        with CallSite("top") as place:
            if isinstance(self._window, temporal.RowWindow):
                raise JobError("there is no top of windows of so many records; use a time")
            if self._early_us:
                raise JobError("top gives no early results; leave early= out")
            site = replaced_policy(self._at, on_error)
            return top(place, site, self._window, self._lateness_us, k, by, ties, least)

    def late(self) -> S:
        """The records that come too late for every window of theirs, as they are.

        Without it they are counted, and left out. The window's `lateness` counts.
        """
        with CallSite("late") as place:
            if isinstance(self._window, temporal.RowWindow | temporal.CarriedWindow):
                raise JobError(f"no record is late for {self._shown}; late() is of a time window")
            spec = temporal.LateSpec(window=self._window, lateness_us=self._lateness_us)
            before = timed_input(place, self._at)
            return before.finish(place, self._at, spec, before.stream.schema, before.stream._time)

    def _aggregate(
        self, place: CallSite, results: dict[str, Aggregate], on_error: OnError | None
    ) -> S:
        site = replaced_policy(self._at, on_error)
        done, fields = settled(results, site.stream.schema, distinct=True)
        spec = temporal.WindowSpec(
            window=self._window,
            aggregates=done,
            lateness_us=self._lateness_us,
            early_us=self._early_us,
            ttl_us=site.ttl_us,
        )
        timeless = isinstance(self._window, temporal.RowWindow)
        bounds = () if timeless else BOUNDS
        for field in fields:
            if field.name in (START, END) and bounds:
                raise JobError(f'the result "{field.name}" has the name of a column of the window')
        schema = keyed_schema(site.stream.schema, site.keys, (*bounds, *fields))
        use_time = bool(site.ttl_us) or not isinstance(
            self._window, temporal.RowWindow | temporal.CarriedWindow
        )
        before = timed_input(place, site, use_time=use_time)
        return before.op(place, site, spec, schema, None if timeless else of_window())


class LastN(Aggregating[S]):
    """The last records of each key. Its methods give streams again, a row for each record."""

    def __init__(self, site: Site[S], n: int) -> None:
        self._at = site
        self._n = n

    def __repr__(self) -> str:
        return f"LastN({self._n})"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"the last records of a key have no {name}; after last_n comes count, sum, min, max,"
            f" mean, first, last or aggregate, and then {name}"
        )

    def _aggregate(
        self, place: CallSite, results: dict[str, Aggregate], on_error: OnError | None
    ) -> S:
        site = replaced_policy(self._at, on_error)
        done, fields = settled(results, site.stream.schema, distinct=False)
        schema = keyed_schema(site.stream.schema, site.keys, fields)
        spec = temporal.LastSpec(n=self._n, aggregates=done, ttl_us=site.ttl_us)
        before = timed_input(place, site, use_time=bool(site.ttl_us))
        return before.op(place, site, spec, schema, None)


def replaced_policy(site: Site[S], on_error: OnError | None) -> Site[S]:
    return replace(site, on_error=checked_policy(on_error or site.on_error))


def top(
    place: CallSite,
    site: Site[S],
    window: temporal.Grid | temporal.SessionWindow | temporal.CarriedWindow,
    lateness_us: int,
    k: int,
    by: str | Expr,
    ties: bool,
    least: bool,
) -> S:
    given = isinstance(window, temporal.CarriedWindow)
    schema = site.stream.schema
    if not given:
        for name in (START, END):
            if name in schema:
                raise JobError(
                    f'the stream has a column "{name}" already, of the window before; rename or'
                    " drop it, or use by_window() to go on in the same window"
                )
    wanted = col(by) if isinstance(by, str) else by
    if not isinstance(wanted, Expr):
        raise JobError(f"by is {by!r}; it must be the name of a column or an expression")
    bound = bind(wanted, schema)
    if bound.type in (None, Type.OBJECT):
        raise JobError(f"by={text(wanted)} is {bound}, which has no order")
    extra = {} if wanted.op == "col" else {free("by", schema.names): wanted}
    before = timed_input(place, site, use_time=not given, extra=extra)
    spec = temporal.TopSpec(
        window=window,
        k=whole("k", k),
        by=next(iter(extra), wanted.value),
        greatest=not least,
        ties=bool(ties),
        lateness_us=lateness_us,
    )
    fields = before.stream.schema.fields if given else (*before.stream.schema.fields, *BOUNDS)
    out = Schema(fields, before.stream.schema.record_class if given else None)
    return before.finish(place, site, spec, out, of_window())


@dataclass(frozen=True, slots=True, kw_only=True)
class Input(Generic[S]):
    """The stream that a timed operator reads: with columns for it alone, its event time among
    them."""

    stream: S
    time: str
    hidden: tuple[str, ...] = ()

    def op(
        self,
        place: CallSite,
        site: Site[S],
        spec: temporal.TimedSpec,
        schema: Schema,
        time: Time | None,
    ) -> S:
        """The stream of the operator."""
        made = TimedOp(
            name=place.name,
            at=place.at,
            inputs=(self.stream._number,),
            schema=schema,
            on_error=site.on_error,
            keys=site.keys,
            time=self.time,
            spec=spec,
        )
        return self.stream._made(made, time)

    def finish(
        self, place: CallSite, site: Site[S], spec: temporal.TimedSpec, schema: Schema, time: Time
    ) -> S:
        """The stream of the operator without the columns that were for it alone."""
        made = self.op(place, site, spec, schema, time)
        if not self.hidden:
            return made
        names = [name for name in schema.names if name not in self.hidden]
        return projected(made, place, [(name, col(name)) for name in names], "fail", "columns")


def timed_input(
    place: CallSite,
    site: Site[S],
    *,
    use_time: bool = True,
    extra: Mapping[str, Expr] | None = None,
) -> Input[S]:
    """The stream with its event time as a column, and with other columns that the operator
    needs."""
    stream, new = site.stream, dict(extra or {})
    name = ""
    if use_time:
        time = needed(stream._time, place.name)
        if time.op == "col":
            name = check_column(time.value, stream.schema)
        else:
            name = free("event_time", (*stream.schema.names, *new))
            new[name] = time
    if not new:
        return Input(stream=stream, time=name)
    columns = merged(stream.schema.names, new)
    done = projected(stream, place, columns, site.on_error, "input")
    return Input(stream=done, time=name, hidden=tuple(new))
