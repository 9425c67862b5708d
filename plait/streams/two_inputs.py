"""Two streams as one input: both are projected to the same columns and put together by a union.

The columns are `side` (0 left, 1 right), the key `k_0`, `k_1`, ..., then the columns of the left
(`l_...`) and of the right (`r_...`), null in the rows of the other side. Key columns are not
repeated. Columns that are computed for the operator alone have a number as name (`l_0`), which no
column of a user can have. `add_two_sided` adds the operator that reads them, and a projection that
removes what was for the operator alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from plait.errors import JobError
from plait.expr.text import text
from plait.expr.tree import Expr, col, lit
from plait.expr.type_checker import bind, check_column
from plait.graph.operators import TimedOp
from plait.graph.temporal import SIDE
from plait.model.schema import Field, Schema, Type
from plait.streams.stream_protocol import S, add_projection, unused_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.graph import temporal
    from plait.graph.operators import OnError, Route
    from plait.model.call_site import CallSite
    from plait.streams.event_time import Time

LEFT, RIGHT = "left", "right"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinKeys:
    """Columns of the left and the right stream that must be equal, pair by pair."""

    left: tuple[str, ...]
    right: tuple[str, ...]


def checked_on(on: Any, left: Schema, right: Schema) -> JoinKeys:
    """`on` as pairs of columns: "id", ("seller", "id"), or a list of such."""
    given = on if isinstance(on, list) else [on]
    if not given:
        raise JobError('on= names no column; write on="id" or on=("left", "right")')
    pairs: list[tuple[str, str]] = []
    for one in given:
        pair = one if isinstance(one, tuple) else (one, one)
        names = tuple(on_name(name) for name in pair)
        if len(names) != 2:
            raise JobError(
                f"on={on!r}: a pair is a column of the left and a column of the right stream;"
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
    return JoinKeys(left=tuple(one for one, _ in pairs), right=tuple(other for _, other in pairs))


def on_name(given: Any) -> str:
    if isinstance(given, str):
        return given
    if isinstance(given, Expr) and given.op == "col":
        return str(given.value)
    if isinstance(given, Expr):
        raise JobError(f"on= takes column names; add {text(given)} with with_columns first")
    raise JobError(f"on= takes column names, not {given!r}")


def side_field(name: str, schema: Schema, which: str) -> Field:
    try:
        return schema[check_column(name, schema)]
    except JobError as error:
        raise JobError(f"in the {which} stream: {error}") from None


class Part:
    """The columns of one side in the common rows, collected as they are asked for."""

    def __init__(self, schema: Schema, keys: Sequence[str], which: str) -> None:
        self.schema = schema
        self.keys = tuple(keys)
        self.which = which
        self.carried: dict[str, Expr] = {}
        """Common name -> expression over the columns of this side."""

    def column(self, name: str) -> str:
        """The common name of a column of this side."""
        if name in self.keys:
            return f"k_{self.keys.index(name)}"
        common = f"{self.which[0]}_{name}"
        self.carried[common] = col(name)
        return common

    def value(self, expr: Expr) -> str:
        """The common name of an expression over the columns of this side.

        A key of the right side gets a column of its own: the common key is the left record's in
        the output.
        """
        if expr.op == "col" and not (self.which == RIGHT and expr.value in self.keys):
            return self.column(side_field(expr.value, self.schema, self.which).name)
        try:
            bind(expr, self.schema)
        except JobError as error:
            raise JobError(f"in the {self.which} stream: {error}") from None
        numbered = sum(name[2:].isdigit() for name in self.carried)
        common = f"{self.which[0]}_{numbered}"
        self.carried[common] = expr
        return common

    def types(self) -> dict[str, Type]:
        """The type of each column that was asked for."""
        types: dict[str, Type] = {}
        for name, expr in self.carried.items():
            kind = bind(expr, self.schema).type
            if kind in (None, Type.OBJECT):
                raise JobError(
                    f"{text(expr)} of the {self.which} stream is object, which joins and connect"
                    " cannot carry; drop it first, or give it a type"
                )
            assert kind is not None
            types[name] = kind
        return types


def common_columns(left: Part, right: Part) -> list[list[tuple[str, Expr]]]:
    """The projections of the two sides to the same columns."""
    projections: list[list[tuple[str, Expr]]] = []
    for number, own in enumerate((left, right)):
        columns = [(SIDE, lit(number))]
        columns += [(f"k_{i}", col(key)) for i, key in enumerate(own.keys)]
        for part in (left, right):
            columns += [
                (name, part.carried[name] if part is own else lit(None).cast(kind))
                for name, kind in part.types().items()
            ]
        projections.append(columns)
    return projections


class TwoSided:
    """An operator that reads two streams as one: what it does (`spec`), the common columns it
    outputs (`columns`), their names for the user (`fields`) and its `results`. A column that is not
    in `fields` was for the operator alone."""

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


def add_two_sided(
    call: CallSite,
    streams: tuple[S, S],
    parts: tuple[Part, Part],
    operator: TwoSided,
    time: Time,
    record_class: type | None = None,
    joined_at: CallSite | None = None,
) -> S:
    """Adds an operator that reads both streams. `joined_at`: the call that put them together, if it
    is not the one that adds the operator."""
    at = joined_at or call
    sides = [
        add_projection(stream, at, columns, operator.on_error, part.which)
        for stream, columns, part in zip(streams, common_columns(*parts), parts, strict=True)
    ]
    both = sides[0]._union(at, sides[1:], f"{at.name}.sides")
    shown = [field.name for field in (*operator.fields.values(), *operator.results)]
    fields = []
    for column in operator.columns:
        field = both.schema[column]
        hidden = replace(field, name=unused_name(column, shown))
        fields.append(operator.fields.get(column, hidden))
    fields += operator.results
    whole = len(fields) == len(shown)
    op = TimedOp(
        name=call.name,
        at=call.at,
        inputs=(both._number,),
        schema=Schema(tuple(fields), record_class if whole else None),
        on_error=operator.on_error,
        keys=tuple(f"k_{i}" for i in range(len(parts[0].keys))),
        time="",
        spec=operator.spec,
        route=operator.route,
    )
    stream = both._append(op, time)
    if whole:
        return stream
    return add_projection(stream, call, [(name, col(name)) for name in shown], "fail", "columns")
