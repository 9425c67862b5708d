"""Two streams as one input: both projected to the same columns, and which of them a row is of.

The columns are `side` (0 left, 1 right), the key `k_0`, `k_1`, ..., then the columns of the left
(`l_...`) and of the right (`r_...`), null in the rows of the other side. Key columns of a side are
not there a second time. Columns that are computed for the operator alone have a number as name
(`l_0`), which no column of the user's can have. `two_sided` adds the operator that reads them, and
a projection that leaves out what was for the operator alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait.errors import JobError
from plait.expr.text import text
from plait.expr.tree import Expr, col, lit
from plait.expr.type_checker import bind, check_column
from plait.graph.operators import TimedOp
from plait.graph.temporal import SIDE
from plait.model.schema import Field, Schema, Type
from plait.streams.stream_protocol import S, free, projected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.graph import temporal
    from plait.graph.operators import OnError, Route
    from plait.model.call_site import CallSite
    from plait.streams.event_time import Time

LEFT, RIGHT = "left", "right"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Columns of the left and of the right that must be equal, pair by pair."""

    left: tuple[str, ...]
    right: tuple[str, ...]


def checked_on(on: Any, left: Schema, right: Schema) -> Keys:
    """`on` as pairs of columns: "id", ("seller", "id"), or a list of such."""
    given = on if isinstance(on, list) else [on]
    if not given:
        raise JobError('on= names no column; write on="id" or on=("left", "right")')
    pairs: list[tuple[str, str]] = []
    for one in given:
        pair = one if isinstance(one, tuple) else (one, one)
        names = tuple(key_name(name) for name in pair)
        if len(names) != 2:
            raise JobError(
                f"on={on!r}: a pair is the column of the left and that of the right stream;"
                ' for several columns give a list: on=["a", ("b", "c")]'
            )
        pairs.append((names[0], names[1]))
    for one, other in pairs:
        ours, theirs = side_field(one, left, LEFT), side_field(other, right, RIGHT)
        if Type.OBJECT in (ours.type, theirs.type):
            raise JobError(f'"{one}" and "{other}": an object cannot be a key; give it a type')
        if ours.type is not theirs.type:
            raise JobError(
                f'"{one}" of the left stream is {ours.type.value}, "{other}" of the right one is'
                f" {theirs.type.value}; make them the same with .cast(...)"
            )
    return Keys(left=tuple(one for one, _ in pairs), right=tuple(other for _, other in pairs))


def key_name(given: Any) -> str:
    if isinstance(given, str):
        return given
    if isinstance(given, Expr) and given.op == "col":
        return str(given.value)
    if isinstance(given, Expr):
        raise JobError(f"on= takes names of columns; add {text(given)} by with_columns first")
    raise JobError(f"on= takes names of columns, not {given!r}")


def side_field(name: str, schema: Schema, which: str) -> Field:
    try:
        return schema[check_column(name, schema)]
    except JobError as error:
        raise JobError(f"of the {which} stream: {error}") from None


class Part:
    """The columns of one side in the united rows, as they are asked for."""

    def __init__(self, schema: Schema, keys: Sequence[str], which: str) -> None:
        self.schema = schema
        self.keys = tuple(keys)
        self.which = which
        self.carried: dict[str, Expr] = {}
        """United name -> expression over the side's own columns."""

    def column(self, name: str) -> str:
        """The united name of a column of the side."""
        if name in self.keys:
            return f"k_{self.keys.index(name)}"
        united = f"{self.which[0]}_{name}"
        self.carried[united] = col(name)
        return united

    def value(self, expr: Expr) -> str:
        """The united name of an expression over the side's columns."""
        if expr.op == "col":
            return self.column(side_field(expr.value, self.schema, self.which).name)
        try:
            bind(expr, self.schema)
        except JobError as error:
            raise JobError(f"of the {self.which} stream: {error}") from None
        numbered = sum(name[2:].isdigit() for name in self.carried)
        united = f"{self.which[0]}_{numbered}"
        self.carried[united] = expr
        return united

    def types(self) -> dict[str, Type]:
        found: dict[str, Type] = {}
        for name, expr in self.carried.items():
            kind = bind(expr, self.schema).type
            if kind in (None, Type.OBJECT):
                raise JobError(
                    f"{text(expr)} of the {self.which} stream is object, which only Python can"
                    " carry; drop it before, or give it a type"
                )
            assert kind is not None
            found[name] = kind
        return found


def united_columns(left: Part, right: Part) -> list[list[tuple[str, Expr]]]:
    """The projections of the two sides to the same columns."""
    made: list[list[tuple[str, Expr]]] = []
    for number, own in enumerate((left, right)):
        columns = [(SIDE, lit(number))]
        columns += [(f"k_{i}", col(key)) for i, key in enumerate(own.keys)]
        for part in (left, right):
            columns += [
                (name, part.carried[name] if part is own else lit(None).cast(kind))
                for name, kind in part.types().items()
            ]
        made.append(columns)
    return made


class TwoSided:
    """An operator that reads two streams as one: what it does, the united columns that come out of
    it, and what these are called. Columns without a name were for the operator alone."""

    def __init__(
        self,
        *,
        spec: temporal.TimedSpec,
        columns: Sequence[str],
        fields: Mapping[str, Field],
        on_error: OnError,
        results: Sequence[Field] = (),
        route: Route = "auto",
    ) -> None:
        self.spec = spec
        self.columns = columns
        self.fields = fields
        self.on_error = on_error
        self.results = results
        self.route = route


def two_sided(
    place: CallSite,
    streams: tuple[S, S],
    parts: tuple[Part, Part],
    made: TwoSided,
    time: Time,
    record_class: type | None = None,
    joined_at: CallSite | None = None,
) -> S:
    """The stream of an operator that reads both streams. `joined_at`: where the user put them
    together, if it is not where the operator is."""
    at = joined_at or place
    sides = [
        projected(stream, at, columns, made.on_error, part.which)
        for stream, columns, part in zip(streams, united_columns(*parts), parts, strict=True)
    ]
    both = sides[0]._united(at, sides[1:], f"{at.name}.sides")
    shown = [field.name for field in (*made.fields.values(), *made.results)]
    fields = []
    for column in made.columns:
        given = both.schema[column]
        hidden = Field(free(column, shown), given.type, given.nullable)
        fields.append(made.fields.get(column, hidden))
    fields += made.results
    whole = len(fields) == len(shown)
    op = TimedOp(
        name=place.name,
        at=place.at,
        inputs=(both._number,),
        schema=Schema(tuple(fields), record_class if whole else None),
        on_error=made.on_error,
        keys=tuple(f"k_{i}" for i in range(len(parts[0].keys))),
        time="",
        spec=made.spec,
        route=made.route,
    )
    stream = both._made(op, time)
    if whole:
        return stream
    return projected(stream, place, [(name, col(name)) for name in shown], "fail", "columns")
