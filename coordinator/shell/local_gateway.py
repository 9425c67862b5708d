"""Nodes in threads of this process: for tests, and for a job whose nodes need no other machine.

Each node has a thread that carries out its commands in order; reports are taken by one thread for
all nodes, so that a node at work still says how it is. The agents themselves are made by a function
given at construction, because this layer knows no runtime.
"""

from __future__ import annotations

import os
import queue
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from plait.coordinator.messages.events import HostsSeen, NodeLost
from plait.coordinator.messages.hosts import HostView
from plait.coordinator.shell import replies
from plait.node_runtime.host.once import Once

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.coordinator.messages.commands import AskHosts, AskReport, StartNode, StopNode, Tell
    from plait.coordinator.messages.events import Event, NodeMade
    from plait.coordinator.messages.spec import JobSpec
    from plait.protocol.messages import Answer, Command, NodeReport, Peer, Rank

Key = tuple[str, int]


class NodeAgentLike(Protocol):
    """What a node can do."""

    def peer(self) -> Peer: ...

    def apply(self, command: Command) -> Answer: ...

    def report(self, loads: bool = False) -> NodeReport: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class LocalNode:
    """A node and what its thread has to do."""

    host: str
    todo: queue.SimpleQueue[Tell | None] = field(default_factory=queue.SimpleQueue)
    agent: NodeAgentLike | None = None


class LocalGateway:
    """A gateway to nodes in this process."""

    def __init__(
        self,
        make_agent: Callable[[str, Rank, JobSpec], NodeAgentLike],
        hosts: tuple[HostView, ...] = (),
    ) -> None:
        self.make_agent = make_agent
        cores = float(os.cpu_count() or 1)
        self.hosts = hosts or (HostView(host="local", cores=cores, cpu_ratio=None),)
        self.nodes: dict[Key, LocalNode] = {}
        self.threads: list[threading.Thread] = []
        self.lock = threading.Lock()
        self.asked: queue.SimpleQueue[AskReport | None] = queue.SimpleQueue()
        self.reporter: threading.Thread | None = None
        self.deliver: Callable[[Event], None] = lambda event: None
        self.clock: Callable[[], float] = lambda: 0.0

    def open(self, deliver: Callable[[Event], None], clock: Callable[[], float]) -> None:
        self.deliver, self.clock = deliver, clock
        self.reporter = threading.Thread(
            target=self.report_all, name="plait-local-reports", daemon=True
        )
        self.reporter.start()

    def start_node(self, command: StartNode) -> None:
        key = (command.job, command.rank)
        with self.lock:
            node = self.nodes.get(key)
            if node is None:
                thread = threading.Thread(
                    target=self.live,
                    args=(command,),
                    name=f"plait-local-{command.job}-{command.rank}",
                    daemon=True,
                )
                self.nodes[key] = LocalNode(host=command.host)
                self.threads = [one for one in self.threads if one.is_alive()] + [thread]
                thread.start()
                return
        if node.agent is not None:
            self.deliver(self.made(command, node, node.agent))

    def made(self, command: StartNode, node: LocalNode, agent: NodeAgentLike) -> NodeMade:
        return replies.made(command, self.clock(), node.host, agent.peer(), os.getpid())

    def live(self, command: StartNode) -> None:
        """The life of a node, in its thread."""
        key = (command.job, command.rank)
        node = self.nodes[key]
        try:
            agent = self.make_agent(command.job, command.rank, command.spec)
        except Exception as error:
            with self.lock:
                self.nodes.pop(key, None)
            reason = f"{type(error).__name__}: {error}"
            self.deliver(replies.not_made(command, self.clock(), reason))
            return
        try:
            made = self.made(command, node, agent)
            node.agent = agent
            self.deliver(made)
            once = Once(agent.apply)
            while (tell := node.todo.get()) is not None:
                answer = once.tell(tell.command_id, tell.command)
                self.deliver(replies.answered(tell, self.clock(), answer))
        finally:
            node.agent = None
            agent.close()

    def tell(self, command: Tell) -> None:
        node = self.nodes.get((command.job, command.rank))
        if node is None:
            self.gone(command.job, command.rank, command.cause)
        else:
            node.todo.put(command)

    def gone(self, job: str, rank: Rank, cause: str) -> None:
        self.deliver(
            NodeLost(at=self.clock(), cause=cause, job=job, rank=rank, reason="it is not there")
        )

    def ask_report(self, command: AskReport) -> None:
        self.asked.put(command)

    def report_all(self) -> None:
        while (command := self.asked.get()) is not None:
            node = self.nodes.get((command.job, command.rank))
            agent = node.agent if node is not None else None
            if node is None:
                self.gone(command.job, command.rank, command.cause)
            if agent is None:
                continue
            try:
                report = agent.report(command.loads)
            except Exception:
                # It is being closed, or it is broken: silence says so soon enough.
                continue
            self.deliver(replies.reported(command, self.clock(), report))

    def stop_node(self, command: StopNode) -> None:
        with self.lock:
            node = self.nodes.pop((command.job, command.rank), None)
        if node is not None:
            node.todo.put(None)

    def retain(self, payloads: frozenset[str], outcomes: frozenset[tuple[str, Rank]]) -> None:
        """Nothing is stored: an outcome is with whoever made the agent."""

    def ask_hosts(self, command: AskHosts) -> None:
        self.deliver(HostsSeen(at=self.clock(), cause=command.cause, hosts=self.hosts))

    def agent(self, job: str, rank: Rank) -> NodeAgentLike | None:
        """The node's agent, for what goes past the coordinator: its outcome."""
        node = self.nodes.get((job, rank))
        return node.agent if node is not None else None

    def close(self) -> None:
        self.deliver = lambda event: None
        if self.reporter is not None:
            self.asked.put(None)
            self.reporter.join()
            self.reporter = None

    def shut_down(self) -> None:
        """End all nodes and wait for their threads."""
        self.close()
        with self.lock:
            nodes = list(self.nodes.values())
            self.nodes.clear()
        for node in nodes:
            node.todo.put(None)
        for thread in self.threads:
            thread.join()
