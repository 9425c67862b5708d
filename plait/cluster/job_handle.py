"""A job on a cluster, as its user holds it: look at it, change it, wait for it, take its result.

A handle keeps nothing but the job's name and a link to the cluster, so any process can make one
(`plait.attach`). Every method asks the cluster; a refused request is a `JobError` with the reason.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from plait.cluster.migration_handle import MigrationHandle, bytes_per_s, gap_epochs
from plait.coordinator.messages.request_checks import objection_to
from plait.coordinator.messages.requests import (
    Accepted,
    Cancel,
    Drain,
    Forget,
    Rejected,
    Rescale,
    Save,
    Shed,
    Stop,
    Take,
)
from plait.errors import ClusterError, Interrupted, JobError, TimedOut
from plait.model.durations import Duration, to_seconds
from plait.results.outcomes import check_conserved, first_error, merge_outcomes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from plait.coordinator.messages.requests import Reply, Request, Strategy
    from plait.coordinator.messages.views import JobQuality, JobView, NodeView
    from plait.protocol.messages import Finish, Rank
    from plait.protocol.quality import QualityPoint, QualityStep
    from plait.results.outcomes import NodeOutcome
    from plait.results.result import Result

LOOK_S = 0.1
"""The pause between two views of a job that is waited for."""
STALE = "there is no job of this name any more; it was forgotten"
STALE_S = 30.0
"""A coordinator that has not looked after its jobs for so long is not waited for."""
WORKED = ("running", "left", "ended")
"""What a node says of itself that has begun."""
BEFORE_RUNNING = ("placing", "starting", "preparing", "beginning")


class Link(Protocol):
    """The way to the manager of jobs and to the nodes."""

    def request(self, request: Request, timeout_s: float = ...) -> Reply: ...

    def view(self, job: str) -> JobView | None: ...

    def views(self) -> tuple[JobView, ...]: ...

    def quality(self, job: str) -> JobQuality: ...

    def outcome(self, job: str, rank: int) -> NodeOutcome | None: ...

    def explain(self, job: str, rank: int) -> str: ...

    def logs(self, job: str, rank: int, lines: int) -> list[str]: ...


class JobHandle:
    """A job on a cluster, made by `plait.submit` and `plait.attach`: look at it, change its nodes,
    wait for it, take its result. Any number of processes may hold one. Errors of the job itself
    come from `result`; a cluster that does not answer is a `ClusterError`.

    >>> handle = plait.submit(job, nodes=2)          # doctest: +SKIP
    >>> handle.rescale(nodes=4).wait(progress=True)  # doctest: +SKIP
    >>> result = handle.result()                     # doctest: +SKIP
    """

    def __init__(self, link: Link, name: str) -> None:
        self._link = link
        self.name = name

    def __repr__(self) -> str:
        return f'<plait job "{self.name}">'

    @property
    def outlives_process(self) -> bool:
        """Whether the job goes on when this process ends. It does not on a Ray that `submit` had
        to start here."""
        return bool(getattr(self._link, "lasts", True))

    def status(self) -> JobView:
        """The job as it is now: its phase, its nodes, a migration under way. Prints as a table."""
        view = self._link.view(self.name)
        if view is None:
            raise JobError(f'"{self.name}": {STALE}')
        return view

    def metrics(self) -> Mapping[str, float]:
        """Figures of the whole job by name, for scripts and monitoring: "read_per_s",
        "delivered", "state_bytes", "p99_ms", ..."""
        return metrics_of(self.status())

    def wait(self, timeout: float | Duration | None = None) -> JobView:
        """Waits until the job has ended and returns its last status.

        `timeout` is a duration such as "30s", or seconds. When it passes, TimedOut is raised and
        the job goes on."""
        end = deadline(timeout)
        while not (view := self._looked_after()).over:
            if end is not None and time.monotonic() >= end:
                raise TimedOut(f'the job "{self.name}" is still {view.phase}')
            time.sleep(LOOK_S)
        return view

    def _looked_after(self) -> JobView:
        """The status; ClusterError if the coordinator has not worked for long: it would not
        notice the end of the job either."""
        view = self.status()
        if view.stale_s > STALE_S:
            raise ClusterError(f'the job "{self.name}" is {view.phase}, but {view.warning}')
        return view

    def _wait_until_running(self) -> JobView:
        """Until the job has started; it may be over by then."""
        while (view := self._looked_after()).phase in BEFORE_RUNNING:
            time.sleep(LOOK_S)
        if view.phase == "failed" and view.began_at is None:
            raise ClusterError(f'the job "{self.name}" did not start: {view.error}')
        return view

    def _end_for_another(self) -> None:
        """Ends the job, if there is one that runs, so that another may have its name."""
        view = next((one for one in self._link.views() if one.name == self.name), None)
        if view is not None and not view.over:
            with suppress(JobError):  # it ended meanwhile
                self.cancel()
            while (view := self._link.view(self.name)) is not None and not view.over:
                time.sleep(LOOK_S)

    def result(self, timeout: float | Duration | None = None) -> Result:
        """Waits until the job has ended and returns what `plait.run` would: the outputs of the
        sinks, counts, dead letters. Raises what ended the job if it failed. After that the name
        of the job may be used again."""
        view = self.wait(timeout)
        parts = self.outcomes(view)
        quality = self._link.quality(self.name) if view.queries else None
        with suppress(JobError, ClusterError):  # the result is here, whoever was faster
            self._ask(Take(job=self.name))
        error = first_error(parts)
        if error is not None:
            raise error
        if view.phase == "failed":
            raise ClusterError(f'the job "{self.name}" failed: {view.error}')
        if view.phase == "cancelled" and not parts:
            raise Interrupted("cancelled before it began")
        result = merge_outcomes(self.name, parts)
        if quality is not None:
            result = replace(
                result,
                queries=view.queries,
                decisions=quality.steps,
                accuracy=quality.points,
            )
        if view.phase == "cancelled":
            raise Interrupted(f"cancelled: {result.account}", result)
        missing = (present_ranks(view) | lost_ranks(view, result)) - {part.rank for part in parts}
        if not missing:
            check_conserved(result, parts)
            return result
        # The sinks of a job in total order are on one node: what others had done was delivered.
        needed = missing if view.order == "key" else missing & {n.rank for n in view.members}
        if needed:
            raise ClusterError(f'the result of the job "{self.name}" is gone with {named(needed)}')
        return replace(result, without=tuple(named([rank]) for rank in sorted(missing)))

    def outcomes(self, view: JobView | None = None) -> tuple[NodeOutcome, ...]:
        """Each node's part of the result, without nodes that left none. `view`: a status that was
        taken already."""
        view = view or self.status()
        ranks = sorted(present_ranks(view))
        found = [self._link.outcome(self.name, rank) for rank in ranks]
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
        """Changes the number of nodes, or spreads the load again, while records flow.

        Args:
            nodes: target number of nodes; None: unchanged.
            strategy: "fluid" (a bin at a time), "batched" (each node sends and receives one at a
                time), "all_at_once", "optimised" (copied ahead, then only what changed).
            gap: pause between two steps: a number of epochs, or a time such as "50ms".
            throttle: limit in bytes per second: a number, or "100MB".
            balance: use the measured load of the bins as well as their number.
            dry_run: only make the plan: print the handle, and `start()` it.

        Returns a handle on the migration; `wait()` on it. JobError if it is refused.
        """
        request = Rescale(
            job=self.name,
            nodes=nodes,
            strategy=strategy,
            gap_epochs=gap_epochs(gap, self._epochs_per_s),
            throttle_bytes_per_s=bytes_per_s(throttle),
            balance=balance,
            dry_run=dry_run,
        )
        return self._migrate(request)

    def drain(
        self,
        node: str | int,
        *,
        strategy: Strategy = "fluid",
        gap: int | Duration = 0,
        throttle: float | str | None = None,
        dry_run: bool = False,
    ) -> MigrationHandle:
        """Moves everything off a node ("node-2", or 2), which then leaves the job. The other
        parameters are those of `rescale`."""
        request = Drain(
            job=self.name,
            rank=rank_of(node),
            strategy=strategy,
            gap_epochs=gap_epochs(gap, self._epochs_per_s),
            throttle_bytes_per_s=bytes_per_s(throttle),
            dry_run=dry_run,
        )
        return self._migrate(request)

    def _migrate(self, request: Rescale | Drain) -> MigrationHandle:
        """Asks for a change of nodes, as soon as the job runs; with dry_run the handle is only a
        plan."""
        self._check(request)
        before = self._wait_until_running().migration
        reply = self._ask(request)
        number = 0 if before is None else before.number
        return MigrationHandle(self, request, reply.plan, None if request.dry_run else number)

    def shed(self, query: str, ratio: float | None) -> None:
        """Keeps at most this share of a query's input from an epoch on that the nodes agree on,
        until it is called again; None: all of it. The query is named by its sink, which has a floor
        (`min_accuracy`). Other queries are kept as they were."""
        self._ask(Shed(job=self.name, query=query, ratio=ratio))

    def why(self, query: str | None = None) -> tuple[QualityStep, ...]:
        """What was decided under overload and why, the last 1,000 times; of one query or of all.
        Print them one by one. `status().queries` is what each query gets now."""
        view = self.status()
        known = [one.query for one in view.queries]
        if query is not None and query not in known:
            names = ", ".join(map(repr, known)) or "none, because no sink has a floor"
            raise JobError(f'{self.name} has no query "{query}"; its queries are: {names}')
        steps = self._link.quality(self.name).steps
        return tuple(step for step in steps if query in (None, step.reason.query))

    def accuracy(self) -> tuple[QualityPoint, ...]:
        """What every query with a floor got over time, a point a second; the last ten minutes."""
        return self._link.quality(self.name).points

    def stop(self, *, finish: Finish | None = None) -> None:
        """Ends all sources at the same epoch. What was read is delivered, and `result` returns
        it. Windows that are not complete are left out and counted (`Result.unfinished`); with
        finish="flush" they are given as they are. A job with checkpoints makes a last one: the next
        job of its name goes on from there, with its windows open, unless they were flushed."""
        self._ask(Stop(job=self.name, finish=finish))

    def checkpoint(self, timeout: float | Duration | None = "60s") -> int:
        """Makes a checkpoint now, waits until it is complete, and returns its number. ClusterError
        if it was given up; the job runs on."""
        return self._save("", timeout)

    def savepoint(self, name: str, timeout: float | Duration | None = "60s") -> int:
        """A checkpoint with a name, which stays until it is deleted: for an upgrade, or to look at
        the state."""
        if not name:
            raise JobError("a savepoint needs a name")
        return self._save(name, timeout)

    def _save(self, name: str, timeout: float | Duration | None) -> int:
        end = deadline(timeout)
        self._wait_until_running()
        number = self._ask(Save(job=self.name, name=name)).number
        while True:
            view = self._looked_after()
            known = view.checkpoint
            if known is None:
                raise JobError(f'the job "{self.name}" has no checkpoints')
            if name in known.savepoints if name else known.number >= number:
                return known.number
            why = next((why for n, wish, why in known.failed if n >= number and wish == name), "")
            if why or view.over:
                why = why or f"the job is {view.phase}"
                raise ClusterError(f'no checkpoint of the job "{self.name}" was made: {why}')
            if end is not None and time.monotonic() >= end:
                raise TimedOut(f'the checkpoint of the job "{self.name}" is not complete yet')
            time.sleep(LOOK_S)

    def cancel(self) -> None:
        """Ends the job at once; records in flight are dropped, and `result` raises Interrupted."""
        self._ask(Cancel(job=self.name))

    def forget(self) -> None:
        """Discards the result of a job that is over and frees its name. Its processes have ended
        by themselves; one that should be gone and is not, as after a cut link, is ended too.
        JobError while the job runs."""
        self._ask(Forget(job=self.name))

    def explain(self) -> str:
        """How the job runs, as text: its stages, and the route of every function."""
        view = self.status()
        present = [node.rank for node in present_nodes(view)]
        ranks = [view.home, *present] if view.home in present else present
        return next((text for rank in ranks if (text := self._link.explain(self.name, rank))), "")

    def logs(self, node: str | int | None = None, *, lines: int = 100) -> str:
        """The last `lines` lines that the job's functions printed on each node, or on one node
        ("node-2", or 2)."""
        view = self.status()
        ranks = [one.rank for one in present_nodes(view)]
        if node is not None:
            known = present_ranks(view) | {one.rank for one in view.nodes}
            ranks = [rank_of(node)]
            if not known.issuperset(ranks):
                raise JobError(f"{self.name} has no {named(ranks)}; it has {named(known)}")
        found = [(rank, self._link.logs(self.name, rank, lines)) for rank in ranks]
        return "\n".join(f"node-{rank}  {line}" for rank, printed in found for line in printed)

    def _ask(self, request: Request) -> Accepted:
        """Sends a request; JobError with the reason if it is refused."""
        self._check(request)
        match self._link.request(request):
            case Accepted() as reply:
                return reply
            case Rejected(reason=reason):
                raise JobError(reason)

    def _check(self, request: Request) -> None:
        """JobError if the request has no meaning, before anybody is asked."""
        if wrong := objection_to(request):
            raise JobError(wrong)

    def _epochs_per_s(self) -> float:
        """The pace of the sources, measured between two views."""
        first = self.status()
        time.sleep(3 * LOOK_S)
        then = self.status()
        passed = then.now - first.now
        moved = max((n.epoch for n in then.nodes), default=0) - max(
            (n.epoch for n in first.nodes), default=0
        )
        return moved / passed if passed > 0 else 0.0


def present_nodes(view: JobView) -> list[NodeView]:
    """The nodes that took part and are not lost."""
    return [node for node in view.nodes if node.phase not in ("lost", "starting")]


def present_ranks(view: JobView) -> set[Rank]:
    """The same by rank, with those that left long ago."""
    departed = {rank for first, last in view.departed for rank in range(first, last + 1)}
    return departed | {node.rank for node in present_nodes(view)}


def lost_ranks(view: JobView, result: Result) -> set[Rank]:
    """Lost nodes that the result is not whole without, such as one that died as it left the job.
    One that was to join had done nothing yet, and what a checkpoint brought back is not missing."""
    lost = [node for node in view.nodes if node.phase == "lost"]
    if view.checkpoint is not None:
        return set()
    if result.account.difference:
        return {node.rank for node in lost if node.reported in WORKED}
    return {node.rank for node in lost if node.delivered}


def named(ranks: Iterable[Rank]) -> str:
    return ", ".join(f"node-{rank}" for rank in sorted(ranks))


def metrics_of(view: JobView) -> dict[str, float]:
    members = view.members or view.nodes
    return {
        "nodes": len(view.members),
        "epoch": max((node.epoch for node in members), default=0),
        "read": view.past.read + sum(node.read for node in view.nodes),
        "delivered": view.delivered,
        "read_per_s": sum(node.read_per_s for node in members),
        "delivered_per_s": sum(node.delivered_per_s for node in members),
        "injected_per_s": sum(rate.per_s for rate in view.sources.values()),
        "lag": sum(rate.lag or 0.0 for rate in view.sources.values()),
        "lag_s": max((rate.lag_s or 0.0 for rate in view.sources.values()), default=0.0),
        "state_bytes": sum(node.state_bytes for node in members),
        "moved_bins": view.past.moved_bins + sum(node.moved_bins for node in view.nodes),
        "moved_bytes": view.past.moved_bytes + sum(node.moved_bytes for node in view.nodes),
        "process_cpu_s": sum(node.process_cpu_s for node in members),
        "cpu_cores": sum(node.cpu_cores for node in members),
        "other_cpu_cores": sum(node.other_cpu_cores for node in members),
        "alerts": len(view.alerts),
        **{f"accuracy.{one.query}": one.measured for one in view.queries},
        **{f"keep.{one.query}": one.asked for one in view.queries},
        **{f"floor.{one.query}": one.floor for one in view.queries},
        **{f"freshness_s.{one.query}": one.freshness_s for one in view.queries},
        **{f"cpu_cores.{part.name}": part.cores for part in view.parts},
        "rss_bytes": sum(node.rss_bytes for node in members),
        "p50_ms": max((node.p50_ms for node in members), default=0.0),
        "p99_ms": max((node.p99_ms for node in members), default=0.0),
        "max_ms": max((node.max_ms for node in members), default=0.0),
    }


def rank_of(node: str | int) -> int:
    """The rank of "node-2" or 2."""
    text = str(node).removeprefix("node-")
    if isinstance(node, bool) or not text.isdecimal():
        raise JobError(f'no such node: {node!r} (expected "node-2" or 2)')
    return int(text)


def deadline(timeout: float | Duration | None) -> float | None:
    return None if timeout is None else time.monotonic() + to_seconds(timeout)
