"""What the controller sees and what it decides: frozen columns, a row for each host, sub-pipeline,
query and task of all jobs.

Columns of one table have one length. Rows refer to rows of other tables by position; `key` names
the same thing from cycle to cycle, so that what was learnt about it stays with it when others come
or go. CPU is counted in cores, rates in rows a second, accuracies and keep ratios from 0 to 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.protocol.quality import Alert, Reason
    from plait.shedding.words import TaskMove

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Number = TypeVar("Number", np.float64, np.int64)


def no_ints() -> Ints:
    return np.empty(0, dtype=np.int64)


def no_floats() -> Floats:
    return np.empty(0, dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hosts:
    key: Ints
    name: tuple[str, ...]
    cores: Floats
    used: Floats
    """By all processes on it."""
    ours: Floats
    """By the tasks of all jobs."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """Sub-pipelines of all jobs, each behind those that feed it."""

    key: Ints
    label: tuple[str, ...]
    job: Ints
    injected: Floats
    """Of a source's part: rows that come in a second. NaN elsewhere, and where a source is read as
    fast as its rows are taken."""
    backlog: Floats
    """Of a source's part: rows that came in and are not read."""
    reads: Bools
    """Whether it is a source's part."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Queries:
    key: Ints
    label: tuple[str, ...]
    job: Ints
    priority: Ints
    floor: Floats
    """The least accuracy it accepts; 1 for one that is never shed."""
    bound: Floats
    """The most a person allows; 1 if nobody said anything."""
    sheds: Bools
    """Whether its rows may be dropped at all."""
    suspends: Bools
    """Whether it would rather get nothing than be late, when its floor cannot be met."""
    freshness_s: Floats
    lag_s: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tasks:
    """Sub-pipelines on nodes."""

    part: Ints
    host: Ints
    rank: Ints
    """Of the node, within its job."""
    share: Floats
    """Of the rows of its part."""
    cpu: Floats
    """Cores it used since the cycle before."""
    taken: Floats
    offered: Floats
    """Rows a second that were routed to it, before its shedder."""
    waiting: Floats
    """Rows that wait in it."""
    most: Floats
    """The most cores it can use."""
    state_bytes: Floats
    moves: Bools
    """Whether it can go to another host."""
    warm: Bools
    """Whether what it uses was measured since it runs there."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pairs:
    left: Ints
    right: Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class View:
    at: float
    jobs: tuple[str, ...]
    hosts: Hosts
    parts: Parts
    queries: Queries
    tasks: Tasks
    behind: Pairs
    """Parts and the queries that their rows reach."""
    edges: Pairs
    """Parts and the parts they feed."""
    changing: frozenset[int] = frozenset()
    """Jobs whose state is being moved now."""
    coming: int = 0
    """Hosts that were asked for and are not there yet."""
    limits: tuple[int, int] = (0, 0)
    """The fewest and the most hosts that may be asked for; the most is 0 if none can be."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grants:
    """The cores that nodes may use at most; those without a row may use all of their host's."""

    job: Ints = field(default_factory=no_ints)
    rank: Ints = field(default_factory=no_ints)
    cores: Floats = field(default_factory=no_floats)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decision:
    keep: Floats
    """The keep ratio of every query of the view, from now on."""
    changed: tuple[int, ...]
    """The queries whose ratio is another than before."""
    wanted: Floats
    """What there is CPU for, before hysteresis."""
    lag_s: Floats
    """Of every query, with what waits on its way."""
    moves: tuple[TaskMove, ...] = ()
    grants: Grants = field(default_factory=Grants)
    hosts_wanted: int | None = None
    """None: no other number than there is."""
    alerts: tuple[Alert, ...] = ()
    """All that are open."""
    reasons: tuple[Reason, ...] = ()
    infeasible: tuple[Reason, ...] = ()
    drain: str = ""
    """A host to move everything off, because fewer would do."""
    shares: Floats = field(default_factory=no_floats)
    """Of every edge: Eq. 15, the share of its rows that is kept."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Learnt:
    """Of every part: sums over the past, forgotten by and by, from which its cost follows."""

    key: Ints
    weight: Floats
    x: Floats
    y: Floats
    xx: Floats
    xy: Floats
    fed: Floats
    """Rows that the parts before it took."""
    came: Floats
    """Rows that came of them."""
    seen: Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Memory:
    """What one cycle leaves to the next."""

    at: float | None = None
    learnt: Learnt | None = None
    query_key: Ints = field(default_factory=no_ints)
    keep: Floats = field(default_factory=no_floats)
    wanted: Floats = field(default_factory=no_floats)
    lag_s: Floats = field(default_factory=no_floats)
    rising: Ints = field(default_factory=no_ints)
    """Cycles in a row in which more would have fitted."""
    host_key: Ints = field(default_factory=no_ints)
    others: Floats = field(default_factory=no_floats)
    """Cores used by others, in the cycle before."""
    others_before: Floats = field(default_factory=no_floats)
    got: Floats = field(default_factory=no_floats)
    """Cores that our tasks got on a host, in the best of the last cycles."""
    bias: Mapping[str, float] = field(default_factory=dict)
    """By job: the factor by which it was seen to need more than its measured cost says."""
    behind: Mapping[str, int] = field(default_factory=dict)
    """By job: cycles in a row in which it fell further behind."""
    over: Ints = field(default_factory=no_ints)
    """Cycles in a row in which a host was short."""
    moved_at: Mapping[str, float] = field(default_factory=dict)
    """By job."""
    alerts: Mapping[int, Alert] = field(default_factory=dict)
    """By query key."""
    met: Mapping[int, int] = field(default_factory=dict)
    """Of open alerts: cycles in a row in which the floor could be met."""
    short: int = 0
    """Cycles in a row in which hosts were missing."""
    idle_since: float | None = None
    """Since when fewer hosts would do."""


def recall(memory: Memory, keys: Sequence[int], keep: Sequence[float]) -> Memory:
    """The memory with what is really kept of some queries: of a job that is new or goes on after a
    restart, and of one whose last decision came to nothing."""
    known = {key: row for row, key in enumerate(memory.query_key.tolist())}
    kept = memory.keep.copy()
    new: list[tuple[int, float]] = []
    for key, ratio in zip(keys, keep, strict=True):
        if key in known:
            kept[known[key]] = ratio
        else:
            new.append((key, ratio))
    count = len(new)
    return replace(
        memory,
        query_key=np.append(memory.query_key, np.array([key for key, _ in new], dtype=np.int64)),
        keep=np.append(kept, np.array([ratio for _, ratio in new], dtype=np.float64)),
        wanted=np.append(memory.wanted, np.ones(count)),
        lag_s=np.append(memory.lag_s, np.full(count, np.inf)),
        rising=np.append(memory.rising, np.zeros(count, dtype=np.int64)),
    )


def carry(old: Ints, new: Ints, column: NDArray[Number], default: float) -> NDArray[Number]:
    """A column of the last cycle for the rows of this one; `default` for new rows."""
    if np.array_equal(old, new):
        return column
    out = np.full(len(new), default, dtype=column.dtype)
    if len(old) and len(new):
        order = np.argsort(old, kind="stable")
        at = np.minimum(np.searchsorted(old[order], new), len(old) - 1)
        same = old[order][at] == new
        out[same] = column[order][at][same]
    return out
