"""NodeAgent: one node of a job: its engine, its links, and what the coordinator asks of it.

`apply` carries out a command and answers, the same again when a command is repeated; `report` says
how the node is and never waits; `outcome` is its part of the job's result once it was told to end.
Nothing here knows Ray. Any thread may call anything: commands run one at a time under a lock,
reports do not wait for it.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, assert_never

from plait.errors import BreakerError, PlaitError, StateError
from plait.graph.operators import SourceOp
from plait.node_runtime.elastic.processors import Processors
from plait.node_runtime.elastic.watch import start_watch
from plait.node_runtime.host.checkpoint_keeper import history_of
from plait.node_runtime.host.engine_host import HALT_S, NO_CHECKPOINTS, EngineHost
from plait.node_runtime.host.node_facts import Latencies, Pace, crowd_here
from plait.node_runtime.host.restoring import (
    restore,
    show_outputs,
)
from plait.node_runtime.host.strangers import StrangerLog
from plait.protocol.checkpoint_messages import Halt, Mark, Publish, Retire, Seal, Survey
from plait.protocol.messages import (
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
from plait.results.failures import error_of
from plait.results.outcomes import Cuts, NodeOutcome, keep_steps, stopped_sources, tally

if TYPE_CHECKING:
    from plait.node_runtime.host.tls_tunnel import TlsTunnel
    from plait.node_runtime.native._engine import NativeEngine
    from plait.node_runtime.pool.pool import Pool

FAILING_S = 2.0
"""A failed record is reported when all sinks behind it have what came before it, or after so
long."""


class NodeAgent(EngineHost):
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
        super().__init__(rank, payload, token, listen_host, tunnel)
        self.lock = threading.RLock()
        self.began = 0.0
        self.done: NodeOutcome | None = None
        self.pace = Pace()
        self.latencies = Latencies()
        self.strangers = StrangerLog()
        self.processors = Processors()

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
            case Begin(layout=layout, joins=joins):
                return self.begin(layout, joins)
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
            case Halt(attempt=attempt):
                return self.halt(attempt)
            case Seal() | Publish() | Retire() | Survey():
                if self.keeper is None:
                    return Refused(reason=NO_CHECKPOINTS)
                if isinstance(command, Survey):
                    self.keeper.begin_attempt(command.attempt)
                self.keeper.carry_out(command)
                return Done()
            case _:
                assert_never(command)

    def begin(self, layout: Layout, joins: bool) -> Answer:
        if self.parts is None:
            return Refused(reason="the node is not prepared")
        if not self.begun:
            self.begun = True
            self.first_epoch = layout.epoch
            self.began = time.perf_counter()
            records = layout.epoch_records or self.records
            self.cluster.begin(replace(layout, epoch_records=records), joins)
            self.elastic = start_watch(self.parts.engine, self.settings)
            if self.measured is not None:
                self.measured.start()
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
            self.members = self.members if last is None else len(last.members)
            if last is not None and self.rank not in last.members and not self.leaving:
                self.leaving, self.left_at = True, last.epoch
            if command.mark is not None:
                return self.mark(command.mark, command.stop_at is not None)
            finish = command.finish or self.settings.finish
            self.cluster.commit(command.layouts, command.stop_at, finish == "flush")
        return Done()

    def mark(self, mark: Mark, stops: bool) -> Answer:
        if self.keeper is None or self.saver is None:
            return Refused(reason=NO_CHECKPOINTS)
        item = None
        if not mark.ended:
            last = mark.last or stops
            item = self.cluster.mark(mark.epoch, last, mark.number, mark.since)
        self.keeper.save(mark, item)
        return Done()

    @property
    def engine(self) -> NativeEngine:
        if self.parts is None:
            raise StateError("the node is not prepared")
        return self.parts.engine

    def note_strangers(self) -> int:
        """Logs what came to the data port and proved nothing; how many were refused so far. With
        TLS the tunnel has that port."""
        count, left, why, source = self.cluster.refused_links()
        if self.tunnel is not None:
            there = self.tunnel.refusals()
            count, left = count + there.count, left + there.left
            why, source = (there.why, there.source) if there.count else (why, source)
        self.strangers.note(count, left, why, source, time.monotonic())
        return count

    def report(self, loads: bool = False) -> NodeReport:
        """How the node is."""
        refused_links = self.note_strangers()
        own = {
            "rank": self.rank,
            "cpu_ratio": self.processors.ratios()[0],
            "affinity_cores": self.processors.cores,
            "most_cores": self.most_cores(),
            "crowd": crowd_here(),
            "process_cpu_s": time.process_time() + self.pool_cpu_s(),
            "rss_bytes": self.processors.process.memory_info().rss,
            **self.checkpoint_report(),
            "refused_links": refused_links,
        }
        if self.keeper is not None and self.keeper.told.load_error:
            error = f"the checkpoint could not be loaded: {self.keeper.told.load_error}"
            return NodeReport(phase="failed", error=error, lost_peer=True, **own)
        if self.keeper is not None and self.keeper.told.commit_error:
            error = self.keeper.told.commit_error
            return NodeReport(phase="failed", error=error, lost_peer=True, **own)
        parts, measured = self.parts, self.measured
        if parts is None or not self.begun:
            return NodeReport(phase="made" if parts is None else "prepared", **own)
        engine = parts.engine
        over = self.done is not None or engine.wait(0.0)
        broken = self.breaks()
        error = self.error_text(engine) or broken.replace("\n  ", "; ")
        passed = self.cluster.passed_epoch(engine.sinks())
        refused = self.cluster.refusal()
        epoch = self.cluster.next_epoch()
        self.pace.note(epoch)
        bins, size_bytes = self.cluster.received()
        p50, p99, most = self.latencies.since_last(dict(engine.latency_buckets()[0]))
        stops_early = self.ends is not None and self.ends.stops_early
        assert self.tasks is not None
        tasks = self.tasks.reports()
        cpu = self.tasks.cpu(tasks)
        return NodeReport(
            phase="failed" if broken else self.phase(over, error, refused),
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
            tasks=tasks,
            other_cpu_s=cpu.other_s,
            rest_cpu_s=cpu.rest_s,
            sources=measured.reports() if measured is not None else (),
            p50_ms=p50,
            p99_ms=p99,
            max_ms=most,
            links_down=tuple(self.cluster.down_peers()),
            error=error or refused,
            lost_peer=bool(refused) and not error,
            satisfied=over and not error and stops_early,
            **own,
        )

    def pool_cpu_s(self) -> float:
        pool = self.pool()
        return pool.cpu_s() if pool is not None else 0.0

    def most_cores(self) -> float:
        """What its threads and worker processes can use."""
        pool = self.pool()
        processes = pool.processes if pool is not None else 0
        return float(min(self.processors.cores, self.settings.threads + processes))

    def pool(self) -> Pool | None:
        parts = self.parts
        return parts.pools.pool if parts is not None and parts.pools is not None else None

    def checkpoint_report(self) -> dict[str, Any]:
        if self.keeper is None:
            return {}
        told = self.keeper.told
        return {
            "attempt": self.keeper.attempt,
            "restored": told.restored,
            "saved": told.saved,
            "save_failed": told.save_failed,
            "save_error": told.save_error,
            "finished": tuple(told.finished.values()),
        }

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
        if self.done is not None:
            return
        if self.parts is None:
            self.done = self.finished_outcome(good)
            self.leave_folder()
            return
        engine = self.parts.engine
        if self.elastic is not None:
            self.elastic.stop()
        if self.measured is not None:
            self.measured.stop()
        if self.saver is not None and self.saver.committer is not None:
            self.saver.committer.end(HALT_S)
        seconds = time.perf_counter() - self.began if self.begun else 0.0
        natural = engine.wait(0.0)
        engine.abort()
        self.cluster.close()
        if not natural:
            engine.interrupt_python()
        self.parts.end(grace_s=0.0)
        self.done = self.outcome_of(engine, good and natural, seconds)
        self.leave_folder()

    def leave_folder(self) -> None:
        """Another run may have the checkpoints now."""
        if self.keeper is not None:
            self.keeper.leave()

    def finished_outcome(self, good: bool) -> NodeOutcome | None:
        """Of a job whose checkpoint says that it is finished: what it gave then."""
        keeper = self.keeper
        manifest = None if keeper is None else keeper.manifest
        if keeper is None or keeper.claim is None or manifest is None:
            return None
        if not good or not manifest.finished:
            return None
        restored = restore(self.graph, keeper.ids, manifest, keeper.claim.run)
        outputs = show_outputs(self.graph, keeper.ids, restored, keeper.folder, manifest)
        counts = [restored.counts[id] for id in keeper.ids]
        account, operators = tally(self.graph, counts, {})
        return NodeOutcome(
            rank=self.rank,
            seconds=0.0,
            account=account,
            operators=operators,
            outputs=outputs,
            attempt=keeper.claim.attempt,
            restored=history_of(manifest),
        )

    def outcome_of(self, engine: NativeEngine, good: bool, seconds: float) -> NodeOutcome:
        assert self.ends is not None
        assert self.parts is not None
        failure = engine.error()
        error: BaseException | None = None
        if failure is not None:
            error = error_of(failure, self.graph)
        elif refused := self.cluster.refusal():
            error = StateError(f"state could not move between the nodes: {refused}")
        elif self.broken:
            error = BreakerError(self.broken)
        outputs: dict[str, Any] = {}
        try:
            self.collect_letters()
            outputs = self.ends.close(good and error is None, self.parts)
        except Exception as closing:
            error = error or closing
        finally:
            if self.letters is not None:
                self.letters.close(good and error is None)
        error = error or self.parts.closing_error
        saver = self.saver
        counts = [
            engine.counts(i) if saver is None else saver.total(i)
            for i in range(len(self.graph.operators))
        ]
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
            keeps=keep_steps(self.graph, engine.keeps()),
            rates=self.measured.reports() if self.measured is not None else (),
            tasks=self.tasks.uses() if self.tasks is not None else (),
            other_cpu_s=self.other_cpu_s(),
            attempt=0 if saver is None else saver.claim.attempt,
            left_at=self.left_at,
            restored=() if self.keeper is None else self.keeper.history,
        )

    def other_cpu_s(self) -> float:
        return 0.0 if self.tasks is None else self.tasks.cpu(self.tasks.reports()).other_s

    def outcome(self) -> NodeOutcome | None:
        """This node's part of the result; None before it was told to end."""
        return self.done

    def close(self) -> None:
        """Leaves nothing behind."""
        with self.lock:
            self.end(False)
            self.cluster.close()
            if self.keeper is not None:
                self.keeper.close()
            if self.tunnel is not None:
                self.tunnel.close()
