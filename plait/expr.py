"""Expressions over columns, as data: `col("price") * 2 > 100` builds a tree and computes nothing.

One node class and one table of operations; the type checker, the sequential oracle and the native kernels
are each one function per operation of that table. Semantics that all of them share:

- null in gives null out, except `is_null`, `fill_null`, `and`/`or` (three-valued logic) and `when`
  (a null condition does not match);
- int64 arithmetic wraps around as in NumPy; `//` and `%` round down as in Python; an integer `//` or `%`
  by zero fails the record; `/` is float64 division with IEEE results (x / 0 is inf or nan), and so are
  float `//` and `%` by zero;
- comparisons of floats are IEEE (NaN equals nothing, `!=` is true); strings compare by code point;
- `lower` and `upper` work character by character, `length` counts characters of a string, bytes of bytes;
- a cast that cannot be done (text that is no number, a float out of the range of int64) fails the record.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

from plait.errors import JobError
from plait.model import INT64_MAX, INT64_MIN, Type

OPERATIONS: dict[str, str] = {
    "col": "a column; value = name",
    "lit": "a constant; value = int, float, bool, str, bytes, aware datetime, timedelta (int64 microseconds) or None",
    "add": "int, float, timestamp + timedelta; strings and bytes: concatenation",
    "sub": "int, float, timestamp - timedelta, timestamp - timestamp (int64 microseconds)",
    "mul": "int, float",
    "truediv": "int, float -> float64",
    "floordiv": "int, float",
    "mod": "int, float",
    "neg": "int, float",
    "abs": "int, float",
    "bit_and": "int", "bit_or": "int", "bit_xor": "int",
    "shl": "int by a constant 0..63", "shr": "int by a constant 0..63 (arithmetic)",
    "eq": "same type (int and float mix)", "ne": "", "lt": "", "le": "", "gt": "", "ge": "",
    "and": "bool", "or": "bool", "not": "bool",
    "is_null": "any -> bool, never null",
    "is_nan": "float -> bool",
    "fill_null": "(a, b): a where not null, else b; same type",
    "is_in": "(a); value = tuple of constants -> bool",
    "lower": "string", "upper": "string", "strip": "string (ASCII white space at both ends)",
    "length": "string (characters) or bytes -> int64",
    "contains": "(string, string) -> bool", "startswith": "(string, string) -> bool", "endswith": "(string, string) -> bool",
    "cast": "value = Type",
    "when": "(condition, value, condition, value, ..., otherwise)",
    "year": "timestamp -> int64 (UTC)", "month": "timestamp", "day": "timestamp", "hour": "timestamp",
    "minute": "timestamp", "second": "timestamp",
    "truncate": "timestamp; value = microseconds: round down to a multiple since 1970",
    "call": "a compiled function of the arguments; value = the function",
}


@dataclass(frozen=True, eq=False, slots=True)
class Expr:
    """One operation over other expressions. `op` is a key of OPERATIONS."""

    op: str
    args: tuple[Expr, ...] = ()
    value: Any = None
