"""Advancing the control plane: an event in; the next state, the facts and the commands out.

The facts have to be journalled before any of the commands is sent. This goes on while jobs have all
they wait for, so that no wait needs the clock to end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.coordinator.machine.observations import completion, observe
from plait.coordinator.machine.step import step
from plait.coordinator.messages.commands import ReplyTo
from plait.coordinator.messages.events import Answered, Asked, Heard, Reported, Tick
from plait.coordinator.messages.request_checks import objection_to
from plait.coordinator.messages.requests import Rejected
from plait.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.coordinator.machine.state import State
    from plait.coordinator.messages.commands import Outgoing
    from plait.coordinator.messages.events import Event, Fact

    StepFunction = Callable[[State, Fact], tuple[State, list[Outgoing]]]

LIMIT = 1000
"""Waits that follow each other in one turn of one job: more is a loop without end."""


def advance(
    state: State, event: Event, step: StepFunction = step
) -> tuple[State, list[Fact], list[Outgoing]]:
    """All that follows from an event. Tests pass a `step` that also checks what it does."""
    facts: list[Fact] = []
    out: list[Outgoing] = []
    if isinstance(event, Asked) and (wrong := objection_to(event.request)):
        # Not a fact: what has no meaning is not worth a line in the journal.
        cause = f"request {event.request_id}"
        rejected = Rejected(reason=wrong)
        return state, [], [ReplyTo(request_id=event.request_id, reply=rejected, cause=cause)]
    if isinstance(event, Tick | Answered | Reported | Heard):
        state, todo, out = observe(state, event)
    else:
        todo = [event]
    for fact in todo:
        state, commands = step(state, fact)
        facts.append(fact)
        out += commands
    for name in affected_jobs(state, event):
        for _ in range(LIMIT):
            done = completion(state.jobs[name], event.at)
            if done is None:
                break
            state, commands = step(state, done)
            facts.append(done)
            out += commands
        else:
            raise InternalError(f"{name} goes on without end: {state.jobs[name].wait}")
    return state, facts, out


def affected_jobs(state: State, event: Event) -> list[str]:
    """The jobs that may have all they wait for after this event."""
    name = getattr(event, "job", "")
    if name:
        return [name] if name in state.jobs else []
    return list(state.jobs)
