"""A job with its files named from the root: nodes work in folders of their own.

Nothing is opened here. A column with the name of a file stays as it was written, so that the
output does not depend on where the job runs.
"""

from __future__ import annotations

import copy
import dataclasses
import glob
import os
from typing import TYPE_CHECKING, Any

from plait.connectors.batch_log.log import BatchLog
from plait.connectors.batch_log.storage import LogFolder
from plait.connectors.files import Files
from plait.connectors.history import Replay
from plait.connectors.kafka.kafka import Kafka
from plait.connectors.kafka.settings import whole_settings
from plait.graph.operators import CallOp, SinkOp, SourceOp
from plait.streams.enrich import Enrich

if TYPE_CHECKING:
    from plait.graph.operators import Graph


def with_whole_paths(graph: Graph) -> Graph:
    """The job as it is sent: relative paths are those of the folder where it was submitted."""
    operators = tuple(whole_op(op) for op in graph.operators)
    return dataclasses.replace(graph, operators=operators, dead_letters=whole(graph.dead_letters))


def whole_op(op: Any) -> Any:
    match op:
        case SourceOp():
            return dataclasses.replace(op, source=whole(op.source))
        case SinkOp():
            return dataclasses.replace(op, sink=whole(op.sink))
        case CallOp(function=Enrich() as lookup):
            return dataclasses.replace(op, function=changed(lookup, table=whole(lookup.table)))
        case _:
            return op


def whole(described: Any) -> Any:
    """A source, a sink or a table with whole paths; the same if it has no files."""
    match described:
        case Files():
            options = described.options
            if options.file_and_line:
                options = dataclasses.replace(options, left_out=os.path.join(os.getcwd(), ""))
            given = tuple(map(whole_path, described.given))
            return changed(described, given=given, options=options)
        case BatchLog() if type(described) is BatchLog:
            # One that Spark fills belongs to its process, and is refused when it is sent.
            root = os.path.abspath(described.folder.root)
            return changed(described, folder=LogFolder(root))
        case Kafka():
            there = described.connection
            settings = whole_settings(there.settings)
            return changed(described, connection=dataclasses.replace(there, settings=settings))
        case Replay():
            live = whole(described.live)
            ended = described.replayed is described.live
            replayed = live if ended else whole(described.replayed)
            return changed(described, live=live, replayed=replayed)
        case _:
            return described


def changed(described: Any, **fields: Any) -> Any:
    """A copy with other values."""
    other = copy.copy(described)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def whole_path(path: str) -> str:
    """From the root; letters of this folder that mean something in a glob mean themselves."""
    if "://" in path or os.path.isabs(path):
        return path
    here = os.getcwd()
    pattern = glob.has_magic(path) and not os.path.lexists(path)
    return os.path.join(glob.escape(here) if pattern else here, path)
