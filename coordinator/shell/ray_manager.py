"""The manager of jobs as a Ray actor: detached, named, restarted by Ray, back from its journal.

It stays on the head of the cluster, where its journal is, and uses no processor that Ray counts.
Calls are never repeated by Ray: a client that is not sure asks again with the same id, which the
manager answers as the first time.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray

from plait import __version__
from plait.coordinator.journal.store import FileJournal
from plait.coordinator.messages.requests import Accepted, Forget
from plait.coordinator.messages.spec import Policy
from plait.coordinator.shell.manager import JobManager
from plait.coordinator.shell.ray_gateway import RayGateway

if TYPE_CHECKING:
    from plait.coordinator.messages.requests import Reply, Request
    from plait.coordinator.messages.views import JobView
    from plait.coordinator.shell.manager import ManagerStats

MANAGER = "plait-manager"
LOST_AFTER_S = Policy().silent_s
HEAD = "node:__internal_head__"
"""A resource that only the head of a Ray cluster has."""


class RayManager:
    """Hosts the JobManager."""

    def __init__(self, namespace: str, journal_dir: str | None, lost_after_s: float) -> None:
        folder = Path(journal_dir) if journal_dir else session_folder() / f"plait-{namespace}"
        self.gateway = RayGateway(namespace, folder / "outcomes")
        policy = Policy(silent_s=lost_after_s)
        self.manager = JobManager(FileJournal(folder / "journal"), self.gateway, policy=policy)

    @ray.method(concurrency_group="ask")
    def request(self, request_id: str, request: Request, timeout_s: float) -> Reply:
        if isinstance(request, Forget):
            self.gateway.forget(request.job)
        reply = self.manager.request(request, timeout_s, request_id)
        if isinstance(request, Forget) and not isinstance(reply, Accepted):
            self.gateway.unwanted.discard(request.job)
        return reply

    @ray.method(concurrency_group="look")
    def view(self, job: str) -> JobView | None:
        return self.manager.view(job)

    @ray.method(concurrency_group="look")
    def views(self) -> tuple[JobView, ...]:
        return self.manager.views()

    @ray.method(concurrency_group="ask")
    def kept_outcome(self, job: str, rank: int) -> bytes | None:
        return self.gateway.kept_outcome(job, rank)

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
    namespace: str, journal_dir: str | None = None, lost_after_s: float = LOST_AFTER_S
) -> Any:
    """The manager of this namespace; made if there is none.

    `lost_after_s`: a node that is silent for so long counts as lost. One whose process ends is
    noticed at once in any case; this is for hosts that are cut off.
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
    ).remote(namespace, journal_dir, lost_after_s)


def session_folder() -> Path:
    """Ray's folder for this run of the cluster: it is there again for a restarted manager."""
    node = ray._private.worker.global_worker.node
    if node is not None:
        return Path(node.get_session_dir_path())
    return Path(tempfile.gettempdir()) / "plait"
