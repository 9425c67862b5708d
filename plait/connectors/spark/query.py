"""A streaming frame as a source: this process starts its query, and ends it with the job.

The query writes a batch log, and the reader reads it. While nothing is there the reader looks after
the query: one that ended by itself has ended the log (`available_now`), one that failed is started
again from its own checkpoint, after 1, 5 and 30 seconds, then it is an error with Spark's message.
A job that stops leaves log and query where they are; the next run goes on with both.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.connectors.base import Backlog, Reader, Wait
from plait.connectors.batch_log.log import BatchLog
from plait.connectors.spark.rates import QueryRates
from plait.connectors.spark.types import plan_columns, schema_of_columns
from plait.errors import JobError, SourceError
from plait.model.durations import to_seconds
from plait.model.schema import Field, Schema

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from plait.connectors.spark.types import TypeOptions
    from plait.protocol.rates import Looks

LOG = logging.getLogger("plait.spark")
AVAILABLE_NOW = "available_now"
PAUSES_S = (1.0, 5.0, 30.0)
"""Before a query that failed is started again."""
STOP_S = 30.0
"""How long Spark may take to stop a query."""
LOOK_S = 0.2
QUERY = "query"
"""The folder in the log that has the query's own checkpoint."""


def stream_source(
    frame: DataFrame,
    types: TypeOptions,
    *,
    schema: Schema | None,
    log: str | os.PathLike[str] | None,
    trigger: str,
    order_by: str,
    options: Mapping[str, str],
    label: str,
) -> SparkStream:
    """The source of a streaming frame; nothing is started yet."""
    who = "from_spark" if log is None else str(log)
    columns = plan_columns(frame.schema.jsonValue(), types, who)
    found = schema_of_columns(columns)
    if schema is not None:
        found = narrowed(found, schema, who)
    temporary: Path | None = None
    if log is None:
        temporary = Path(tempfile.mkdtemp(prefix="plait-spark-"))
        log = temporary / "log"
    if trigger != AVAILABLE_NOW:
        to_seconds(trigger)
    source = SparkStream(
        log, found, required=sorted(types.required), order_by=order_by, once=temporary is not None
    )
    source.label = label
    source.frame = frame
    source.trigger = trigger
    source.writing = {
        "ntz": types.ntz,
        "decimals": types.decimals,
        "flatten": str(types.flatten).lower(),
        "required": ",".join(field.name for field in found if not field.nullable),
        **options,
    }
    if temporary is not None:
        weakref.finalize(source, shutil.rmtree, temporary, True)
    return source


def narrowed(found: Schema, wanted: Schema, who: str) -> Schema:
    """The columns as the user declared them; their types must be those that come."""
    fields = []
    for field in wanted:
        if found[field.name].type is not field.type:
            raise SourceError(
                f'{who}: column "{field.name}" is {found[field.name].type.value}, not'
                f" {field.type.value}; cast it in Spark"
            )
        fields.append(Field(field.name, field.type, field.nullable))
    return Schema(tuple(fields), wanted.record_class)


class SparkStream(BatchLog):
    """A batch log with the query that fills it."""

    frame: Any = None
    trigger = "1s"
    writing: Mapping[str, str]

    def __reduce__(self) -> Any:
        raise JobError(
            "a query of Spark belongs to the process that started it and cannot be sent to nodes;"
            f' let Spark write the log: frame.writeStream.format("plait").start("{self.folder}"),'
            f' and read plait.BatchLog("{self.folder}") in the job'
        )

    def check_time(self, column: str) -> None:
        """Batches are sorted by the event time, if they are not by another column."""
        self.order_by = self.order_by or column
        super().check_time(column)

    def open_reader(self, position: Any) -> Reader:
        """Starts the query and reads what it writes."""
        return SparkStreamReader(self, super().open_reader(position))

    def start_query(self) -> Any:
        writer = self.frame.writeStream.format("plait")
        for name, value in self.writing.items():
            writer = writer.option(name, value)
        saved = str((self.folder.root / QUERY).absolute())
        writer = writer.option("checkpointLocation", saved)
        if self.trigger == AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        else:
            millis = max(1, round(to_seconds(self.trigger) * 1000))
            writer = writer.trigger(processingTime=f"{millis} milliseconds")
        return writer.start(str(self.folder.root.absolute()))


class SparkStreamReader(Reader):
    """Reads the log and looks after the query."""

    def __init__(self, source: SparkStream, reader: Any) -> None:
        self.source = source
        self.reader = reader
        self.failures = 0
        self.again_at: float | None = None
        """When a query that failed is started again."""
        self.looked_at = 0.0
        self.rates = QueryRates(source.frame.sparkSession)
        try:
            self.query = self.start()
        except BaseException:
            self.rates.end()
            raise

    def start(self) -> Any:
        try:
            query = self.source.start_query()
            self.rates.listen(query)
            return query
        except Exception as error:
            raise SourceError(f"{self.source.folder}: Spark cannot start: {error}") from error

    def require(self, schema: Schema) -> None:
        self.reader.require(schema)

    def poll(self, max_rows: int) -> Any:
        answer = self.reader.poll(max_rows)
        if isinstance(answer, Wait):
            self.look_after()
        return answer

    def look_after(self) -> None:
        """Nothing was there: is the query alive?"""
        now = time.monotonic()
        if now - self.looked_at < LOOK_S:
            return
        self.looked_at = now
        if self.again_at is not None:
            if now >= self.again_at:
                self.again_at = None
                self.query = self.start()
            return
        if self.query.isActive:
            return
        error = self.query.exception()
        if error is None:
            if self.source.trigger == AVAILABLE_NOW:
                self.source.end()
                self.reader.looked_at = 0.0
                return
            error = RuntimeError("it was stopped")
        if self.failures >= len(PAUSES_S):
            raise SourceError(
                f"{self.source.folder}: the Spark query failed {self.failures + 1} times: {error}"
            )
        pause_s = PAUSES_S[self.failures]
        self.failures += 1
        self.again_at = now + pause_s
        LOG.warning(
            "the Spark query of %s failed and starts again in %.0f s: %s",
            self.source.folder,
            pause_s,
            str(error).split("\n")[0],
        )

    def position(self) -> Any:
        return self.reader.position()

    def backlog(self) -> Backlog | None:
        return self.reader.backlog()  # type: ignore[no-any-return]

    def look(self) -> Looks:
        """What the query told of its progress, for the rate of the source."""
        return self.rates.look()

    def close(self) -> None:
        self.reader.close()
        stop_query(self.query)
        self.rates.end()


def stop_query(query: Any, most_s: float = STOP_S) -> None:
    """Stops a query; Spark may hang in it, and is left alone then."""
    failed: list[BaseException] = []

    def stop() -> None:
        try:
            query.stop()
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=stop, name="spark-stop", daemon=True)
    thread.start()
    thread.join(most_s)
    if thread.is_alive():
        LOG.warning("Spark did not stop a query within %.0f s", most_s)
    elif failed:
        LOG.warning("Spark could not stop a query: %s", failed[0])
