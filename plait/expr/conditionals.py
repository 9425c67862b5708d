"""Expressions that are built of several parts: `when`, `coalesce`, `concat`.

Nothing here is a new operation; each composes those of `plait.expr.tree`.

    >>> when(col("price") > 100).then("high").otherwise("low")
    when(col("price") > 100).then('high').otherwise('low')
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

from plait.errors import JobError
from plait.expr.tree import Expr, col, to_expr
from plait.model.schema import Type

__all__ = ["Cases", "When", "coalesce", "col", "concat", "when"]


@dataclass(frozen=True, slots=True)
class When:
    """A condition that waits for its `then`."""

    before: tuple[Expr, ...]
    condition: Expr

    def then(self, value: Any) -> Cases:
        """The value where the condition is true and none before it was."""
        return Cases((*self.before, self.condition, to_expr(value)))


@dataclass(frozen=True, slots=True)
class Cases:
    """Conditions with their values, waiting for the next `when` or for `otherwise`."""

    parts: tuple[Expr, ...]

    def when(self, condition: Any) -> When:
        """The next condition, asked where those before were false or null."""
        return When(self.parts, to_expr(condition))

    def otherwise(self, value: Any) -> Expr:
        """The value where no condition was true. `None` for null."""
        return Expr("when", (*self.parts, to_expr(value)))


def when(condition: Any) -> When:
    """Chooses between values: `when(a).then(x).when(b).then(y).otherwise(z)`. The first condition
    that is true decides; `otherwise` ends the expression.

    >>> when(col("price") > 100).then("high").otherwise("low")
    when(col("price") > 100).then('high').otherwise('low')
    """
    return When((), to_expr(condition))


def coalesce(first: Any, *others: Any) -> Expr:
    """The first of the columns, expressions or constants that is not null.

    >>> coalesce(col("nick"), col("name"), "nameless")
    col("nick").fill_null(col("name")).fill_null('nameless')
    """
    return reduce(lambda one, other: one.fill_null(other), others, to_expr(first))


def concat(*parts: Any) -> Expr:
    """All parts as one string; numbers, booleans and timestamps as `.cast(str)` writes them.

    >>> import plait
    >>> items = plait.stream([{"item": "tea", "n": 3}])
    >>> texts = items.with_columns(text=concat(col("item"), " x ", col("n")))
    >>> [record.text for record in texts.collect()]
    ['tea x 3']
    """
    if not parts:
        raise JobError("concat needs at least one part")
    strings = [Expr("cast", (to_expr(part),), Type.STRING) for part in parts]
    return reduce(lambda one, other: one + other, strings)
