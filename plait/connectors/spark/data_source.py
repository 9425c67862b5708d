"""What the options of the format "plait" mean; `pyspark_plait` is Spark's door to it.

| option | for | meaning |
| --- | --- | --- |
| path | all | the folder of the log |
| ntz, decimals, flatten, required | writing | `TypeOptions` |
| most, most_batches, when_full | writing | how much may be unread; "wait" or "fail" |
| place | reading | add the columns _batch and _row |
| maxBatches, maxBytes | streams | the most that a batch of Spark takes |
| reader | streams | the name of the reader in the log |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait.connectors.batch_log.storage import LogFolder
from plait.connectors.file_targets import to_roll
from plait.connectors.spark.reader import LogBatchReader, LogStreamReader, is_true
from plait.connectors.spark.types import TypeOptions, plan_columns, spark_schema
from plait.connectors.spark.writer import LogStreamWriter, Room
from plait.errors import SinkError, SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.model.schema import Schema


def path_of(options: Mapping[str, str]) -> str:
    path = options.get("path")
    if not path:
        raise SourceError(
            'the format "plait" needs the folder of the log: .load(path), .start(path)'
        )
    return path.removeprefix("file://") if path.startswith("file:///") else path


def columns_of_log(options: Mapping[str, str]) -> tuple[str, Schema]:
    path = path_of(options)
    log = LogFolder(path).read_log()
    if log is None:
        raise SourceError(f"{path}: there is no batch log yet; start its writer first")
    return path, log.schema


def log_schema(options: Mapping[str, str]) -> str:
    """The columns of the log in Spark's words."""
    _, schema = columns_of_log(options)
    return spark_schema(schema, place=is_true(options.get("place")))


def stream_writer(
    options: Mapping[str, str], schema: Mapping[str, Any], *, overwrite: bool
) -> LogStreamWriter:
    """The writer of a query; what the log cannot have is refused before it starts."""
    if overwrite:
        raise SinkError(
            'the format "plait" appends: a batch of outputMode("complete") would be the whole'
            ' result again; use "append", or foreachBatch with plait.BatchLog.append'
        )
    if is_true(options.get("asyncprogresstrackingenabled")):
        raise SinkError(
            "asyncProgressTrackingEnabled lets a repeated batch have other rows under the same"
            " number; leave it out to write a batch log"
        )
    path = path_of(options)
    LogFolder(path)
    required = (name.strip() for name in options.get("required", "").split(","))
    types = TypeOptions(
        ntz=options.get("ntz", ""),
        decimals=options.get("decimals", ""),  # type: ignore[arg-type]
        flatten=is_true(options.get("flatten")),
        required=frozenset(name for name in required if name),
    )
    when_full = options.get("when_full", "wait")
    if when_full not in ("wait", "fail"):
        raise SinkError(f'{path}: when_full is {when_full!r}; write "wait" or "fail"')
    room = Room(
        most_bytes=size_of(options.get("most", "1GB")),
        most_batches=int(options.get("most_batches", 1000)),
        fail=when_full == "fail",
    )
    columns = plan_columns(schema, types, path)
    return LogStreamWriter(path, columns, room, options.get("checkpointlocation"))


def size_of(text: str) -> int:
    """The bytes of a text such as 1GB."""
    try:
        size = to_roll(text).size_bytes
    except SinkError:
        size = None
    if size is None:
        raise SinkError(f'most is {text!r}; give a size such as "1GB"')
    return int(size)


def stream_reader(options: Mapping[str, str]) -> LogStreamReader:
    """The reader of a streaming query."""
    path, schema = columns_of_log(options)
    return LogStreamReader(path, schema, options)


def batch_reader(options: Mapping[str, str]) -> LogBatchReader:
    """The reader of what is in the log now."""
    path, schema = columns_of_log(options)
    return LogBatchReader(path, schema, place=is_true(options.get("place")))
