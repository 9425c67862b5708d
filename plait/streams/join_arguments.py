"""Checks of a join's arguments, and what follows from them: columns and event time of a pair.

Pure functions; each raises a JobError that says what to write instead.
"""

from __future__ import annotations

import datetime
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from plait.errors import JobError
from plait.expr.conditionals import when
from plait.expr.text import text
from plait.expr.tree import Expr, col, columns_read, lit
from plait.expr.type_checker import bind
from plait.graph import temporal
from plait.graph.temporal import How
from plait.model.durations import Duration, microseconds
from plait.model.schema import Field, Schema, Type
from plait.streams.event_time import Lost, any_duration, at_least_zero, carry_time, later_time
from plait.streams.windows import checked_window

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.streams.event_time import Time
    from plait.streams.two_inputs import JoinKeys

Within = temporal.Grid | temporal.Between | temporal.AsOf | None


class JoinRequest:
    """The arguments of a join, checked."""

    def __init__(self, *, within: Within, how: How, ttl_us: int, suffix: str) -> None:
        if not isinstance(suffix, str) or not f"a{suffix}".isidentifier() or not suffix:
            raise JobError(
                f'suffix is {suffix!r}; it must be an ending for names, such as "_right"'
            )
        if how == "late" and within is None and not ttl_us:
            raise JobError('how="late" needs window=, between= or ttl=')
        self.within = within
        self.how = how
        self.ttl_us = ttl_us
        self.suffix = suffix

    @property
    def one_sided(self) -> bool:
        """Whether the output has the columns of the left stream alone."""
        return self.how in temporal.ONE_SIDED


def right_fields(
    left: Schema, right: Schema, keys: JoinKeys, spec: JoinRequest
) -> dict[str, Field]:
    """The columns of the right record in a pair, by their names in the right stream."""
    found: dict[str, Field] = {}
    for field in right.fields:
        if field.name in keys.right:
            continue
        name = field.name + spec.suffix if field.name in left else field.name
        if name in left or (name != field.name and name in right):
            raise JobError(
                f'both streams have a column "{field.name}", and "{name}" is taken as well;'
                ' choose another suffix, such as suffix="_other", or rename the column'
            )
        nullable = field.nullable or spec.how == "left"
        found[field.name] = replace(field, name=name, nullable=nullable)
    return found


def pair_time(
    left: Time,
    right: Time,
    keys: Mapping[str, str],
    names: Mapping[str, str],
    always: Sequence[str],
    spec: JoinRequest,
) -> Time:
    """The event time of a pair is the later of the two; that of a left record without a match is
    when that is known. The columns of the right record have the names of the left `keys` and the
    `names` in a pair; of the latter, those in `always` are null only where there is no match."""
    if isinstance(left, Lost):
        return left
    end_us = spec.ttl_us
    if isinstance(spec.within, temporal.Between):
        end_us = max(spec.within.high_us, 0)
    alone = left + lit(datetime.timedelta(microseconds=end_us)) if end_us else left
    match spec.how:
        case "semi" | "late":
            return left
        case "anti":
            return alone
    if isinstance(spec.within, temporal.AsOf):
        return left
    if isinstance(right, Lost):
        return right
    theirs = carry_time(right, {**keys, **names}, "join")
    if isinstance(theirs, Lost):
        return theirs
    same = text(theirs) == text(left)
    matched = left if same else later_time(left, theirs)
    if spec.how == "inner" or (same and not end_us):
        return matched
    if not columns_read(right) & keys.keys():
        return when(theirs.is_null()).then(alone).otherwise(matched)
    if always:
        return when(col(always[0]).is_null()).then(alone).otherwise(matched)
    return Lost(
        'join with how="left" has the event time of the right stream as a key, and no other right'
        " column tells records with a match from those without; add one that is never null, as"
        " with_columns(matched=True)"
    )


def checked_how(how: Any) -> How:
    if how not in get_args(How):
        words = ", ".join(f'"{word}"' for word in get_args(How))
        raise JobError(f"how is {how!r}; it must be one of {words}")
    checked: How = how
    return checked


def refuse(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise JobError(f"{name}= cannot be combined with window= or between=; choose one")


def is_span(between: Any) -> bool:
    return isinstance(between, tuple | list) and any(isinstance(one, Expr) for one in between)


def checked_within(window: Any, between: Any) -> Within:
    if window is not None and between is not None:
        raise JobError("give window= or between=, not both")
    if window is not None:
        noun = checked_window(window)
        if not isinstance(noun.spec, temporal.Grid):
            raise JobError(f"a join needs a Tumbling or Sliding window, not {noun!r}")
        return noun.spec
    if between is None:
        return None
    if not isinstance(between, tuple | list) or len(between) != 2:
        raise JobError(f'between is {between!r}; it must be two durations: ("-5s", "10s")')
    low, high = (any_duration(one) for one in between)
    if low > high:
        raise JobError(f"between is {between!r}: the first must not be above the second")
    return temporal.Between(low_us=low, high_us=high)


def join_ttl_us(ttl: Duration | None) -> int:
    return 0 if ttl is None else microseconds(ttl)


def wait_us(wait: Duration | None) -> int:
    return 0 if wait is None else at_least_zero("wait", wait)


def checked_span(between: Any, schema: Schema) -> tuple[Expr, Expr]:
    """Start and end of a span: two times of the left record."""
    if len(between) != 2 or not all(isinstance(one, Expr) for one in between):
        raise JobError(
            f"between is {between!r}; it must be two times of the left record,"
            ' (col("ts"), col("expires")), or two durations, ("-5s", "10s")'
        )
    for one in between:
        try:
            bound = bind(one, schema)
        except JobError as error:
            raise JobError(f"in the left stream: {error}") from None
        if bound.type is not Type.TIMESTAMP:
            raise JobError(f"between: {text(one)} is {bound}, not a timestamp")
    return between[0], between[1]
