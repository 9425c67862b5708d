"""The order of time: which rows of which source come when, from their event times alone.

A slice is a stretch of event time. Its rows are those, source by source, whose source has not gone
beyond it; where the next one begins and how long it is depends on the rows. The page
`docs/order_and_time.md` says the same in words. A slice is then dealt out in epochs of at most so
many rows of a source; what comes of that is the same whatever the epochs.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING

from plait.connectors.bad_rows import BadRow
from plait.errors import SourceError
from plait.testing.oracle.temporal import Timing
from plait.testing.oracle.values import Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from plait.graph.operators import SourceOp
    from plait.testing.oracle.epochs import Row
    from plait.testing.oracle.values import Values

FIRST, LONGEST = 1_000_000, 1 << 45
"""How long the first slice is, and how long one may become; microseconds."""
FEW, MOST = 8192, 32768
"""After a slice of fewer rows the next may be twice as long; one of more is cut in half."""
LEAST_TIME = -(1 << 63)


def times_at(op: SourceOp, rows: Sequence[Row]) -> list[int]:
    """How far a source's time is at each row; one that could not be read, or has no usable time,
    does not move it."""
    time_of = time_reader(op)
    time, times = LEAST_TIME, []
    for row in rows:
        here = None if isinstance(row, BadRow) else time_of(row)
        if here is not None:
            time = here if time == LEAST_TIME else max(time, min(here, time + op.max_jump_us))
        times.append(time)
    return times


def time_reader(op: SourceOp) -> Callable[[Values], int | None]:
    """The event time of a row of the source; None: the expression for it gives none."""
    if op.event_time is not None:
        return itemgetter(op.schema.index(op.event_time))
    assert op.computed_time is not None
    timing = Timing(op.computed_time, op.schema)

    def computed(row: Values) -> int | None:
        try:
            return timing.time_of(row)
        except Fault:
            return None

    return computed


def slices(times: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """The rows of each source in each slice, by how far its time is at each of them."""
    length, end = FIRST, LEAST_TIME
    places = [0] * len(times)

    def rows_before(time: int) -> list[int]:
        return [
            bisect_left(all_of, time, at) - at for all_of, at in zip(times, places, strict=True)
        ]

    while left := [
        all_of[at] for all_of, at in zip(times, places, strict=True) if at < len(all_of)
    ]:
        start = max(end, min(left))
        while sum(rows_before(start + length)) > MOST and length > 1:
            length //= 2
        end = start + length
        counts = rows_before(end)
        yield counts
        places = [at + count for at, count in zip(places, counts, strict=True)]
        if sum(counts) < FEW:
            length = min(2 * length, LONGEST)


def slice_epochs(times: Sequence[Sequence[int]], most: Sequence[int]) -> Iterator[list[int]]:
    """The rows of each source in each epoch: those of a slice, of the first source first, at most
    so many of each in an epoch. Sources without rows end in an epoch before all others."""
    if not all(times):
        yield [0] * len(times)
    for counts in slices(times):
        left = list(counts)
        while any(left):
            epoch = [0] * len(left)
            for source, count in enumerate(left):
                epoch[source] = min(count, most[source])
                if epoch[source] < count:
                    break
            left = [count - taken for count, taken in zip(left, epoch, strict=True)]
            yield epoch


@dataclass(frozen=True, slots=True)
class TimeEpochs:
    """The epochs of a source in order of time."""

    rows: list[list[Row]]
    ends_at: float
    """The epoch that has the last row, with which the source ends. Infinity: it was stopped."""


def epochs_in_time(
    sources: Mapping[int, tuple[SourceOp, Sequence[Row]]],
    most: Mapping[int, int],
    cuts: Mapping[str, Sequence[int]] | None,
    stopped: Collection[str],
) -> dict[int, TimeEpochs]:
    """The epochs of all sources, given with all their rows: as `cuts` says, or by the rule."""
    if cuts is None:
        times = [times_at(op, rows) for op, rows in sources.values()]
        found = list(slice_epochs(times, [most[i] for i in sources]))
        counts = {i: [epoch[n] for epoch in found] for n, i in enumerate(sources)}
    else:
        counts = {i: list(cuts.get(op.label, ())) for i, (op, _) in sources.items()}
    epochs: dict[int, TimeEpochs] = {}
    for i, (op, rows) in sources.items():
        ends = list(accumulate(counts[i]))
        if ends and ends[-1] > len(rows):
            raise SourceError(f"source {op.label} ended before its cuts: {counts[i]}")
        last = ends.index(ends[-1]) if ends else 0
        epochs[i] = TimeEpochs(
            rows=[
                list(rows[end - count : end]) for end, count in zip(ends, counts[i], strict=True)
            ],
            ends_at=math.inf if op.label in stopped else last,
        )
    return epochs
