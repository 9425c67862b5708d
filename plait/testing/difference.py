"""Whether two tables are the same, bit for bit, and where they first differ.

Floats are compared by their bits, so that 0.0 and -0.0 differ; all NaNs are the same. Objects are
the same if they are equal or have the same pickle.
"""

from __future__ import annotations

import math
import pickle
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from plait.testing.tables import format_rows

if TYPE_CHECKING:
    from plait.model.schema import Schema

Row = Sequence[Any]
AROUND = 5
"""How many rows a message shows before and after the first that differs."""


def same_value(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return bits(a) == bits(b)
    try:
        if bool(a == b):
            return True
        return pickle.dumps(a) == pickle.dumps(b)
    except Exception:  # comparing and pickling run code of the value's class
        return False


def bits(value: float) -> bytes:
    return b"nan" if math.isnan(value) else struct.pack("<d", value)


def same_row(a: Row, b: Row) -> bool:
    return len(a) == len(b) and all(map(same_value, a, b))


def first_difference(got: Sequence[Row], wanted: Sequence[Row]) -> int | None:
    """The index of the first row that differs; None when the tables are the same."""
    for i, (a, b) in enumerate(zip(got, wanted, strict=False)):
        if not same_row(a, b):
            return i
    return None if len(got) == len(wanted) else min(len(got), len(wanted))


def story(
    title: str, schema: Schema, got: Sequence[Row], wanted: Sequence[Row], other: str
) -> str | None:
    """What differs, with both tables around the first different row; None when nothing does."""
    at = first_difference(got, wanted)
    if at is None:
        return None
    lines = [
        f"{title}: row {at} is the first that differs ({len(got)} rows, {other} {len(wanted)})"
    ]
    for name, rows in (("got", got), (other, wanted)):
        row = format_rows(schema, [rows[at]]).split("\n")[-1] if at < len(rows) else "no such row"
        lines.append(f"  {name}: {row}")
    first, last = max(0, at - AROUND), at + AROUND + 1
    for name, rows in (("got", got), (other, wanted)):
        lines.append(f"{name}, rows {first} to {max(first, min(last, len(rows)) - 1)}:")
        shown = format_rows(schema, rows[first:last])
        lines += [f"  {line}" for line in shown.split("\n")]
    return "\n".join(lines)
