"""More records than the machine can take, and two queries that share what there is.

Orders come in at a rate that one worker can follow; then, for some seconds, at several times that
rate; then slowly again. `fraud` must have most of its input; `advice` can do with little. Under the
overload records of `advice` are dropped before they cost anything, so that `fraud` stays right and
nothing gets late, and when the rush is over everything is processed again. The accuracy of both is
drawn over time, the reasons are printed, the account adds up, and a plain loop that is told what
was dropped gives the same rows.
"""

from __future__ import annotations

import itertools
import os
import time

import pyarrow as pa

import plait
from plait.testing.oracle import sequential

QUICK = "PLAIT_QUICK" in os.environ
PHASES = (
    ((0.0, 500), (1.0, 2500), (3.0, 500), (5.0, 0))
    if QUICK
    else ((0.0, 500), (3.0, 2500), (7.5, 500), (14.0, 0))
)
"""From which second on how many orders come in a second; the last one is the end."""
END_S = PHASES[-1][0]
COST_NS = 300_000
WIDTH = 60
BARS = " ▁▂▃▄▅▆▇█"


def due(seconds: float) -> int:
    """How many orders have come in by then."""
    rows = 0.0
    for (begins, rate), (ends, _) in itertools.pairwise(PHASES):
        rows += rate * max(min(seconds, ends) - begins, 0.0)
    return int(rows)


class Orders(plait.Source):
    """Orders that come in by the clock, whether they are read or not."""

    schema = plait.Schema.of({"order": int})

    def open(self, position: int | None = None) -> OrdersReader:
        return OrdersReader(position or 0)


class OrdersReader(plait.Reader):
    def __init__(self, read: int) -> None:
        self.read = read
        self.began = time.monotonic()

    def came(self) -> int:
        return due(time.monotonic() - self.began)

    def is_closing_time(self) -> bool:
        return time.monotonic() - self.began >= END_S

    def poll(self, max_rows: int) -> list[tuple[int]] | plait.Wait | None:
        if self.is_closing_time():
            return None
        ends = min(self.came(), self.read + max_rows)
        if ends == self.read:
            return plait.Wait(0.01)
        rows = [(number,) for number in range(self.read, ends)]
        self.read = ends
        return rows

    def position(self) -> int:
        return self.read

    def backlog(self) -> plait.Backlog:
        """With this plait knows how fast orders come in, and how far behind it is."""
        waiting = self.came() - self.read
        oldest_s = waiting / max(rate for _, rate in PHASES)
        return plait.Backlog(rows=waiting, oldest_s=oldest_s)


class Work:
    """What an order costs; nothing when the plain loop repeats the run."""

    cost_ns = COST_NS


def score(order: int) -> int:
    """Uses the processor for a while, and knows how much an order is to be trusted."""
    ends = time.thread_time_ns() + Work.cost_ns
    while time.thread_time_ns() < ends:
        pass
    return order * 7919 % 1000


def advise(order: int) -> int:
    return score(order + 1)


def shop(source: plait.Source) -> plait.Job:
    job = plait.Job("shop")
    orders = job.source(source, name="orders")
    frauds = orders.with_columns(score=score).aggregate(n=plait.count(), worst=plait.max("score"))
    frauds.sink(
        plait.Collect(), "fraud", priority=5, min_accuracy=0.5, freshness="1s", shed="records"
    )
    advice = orders.with_columns(item=advise).aggregate(n=plait.count(), best=plait.max("item"))
    advice.sink(
        plait.Collect(), "advice", priority=1, min_accuracy=0.05, freshness="1s", shed="records"
    )
    return job


def line(values: list[float], most: float) -> str:
    """One bar for each part of the time."""
    return "".join(BARS[round(min(value / most, 1.0) * (len(BARS) - 1))] for value in values)


def at_times(points: list[tuple[float, float]], before: float) -> list[float]:
    """The value in force in each part of the time."""
    step_s = END_S / WIDTH
    found = []
    for part in range(WIDTH):
        known = [value for at_s, value in points if at_s <= (part + 1) * step_s]
        found.append(known[-1] if known else before)
    return found


def draw(result: plait.Result) -> None:
    rates = [(begins, float(rate)) for begins, rate in PHASES]
    most = max(rate for _, rate in rates)
    print(
        f"{'orders come in':>16} |{line(at_times(rates, 0.0), most)}| {most:,.0f} a second at most"
    )
    for query in result.queries:
        points = [(one.at_s, one.measured) for one in result.accuracy if one.query == query.query]
        words = f"{query.overall:.0%} of its input over all, floor {query.floor:.0%}"
        print(f"{query.query + ' gets':>16} |{line(at_times(points, 1.0), 1.0)}| {words}")
    print(f"{'':>16}  0 s{END_S:>{WIDTH - 5}.0f} s")


def main() -> None:
    print(f"{due(END_S):,} orders in {END_S:.0f} seconds, one worker, two queries ...\n")
    running = plait.start(
        shop(Orders()),
        workers=1,
        pool=0,
        epoch_records=32,
        queue_records=256,
        quality_period_ms=400,
    )
    result = running.wait(progress=False)
    draw(result)

    print("\nwhy:")
    shown = result.decisions if len(result.decisions) <= 10 else result.decisions[:7]
    for step in shown:
        print(step)
    if len(shown) < len(result.decisions):
        print(f"   ...    and {len(result.decisions) - len(shown) - 1} more, the last one:")
        print(result.decisions[-1])

    counts = result.account
    print(f"\naccount: {counts}")
    assert counts.difference == 0
    Work.cost_ns = 0
    read = counts.read
    table = pa.table(
        {"order": range(read)}, schema=pa.schema([pa.field("order", pa.int64(), False)])
    )
    wanted = sequential(shop(plait.Table(table)).graph(), cuts=result.cuts, keeps=result.keeps)
    for query in ("fraud", "advice"):
        made = list(result.outputs[query].to_pylist())
        loop = [dict(zip(made[0], row, strict=True)) for row in wanted.outputs[query]]
        assert made == loop, f"{query} differs from the plain loop"
        print(f"{query}: {len(made):,} of {read:,} orders, the same rows as a plain loop's")


if __name__ == "__main__":
    main()
