"""What a user sees of a job: plain data that prints as a small table.

A view is made from the coordinator's state and the nodes' last reports; rates come from the
difference of two reports. It knows how old its reports are and never asks a node for anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from plait.protocol.part_use import cores_by_query
from plait.text.part_table import parts_text
from plait.text.units import bytes_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.protocol.messages import Rank
    from plait.protocol.part_use import PartUse
    from plait.protocol.quality import Alert, QualityPoint, QualityStep, QueryQuality
    from plait.protocol.rates import SourceRate

JobPhase = Literal[
    "placing",
    "starting",
    "preparing",
    "beginning",
    "running",
    "rescaling",
    "stopping",
    "recovering",
    "ending",
    "ended",
    "failed",
    "cancelled",
]
OVER: frozenset[JobPhase] = frozenset(("ended", "failed", "cancelled"))

MigrationPhase = Literal["preparing", "running", "paused", "aborting", "done", "failed"]

NodePhase = Literal["starting", "joining", "member", "leaving", "left", "lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node of a job."""

    rank: Rank
    host: str
    pid: int = 0
    phase: NodePhase
    """Its place in the job; `reported` is what it says of itself."""
    reported: str = ""
    age_s: float = 0.0
    """Since its last report."""
    bins: int = 0
    epoch: int = 0
    delivered_epoch: int = 0
    read: int = 0
    delivered: int = 0
    read_per_s: float = 0.0
    delivered_per_s: float = 0.0
    state_bytes: int = 0
    moved_bins: int = 0
    moved_bytes: int = 0
    tasks: tuple[PartUse, ...] = ()
    """What each sub-pipeline uses on it."""
    cpu_cores: float = 0.0
    """Processor time a second of its process and its worker processes."""
    other_cpu_cores: float = 0.0
    """What of that is in no sub-pipeline."""
    other_cpu_s: float = 0.0
    cpu_ratio: float = 0.0
    """Use of its host, that is of the cores it may use there, by all processes."""
    host_cores: int = 0
    process_cpu_s: float = 0.0
    rss_bytes: int = 0
    workers: int = 0
    """Threads that run its stages now; fewer than it has if they are elastic."""
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0
    links_down: tuple[Rank, ...] = ()
    refused_links: int = 0
    """Connections to its data port from outside the job."""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationView:
    """The latest rescale of a job: running, or how it ended."""

    number: int
    """Counts the job's rescales, from 1: a client that waits for its own knows it by this."""
    strategy: str
    phase: MigrationPhase
    reason: str = ""
    """Why it failed or was given up."""
    bins: int = 0
    bins_moved: int = 0
    size_bytes: int = 0
    moved_bytes: int = 0
    steps: int = 0
    steps_done: int = 0
    began_at: float = 0.0
    ended_at: float | None = None
    throttle_bytes_per_s: float | None = None

    @property
    def ratio(self) -> float:
        return 1.0 if self.phase == "done" else self.bins_moved / self.bins if self.bins else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryView:
    """The last time that a job went back to a checkpoint."""

    attempt: int
    reason: str
    number: int
    """The checkpoint; 0: the start."""
    began_at: float
    ended_at: float | None
    steps: tuple[tuple[str, float], ...]
    """What was done, and how many seconds each took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointView:
    """The checkpoints of a job."""

    url: str
    every_s: float
    number: int = 0
    """The newest one; 0: none yet."""
    epoch: int = 0
    age_s: float | None = None
    size_bytes: int = 0
    """That were written for it."""
    seconds: float = 0.0
    """From its mark until all before it was visible."""
    saving: str = ""
    """Of the one in flight: what is done."""
    savepoints: tuple[str, ...] = ()
    failed: tuple[tuple[int, str, str], ...] = ()
    """The last ones that were given up: number, name, reason."""
    attempt: int = 0
    restarts: int = 0
    recovery: RecoveryView | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastWork:
    """What nodes did that left a job long ago."""

    read: int = 0
    delivered: int = 0
    moved_bins: int = 0
    moved_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuality:
    """What was decided about the queries of a job under overload, and what they got."""

    steps: tuple[QualityStep, ...] = ()
    """The last 1,000."""
    points: tuple[QualityPoint, ...] = ()
    """The last 600 of each query, since the coordinator began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job as its user sees it."""

    name: str
    phase: JobPhase
    nodes: tuple[NodeView, ...]
    """All nodes that are part of the job, and the last ones that left or were lost."""
    home: Rank
    """The node with the sinks, of a job in total order."""
    order: str
    bins: int
    departed: tuple[tuple[Rank, Rank], ...] = ()
    """Nodes that left before those in `nodes`; their outcome may be asked for, too. The first and
    the last rank of each stretch."""
    past: PastWork = field(default_factory=PastWork)
    """What nodes did that are not in `nodes` any more."""
    layout_epoch: int = 0
    """The epoch of the newest layout agreed on."""
    sources: Mapping[str, SourceRate] = field(default_factory=dict)
    """How fast records come in at each source, and how far behind the job is, by its label."""
    parts: tuple[PartUse, ...] = ()
    """What each sub-pipeline uses on all nodes together, in pipeline order."""
    queries: tuple[QueryQuality, ...] = ()
    """Of a job with a floor: what each query asks for under overload, and what it gets."""
    alerts: tuple[Alert, ...] = ()
    """The floors that cannot be met now."""
    migration: MigrationView | None = None
    checkpoint: CheckpointView | None = None
    error: str = ""
    submitted_at: float = 0.0
    began_at: float | None = None
    ended_at: float | None = None
    now: float = 0.0
    warning: str = ""
    """What keeps the coordinator from looking after its jobs, if anything does."""
    stale_s: float = 0.0
    """How long the coordinator has not looked after its jobs, if that is longer than usual."""

    @property
    def over(self) -> bool:
        return self.phase in OVER

    @property
    def cpu_by_query(self) -> Mapping[str, float]:
        """Cores that each query uses; what several need is shared out equally."""
        return cores_by_query(self.parts)

    def cpu_lines(self) -> list[str]:
        """The sub-pipelines as a table, and the queries in a line; nothing until they are known."""
        if not self.parts:
            return []
        other = sum(node.other_cpu_cores for node in self.nodes)
        other_s = sum(node.other_cpu_s for node in self.nodes)
        queries = ", ".join(f"{name} {cores:.2f}" for name, cores in self.cpu_by_query.items())
        return [*parts_text(self.parts, other, other_s).split("\n"), f"cores by query: {queries}"]

    @property
    def delivered(self) -> int:
        """Records delivered so far, by all nodes."""
        return self.past.delivered + sum(node.delivered for node in self.nodes)

    @property
    def members(self) -> tuple[NodeView, ...]:
        return tuple(node for node in self.nodes if node.phase in ("member", "leaving"))

    def __str__(self) -> str:
        until = self.ended_at if self.ended_at is not None else self.now
        head = f"{self.name}  {self.phase}"
        if self.began_at is not None:
            head += f" for {max(until - self.began_at, 0.0):.1f} s"
        head += f"  {len(self.members)} nodes, {self.bins} bins"
        lines = [head]
        if self.error:
            lines.append(f"  error: {self.error}")
        if self.warning:
            lines.append(f"  warning: {self.warning}")
        if self.migration is not None:
            lines.append("  " + migration_line(self.migration))
        if self.checkpoint is not None:
            lines += [f"  {line}" for line in checkpoint_lines(self.checkpoint)]
        lines += [f"  alert: {one.query}: {one.because}" for one in self.alerts]
        lines += [f"  query {one}" for one in self.queries]
        lines += [f"  {line}" for line in source_lines(self.sources)]
        lines += table(TITLES, [row(node) for node in self.nodes])
        lines += [f"  {line}" for line in self.cpu_lines()]
        return "\n".join(lines)


SHOWN_PARTITIONS = 8

TITLES = (
    "node",
    "host",
    "phase",
    "bins",
    "epoch",
    "read/s",
    "out/s",
    "p99 ms",
    "workers",
    "cores",
    "host cpu",
    "memory",
)


def migration_line(migration: MigrationView) -> str:
    line = (
        f"{migration.strategy}: {migration.phase}, {migration.bins_moved} of {migration.bins} bins,"
        f" {bytes_text(migration.moved_bytes)} of {bytes_text(migration.size_bytes)},"
        f" step {migration.steps_done} of {migration.steps}"
    )
    return f"{line} ({migration.reason})" if migration.reason else line


def checkpoint_lines(known: CheckpointView) -> list[str]:
    line = f"checkpoints in {known.url} every {known.every_s:g} s: "
    if known.number == 0 or known.age_s is None:
        line += "none yet"
    else:
        line += (
            f"{known.number} is {known.age_s:.1f} s old, {bytes_text(known.size_bytes)} written"
            f" in {known.seconds:.2f} s"
        )
    if known.saving:
        line += f" ({known.saving})"
    lines = [line]
    if known.failed:
        number, _, reason = known.failed[-1]
        lines.append(f"checkpoint {number} was given up: {reason}")
    if (back := known.recovery) is not None:
        where = f"checkpoint {back.number}" if back.number else "the start"
        took = "" if back.ended_at is None else f" in {back.ended_at - back.began_at:.2f} s"
        steps = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in back.steps)
        lines.append(f"attempt {back.attempt} went back to {where}{took} ({steps}): {back.reason}")
    return lines


def source_lines(sources: Mapping[str, SourceRate]) -> list[str]:
    """A line for each source, and for its partitions if it has several."""
    lines = []
    for label, rate in sources.items():
        lines.append(f"source {label}: {rate}")
        several = rate.partitions if len(rate.partitions) > 1 else ()
        lines += [f"  {name}: {each}" for name, each in several[:SHOWN_PARTITIONS]]
        if len(several) > SHOWN_PARTITIONS:
            lines.append(f"  and {len(several) - SHOWN_PARTITIONS} more")
    return lines


def row(node: NodeView) -> tuple[str, ...]:
    links = f" (no link to {', '.join(map(str, node.links_down))})" if node.links_down else ""
    if node.refused_links:
        links += f" ({node.refused_links:,} strangers refused)"
    return (
        f"node-{node.rank}",
        node.host,
        node.phase + links,
        str(node.bins),
        str(node.epoch),
        f"{node.read_per_s:,.0f}",
        f"{node.delivered_per_s:,.0f}",
        f"{node.p99_ms:.2f}",
        str(node.workers),
        f"{node.cpu_cores:.2f}",
        f"{100 * node.cpu_ratio:.0f} %",
        bytes_text(node.rss_bytes),
    )


def table(titles: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Aligned columns: the first three to the left, numbers to the right."""
    widths = [max(len(line[i]) for line in [titles, *rows]) for i in range(len(titles))]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if i < 3 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in [titles, *rows]
    ]
