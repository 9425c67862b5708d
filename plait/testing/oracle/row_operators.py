"""Operators one record at a time, in the plainest Python: values in, a list of values out.

Each is made from its operator of the graph and the schema of its input. `apply` returns the rows
that one record becomes (none when it is filtered) or raises `Fault`; then the operator's state is
as before."""

from __future__ import annotations

import asyncio
import copy
import inspect
import math
from typing import TYPE_CHECKING, Any, Protocol

from plait.functions.open_close import hooks_of
from plait.graph.operators import (
    AggregateOp,
    AnyOp,
    Awaiting,
    CallOp,
    FilterOp,
    FoldOp,
    ProjectOp,
    StatefulOp,
)
from plait.model.records import value_of
from plait.model.schema import Field, Schema, Type
from plait.testing.oracle.aggregates import Results, Running
from plait.testing.oracle.expressions import compiled, widened
from plait.testing.oracle.values import (
    Fault,
    Values,
    held_from_arrow,
    held_of,
    held_to_arrow,
    record_of,
    to_held,
    to_python,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


class Operator(Protocol):
    def apply(self, values: Values) -> list[Values]: ...


def operator_of(op: AnyOp, schema: Schema) -> Operator:
    """What runs an operator that takes one record at a time; `schema` is its input's."""
    match op:
        case FilterOp():
            return Filter(op, schema)
        case ProjectOp():
            return Project(op, schema)
        case CallOp(awaiting=Awaiting() as awaiting) if op.columns:
            return AwaitedColumns(op, schema, awaiting)
        case CallOp(awaiting=Awaiting() as awaiting):
            return Awaited(op, schema, awaiting)
        case CallOp(mode="columns"):
            return Columns(op, schema)
        case CallOp():
            return Function(op, schema)
        case AggregateOp():
            return Aggregates(op, schema)
        case FoldOp():
            return Fold(op, schema)
        case StatefulOp():
            return Stateful(op, schema)
    raise TypeError(f"{type(op).__name__} does not take one record at a time")


def called(function: Callable[..., Any], *args: Any) -> Any:
    """What the user's function returns; whatever it raises is a fault of this record."""
    try:
        return function(*args)
    except (KeyboardInterrupt, SystemExit, Fault):
        raise
    except BaseException as error:
        raise Raised(f"{type(error).__name__}: {error}") from error


def fitted(result: Any, schema: Schema) -> Values:
    """What the user's function returned, as values of the output; a misfit is a fault."""
    try:
        return held_of(result, schema)
    except ValueError as error:
        raise Fault(str(error)) from error


def fitted_value(value: Any, field: Field) -> Any:
    """One column's value, checked as a whole record would be."""
    try:
        return to_held(value_of(value, field), field.type)
    except ValueError as error:
        raise Fault(str(error)) from error


class Filter:
    def __init__(self, op: FilterOp, schema: Schema) -> None:
        self.predicate = compiled(op.predicate, schema)

    def apply(self, values: Values) -> list[Values]:
        return [values] if self.predicate.run(values) is True else []


class Project:
    def __init__(self, op: ProjectOp, schema: Schema) -> None:
        self.columns = [
            widened(compiled(expr, schema), op.schema[name].type) for name, expr in op.columns
        ]

    def apply(self, values: Values) -> list[Values]:
        return [tuple(column.run(values) for column in self.columns)]


class Raised(Fault):
    """The user's function raised: the record may be tried again."""


def tries_of(op: CallOp) -> int:
    return 1 if op.retrying is None else op.retrying.retries + 1


def tried(op: CallOp, once: Callable[[], Any]) -> Any:
    """What one of the tries of a record gives; between them nothing has to be waited for."""
    for left in reversed(range(tries_of(op))):
        try:
            return once()
        except Raised:
            if not left:
                raise
    raise AssertionError("there is no try")


class Function:
    """map, filter and flat_map of records."""

    def __init__(self, op: CallOp, schema: Schema) -> None:
        self.op = op
        self.schema = schema

    def apply(self, values: Values) -> list[Values]:
        result: list[Values] = tried(self.op, lambda: self.once(values))
        return result

    def once(self, values: Values) -> list[Values]:
        out, function = self.op.schema, self.op.function
        record = record_of(values, self.schema)
        if self.op.mode == "map":
            return [fitted(called(function, record), out)]
        if self.op.mode == "filter":
            return [values] if called(lambda: bool(function(record))) else []
        # The results are taken one by one, each checked before the next is made.
        results: list[Values] = []
        iterator = called(lambda: iter(function(record)))
        while (result := called(next, iterator, END)) is not END:
            results.append(fitted(result, out))
        return results


END = object()


class Awaited:
    """An async function, run to its end for one record after the other."""

    def __init__(self, op: CallOp, schema: Schema, awaiting: Awaiting) -> None:
        self.op = op
        self.schema = schema
        self.timeout_s = None if awaiting.timeout_us is None else awaiting.timeout_us / 1e6
        self.tries = awaiting.retries + 1

    def apply(self, values: Values) -> list[Values]:
        result = called(lambda: asyncio.run(self.opened(values)))
        return [fitted(result, self.op.schema)]

    async def once(self, values: Values) -> Any:
        return await self.op.function(record_of(values, self.schema))

    async def opened(self, values: Values) -> Any:
        """Each record has an event loop of its own, in which its functions are opened and
        closed."""
        hooks = [one for function in self.op.functions if (one := hooks_of(function)) is not None]
        for one in hooks:
            await awaited(one.open)
        try:
            return await self.tried(values)
        finally:
            for one in reversed(hooks):
                await awaited(one.close)

    async def tried(self, values: Values) -> Any:
        """The tries of a record share a context; between them nothing has to be waited for."""
        for left in reversed(range(self.tries)):
            try:
                async with asyncio.timeout(self.timeout_s) as limit:
                    return await self.once(values)
            except (KeyboardInterrupt, SystemExit, asyncio.CancelledError):
                raise
            except BaseException as error:
                if left:
                    continue
                if limit.expired():
                    raise TimeoutError(f"no result within {self.timeout_s:g} s") from error
                raise
        raise AssertionError("there is no try")


async def awaited(hook: Callable[[], Any] | None) -> None:
    result = None if hook is None else hook()
    if inspect.isawaitable(result):
        await result


class Columns:
    """Functions whose parameters are named after the columns of the input that they read."""

    def __init__(self, op: CallOp, schema: Schema) -> None:
        self.op = op
        self.schema = schema
        self.reads = {
            name: [one for one in inspect.signature(function).parameters if one in schema]
            for name, function in op.columns
        }

    def apply(self, values: Values) -> list[Values]:
        old = dict(zip(self.schema.names, values, strict=True))
        new: dict[str, Any] = tried(self.op, lambda: self.once(old))
        return [replaced(self.op.schema, old, new)]

    def once(self, old: dict[str, Any]) -> dict[str, Any]:
        return {
            name: called(self.call, function, self.reads[name], old)
            for name, function in self.op.columns
        }

    def call(self, function: Callable[..., Any], reads: list[str], row: dict[str, Any]) -> Any:
        """The function on its columns; a parameter that names no column has its default."""
        args = {name: to_python(row[name], self.schema[name].type) for name in reads}
        if len(args) == len(inspect.signature(function).parameters):
            return function(*args.values())
        return function(**args)


def replaced(schema: Schema, old: dict[str, Any], new: dict[str, Any]) -> Values:
    """Only new values are checked: an old one may be a time that no datetime has."""
    return tuple(
        fitted_value(new[field.name], field) if field.name in new else old[field.name]
        for field in schema.fields
    )


class AwaitedColumns(Awaited):
    """Async functions of columns, one after the other."""

    def __init__(self, op: CallOp, schema: Schema, awaiting: Awaiting) -> None:
        super().__init__(op, schema, awaiting)
        self.plain = Columns(op, schema)

    def apply(self, values: Values) -> list[Values]:
        new: dict[str, Any] = called(lambda: asyncio.run(self.opened(values)))
        return [replaced(self.op.schema, dict(zip(self.schema.names, values, strict=True)), new)]

    async def once(self, values: Values) -> Any:
        old = dict(zip(self.schema.names, values, strict=True))
        return {
            name: await self.plain.call(function, self.plain.reads[name], old)
            for name, function in self.op.columns
        }


class Batches:
    """A function of one epoch's table; all its records share its fate."""

    def __init__(self, op: CallOp, schema: Schema) -> None:
        self.op = op
        self.schema = schema

    def apply_all(self, rows: Sequence[Values]) -> list[Values]:
        function = self.op.function
        result = tried(self.op, lambda: called(function, held_to_arrow(rows, self.schema)))
        try:
            return held_from_arrow(result, self.op.schema)
        except Exception as error:  # what came may be anything
            raise Fault(str(error)) from error


class Keys:
    """The key of a row: floats by value, so that 0.0 and -0.0 are one key; NaN is a fault."""

    def __init__(self, names: Iterable[str], schema: Schema) -> None:
        self.places = [schema.index(name) for name in names]
        self.floats = {i for i in self.places if schema.fields[i].type is Type.FLOAT64}

    def columns(self, values: Values) -> Values:
        return tuple(values[i] for i in self.places)

    def key(self, values: Values) -> Values:
        for i in self.floats:
            if values[i] is not None and math.isnan(values[i]):
                raise Fault("NaN cannot be a key")
        return self.columns(values)


class Aggregates:
    def __init__(self, op: AggregateOp, schema: Schema) -> None:
        self.keys = Keys(op.keys, schema)
        self.results = Results(op.aggregates, schema)
        self.states: dict[Values, list[Running]] = {}

    def apply(self, values: Values) -> list[Values]:
        key = self.keys.key(values)
        fed = self.results.fed(values)
        state = self.states.setdefault(key, self.results.start())
        self.results.check(state, fed)
        self.results.feed(state, fed)
        return [self.keys.columns(values) + tuple(running.result() for running in state)]


def fresh(init: Any) -> Any:
    return called(init) if callable(init) else copy.deepcopy(init)


class Stepping:
    """A state for each key, and a step from it and a record."""

    def __init__(self, op: FoldOp | StatefulOp, schema: Schema) -> None:
        self.op = op
        self.schema = schema
        self.keys = Keys(op.keys, schema)
        self.states: dict[Values, Any] = {}

    def stepped(self, values: Values) -> tuple[Values, Any]:
        """The key, and what the step returned."""
        key = self.keys.key(values)
        record = record_of(values, self.schema)
        state = self.states[key] if key in self.states else fresh(self.op.init)
        return key, called(self.op.step, state, record)


class Fold(Stepping):
    def apply(self, values: Values) -> list[Values]:
        key, state = self.stepped(values)
        keys = self.keys.columns(values)
        value = fitted_value(state, self.op.schema.fields[-1])
        self.states[key] = state
        return [(*keys, value)]


class Stateful(Stepping):
    def apply(self, values: Values) -> list[Values]:
        key, result = self.stepped(values)
        if not isinstance(result, tuple) or len(result) != 2:
            raise Fault(f"the step must return (state, record or None), not {result!r}")
        state, out = result
        rows = [] if out is None else [fitted(out, self.op.schema)]
        self.states[key] = state
        return rows


def described(values: Values, schema: Schema) -> Any:
    """The record for a message or a dead letter; the bare values where no record can be made."""
    try:
        return record_of(values, schema)
    except Exception:  # a dataclass's own checks may raise anything
        return values
