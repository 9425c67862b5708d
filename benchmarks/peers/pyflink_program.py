# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
"""PyFlink 2: the Table API with scalar Python functions, CSV files in, `blackhole` out.

The time is that of the statement, in which the CSV files are read and a worker process of Python is
started, which PyFlink does for every job. A timed run is followed by nothing; for a check the rows
are collected. Streaming mode, object reuse on, the bundles of Python functions as large as the
default.
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import TYPE_CHECKING, Any

from pyflink.table import DataTypes, EnvironmentSettings, TableEnvironment
from pyflink.table.udf import udf

from benchmarks.peers.digest import digest
from benchmarks.peers.python_work import fee, score
from benchmarks.peers.serve import Answer, Request, serve

if TYPE_CHECKING:
    from pathlib import Path

FUNCTIONS = {"fee": fee, "score": score}
ROW = "auction BIGINT, bidder BIGINT, price BIGINT, ts BIGINT"


def environment(workers: int, folder: Path) -> Any:
    made = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    config = made.get_config()
    config.set("parallelism.default", str(workers))
    config.set("pipeline.object-reuse", "true")
    config.set("python.executable", sys.executable)
    bids = (folder / "bids.csv").as_uri()
    made.execute_sql(
        f"CREATE TABLE bids ({ROW}) WITH ('connector' = 'filesystem', 'path' = '{bids}', "
        "'format' = 'csv', 'csv.ignore-parse-errors' = 'true')"
    )
    made.execute_sql(
        "CREATE TABLE gone (auction BIGINT, found BIGINT) WITH ('connector' = 'blackhole')"
    )
    for name, function in FUNCTIONS.items():
        made.create_temporary_function(name, udf(function, result_type=DataTypes.BIGINT()))
    return made


def run(request: Request) -> Answer:
    flink = environment(request.workers, request.folder)
    asked = f"SELECT auction, {request.query}(auction, price) FROM bids WHERE auction IS NOT NULL"
    if request.check:
        found = flink.sql_query(asked).to_pandas()
        return Answer(seconds=0.0, digest=digest([found[name].to_numpy() for name in found]))
    began = perf_counter()
    flink.execute_sql(f"INSERT INTO gone {asked}").wait()
    return Answer(seconds=perf_counter() - began)


if __name__ == "__main__":
    serve(run)
