"""What a look at a topic says about the one who reads it. Pure.

Now and then a topic is asked for its partitions and their bounds. A partition that is new is read
from its first offset. One that is gone, or ends before what was read of it, is an error: the topic
was made anew. And one that has records, none of which come for half a minute, needs a new
consumer; a reader that has not taken what has come is not told so.

A broker that just came back may for a moment know less than was there: only what is seen several
times in a row counts.

    >>> look = {0: Bounds(0, 9), 1: Bounds(0, 4)}
    >>> found, _ = judge(look, reached={0: 9}, drained=True, memory=Watch(), now_s=0.0)
    >>> found.fresh
    {1: 0}
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from plait.connectors.kafka.client import Bounds

LOOK_S = 5.0
"""How often the brokers are asked."""
STALL_S = 30.0
"""How long records may be there without coming."""
LONGEST_STALL_S = 600.0
GAP_S = 4 * LOOK_S
"""After a longer pause between looks, nothing is known about the time before."""
CERTAIN = 3
"""So many looks in a row must show that a topic is not what it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What is remembered from one look to the next."""

    looked_s: float = 0.0
    reached: Mapping[int, int] = field(default_factory=dict)
    behind_since_s: Mapping[int, float] = field(default_factory=dict)
    """Of each partition with records of which none have come: since when."""
    waits_s: Mapping[int, float] = field(default_factory=dict)
    """Of partitions that a new consumer did not help: twice as long as before."""
    wrong: int = 0
    """Looks in a row in which a partition was gone, or ended before what was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is to be done after a look."""

    fresh: Mapping[int, int]
    """New partitions and their first offsets."""
    stalled: Mapping[int, float]
    """Partitions that stand still, and for how many seconds."""
    wrong: str = ""
    """Why the topic is not the one that was read so far."""


def judge(
    look: Mapping[int, Bounds],
    *,
    reached: Mapping[int, int],
    drained: bool,
    held: Collection[int] = (),
    memory: Watch,
    now_s: float,
) -> tuple[Found, Watch]:
    """What a look means.

    Args:
        look: the partitions of the topic.
        reached: of each partition that is read, the offset up to which it was.
        drained: whether the client had nothing left to hand out since the look before.
        held: partitions that are not to come now.
        memory: what the look before gave.
        now_s: when it was.
    """
    fresh = {p: bounds.low for p, bounds in look.items() if p not in reached}
    # Not what is read by now: a look may be older than that.
    wrong = find_wrong(look, memory.reached)
    times = memory.wrong + 1 if wrong else 0
    watched = drained and now_s - memory.looked_s <= GAP_S
    since = {
        partition: memory.behind_since_s.get(partition, now_s)
        if watched and memory.reached.get(partition) == at
        else now_s
        for partition, at in reached.items()
        if partition in look and partition not in held and look[partition].high > at
    }
    waits_s = {
        p: seconds
        for p, seconds in memory.waits_s.items()
        if memory.reached.get(p) == reached.get(p)
    }
    stalled = {p: now_s - at for p, at in since.items() if now_s - at >= waits_s.get(p, STALL_S)}
    if stalled:
        since = {}
        waits_s |= {p: min(waits_s.get(p, STALL_S) * 2, LONGEST_STALL_S) for p in stalled}
    after = Watch(
        looked_s=now_s,
        reached=dict(reached),
        behind_since_s=since,
        waits_s=waits_s,
        wrong=times,
    )
    return Found(fresh=fresh, stalled=stalled, wrong=wrong if times >= CERTAIN else ""), after


def find_wrong(look: Mapping[int, Bounds], reached: Mapping[int, int]) -> str:
    """Why a topic cannot be the one that was read, or nothing."""
    for partition, at in reached.items():
        if partition not in look:
            return f"partition {partition} is gone"
        if at > look[partition].high:
            return (
                f"partition {partition} was read up to offset {at:,},"
                f" and ends at {look[partition].high:,}"
            )
    return ""
