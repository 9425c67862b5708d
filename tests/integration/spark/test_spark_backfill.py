"""The queries of NEXMark and TPCx-BB begun by a backfill: live they give what streaming it all
gives, with a history from Spark too, and on nodes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import plait
from benchmarks.nexmark import generate, native, queries
from benchmarks.nexmark.schema import SCHEMAS, Shape
from benchmarks.tpcxbb import native as shop_native
from benchmarks.tpcxbb import queries as shop_queries
from benchmarks.tpcxbb.schema import Shape as ShopShape
from plait.graph.operators import SourceOp

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = pytest.mark.integration
QUICK = (
    *(f"test_nexmark_goes_live[{query}]" for query in ("q3", "q5", "q8")),
    *(f"test_tpcxbb_goes_live[{query}]" for query in ("q1", "q4")),
    "test_a_frame_of_spark_is_a_history",
)
SHAPE = Shape(events=20_000, events_per_s=200, out_of_order_us=700_000)
SHOP = ShopShape(clicks=12_000, tickets=6_000, clicks_per_s=1, tickets_per_s=1, items=50)
CUTS = (0.2, 0.55, 0.9)
CUTTABLE = {"q1", "q2", "q5", "q7", "q8"}
"""Of NEXMark: every operator forgets."""


def nexmark(query: str, given: Mapping[str, Any]) -> plait.Job:
    job, asked = plait.Job(query), queries.QUERIES[query]
    streams = {
        name: job.source(given[name], name, event_time="ts", out_of_order="700ms")
        for name in asked.streams
    }
    asked.over(streams).sink(plait.Collect(), "out")
    return job


def shop(query: str, given: Mapping[str, Any]) -> plait.Job:
    asked = shop_queries.QUERIES[query]
    job = plait.Job(query)
    stream = job.source(given[asked.stream], asked.stream, event_time="ts")
    asked.over(stream, given["items"]).sink(plait.Collect(), "out")
    return job


def rows_of(job: plait.Job, **given: Any) -> list[tuple[Any, ...]]:
    table = plait.run(job, order="total", **given).outputs["out"]
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def go_live(
    job: plait.Job, tables: Mapping[str, Any], share: float, saved: Path, **given: Any
) -> tuple[plait.Backfill, list[tuple[Any, ...]]]:
    labels = [op.label for op in job.graph().operators if isinstance(op, SourceOp)]
    until = {label: int(tables[label].num_rows * share) for label in labels}
    history = {label: tables[label].slice(0, at) for label, at in until.items()}
    done = plait.backfill(job, history=history, until=until, checkpoint=saved, **given)
    return done, rows_of(job, checkpoint=saved, start=done.savepoint)


def same(live: list[Any], whole: list[Any], dropped: int) -> None:
    """Rows of several streams may interleave in another way: then they are compared as a bag."""
    assert len(live) == len(whole) - dropped
    assert not Counter(live) - Counter(whole)


@pytest.mark.parametrize("query", queries.QUERIES)
def test_nexmark_goes_live(query: str, tmp_path: Path) -> None:
    tables = native.tables(SHAPE)
    whole = rows_of(nexmark(query, tables))
    one = len(queries.QUERIES[query].streams) == 1
    for share in CUTS:
        job = nexmark(query, tables)
        done, live = go_live(job, tables, share, tmp_path / f"all-{share}", cut=False)
        same(live, whole, done.dropped)
        assert live
        assert not one or live == whole[done.dropped :]
        job = nexmark(query, tables)
        cut, after_cut = go_live(job, tables, share, tmp_path / f"cut-{share}")
        assert Counter(after_cut) == Counter(live)
        assert not one or after_cut == live
        assert not cut.skipped or query in CUTTABLE, cut
    assert (cut.skipped > 0) == (query in CUTTABLE), cut


@pytest.mark.parametrize("query", ["q1", "q4", "q15"])
def test_tpcxbb_goes_live(query: str, tmp_path: Path) -> None:
    tables = shop_native.tables(SHOP)
    whole = rows_of(shop(query, tables))
    for share in CUTS:
        done, live = go_live(shop(query, tables), tables, share, tmp_path / f"{share}")
        assert live
        assert live == whole[-len(live) :]
    assert (done.skipped > 0) == (query == "q1"), done


def test_a_frame_of_spark_is_a_history(spark: Any, tmp_path: Path) -> None:
    tables = native.tables(SHAPE)
    whole = rows_of(nexmark("q5", tables))
    old = Shape(events=10_000, events_per_s=200, out_of_order_us=700_000)
    frame = generate.frame(spark, "bids", old)
    job = nexmark("q5", tables)
    done = plait.backfill(
        job,
        history={"bids": plait.from_spark(frame, schema=SCHEMAS["bids"])},
        until={"bids": old.rows("bids")},
        checkpoint=tmp_path / "saved",
    )
    live = rows_of(job, checkpoint=tmp_path / "saved", start=done.savepoint)
    assert done.rows + done.skipped == old.rows("bids")
    assert done.skipped > 4_000
    assert live
    assert live == whole[-len(live) :]
