"""plait: many cores, many nodes, one order.

The front door: every public name, loaded from its module when it is first used, so that `import
plait` is quick and loads nothing heavy. A name here always means what the table says, also where a
module of the package has the same name (`plait.run` is the function).

    >>> import plait
    >>> plait.Schema.of({"price": float})
    price: float64
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any as _Any

    from plait.aggregates import all, any, count, distinct, first, last, max, mean, min, sum
    from plait.config import Settings
    from plait.connected import connect
    from plait.durations import hours, minutes, seconds
    from plait.errors import (
        InternalError,
        Interrupted,
        JobError,
        PlaitError,
        RecordError,
        SchedulerError,
        SchemaError,
        SinkError,
        SourceError,
        StateError,
        TimedOut,
    )
    from plait.expr import Expr, col, lit
    from plait.expr_build import coalesce, concat, when
    from plait.files import Files
    from plait.flow import Flow
    from plait.handle import ClusterError, JobHandle
    from plait.job import Job, KeyedStream, Stream, stream, union
    from plait.model import Field, Schema, Timestamp, Type
    from plait.moving import MigrationHandle
    from plait.node_runtime.arrow import Batch
    from plait.node_runtime.compiled import compiled
    from plait.operators import Context, operator
    from plait.process import Process
    from plait.regions import region
    from plait.result import Result
    from plait.run import run
    from plait.scheduling import NativeScheduler, Scheduler, StageView
    from plait.sinks.base import Sink, Writer
    from plait.sinks.memory import Call, Collect, Discard, Print
    from plait.sinks.spark import to_spark
    from plait.sources.base import Reader, Source, Wait
    from plait.sources.memory import Items, Table
    from plait.sources.rate import Rate
    from plait.sources.spark import from_spark
    from plait.submit import attach, jobs, submit
    from plait.window_kinds import Rows, Session, Sliding, Tumbling
    from plait.windowed import Windowed

__version__ = "0.1.0"

_MODULES = {
    "plait.aggregates": "all any count distinct first last max mean min sum",
    "plait.config": "Settings",
    "plait.durations": "hours minutes seconds",
    "plait.errors": "InternalError Interrupted JobError PlaitError RecordError SchedulerError "
    "SchemaError SinkError SourceError StateError TimedOut",
    "plait.expr": "Expr col lit",
    "plait.expr_build": "coalesce concat when",
    "plait.files": "Files",
    "plait.flow": "Flow",
    "plait.handle": "ClusterError JobHandle",
    "plait.job": "Job KeyedStream Stream stream union",
    "plait.connected": "connect",
    "plait.model": "Field Schema Timestamp Type",
    "plait.moving": "MigrationHandle",
    "plait.node_runtime.arrow": "Batch",
    "plait.node_runtime.compiled": "compiled",
    "plait.operators": "Context operator",
    "plait.process": "Process",
    "plait.regions": "region",
    "plait.result": "Result",
    "plait.run": "run",
    "plait.scheduling": "NativeScheduler Scheduler StageView",
    "plait.sinks.base": "Sink Writer",
    "plait.sinks.memory": "Call Collect Discard Print",
    "plait.sinks.spark": "to_spark",
    "plait.sources.base": "Reader Source Wait",
    "plait.sources.memory": "Items Table",
    "plait.sources.rate": "Rate",
    "plait.sources.spark": "from_spark",
    "plait.submit": "attach jobs submit",
    "plait.window_kinds": "Rows Session Sliding Tumbling",
    "plait.windowed": "Windowed",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [
    "Batch",
    "Call",
    "ClusterError",
    "Collect",
    "Context",
    "Discard",
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
    "KeyedStream",
    "MigrationHandle",
    "NativeScheduler",
    "PlaitError",
    "Print",
    "Process",
    "Rate",
    "Reader",
    "RecordError",
    "Result",
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
    "coalesce",
    "col",
    "compiled",
    "concat",
    "connect",
    "count",
    "distinct",
    "first",
    "from_spark",
    "hours",
    "jobs",
    "last",
    "lit",
    "max",
    "mean",
    "min",
    "minutes",
    "operator",
    "region",
    "run",
    "seconds",
    "stream",
    "submit",
    "sum",
    "to_spark",
    "union",
    "when",
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


class _FrontDoor(types.ModuleType):
    """Importing a submodule binds it in its package; that must not hide a public name."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[_Any, ...]:
        # A user's class that goes to other nodes may hold the module: it is imported there.
        return importlib.import_module, (self.__name__,)


sys.modules[__name__].__class__ = _FrontDoor
