"""The rates of the sources that this process reads.

A source whose records are due by the clock is known exactly. A reader with `backlog` is asked with
its polls, by the thread that polls. A reader that looks where its partitions end (Kafka, a query of
Spark) does so in a thread here, ten times a second; a run without such a source has no thread.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from plait.connectors.base import Backlog, Reader
from plait.errors import SourceError
from plait.graph.operators import SourceOp
from plait.model.records import describe
from plait.node_runtime.assembly.engine_parts import RateEnd, TableEnd
from plait.protocol.rates import Looking, Sample, SourceReport
from plait.shedding.rates import Estimator, RecordsPerOffset, chained, due_rate, scaled, summed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plait.graph.operators import Graph
    from plait.node_runtime.assembly.engine_parts import SourceEnd
    from plait.node_runtime.native._batch import NativeBatch
    from plait.node_runtime.native._engine import NativeEngine
    from plait.node_runtime.native.stage_specs import WithBadRows
    from plait.protocol.rates import Looks, SourceRate

    Answer = NativeBatch | WithBadRows | float | None

LOOK_EVERY_S = 0.1
BACKLOG_EVERY_S, MOST_EVERY_S = 0.2, 10.0
COST_RATIO = 0.02
"""Of the time that goes by, what `backlog` may take: a slow one is asked less often."""
LEAVE_S = 5.0
LOG = logging.getLogger("plait.rates")


class Gauge:
    """What is known of the rate of one source that is read here."""

    def __init__(self, reader: Any) -> None:
        ours = isinstance(reader, Reader)
        self.asks = ours and type(reader).backlog is not Reader.backlog
        self.looking: Looking | None = reader if isinstance(reader, Looking) else None
        self.lock = threading.Lock()
        self.backlog = Estimator()
        self.partitions: dict[str, Estimator] = {}
        self.per_offset = RecordsPerOffset()
        self.upstream = False
        self.read = 0
        self.ask_at = float("-inf")

    def around(
        self, poll: Callable[[int], Answer], ask: Callable[[], Any], where: str
    ) -> Callable[[int], Answer]:
        """The poll, after which the reader is now and then asked for its backlog."""

        def polled(max_rows: int) -> Answer:
            answer = poll(max_rows)
            self.read += rows_in(answer)
            now = time.monotonic()
            if answer is not None and now >= self.ask_at:
                self.note(checked_backlog(ask(), where), now)
                self.ask_at = next_ask(now, time.monotonic())
            return answer

        return polled

    def note(self, known: Backlog | None, at: float) -> None:
        if known is None:
            return
        end = self.read + known.rows
        sample = Sample(at=at, position=self.read, end=end, oldest_s=known.oldest_s)
        with self.lock:
            self.backlog.add(sample)

    def take(self, looks: Looks, at: float) -> None:
        """What the reader found."""
        with self.lock:
            self.upstream = looks.upstream
            self.per_offset.note(at, looks.passed, looks.records)
            for name, sample in looks.samples.items():
                self.partitions.setdefault(name, Estimator()).add(sample)
            for name, position in looks.positions.items():
                if name in self.partitions:
                    self.partitions[name].read_to(position)

    def rate(self, now: float) -> SourceRate:
        with self.lock:
            here = self.backlog.rate(now)
            if self.looking is None:
                return here
            ratio = self.per_offset.ratio
            found = summed(
                {
                    name: scaled(estimator.rate(now), ratio)
                    for name, estimator in sorted(self.partitions.items(), key=by_number)
                }
            )
            return chained(found, here) if self.upstream and self.asks else found


class SourceRates:
    """The rates of all sources of a running engine, and the thread that looks."""

    def __init__(
        self,
        graph: Graph,
        sources: dict[int, SourceEnd],
        gauges: dict[int, Gauge],
        engine: NativeEngine,
    ) -> None:
        self.engine = engine
        self.labels = {
            n: op.label for n, op in enumerate(graph.operators) if isinstance(op, SourceOp)
        }
        self.gauges = gauges
        self.due = {n: due_of(end) for n, end in sources.items() if due_of(end)[0] > 0.0}
        self.began = time.monotonic()
        self.over = threading.Event()
        self.thread: threading.Thread | None = None
        self.last: tuple[SourceReport, ...] | None = None

    def start(self) -> None:
        """The records are due from now on."""
        self.began = time.monotonic()
        looking = [gauge for gauge in self.gauges.values() if gauge.looking is not None]
        if looking and self.thread is None:
            self.thread = threading.Thread(
                target=look_until, args=(looking, self.over), name="plait-rates", daemon=True
            )
            self.thread.start()

    def stop(self) -> None:
        """Before the readers are closed. What was known last stays."""
        if self.last is None:
            self.last = self.reports()
        self.over.set()
        if self.thread is not None:
            self.thread.join(LEAVE_S)
            self.thread = None

    def reports(self) -> tuple[SourceReport, ...]:
        """As a node tells them; after the end, as they were then."""
        if self.last is not None:
            return self.last
        now = time.monotonic()
        found = [
            SourceReport(label=self.labels[number], rate=gauge.rate(now))
            for number, gauge in self.gauges.items()
        ]
        for number, (per_s, rows) in self.due.items():
            due = min((now - self.began) * per_s, rows)
            read = self.engine.counts(number)[0]
            comes = per_s if due < rows else 0.0
            rate = due_rate(comes, due, read)
            found.append(SourceReport(label=self.labels[number], rate=rate, read=read, due=due))
        return tuple(sorted(found, key=lambda one: one.label))

    def rates(self) -> dict[str, SourceRate]:
        """By the label of the source; those that have none are left out."""
        return {report.label: report.rate for report in self.reports()}


def look_until(looking: Sequence[Gauge], over: threading.Event) -> None:
    """The thread."""
    told: set[str] = set()
    while not over.wait(LOOK_EVERY_S):
        for gauge in looking:
            assert gauge.looking is not None
            try:
                gauge.take(gauge.looking.look(), time.monotonic())
            except Exception as error:  # a rate is not worth a job
                if (text := f"{type(error).__name__}: {error}") not in told:
                    told.add(text)
                    LOG.warning("the rate of a source could not be measured: %s", text)


def next_ask(began: float, ended: float) -> float:
    """When a reader is asked for its backlog again, after a call that took so long."""
    pause_s = max(BACKLOG_EVERY_S, (ended - began) / COST_RATIO)
    return began + min(pause_s, MOST_EVERY_S)


def due_of(end: SourceEnd) -> tuple[float, float]:
    """The records a second that are due by the clock, and how many there are; 0: none are."""
    match end:
        case RateEnd(rate_per_s=rate, total=total) if total < 0:
            return rate, float("inf")
        case TableEnd(rate_per_s=rate, chunks=chunks, first=first) if rate > 0.0:
            return rate, float(sum(len(chunk) for chunk in chunks) - first)
    return 0.0, 0.0


def by_number(one: tuple[str, Estimator]) -> tuple[int, str]:
    """Partition 10 comes after partition 9."""
    return len(one[0]), one[0]


def rows_in(answer: Answer) -> int:
    """How many records an answer has, bad ones included."""
    if answer is None or isinstance(answer, float):
        return 0
    return len(answer[0]) + len(answer[1]) if isinstance(answer, tuple) else len(answer)


def checked_backlog(given: Any, where: str) -> Backlog | None:
    if given is None or (isinstance(given, Backlog) and given.rows >= 0):
        return given
    raise SourceError(
        f"{where}: backlog returned {describe(given)}; it must return"
        " plait.Backlog(rows=..., oldest_s=...) with 0 rows or more, or None"
    )
