"""Connections to a node's data port that do not belong to the job.

Said in the node's log seldom, and with numbers: whoever reaches the port can make any number of
them, so a line for each would fill the disk. The first is logged at once, later ones together, at
most every `EVERY_S`. A connection that ends by itself before it has proved anything is nothing to
tell alone: a node of the job that ends while it dials does that, and so does a health check. Only
many of them are.

With TLS the tunnel has the port, and `Strangers` has the rules of the native links for it: so many
may try at a time, then the oldest has to go, and so many a second are let in; the others wait where
the system keeps them. May be used by any thread.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from dataclasses import dataclass, replace
from math import inf

LOG = logging.getLogger("plait.node")
EVERY_S = 60.0
MANY_LEFT = 100
MOST_TRYING = 64
MOST_PER_S = 500


class StrangerLog:
    """Of one node; `note` is called with each report."""

    def __init__(self) -> None:
        self.refused = 0
        self.left = 0
        self.logged_at = -inf

    def note(self, refused: int, left: int, why: str, source: str, now: float) -> None:
        """`refused` and `left`: how many so far; `why` and `source` are of the last refused."""
        if now - self.logged_at < EVERY_S:
            return
        if new := refused - self.refused:
            self.refused, self.logged_at = refused, now
            connections = "a connection" if new == 1 else f"{new:,} connections"
            LOG.warning(
                "refused %s to the data port; the last one came from %s: %s",
                connections,
                source,
                why,
            )
        if (gone := left - self.left) >= MANY_LEFT:
            self.left, self.logged_at = left, now
            LOG.warning(
                "%s connections to the data port ended before they proved that they belong to the "
                "job",
                f"{gone:,}",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """How many were refused, and how many left by themselves before they proved anything; of the
    last one that was refused, why and whose."""

    count: int = 0
    left: int = 0
    why: str = ""
    source: str = ""


class Strangers:
    """Those that are trying now, oldest first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.trying: dict[socket.socket, str] = {}
        self.pushed: set[socket.socket] = set()
        """Those that had to make way."""
        self.refusals = Refusals()
        self.allowance, self.refilled_at = float(MOST_PER_S), 0.0

    def pause_s(self, now: float) -> float:
        """How long the next one has to wait before it is let in; 0: it may come now."""
        passed = now - self.refilled_at
        self.allowance = min(self.allowance + passed * MOST_PER_S, MOST_PER_S)
        self.refilled_at = now
        if self.allowance < 1.0:
            return (1.0 - self.allowance) / MOST_PER_S
        self.allowance -= 1.0
        return 0.0

    def enter(self, line: socket.socket, source: str) -> None:
        """One more tries; if there are too many the oldest has to go."""
        with self.lock:
            if len(self.trying) >= MOST_TRYING:
                oldest = next(iter(self.trying))
                self.refuse("too many tried at once", self.trying.pop(oldest))
                self.pushed.add(oldest)
                with contextlib.suppress(OSError):  # it has gone already
                    oldest.shutdown(socket.SHUT_RDWR)
            self.trying[line] = source

    def leave(self, line: socket.socket, error: OSError | None) -> None:
        """One has shown its certificate, or failed."""
        with self.lock:
            source = self.trying.pop(line, "")
            if line in self.pushed:
                self.pushed.discard(line)  # counted when it was pushed
            elif error is not None:
                self.judge(error, source)

    def judge(self, error: OSError, source: str) -> None:
        if isinstance(error, TimeoutError):
            self.refuse("it said nothing", source)
        elif isinstance(error, ConnectionError) or "EOF" in str(error):
            self.refusals = replace(self.refusals, left=self.refusals.left + 1)
        else:
            self.refuse(getattr(error, "reason", None) or str(error), source)

    def refuse(self, why: str, source: str) -> None:
        count = self.refusals.count + 1
        self.refusals = replace(self.refusals, count=count, why=f"TLS: {why}", source=source)
