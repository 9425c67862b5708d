"""The format "plait" of Spark: batch logs of plait as a streaming sink and as a source.

Spark imports every top-level module whose name begins with pyspark_ when it looks for a format, so
this one imports nothing but what it must.

    frame.writeStream.format("plait").option("checkpointLocation", saved).start("shared/clicks")
    spark.readStream.format("plait").load("shared/clicks")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """A batch log, by its path."""

    @classmethod
    def name(cls) -> str:
        return "plait"

    def schema(self) -> str:
        from plait.connectors.spark.data_source import log_schema

        return log_schema(self.options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        from plait.connectors.spark.data_source import stream_writer

        return stream_writer(self.options, schema.jsonValue(), overwrite=overwrite)

    def streamReader(self, schema: StructType) -> Any:
        from plait.connectors.spark.data_source import stream_reader

        return stream_reader(self.options)

    def reader(self, schema: StructType) -> Any:
        from plait.connectors.spark.data_source import batch_reader

        return batch_reader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        from plait.errors import SinkError

        raise SinkError(
            'the format "plait" is written by streams (writeStream); write a batch frame as Parquet'
            " and read it with plait.Files, or give it to plait.from_spark"
        )
