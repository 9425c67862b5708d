"""The output columns of select, with_columns, rename and drop; pure functions.

Every new column is computed from the row that came in, never from another new column, so the order
in which a user writes them does not matter. The class of the records is kept while their columns
are those of the class.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from plait.errors import JobError
from plait.expr.text import text
from plait.expr.tree import Expr, col, to_expr
from plait.expr.type_checker import bind, check_column
from plait.functions.signatures import column_field, parameters
from plait.model.schema import Field, Schema
from plait.streams.arguments import one_by_one

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """Output columns and their schema."""

    columns: tuple[tuple[str, Expr], ...]
    schema: Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Python functions of columns, and the schema of the row with their results."""

    functions: tuple[tuple[str, Callable[..., Any]], ...]
    schema: Schema


def projection(columns: Sequence[tuple[str, Expr]], given: Schema) -> Projection:
    """The columns bound to the schema of the input."""
    bound: list[tuple[str, Expr]] = []
    fields: list[Field] = []
    for name, expr in columns:
        checked = bind(expr, given)
        if checked.type is None:
            raise JobError(f'column "{name}": a null has no type; write lit(None).cast(int)')
        bound.append((name, checked.expr))
        declared = given[expr.value].declared if expr.op == "col" else None
        fields.append(Field(name, checked.type, checked.nullable, declared))
    return Projection(columns=tuple(bound), schema=with_class(fields, given))


def with_class(fields: Sequence[Field], given: Schema) -> Schema:
    """A schema of these fields; its records are of the same class if they have the same columns."""
    same = [(f.name, f.type) for f in fields] == [(f.name, f.type) for f in given.fields]
    return Schema(tuple(fields), given.record_class if same else None)


def select(given: Schema, columns: Sequence[Any], named: Mapping[str, Any]) -> Projection:
    """The columns in the order of the arguments; a string is the name of a column."""
    selected: list[tuple[str, Expr]] = []
    for column in columns:
        expr = col(column) if isinstance(column, str) else column
        if not isinstance(expr, Expr):
            raise JobError(
                f"{column!r} is neither the name of a column nor an expression{one_by_one(column)}"
            )
        if expr.op != "col":
            raise JobError(f"{text(expr)} needs a name: select(name={text(expr)})")
        selected.append((expr.value, expr))
    for name, column in named.items():
        if callable(column):
            raise JobError(f'"{name}" is a function; add it with with_columns({name}=...) first')
        selected.append((name, col(column) if isinstance(column, str) else to_expr(column)))
    if not selected:
        raise JobError("no column is left; name at least one")
    return projection(selected, given)


def drop(given: Schema, names: Sequence[str]) -> Projection:
    """All columns but these."""
    gone = {check_column(name, given) for name in names}
    if not gone:
        raise JobError("name the columns to drop")
    if len(gone) == len(given):
        raise JobError("no column would be left; keep at least one")
    return projection([(name, col(name)) for name in given.names if name not in gone], given)


def rename(given: Schema, new: Mapping[str, str]) -> Projection:
    """Columns under new names, in place; `new` has them by their old ones."""
    if not new:
        raise JobError('name the columns to rename: rename(new="old")')
    for old in new:
        check_column(old, given)
    return projection([(new.get(name, name), col(name)) for name in given.names], given)


def with_columns(
    given: Schema, columns: Mapping[str, Any], types: Schema | None
) -> tuple[Calls | None, Projection | None]:
    """Columns added or replaced: functions are called first, then expressions are computed.

    When there are both, the functions' results wait under other names, so that they do not hide a
    column which an expression reads.
    """
    if not columns:
        raise JobError("name at least one column: with_columns(name=expression)")
    functions: dict[str, Callable[..., Any]] = {}
    exprs: dict[str, Expr] = {}
    for name, value in columns.items():
        if isinstance(value, str):
            raise JobError(f'{name}="{value}": write col("{value}") or lit("{value}")')
        if callable(value) and hasattr(value, "parameter_types"):
            exprs[name] = value(*(col(column) for column in parameters(value, given)))
        elif callable(value):
            functions[name] = value
        else:
            exprs[name] = to_expr(value)
    for name in types.names if types is not None else ():
        if name not in functions:
            raise JobError(f'schema= names "{name}", but no function makes that column')
    if not functions:
        return None, projection(merge_columns(given.names, exprs), given)
    if not exprs:
        return calls(given, functions, {name: name for name in functions}, types), None
    waiting = {name: free_name(name, (*given.names, *columns)) for name in functions}
    called = calls(given, functions, waiting, types)
    projection(merge_columns(given.names, exprs), given)  # errors come without the waiting names
    final = {name: exprs[name] if name in exprs else col(waiting[name]) for name in columns}
    output = projection(merge_columns(given.names, final), called.schema)
    schema = with_class(output.schema.fields, given)
    return called, Projection(columns=output.columns, schema=schema)


def awaited_columns(given: Schema, columns: Mapping[str, Any], types: Schema | None) -> Calls:
    """Columns added or replaced by async functions of columns."""
    if not columns:
        raise JobError("name at least one column: with_columns_async(name=function)")
    for name, value in columns.items():
        if not callable(value):
            raise JobError(
                f'"{name}" is not an async function; add it with with_columns({name}=...)'
            )
    for name in types.names if types is not None else ():
        if name not in columns:
            raise JobError(f'schema= names "{name}", but no function makes that column')
    return calls(given, columns, {name: name for name in columns}, types, awaited=True)


def merge_columns(names: Sequence[str], new: Mapping[str, Expr]) -> list[tuple[str, Expr]]:
    """Old columns in their places, replaced where there is a new one; then the others."""
    kept = [(name, new[name] if name in new else col(name)) for name in names]
    return kept + [(name, expr) for name, expr in new.items() if name not in names]


def free_name(name: str, taken: Sequence[str]) -> str:
    candidate = f"{name}_new"
    while candidate in taken:
        candidate += "_"
    return candidate


def calls(
    given: Schema,
    functions: Mapping[str, Callable[..., Any]],
    names: Mapping[str, str],
    types: Schema | None,
    *,
    awaited: bool = False,
) -> Calls:
    """The functions checked, and the row with their results under `names`."""
    fields = {field.name: field for field in given.fields}
    for name, function in functions.items():
        parameters(function, given, awaited=awaited)
        field = column_field(name, function, given, types)
        fields[names[name]] = replace(field, name=names[name])
    return Calls(
        functions=tuple((names[name], function) for name, function in functions.items()),
        schema=with_class(list(fields.values()), given),
    )
