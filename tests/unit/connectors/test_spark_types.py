"""Which types of Spark become which of plait's, without Spark: plans, and what they do to Arrow."""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa
import pytest

from plait.connectors.spark.types import (
    TypeOptions,
    convert,
    plan_columns,
    schema_of_columns,
    spark_schema,
)
from plait.errors import SchemaError
from plait.model.schema import Schema


def spark(**types: Any) -> dict[str, Any]:
    fields = [{"name": name, "type": kind, "nullable": True} for name, kind in types.items()]
    return {"type": "struct", "fields": fields}


def struct(**types: Any) -> dict[str, Any]:
    return spark(**types)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("timestamp_ntz", "time without a zone"),
        ("decimal(10,2)", "say what it becomes"),
        ("variant", "to_json"),
        ("void", "cast it"),
        ("interval year to month", "cast it in Spark"),
        ({"type": "array", "elementType": "long"}, "explode it"),
        ({"type": "map"}, "by key"),
        (struct(x="long"), "flatten=True"),
    ],
)
def test_what_would_be_guessed_is_refused(kind: Any, told: str) -> None:
    with pytest.raises(SchemaError, match=told):
        plan_columns(spark(a=kind), TypeOptions(), "log")


def test_a_decimal_that_is_too_long_is_no_whole_number() -> None:
    with pytest.raises(SchemaError, match="18 digits"):
        plan_columns(spark(a="decimal(20,2)"), TypeOptions(decimals="scaled"), "log")


def test_names_must_differ_and_be_there() -> None:
    flat = TypeOptions(flatten=True)
    with pytest.raises(SchemaError, match='two columns "a_x"'):
        plan_columns(spark(a=struct(x="long"), a_x="long"), flat, "log")
    with pytest.raises(SchemaError, match='required names no column "b"'):
        plan_columns(spark(a="long"), TypeOptions(required=frozenset("b")), "log")


def test_decimals_keep_every_digit() -> None:
    numbers = [decimal.Decimal("-12.34"), None, decimal.Decimal("9999999999999999.99")]
    batch = pa.record_batch({"a": pa.array(numbers, pa.decimal128(18, 2))}).slice(0)
    wanted: dict[Any, list[Any]] = {
        "scaled": [-1234, None, 999999999999999999],
        "text": ["-12.34", None, "9999999999999999.99"],
        "float": [-12.34, None, 1e16],
    }
    for decimals, values in wanted.items():
        columns = plan_columns(spark(a="decimal(18,2)"), TypeOptions(decimals=decimals), "log")
        assert convert(batch, columns).column("a").to_pylist() == values
        assert convert(batch.slice(1), columns).column("a").to_pylist() == values[1:]


def test_a_struct_that_is_null_has_null_columns() -> None:
    columns = plan_columns(spark(a=struct(x="long")), TypeOptions(flatten=True), "log")
    batch = pa.record_batch({"a": pa.array([{"x": 1}, None, {"x": None}])})
    assert convert(batch, columns).column("a_x").to_pylist() == [1, None, None]


def test_a_required_column_has_no_nulls() -> None:
    columns = plan_columns(spark(a="long"), TypeOptions(required=frozenset("a")), "log")
    assert not schema_of_columns(columns)["a"].nullable
    with pytest.raises(SchemaError, match='column "a" has 1 nulls, and is required'):
        convert(pa.record_batch({"a": pa.array([1, None])}), columns)


def test_the_zone_of_a_session_does_not_change_the_time() -> None:
    columns = plan_columns(spark(a="timestamp"), TypeOptions(), "log")
    for zone in ("UTC", "Asia/Tokyo"):
        batch = pa.record_batch({"a": pa.array([7], pa.timestamp("us", zone))})
        assert convert(batch, columns).column("a").cast(pa.int64()).to_pylist() == [7]


def test_a_log_has_columns_of_spark() -> None:
    schema = Schema.of({"a b": int, "c`d": float | None})
    assert spark_schema(schema, place=False) == "`a b` bigint not null, `c``d` double"
    assert spark_schema(schema, place=True).endswith("_row bigint not null")
