"""What an engine is built from at its ends, and what `build` gives.

An end is what the engine knows of a source or a sink: a table in memory, a generator, or functions
that are called. Plain data; nothing here opens or closes anything but the parts themselves.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from plait.graph.operators import TimedOp
from plait.node_runtime.functions.opening import Opened
from plait.node_runtime.lowering.exchanges import ExchangePlan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plait.errors import JobError
    from plait.graph.operators import Graph
    from plait.node_runtime.functions.event_loop import AsyncLoop
    from plait.node_runtime.native._batch import NativeBatch
    from plait.node_runtime.native._cluster import NativeCluster
    from plait.node_runtime.native._engine import NativeEngine
    from plait.node_runtime.native.stage_specs import WithBadRows
    from plait.node_runtime.pool.stages import Pools
    from plait.node_runtime.state.loop_operators import OperatorPython

TICK_S = 0.1
LEAVE_S = 2.0
"""How long an interrupted Python function may hold a worker up at the end of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEnd:
    """A source that is a table in memory: its chunks, and the rate of a replay (0: as fast as it
    is taken)."""

    chunks: Sequence[NativeBatch]
    rate_per_s: float = 0.0
    first: int = 0
    """The row to begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateEnd:
    """The native generator of numbered records."""

    rate_per_s: float
    total: int
    start_us: int
    first: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderEnd:
    """A source that is asked: poll(max_rows) gives a NativeBatch, one with its bad rows, seconds to
    wait, or None at the end."""

    poll: Callable[[int], NativeBatch | WithBadRows | float | None]
    position: Callable[[], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkEnd:
    """Where a sink's rows go: to a function, into memory (keep), or nowhere; `mark` is told the
    boundary of every mark, between two calls of `write`; `most`: stop the run after this many
    rows."""

    write: Callable[[NativeBatch], None] | None = None
    mark: Callable[[int], None] | None = None
    keep: bool = False
    most: int = -1
    commits: bool = False
    """It is marked where it is (`mark_complete`), not with the others."""
    delivered_before: int = 0
    """What is in epochs before this one is not written: it is delivered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElsewhereEnd:
    """A source that another node reads."""


SourceEnd = TableEnd | RateEnd | ReaderEnd | ElsewhereEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """This node among the nodes of the job."""

    cluster: NativeCluster
    rank: int
    home: int
    """The node that has the sinks of a job in total order."""


class Helper(Protocol):
    """What works on batches beside the engine's workers."""

    def start(self) -> None: ...
    def stop(self) -> bool:
        """Leaves nothing behind; False if a function of the job does not let it."""
        ...


@dataclass(slots=True)
class EngineParts:
    """An engine ready to start, and what is needed to read its results."""

    engine: NativeEngine
    seat: Seat | None = None
    exchanges: ExchangePlan = field(default_factory=ExchangePlan)
    sink_stages: dict[int, int] = field(default_factory=dict)
    """Sink operator -> stage."""
    heads: list[int] = field(default_factory=list)
    """By stage of the pipeline: the engine's stage that takes its input, and ..."""
    tails: list[int] = field(default_factory=list)
    """... the one that gives its output; -1: on this node it has none."""
    operators: list[OperatorPython] = field(default_factory=list)
    """Those with their own loop."""
    loop: AsyncLoop | None = None
    """Where functions are awaited, if there are any."""
    pools: Pools | None = None
    """The worker processes of its plain Python functions, if it has such functions."""
    helpers: list[Helper] = field(default_factory=list)
    opened: Opened = field(default_factory=Opened)
    """Functions that were opened in this process."""
    timers: dict[int, Callable[[], int]] = field(default_factory=dict)
    """Of each process: how many timers are set."""
    left: bool = False
    """Whether all workers have left."""

    def unfinished(self, graph: Graph) -> dict[int, int]:
        """Results that event-time operators had not given when the run was stopped, by operator:
        timers that are set, and what all other operators would give if time came to its end. Once,
        at the end; a function that was left behind may still be in them, and then nobody knows."""
        if not self.left:
            return {}
        timed = [i for i, op in enumerate(graph.operators) if isinstance(op, TimedOp)]
        return {
            i: count
            for i in timed
            if (count := self.timers[i]() if i in self.timers else self.engine.drop_unfinished(i))
        }

    def start(self) -> None:
        for operator in self.operators:
            operator.prepare()
        for helper in self.helpers:
            helper.start()
        self.engine.start()

    def end(self, *, grace_s: float) -> bool:
        """Waits until the workers have left, and ends what ran beside them. After `grace_s` the
        Python function that holds one up is interrupted; False: it does not return even then, and
        its thread was left behind."""
        interrupt_at = time.monotonic() + grace_s
        while not self.engine.join(TICK_S):
            late_s = time.monotonic() - interrupt_at
            if late_s >= LEAVE_S:
                self.engine.abandon()
                self.close()
                self.stop_helpers()
                self.opened.close()
                return False
            if late_s >= 0:
                self.engine.interrupt_python()  # again: another record may have begun meanwhile
        self.left = True
        self.close()
        stopped = self.stop_helpers()
        self.opened.close()
        return stopped

    @property
    def closing_error(self) -> JobError | None:
        """What the first function raised that could not be closed."""
        awaited = self.loop.opened.errors if self.loop is not None else []
        return next(iter((*self.opened.errors, *awaited)), None)

    def close(self) -> None:
        """Ends the loops of operators, whatever becomes of the others; when no worker runs."""
        with ExitStack() as closing:
            for operator in reversed(self.operators):
                closing.callback(operator.close)

    def stop_helpers(self) -> bool:
        """After the workers have left. False: a function of the job does not return."""
        stopped = [helper.stop() for helper in self.helpers]  # each of them, whatever the others do
        return all(stopped)
