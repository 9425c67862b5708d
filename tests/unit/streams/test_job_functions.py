"""What is known of a user's function before it runs: output schemas from annotations, and calls."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Generator, Iterable, Iterator  # noqa: TC003 (looked up at run time)
from typing import Any, NamedTuple, TypedDict

import pytest

from plait.errors import JobError
from plait.functions.signatures import (
    Negated,
    check_call,
    flat_map_schema,
    map_schema,
    parameters,
    stateful_schema,
    value_field,
)
from plait.model.schema import Schema

# Only the annotations of these functions are looked at; none of them is ever called.
# mypy: disable-error-code="empty-body"

GIVEN = Schema.of({"a": int, "b": str})


@dataclasses.dataclass
class Out:
    x: int
    y: float | None


class Pair(NamedTuple):
    left: int
    right: str


class Loose(TypedDict):
    x: int


def to_out(record: Any) -> Out: ...
def to_pair(record: Any) -> Pair: ...
def to_int(record: Any) -> int: ...
def to_maybe_str(record: Any) -> str | None: ...
def to_any(record: Any) -> Any: ...
def to_object(record: Any) -> object: ...
def to_nothing_known(record): ...  # type: ignore[no-untyped-def]


class Mapper:
    def __call__(self, record: Any) -> Out: ...

    def method(self, record: Any) -> Out: ...


def two(scale: int, record: Any) -> Out: ...


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (to_out, "x: int64, y: float64?"),
        (to_pair, "left: int64, right: string"),
        (to_int, "value: int64"),
        (to_maybe_str, "value: string?"),
        (to_any, "a: int64, b: string"),
        (to_object, "a: int64, b: string"),
        (to_nothing_known, "a: int64, b: string"),
        (lambda record: record, "a: int64, b: string"),
        (Mapper(), "x: int64, y: float64?"),
        (Mapper().method, "x: int64, y: float64?"),
        (functools.partial(two, 3), "x: int64, y: float64?"),
        (Out, "x: int64, y: float64?"),
        (str, "value: string"),
        (len, "a: int64, b: string"),
    ],
)
def test_map(function: Any, expected: str) -> None:
    assert str(map_schema(function, GIVEN, None)) == expected
    assert str(map_schema(function, GIVEN, {"z": int})) == "z: int64"


def test_a_dataclass_is_the_class_of_the_records() -> None:
    assert map_schema(to_out, GIVEN, None).record_class is Out


def test_an_annotation_of_a_class_inside_a_function_is_found() -> None:
    @dataclasses.dataclass
    class Inner:
        x: int

    def make(record: Any) -> Inner:
        return Inner(1)

    assert map_schema(make, GIVEN, None).record_class is Inner


def to_dict(record: Any) -> dict[str, int]: ...
def to_typed_dict(record: Any) -> Loose: ...
def to_tuple(record: Any) -> tuple[int, str]: ...
def to_none(record: Any) -> None: ...
def to_maybe_out(record: Any) -> Out | None: ...
def to_missing(record: Any) -> Missing: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (to_dict, "dict.*schema="),
        (to_typed_dict, "Loose.*schema="),
        (to_tuple, "tuple.*schema="),
        (to_none, "must return a record"),
        (to_maybe_out, "use filter, or flat_map"),
        (to_missing, "cannot resolve.*Missing.*schema="),
    ],
)
def test_a_map_that_does_not_say_enough(function: Any, message: str) -> None:
    with pytest.raises(JobError, match=message):
        map_schema(function, GIVEN, None)
    assert str(map_schema(function, GIVEN, {"z": int})) == "z: int64"


def outs(record: Any) -> Iterator[Out]: ...
def out_list(record: Any) -> list[Out]: ...
def out_tuple(record: Any) -> tuple[Out, ...]: ...
def out_generator(record: Any) -> Generator[Out, None, None]: ...
def words(record: Any) -> Iterable[str]: ...
def plain_list(record: Any) -> list: ...  # type: ignore[type-arg]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (outs, "x: int64, y: float64?"),
        (out_list, "x: int64, y: float64?"),
        (out_tuple, "x: int64, y: float64?"),
        (out_generator, "x: int64, y: float64?"),
        (words, "value: string"),
        (plain_list, "a: int64, b: string"),
        (lambda record: [record], "a: int64, b: string"),
    ],
)
def test_flat_map(function: Any, expected: str) -> None:
    assert str(flat_map_schema(function, GIVEN, None)) == expected


@pytest.mark.parametrize(
    ("function", "message"),
    [(to_out, "iterable of records"), (to_dict, "a list of records"), (to_maybe_str, "iterable")],
)
def test_a_flat_map_of_something_else(function: Any, message: str) -> None:
    with pytest.raises(JobError, match=message):
        flat_map_schema(function, GIVEN, None)


def step_out(state: int, record: Any) -> tuple[int, Out]: ...
def step_maybe(state: int, record: Any) -> tuple[int, Out | None]: ...
def step_bare(state: int, record: Any) -> tuple: ...  # type: ignore[type-arg]
def step_wrong(state: int, record: Any) -> Out: ...


def test_stateful() -> None:
    assert stateful_schema(step_out, GIVEN, None).record_class is Out
    assert stateful_schema(step_maybe, GIVEN, None).record_class is Out
    assert stateful_schema(step_bare, GIVEN, None) == GIVEN
    with pytest.raises(JobError, match=r"tuple\[State, Out\]"):
        stateful_schema(step_wrong, GIVEN, None)


def total(state: float, record: Any) -> float: ...


def test_the_value_of_a_fold() -> None:
    assert str(value_field(total, 0, None)) == "value: float64"
    assert str(value_field(lambda s, r: s, 0, None)) == "value: int64"
    assert str(value_field(lambda s, r: s, {}, None)) == "value: object?"
    assert str(value_field(lambda s, r: s, 0, "string?")) == "value: string?"


async def soon(record: Any) -> Any: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (3, "not a function"),
        (lambda: 1, "cannot be called with a record"),
        (lambda a, b: 1, "missing a required argument"),
        (soon, "is async"),
    ],
)
def test_what_cannot_be_called(function: Any, message: str) -> None:
    with pytest.raises(JobError, match=message):
        check_call(function, ("record",))


def test_what_can_be_called() -> None:
    for function in (len, str, Mapper(), functools.partial(two, 3), lambda *records: 1):
        check_call(function, ("record",))
    check_call(lambda state, record, more=1: 1, ("state", "record"))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda aa: 1, 'named after columns: no column "aa"'),
        (lambda *a: 1, "names no column"),
        (lambda *, a: 1, "keyword-only"),
        (lambda: 1, "has no parameters"),
        (soon, "is async"),
    ],
)
def test_functions_of_columns(function: Any, message: str) -> None:
    with pytest.raises(JobError, match=message):
        parameters(function, GIVEN)
    assert parameters(lambda b, a: 1, GIVEN) == ("b", "a")


def test_negated() -> None:
    opposite = Negated(to_int)
    assert opposite.__name__ == "not to_int"
    assert Negated(lambda record: record)(False) is True
