"""What a user may give for a record, and what is refused, column type by column type."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import pickle
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from plait.errors import RecordError
from plait.model.record_class import record_class
from plait.model.records import (
    column_values,
    make_record,
    microseconds_of,
    pack_object,
    records_of,
    unpack_object,
    value_of,
    values_of,
)
from plait.model.schema import Field, Schema, Type

UTC = datetime.UTC
NOON = datetime.datetime(2024, 3, 1, 12, tzinfo=UTC)
BIDS = Schema.of({"auction": int, "price": float, "note": str | None})


@dataclasses.dataclass
class Bid:
    auction: int
    price: float
    note: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Strict:
    auction: int
    price: float
    doubled: float = dataclasses.field(init=False, default=0.0)


class Colour(str, enum.Enum):  # noqa: UP042 - its str() is not its value
    RED = "red"


class Mixed(NamedTuple):
    price: float
    auction: int
    note: str


class Level(enum.IntEnum):
    HIGH = 3


def test_a_made_class_is_a_small_dataclass() -> None:
    cls: Any = record_class(BIDS)
    record = make_record((1, 2.5, None), BIDS)
    assert type(record) is cls
    assert dataclasses.is_dataclass(cls)
    assert not hasattr(record, "__dict__")
    assert repr(record) == "Record(auction=1, price=2.5, note=None)"
    assert record == make_record((1, 2.5, None), BIDS)
    assert record != make_record((2, 2.5, None), BIDS)
    assert dataclasses.replace(record, price=3.0).price == 3.0
    assert Schema.of(cls) == BIDS


def test_equal_schemas_share_one_class() -> None:
    again = Schema.of({"auction": int, "price": float, "note": str | None})
    assert record_class(again) is record_class(BIDS)
    assert record_class(Schema.of(Bid)) is Bid


def test_a_made_record_survives_pickling() -> None:
    record = make_record((1, 2.5, "x"), BIDS)
    again = pickle.loads(pickle.dumps(record))
    assert again == record
    assert type(again) is type(record)


def test_long_values_are_shown_short() -> None:
    assert len(repr(make_record((1, 2.5, "x" * 10_000), BIDS))) < 150


def test_a_keyword_only_class_and_a_field_outside_init_are_filled() -> None:
    record = make_record((1, 2.0, 4.0), Schema.of(Strict))
    assert (record.auction, record.price, record.doubled) == (1, 2.0, 4.0)


@pytest.mark.parametrize(
    "record",
    [
        Bid(1, 2.0, "x"),
        {"note": "x", "price": 2, "auction": 1},
        (1, 2, "x"),
        [1, 2.0, "x"],
        Mixed(2.0, 1, "x"),
        make_record((1, 2.0, "x"), BIDS),
        pd.Series({"auction": 1, "price": 2.0, "note": "x"}),
    ],
)
def test_a_record_may_be_given_in_many_forms(record: Any) -> None:
    assert values_of(record, BIDS) == (1, 2.0, "x")


def test_a_missing_key_is_null_only_where_null_may_be() -> None:
    assert values_of({"auction": 1, "price": 2.0}, BIDS) == (1, 2.0, None)
    with pytest.raises(ValueError, match='column "auction": missing; the record has price'):
        values_of({"price": 2.0}, BIDS)


def test_what_is_no_record_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected 3 values .*, got 2"):
        values_of((1, 2), BIDS)
    with pytest.raises(ValueError, match=r"columns auction, price, note, got 5 \(int\)"):
        values_of(5, BIDS)
    with pytest.raises(ValueError, match="got None"):
        values_of(None, BIDS)


def test_a_bare_value_is_a_record_of_the_one_column_value() -> None:
    assert values_of(5, Schema.of({"value": int})) == (5,)
    assert values_of((5,), Schema.of({"value": int})) == (5,)
    assert values_of({"value": 5}, Schema.of({"value": int})) == (5,)
    assert values_of(None, Schema.of({"value": int | None})) == (None,)
    assert values_of(Level.HIGH, Schema.of({"value": int})) == (3,)
    assert values_of((1, 2), Schema.of({"value": object})) == ((1, 2),)
    assert values_of({"a": 1}, Schema.of({"value": object})) == ({"a": 1},)
    with pytest.raises(ValueError, match="columns price, got 5"):
        values_of(5, Schema.of({"price": int}))


GOOD: list[tuple[Type, Any, Any]] = [
    (Type.INT64, 2**63 - 1, 2**63 - 1),
    (Type.INT64, -(2**63), -(2**63)),
    (Type.INT64, Level.HIGH, 3),
    (Type.INT64, np.int16(7), 7),
    (Type.INT64, np.uint64(7), 7),
    (Type.FLOAT64, 1, 1.0),
    (Type.FLOAT64, np.float32(0.5), 0.5),
    (Type.FLOAT64, np.int64(3), 3.0),
    (Type.BOOL, True, True),
    (Type.BOOL, np.bool_(False), False),
    (Type.STRING, "grün", "grün"),
    (Type.STRING, Colour.RED, "red"),
    (Type.STRING, np.str_("x"), "x"),
    (Type.BYTES, bytearray(b"x"), b"x"),
    (Type.BYTES, memoryview(b"xy")[1:], b"y"),
    (Type.TIMESTAMP, NOON.astimezone(ZoneInfo("Europe/Berlin")), NOON),
    (Type.TIMESTAMP, pd.Timestamp(NOON), NOON),
    (Type.OBJECT, {"a": [1]}, {"a": [1]}),
]


@pytest.mark.parametrize(("kind", "given", "kept"), GOOD)
def test_a_fitting_value_is_kept_in_its_plain_type(kind: Type, given: Any, kept: Any) -> None:
    value = value_of(given, Field("x", kind))
    assert value == kept
    assert type(value) is type(kept)
    if kind is Type.TIMESTAMP:
        assert value.tzinfo is UTC


BAD: list[tuple[Type, Any, str]] = [
    (Type.INT64, "n/a", r"""column "x": expected int64, got 'n/a' \(str\)$"""),
    (Type.INT64, True, r"expected int64, got True \(bool\)"),
    (Type.INT64, 1.0, "expected int64, got 1.0"),
    (Type.INT64, 2**63, r"got 9223372036854775808 \(int\) beyond 64 bits"),
    (Type.INT64, np.bool_(True), "expected int64"),
    (Type.INT64, None, 'column "x": expected int64, got None$'),
    (Type.FLOAT64, True, "expected float64"),
    (Type.FLOAT64, "1.0", "expected float64"),
    (Type.FLOAT64, 10**400, "beyond the range of a float"),
    (Type.BOOL, 1, r"expected bool, got 1 \(int\)"),
    (Type.STRING, b"x", "expected string"),
    (Type.STRING, "\ud800", "surrogate"),
    (Type.BYTES, "x", "expected bytes"),
    (Type.TIMESTAMP, datetime.datetime(2024, 3, 1), "without a time zone"),  # noqa: DTZ001
    (Type.TIMESTAMP, datetime.date(2024, 3, 1), "expected timestamp"),
    (Type.TIMESTAMP, 5, "expected timestamp"),
    (
        Type.TIMESTAMP,
        datetime.datetime(1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=5))),
        "outside the years",
    ),
]


@pytest.mark.parametrize(("kind", "given", "message"), BAD)
def test_a_value_that_does_not_fit_names_its_column(kind: Type, given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        value_of(given, Field("x", kind))


def test_null_is_kept_where_the_column_is_nullable() -> None:
    for kind in Type:
        assert value_of(None, Field("x", kind, nullable=True)) is None


def test_records_of_an_arrow_batch() -> None:
    schema = Schema.of({"ts": datetime.datetime, "name": str | None, "extra": object})
    batch = pa.record_batch(
        [
            pa.array([microseconds_of(NOON), -1]).cast(pa.timestamp("us", "UTC")),
            pa.array(["a", None]),
            pa.array([pack_object({"k": 1}), pack_object(None)]),
        ],
        schema=schema.to_arrow(),
    )
    first, second = records_of(batch, schema)
    assert (first.ts, first.name, first.extra) == (NOON, "a", {"k": 1})
    assert first.ts.tzinfo is UTC
    assert second.ts == datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    assert (second.name, second.extra) == (None, None)
    assert column_values(batch.column("name"), Type.STRING) == ["a", None]


def test_an_object_that_cannot_be_pickled_says_so() -> None:
    assert unpack_object(pack_object([1, "x"])) == [1, "x"]
    with pytest.raises(ValueError, match="cannot be pickled"):
        pack_object(lambda: None)


def test_a_time_that_no_datetime_holds_is_told_with_its_column() -> None:
    far = pa.table({"at": pa.array([253_402_300_800_000_000], pa.timestamp("us", "UTC"))})
    with pytest.raises(RecordError, match='column "at" has times outside the years 1 to'):
        records_of(far, Schema.of({"at": datetime.datetime}))
