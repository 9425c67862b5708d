"""Finds or starts a Ray cluster, and speaks to the manager of jobs on it.

Ray carries requests and views only. A manager that is being restarted is waited for: a request is
sent again with the id it had, so it is never carried out twice. The rule: a failure of the cluster
is a `ClusterError` that says what to do, never an exception of Ray.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from plait import __version__
from plait.errors import ClusterError, JobError

if TYPE_CHECKING:
    from plait.coordinator.messages.requests import Reply, Request
    from plait.coordinator.messages.views import JobQuality, JobView
    from plait.results.outcomes import NodeOutcome

PATIENCE_S = 60.0
"""How long a manager that does not answer is waited for: Ray restarts it within seconds, on a
machine that is not overloaded."""
CALL_S = 60.0
STORE_S = 600.0
"""How long the manager may take to store a payload, which may be large."""
REACH_S = 5.0
"""How long a cluster may take to answer a first knock."""
NODE_S = 600.0
"""How long a node may take to hand over its part of a result, which may be large."""
AGAIN_S = 0.1
CLIENT_SERVER = "Starting Ray client server failed"
"""The head starts a process for each client of ray://, by a fork that now and then goes wrong: the
next client has a process of its own."""
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""How a client of HTTP/2, which Ray's servers speak, begins: the preface and empty settings."""
FRAME_HEAD_BYTES, SETTINGS_FRAME = 9, 4
NO_ADDRESS = "{!r} is not the address of a cluster: give auto, host:port or ray://host:port"
NOT_RUNNING = "no Ray is running on this machine; start one, or give the address of a cluster"
NOT_MEANT = (
    "RAY_AUTH_TOKEN_PATH names the token of a cluster, but none was named and none runs on this "
    "machine. Submit on a machine of the cluster (ray exec cluster.yaml 'plait submit ...'), or "
    'give its address: ray://host:port. To run on a Ray of this machine alone: address="local"'
)
NOT_A_NODE = (
    "the cluster at {} answers, but this machine is not one of its machines: submit on one of "
    "them, or by the cluster's server for clients: ray://host:10001"
)
FOREIGN = (
    "{} belongs to another user of this machine, who may want your token: remove it, and have "
    "Ray's files in a folder of your own (RAY_TMPDIR)"
)
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Attached:
    """What this process did to have a cluster."""

    started = False
    """It started one, which ends with the process."""
    by: str | None = None
    """The address by which it was attached last."""


def connect(
    address: str | None = None, namespace: str = "plait", *, start: bool = False, nodes: int = 1
) -> RayLink:
    """A link to the cluster: the one that is attached, the one named, the one running on this
    machine, or with `start` a new one here. Not a new one for several nodes if there is a token for
    a cluster: that one is meant."""
    join(address, start, nodes)
    return RayLink(namespace)


def join(address: str | None, start: bool, nodes: int = 1) -> None:
    if address == "":
        raise ClusterError(NO_ADDRESS.format(address))
    import_ray(address)
    import ray

    if ray.is_initialized():
        attached = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", "local", attached, Attached.by):
            raise JobError(
                f"this process is attached to the cluster at {attached}, not to {address}; "
                "call ray.shutdown() first"
            )
        return
    wanted = address or os.environ.get("RAY_ADDRESS") or running_here()
    if wanted is None or wanted == "local":
        if not start:
            raise ClusterError(NOT_RUNNING)
        if wanted is None and nodes > 1 and os.environ.get("RAY_AUTH_TOKEN_PATH"):
            raise ClusterError(NOT_MEANT)
        start_here()
        return
    knock(wanted)
    if not wanted.startswith("ray://") and wanted != "auto" and not has_raylet():
        raise ClusterError(NOT_A_NODE.format(wanted))
    host = wanted.rpartition(":")[0]
    # On loopback Ray would take this machine for another one than the cluster's.
    here: Any = (
        {"_node_ip_address": host} if host.startswith("127.") and host not in LOOPBACK else {}
    )
    for again in (True, False):
        try:
            ray.init(address=wanted, log_to_driver=False, logging_level=logging.WARNING, **here)
            break
        except Exception as error:
            if not again or CLIENT_SERVER not in str(error):
                raise ClusterError(no_cluster(wanted, error)) from error
    Attached.started, Attached.by = False, wanted


def knock(address: str) -> None:
    """Raises ClusterError if nobody listens there: Ray would try for minutes."""
    if address == "auto":
        file = current_cluster_file()
        if file.exists() and not is_trusted(file.stat().st_uid):
            raise ClusterError(FOREIGN.format(file))
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ClusterError(NO_ADDRESS.format(address))
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_S) as line:
            if os.environ.get("RAY_USE_TLS", "0") == "0" and not greets(line):
                raise ClusterError(f"what listens at {address} is not Ray")
    except OSError as error:
        raise ClusterError(f"no cluster answers at {address}: {error}") from error


def greets(line: socket.socket) -> bool:
    """Whether the other side answers as a server of Ray does: with settings of HTTP/2."""
    end = time.monotonic() + REACH_S
    line.sendall(HELLO)
    head = b""
    while len(head) < FRAME_HEAD_BYTES and (more := line.recv(FRAME_HEAD_BYTES - len(head))):
        head += more
        line.settimeout(max(end - time.monotonic(), 0.001))
    return len(head) == FRAME_HEAD_BYTES and head[3] == SETTINGS_FRAME


def import_ray(address: str | None) -> None:
    """Imports Ray with its surroundings set: it reads them when it is loaded, and only then.

    A private cluster keeps to loopback and asks for a token; a client that has a token says so.
    """
    if "ray" not in sys.modules:
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        given = address or os.environ.get("RAY_ADDRESS") or running_here() or "local"
        if given == "local" or has_token():
            os.environ.setdefault("RAY_AUTH_MODE", "token")
        if given == "local" or given.rpartition(":")[0].strip("[]") in LOOPBACK:
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        import ray  # noqa: F401
    except ImportError:
        raise ClusterError(
            'running on several nodes needs Ray; install it with pip install "plait[cluster]"'
        ) from None


def has_token() -> bool:
    """Whether this user has a token for Ray."""
    named = any(os.environ.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    return named or (Path.home() / ".ray" / "auth_token").exists()


def current_cluster_file() -> Path:
    """Where `ray start` on this machine leaves the address of its cluster."""
    folder = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()) / "ray"
    return folder / "ray_current_cluster"


def is_trusted(owner: int) -> bool:
    """In /tmp/ray everyone can write, and who listens at the address there is sent the token."""
    return owner in (os.geteuid(), 0)


def running_here() -> str | None:
    """The cluster that `ray start` on this machine left the address of, if it still listens. A file
    of another user than this one or root does not count."""
    try:
        with current_cluster_file().open(encoding="utf-8") as file:
            if not is_trusted(os.fstat(file.fileno()).st_uid):
                return None
            address = file.read().strip()
        host, _, port = address.rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), timeout=1.0).close()
    except (OSError, ValueError):
        return None
    return address


def has_raylet() -> bool:
    """Whether a Ray runs on this machine: without one a process cannot attach by host:port, and Ray
    would look for it for a minute."""
    return any(process.info["name"] == "raylet" for process in psutil.process_iter(["name"]))


def start_here() -> None:
    """Starts a private Ray on this machine: on loopback, with a token, without a dashboard."""
    import ray

    try:
        ray.init(
            address="local",
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.WARNING,
        )
    except Exception as error:
        raise ClusterError(f"Ray could not be started here: {first_line(error)}") from error
    Attached.started, Attached.by = True, None


def no_cluster(address: str, error: BaseException) -> str:
    text = str(error) + str(error.__cause__ or "")
    if "AuthenticationError" in text or "InvalidAuthToken" in text or "Unauthenticated" in text:
        return (
            f"the cluster at {address} refused this process: set RAY_AUTH_MODE=token and "
            "RAY_AUTH_TOKEN_PATH to the file with the cluster's token"
        )
    if address == "auto":
        return NOT_RUNNING
    return f"no cluster answers at {address}: {first_line(error)}"


def first_line(error: BaseException) -> str:
    """What an error says, in a line. One that ends with a colon introduces the trace of another
    machine, whose last line says what happened."""
    lines = str(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    return f"{lines[0]} {lines[-1].strip()}" if lines[0].endswith(":") and lines[1:] else lines[0]


class NoManager(ClusterError):
    """The cluster has no manager of jobs, and so no jobs."""


class RayLink:
    """Speaks to the manager and the nodes. May be used by several threads."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.manager: Any = None

    @property
    def lasts(self) -> bool:
        """Whether the cluster stays when this process ends."""
        return not Attached.started

    @property
    def address(self) -> str:
        import ray

        return str(ray.get_runtime_context().gcs_address)

    def start_manager(self, journal_dir: str | None = None, silence_s: float | None = None) -> None:
        """Makes the manager of jobs, if there is none."""
        from plait.coordinator.shell.ray_manager import make_manager

        self.manager = make_manager(self.namespace, journal_dir, silence_s)
        theirs = self.ask("version")
        if theirs != __version__:
            raise ClusterError(
                f"the cluster's manager of jobs is plait {theirs}, this is plait {__version__}; "
                "use the same version on both sides"
            )

    def store_payload(self, parts: list[Any]) -> str:
        """Gives the cluster the payload of a job, by Ray's object store; returns its key."""
        import ray

        key = uuid.uuid4().hex
        reference = ray.put(parts)
        self.ask("store_payload", key, [reference], wait_s=STORE_S)
        return key

    def request(self, request: Request, timeout_s: float = CALL_S) -> Reply:
        """Asks for something; asked again with the same id if the manager was gone meanwhile."""
        reply: Reply = self.ask("request", uuid.uuid4().hex, request, timeout_s)
        return reply

    def view(self, job: str) -> JobView | None:
        found: JobView | None = self.ask("view", job)
        return found

    def views(self) -> tuple[JobView, ...]:
        """All jobs; none where none was ever submitted."""
        try:
            found: tuple[JobView, ...] = self.ask("views")
        except NoManager:
            return ()
        return found

    def quality(self, job: str) -> JobQuality:
        found: JobQuality = self.ask("quality", job)
        return found

    def outcome(self, job: str, rank: int) -> NodeOutcome | None:
        """A node's part of the result: from the node, or from what it left at its end."""
        from plait.node_runtime.host.ray_node import unpack_outcome

        data = self.ask_or_kept(job, rank, "outcome", "outcome")
        return None if data is None else unpack_outcome(data)

    def explain(self, job: str, rank: int) -> str:
        found = self.ask_or_kept(job, rank, "explain", "explain")
        return found.decode() if isinstance(found, bytes) else str(found or "")

    def logs(self, job: str, rank: int, lines: int) -> list[str]:
        found = self.ask_or_kept(job, rank, "log", "logs", lines)
        if isinstance(found, bytes):
            found = found.decode().splitlines()
            return found[-lines:] if lines > 0 else found
        return found or []

    def ask_or_kept(self, job: str, rank: int, kind: str, method: str, *given: Any) -> Any:
        """What a node says; or, if its process has ended, what it left."""
        found = self.ask_node(job, rank, method, *given)
        return self.ask("kept", job, rank, kind) if found is None else found

    def ask_node(self, job: str, rank: int, method: str, *given: Any) -> Any:
        """Calls a node's actor; None if there is none (any more)."""
        import ray

        from plait.coordinator.shell.ray_gateway import actor_name

        try:
            actor = ray.get_actor(actor_name(job, rank), namespace=self.namespace)
            return ray.get(getattr(actor, method).remote(*given), timeout=NODE_S)
        except (ValueError, ray.exceptions.RayActorError):
            return None
        except ray.exceptions.GetTimeoutError:
            raise ClusterError(f"node-{rank} of {job} does not answer") from None
        except ray.exceptions.RayTaskError as error:
            raise ClusterError(
                f"node-{rank} of {job}: {first_line(error.cause or error)}"
            ) from error

    def ask(self, method: str, *given: Any, wait_s: float = CALL_S) -> Any:
        """Calls the manager; waits while it is being restarted."""
        import ray

        patience = time.monotonic() + PATIENCE_S
        while True:
            try:
                found = self.find_manager()
                return ray.get(getattr(found, method).remote(*given), timeout=wait_s + AGAIN_S)
            except ray.exceptions.RayTaskError as error:
                raise ClusterError(
                    f"the manager of jobs: {first_line(error.cause or error)}"
                ) from error
            except ray.exceptions.RayError as error:
                if isinstance(error, ray.exceptions.ActorDiedError):
                    self.manager = None  # for good: there may be another one by now
                if time.monotonic() > patience:
                    raise ClusterError(
                        "the manager of jobs is gone or does not answer (jobs may go on without "
                        f"it): {first_line(error)}"
                    ) from error
                time.sleep(AGAIN_S)

    def find_manager(self) -> Any:
        import ray

        from plait.coordinator.shell.ray_manager import MANAGER

        if self.manager is None:
            try:
                self.manager = ray.get_actor(MANAGER, namespace=self.namespace)
            except ValueError:
                where = "" if self.namespace == "plait" else f' in the namespace "{self.namespace}"'
                raise NoManager(
                    f"this cluster has no manager of jobs{where}: none was submitted, or it was "
                    "ended by hand"
                ) from None
        return self.manager
