"""How a record whose function raised is tried again: how often, and after which pauses.

A pause doubles from try to try. Where the engine waits in it, it does so in slices, so that a run
that is ended need not wait for the end of a long one, and others see that the process is alive.

    >>> from plait.graph.operators import Retrying
    >>> pauses_s(Retrying(retries=4, backoff_us=100_000))
    (0.1, 0.2, 0.4, 0.8)
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from plait.node_runtime.native._calls import beat

if TYPE_CHECKING:
    from plait.graph.operators import Retrying

LONGEST_PAUSE_S = 10.0
"""Between two tries of a record, unless the first is longer."""
SLICE_S = 0.05


def pauses_s(retrying: Retrying) -> tuple[float, ...]:
    """The pause before each try but the first."""
    first_s = retrying.backoff_us / 1e6
    longest_s = max(first_s, LONGEST_PAUSE_S)
    return tuple(min(first_s * 2**n, longest_s) for n in range(retrying.retries))


class Again:
    """Pauses before the next try, if there is one. It holds nothing that changes."""

    def __init__(self, pauses: tuple[float, ...]) -> None:
        self.pauses_s = pauses

    def __call__(self, tried: int) -> bool:
        """`tried`: how many of the pauses are over."""
        if tried >= len(self.pauses_s):
            return False
        until = time.monotonic() + self.pauses_s[tried]
        while (left_s := until - time.monotonic()) > 0:
            time.sleep(min(left_s, SLICE_S))
            beat()
        return True


def again_of(retrying: Retrying | None) -> Again | None:
    """None: there is one try."""
    if retrying is None or not retrying.retries:
        return None
    return Again(pauses_s(retrying))
