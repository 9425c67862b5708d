"""Random expressions: for every type, all the operations that can make it."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from plait.expr.text import WRAP
from plait.expr.tree import WRAPPED, Expr, col, lit
from plait.model.schema import Schema, Type
from plait.testing.random_jobs import TYPES, values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

INT, FLOAT, BOOL = Type.INT64, Type.FLOAT64, Type.BOOL
STRING, BYTES, TIME = Type.STRING, Type.BYTES, Type.TIMESTAMP
PARTS_OF_TIME = ("year", "month", "day", "hour", "minute", "second")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
CASTS: dict[Type, tuple[Type, ...]] = {
    INT: (FLOAT, BOOL, STRING, TIME),
    FLOAT: (INT, BOOL, STRING),
    BOOL: (INT, FLOAT, STRING),
    STRING: (INT, FLOAT, BOOL, BYTES, TIME),
    BYTES: (STRING,),
    TIME: (INT,),
}
STEPS_US = (1, 1_000, 10_000_000, 3_600_000_000, 86_400_000_000, 7_000_001)


class Drawer:
    """Draws an expression part by part; `left` is how deep it may still go."""

    def __init__(self, draw: Callable[[Any], Any], schema: Schema, far_times: bool) -> None:
        self.draw = draw
        self.schema = schema
        self.far_times = far_times
        self.makers: dict[Type, list[Callable[[int], Expr]]] = {
            INT: [self.int_pair, self.int_pair, self.bits, self.shift, self.one_int, self.part],
            FLOAT: [self.float_pair, self.float_pair, self.divide, self.one_float],
            BOOL: [self.compare, self.compare, self.logic, self.test, self.member, self.search],
            STRING: [self.join_strings, self.text],
            BYTES: [self.join_bytes],
            TIME: [self.move_time, self.truncate_time],
        }
        if far_times:
            self.makers[TIME].append(self.read)

    def pick(self, options: Sequence[Any]) -> Any:
        from hypothesis import strategies as st

        return self.draw(st.sampled_from(options))

    def expr(self, kind: Type, left: int) -> Expr:
        """An expression of one type."""
        if left <= 0:
            return self.leaf(kind)
        shared = [self.when, self.fill_null, self.cast]
        if kind is TIME and not self.far_times:
            shared.pop()
        maker = self.pick([*self.makers[kind], *self.makers[kind], *shared])
        if maker in shared:
            made: Expr = maker(kind, left - 1)
        else:
            made = maker(left - 1)
        return made

    def leaf(self, kind: Type) -> Expr:
        names = [field.name for field in self.schema.fields if field.type is kind]
        choice = self.pick(
            ["col", "col", "col", "lit", "null"] if names else ["lit", "lit", "null"]
        )
        if choice == "col":
            return col(self.pick(names))
        return self.null(kind) if choice == "null" else self.constant(kind)

    def null(self, kind: Type) -> Expr:
        return Expr("cast", (lit(None),), kind)

    def constant(self, kind: Type) -> Expr:
        return lit(self.draw(values(kind, far_times=self.far_times, huge=False)))

    def when(self, kind: Type, left: int) -> Expr:
        args: list[Expr] = []
        for _ in range(self.pick([1, 1, 2])):
            args += [self.expr(BOOL, left), self.expr(kind, left)]
        return Expr("when", (*args, self.expr(kind, left)))

    def fill_null(self, kind: Type, left: int) -> Expr:
        return Expr("fill_null", (self.expr(kind, left), self.expr(kind, left)))

    def cast(self, kind: Type, left: int) -> Expr:
        sources = [source for source in TYPES if kind in CASTS[source] and source is not kind]
        if kind is STRING:
            sources = [INT, FLOAT, BOOL, BYTES, TIME]
        if kind is TIME:
            sources = [INT]
        return Expr("cast", (self.expr(self.pick(sources), left),), kind)

    def int_pair(self, left: int) -> Expr:
        op = self.pick(["add", "sub", "mul", "floordiv", "mod"])
        how = self.pick([None, WRAP]) if op in WRAPPED else None
        return Expr(op, (self.expr(INT, left), self.divisor(op, INT, left)), how)

    def divisor(self, op: str, kind: Type, left: int) -> Expr:
        """The second operand; for a division mostly a constant that does not fail every record."""
        if op in ("floordiv", "mod") and self.pick([True, True, False]):
            return lit(self.pick([1, -1, 2, 3, -7, 1000] if kind is INT else [0.5, -2.0, 0.0]))
        return self.expr(kind, left)

    def bits(self, left: int) -> Expr:
        op = self.pick(["bit_and", "bit_or", "bit_xor"])
        return Expr(op, (self.expr(INT, left), self.expr(INT, left)))

    def shift(self, left: int) -> Expr:
        return Expr(
            self.pick(["shl", "shr"]), (self.expr(INT, left), lit(self.pick([0, 1, 5, 63])))
        )

    def one_int(self, left: int) -> Expr:
        if self.pick([True, False]):
            how = self.pick([None, WRAP])
            return Expr(self.pick(["neg", "abs"]), (self.expr(INT, left),), how)
        return Expr("length", (self.expr(self.pick([STRING, BYTES]), left),))

    def part(self, left: int) -> Expr:
        if self.pick([True, True, False]):
            return Expr(self.pick(PARTS_OF_TIME), (self.expr(TIME, left),))
        return Expr("sub", (self.expr(TIME, left), self.expr(TIME, left)))

    def float_pair(self, left: int) -> Expr:
        op = self.pick(["add", "sub", "mul", "floordiv", "mod"])
        one, other = self.pick([(FLOAT, FLOAT), (FLOAT, INT), (INT, FLOAT)])
        return Expr(op, (self.expr(one, left), self.divisor(op, other, left)))

    def divide(self, left: int) -> Expr:
        kinds = [self.pick([INT, FLOAT]) for _ in range(2)]
        return Expr("truediv", tuple(self.expr(kind, left) for kind in kinds))

    def one_float(self, left: int) -> Expr:
        return Expr(self.pick(["neg", "abs"]), (self.expr(FLOAT, left),))

    def compare(self, left: int) -> Expr:
        kind = self.pick(TYPES)
        other = self.pick([INT, FLOAT]) if kind in (INT, FLOAT) else kind
        return Expr(self.pick(COMPARISONS), (self.expr(kind, left), self.expr(other, left)))

    def logic(self, left: int) -> Expr:
        op = self.pick(["and", "or", "not"])
        return Expr(op, tuple(self.expr(BOOL, left) for _ in range(1 if op == "not" else 2)))

    def test(self, left: int) -> Expr:
        if self.pick([True, False]):
            return Expr("is_nan", (self.expr(FLOAT, left),))
        return Expr("is_null", (self.expr(self.pick(TYPES), left),))

    def member(self, left: int) -> Expr:
        from hypothesis import strategies as st

        kind = self.pick(TYPES)
        one = values(kind, far_times=self.far_times, huge=False)
        options = self.draw(st.lists(one, max_size=self.pick([4, 40])))
        return self.expr(kind, left).is_in(options)

    def search(self, left: int) -> Expr:
        op = self.pick(["contains", "startswith", "endswith"])
        return Expr(op, (self.expr(STRING, left), self.expr(STRING, left)))

    def join_strings(self, left: int) -> Expr:
        return Expr("add", (self.expr(STRING, left), self.expr(STRING, left)))

    def join_bytes(self, left: int) -> Expr:
        return Expr("add", (self.expr(BYTES, left), self.expr(BYTES, left)))

    def text(self, left: int) -> Expr:
        return Expr(self.pick(["lower", "upper", "strip"]), (self.expr(STRING, left),))

    def move_time(self, left: int) -> Expr:
        days = self.pick([1, -3, 400_000] if self.far_times else [1, -3])
        by = lit(datetime.timedelta(days=days, microseconds=7))
        if self.far_times and self.pick([True, False]):
            by = Expr("neg", (self.expr(INT, left),))
        return Expr(self.pick(["add", "sub"]), (self.expr(TIME, left), by))

    def read(self, left: int) -> Expr:
        kind = self.pick([INT, FLOAT, STRING])
        if kind is STRING:
            return self.expr(kind, left).to_timestamp(tz=self.pick([None, "UTC", "Asia/Tokyo"]))
        rounding = self.pick(["error", "down"])
        unit = self.pick(["s", "ms", "us", "ns"])
        return self.expr(kind, left).to_timestamp(unit=unit, rounding=rounding)

    def truncate_time(self, left: int) -> Expr:
        return Expr("truncate", (self.expr(TIME, left),), self.pick(STEPS_US))
