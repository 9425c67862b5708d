"""The coordinator's views as the rows of `plait top`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.cli.top_view import JobRow, MigrationRow, NodeRow, PartRow, SourceRow, View
from plait.cluster.job_handle import metrics_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.coordinator.messages.views import JobView, MigrationView, NodeView
    from plait.protocol.part_use import PartUse
    from plait.protocol.rates import SourceRate

HISTORY = 120
"""How many rates of a job are remembered."""


def rows_of(views: Sequence[JobView], history: dict[str, list[float]]) -> View:
    """What one screen shows. The present rates are added to the history."""
    rows: list[JobRow] = []
    for view in views:
        figures = metrics_of(view)
        rates = history.setdefault(view.name, [])
        rates.append(figures["read_per_s"])
        del rates[:-HISTORY]
        rows.append(
            JobRow(
                name=view.name,
                state=view.phase,
                nodes=tuple(node_row(node) for node in view.nodes if node.phase != "left"),
                epoch=int(figures["epoch"]),
                in_per_s=figures["read_per_s"],
                out_per_s=figures["delivered_per_s"],
                delivered=int(figures["delivered"]),
                p50_ms=figures["p50_ms"],
                p99_ms=figures["p99_ms"],
                max_ms=figures["max_ms"],
                state_bytes=int(figures["state_bytes"]),
                bins=view.bins,
                rates=tuple(rates),
                sources=tuple(source_row(*one) for one in view.sources.items()),
                parts=tuple(part_row(part) for part in view.parts),
                cpu_cores=figures["cpu_cores"],
                migration=migration_row(view.migration, view.now),
                error=view.error,
            )
        )
    return View(jobs=tuple(rows))


def node_row(node: NodeView) -> NodeRow:
    return NodeRow(
        name=f"node-{node.rank}",
        host=node.host,
        state=node.phase,
        bins=node.bins,
        epoch=node.epoch,
        in_per_s=node.read_per_s,
        out_per_s=node.delivered_per_s,
        p99_ms=node.p99_ms,
        cpu_cores=node.cpu_cores,
        cpu_ratio=node.cpu_ratio,
        rss_bytes=node.rss_bytes,
        links_down=tuple(f"node-{rank}" for rank in node.links_down),
    )


def part_row(part: PartUse) -> PartRow:
    return PartRow(
        name=part.name,
        queries=part.queries,
        cpu_cores=part.cores,
        ns_per_record=part.ns_per_record,
        taken=part.taken,
        waiting=part.waiting,
        blocked_s=part.blocked_s,
    )


def source_row(label: str, rate: SourceRate) -> SourceRow:
    lags = [(name, each.lag or 0.0) for name, each in rate.partitions]
    return SourceRow(
        name=label,
        per_s=rate.per_s,
        lag=rate.lag,
        lag_s=rate.lag_s,
        trusted=rate.trust >= 0.5,
        worst=max(lags, key=lambda one: one[1]) if len(lags) > 1 else None,
    )


def migration_row(view: MigrationView | None, now: float) -> MigrationRow | None:
    """The running one only; how long it will take is estimated from its pace so far."""
    if view is None or view.phase in ("done", "failed"):
        return None
    passed = now - view.began_at
    left = view.bins - view.bins_moved
    return MigrationRow(
        strategy=view.strategy,
        phase=view.phase,
        bins=view.bins,
        bins_moved=view.bins_moved,
        size_bytes=view.size_bytes,
        moved_bytes=view.moved_bytes,
        eta_s=passed * left / view.bins_moved if view.bins_moved else None,
    )
