"""Data frames as sources and results as data frames, with a real Spark session; and the data of the
benchmarks, which Spark and numpy must give alike."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import plait
from benchmarks.nexmark import generate, native
from benchmarks.nexmark.schema import SCHEMAS, Bid, Shape
from benchmarks.support.spark_session import write
from benchmarks.tpcxbb import generate as shop_generate
from benchmarks.tpcxbb import native as shop_native
from benchmarks.tpcxbb.schema import SCHEMAS as SHOP_SCHEMAS
from benchmarks.tpcxbb.schema import Shape as ShopShape
from plait import col
from plait.connectors.columns import canonical
from plait.connectors.memory_sources import Table
from plait.connectors.spark import frames as spark_source
from plait.connectors.spark.frames import from_spark, to_spark
from plait.model.schema import Schema

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration

SHAPE = Shape(events=5_000, events_per_s=100, out_of_order_us=500_000)


def fitted(frame: Any, schema: type) -> Any:
    return canonical(frame.toArrow(), Schema.of(schema)).combine_chunks()


@pytest.mark.parametrize("stream", SCHEMAS)
def test_spark_and_numpy_make_the_same_events(spark: Any, stream: str) -> None:
    made = generate.frame(spark, stream, SHAPE, rows_of_a_part=1000)
    assert fitted(made, SCHEMAS[stream]) == native.table(stream, SHAPE).combine_chunks()


def test_spark_and_numpy_make_the_same_shop(spark: Any) -> None:
    shape = ShopShape(clicks=5_000, tickets=1_000, clicks_per_s=1, tickets_per_s=1)
    for stream, made in shop_generate.frames(spark, shape, rows_of_a_part=700).items():
        wanted = shop_native.table(stream, shape).combine_chunks()
        assert fitted(made, SHOP_SCHEMAS[stream]) == wanted


def test_generated_files_sorted_by_name_are_the_stream_in_order(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = generate.frame(spark, "bids", SHAPE, rows_of_a_part=1000)
    write(made, tmp_path / "bids", "bids")
    assert len(list((tmp_path / "bids").glob("*.parquet"))) == 5
    read = plait.stream(plait.Files(tmp_path / "bids", format="parquet", schema=Bid)).to_arrow()
    assert read.combine_chunks() == native.table("bids", SHAPE).combine_chunks()
    assert "bids: written to" in capsys.readouterr().err


def test_a_frame_is_a_source_in_its_order(spark: Any) -> None:
    source = from_spark(generate.frame(spark, "bids", SHAPE, 1000), schema=Bid)
    assert isinstance(source, Table)
    stream = plait.stream(source, event_time="ts", out_of_order="500ms")
    wanted = native.table("bids", SHAPE)
    assert stream.to_arrow(workers=2).combine_chunks() == wanted.combine_chunks()
    assert stream.filter(col("price") > 10**6).to_arrow().num_rows > 0


def test_without_a_schema_columns_are_as_spark_has_them(spark: Any) -> None:
    frame = spark.sql(
        "select 1 as a, 2.5 as b, 'x' as c, true as d, timestamp '2026-01-01 00:00:01' as e, "
        "cast(null as double) as f, X'00ff' as g, cast(3 as smallint) as h"
    )
    with pytest.raises(plait.SchemaError, match=r'column "b" is decimal\(2,1\); say what'):
        from_spark(frame)
    source = from_spark(frame, decimals="float")
    found = {field.name: field.type.value for field in source.schema}
    assert {name: found[name] for name in "abcdefgh"} == {
        "a": "int64",
        "b": "float64",
        "c": "string",
        "d": "bool",
        "e": "timestamp",
        "f": "float64",
        "g": "bytes",
        "h": "int64",
    }
    (row,) = plait.stream(source).collect()
    assert (row.a, row.c, row.d, row.f, row.g, row.h) == (1, "x", True, None, b"\x00\xff", 3)


def test_a_schema_chooses_columns_and_refuses_nulls(spark: Any) -> None:
    frame = spark.sql("select * from values (1L, 'x'), (2L, null) as rows (n, s)")
    assert from_spark(frame, schema={"n": int}).schema == Schema.of({"n": int})
    with pytest.raises(plait.SourceError, match='column "s" has 1 nulls'):
        from_spark(frame, schema={"s": str})


def test_required_columns_are_never_null(spark: Any, tmp_path: Path) -> None:
    text = "select * from values (timestamp '2026-01-01 00:00:01', 'x'), ({}, null) as rows (t, s)"
    frame = spark.sql(text.format("timestamp '2026-01-01 00:00:02'"))
    for source in (
        from_spark(frame, required=["t"]),
        from_spark(frame, required=["t"], folder=tmp_path / "rows"),
    ):
        assert [field.nullable for field in source.schema] == [False, True]
        counted = plait.stream(source, event_time="t").tumbling("1m").count()
        assert [row.count for row in counted.collect()] == [2]
    with pytest.raises(plait.SourceError, match='column "t" has 1 nulls'):
        from_spark(spark.sql(text.format("null")), required=["t"])
    with pytest.raises(plait.SourceError, match='no column "u"'):
        from_spark(frame, required=["u"])


def test_frames_of_unknown_size_go_through_files(spark: Any) -> None:
    frame = spark.createDataFrame([(1, "x"), (2, None)], "n long, s string")
    source = from_spark(frame)
    assert isinstance(source, plait.Files)
    assert [row.s for row in plait.stream(source).collect()] == ["x", None]
    with pytest.raises(plait.SourceError, match='column "s" is null'):
        plait.stream(from_spark(frame, schema={"s": str})).collect()


def test_a_folder_gets_files_that_are_read_as_a_stream(spark: Any, tmp_path: Path) -> None:
    frame = generate.frame(spark, "auctions", SHAPE, 100)
    source = from_spark(frame, schema=SCHEMAS["auctions"], folder=tmp_path / "a")
    assert isinstance(source, plait.Files)
    wanted = native.table("auctions", SHAPE).combine_chunks()
    assert plait.stream(source, event_time="ts").to_arrow().combine_chunks() == wanted
    assert len(list((tmp_path / "a").glob("*.parquet"))) == 3


def test_large_frames_go_through_files_that_end_with_the_source(
    spark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(spark_source, "LARGE_BYTES", 1000)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    source = from_spark(spark.range(1000))
    assert isinstance(source, plait.Files)
    assert plait.stream(source).to_arrow()["id"].to_pylist() == list(range(1000))
    assert list(tmp_path.iterdir())
    del source
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_what_is_no_batch_frame_is_refused(spark: Any) -> None:
    with pytest.raises(plait.SourceError, match="not a Spark data frame"):
        from_spark([1, 2])  # type: ignore[arg-type]
    with pytest.raises(plait.SourceError, match="folder= is for batch frames"):
        from_spark(spark.readStream.format("rate").load(), folder="rows")
    with pytest.raises(plait.SourceError, match="log= is for streaming frames"):
        from_spark(spark.range(3), log="rows")
    with pytest.raises(plait.SchemaError, match='write "float", "text" or "scaled"'):
        from_spark(spark.range(3), decimals="int")  # type: ignore[arg-type]


def test_times_without_a_zone_and_decimals_are_as_one_says(spark: Any, tmp_path: Path) -> None:
    frame = spark.sql(
        "select timestamp_ntz '2026-07-01 12:00:00' as t, cast(12.34 as decimal(10,2)) as d"
    )
    with pytest.raises(plait.SchemaError, match='column "t" is a time without a zone'):
        from_spark(frame, decimals="text")
    for folder in (None, tmp_path / "rows"):
        source = from_spark(frame, ntz="Europe/Berlin", decimals="scaled", folder=folder)
        (row,) = plait.stream(source).collect()
        assert row.t.isoformat() == "2026-07-01T10:00:00+00:00"
        assert row.d == 1234
    (row,) = plait.stream(from_spark(frame.select("d"), decimals="text")).collect()
    assert row.d == "12.34"
    assert from_spark(frame.select("d"), schema={"d": float}).schema["d"].type is plait.Type.FLOAT64


def test_a_stream_becomes_a_frame(spark: Any) -> None:
    totals = plait.stream(native.table("bids", SHAPE)).key_by("auction").sum("price")
    frame = to_spark(totals, spark, workers=2)
    assert frame.columns == ["auction", "sum"]
    most = frame.groupBy("auction").max("sum").toArrow()
    wanted = native.table("bids", SHAPE).group_by("auction").aggregate([("price", "sum")])
    got = zip(*(column.to_pylist() for column in most.columns), strict=True)
    assert dict(got) == dict(
        zip(wanted["auction"].to_pylist(), wanted["price_sum"].to_pylist(), strict=True)
    )


def test_the_output_of_a_run_becomes_a_frame(spark: Any) -> None:
    job = plait.Job("outputs")
    numbers = job.source(pa.table({"n": [1, 2, 3]}))
    numbers.sink(plait.Collect(), name="all")
    numbers.filter(col("n") > 1).sink(plait.Collect(), name="some")
    result = job.run()
    assert to_spark(result, spark, output="some").toArrow()["n"].to_pylist() == [2, 3]
    with pytest.raises(plait.SinkError, match="choose one with output=; collected were: all, some"):
        to_spark(result, spark)
    with pytest.raises(plait.SinkError, match='no output "none"'):
        to_spark(result, spark, output="none")
    with pytest.raises(plait.SinkError, match="neither a stream nor a result"):
        to_spark(3, spark)


def test_times_and_nulls_survive_the_way_there_and_back(spark: Any) -> None:
    given = pa.table(
        {
            "t": pa.array([0, 1_767_225_600_000_001, None], pa.timestamp("us", "UTC")),
            "s": pa.array(["a", None, "ü"]),
            "x": pa.array([1.5, None, float("inf")]),
        }
    )
    back = from_spark(to_spark(given, spark))
    assert isinstance(back, Table)
    assert back.arrow().to_pylist() == given.to_pylist()
