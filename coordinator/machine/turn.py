"""What a decision about a job is given besides the job, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Concatenate, ParamSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.coordinator.machine.state import JobState
    from plait.coordinator.messages.commands import Outgoing
    from plait.coordinator.messages.spec import Policy

P = ParamSpec("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """When and why something is decided, and under which policy."""

    policy: Policy
    at: float
    cause: str


@dataclass(frozen=True, slots=True)
class Next:
    """A job after a decision, and the commands to send, in this order."""

    job: JobState
    commands: tuple[Outgoing, ...] = ()

    def then(
        self,
        decide: Callable[Concatenate[JobState, P], Next],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Next:
        """A further decision about this job; its commands follow the ones so far."""
        after = decide(self.job, *args, **kwargs)
        return Next(after.job, (*self.commands, *after.commands))
