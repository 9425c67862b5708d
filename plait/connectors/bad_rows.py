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

    from plait.connectors.columns import Rounding

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
        if answer.schema == schema.to_arrow():  # as it leaves a reader of plait's: objects packed
            return without_nulls(answer, schema, "record", read + 1)
        return fit_rows(answer, schema, "record", read + 1)
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


def fit_rows(
    rows: Any, schema: Schema, where: str, first: int, *, rounding: Rounding = "error"
) -> PolledRows:
    """Foreign Arrow data in plait's types: the rows that fit their columns, and those that do not.
    An error calls the row `where` and its number, the first one being `first`. Data whose types
    are other ones altogether is a SourceError: no row is to blame."""
    import pyarrow as pa

    anything = Schema(tuple(replace(field, nullable=True) for field in schema))
    try:
        return without_nulls(canonical(rows, anything, rounding), schema, where, first)
    except SourceError:
        reasons = find_misfits(rows, anything, rounding)
        if not reasons:
            raise
    good = [row for row in range(rows.num_rows) if row not in reasons]
    fitting = canonical(rows.take(pa.array(good, pa.int64())), anything, rounding)
    found = without_nulls(fitting, schema, where, first, numbers=good)
    misfits = [
        BadRow(
            row=row,
            reason=f"{where} {first + row:,}: {reason}",
            record={field.name: shown_value(rows, row, field) for field in schema},
        )
        for row, reason in reasons.items()
    ]
    return PolledRows(found.good, tuple(sorted((*found.bad, *misfits), key=lambda bad: bad.row)))


def find_misfits(rows: Any, schema: Schema, rounding: Rounding) -> dict[int, str]:
    """The rows with a value that its column does not take, and why."""
    reasons: dict[int, str] = {}

    def look(field: Field, first: int, end: int) -> None:
        some = rows.slice(first, end - first).select([field.name])
        try:
            canonical(some, Schema((field,)), rounding)
        except SourceError as error:
            if end - first == 1:
                reasons.setdefault(first, str(error))
                return
            middle = (first + end) // 2
            look(field, first, middle)
            look(field, middle, end)

    for field in schema:
        canonical(rows.slice(0, 0), Schema((field,)), rounding)  # raises if no row is to blame
        look(field, 0, rows.num_rows)
    return reasons


def shown_value(rows: Any, row: int, field: Field) -> Any:
    """A value of foreign data as a dead letter has it."""
    cell = rows.slice(row, 1).select([field.name])
    anything = replace(field, nullable=True)
    try:
        fitting = canonical(cell, Schema((anything,)))
        return column_values(fitting.column(0), field.type)[0]
    except (SourceError, OverflowError):
        scalar = cell.column(0)[0]
    try:
        return scalar.as_py()
    except ValueError:  # a time in nanoseconds, which Python does not have
        return str(scalar)


def without_nulls(
    rows: Any, schema: Schema, where: str, first: int, *, numbers: Sequence[int] | None = None
) -> PolledRows:
    """Arrow data in plait's types without the rows that have a null where none may be. An error
    calls the row `where` and its number: the first one is `first`, or the rows are `numbers` more
    than that."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(rows, pa.Table):
        batches = rows.combine_chunks().to_batches()
        rows = batches[0] if batches else pa.RecordBatch.from_pylist([], rows.schema)
    reasons: dict[int, str] = {}
    for field in schema:
        column = rows.column(field.name)
        if column.null_count and not field.nullable:
            for row in pc.indices_nonzero(column.is_null()).to_pylist():
                reasons.setdefault(
                    row, f'column "{field.name}" is null, but is declared as {field}'
                )
    target = schema.to_arrow()
    if not reasons:
        return PolledRows(pa.RecordBatch.from_arrays(rows.columns, schema=target))
    number_of = range(rows.num_rows) if numbers is None else numbers
    bad = tuple(
        BadRow(
            row=number_of[row],
            reason=f"{where} {first + number_of[row]:,}: {reasons[row]}",
            record={
                f.name: column_values(rows.column(f.name)[row : row + 1], f.type)[0] for f in schema
            },
        )
        for row in sorted(reasons)
    )
    kept = rows.take(
        pa.array([row for row in range(rows.num_rows) if row not in reasons], pa.int64())
    )
    return PolledRows(pa.RecordBatch.from_arrays(kept.columns, schema=target), bad)
