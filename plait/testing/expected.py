"""What `check(expect=...)` takes, as rows of the output: tables, and plain lists of records.

A list may hold dicts, tuples, lists, dataclasses, or bare values where the output has one column.
What cannot be a row of the output is an AssertionError that says which one and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from plait.connectors.columns import canonical
from plait.connectors.memory_sources import as_arrow, is_table
from plait.errors import JobError, SourceError
from plait.model.records import describe, values_of
from plait.model.schema import Schema, Type
from plait.testing.oracle.values import held_from_arrow, shown
from plait.testing.tables import Rows, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Row = tuple[Any, ...]
Expected = Rows | str | list[Any] | tuple[Any, ...] | Any
"""A table, its text, an Arrow, pandas or polars table, or a list of records."""


def expected_rows(expect: Expected, schema: Schema) -> list[Row]:
    """The rows that are expected of an output with this schema."""
    if isinstance(expect, str):
        expect = table(expect)
    if isinstance(expect, Rows):
        same_columns(expect.schema.names, schema)
        return with_floats(expect, schema)
    if is_table(expect):
        return rows_of_table(expect, schema)
    if isinstance(expect, list | tuple):
        return [row_of(record, schema, number) for number, record in enumerate(expect)]
    raise JobError(
        f"expect is {describe(expect)}; give a list of dicts or tuples, a table(...), or an Arrow,"
        " pandas or polars table"
    )


def rows_of_table(expect: Any, schema: Schema) -> list[Row]:
    arrow = as_arrow(expect)
    same_columns(arrow.schema.names, schema)
    own = Schema.of(arrow.schema)
    whole = canonical(arrow, own)
    rows = [shown(row, own) for one in whole.to_batches() for row in held_from_arrow(one, own)]
    return with_floats(rows, schema)


def row_of(record: Any, schema: Schema, number: int) -> Row:
    """A record of a list as a row of the output."""
    names = schema.names
    if isinstance(record, Mapping):
        unknown = [repr(name) for name in record if name not in names]
        if unknown:
            raise AssertionError(
                f"expect: row {number} has {', '.join(unknown)}; the output has: {', '.join(names)}"
            )
    bare = len(names) == 1 and isinstance(record, int | float | str | bytes | None)
    try:
        return values_of((record,) if bare else record, schema)
    except (ValueError, SourceError) as error:
        raise AssertionError(f"expect: row {number}: {error}") from None


def same_columns(names: Sequence[str], schema: Schema) -> None:
    if tuple(names) != schema.names:
        raise AssertionError(
            f"the output has the columns {', '.join(schema.names)}, expected {', '.join(names)}"
        )


def with_floats(rows: Iterable[Sequence[Any]], schema: Schema) -> list[Row]:
    """The rows with ints as floats where the output has floats: 10 may stand for 10.0."""

    def fit(value: Any, kind: Type) -> Any:
        return float(value) if kind is Type.FLOAT64 and type(value) is int else value

    return [tuple(fit(v, f.type) for v, f in zip(row, schema, strict=True)) for row in rows]
