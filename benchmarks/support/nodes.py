"""Nodes of a job as processes of their own, driven over pipes: a cluster without Ray.

A `Recipe` says how each process builds the job itself, so that no table travels through a pipe.
`Nodes` starts the processes once; every `begin` makes new agents in them, so many runs share the
cost of starting Python. Rounds are those of the coordinator: promise, then commit at the greatest
fence. Calls go to all nodes at once and answers are taken in the order of ranks.
"""

from __future__ import annotations

import gc
import multiprocessing
import pickle
import socket
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from benchmarks.support.common import CheckFailed
from plait.coordinator.messages.spec import Policy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection

    from plait.migration.plan import Plan
    from plait.protocol.messages import Layout, NodeReport
    from plait.results.outcomes import NodeOutcome
    from plait.results.result import Result

PATIENCE_S = 120.0
"""No answer of a node for so long is a failure of the benchmark."""
EVERY_S = 0.01
"""How often the latency histogram is read while it is watched."""

Histogram = dict[int, int]
"""Upper edge in nanoseconds -> how many records."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A job and its settings, made where they are unpickled: `make(*given)` gives the job."""

    make: Callable[..., Any]
    given: tuple[Any, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        return cooked, (self.make, self.given, self.settings)


def cooked(make: Callable[..., Any], given: tuple[Any, ...], settings: dict[str, Any]) -> Any:
    """What a node is made from: the graph and the settings."""
    from plait.execution.local_run import graph_of
    from plait.model.settings import Settings

    return graph_of(make(*given)), Settings(**settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The latencies of all records delivered up to a time."""

    at: float
    counts: Histogram


class Host:
    """One process: serves one agent after the other."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.agent: Any = None
        self.watcher: Watcher | None = None

    def open(self, payload: bytes, token: str) -> Any:
        from plait.node_runtime.host.agent import NodeAgent

        self.close()
        self.agent = NodeAgent(self.rank, payload, token)
        return self.agent.peer()

    def apply(self, command: Any) -> Any:
        return self.agent.apply(command)

    def report(self) -> Any:
        return self.agent.report()

    def source_count(self) -> int:
        return len(self.agent.graph.sources)

    def progress(self) -> tuple[int, int, str]:
        """The epoch, the last layout passed, and an error: cheaper than a report."""
        cluster, engine = self.agent.cluster, self.agent.engine
        error = self.agent.error_text(engine) or cluster.refusal()
        return cluster.next_epoch(), cluster.passed_epoch(engine.sinks()), error

    def ready(self) -> int:
        """The last plan for whose bins all memory is there."""
        return int(self.agent.cluster.ready())

    def until_over(self, seconds: float) -> bool:
        """Whether the node has come to its end; waits for it."""
        return bool(self.agent.engine.wait(seconds))

    def warm_rate(self, rows: int) -> float:
        return warm_rate(self.agent.engine, rows)

    def watch(self) -> None:
        """Reads the latencies again and again from now on."""
        self.watcher = Watcher(self.agent.engine)

    def watched(self) -> list[Reading]:
        """What was read; the watch is over."""
        watcher, self.watcher = self.watcher, None
        return watcher.stop() if watcher else []

    def send_blocks(self, port: int, megabytes: int) -> None:
        """Sends so much through a plain TCP connection: what the machine's loopback carries."""
        block = bytes(1 << 20)
        with socket.create_connection(("127.0.0.1", port)) as out:
            for _ in range(megabytes):
                out.sendall(block)

    def end(self, good: bool) -> Any:
        from plait.protocol.messages import End

        self.agent.apply(End(good=good))
        return self.agent.outcome()

    def close(self) -> None:
        self.watched()
        if self.agent is not None:
            self.agent.close()
        self.agent = None
        gc.collect()


def warm_rate(engine: Any, rows: int) -> float:
    """Waits for the end of a run; the rate of its second half, when the tables have grown."""
    while engine.records_delivered() < rows // 2 and not engine.wait(0.0):
        time.sleep(0.001)
    began, before = time.perf_counter(), engine.records_delivered()
    while not engine.wait(1.0):
        pass
    return float((rows - before) / (time.perf_counter() - began))


class Watcher:
    """A thread that keeps readings of an engine's latency histogram."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.readings: list[Reading] = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        while True:
            at = time.monotonic()
            self.readings.append(Reading(at=at, counts=dict(self.engine.latency_buckets()[0])))
            if self.over.wait(EVERY_S):
                return

    def stop(self) -> list[Reading]:
        self.over.set()
        self.thread.join()
        return self.readings


def serve(pipe: Connection, rank: int) -> None:
    """The process: calls of `Host`, one after the other, until the pipe is closed."""
    host = Host(rank)
    while True:
        try:
            name, given = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            break
        try:
            answer = getattr(host, name)(*given)
        except Exception as error:
            answer = error
        pipe.send(answer)
    host.close()


@dataclass(slots=True)
class Child:
    """A process and the parent's end of its pipe."""

    process: Any
    pipe: Connection


class Nodes:
    """Processes that run a job together."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.children: list[Child] = []
        self.peers: dict[int, Any] = {}
        self.payload = b""
        self.token = "benchmark"
        self.layout: Layout
        self.margin_s = Policy().margin_s
        self.number = 0
        self.told: dict[int, int] = {}
        """By rank, the last plan that was told."""

    def __enter__(self) -> Self:
        for rank in range(self.count):
            self.start_process(rank)
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children:
            child.pipe.close()
        for child in self.children:
            child.process.join(10.0)
            if child.process.is_alive():
                child.process.kill()
                child.process.join()

    def start_process(self, rank: int) -> None:
        context = multiprocessing.get_context("spawn")
        pipe, other = context.Pipe()
        process = context.Process(target=serve, args=(other, rank), daemon=True)
        process.start()
        other.close()
        self.children.append(Child(process, pipe))

    def call(self, ranks: Sequence[int], name: str, given: Sequence[tuple[Any, ...]]) -> list[Any]:
        """One call on each of these nodes, side by side."""
        for rank, arguments in zip(ranks, given, strict=True):
            self.children[rank].pipe.send((name, arguments))
        answers = []
        for rank in ranks:
            pipe = self.children[rank].pipe
            if not pipe.poll(PATIENCE_S):
                raise CheckFailed(f"node {rank} does not answer to {name}")
            answers.append(pipe.recv())
        for rank, answer in zip(ranks, answers, strict=True):
            if isinstance(answer, BaseException):
                raise CheckFailed(f"node {rank}, {name}: {type(answer).__name__}: {answer}")
        return answers

    def all(self, name: str, *given: Any) -> list[Any]:
        """The same call on all members."""
        return self.call(self.members, name, [given] * len(self.members))

    @property
    def members(self) -> tuple[int, ...]:
        return self.layout.members

    def apply(self, ranks: Sequence[int], commands: Sequence[Any]) -> list[Any]:
        from plait.protocol.messages import Refused

        answers = self.call(ranks, "apply", [(command,) for command in commands])
        for rank, answer in zip(ranks, answers, strict=True):
            if isinstance(answer, Refused):
                raise CheckFailed(f"node {rank}: {answer.reason}")
        return answers

    def begin(
        self,
        recipe: Recipe,
        owners: Sequence[int] | None = None,
        readers: Sequence[int] | None = None,
    ) -> None:
        """Starts the job on all nodes; `owners`: of the bins, None: an equal range for each;
        `readers`: of the sources, None: every node reads its part of each."""
        from plait.migration.bins import initial
        from plait.model.settings import Settings
        from plait.protocol.messages import EVERYONE, Begin, Layout, Prepare

        settings = Settings(**recipe.settings)
        ranks = tuple(range(len(self.children)))
        self.payload = pickle.dumps(recipe)
        self.number = 0
        found = self.call(ranks, "open", [(self.payload, self.token)] * len(ranks))
        self.peers = dict(zip(ranks, found, strict=True))
        sources = self.call(ranks[:1], "source_count", [()])[0]
        self.layout = Layout(
            epoch=0,
            members=ranks,
            owners=tuple(owners or initial(1 << settings.bin_bits, ranks).owners),
            readers=(EVERYONE,) * sources if readers is None else tuple(readers),
            epoch_records=settings.epoch_records,
        )
        self.apply(
            ranks,
            [
                Prepare(rank=rank, layout=self.layout, peers=self.peers_of(rank), home=0)
                for rank in ranks
            ],
        )
        self.apply(ranks, [Begin(layout=self.layout)] * len(ranks))

    def peers_of(self, rank: int) -> tuple[Any, ...]:
        return tuple(peer for other, peer in self.peers.items() if other != rank)

    def round(self, make: Callable[[int], tuple[Layout, ...]]) -> tuple[Layout, ...]:
        """Agrees on an epoch; the layouts that `make` gives for it hold from then on."""
        from plait.protocol.messages import Commit, Promise

        self.number += 1
        members = self.members
        promise = Promise(round=self.number, margin_s=self.margin_s)
        fences = self.apply(members, [promise] * len(members))
        layouts = make(max(fence.epoch for fence in fences))
        commit = Commit(round=self.number, layouts=layouts)
        self.apply(members, [commit] * len(members))
        if layouts:
            self.layout = layouts[-1]
        return layouts

    def join(self) -> int:
        """A new process becomes a member, without bins; its rank."""
        from plait.protocol.messages import Begin, Commit, Connect, Prepare, Promise

        rank, old = len(self.children), self.members
        self.start_process(rank)
        self.peers[rank] = self.call([rank], "open", [(self.payload, self.token)])[0]
        self.apply(
            [rank], [Prepare(rank=rank, layout=self.layout, peers=self.peers_of(rank), home=0)]
        )
        self.apply(old, [Connect(peers=(self.peers[rank],))] * len(old))
        self.number += 1
        fences = self.apply(old, [Promise(round=self.number, margin_s=self.margin_s)] * len(old))
        first = max(fence.epoch for fence in fences)
        layout = replace(self.layout, epoch=first, members=(*old, rank), epoch_records=0)
        self.apply(
            [rank], [Begin(layout=replace(layout, epoch_records=self.epoch_records), joins=True)]
        )
        self.apply(old, [Commit(round=self.number, layouts=(layout,))] * len(old))
        self.layout = layout
        return rank

    @property
    def epoch_records(self) -> int:
        return int(pickle.loads(self.payload)[1].epoch_records)

    def expect(self, plan: Plan) -> None:
        """Tells the nodes what will move."""
        from plait.migration.expectations import expectations

        self.number += 1
        told = expectations(plan, self.number)
        self.apply(list(told), list(told.values()))
        self.told = dict.fromkeys(told, self.number)

    def ready(self) -> bool:
        """Whether memory is there for all that was told."""
        found = self.call(list(self.told), "ready", [()] * len(self.told))
        return all(
            int(number) >= self.told[rank] for rank, number in zip(self.told, found, strict=True)
        )

    def reports(self) -> list[NodeReport]:
        return self.all("report")

    def passed(self) -> int:
        """The epoch of the last layout that all nodes have passed."""
        found = self.all("progress")
        for rank, (_, _, error) in zip(self.members, found, strict=True):
            if error:
                raise CheckFailed(f"node {rank}: {error}")
        return min(int(passed) for _, passed, _ in found)

    def epoch(self) -> int:
        return max(int(epoch) for epoch, _, _ in self.all("progress"))

    def loopback_mb_per_s(self, megabytes: int = 1024) -> float:
        """What one TCP connection carries from a node to this process."""
        space = bytearray(1 << 20)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            self.children[0].pipe.send(("send_blocks", (port, megabytes)))
            into, _ = listener.accept()
        with into:
            began = time.perf_counter()
            received = 0
            while count := into.recv_into(space):
                received += count
            seconds = time.perf_counter() - began
        self.children[0].pipe.recv()
        return received / 1e6 / seconds

    def finish(self) -> Result:
        """Waits for the end of the job; its result."""
        deadline = time.monotonic() + PATIENCE_S
        while not all(self.all("until_over", 1.0)):
            if time.monotonic() > deadline:
                raise CheckFailed(f"the job does not end: {self.reports()}")
        return self.result(self.all("end", True))

    def stop(self) -> Result:
        """Ends the sources at a common epoch and waits for what was read."""
        from plait.protocol.messages import Commit, Promise

        self.number += 1
        members = self.members
        promise = Promise(round=self.number, margin_s=self.margin_s)
        fences = self.apply(members, [promise] * len(members))
        last = max(fence.epoch for fence in fences)
        self.apply(members, [Commit(round=self.number, stop_at=last)] * len(members))
        return self.finish()

    def result(self, outcomes: Sequence[NodeOutcome]) -> Result:
        from plait.results.outcomes import check_conserved, first_error, merge_outcomes

        error = first_error(outcomes)
        if error is not None:
            raise CheckFailed(f"the job failed: {error}")
        # The greatest latency as the histogram has it, like all other percentiles here.
        outcomes = [
            replace(part, latency_max_ns=max((edge for edge, _ in part.latency), default=0))
            for part in outcomes
        ]
        result = merge_outcomes("benchmark", outcomes)
        check_conserved(result, outcomes)
        return result
