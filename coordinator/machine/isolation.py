"""What becomes of an event that cannot be followed, or whose facts cannot be written down; pure.

A request is refused in words and changes nothing. Anything else is the affair of one job: what was
observed still counts (else its nodes would pass for silent), and a job whose turn failed ends with
the reason in its status. No other job notices. What could not be written has not happened: nodes
say it again, and waits complete again, when the journal can be written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plait.coordinator.machine.advance import advance
from plait.coordinator.machine.observations import observe
from plait.coordinator.machine.step import step
from plait.coordinator.messages.commands import ReplyTo
from plait.coordinator.messages.events import (
    Answered,
    Asked,
    Heard,
    Reported,
    Restarted,
    Tick,
    TurnFailed,
)
from plait.coordinator.messages.requests import Rejected

if TYPE_CHECKING:
    from plait.coordinator.machine.advance import StepFunction
    from plait.coordinator.machine.state import State
    from plait.coordinator.messages.commands import Outgoing
    from plait.coordinator.messages.events import Event, Fact

SHOWN = 300
"""Letters of an error that are shown to a user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turned:
    """What came of an event."""

    state: State
    facts: list[Fact] = field(default_factory=list)
    commands: list[Outgoing] = field(default_factory=list)
    error: Exception | None = None
    """Why the event could not be followed as it should have been."""


def try_advance(state: State, event: Event, step: StepFunction = step) -> Turned:
    """As `advance`, but a failure stays with the request or the job it is about. Only a failure of
    the very first event, by which a coordinator takes over its jobs, is raised."""
    try:
        after, facts, commands = advance(state, event, step)
    except Exception as error:
        if isinstance(event, Restarted):
            raise
        return isolate(state, event, error, step)
    return Turned(state=after, facts=facts, commands=commands)


def isolate(state: State, event: Event, error: Exception, step: StepFunction = step) -> Turned:
    """The event failed: the request is refused, or its job ends."""
    if isinstance(event, Asked):
        why = f"the request could not be carried out: {text_of(error)}"
        return Turned(state=state, commands=[refuse(event, why)], error=error)
    state, commands = observe_alone(state, event)
    name = getattr(event, "job", "")
    if not name or name not in state.jobs:
        return Turned(state=state, commands=commands, error=error)
    failed = TurnFailed(at=event.at, cause=event.cause, job=name, reason=text_of(error))
    try:
        after, more = step(state, failed)
    except Exception:
        # It cannot even be ended. It stays as it is, and the others go on.
        return Turned(state=state, commands=commands, error=error)
    return Turned(state=after, facts=[failed], commands=[*commands, *more], error=error)


def follow_unwritten(state: State, event: Event, error: Exception) -> Turned:
    """The facts that follow from an event could not be written down."""
    if isinstance(event, Asked):
        why = (
            f"the coordinator cannot write its journal ({text_of(error)}), so the request was not "
            "carried out; ask again when that is repaired"
        )
        return Turned(state=state, commands=[refuse(event, why)], error=error)
    after, commands = observe_alone(state, event)
    return Turned(state=after, commands=commands, error=error)


def observe_alone(state: State, event: Event) -> tuple[State, list[Outgoing]]:
    """What was observed, without what follows from it."""
    if not isinstance(event, Tick | Answered | Reported | Heard):
        return state, []
    try:
        after, _, commands = observe(state, event)
    except Exception:
        return state, []
    return after, commands


def refuse(event: Asked, why: str) -> ReplyTo:
    cause = f"request {event.request_id}"
    return ReplyTo(request_id=event.request_id, reply=Rejected(reason=why), cause=cause)


def text_of(error: Exception) -> str:
    """An error in one line."""
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
