"""Aggregates of one key, in the plainest Python: feed a value, read the result.

A null is never fed, except to the count of rows. Sums start with the first value (so that -0.0
alone stays) and add in the order of the records; means add floats. min and max keep the first of
equal values; first and last go by the places of their records. A record whose value does not fit a
sum of ints fails before anything is changed (`Results.check`), unless the sum is to wrap around.

The aggregates of two parts of a window (panes of a sliding window, sessions that become one) are
joined by `absorb`, the earlier part taking the later one in: sums are those of the parts added.
No single record is to blame for one that does not fit then: it ends the run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from plait.errors import RecordError
from plait.model.schema import INT64_MAX, INT64_MIN, Type
from plait.testing.oracle.expressions import compiled, wrap
from plait.testing.oracle.values import Fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.expr.aggregates import Aggregate
    from plait.model.schema import Schema
    from plait.testing.oracle.values import Values

NAN = "nan"
"""Stands for every NaN among the different values."""


@dataclass(slots=True)
class Running:
    """The state of one aggregate of one key."""

    kind: str
    type: Type | None
    """Of the values it is fed; None for the count of rows."""
    seen: int = 0
    value: Any = None
    place: int = 0
    """Of the record that `value` is of, for first and last."""
    different: set[Any] = field(default_factory=set)
    wrap: bool = False

    def feed(self, value: Any, place: int = 0) -> None:
        self.seen += 1
        match self.kind:
            case "sum":
                self.add(value)
            case "mean":
                self.add(float(value))
            case "min" | "max":
                if self.value is None or is_nan(self.value) or self.beats(value):
                    self.value = value
            case "first":
                if self.seen == 1:
                    self.value, self.place = value, place
            case "last":
                self.value, self.place = value, place
            case "distinct":
                self.different.add(NAN if is_nan(value) else value)

    def add(self, value: Any) -> None:
        total = value if self.value is None else self.value + value
        if self.kind == "sum" and self.type is Type.INT64:
            if not self.holds(total):
                raise RecordError(f"a sum does not fit int64: {self.value} + {value}")
            total = wrap(total)
        self.value = total

    def holds(self, total: int) -> bool:
        """Whether a sum of ints may be as large as this."""
        return self.wrap or INT64_MIN <= total <= INT64_MAX

    def check(self, value: Any) -> None:
        """Raises Fault if the value does not fit; nothing is changed."""
        checked = self.kind == "sum" and self.type is Type.INT64 and self.value is not None
        if checked and not self.holds(self.value + value):
            raise Fault(f"a sum does not fit int64: {self.value} + {value}")

    def beats(self, value: Any) -> bool:
        """Comparisons with NaN are false, so that NaN never replaces a number."""
        return bool(value < self.value if self.kind == "min" else value > self.value)

    def absorb(self, later: Running) -> None:
        """Takes in what another part of the same window has."""
        if later.seen == 0:
            return
        if self.seen == 0:
            self.value, self.place = later.value, later.place
        elif self.kind in ("sum", "mean"):
            self.add(later.value)
        elif self.kind in ("min", "max"):
            if is_nan(self.value) or self.beats(later.value):
                self.value = later.value
        elif (self.kind == "first" and later.place < self.place) or (
            self.kind == "last" and later.place > self.place
        ):
            self.value, self.place = later.value, later.place
        self.seen += later.seen
        self.different |= later.different

    def result(self) -> Any:
        if self.kind == "count":
            return self.seen
        if self.kind == "distinct":
            return len(self.different)
        if self.kind == "mean":
            return None if self.seen == 0 else self.value / self.seen
        return self.value


class Results:
    """Named aggregates over the rows of a schema."""

    def __init__(self, aggregates: Sequence[tuple[str, Aggregate]], schema: Schema) -> None:
        self.names = [name for name, _ in aggregates]
        self.parts = [
            (one.kind, None if one.over is None else compiled(one.over, schema))
            for _, one in aggregates
        ]
        self.wraps = [one.wrap for _, one in aggregates]

    def fed(self, values: Values) -> Values:
        """What a row gives to each aggregate; raises Fault."""
        return tuple(None if over is None else over.run(values) for _, over in self.parts)

    def start(self) -> list[Running]:
        return [
            Running(kind, None if over is None else over.type, wrap=wraps)
            for (kind, over), wraps in zip(self.parts, self.wraps, strict=True)
        ]

    def check(self, state: Sequence[Running], fed: Values) -> None:
        """Raises Fault if a row does not fit the sums; nothing is changed."""
        for running, value in zip(state, fed, strict=True):
            if value is not None:
                running.check(value)

    def feed(self, state: Sequence[Running], fed: Values, place: int = 0) -> None:
        for running, (_, over), value in zip(state, self.parts, fed, strict=True):
            if over is None or value is not None:
                running.feed(value, place)


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
