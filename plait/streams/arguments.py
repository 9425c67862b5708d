"""Checks of arguments that many operators have: names, keys, error policies.

Each function returns the argument, or raises a JobError that says what to write instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

from plait.errors import JobError
from plait.expr.text import text
from plait.expr.tree import Expr
from plait.expr.type_checker import check_column
from plait.functions.pickling import why_not
from plait.graph.operators import Awaiting, OnError, Retrying, Route
from plait.model.durations import Duration, microseconds
from plait.model.schema import Field, Schema, Type

if TYPE_CHECKING:
    from collections.abc import Sequence


CallPolicy = OnError | Literal["retry"]
"""What happens to a record whose function raised; "retry" retries up to three times, then fails."""

MOST_AWAITED = 100_000
MOST_RETRIES = 100
USUAL_RETRIES = 3
"""Retries with on_error="retry"."""
MOST_RECORDS = 1 << 20
"""The most records in an epoch of a source."""


def own_label(name: str | None, end: Any, taken: Sequence[str]) -> str:
    """The name the user gave, or the label of the source or sink, or ""."""
    if name is None:
        return str(getattr(end, "label", "") or "")
    if not isinstance(name, str) or not name:
        raise JobError(f"name is {name!r}; it must be a string that is not empty")
    if name in taken:
        raise JobError(f'the name "{name}" is taken; names are unique in a job')
    return name


def checked_policy(on_error: Any) -> OnError:
    if on_error not in get_args(OnError):
        words = ", ".join(f'"{word}"' for word in get_args(OnError))
        hint = "; only functions of single records are retried" * (on_error == "retry")
        raise JobError(f"on_error is {on_error!r}; it must be one of {words}{hint}")
    policy: OnError = on_error
    return policy


def checked_tries(
    on_error: Any, retries: int | None, backoff: Duration
) -> tuple[OnError, Retrying]:
    """The policy for a record whose function raised, and how often it is retried before. Without
    `retries` that is 3 times for on_error="retry", else never."""
    again = on_error == "retry"
    if retries is None:
        retries = USUAL_RETRIES if again else 0
    if type(retries) is not int or not 0 <= retries <= MOST_RETRIES:
        raise JobError(
            f"retries is {retries!r}; it must be a whole number from 0 to {MOST_RETRIES}"
        )
    if again and not retries:
        raise JobError('retries is 0 with on_error="retry"; raise it, or use on_error="fail"')
    if not again and on_error not in get_args(OnError):
        words = ", ".join(f'"{word}"' for word in (*get_args(OnError), "retry"))
        raise JobError(f"on_error is {on_error!r}; it must be one of {words}")
    policy: OnError = "fail" if again else on_error
    return policy, Retrying(retries=retries, backoff_us=microseconds(backoff))


def awaiting_of(concurrency: int, timeout: Duration | None, tries: Retrying) -> Awaiting:
    """How a function is awaited."""
    if type(concurrency) is not int or not 1 <= concurrency <= MOST_AWAITED:
        raise JobError(
            f"concurrency is {concurrency!r}; it must be a whole number from 1 to {MOST_AWAITED:,}"
        )
    return Awaiting(
        concurrency=concurrency,
        timeout_us=None if timeout is None else microseconds(timeout),
        retries=tries.retries,
        backoff_us=tries.backoff_us,
    )


def checked_route(route: Any, functions: tuple[Any, ...]) -> Route:
    """The route, if these functions can take it; no functions: there are only expressions."""
    if route not in get_args(Route):
        words = ", ".join(f'"{word}"' for word in get_args(Route))
        raise JobError(f"route is {route!r}; it must be one of {words}")
    if route != "auto" and not functions:
        raise JobError("route= is for Python functions; expressions always run on all cores")
    if route == "pool" and (reason := why_not(functions)) is not None:
        raise JobError(
            f'route="pool": the function cannot be sent to a worker process: {reason}\n'
            '  create it inside the function, or use route="inline"'
        )
    checked: Route = route
    return checked


def key_name(column: Any) -> str:
    if isinstance(column, str):
        return column
    if isinstance(column, Expr) and column.op == "col":
        return str(column.value)
    if isinstance(column, Expr):
        raise JobError(f"{text(column)} needs a name: key_by(name={text(column)})")
    if callable(column):
        raise JobError(
            "a function needs a name for its result: key_by(name=function), with parameters named"
            " after columns"
        )
    raise JobError(f"{column!r} is not a column name{one_by_one(column)}")


def one_by_one(given: Any) -> str:
    """For a list where several arguments are expected."""
    if isinstance(given, list | tuple) and given and all(isinstance(one, str) for one in given):
        return f"; write the names one by one: {', '.join(map(repr, given))}"
    return ""


def named_columns(given: Mapping[str, Any] | None, named: Mapping[str, Any]) -> dict[str, Any]:
    """Columns by name, from a dict and from keyword arguments: a keyword cannot be called `user-id`
    or like an argument of the verb."""
    if given is None:
        return dict(named)
    if not isinstance(given, Mapping):
        raise JobError(f"{given!r} is not a dict of names to columns; name it: name={given!r}")
    for name in given:
        if not isinstance(name, str):
            raise JobError(f"the dict has the key {name!r}; keys must be column names")
        if name in named:
            raise JobError(f'column "{name}" is given twice: in the dict and as a keyword')
    return {**given, **named}


def split_named(
    columns: Sequence[Any], named: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Positional columns, and those with names: dicts among the former, then the keywords."""
    dicts = [column for column in columns if isinstance(column, Mapping)]
    for given in reversed(dicts):
        named = named_columns(given, named)
    return [column for column in columns if not isinstance(column, Mapping)], dict(named)


def old_to_new(names: Any) -> dict[str, str]:
    """The names that columns have, and those they get."""
    if names is None:
        return {}
    if not isinstance(names, Mapping) or not all(
        isinstance(name, str) for pair in names.items() for name in pair
    ):
        raise JobError(f'{names!r} does not rename columns; write {{"old": "new"}}')
    return dict(names)


def checked_keys(names: Sequence[str], schema: Schema) -> tuple[str, ...]:
    if not names:
        raise JobError("name at least one column; without a key, call count, sum, ... directly")
    for name in names:
        if schema[check_column(name, schema)].type is Type.OBJECT:
            raise JobError(
                f'column "{name}" is object, which cannot be a key;'
                " give it a type in its schema or in an annotation"
            )
    if len(set(names)) < len(names):
        raise JobError(f"a key is named twice: {', '.join(names)}")
    return tuple(names)


def keyed_schema(given: Schema, keys: Sequence[str], results: Sequence[Field]) -> Schema:
    """Key columns, then results."""
    for field in results:
        if field.name in keys:
            raise JobError(f'the result "{field.name}" has the name of a key; choose another')
    return Schema((*(given[key] for key in keys), *results))


def checked_records(given: int | None) -> int | None:
    """How many records a source puts into an epoch."""
    if given is None or (type(given) is int and 1 <= given <= MOST_RECORDS):
        return given
    raise JobError(
        f"epoch_records is {given!r}; it must be a whole number from 1 to {MOST_RECORDS:,}"
    )


def checked_version(version: Any, migrate: Any) -> int:
    """The version of a state: a whole number above 0, and more than 1 if there is a `migrate`."""
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise JobError(f"version is {version!r}; it must be a whole number above 0")
    if migrate is not None and not callable(migrate):
        raise JobError(f"migrate is {migrate!r}; it must be a function of a state and its version")
    if migrate is not None and version == 1:
        raise JobError(
            "migrate= makes a newer version of an older state; say which: version=2, migrate=..."
        )
    return version
