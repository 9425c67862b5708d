"""Tables as text: aligned columns, types in the header, long values shortened.

The width of a character is its width on a terminal (two for East Asian wide ones, none for marks
that combine), so columns stay aligned in any script. Control characters are shown escaped: a value
cannot move the cursor.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait.model.records import column_values
from plait.model.schema import Field, Schema, Type, arrow_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST = 40
"""The widest a value may be."""
GAP = "  "
RIGHT = (Type.INT64, Type.FLOAT64)


def format_table(table: Any, n: int | None = 20, schema: Schema | None = None) -> str:
    """The first `n` rows of a pyarrow Table or RecordBatch as text, all of them for None.

    Give the schema where there are object columns: in Arrow alone they are bytes.
    """
    shown = table if n is None else table.slice(0, n)
    layout = TableLayout.of(shown, schema or Schema.of(table.schema))
    text = layout.text(shown, head=True)
    more = table.num_rows - shown.num_rows
    return f"{text}\n{more_rows(more)}" if more else text


def more_rows(count: int) -> str:
    return f"... {count:,} more row{'' if count == 1 else 's'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """The widths of the columns of a schema."""

    schema: Schema
    widths: tuple[int, ...]

    @classmethod
    def of(cls, table: Any, schema: Schema) -> TableLayout:
        """The widths that the rows of a table need."""
        columns = cells(table, schema)
        widths = tuple(
            max(map(width, (field.name, type_word(field), *column)))
            for field, column in zip(schema, columns, strict=True)
        )
        return cls(schema=schema, widths=widths)

    def text(self, table: Any, *, head: bool) -> str:
        rows: list[Sequence[str]] = list(zip(*cells(table, self.schema), strict=True))
        right = [field.type in RIGHT for field in self.schema]
        lines = aligned(rows, self.widths, right)
        if head:
            names = [field.name for field in self.schema]
            types = [type_word(field) for field in self.schema]
            rule = GAP.join("-" * wide for wide in self.widths)
            lines = [*aligned([names, types], self.widths, right), rule, *lines]
        return "\n".join(lines)


def type_word(field: Field) -> str:
    return f"{field.type.value}{'?' if field.nullable else ''}"


def cells(table: Any, schema: Schema) -> list[list[str]]:
    """The text of every value, column by column."""
    return [
        [cell(value) for value in values(table.column(i), field)] for i, field in enumerate(schema)
    ]


def values(column: Any, field: Field) -> list[Any]:
    """The Python values of a column, also of a table that is not in plait's own Arrow types."""
    if column.type == arrow_type(field.type):
        return column_values(column, field.type)
    given: list[Any] = column.to_pylist()
    return given


def cell(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if hasattr(value, "isoformat") and hasattr(value, "tzinfo"):
        return str(value.replace(tzinfo=None).isoformat(" ")) + "Z"  # UTC, as everywhere
    return shorten(escaped(value if isinstance(value, str) else repr(value)))


def escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\u200d" else repr(c)[1:-1] for c in text)


def shorten(text: str, most: int = MOST) -> str:
    if width(text) <= most:
        return text
    kept, used = [], 0
    for character in text:
        used += width(character)
        if used > most - 3:
            break
        kept.append(character)
    return "".join(kept) + "..."


def width(text: str) -> int:
    """The columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(map(character_width, text))


def character_width(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def aligned(
    rows: Iterable[Sequence[str]], widths: Sequence[int], right: Sequence[bool]
) -> list[str]:
    """Lines of cells padded to their widths."""
    lines = []
    for row in rows:
        padded = [
            " " * (wide - width(text)) + text if to_right else text + " " * (wide - width(text))
            for text, wide, to_right in zip(row, widths, right, strict=True)
        ]
        lines.append(GAP.join(padded).rstrip())
    return lines


def small_table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    """A table of texts that are already made."""
    widths = [max(map(width, column)) for column in zip(head, *rows, strict=True)]
    rule = GAP.join("-" * wide for wide in widths)
    return "\n".join([*aligned([head], widths, right), rule, *aligned(rows, widths, right)])
