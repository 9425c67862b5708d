"""The port through which the coordinator reaches the cluster.

Every method returns at once and never raises for what goes wrong out there: results come back
later, from any thread, as events through the callback given to `open`. A result that never comes
is asked for again by the coordinator; so a gateway may drop, delay or repeat, but must not invent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.coordinator.messages.commands import AskHosts, AskReport, StartNode, StopNode, Tell
    from plait.coordinator.messages.events import Event
    from plait.protocol.messages import Rank


class Gateway(Protocol):
    """Effects on the cluster."""

    def open(self, deliver: Callable[[Event], None], clock: Callable[[], float]) -> None:
        """Called once, before anything else. `clock` gives the `at` of the events."""

    def start_node(self, command: StartNode) -> None:
        """Leads to NodeMade or NodeNotMade. A node that is there already is reported as made."""

    def tell(self, command: Tell) -> None:
        """Leads to Answered; to NodeLost only if the node is known to be gone for good."""

    def ask_report(self, command: AskReport) -> None:
        """Leads to Reported; to NodeLost only if the node is known to be gone for good."""

    def stop_node(self, command: StopNode) -> None:
        """Leads to nothing. Ends the node's process if it is there; with `keep` when its outcome
        is in the store."""

    def ask_hosts(self, command: AskHosts) -> None:
        """Leads to HostsSeen."""

    def retain(self, payloads: frozenset[str], outcomes: frozenset[tuple[str, Rank]]) -> None:
        """The payloads that nodes may still be made of, and the nodes whose outcome may be asked
        for, all of them: nothing else needs to be stored."""

    def close(self) -> None:
        """Deliver nothing more. Nodes stay as they are."""
