"""NodeAgent: one node of a job: its engine, its links, and what the coordinator asks of it.

`apply` carries out a command and answers, the same again when a command is repeated; `report` says
how the node is and never waits; `outcome` is its part of the job's result once it was told to end.
Nothing here knows Ray. Any thread may call anything: commands run one at a time under a lock,
reports do not wait for it.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import psutil

from plait.errors import PlaitError, StateError
from plait.graph.operators import Graph, SourceOp
from plait.graph.stages import make_pipeline
from plait.node_runtime.assembly.build import build
from plait.node_runtime.assembly.engine_parts import EngineParts, Seat
from plait.node_runtime.elastic.watch import ElasticWatch, start_watch
from plait.node_runtime.host.endpoints import Ends, open_ends
from plait.node_runtime.native._cluster import NativeCluster
from plait.protocol.messages import (
    EVERYONE,
    Answer,
    Begin,
    BinLoad,
    Command,
    Commit,
    Connect,
    Done,
    Drop,
    End,
    Expect,
    Layout,
    Lift,
    NodeReport,
    Peer,
    Prepare,
    Promise,
    Refused,
)
from plait.results.failures import Letters, error_of
from plait.results.outcomes import Cuts, NodeOutcome, percentile_ns, stopped_sources, tally

if TYPE_CHECKING:
    from plait.model.settings import Settings
    from plait.node_runtime.host.tls_tunnel import TlsTunnel
    from plait.node_runtime.native._engine import NativeEngine

FAILING_S = 2.0
"""A failed record is reported when all sinks behind it have what came before it, or after so
long."""


class NodeAgent:
    """A node of a job."""

    def __init__(
        self,
        rank: int,
        payload: bytes | list[Any],
        token: str,
        listen_host: str = "127.0.0.1",
        tunnel: TlsTunnel | None = None,
    ) -> None:
        """`payload`: the pickled (graph, settings), from who submitted the job, or that and the
        buffers of its tables, which are used where they are; `tunnel`: records and state travel
        through it, and the links themselves stay on this machine."""
        self.rank = rank
        self.graph: Graph
        self.settings: Settings
        self.graph, self.settings = load_payload(payload)
        self.cluster = NativeCluster(rank, self.graph.name, token)
        self.tunnel = tunnel
        port = self.cluster.listen("127.0.0.1" if tunnel else listen_host)
        if tunnel is not None:
            port = tunnel.serve(listen_host, 0, port)
        self.address = Peer(rank=rank, host=listen_host, port=port)
        self.known: set[int] = set()
        self.lock = threading.RLock()
        self.parts: EngineParts | None = None
        self.ends: Ends | None = None
        self.letters: Letters | None = None
        self.first_epoch = 0
        self.leaving = False
        self.begun = False
        self.began = 0.0
        self.elastic: ElasticWatch | None = None
        self.rounds: dict[int, Answer] = {}
        """Answers to the promises of the last rounds."""
        self.committed = -1
        """The last round that was committed or lifted."""
        self.done: NodeOutcome | None = None
        self.failing_since = 0.0
        self.pace = Pace()
        self.latencies = Latencies()
        self.process = psutil.Process()

    def peer(self) -> Peer:
        """Where this node listens."""
        return self.address

    def apply(self, command: Command) -> Answer:
        """Carries out a command."""
        with self.lock:
            try:
                return self.carry_out(command)
            except (PlaitError, OSError, RuntimeError, ValueError) as error:
                return Refused(reason=f"{type(error).__name__}: {error}")

    def carry_out(self, command: Command) -> Answer:
        match command:
            case Prepare():
                return self.prepare(command)
            case Connect(peers=peers):
                return self.connect(peers)
            case Begin(layout=layout):
                return self.begin(layout)
            case Expect():
                return self.expect(command)
            case Promise():
                return self.promise(command)
            case Commit():
                return self.commit(command)
            case Lift(round=number):
                if number > self.committed:
                    self.committed = number
                    self.cluster.lift()
                return Done()
            case Drop(ranks=ranks):
                for rank in ranks:
                    self.cluster.drop(rank)
                return Done()
            case End(good=good):
                self.end(good)
                return Done()
            case _:
                assert_never(command)

    def prepare(self, command: Prepare) -> Answer:
        if self.parts is None:
            here = {
                op
                for number, op in enumerate(self.graph.sources)
                if command.layout.readers[number] in (EVERYONE, self.rank)
            }
            if self.settings.order == "key" or self.rank == command.home:
                here.update(self.graph.sinks)
            with ExitStack() as undo:
                self.ends = open_ends(self.graph, {}, here)
                undo.callback(self.ends.abort)
                if here.intersection(self.graph.sinks):
                    self.letters = Letters(self.graph)
                seat = Seat(cluster=self.cluster, rank=self.rank, home=command.home)
                pipeline = make_pipeline(self.graph, self.settings.fuse)
                self.parts = build(
                    pipeline, self.settings, self.ends.sources, self.ends.sinks, seat
                )
                undo.callback(self.parts.stop_helpers)
                self.cluster.hold(self.parts.engine)
                self.parts.start()
                undo.pop_all()
        return self.connect(command.peers)

    def connect(self, peers: tuple[Peer, ...]) -> Answer:
        for peer in peers:
            if peer.rank in self.known:
                continue
            self.known.add(peer.rank)
            host, port = peer.host, peer.port
            if self.tunnel is not None:
                host, port = "127.0.0.1", self.tunnel.dial(host, port)
            self.cluster.add_peer(peer.rank, host, port)
        return Done()

    def begin(self, layout: Layout) -> Answer:
        if self.parts is None:
            return Refused(reason="the node is not prepared")
        if not self.begun:
            self.begun = True
            self.first_epoch = layout.epoch
            self.began = time.perf_counter()
            records = layout.epoch_records or self.settings.epoch_records
            self.cluster.begin(replace(layout, epoch_records=records), layout.epoch > 0)
            self.elastic = start_watch(self.parts.engine, self.settings)
        return Done()

    def expect(self, command: Expect) -> Answer:
        if not self.begun:
            return Refused(reason="the node has not begun")
        self.cluster.expect(command.number, command.bins, command.sources, command.targets)
        return Done()

    def promise(self, command: Promise) -> Answer:
        if command.round not in self.rounds:
            if command.round <= self.committed:
                return Refused(reason=f"round {command.round} is over")
            if not self.begun:
                return Refused(reason="the node has not begun")
            rate = self.pace.epochs_per_s(self.cluster.next_epoch())
            fence = self.cluster.promise(int(rate * command.margin_s))
            if fence == 0:
                return Refused(reason="the node is at the end of its sources")
            self.rounds[command.round] = Done(epoch=fence)
            for old in sorted(self.rounds)[:-8]:
                del self.rounds[old]
        return self.rounds[command.round]

    def commit(self, command: Commit) -> Answer:
        if command.round > self.committed:
            self.committed = command.round
            last = command.layouts[-1] if command.layouts else None
            self.leaving = self.leaving or (last is not None and self.rank not in last.members)
            finish = command.finish or self.settings.finish
            self.cluster.commit(command.layouts, command.stop_at, finish == "flush")
        return Done()

    @property
    def engine(self) -> NativeEngine:
        if self.parts is None:
            raise StateError("the node is not prepared")
        return self.parts.engine

    def report(self, loads: bool = False) -> NodeReport:
        """How the node is."""
        cpu_ratio = psutil.cpu_percent(interval=None) / 100.0
        used = self.process.cpu_times()
        own = {
            "rank": self.rank,
            "cpu_ratio": cpu_ratio,
            "crowd": crowd_here(),
            "process_cpu_s": used.user + used.system,
            "rss_bytes": self.process.memory_info().rss,
        }
        parts = self.parts
        if parts is None or not self.begun:
            return NodeReport(phase="made" if parts is None else "prepared", **own)
        engine = parts.engine
        over = self.done is not None or engine.wait(0.0)
        error = self.error_text(engine)
        passed = self.cluster.passed_epoch(engine.sinks())
        refused = self.cluster.refusal()
        epoch = self.cluster.next_epoch()
        self.pace.note(epoch)
        bins, size_bytes = self.cluster.received()
        p50, p99, most = self.latencies.since_last(dict(engine.latency_buckets()[0]))
        stops_early = self.ends is not None and self.ends.stops_early
        return NodeReport(
            phase=self.phase(over, error, refused),
            epoch=epoch,
            delivered_epoch=passed,
            read=engine.records_read(),
            delivered=engine.records_delivered(),
            state_bytes=engine.state_bytes(),
            workers=engine.load()[2],
            moved_bins=bins,
            moved_bytes=size_bytes,
            ready=self.cluster.ready(),
            loads=self.loads(engine) if loads else (),
            p50_ms=p50,
            p99_ms=p99,
            max_ms=most,
            links_down=tuple(self.cluster.down_peers()),
            error=error or refused,
            satisfied=over and not error and stops_early,
            **own,
        )

    def phase(self, over: bool, error: str, refused: str) -> Any:
        if refused or (error and self.failure_arrived(over)):
            return "failed"
        if not over or error:
            return "running"
        return "left" if self.leaving else "ended"

    def failure_arrived(self, over: bool) -> bool:
        """Whether a failure has come to all sinks that are behind it: those are where they are
        exact, so a node without sinks leaves it to the ones that have some."""
        now = time.monotonic()
        self.failing_since = self.failing_since or now
        has_sinks = self.letters is not None
        return (over and has_sinks) or now - self.failing_since >= FAILING_S

    def error_text(self, engine: NativeEngine) -> str:
        failure = engine.error()
        if failure is None:
            return ""
        return str(error_of(failure, self.graph)).split("\n")[0]

    def loads(self, engine: NativeEngine) -> tuple[BinLoad, ...]:
        """Of the bins this node has sent records to: all members together see every record."""
        counts = engine.loads()
        each = engine.state_bytes() // max(1, len(counts))
        return tuple(
            BinLoad(bin=bin, records=records, size_bytes=each) for bin, records in enumerate(counts)
        )

    def end(self, good: bool) -> None:
        """Ends the engine and closes the ends; `good`: what sinks wrote is to stay."""
        if self.done is not None or self.parts is None:
            return
        engine = self.parts.engine
        if self.elastic is not None:
            self.elastic.stop()
        seconds = time.perf_counter() - self.began if self.begun else 0.0
        natural = engine.wait(0.0)
        engine.abort()
        self.cluster.close()
        if not natural:
            engine.interrupt_python()
        self.parts.end(grace_s=0.0)
        self.done = self.outcome_of(engine, good and natural, seconds)

    def outcome_of(self, engine: NativeEngine, good: bool, seconds: float) -> NodeOutcome:
        assert self.ends is not None
        assert self.parts is not None
        failure = engine.error()
        error: BaseException | None = None
        if failure is not None:
            error = error_of(failure, self.graph)
        elif refused := self.cluster.refusal():
            error = StateError(f"state could not move between the nodes: {refused}")
        outputs: dict[str, Any] = {}
        try:
            if self.letters is not None:
                self.letters.add(engine.letters())
            outputs = self.ends.close(good and error is None, self.parts)
        except Exception as closing:
            error = error or closing
        finally:
            if self.letters is not None:
                self.letters.close(good and error is None)
        error = error or self.parts.closing_error
        counts = [engine.counts(i) for i in range(len(self.graph.operators))]
        unfinished = {} if self.ends.stops_early else self.parts.unfinished(self.graph)
        account, operators = tally(self.graph, counts, unfinished)
        buckets, most = engine.latency_buckets()
        labels = [n.label for n in self.graph.operators if isinstance(n, SourceOp)]
        return NodeOutcome(
            rank=self.rank,
            seconds=seconds,
            account=account,
            operators=operators,
            letters=tuple(self.letters.found) if self.letters is not None else (),
            latency=tuple(buckets),
            latency_max_ns=most,
            outputs=outputs,
            cuts={
                label: Cuts(
                    first_epoch=self.first_epoch,
                    rows=tuple(engine.cuts(i)),
                    stamps=tuple(engine.stamps(i)),
                )
                for i, label in enumerate(labels)
            },
            error=error,
            failed_at=None if failure is None or failure.row < 0 else failure.place,
            stopped=stopped_sources(self.graph, engine),
            stops_early=self.ends.stops_early,
            levels=tuple(self.elastic.levels) if self.elastic is not None else (),
            degrees=tuple(self.elastic.degrees) if self.elastic is not None else (),
        )

    def outcome(self) -> NodeOutcome | None:
        """This node's part of the result; None before it was told to end."""
        return self.done

    def close(self) -> None:
        """Leaves nothing behind."""
        with self.lock:
            self.end(False)
            self.cluster.close()
            if self.tunnel is not None:
                self.tunnel.close()


def load_payload(payload: bytes | list[Any]) -> tuple[Graph, Settings]:
    """A job, from its bytes or from its parts."""
    main, *buffers = [payload] if isinstance(payload, bytes) else payload
    graph, settings = pickle.loads(main, buffers=buffers)
    return graph, settings


def crowd_here() -> float:
    """Threads that want to run, for each core: now, or on average over the last minute."""
    try:
        average, _, _, now, _ = Path("/proc/loadavg").read_text(encoding="ascii").split()
        running = float(now.partition("/")[0]) - 1.0
        return max(float(average), running) / (os.cpu_count() or 1)
    except (OSError, ValueError):
        return 0.0


class Latencies:
    """Of the records delivered since the last report that had any, in milliseconds."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.shown = (0.0, 0.0, 0.0)

    def since_last(self, counts: dict[int, int]) -> tuple[float, float, float]:
        """p50, p99 and the greatest; `counts` are of all records so far, by upper edge in ns."""
        fresh = {
            edge: count - self.seen.get(edge, 0)
            for edge, count in counts.items()
            if count > self.seen.get(edge, 0)
        }
        if fresh:
            self.seen = counts
            most = max(fresh)
            p50, p99 = (percentile_ns(fresh, most, percent) for percent in (50.0, 99.0))
            self.shown = (p50 / 1e6, p99 / 1e6, most / 1e6)
        return self.shown


class Pace:
    """How many epochs a second the sources emit, over the last reports."""

    def __init__(self) -> None:
        self.at = time.monotonic()
        self.epoch = 0
        self.rate = 0.0

    def note(self, epoch: int) -> None:
        now = time.monotonic()
        if now - self.at >= 0.05:
            self.rate = (epoch - self.epoch) / (now - self.at)
            self.at, self.epoch = now, epoch

    def epochs_per_s(self, epoch: int) -> float:
        self.note(epoch)
        return self.rate
