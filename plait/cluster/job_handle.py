"""A job on a cluster, as its user holds it: look at it, change it, wait for it, take its result.

A handle keeps nothing but the job's name and a link to the cluster, so any process can make one
(`plait.attach`). Every method asks anew; a request that is refused is a `JobError` with the reason.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from plait.cluster.migration_handle import MigrationHandle, bytes_per_s, gap_epochs
from plait.coordinator.messages.requests import (
    Accepted,
    Cancel,
    Drain,
    Forget,
    Rejected,
    Rescale,
    Stop,
)
from plait.errors import ClusterError, Interrupted, JobError, TimedOut
from plait.model.durations import Duration, to_seconds
from plait.results.outcomes import check_conserved, first_error, merged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.coordinator.messages.requests import Reply, Request, Strategy
    from plait.coordinator.messages.views import JobView, NodeView
    from plait.results.outcomes import NodeOutcome
    from plait.results.result import Result

LOOK_S = 0.1
"""How often a job that is waited for is looked at."""
STALE = "there is no job of this name any more; it was forgotten"


class Link(Protocol):
    """The way to the manager of jobs and to the nodes."""

    def request(self, request: Request, timeout_s: float = ...) -> Reply: ...

    def view(self, job: str) -> JobView | None: ...

    def views(self) -> tuple[JobView, ...]: ...

    def outcome(self, job: str, rank: int) -> NodeOutcome | None: ...

    def explain(self, job: str, rank: int) -> str: ...

    def logs(self, job: str, rank: int, lines: int) -> list[str]: ...


class JobHandle:
    """A job that was submitted.

    >>> handle = plait.submit(job, nodes=2)          # doctest: +SKIP
    >>> handle.rescale(nodes=4).wait(progress=True)  # doctest: +SKIP
    >>> result = handle.result()                     # doctest: +SKIP
    """

    def __init__(self, link: Link, name: str) -> None:
        self.link = link
        self.name = name

    def __repr__(self) -> str:
        return f'<plait job "{self.name}">'

    def status(self) -> JobView:
        """The job as it is now; prints as a small table."""
        view = self.link.view(self.name)
        if view is None:
            raise JobError(f'"{self.name}": {STALE}')
        return view

    def metrics(self) -> Mapping[str, float]:
        """Figures of the whole job by name, for scripts and monitoring."""
        return metrics_of(self.status())

    def wait(self, timeout: float | Duration | None = None) -> JobView:
        """Waits until the job is over; TimedOut if it is not in time, and it goes on."""
        end = deadline(timeout)
        while not (view := self.status()).over:
            if end is not None and time.monotonic() >= end:
                raise TimedOut(f'the job "{self.name}" is still {view.phase}')
            time.sleep(LOOK_S)
        return view

    def result(self, timeout: float | Duration | None = None) -> Result:
        """Waits for the end of the job and gives what `plait.run` would: the outputs of the sinks,
        counts, dead letters; or raises what ended it."""
        view = self.wait(timeout)
        parts = self.outcomes(view)
        error = first_error(parts)
        if error is not None:
            raise error
        if view.phase == "failed":
            raise ClusterError(f'the job "{self.name}" failed: {view.error}')
        if view.phase == "cancelled" and not parts:
            raise Interrupted("cancelled before it began")
        result = merged(self.name, parts)
        if view.phase == "cancelled":
            raise Interrupted(f"cancelled: {result.account}", result)
        if missing := {node.rank for node in there(view)} - {part.rank for part in parts}:
            gone = ", ".join(f"node-{rank}" for rank in sorted(missing))
            raise ClusterError(f'the result of the job "{self.name}" is gone with {gone}')
        check_conserved(result, parts)
        return result

    def outcomes(self, view: JobView | None = None) -> tuple[NodeOutcome, ...]:
        """Each node's part of the result; nodes that are gone without one are left out."""
        nodes = there(view or self.status())
        found = [self.link.outcome(self.name, node.rank) for node in nodes]
        return tuple(part for part in found if part is not None)

    def rescale(
        self,
        nodes: int | None = None,
        *,
        strategy: Strategy = "fluid",
        gap: int | Duration = 0,
        throttle: float | str | None = None,
        balance: bool = True,
        dry_run: bool = False,
    ) -> MigrationHandle:
        """Runs on another number of nodes, or spreads the load anew, while records flow.

        Args:
            nodes: how many; None: as many as now.
            strategy: "fluid" (a bin at a time), "batched" (each node sends and receives one at a
                time), "all_at_once", "optimised" (copied ahead, then only what changed).
            gap: left in peace between two steps: epochs, or a time such as "50ms".
            throttle: at most so many bytes a second: a number, or "100MB".
            balance: by the measured load of the bins as well as by their number.
            dry_run: only make the plan; print it, and `start()` it.
        """
        request = Rescale(
            job=self.name,
            nodes=nodes,
            strategy=strategy,
            gap_epochs=gap_epochs(gap, self.epochs_per_s),
            throttle_bytes_per_s=bytes_per_s(throttle),
            balance=balance,
            dry_run=dry_run,
        )
        return self.moving(request)

    def drain(
        self,
        node: str | int,
        *,
        strategy: Strategy = "fluid",
        gap: int | Duration = 0,
        throttle: float | str | None = None,
        dry_run: bool = False,
    ) -> MigrationHandle:
        """Moves everything away from a node ("node-2", or 2) and lets it leave."""
        request = Drain(
            job=self.name,
            rank=rank_of(node),
            strategy=strategy,
            gap_epochs=gap_epochs(gap, self.epochs_per_s),
            throttle_bytes_per_s=bytes_per_s(throttle),
            dry_run=dry_run,
        )
        return self.moving(request)

    def moving(self, request: Rescale | Drain) -> MigrationHandle:
        before = self.status().migration
        reply = self.asked(request)
        number = 0 if before is None else before.number
        return MigrationHandle(self, request, reply.plan, None if request.dry_run else number)

    def stop(self) -> None:
        """Ends the sources at one epoch; what was read is delivered, and `result` gives it."""
        self.asked(Stop(job=self.name))

    def cancel(self) -> None:
        """Ends the job at once; what is in flight is dropped."""
        self.asked(Cancel(job=self.name))

    def forget(self) -> None:
        """The result of a job that is over is not wanted: its nodes end, its name is free."""
        self.asked(Forget(job=self.name))

    def explain(self) -> str:
        """How a node of the job runs it: the stages, and the route of every function."""
        view = self.status()
        present = [node.rank for node in there(view)]
        ranks = [view.home, *present] if view.home in present else present
        return next((text for rank in ranks if (text := self.link.explain(self.name, rank))), "")

    def logs(self, node: str | int | None = None, *, lines: int = 100) -> str:
        """The last lines that the job's functions printed, on one node or on all."""
        ranks = [one.rank for one in there(self.status())]
        if node is not None:
            ranks = [rank_of(node)]
        found = [(rank, self.link.logs(self.name, rank, lines)) for rank in ranks]
        return "\n".join(f"node-{rank}  {line}" for rank, told in found for line in told)

    def asked(self, request: Request) -> Accepted:
        match self.link.request(request):
            case Accepted() as reply:
                return reply
            case Rejected(reason=reason):
                raise JobError(reason)

    def epochs_per_s(self) -> float:
        """The pace of the sources, from two looks."""
        first = self.status()
        time.sleep(3 * LOOK_S)
        then = self.status()
        passed = then.now - first.now
        moved = max((n.epoch for n in then.nodes), default=0) - max(
            (n.epoch for n in first.nodes), default=0
        )
        return moved / passed if passed > 0 else 0.0


def there(view: JobView) -> list[NodeView]:
    """The nodes that took part and are not lost."""
    return [node for node in view.nodes if node.phase not in ("lost", "starting")]


def metrics_of(view: JobView) -> dict[str, float]:
    members = view.members or view.nodes
    return {
        "nodes": len(view.members),
        "epoch": max((node.epoch for node in members), default=0),
        "read": sum(node.read for node in view.nodes),
        "delivered": sum(node.delivered for node in view.nodes),
        "read_per_s": sum(node.read_per_s for node in members),
        "delivered_per_s": sum(node.delivered_per_s for node in members),
        "state_bytes": sum(node.state_bytes for node in members),
        "moved_bins": sum(node.moved_bins for node in view.nodes),
        "moved_bytes": sum(node.moved_bytes for node in view.nodes),
        "process_cpu_s": sum(node.process_cpu_s for node in members),
        "rss_bytes": sum(node.rss_bytes for node in members),
        "p50_ms": max((node.p50_ms for node in members), default=0.0),
        "p99_ms": max((node.p99_ms for node in members), default=0.0),
        "max_ms": max((node.max_ms for node in members), default=0.0),
    }


def rank_of(node: str | int) -> int:
    """The rank of "node-2" or 2."""
    text = str(node).removeprefix("node-")
    if isinstance(node, bool) or not text.isdecimal():
        raise JobError(f'{node!r} is no node; write "node-2" or 2')
    return int(text)


def deadline(timeout: float | Duration | None) -> float | None:
    return None if timeout is None else time.monotonic() + to_seconds(timeout)
