"""Says in the node's log that connections to its data port were refused: seldom, and with numbers.

Whoever reaches the port can make any number of them, so a line for each would fill the disk. The
first is logged at once, later ones together, at most every `EVERY_S`. A connection that ends by
itself before it has proved anything is nothing to tell alone: a node of the job that ends while it
dials does that, and so does a health check. Only many of them are.
"""

from __future__ import annotations

import logging
from math import inf

LOG = logging.getLogger("plait.node")
EVERY_S = 60.0
MANY_LEFT = 100


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
