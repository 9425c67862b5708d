"""The coordinator's port to a Ray cluster: every node of a job is a detached actor with a name.

Nothing here blocks the coordinator. Calls of actors whose handle is known are only sent; all that
may wait for Ray (making an actor, finding one by its name, looking at hosts) is done by a few
threads. Answers come back as events, from Ray's own thread. A call that neither returns nor fails,
as to a host that is cut off, is forgotten after a time; the coordinator asks again or gives the
node up. The rule: an event says only what is known. A node counts as lost here only when Ray says
that its actor is dead, which is final because actors of nodes are never restarted.
"""

from __future__ import annotations

import hashlib
import pickle
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import ActorDiedError, ActorUnschedulableError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from plait.coordinator.messages.events import Heard, HostsSeen, NodeLost
from plait.coordinator.shell import replies
from plait.coordinator.shell.beats import BeatListener
from plait.coordinator.shell.payloads import PayloadFiles
from plait.coordinator.shell.ray_hosts import RayHosts
from plait.node_runtime.host.ray_node import RayNode
from plait.protocol.messages import Refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from plait.coordinator.messages.commands import AskHosts, AskReport, StartNode, StopNode, Tell
    from plait.coordinator.messages.events import Event
    from plait.protocol.messages import NodeReport, Rank

THREADS = 8
ASK_AGAIN_S = 1.0
"""A report that is outstanding for so long is asked for again."""
CLOSE_S = 10.0
"""How long a node that is to end may take to close what it has open."""
NODE: Any = ray.remote(concurrency_groups={"tell": 1, "ask": 2, "fetch": 2})(RayNode)  # type: ignore[call-overload]

Key = tuple[str, int]


def actor_name(job: str, rank: Rank) -> str:
    return f"plait:{job}:{rank}"


class RayGateway:
    """Effects on a Ray cluster."""

    def __init__(self, namespace: str, folder: Path) -> None:
        self.namespace = namespace
        self.outcomes = folder / "outcomes"
        """What nodes that were ended have left for the result of their job."""
        self.payloads = PayloadFiles(folder / "payloads")
        self.references: dict[str, Any] = {}
        """Payloads in Ray's object store, while nodes are made of them."""
        self.makes: Counter[str] = Counter()
        """How many nodes are being made of each payload."""
        self.beats = BeatListener(ray.util.get_node_ip_address())
        self.hosts = RayHosts()
        self.pool = ThreadPoolExecutor(THREADS, thread_name_prefix="plait-gateway")
        self.lock = threading.Lock()
        self.actors: dict[Key, Any] = {}
        self.places: dict[Key, str] = {}
        """The host of each node that this gateway has heard of."""
        self.asking: dict[Key, float] = {}
        """When a report that is outstanding was asked for: one at a time is enough."""
        self.beaten: dict[Key, float] = {}
        """The last beat of each node that was passed on."""
        self.wanted: frozenset[Key] | None = None
        """Nodes whose outcome may be asked for; None: not known yet."""
        self.needed: frozenset[str] = frozenset()
        """Payloads that nodes may still be made of."""
        self.discarding = threading.Lock()
        self.ending: set[Key] = set()
        """Nodes that are handing over their outcome."""
        self.gone: set[Key] = set()
        """Nodes that were stopped and are not there any more."""
        self.closed = False

    def open(self, deliver: Callable[[Event], None], clock: Callable[[], float]) -> None:
        self.deliver_event = deliver
        self.clock = clock

    def deliver(self, event: Event) -> None:
        if not self.closed:
            self.deliver_event(event)

    def close(self) -> None:
        self.closed = True
        self.beats.close()
        self.pool.shutdown(wait=False, cancel_futures=True)

    def start_node(self, command: StartNode) -> None:
        self.pool.submit(self.make, command)

    def make(self, command: StartNode) -> None:
        key = (command.job, command.rank)
        try:
            host = self.hosts.find(command.host)
            if host is None:
                self.not_made(command, f"the host {command.host} is not there")
                return
            payload = self.payload_of(command.spec.payload)
            near = NodeAffinitySchedulingStrategy(host.node_id, soft=False)
            actor = NODE.options(
                name=actor_name(*key),
                namespace=self.namespace,
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                max_restarts=0,
                max_task_retries=0,
                scheduling_strategy=near,
            ).remote(command.rank, payload, command.spec.token, self.beats.aim_of(key))
            with self.lock:
                self.actors[key] = actor
                self.places[key] = host.name
                self.makes[command.spec.payload] += 1
            self.when_done(actor.identity.remote(), lambda done: self.made(command, done))
        except Exception as error:
            self.not_made(command, first_line(error))

    def store_payload(self, key: str, reference: Any) -> None:
        """Keeps a payload that a client has in Ray's object store, in a file under its key. Not the
        client's object: that goes with the client, which may end before a node is made of it."""
        if not self.payloads.path(key).exists():
            self.payloads.write(key, ray.get(reference))

    def payload_of(self, key: str) -> Any:
        """A reference to a payload in Ray's object store, made from the file and owned by this
        process."""
        with self.lock:
            found = self.references.get(key)
        if found is None:
            main, *buffers = self.payloads.read(key)
            found = ray.put([bytes(main), *map(pickle.PickleBuffer, buffers)])
            with self.lock:
                found = self.references.setdefault(key, found)
        return found

    def release_payload(self, key: str, *, good: bool) -> None:
        """A node was made of it, or not: then it may be the object that is gone."""
        with self.lock:
            self.makes[key] -= 1
            if not good or self.makes[key] <= 0:
                self.references.pop(key, None)
                del self.makes[key]

    def made(self, command: StartNode, done: Future[Any]) -> None:
        error = done.exception()
        self.release_payload(command.spec.payload, good=error is None)
        if error is not None:
            self.not_made(command, why_not_made(error))
            return
        peer, pid = done.result()
        self.deliver(replies.made(command, self.clock(), command.host, peer, pid))

    def not_made(self, command: StartNode, reason: str) -> None:
        with self.lock:
            actor = self.actors.pop((command.job, command.rank), None)
        if actor is not None:
            self.pool.submit(ray.kill, actor)
        self.deliver(replies.not_made(command, self.clock(), reason))

    def tell(self, command: Tell) -> None:
        self.call(
            (command.job, command.rank),
            command.cause,
            lambda actor: actor.apply.remote(command.command_id, command.command),
            lambda done: self.answered(command, done),
        )

    def answered(self, command: Tell, done: Future[Any]) -> None:
        error = done.exception()
        if error is None:
            answer = done.result()
        elif isinstance(error, RayTaskError):
            answer = Refused(reason=first_line(error.cause or error))
        else:
            self.failed((command.job, command.rank), command.cause, error)
            return
        self.deliver(replies.answered(command, self.clock(), answer))

    def ask_report(self, command: AskReport) -> None:
        key = (command.job, command.rank)
        self.pass_beat(key, command.cause)
        now = time.monotonic()
        with self.lock:
            if now - self.asking.get(key, -ASK_AGAIN_S) < ASK_AGAIN_S and not command.loads:
                return
            self.asking[key] = now
        self.call(
            key,
            command.cause,
            lambda actor: actor.report.remote(command.loads, self.beats.aim_of(key)),
            lambda done: self.reported(command, done),
        )

    def pass_beat(self, key: Key, cause: str) -> None:
        """Says that the node's heart was heard, if it was since this was last asked."""
        at = self.beats.heard_at(key)
        with self.lock:
            if at is None or at <= self.beaten.get(key, 0.0):
                return
            self.beaten[key] = at
        job, rank = key
        when = self.clock() - (time.monotonic() - at)
        self.deliver(Heard(at=when, cause=cause, job=job, rank=rank))

    def reported(self, command: AskReport, done: Future[Any]) -> None:
        key = (command.job, command.rank)
        with self.lock:
            self.asking.pop(key, None)
        error = done.exception()
        if isinstance(error, RayTaskError):
            self.lost(key, command.cause, f"it cannot report: {first_line(error.cause or error)}")
        elif error is not None:
            self.failed(key, command.cause, error)
        else:
            report = done.result()
            if report.cpu_ratio > 0.0:  # else it has not measured yet
                self.hosts.note(self.places.get(key, ""), report.cpu_ratio)
            if self.owes_outcome(key, report):
                self.pool.submit(self.hand_over, key, command, report)
            else:
                self.deliver(replies.reported(command, self.clock(), report))

    def owes_outcome(self, key: Key, report: NodeReport) -> bool:
        """Whether a node says that it has left while what it has for the result is only with it:
        if it died now, that would be gone. Where the job has checkpoints it may still have to write
        its part of one, and is asked when it is ended."""
        if report.phase != "left" or report.attempt:
            return False
        wanted = self.wanted is None or key in self.wanted
        return wanted and not self.outcome_path(key, "outcome").exists()

    def hand_over(self, key: Key, command: AskReport, report: NodeReport) -> None:
        """Stores what a node has for the result; only then it has left, for the coordinator."""
        with self.lock:
            if key in self.ending:
                return  # it is under way
            self.ending.add(key)

        def stored(done: Future[Any]) -> None:
            self.pool.submit(self.store_outcome, key, command, report, done)

        try:
            self.when_done(self.actor_of(key).remains.remote(), stored)
        except (ValueError, RayError):
            with self.lock:
                self.ending.discard(key)

    def store_outcome(
        self, key: Key, command: AskReport, report: NodeReport, done: Future[Any]
    ) -> None:
        error = done.exception()
        try:
            if error is None:
                self.keep(key, *done.result())
            elif not isinstance(error, RayTaskError):
                self.failed(key, command.cause, error)
                return
            self.deliver(replies.reported(command, self.clock(), report))
        except OSError:
            pass  # a full disk, say: asked again with the next report
        finally:
            with self.lock:
                self.ending.discard(key)

    def stop_node(self, command: StopNode) -> None:
        key = (command.job, command.rank)
        with self.lock:
            if key in self.gone or (command.keep and key in self.ending):
                return
        self.pool.submit(self.stop, key, command.keep)

    def stop(self, key: Key, keep: bool) -> None:
        """Ends the node's process; with `keep` when its outcome is stored."""
        try:
            actor = self.actor_of(key)
        except ValueError:
            self.note_gone(key)
            return
        except RayError:
            return  # asked again
        if keep and not self.outcome_path(key, "outcome").exists():
            with self.lock:
                self.ending.add(key)

            def later(done: Future[Any]) -> None:
                self.pool.submit(self.take_over, key, done)

            self.when_done(actor.remains.remote(), later)
        else:
            self.end(key, actor)

    def take_over(self, key: Key, done: Future[Any]) -> None:
        """A node has handed over what it has for the result: it may end."""
        try:
            if done.exception() is None:
                self.keep(key, *done.result())
                self.end(key, self.actor_of(key))
            elif isinstance(done.exception(), ActorDiedError):
                self.note_gone(key)
        except (OSError, ValueError, RayError):
            pass  # it stays, and is asked again
        finally:
            with self.lock:
                self.ending.discard(key)

    def end(self, key: Key, actor: Any) -> None:
        with suppress(RayError):
            ray.get(actor.close.remote(), timeout=CLOSE_S)
        with suppress(RayError):
            ray.kill(actor)
        with self.lock:
            self.actors.pop(key, None)
            self.asking.pop(key, None)

    def note_gone(self, key: Key) -> None:
        self.beats.forget(key)
        with self.lock:
            self.gone.add(key)
            self.beaten.pop(key, None)
            self.places.pop(key, None)

    def keep(self, key: Key, outcome: bytes | None, explained: str, printed: list[str]) -> None:
        """Stores what a node leaves, its outcome last: then all of it is there."""
        if self.wanted is not None and key not in self.wanted:
            return
        texts = {"explain": explained.encode(), "log": "\n".join(printed).encode()}
        for kind, data in {**texts, "outcome": outcome or b""}.items():
            path = self.outcome_path(key, kind)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            part = path.with_suffix(f".{kind}.part")
            part.write_bytes(data)
            part.replace(path)

    def outcome_path(self, key: Key, kind: str) -> Path:
        return self.folder_of(key[0]) / f"{key[1]}.{kind}"

    def folder_of(self, job: str) -> Path:
        """By a digest: a name may have letters that a file name cannot have."""
        return self.outcomes / hashlib.sha256(job.encode()).hexdigest()

    def kept(self, job: str, rank: Rank, kind: str) -> bytes | None:
        """What a node that was ended has left: its "outcome", "explain" or "log"."""
        path = self.outcome_path((job, rank), kind)
        return (path.read_bytes() or None) if path.exists() else None

    def retain(self, payloads: frozenset[str], outcomes: frozenset[Key]) -> None:
        with self.lock:
            self.needed, self.wanted = payloads, outcomes
            self.gone &= outcomes
        self.pool.submit(self.discard)

    def discard(self) -> None:
        """Removes what nobody will ask for, as far as is known now."""
        with suppress(OSError), self.discarding:
            with self.lock:
                payloads, outcomes = self.needed, self.wanted or frozenset()
            self.payloads.retain(payloads)
            wanted = {self.folder_of(job) / str(rank) for job, rank in outcomes}
            for folder in self.outcomes.iterdir() if self.outcomes.exists() else ():
                for path in folder.iterdir():
                    if folder / path.name.partition(".")[0] not in wanted:
                        path.unlink(missing_ok=True)
                with suppress(OSError):  # not empty
                    folder.rmdir()

    def ask_hosts(self, command: AskHosts) -> None:
        self.pool.submit(self.look, command)

    def look(self, command: AskHosts) -> None:
        with suppress(RayError):  # asked again
            hosts = self.hosts.views()
            self.deliver(HostsSeen(at=self.clock(), cause=command.cause, hosts=hosts))

    def call(
        self,
        key: Key,
        cause: str,
        send: Callable[[Any], Any],
        done: Callable[[Future[Any]], None],
    ) -> None:
        """Sends a call to a node's actor; found by its name first if it is not known."""
        actor = self.actors.get(key)
        if actor is None:
            self.pool.submit(self.find_and_call, key, cause, send, done)
        else:
            self.when_done(send(actor), done)

    def find_and_call(
        self,
        key: Key,
        cause: str,
        send: Callable[[Any], Any],
        done: Callable[[Future[Any]], None],
    ) -> None:
        try:
            actor = self.actor_of(key)
        except ValueError:
            with self.lock:
                self.asking.pop(key, None)
            self.lost(key, cause, "its process is gone")
        except RayError:
            return  # asked again
        else:
            self.when_done(send(actor), done)

    def actor_of(self, key: Key) -> Any:
        """The actor of a node; ValueError if there is none."""
        actor = self.actors.get(key)
        if actor is None:
            actor = ray.get_actor(actor_name(*key), namespace=self.namespace)
            with self.lock:
                self.actors[key] = actor
        return actor

    def when_done(self, reference: Any, done: Callable[[Future[Any]], None]) -> None:
        """Calls back when the result is there, in Ray's own thread: it must not wait for Ray."""
        future: Future[Any] = reference.future()
        future.add_done_callback(done)

    def failed(self, key: Key, cause: str, error: BaseException) -> None:
        """A call that could not be answered: the end of the node only if Ray knows it is dead."""
        if isinstance(error, ActorDiedError):
            self.lost(key, cause, why_dead(error))

    def lost(self, key: Key, cause: str, reason: str) -> None:
        with self.lock:
            self.actors.pop(key, None)
            self.asking.pop(key, None)
        self.deliver(NodeLost(at=self.clock(), cause=cause, job=key[0], rank=key[1], reason=reason))


def first_line(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__


def why_dead(error: ActorDiedError) -> str:
    """Ray's many lines, in a few words."""
    text = str(error)
    if "node" in text and ("was terminated" in text or "has been marked dead" in text):
        return "its host is gone"
    if "ray.kill" in text:
        return "it was ended"
    return "its process has ended"


def why_not_made(error: BaseException) -> str:
    """What an actor's constructor raised, or why it has no process."""
    if isinstance(error, ActorUnschedulableError):
        return "its host is gone"
    if isinstance(error, ActorDiedError):
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raised = "creation task" in str(error)
        return lines[-1] if raised and lines else why_dead(error)
    return first_line(error)
