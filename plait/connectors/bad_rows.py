"""Rows of a source that cannot be read, beside those that can.

A source with on_error="skip" or "dead_letter" is asked with `Reader.poll_with_bad` instead of
`poll`. What a reader of the user's gives is sorted out here by `poll_rows`, which the engine and
the sequential run both call: so they never differ about which row is bad. Every row of a poll, good
or bad, has a number; good rows keep theirs when the bad ones are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from plait.connectors.base import Reader, Wait
from plait.connectors.columns import canonical, to_batch
from plait.errors import SourceError
from plait.model.records import column_values, describe
from plait.model.schema import Field, Schema
from plait.results.result import BadLine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SHOWN = 80
"""How many characters of a bad line an error shows."""
ADVICE = 'give the source on_error="skip" or "dead_letter" to go on past bad records'


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A row that could not be read."""

    row: int
    """Its number among all rows of the poll, good and bad."""
    reason: str
    record: Any
    """The `BadLine` of a file, or the record as its reader gave it."""

    def error(self) -> SourceError:
        """What ends the run if the source has on_error="fail"."""
        line = self.record
        if not isinstance(line, BadLine):
            return SourceError(f"{self.reason}\n  {ADVICE}")
        text = line.text.rstrip("\r\n")
        text = text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
        return SourceError(f"{line.file}: line {line.line:,}: {self.reason}\n  {text}\n  {ADVICE}")


@dataclass(frozen=True, slots=True)
class PolledRows:
    """Rows of a source: the good ones as a RecordBatch, and the bad ones, ascending."""

    good: Any
    bad: tuple[BadRow, ...] = ()

    def __len__(self) -> int:
        return int(self.good.num_rows) + len(self.bad)

    def split(self, count: int) -> tuple[PolledRows, PolledRows]:
        """The first `count` rows, and the others."""
        bad = [bad for bad in self.bad if bad.row < count]
        rest = [replace(bad, row=bad.row - count) for bad in self.bad[len(bad) :]]
        good = min(count, len(self)) - len(bad)
        return (
            PolledRows(self.good.slice(0, good), tuple(bad)),
            PolledRows(self.good.slice(good), tuple(rest)),
        )


def poll_rows(
    reader: Reader, schema: Schema, max_rows: int, read: int, where: str = "source"
) -> PolledRows | Wait | None:
    """The next rows of a reader, sorted out; `read`: how many there were before, `where`: the
    source and its line, for errors."""
    import pyarrow as pa

    # A reader need not be a subclass of Reader; poll is all it must have.
    answer = getattr(reader, "poll_with_bad", reader.poll)(max_rows)
    if isinstance(answer, list | tuple):
        return sort_out(answer, lambda some, at: to_batch(some, schema, read + at))
    if isinstance(answer, pa.RecordBatch | pa.Table):
        return without_nulls(answer, schema, "record", read)
    if answer is None or isinstance(answer, Wait | PolledRows):
        return answer
    raise SourceError(
        f"{where}: poll returned {describe(answer)}; it must return a list of records, "
        "a RecordBatch, a Table, plait.Wait(seconds), or None at the end"
    )


def sort_out(records: Sequence[Any], convert: Callable[[Sequence[Any], int], Any]) -> PolledRows:
    """The records that `convert(records, number of the first)` takes, and those it refuses."""
    try:
        return PolledRows(convert(records, 0))
    except SourceError:
        bad: list[BadRow] = []

    def look(first: int, end: int) -> None:
        try:
            convert(records[first:end], first)
        except SourceError as error:
            if end - first == 1:
                bad.append(BadRow(row=first, reason=str(error), record=records[first]))
                return
            middle = (first + end) // 2
            look(first, middle)
            look(middle, end)

    look(0, len(records))
    left_out = {one.row for one in bad}
    good = [record for row, record in enumerate(records) if row not in left_out]
    return PolledRows(convert(good, 0), tuple(bad))


def without_nulls(rows: Any, schema: Schema, where: str, first: int) -> PolledRows:
    """Arrow data in plait's types without the rows that have a null where none may be. An error
    calls the row `where` and its number, the first one being `first`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    anything = Schema(tuple(Field(field.name, field.type, True) for field in schema))
    nullable = canonical(rows, anything)
    if isinstance(nullable, pa.Table):
        batches = nullable.combine_chunks().to_batches()
        nullable = batches[0] if batches else pa.RecordBatch.from_pylist([], nullable.schema)
    reasons: dict[int, str] = {}
    for field in schema:
        column = nullable.column(field.name)
        if column.null_count and not field.nullable:
            for row in pc.indices_nonzero(column.is_null()).to_pylist():
                reasons.setdefault(
                    row, f'column "{field.name}" is null, but is declared as {field}'
                )
    target = schema.to_arrow()
    if not reasons:
        return PolledRows(pa.RecordBatch.from_arrays(nullable.columns, schema=target))
    bad = tuple(
        BadRow(
            row=row,
            reason=f"{where} {first + row:,}: {reasons[row]}",
            record={
                f.name: column_values(nullable.column(f.name)[row : row + 1], f.type)[0]
                for f in schema
            },
        )
        for row in sorted(reasons)
    )
    kept = nullable.take(
        pa.array([row for row in range(nullable.num_rows) if row not in reasons], pa.int64())
    )
    return PolledRows(pa.RecordBatch.from_arrays(kept.columns, schema=target), bad)
