"""A record is a mapping and has attributes, whatever its columns are called."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import pickle
from collections.abc import Mapping
from typing import Any

import pytest

import plait
from plait.model.record_class import record_class
from plait.model.records import make_record, raw_values
from plait.model.schema import Schema

NOON = datetime.datetime(2024, 3, 1, 12, tzinfo=datetime.UTC)
BIDS = Schema.of({"auction": int, "price": float})
ODD = Schema.of(
    {
        "user-id": int,
        "first name": str,
        "class": str,
        "keys": str,
        "items": object,
        "get": int,
        "self": int,
        "__len__": int,
        "__own": int,
        "column_0": int,
    }
)
VALUES = (7, "Ann", "a", "k", [1], 2, 3, 4, 5, 6)


def test_a_record_is_a_mapping() -> None:
    record = make_record((7, 2.5), BIDS)
    assert isinstance(record, Mapping)
    assert isinstance(record, plait.Record)
    assert (record["auction"], record.price, len(record)) == (7, 2.5, 2)
    assert list(record) == list(record.keys()) == ["auction", "price"]
    assert dict(record) == {**record} == {"auction": 7, "price": 2.5}
    assert (list(record.values()), list(record.items())) == ([7, 2.5], [*dict(record).items()])
    assert ("price" in record, "prise" in record) == (True, False)
    assert (record.get("price"), record.get("prise"), record.get("prise", 3)) == (2.5, None, 3)


def test_a_column_that_is_not_there_is_named() -> None:
    record = make_record((7, 2.5), BIDS)
    with pytest.raises(KeyError, match="no column 'prise'; the record has auction, price"):
        record["prise"]
    with pytest.raises(KeyError, match="no column 'prise'"):
        record["prise"] = 3
    with pytest.raises(AttributeError):
        record.prise = 3


def test_a_value_is_set_by_name_and_by_attribute() -> None:
    record = make_record((7, 2.5), BIDS)
    record["price"] = 3.0
    record.auction = 8
    assert dict(record) == {"auction": 8, "price": 3.0}


def test_times_are_shown_as_iso() -> None:
    schema = Schema.of({"ts": datetime.datetime, "day": object})
    record = make_record((NOON, datetime.date(2024, 3, 1)), schema)
    assert repr(record) == "Record(ts=2024-03-01T12:00:00Z, day=2024-03-01)"


def test_names_of_any_kind() -> None:
    record = make_record(VALUES, ODD)
    assert tuple(record[name] for name in ODD.names) == VALUES
    assert dict(record) == {**record} == dict(zip(ODD.names, VALUES, strict=True))
    assert (len(record), record.keys()) == (len(VALUES), dict(record).keys())
    assert raw_values(record, ODD) == VALUES
    assert repr(record).startswith("Record('user-id'=7, 'first name'='Ann', class='a', keys='k'")


def test_a_column_is_the_attribute_except_keys_and_names_of_the_language() -> None:
    record = make_record(VALUES, ODD)
    assert (record.items, record.get, getattr(record, "user-id"), getattr(record, "class")) == (
        [1],
        2,
        7,
        "a",
    )
    assert (list(record.keys())[:1], record["keys"], record["__len__"]) == (["user-id"], "k", 4)


def test_a_record_of_any_names_is_copied_compared_and_pickled() -> None:
    record = make_record(VALUES, ODD)
    for again in (pickle.loads(pickle.dumps(record)), copy.deepcopy(record)):
        assert again == record
        assert type(again) is type(record) is record_class(ODD)
    changed: Any = dataclasses.replace(record, **{"user-id": 8, "get": 0})
    assert (changed["user-id"], changed.get, changed["keys"]) == (8, 0, "k")
    assert changed != record
    assert Schema.of(type(record)) == ODD


def test_a_stream_of_collected_records_has_their_columns() -> None:
    rows = [dict(zip(ODD.names, VALUES, strict=True))]
    first = plait.stream(plait.Items(rows, schema=ODD)).collect()
    again = plait.stream(first)
    assert again.schema == ODD
    assert again.collect() == first
