"""Running aggregates of one key, in the plainest Python: feed a value, read the result.

A null is never fed, except to the count of rows. Sums start with the first value (so that -0.0
alone stays) and add in the order of the records; sums of ints wrap around; means add floats. min
and max keep the first of equal values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from plait.model import Type
from plait.testing.oracle_expr import wrap


@dataclass(slots=True)
class Running:
    """The state of one aggregate of one key."""

    kind: str
    type: Type | None
    """Of the values it is fed; None for the count of rows."""
    seen: int = 0
    value: Any = None

    def feed(self, value: Any) -> None:
        self.seen += 1
        match self.kind:
            case "sum":
                total = value if self.value is None else self.value + value
                self.value = wrap(total) if self.type is Type.INT64 else total
            case "mean":
                self.value = float(value) if self.value is None else self.value + float(value)
            case "min" | "max":
                if self.value is None or is_nan(self.value) or self.beats(value):
                    self.value = value
            case "first":
                if self.seen == 1:
                    self.value = value
            case "last":
                self.value = value

    def beats(self, value: Any) -> bool:
        """Comparisons with NaN are false, so that NaN never replaces a number."""
        return bool(value < self.value if self.kind == "min" else value > self.value)

    def result(self) -> Any:
        if self.kind == "count":
            return self.seen
        if self.kind == "mean":
            return None if self.seen == 0 else self.value / self.seen
        return self.value


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
