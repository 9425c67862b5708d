"""plait: many cores, many nodes, one order.

The front door: every public name, loaded from its module when it is first used, so that `import
plait` is quick and loads nothing heavy. No folder of the package has the name of something public,
so importing a module never hides one.

    >>> import plait
    >>> plait.Schema.of({"price": float})
    price: float64
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any as _Any

    from plait.checkpoints.config import Checkpoint
    from plait.cluster.job_handle import JobHandle
    from plait.cluster.migration_handle import MigrationHandle
    from plait.cluster.submit import attach, jobs, submit
    from plait.connectors.base import (
        Backlog,
        Delivered,
        Reader,
        Resume,
        Sink,
        Source,
        Wait,
        Writer,
    )
    from plait.connectors.batch_log.log import BatchLog
    from plait.connectors.files import Files
    from plait.connectors.kafka.kafka import Kafka
    from plait.connectors.memory_sinks import Call, Collect, Discard, Print
    from plait.connectors.memory_sources import Items, Table
    from plait.connectors.rate import Rate
    from plait.connectors.spark.frames import from_spark, to_spark
    from plait.errors import (
        BreakerError,
        CheckpointError,
        ClusterError,
        EnvironmentFailure,
        InternalError,
        Interrupted,
        JobError,
        LoadError,
        PipelineError,
        PlaitError,
        RecordError,
        SchedulerError,
        SchemaError,
        SinkError,
        SourceError,
        StateError,
        TimedOut,
    )
    from plait.execution.backfill import Backfill, backfill
    from plait.execution.local_run import LocalRun, run, start
    from plait.execution.state_reading import read_state
    from plait.expr.aggregates import all, any, count, distinct, first, last, max, mean, min, sum
    from plait.expr.conditionals import coalesce, concat, when
    from plait.expr.tree import Expr, col, lit, wrapping
    from plait.functions.open_close import function
    from plait.functions.process import Process
    from plait.graph.regions import region
    from plait.graph.snapshot import Snapshot
    from plait.loops.flow import Flow
    from plait.loops.loop_operators import Context, operator
    from plait.model.durations import Duration, hours, minutes, seconds
    from plait.model.record_class import Record
    from plait.model.schedulers import NativeScheduler, Scheduler, StageView
    from plait.model.schema import Field, Schema, Timestamp, Type
    from plait.model.settings import Settings
    from plait.node_runtime.functions.arrow_batch import Batch
    from plait.node_runtime.functions.compiled import compiled
    from plait.protocol.quality import QualityPoint, QualityStep, QueryQuality
    from plait.results.result import Result
    from plait.streams.job import Job, stream
    from plait.streams.process_verbs import connect
    from plait.streams.stream import KeyedStream, Stream, union
    from plait.streams.window_verbs import Windowed
    from plait.streams.windows import Rows, Session, Sliding, Tumbling

__version__ = "0.1.0"

_MODULES = {
    "plait.expr.aggregates": "all any count distinct first last max mean min sum",
    "plait.model.settings": "Settings",
    "plait.model.durations": "Duration hours minutes seconds",
    "plait.model.record_class": "Record",
    "plait.errors": "BreakerError CheckpointError ClusterError EnvironmentFailure InternalError "
    "Interrupted JobError LoadError PipelineError PlaitError RecordError SchedulerError "
    "SchemaError SinkError SourceError StateError TimedOut",
    "plait.expr.tree": "Expr col lit wrapping",
    "plait.expr.conditionals": "coalesce concat when",
    "plait.checkpoints.config": "Checkpoint",
    "plait.connectors.batch_log.log": "BatchLog",
    "plait.connectors.files": "Files",
    "plait.connectors.kafka.kafka": "Kafka",
    "plait.loops.flow": "Flow",
    "plait.cluster.job_handle": "JobHandle",
    "plait.streams.job": "Job stream",
    "plait.streams.stream": "KeyedStream Stream union",
    "plait.streams.process_verbs": "connect",
    "plait.model.schema": "Field Schema Timestamp Type",
    "plait.cluster.migration_handle": "MigrationHandle",
    "plait.node_runtime.functions.arrow_batch": "Batch",
    "plait.node_runtime.functions.compiled": "compiled",
    "plait.loops.loop_operators": "Context operator",
    "plait.functions.process": "Process",
    "plait.functions.open_close": "function",
    "plait.graph.regions": "region",
    "plait.graph.snapshot": "Snapshot",
    "plait.protocol.quality": "QualityPoint QualityStep QueryQuality",
    "plait.results.result": "Result",
    "plait.execution.backfill": "Backfill backfill",
    "plait.execution.local_run": "LocalRun run start",
    "plait.execution.state_reading": "read_state",
    "plait.model.schedulers": "NativeScheduler Scheduler StageView",
    "plait.connectors.memory_sinks": "Call Collect Discard Print",
    "plait.connectors.base": "Backlog Delivered Reader Resume Sink Source Wait Writer",
    "plait.connectors.memory_sources": "Items Table",
    "plait.connectors.rate": "Rate",
    "plait.connectors.spark.frames": "from_spark to_spark",
    "plait.cluster.submit": "attach jobs submit",
    "plait.streams.windows": "Rows Session Sliding Tumbling",
    "plait.streams.window_verbs": "Windowed",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [
    "Backfill",
    "Backlog",
    "Batch",
    "BatchLog",
    "BreakerError",
    "Call",
    "Checkpoint",
    "CheckpointError",
    "ClusterError",
    "Collect",
    "Context",
    "Delivered",
    "Discard",
    "Duration",
    "EnvironmentFailure",
    "Expr",
    "Field",
    "Files",
    "Flow",
    "InternalError",
    "Interrupted",
    "Items",
    "Job",
    "JobError",
    "JobHandle",
    "Kafka",
    "KeyedStream",
    "LoadError",
    "LocalRun",
    "MigrationHandle",
    "NativeScheduler",
    "PipelineError",
    "PlaitError",
    "Print",
    "Process",
    "QualityPoint",
    "QualityStep",
    "QueryQuality",
    "Rate",
    "Reader",
    "Record",
    "RecordError",
    "Result",
    "Resume",
    "Rows",
    "Scheduler",
    "SchedulerError",
    "Schema",
    "SchemaError",
    "Session",
    "Settings",
    "Sink",
    "SinkError",
    "Sliding",
    "Snapshot",
    "Source",
    "SourceError",
    "StageView",
    "StateError",
    "Stream",
    "Table",
    "TimedOut",
    "Timestamp",
    "Tumbling",
    "Type",
    "Wait",
    "Windowed",
    "Writer",
    "__version__",
    "all",
    "any",
    "attach",
    "backfill",
    "coalesce",
    "col",
    "compiled",
    "concat",
    "connect",
    "count",
    "distinct",
    "first",
    "from_spark",
    "function",
    "hours",
    "jobs",
    "last",
    "lit",
    "max",
    "mean",
    "min",
    "minutes",
    "operator",
    "read_state",
    "region",
    "run",
    "seconds",
    "start",
    "stream",
    "submit",
    "sum",
    "to_spark",
    "union",
    "when",
    "wrapping",
]


def __getattr__(name: str) -> _Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'plait' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
