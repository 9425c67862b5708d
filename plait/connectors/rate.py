"""A source that makes numbered records at a rate: for demonstrations, load and latency tests.

Everything follows from the record's number, so that two runs give the same records: record i has
`seq` i and `ts` = start + i / rate, cut to microseconds. `bounded` is whether there is a total.

    >>> Rate(1000, total=3).arrow_slice(0, 3).column("seq").to_pylist()
    [0, 1, 2]
"""

from __future__ import annotations

import datetime
import time
from typing import TYPE_CHECKING, Any

from plait.connectors.base import Reader, Source, Wait
from plait.errors import SourceError
from plait.model.records import microseconds_of
from plait.model.schema import Schema, Type

if TYPE_CHECKING:
    from collections.abc import Callable

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MICROSECONDS = 1_000_000


class Rate(Source):
    """Numbered records at a rate: `seq` (0, 1, ...) and `ts` (`start` plus seq / rate_per_s).
    `total` records, or for ever without it. Two runs give the same records.

    >>> import plait
    >>> [record.seq for record in plait.stream(Rate(1000, total=3)).collect()]
    [0, 1, 2]
    """

    def __init__(
        self,
        rate_per_s: float,
        total: int | None = None,
        start: datetime.datetime = EPOCH,
        label: str = "",
    ) -> None:
        if not 0 < rate_per_s < float("inf"):
            raise SourceError(f"Rate: rate_per_s is {rate_per_s!r}; it must be above 0")
        if total is not None and total < 0:
            raise SourceError(f"Rate: total is {total!r}; it must be 0 or more")
        if start.utcoffset() is None:
            raise SourceError("Rate: start has no time zone; add one, such as tzinfo=datetime.UTC")
        self.rate_per_s = rate_per_s
        self.total = total
        self.start_us = microseconds_of(start)
        self.bounded = total is not None
        self.label = label
        self.schema = Schema.of({"seq": Type.INT64, "ts": Type.TIMESTAMP})

    def arrow_slice(self, first: int, count: int) -> Any:
        """Records first, first + 1, ... as a RecordBatch; fewer than `count` at the end."""
        import numpy as np
        import pyarrow as pa

        if self.total is not None:
            count = max(0, min(count, self.total - first))
        seq = np.arange(first, first + count, dtype=np.int64)
        if float(self.rate_per_s).is_integer() and self.rate_per_s < 1 << 40:
            # Exact for every record: whole seconds first, so that nothing overflows or rounds.
            rate = int(self.rate_per_s)
            offset = seq // rate * MICROSECONDS + seq % rate * MICROSECONDS // rate
        else:
            offset = np.floor(seq * (MICROSECONDS / self.rate_per_s)).astype(np.int64)
        arrow = self.schema.to_arrow()
        ts = pa.array(offset + self.start_us).cast(arrow.field("ts").type)
        return pa.RecordBatch.from_arrays([pa.array(seq), ts], schema=arrow)

    def open(self, position: Any = None) -> Reader:
        """A reader at the start, or at record `position`."""
        return RateReader(self, int(position or 0))


class RateReader(Reader):
    """Reads a total as fast as it is asked; without a total no faster than the rate."""

    def __init__(
        self, source: Rate, read: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.source = source
        self.read = read
        self.first = read
        self.clock = clock
        self.began = clock()

    def poll(self, max_rows: int) -> Any:
        source = self.source
        if source.total is not None:
            count = min(max_rows, source.total - self.read)
            if count <= 0:
                return None
        else:
            due = self.first + int((self.clock() - self.began) * source.rate_per_s) + 1
            count = min(max_rows, due - self.read)
            if count <= 0:
                when = self.began + (self.read - self.first) / source.rate_per_s
                return Wait(max(0.0, when - self.clock()))
        batch = source.arrow_slice(self.read, count)
        self.read += count
        return batch

    def position(self) -> int:
        return self.read
