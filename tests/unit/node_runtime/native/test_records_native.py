"""The native form of records against the plain one: same records, same values, same refusals."""

from __future__ import annotations

import dataclasses
import datetime
import gc
import sys
import weakref
from array import array
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.model.records import (
    Misfit,
    microseconds_of,
    pack_object,
    records_of,
    value_of,
    values_of,
)
from plait.model.schema import Field, Schema, Type
from plait.node_runtime.native._batch import NativeBatch
from plait.node_runtime.native._calls import Records, assemble, map_rows
from plait.node_runtime.native._records import Shape, columns_of, place

UTC = datetime.UTC
ALL = Schema(tuple(Field(f"c{kind.code}", kind, nullable=True) for kind in Type))
MOMENTS = st.datetimes(timezones=st.just(UTC))
VALUES: dict[Type, st.SearchStrategy[Any]] = {
    Type.INT64: st.integers(-(2**63), 2**63 - 1),
    Type.FLOAT64: st.floats(allow_nan=False),
    Type.BOOL: st.booleans(),
    Type.STRING: st.text(st.characters(codec="utf-8"), max_size=40),
    Type.BYTES: st.binary(max_size=40),
    Type.TIMESTAMP: MOMENTS,
    Type.OBJECT: st.lists(st.integers(), max_size=3),
}
ROWS = st.lists(st.tuples(*(st.none() | VALUES[field.type] for field in ALL.fields)), max_size=40)
ANYTHING = st.one_of(
    *VALUES.values(),
    st.none(),
    st.integers(),
    st.text(),
    st.builds(np.int32, st.integers(-5, 5)),
    st.builds(np.float32, st.floats(width=32)),
    st.builds(bytearray, st.binary()),
    st.datetimes(),
    MOMENTS.map(lambda m: m.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=2)))),
)


def native(rows: list[tuple[Any, ...]], schema: Schema) -> NativeBatch:
    arrays = []
    for i, field in enumerate(schema.fields):
        column = [row[i] for row in rows]
        arrow = schema.to_arrow().field(i).type
        if field.type is Type.OBJECT:
            column = [None if value is None else pack_object(value) for value in column]
        if field.type is Type.TIMESTAMP:
            ticks = [None if value is None else microseconds_of(value) for value in column]
            arrays.append(pa.array(ticks, pa.int64()).cast(arrow))
        else:
            arrays.append(pa.array(column, arrow))
    return NativeBatch.from_arrow(pa.record_batch(arrays, schema=schema.to_arrow()), schema)


@given(ROWS, st.integers(0, 5))
def test_rows_come_out_as_they_went_in(rows: list[tuple[Any, ...]], cut: int) -> None:
    shape = Shape(ALL)
    batch = native(rows, ALL)
    assert [values_of(record, ALL) for record in shape.rows(batch)] == rows
    assert columns_of(batch, range(len(ALL))) == [[row[i] for row in rows] for i in range(len(ALL))]
    sliced = NativeBatch.from_arrow(batch.to_arrow(ALL).slice(cut), ALL)
    assert [values_of(record, ALL) for record in shape.rows(sliced)] == rows[cut:]


@given(ROWS)
def test_records_become_the_same_arrow_columns(rows: list[tuple[Any, ...]]) -> None:
    shape = Shape(ALL)
    records = shape.rows(native(rows, ALL))
    dicts = [dict(zip(ALL.names, row, strict=True)) for row in rows]
    for form in (records, rows, dicts):
        made, kept, failures = shape.from_records(form)
        assert not failures
        assert list(kept) == list(range(len(rows)))
        arrow = made.to_arrow(ALL)
        arrow.validate(full=True)
        assert records_of(arrow, ALL) == records


def outcome(function: Any, *args: Any) -> tuple[Any, str | None]:
    """What a function returned, and the words of its refusal."""
    try:
        return function(*args), None
    except ValueError as error:
        return None, str(error)


@given(st.sampled_from(list(Type)), st.booleans(), st.lists(ANYTHING, max_size=20))
def test_every_value_is_taken_or_refused_as_by_the_plain_rules(
    kind: Type, nullable: bool, values: list[Any]
) -> None:
    field = Field("x", kind, nullable)
    column = Records(Shape(Schema((field,))), 1)
    taken: list[Any] = []
    for value in values:
        expected, refusal = outcome(value_of, value, field)
        _, error = outcome(column.add, 0, (value,))
        assert error == refusal
        if refusal is None:
            taken.append(expected)
    found = columns_of(column.finish(NativeBatch())[0], [0])[0]
    assert repr(found) == repr(taken)  # NaN is itself, and types count


def test_a_record_that_does_not_fit_leaves_no_trace() -> None:
    schema = Schema.of({"name": str, "ok": bool, "n": int | None})
    records = [
        ("a", True, 1),
        ("long and lost", True, "no"),
        ("b", False, None),
        ("c",),
        ("d", True, 4),
    ]
    made, kept, failures = Shape(schema).from_records(records)
    assert list(kept) == [0, 2, 4]
    assert [index for index, _ in failures] == [1, 3]
    assert "expected int64, got 'no' (str)" in str(failures[0][1])
    assert "expected 3 values" in str(failures[1][1])
    assert made.to_arrow(schema).to_pydict() == {
        "name": ["a", "b", "d"],
        "ok": [True, False, True],
        "n": [1, None, 4],
    }
    _, kept, failures = Shape(schema).from_records(records, stop_at_first=True)
    assert (list(kept), [index for index, _ in failures]) == ([0], [1])


def test_a_time_that_no_datetime_has_is_a_misfit() -> None:
    schema = Schema.of({"ts": datetime.datetime})
    ticks = pa.array([2**62]).cast(pa.timestamp("us", "UTC"))
    batch = NativeBatch.from_arrow(pa.record_batch([ticks], schema=schema.to_arrow()), schema)
    with pytest.raises(Misfit, match="outside the years of a datetime"):
        Shape(schema).rows(batch)


@dataclasses.dataclass(slots=True)
class Slotted:
    a: int
    b: str


@dataclasses.dataclass
class Loose:
    kind: ClassVar[str] = "loose"
    a: int
    b: str = "?"


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    a: int
    b: str


@dataclasses.dataclass(slots=True, weakref_slot=True)
class Watched:
    a: int
    b: str


@dataclasses.dataclass(slots=True)
class Child(Slotted):
    c: float


@dataclasses.dataclass
class Checked:
    a: int
    b: str

    def __post_init__(self) -> None:
        if self.a < 0:
            raise ValueError("negative")
        self.b = self.b.upper()


@dataclasses.dataclass
class Own:
    a: int
    b: str

    def __init__(self, a: int, b: str) -> None:
        self.a, self.b = a + 1, b


@dataclasses.dataclass
class Proper:
    a: int
    b: str

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value * 2)


@dataclasses.dataclass(kw_only=True)
class Named:
    a: int
    b: str


@dataclasses.dataclass
class Outside:
    a: int
    b: str = dataclasses.field(init=False)


@pytest.mark.parametrize(
    ("cls", "plain", "slotted", "reusable"),
    [
        (Slotted, True, True, True),
        (Frozen, True, True, True),
        (Watched, True, True, False),
        (Loose, True, False, False),
        (Named, True, False, False),
        (Checked, False, False, False),
        (Own, False, False, False),
        (Proper, False, False, False),
        (Outside, False, False, False),
    ],
)
def test_a_class_is_called_only_where_it_does_something(
    cls: Any, plain: bool, slotted: bool, reusable: bool
) -> None:
    schema = Schema.of(cls)
    shape = Shape(schema)
    assert (shape.plain, shape.slotted, shape.reusable) == (plain, slotted, reusable)
    (record,) = shape.rows(native([(5, "x")], schema))
    assert type(record) is cls
    if plain:
        assert record == cls(a=5, b="x")
    elif cls is not Outside:
        assert record == cls(5, "x")
    else:
        assert (record.a, record.b) == (5, "x")


def test_inherited_slots_are_found() -> None:
    schema = Schema.of(Child)
    shape = Shape(schema)
    assert shape.slotted
    assert shape.rows(native([(1, "x", 2.5)], schema)) == [Child(1, "x", 2.5)]
    made, _, _ = shape.from_records([Child(1, "x", 2.5)])
    assert made.to_arrow(schema).to_pylist() == [{"a": 1, "b": "x", "c": 2.5}]


def test_a_record_that_the_function_kept_is_not_filled_again() -> None:
    schema = Schema.of(Slotted)
    batch = native([(i, str(i)) for i in range(100)], schema)
    seen: list[Slotted] = []

    def keep_some(record: Slotted) -> Slotted:
        if record.a % 3 == 0:
            seen.append(record)
        record.b += "!"
        return record

    shape = Shape(schema)
    made, kept, failures = map_rows(keep_some, batch, shape, shape, False)
    assert (kept, failures) == (None, [])
    assert seen == [Slotted(i, f"{i}!") for i in range(0, 100, 3)]
    assert shape.rows(made) == [Slotted(i, f"{i}!") for i in range(100)]


def test_a_record_with_weak_references_is_always_new() -> None:
    schema = Schema.of(Watched)
    batch = native([(i, "x") for i in range(10)], schema)
    references: list[weakref.ref[Watched]] = []

    def watch(record: Watched) -> Watched:
        references.append(weakref.ref(record))
        return record

    shape = Shape(schema)
    map_rows(watch, batch, shape, shape, False)
    gc.collect()
    assert [reference() for reference in references] == [None] * 10


def test_nothing_leaks() -> None:
    schema = Schema.of({"a": int, "b": str, "o": object})
    shape = Shape(schema)
    marker = object()
    batch = native([(10**6 + i, f"text {i}", [i]) for i in range(50)], schema)

    def once() -> None:
        shape.rows(batch)
        columns_of(batch, [0, 1, 2])
        map_rows(lambda record: (record.a, record.b, record.o), batch, shape, shape, False)
        map_rows(lambda record: marker, batch, shape, shape, False)
        shape.from_records([(1, "x", None), (2, 3, 4), {"a": 1}])

    once()
    gc.collect()
    before, held = len(gc.get_objects()), sys.getrefcount(marker)
    for _ in range(20):
        once()
    gc.collect()
    assert sys.getrefcount(marker) == held
    assert len(gc.get_objects()) <= before + 20


def test_columns_of_two_batches_are_put_together_without_a_copy() -> None:
    schema = Schema.of({"a": int, "b": str})
    base = native([(1, "x"), (2, "y")], schema)
    fresh = native([(3, "z"), (4, "w")], schema)
    made = assemble((1, -1), base, fresh)
    out = Schema.of({"b": str, "c": int})
    assert made.to_arrow(out).to_pylist() == [{"b": "x", "c": 3}, {"b": "y", "c": 4}]
    address = made.to_arrow(out).column(0).buffers()[2].address
    assert address == base.to_arrow(schema).column(1).buffers()[2].address
    with pytest.raises(ValueError, match="do not fit"):
        assemble((0,), base, native([], schema))


def test_rows_keep_their_place_through_two_selections() -> None:
    schema = Schema.of({"a": int})
    base = native([(i,) for i in range(6)], schema)
    first = native([(i,) for i in range(3)], schema)
    place(first, base, array("I", [1, 3, 5]))
    second = native([(i,) for i in range(3)], schema)
    place(second, first, array("I", [0, 2, 2]))
    assert second.row_numbers() == [1, 5, 5]
