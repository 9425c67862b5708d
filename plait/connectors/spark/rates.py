"""How fast rows come in at a query of Spark and how far behind it is, by its progress reports.

Where the query's sources have offsets, the newest of them is the end and the one that was taken is
the position; offsets are summed over sources, topics and partitions. Other sources tell only the
rows of each batch. Spark's own `inputRowsPerSecond` is not used: it is rows over the time that a
batch was busy, not over the time in which they came. The listener does nothing but put reports into
a queue: Spark calls it from threads of its own, and whoever waits there holds up the others.
"""

from __future__ import annotations

import datetime
import json
import queue
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from plait.protocol.rates import Looks, Sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MOST_WAITING = 1000
"""Reports that nobody has looked at; later ones are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a report says of a batch."""

    at_s: float
    """When offsets were looked up, in seconds since 1970."""
    rows_in: int
    rows_out: int
    """As many as came in if Spark does not count them."""
    start: float | None
    position: float | None
    end: float | None
    """Of all sources together; None: one of them has no such offsets."""

    @classmethod
    def of(cls, report: Any) -> Progress:
        """A StreamingQueryProgress as plain numbers."""
        began = datetime.datetime.fromisoformat(report.timestamp.replace("Z", "+00:00"))
        looked_ms = report.durationMs.get("latestOffset", 0)
        rows_in = int(report.numInputRows)
        rows_out = int(report.sink.numOutputRows) if report.sink is not None else -1
        return cls(
            at_s=began.timestamp() + looked_ms / 1000.0,
            rows_in=rows_in,
            rows_out=rows_out if rows_out >= 0 else rows_in,
            start=summed_offsets([one.startOffset for one in report.sources]),
            position=summed_offsets([one.endOffset for one in report.sources]),
            end=summed_offsets([one.latestOffset for one in report.sources]),
        )


def summed_offsets(texts: list[Any]) -> float | None:
    """The offsets of all sources as one number; None if one of them has none."""
    known = [offset for text in texts if (offset := offset_of(text)) is not None]
    return sum(known) if known and len(known) == len(texts) else None


def offset_of(text: Any) -> float | None:
    """The sum of all numbers in an offset, which is JSON text: 7, or {"topic": {"0": 7}}.

    >>> offset_of('{"clicks": {"0": 7, "1": 5}}'), offset_of("12"), offset_of("None")
    (12.0, 12.0, None)
    """
    try:
        numbers = list(numbers_in(json.loads(text) if isinstance(text, str) else text))
    except ValueError:
        return None
    return float(sum(numbers)) if numbers else None


def numbers_in(offset: Any) -> list[float]:
    if isinstance(offset, dict):
        return [number for value in offset.values() for number in numbers_in(value)]
    if isinstance(offset, bool) or not isinstance(offset, int | float):
        return []
    return [float(offset)]


class QueryRates(StreamingQueryListener):
    """Listens to one query, from `listen` until `end`."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self.query_id: Any = None
        self.reports: queue.Queue[Any] = queue.Queue(MOST_WAITING)
        self.passed = 0.0
        self.records = 0.0
        """Rows that the query has written."""
        self.rows = 0.0
        """Rows that it has taken."""
        session.streams.addListener(self)

    def listen(self, query: StreamingQuery) -> None:
        """To this query from now on; also after it was started again."""
        self.query_id = query.id

    def onQueryStarted(self, event: Any) -> None:
        """Nothing is to be done."""

    def onQueryProgress(self, event: Any) -> None:
        if not self.reports.full():
            self.reports.put(event.progress)

    def onQueryIdle(self, event: Any) -> None:
        """Nothing is to be done."""

    def onQueryTerminated(self, event: Any) -> None:
        """Nothing is to be done."""

    def look(self) -> Looks:
        """The reports since the last call, of which only the last gives a sample each."""
        shift = time.monotonic() - time.time()
        samples: dict[str, Sample] = {}
        positions: dict[str, float] = {}
        while not self.reports.empty():
            report = self.reports.get()
            if str(report.id) == str(self.query_id):
                samples["query"] = self.sample(Progress.of(report), shift)
                positions["query"] = samples["query"].position
        return Looks(
            samples=samples,
            positions=positions,
            passed=self.passed,
            records=self.records,
            upstream=True,
        )

    def sample(self, progress: Progress, shift: float) -> Sample:
        self.rows += progress.rows_in
        if progress.end is None or progress.position is None:
            self.passed += progress.rows_in
            self.records += progress.rows_out
            return Sample(at=progress.at_s + shift, position=self.rows)
        if progress.start is not None:  # the first batch does not tell how many offsets it took
            self.passed += progress.position - progress.start
            self.records += progress.rows_out
        return Sample(at=progress.at_s + shift, position=progress.position, end=progress.end)

    def end(self) -> None:
        """Stops listening."""
        self.session.streams.removeListener(self)
