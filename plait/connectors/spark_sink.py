"""Results as a Spark data frame, through Arrow columns: no row becomes a Python object.

closed = plait.to_spark(prices, spark)        # runs what makes the stream
closed.groupBy("category").avg("price").show()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait.errors import SinkError
from plait.records import describe
from plait.result import Result

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def to_spark(
    given: Any, spark: SparkSession, *, output: str | None = None, **settings: Any
) -> DataFrame:
    """A data frame of a bounded result.

    Args:
        given: a stream (what makes it is run, with `settings` as of `plait.run`), the `Result` of a
            run, or a pyarrow Table.
        output: which sink of a `Result`, if it has several; that sink must be a `Collect`.
    """
    import pyarrow as pa

    if isinstance(given, pa.Table):
        table = given
    elif isinstance(given, Result):
        table = collected(given, output)
    elif hasattr(given, "to_arrow"):
        table = given.to_arrow(**settings)
    else:
        raise SinkError(
            f"to_spark: {describe(given)} is neither a stream nor a result nor a pyarrow table"
        )
    return spark.createDataFrame(table)


def collected(result: Result, output: str | None) -> Any:
    """The table that a run gave."""
    import pyarrow as pa

    tables = {name: made for name, made in result.outputs.items() if isinstance(made, pa.Table)}
    names = ", ".join(tables) or "none"
    if output is None and len(tables) != 1:
        raise SinkError(f"to_spark: say which output=; those collected are: {names}")
    if output is not None and output not in tables:
        raise SinkError(f'to_spark: no output "{output}" was collected; there are: {names}')
    return next(iter(tables.values())) if output is None else tables[output]
