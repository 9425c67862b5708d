"""What users looked at, as states of their own: sessions for Q2, the last views for Q3.

Clicks wait until the watermark has reached their time, so that the answers do not depend on the
order in which clicks come, as long as they are not late.
"""

from __future__ import annotations

import datetime
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import plait
from benchmarks.tpcxbb.parameters import GIVEN, VIEWS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.tpcxbb.schema import Click

GAP = datetime.timedelta(minutes=60)
PAST = datetime.timedelta(days=10)
INSTANT = datetime.timedelta(microseconds=1)


@dataclass
class Seen:
    """An item that was seen, and when that counts."""

    item: int
    ts: plait.Timestamp


class SeenWith(plait.Process):
    """The items of each session of views in which a given item was seen, each once.

    Every click has a timer where its session may end; the one that is the end of the first session
    gives it away. As with windows, a result counts in the last microsecond.
    """

    state: ClassVar[dict[str, Any]] = {"times": list[plait.Timestamp], "items": list[int]}
    out = Seen

    def on_record(self, key: Any, click: Click, state: Any, timers: Any) -> None:
        state.times.append(click.ts)
        state.items.append(click.item)
        timers.at(click.ts + GAP)

    def on_timer(self, key: Any, at: Any, state: Any, timers: Any) -> Iterator[Seen]:
        clicks = sorted(zip(state.times, state.items, strict=True))
        pairs = enumerate(itertools.pairwise(clicks), 1)
        length = next((i for i, (a, b) in pairs if b[0] - a[0] >= GAP), len(clicks))
        session, rest = clicks[:length], clicks[length:]
        if session[-1][0] + GAP != at:
            return
        state.times = [time for time, _ in rest]
        state.items = [item for _, item in rest]
        seen = dict.fromkeys(item for _, item in session)
        if GIVEN in seen:
            yield from (Seen(item, at - INSTANT) for item in seen if item != GIVEN)


class BeforeOrders(plait.Process):
    """The last views of a user before each order. Takes views, and orders of the given item."""

    state: ClassVar[dict[str, Any]] = {"times": list[plait.Timestamp], "items": list[int]}
    """Clicks that wait for their time, and the last views before them; an order is item 0."""
    out = Seen

    def on_record(self, key: Any, click: Click, state: Any, timers: Any) -> None:
        state.times.append(click.ts)
        state.items.append(click.item if click.page == "view" else 0)
        timers.at(click.ts)

    def on_timer(self, key: Any, at: Any, state: Any, timers: Any) -> Iterator[Seen]:
        clicks = sorted(zip(state.times, state.items, strict=True))
        before = [click for click in clicks if click[0] < at and click[1] != 0][-VIEWS:]
        for _ in range(clicks.count((at, 0))):
            yield from (Seen(item, at) for time, item in before if time >= at - PAST)
        kept = before + [click for click in clicks if click[0] >= at and click != (at, 0)]
        state.times = [time for time, _ in kept]
        state.items = [item for _, item in kept]
