"""One turn of the control plane: an event in; the next state, the facts and the commands out.

The facts are to be journalled before any of the commands is sent. A turn goes on while stages are
complete in themselves, so that no stage waits for the clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.coordinator.machine.observations import observe, ready
from plait.coordinator.machine.step import step
from plait.coordinator.messages.events import Answered, Reported, Tick
from plait.errors import InternalError

if TYPE_CHECKING:
    from plait.coordinator.machine.state import State
    from plait.coordinator.messages.commands import Outgoing
    from plait.coordinator.messages.events import Event, Fact

LIMIT = 1000
"""Stages that follow each other in one turn of one job: more is a loop without end."""


def turn(state: State, event: Event) -> tuple[State, list[Fact], list[Outgoing]]:
    """All that follows from an event."""
    facts: list[Fact] = []
    out: list[Outgoing] = []
    if isinstance(event, Tick | Answered | Reported):
        state, todo, out = observe(state, event)
    else:
        todo = [event]
    for fact in todo:
        state, more = step(state, fact)
        facts.append(fact)
        out += more
    for name in touched(state, event):
        for _ in range(LIMIT):
            found = ready(state.jobs[name], event.at)
            if found is None:
                break
            state, more = step(state, found)
            facts.append(found)
            out += more
        else:
            raise InternalError(f"{name} goes on without end: {state.jobs[name].stage}")
    return state, facts, out


def touched(state: State, event: Event) -> list[str]:
    """The jobs that the event can have brought on."""
    name = getattr(event, "job", "")
    if name:
        return [name] if name in state.jobs else []
    return list(state.jobs)
