"""The epochs of a source, as the sequential run reads them.

Without cuts one poll that gives rows is one epoch; with cuts the same rows are dealt out in epochs
of the given sizes, whatever the polls were, which repeats a run whose epochs depended on time. The
source is at its end behind the last cut.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from plait.connectors.bad_rows import BadRow, PolledRows, poll_rows
from plait.connectors.base import Reader, Wait
from plait.connectors.opening import open_reader
from plait.errors import SourceError
from plait.testing.oracle.values import Values, held_from_poll

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plait.graph.operators import SourceOp

Row = Values | BadRow
"""A row that was read, or one that could not be."""


def epochs(
    op: SourceOp,
    epoch_records: int,
    cuts: Sequence[int] | None,
    limit: int | None,
    waits: list[str],
) -> Iterator[list[Row]]:
    """The rows of each epoch until the source is over. Closing the iterator closes the reader.

    A source that had nothing for a while adds its label to `waits`.
    """
    reader = open_reader(op.source, op.schema, None, str(op))
    try:
        if cuts is None:
            yield from polls(op, reader, epoch_records, limit, waits)
        else:
            yield from dealt(op, reader, epoch_records, cuts, waits)
    finally:
        reader.close()


def polls(
    op: SourceOp, reader: Reader, epoch_records: int, limit: int | None, waits: list[str]
) -> Iterator[list[Row]]:
    left, read = limit, 0
    while left is None or left > 0:
        most = epoch_records if left is None else min(left, epoch_records)
        polled = ask(op, reader, most, read)
        if polled is None:
            return
        if isinstance(polled, Wait):
            waits.append(op.label)
            time.sleep(polled.seconds)
            continue
        rows = held(polled, op)
        if len(rows) > most:
            raise SourceError(f"source {op.label}: asked for {most} rows, got {len(rows)}")
        if not rows:  # no rows are no epoch; the reader is asked again
            waits.append(op.label)
            continue
        left = None if left is None else left - len(rows)
        read += len(rows)
        yield rows


def ask(op: SourceOp, reader: Reader, most: int, read: int) -> Any:
    if op.on_error == "fail":
        return reader.poll(most)
    return poll_rows(reader, op.schema, most, read)


def held(polled: Any, op: SourceOp) -> list[Row]:
    """The rows of a poll, bad ones in their places."""
    if not isinstance(polled, PolledRows):
        return list(held_from_poll(polled, op.schema, op.label))
    rows: list[Row] = list(held_from_poll(polled.good, op.schema, op.label))
    for bad in polled.bad:
        rows.insert(bad.row, bad)
    return rows


def dealt(
    op: SourceOp, reader: Reader, epoch_records: int, cuts: Sequence[int], waits: list[str]
) -> Iterator[list[Row]]:
    waiting: list[Row] = []
    more = polls(op, reader, epoch_records, None, waits)
    for size in cuts:
        while len(waiting) < size:
            rows = next(more, None)
            if rows is None:
                raise SourceError(f"source {op.label} ended before its cuts: {list(cuts)}")
            waiting += rows
        yield waiting[:size]
        waiting = waiting[size:]
