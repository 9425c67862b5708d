"""plait: the queries of `benchmarks/nexmark` on Arrow tables in memory, in total order.

The time is that of the run without building and starting the engine; results go to `Discard`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow.parquet

import plait
from benchmarks.nexmark.queries import QUERIES, Query
from benchmarks.peers.digest import digest_of_table
from benchmarks.peers.python_work import fee, score
from benchmarks.peers.serve import Answer, Request, serve

if TYPE_CHECKING:
    from pathlib import Path


@cache
def table(folder: Path, stream: str) -> Any:
    return pyarrow.parquet.read_table(folder / f"{stream}.parquet")


def count(bids: plait.Stream) -> plait.Stream:
    return bids.key_by("auction").count()


def with_fee(bids: plait.Stream) -> plait.Stream:
    return bids.with_columns(result=fee).select("auction", "result")


def with_score(bids: plait.Stream) -> plait.Stream:
    return bids.with_columns(result=score).select("auction", "result")


OWN = {
    "count": Query(("bids",), count),
    "fee": Query(("bids",), with_fee),
    "score": Query(("bids",), with_score),
}


def run(request: Request) -> Answer:
    asked = (QUERIES | OWN)[request.query]
    job = plait.Job(request.query)
    given = {
        name: job.source(plait.Table(table(request.folder, name)), name, event_time="ts")
        for name in asked.streams
    }
    sink = plait.Collect(label="out") if request.check else plait.Discard()
    result = plait.run(asked.over(given).sink(sink), workers=request.workers, progress=False)
    found = digest_of_table(result.outputs["out"]) if request.check else None
    return Answer(seconds=result.seconds, digest=found)


if __name__ == "__main__":
    serve(run)
