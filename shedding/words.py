"""The policy of the controller, and moves of tasks: plain data without columns. Reasons and alerts
are in `plait.protocol.quality`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Step = Literal["threads", "move", "nodes", "shed"]
HERE: tuple[Step, ...] = ("threads", "move", "nodes", "shed")
"""A move costs milliseconds, so it comes before anything is dropped."""
ALONE: tuple[Step, ...] = ("threads", "shed")
"""Where nothing is moved by itself: one process, and nodes that keep their bins."""
PAPER: tuple[Step, ...] = ("threads", "shed", "move", "nodes")
"""Where a move restarts its job, it is the last resort."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityPolicy:
    """The numbers behind the decisions."""

    order: tuple[Step, ...] = HERE
    headroom_ratio: float = 0.1
    """Of each host's cores: left free, because at full use latency has no bound."""
    drain_s: float = 30.0
    """The time in which rows that wait are to be worked off."""
    steps: int = 256
    """Keep ratios are multiples of one part in so many."""
    least_change: float = 0.02
    raise_cycles: int = 3
    raise_spare_ratio: float = 0.05
    """An accuracy rises only if the higher one leaves this much of it free."""
    overload_ratio: float = 0.1
    overload_cycles: int = 3
    move_gap_s: float = 30.0
    move_s: float = 0.5
    join_s: float = 5.0
    host_s: float = 60.0
    bandwidth: float = 50e6
    """Bytes a second of a migration."""
    gain_s: float = 60.0
    """A move is worth so many seconds of the accuracy it gains."""
    hold_warm_up: bool = True
    """Whether the others on a host with a task that warms up keep their accuracy; if not, they go
    to their floors."""
    memory_s: float = 60.0
    """How fast measured costs are forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMove:
    """A share of a part's bins goes from one node to a host."""

    job: str
    part: str
    from_rank: int
    from_host: str
    to_host: str
    share: float
    """Of the bins of the task."""
