"""Values as rows by a function of the user's that takes many at once: for Avro, Protobuf and what
else has a schema of its own.

The function is given the values of a poll and returns as many records, in their order. If it
raises, it is asked again with each half, so in the end the bad values are alone and all others are
rows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from plait.connectors.bad_rows import PolledRows, fit_rows, sort_out
from plait.connectors.columns import to_batch
from plait.connectors.kafka.formats import Decoded
from plait.errors import SourceError
from plait.model.records import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plait.model.schema import Schema

RECORD = re.compile(r"^record [\d,]+[,:] ")
"""How a reason begins; which record it was is said by its offset."""


def batch_decoder(
    function: Callable[[list[bytes | None]], Any], schema: Schema
) -> Callable[[Sequence[bytes | None]], Decoded]:
    """What turns the values of a poll into rows by a function of a list of values."""

    def decode(values: Sequence[bytes | None]) -> Decoded:
        good: list[Any] = []
        numbers: list[int] = []
        reasons: dict[int, str] = {}

        def look(first: int, end: int) -> None:
            try:
                answer = function(list(values[first:end]))
            except Exception as error:
                if end - first == 1:
                    reasons[first] = f"decode_batch raised {type(error).__name__}: {error}"
                    return
                middle = (first + end) // 2
                look(first, middle)
                look(middle, end)
                return
            rows = rows_of(answer, end - first, schema)
            bad = {one.row for one in rows.bad}
            good.append(rows.good)
            numbers.extend(first + row for row in range(end - first) if row not in bad)
            for one in rows.bad:
                reasons[first + one.row] = f"decode_batch returned: {RECORD.sub('', one.reason)}"

        look(0, len(values))
        return Decoded(as_one(good, schema), numbers, reasons)

    return decode


def rows_of(answer: Any, count: int, schema: Schema) -> PolledRows:
    """What the function returned, sorted out."""
    import pyarrow as pa

    if isinstance(answer, pa.RecordBatch | pa.Table):
        check_count(answer.num_rows, count)
        try:
            return fit_rows(answer, schema, "record", 1)
        except SourceError as error:  # no row is to blame: a column is missing, or of another type
            raise SourceError(
                f"decode_batch returned a {type(answer).__name__} that does not fit schema=:"
                f" {error}"
            ) from None
    if isinstance(answer, list | tuple):
        check_count(len(answer), count)
        return sort_out(answer, lambda some, first: to_rows(some, schema, first))
    raise SourceError(
        f"decode_batch returned {describe(answer)}; it must return a list of records, a RecordBatch"
        " or a Table"
    )


def check_count(got: int, wanted: int) -> None:
    if got != wanted:
        raise SourceError(
            f"decode_batch returned {got:,} records for {wanted:,} values; it must return one for"
            " each, or raise"
        )


def to_rows(records: Sequence[Any], schema: Schema, first: int) -> Any:
    try:
        return to_batch(records, schema, first)
    except UnicodeEncodeError:
        raise SourceError("a text has half of a surrogate pair, which no UTF-8 has") from None


def as_one(batches: Sequence[Any], schema: Schema) -> Any:
    """The rows of all, as one RecordBatch."""
    import pyarrow as pa

    tables = [b if isinstance(b, pa.Table) else pa.Table.from_batches([b]) for b in batches]
    together = pa.concat_tables(tables).combine_chunks().to_batches() if tables else []
    if len(together) > 1:
        raise SourceError("decode_batch returned more than 2 GiB in a column; set epoch_records=")
    return together[0] if together else to_batch([], schema)
