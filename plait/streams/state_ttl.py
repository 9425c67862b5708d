"""Running aggregates, `fold` and `stateful` of keys with a ttl, which drop old state.

    bids.key_by("auction", ttl="1h").count()

Without a ttl they are an `AggregateOp`, a `FoldOp` and a `StatefulOp`, which need no event time.
With one they are event-time operators (`TimedOp`; `graph.temporal` says when state is dropped):
aggregates a `RunningSpec`, the others a process whose state is one object.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar

from plait.functions.process import Process
from plait.graph import temporal
from plait.streams.arguments import checked_route
from plait.streams.event_time import time_after
from plait.streams.process_verbs import process_op
from plait.streams.stream_protocol import timed_input

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from plait.expr.aggregates import Aggregate
    from plait.functions.process import KeyState, Timers
    from plait.graph.operators import Route
    from plait.model.call_site import CallSite
    from plait.model.schema import Schema
    from plait.streams.stream_protocol import S, Site


def add_running_aggregates(
    call: CallSite, site: Site[S], aggregates: tuple[tuple[str, Aggregate], ...], schema: Schema
) -> S:
    spec = temporal.RunningSpec(aggregates=aggregates, ttl_us=site.ttl_us)
    return timed_input(call, site).add(call, site, spec, schema, None)


def add_state_process(
    call: CallSite, site: Site[S], process: HeldState, schema: Schema, route: Route
) -> S:
    functions = (process.step, process.init) if callable(process.init) else (process.step,)
    checked_route(route, functions)
    process.shapes = (site.stream.schema,)
    op = process_op(call, site, process, schema, route)
    return site.stream._append(op, time_after(op, site.stream._time))


class HeldState(Process):
    """A process whose state is one object of any type."""

    state: ClassVar[Mapping[str, Any]] = {"held": object}

    def __init__(
        self,
        init: Any,
        step: Callable[[Any, Any], Any],
        version: int = 1,
        migrates: Callable[[Any, int], Any] | None = None,
    ) -> None:
        self.init = init
        self.step = step
        self.version = version
        self.migrates = migrates

    def migrate(self, old: Any, version: int) -> Any:
        """As that of a process; the user's function takes the state itself."""
        if self.migrates is None or old["held"] is None:
            return old
        return {"held": (self.migrates(old["held"][0], version),)}

    def held(self, state: KeyState) -> Any:
        """The state of the key, or a new one."""
        if state.held is not None:
            return state.held[0]
        return self.init() if callable(self.init) else copy.deepcopy(self.init)


class FoldProcess(HeldState):
    """`fold`: yields the key and the state, for every record."""

    def on_record(self, key: Any, record: Any, state: KeyState, timers: Timers) -> Iterator[Any]:
        value = self.step(self.held(state), record)
        state.held = (value,)
        yield (*key, value) if isinstance(key, tuple) else (key, value)


class StatefulProcess(HeldState):
    """`stateful`: yields the record that the step returns beside the next state."""

    def on_record(self, key: Any, record: Any, state: KeyState, timers: Timers) -> Iterator[Any]:
        result = self.step(self.held(state), record)
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError(f"the step must return (state, record or None), not {result!r}")
        state.held = (result[0],)
        if result[1] is not None:
            yield result[1]
