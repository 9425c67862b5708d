"""The manager of jobs as a Ray actor: detached, named, restarted by Ray, back from its journal.

It stays on the head of the cluster, where its journal is, and uses no processor that Ray counts.
Calls are never repeated by Ray: a client that is not sure asks again with the same id, which the
manager answers as the first time. A manager that cannot go on ends its process, and Ray starts the
next one.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray

from plait import __version__
from plait.coordinator.journal.store import FileJournal
from plait.coordinator.messages.spec import Policy
from plait.coordinator.shell.manager import JobManager
from plait.coordinator.shell.ray_gateway import RayGateway
from plait.errors import JobError
from plait.model.durations import to_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.coordinator.messages.requests import Reply, Request
    from plait.coordinator.messages.views import JobQuality, JobView
    from plait.coordinator.shell.manager import ManagerStats

MANAGER = "plait-manager"
HEAD = "node:__internal_head__"
"""A resource that only the head of a Ray cluster has."""
HANG_S = 60.0
"""A manager whose thread has not turned for so long is ended by the next one who looks."""
HEALTH = "RAY_health_check_"
"""How Ray's settings of its own health checks begin."""


def silence_here(environment: Mapping[str, str]) -> float:
    """How long a node may be silent on this cluster: PLAIT_SILENCE, or what Ray itself waits for a
    node that is cut off, but no more than the default."""
    if given := environment.get("PLAIT_SILENCE"):
        try:
            return to_seconds(given)
        except JobError as error:
            raise JobError(f"PLAIT_SILENCE is {given!r}: {error}") from None
    names = ("period_ms", "timeout_ms", "failure_threshold")
    try:
        period_ms, timeout_ms, misses = (float(environment[HEALTH + name]) for name in names)
    except (KeyError, ValueError):
        return Policy().silence_s
    return min((period_ms + timeout_ms) * misses / 1000.0, Policy().silence_s)


def end_process(reason: str) -> None:
    """Ends this process at once; Ray starts another one, which reads the journal."""
    print(f"plait: the coordinator ends and is started anew: {reason}", file=sys.stderr, flush=True)
    os._exit(1)


class RayManager:
    """Hosts the JobManager."""

    def __init__(self, namespace: str, journal_dir: str | None, silence_s: float | None) -> None:
        folder = Path(journal_dir) if journal_dir else session_folder() / f"plait-{namespace}"
        self.gateway = RayGateway(namespace, folder)
        policy = Policy(silence_s=silence_here(os.environ) if silence_s is None else silence_s)
        journal = FileJournal(folder / "journal")
        self.manager = JobManager(journal, self.gateway, policy=policy, fail=end_process)

    @ray.method(concurrency_group="ask")
    def request(self, request_id: str, request: Request, timeout_s: float) -> Reply:
        return self.manager.request(request, timeout_s, request_id)

    @ray.method(concurrency_group="ask")
    def store_payload(self, key: str, held: list[Any]) -> None:
        """Keeps the payload of a job that will be submitted; `held` has the reference to it."""
        self.gateway.store_payload(key, held[0])

    @ray.method(concurrency_group="look")
    def view(self, job: str) -> JobView | None:
        self.end_if_hanging()
        return self.manager.view(job)

    @ray.method(concurrency_group="look")
    def views(self) -> tuple[JobView, ...]:
        self.end_if_hanging()
        return self.manager.views()

    @ray.method(concurrency_group="look")
    def quality(self, job: str) -> JobQuality:
        return self.manager.quality(job)

    def end_if_hanging(self) -> None:
        silent_s = self.manager.clock() - self.manager.turned_at
        if silent_s > HANG_S:
            end_process(f"its thread has not turned for {silent_s:.0f} s")

    @ray.method(concurrency_group="ask")
    def kept(self, job: str, rank: int, kind: str) -> bytes | None:
        return self.gateway.kept(job, rank, kind)

    @ray.method(concurrency_group="look")
    def stats(self) -> ManagerStats:
        return self.manager.stats

    @ray.method(concurrency_group="look")
    def pid(self) -> int:
        """The id of the manager's process, on the head of the cluster."""
        return os.getpid()

    @ray.method(concurrency_group="look")
    def version(self) -> str:
        return __version__


ACTOR: Any = ray.remote(concurrency_groups={"ask": 16, "look": 4})(RayManager)  # type: ignore[call-overload]


def make_manager(
    namespace: str, journal_dir: str | None = None, silence_s: float | None = None
) -> Any:
    """The manager of this namespace; made if there is none.

    `silence_s`: a node of which nothing is heard for so long counts as lost, if its job says
    nothing else; None: as the environment of the head says. A process that ends is noticed at once
    in any case; this is for hosts that are cut off.
    """
    head = {HEAD: 0.001} if HEAD in ray.cluster_resources() else {}
    return ACTOR.options(
        name=MANAGER,
        namespace=namespace,
        lifetime="detached",
        get_if_exists=True,
        num_cpus=0,
        resources=head,
        max_restarts=-1,
        max_task_retries=0,
    ).remote(namespace, journal_dir, silence_s)


def session_folder() -> Path:
    """Ray's folder for this run of the cluster: it is there again for a restarted manager."""
    node = ray._private.worker.global_worker.node
    if node is not None:
        return Path(node.get_session_dir_path())
    return Path(tempfile.gettempdir()) / "plait"
