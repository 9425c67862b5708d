"""What can be known about a user's function before it runs: its parameters and what it returns.

Nothing is called. The output of `map`, `flat_map` and `stateful` is the return annotation, or
`schema=`, or else the schema of the input; what the annotation leaves open (`dict`, `tuple`) is
refused here, at the user's line, and not at the first record.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import inspect
import types
import typing
from typing import Any

from plait.errors import JobError
from plait.expr.type_checker import check_column
from plait.model.schema import FROM_PYTHON, Field, Schema, field_of

if typing.TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NOTHING = object()
"""There is no annotation, or one that says nothing (`Any`)."""

UNNAMED = (dict, collections.abc.Mapping, tuple, list, set)


class Negated:
    """The opposite of a predicate. A class, so that it can be pickled when the predicate can."""

    def __init__(self, predicate: Callable[[Any], Any]) -> None:
        self.predicate = predicate
        self.__name__ = f"not {name_of(predicate)}"

    def __call__(self, record: Any) -> bool:
        return not self.predicate(record)


def name_of(function: Any) -> str:
    if isinstance(function, functools.partial):
        return name_of(function.func)
    return str(getattr(function, "__name__", type(function).__name__))


def plain(function: Any) -> Any:
    """The Python function inside a partial or a callable object."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, type) or hasattr(function, "__code__"):
        return function
    if inspect.ismethod(function) or inspect.isbuiltin(function):
        return function
    return type(function).__call__


def check_call(function: Any, wanted: Sequence[str]) -> None:
    """Raises unless the function can be called with these things, in this order."""
    if not callable(function):
        raise JobError(f"{function!r} is not a function")
    if inspect.iscoroutinefunction(plain(function)):
        raise JobError(f'"{name_of(function)}" is async; give a plain function, or use map_async')
    check_arguments(function, wanted)


def check_awaited(function: Any) -> None:
    """Raises unless the function is async and takes a record."""
    if not callable(function):
        raise JobError(f"{function!r} is not a function")
    check_async(function)
    check_arguments(function, ("record",))


def check_async(function: Any) -> None:
    name, inner = name_of(function), plain(function)
    if inspect.isasyncgenfunction(inner):
        raise JobError(f'"{name}" yields; an async function for a record returns one thing')
    if not inspect.iscoroutinefunction(inner):
        raise JobError(
            f'"{name}" is not async, so it would hold up all others; write it as "async def" and'
            " await what it waits for (asyncio.to_thread for a blocking call), or use the verb"
            " without _async"
        )


def check_arguments(function: Any, wanted: Sequence[str]) -> None:
    name = name_of(function)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # a builtin that does not say
    try:
        signature.bind(*wanted)
    except TypeError as error:
        things = " and ".join(f"a {thing}" for thing in wanted)
        raise JobError(f'"{name}{signature}" cannot be called with {things}: {error}') from None


def parameters(function: Any, schema: Schema, *, awaited: bool = False) -> tuple[str, ...]:
    """The columns that a function of columns reads: the names of its parameters."""
    if not callable(function):
        raise JobError(f"{function!r} is not a function")
    name = name_of(function)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise JobError(f'"{name}" does not say its parameters; wrap it in a def') from None
    if awaited:
        check_async(function)
    elif inspect.iscoroutinefunction(plain(function)):
        raise JobError(f'"{name}" is async; give a plain function, or use with_columns_async')
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise JobError(f'"{name}": {parameter} names no column; name the columns it reads')
        if parameter.kind is parameter.KEYWORD_ONLY:
            raise JobError(f'"{name}": "{parameter.name}" must not be keyword-only')
        try:
            check_column(parameter.name, schema)
        except JobError as error:
            raise JobError(
                f'"{name}": the parameters must be named after columns: {error}\n'
                "  for a function of the whole record use map"
            ) from None
    if not signature.parameters:
        raise JobError(f'"{name}" has no parameters; name them after the columns it reads')
    return tuple(signature.parameters)


def returned(function: Any) -> Any:
    """The return annotation as a type, or NOTHING."""
    inner = plain(function)
    if isinstance(inner, type):
        return inner if dataclasses.is_dataclass(inner) or inner in FROM_PYTHON else NOTHING
    try:
        hint = getattr(inner, "__annotations__", {}).get("return", NOTHING)
    except NameError as error:  # where annotations are evaluated when they are asked for
        raise unresolved(inner, error.name or "?", error) from None
    if isinstance(hint, str):
        hint = resolved(inner, hint)
    if hint is Any or hint is object or isinstance(hint, typing.TypeVar):
        return NOTHING
    return hint


def resolved(function: Any, hint: str) -> Any:
    """An annotation that was written as text, looked up where the function can look."""
    inner = inspect.unwrap(getattr(function, "__func__", function))
    names: dict[str, Any] = dict(getattr(inner, "__globals__", {}))
    code, closure = getattr(inner, "__code__", None), getattr(inner, "__closure__", None)
    for name, cell in zip(getattr(code, "co_freevars", ()), closure or (), strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:
            continue  # a name that is bound only later
    try:
        return eval(hint, names)
    except Exception as error:
        raise unresolved(function, hint, error) from None


def unresolved(function: Any, hint: str, error: Exception) -> JobError:
    return JobError(
        f'"{name_of(function)}": cannot resolve the annotation "-> {hint}" ({error});'
        " define it at the top of the module, or give schema="
    )


def without_none(hint: Any) -> tuple[Any, bool]:
    """`T | None` as T and whether None was there."""
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint, False
    members = [member for member in typing.get_args(hint) if member is not type(None)]
    if len(members) == len(typing.get_args(hint)):
        return hint, False
    return (members[0] if len(members) == 1 else typing.Union[tuple(members)]), True  # noqa: UP007


def schema_of(name: str, hint: Any, given: Schema) -> Schema:
    """The schema of records that a function is annotated to return."""
    if hint is NOTHING:
        return given.inherit()
    bare, optional = without_none(hint)
    if bare is Any or bare is object:
        return given.inherit()
    if isinstance(bare, type) and dataclasses.is_dataclass(bare):
        if optional:
            raise JobError(
                f'"{name}" may return None; to leave records out use filter, or flat_map'
            )
        return Schema.of(bare)
    if isinstance(bare, type) and issubclass(bare, tuple) and hasattr(bare, "_fields"):
        return Schema.of(typing.get_type_hints(bare))
    if bare is None or bare is type(None):
        raise JobError(f'"{name}" is annotated to return None; it must return a record')
    if typing.is_typeddict(bare) or (typing.get_origin(bare) or bare) in UNNAMED:
        raise JobError(
            f'"{name}" is annotated to return {shown(bare)}, which does not say the columns;'
            " give schema=, or return a dataclass"
        )
    return Schema((field_of("value", hint),))


def shown(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint)


def written_schema(schema: Any) -> Schema:
    """The schema that the user wrote: a dict may leave out columns that may be null."""
    if isinstance(schema, str):
        raise JobError(
            f"schema is {schema!r}; give a dataclass or a dict of types"
            + ('; only map, flat_map and map_async take "infer"' * (schema == "infer"))
        )
    return dataclasses.replace(Schema.of(schema), complete=False)


def map_schema(function: Any, given: Schema, schema: Any) -> Schema:
    """What a map makes of records of the schema `given`."""
    if schema is not None:
        return written_schema(schema)
    return schema_of(name_of(function), returned(function), given)


def flat_map_schema(function: Any, given: Schema, schema: Any) -> Schema:
    """What a flat_map makes: the annotation is Iterator[X], Iterable[X], list[X] and so on."""
    if schema is not None:
        return written_schema(schema)
    hint = returned(function)
    if hint is NOTHING:
        return given.inherit()
    origin = typing.get_origin(hint) or hint
    if not isinstance(origin, type) or not issubclass(origin, collections.abc.Iterable):
        raise JobError(
            f'"{name_of(function)}" is annotated to return {shown(hint)};'
            " a flat_map returns an iterable of records: Iterator[X] or list[X]"
        )
    if origin in (str, bytes) or issubclass(origin, collections.abc.Mapping):
        raise JobError(
            f'"{name_of(function)}" is annotated to return {shown(hint)};'
            " a flat_map returns a list of records"
        )
    args = [arg for arg in typing.get_args(hint) if arg is not Ellipsis]
    return schema_of(name_of(function), args[0] if args else NOTHING, given)


def stateful_schema(step: Any, given: Schema, schema: Any) -> Schema:
    """What a state machine sends on: Out of tuple[State, Out] or tuple[State, Out | None]."""
    if schema is not None:
        return written_schema(schema)
    hint = returned(step)
    if hint is NOTHING or hint is tuple:
        return given.inherit()
    args = typing.get_args(hint)
    if typing.get_origin(hint) is not tuple or len(args) != 2 or Ellipsis in args:
        raise JobError(
            f'"{name_of(step)}" is annotated to return {shown(hint)};'
            " it must return tuple[State, Out], or tuple[State, Out | None]"
        )
    out, _ = without_none(args[1])
    return schema_of(name_of(step), NOTHING if out is type(None) else out, given)


def value_field(step: Any, init: Any, given: Any) -> Field:
    """The column of a fold's state: `type=`, or the annotation of step, or the type of init."""
    if given is not None:
        return field_of("value", given)
    hint = returned(step)
    if hint is NOTHING and callable(init):
        hint = returned(init)
    elif hint is NOTHING and type(init) in FROM_PYTHON:
        hint = type(init)
    return Field("value", *opaque()) if hint is NOTHING else field_of("value", hint)


def column_field(name: str, function: Any, given: Schema, schema: Schema | None) -> Field:
    """The column that a function of columns makes: schema=, annotation, the column it replaces."""
    if schema is not None and name in schema:
        return schema[name]
    hint = returned(function)
    if hint is not NOTHING:
        return field_of(name, hint)
    return given[name] if name in given else Field(name, *opaque())


def opaque() -> tuple[Any, bool]:
    """What is known of a value of which nothing is known."""
    anything = field_of("value", Any)
    return anything.type, anything.nullable
