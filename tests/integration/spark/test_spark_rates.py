"""What a real query of Spark tells of its progress."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait.connectors.spark.rates import QueryRates
from tests.integration.conftest import PATIENCE_S
from tests.integration.spark.test_spark_streams import numbers, write_files

if TYPE_CHECKING:
    from pathlib import Path

    from plait.protocol.rates import Looks

pytestmark = pytest.mark.integration


def looked(rates: QueryRates, records: float) -> Looks:
    """Reports come through a bus of Spark's own; this is when enough of them are there."""
    until = time.monotonic() + PATIENCE_S
    while (looks := rates.look()).records < records:
        assert time.monotonic() < until, looks
    return looks


def test_rows_of_a_query_are_counted(spark: Any, tmp_path: Path) -> None:
    write_files(tmp_path / "in", 4, 10)
    rates = QueryRates(spark)
    try:
        writer = numbers(spark, tmp_path / "in").writeStream.format("plait")
        writer = writer.option("checkpointLocation", str(tmp_path / "saved"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "log"))
        rates.listen(query)
        query.awaitTermination()
        looks = looked(rates, 40.0)
        assert (looks.records, looks.passed, looks.upstream) == (40.0, 40.0, True)
        assert looks.positions == {"query": 40.0}
    finally:
        rates.end()


def test_a_streaming_frame_shows_its_rate(spark: Any, tmp_path: Path) -> None:
    """Spark's rate source has offsets: seconds, each of so many rows."""
    frame = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    source = plait.from_spark(frame, log=tmp_path / "log", trigger="500ms")
    job = plait.Job("rates")
    job.source(source, "ticks").sink(plait.Discard(), "out")
    running = plait.start(job, workers=1)
    try:
        until = time.monotonic() + PATIENCE_S
        while (rate := running.rates()["ticks"]).trust == 0.0 or dict(rate.partitions)[
            "upstream"
        ].per_s == 0.0:
            assert time.monotonic() < until, rate
            running.engine.wait(0.1)
        assert rate.lag is not None
        assert [name for name, _ in rate.partitions] == ["upstream", "log"]
    finally:
        running.stop()
        running.wait(progress=False)
