"""State that is forgotten: running aggregates, folds and state machines of keys with a ttl.

    bids.key_by("auction", ttl="1h").count()

Without a ttl these are operators of their own kinds, which know no time. With one they are
`TimedOp`s (`graph.temporal` says when state is forgotten): aggregates a `RunningSpec`, a fold and a
state machine a process whose state is one object."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar

from plait.functions.process import Process
from plait.graph import temporal
from plait.streams.arguments import checked_route
from plait.streams.event_time import behind
from plait.streams.process_verbs import process_node
from plait.streams.window_verbs import timed_input

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from plait.expr.aggregates import Aggregate
    from plait.functions.process import KeyState, Timers
    from plait.graph.operators import Route
    from plait.model.call_site import CallSite
    from plait.model.schema import Schema
    from plait.streams.stream_protocol import S, Site


def aggregated(
    place: CallSite, site: Site[S], aggregates: tuple[tuple[str, Aggregate], ...], schema: Schema
) -> S:
    """The stream of running aggregates."""
    spec = temporal.RunningSpec(aggregates=aggregates, ttl_us=site.ttl_us)
    return timed_input(place, site).op(place, site, spec, schema, None)


def stepped(place: CallSite, site: Site[S], process: Kept, schema: Schema, route: Route) -> S:
    """The stream of a fold or a state machine."""
    functions = (process.step, process.init) if callable(process.init) else (process.step,)
    checked_route(route, functions)
    process.shapes = (site.stream.schema,)
    made = process_node(place, site, process, schema, route)
    return site.stream._made(made, behind(made, site.stream._time))


class Kept(Process):
    """A process with one state that may be anything; None: there is none yet."""

    state: ClassVar[Mapping[str, Any]] = {"held": object}

    def __init__(self, init: Any, step: Callable[[Any, Any], Any]) -> None:
        self.init = init
        self.step = step

    def held(self, state: KeyState) -> Any:
        if state.held is not None:
            return state.held[0]
        return self.init() if callable(self.init) else copy.deepcopy(self.init)


class Folded(Kept):
    """`fold`: the key and the state, for every record."""

    def on_record(self, key: Any, record: Any, state: KeyState, timers: Timers) -> Iterator[Any]:
        value = self.step(self.held(state), record)
        state.held = (value,)
        yield (*key, value) if isinstance(key, tuple) else (key, value)


class Stepped(Kept):
    """`stateful`: what the step gives beside the next state."""

    def on_record(self, key: Any, record: Any, state: KeyState, timers: Timers) -> Iterator[Any]:
        result = self.step(self.held(state), record)
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError(f"the step must return (state, record or None), not {result!r}")
        state.held = (result[0],)
        if result[1] is not None:
            yield result[1]
