"""EngineHost: the engine of a node with its links and ends: built, loaded, dropped, and built anew.

A job with checkpoints has several attempts in one process: after a loss the engine and the links
are dropped (`halt`), and the next attempt builds them again and loads a checkpoint, with a token of
its own, so that nothing of the attempt before can reach it. The process, its address and what it
has imported stay. `NodeAgent` carries out commands with it, one at a time.
"""

from __future__ import annotations

import pickle
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from plait.checkpoints.manifests import Claim
from plait.errors import StateError
from plait.graph.checkpoint_rules import repeats
from plait.graph.stages import make_pipeline
from plait.node_runtime.assembly.build import build
from plait.node_runtime.assembly.engine_parts import EngineParts, Seat
from plait.node_runtime.assembly.task_loads import TaskLoads
from plait.node_runtime.host.checkpoint_keeper import (
    EPOCH_RECORDS,
    CheckpointKeeper,
    history_of,
)
from plait.node_runtime.host.choosing import deciders_of
from plait.node_runtime.host.committing import make_committer
from plait.node_runtime.host.endpoints import Ends, open_ends
from plait.node_runtime.host.restoring import is_owned, put_bins, put_rows, restore
from plait.node_runtime.host.saving import Saver
from plait.node_runtime.host.source_rates import SourceRates
from plait.node_runtime.native._cluster import NativeCluster
from plait.protocol.messages import EVERYONE, Answer, Done, Peer, Prepare, Refused
from plait.results.breaker import make_breaker
from plait.results.failures import Letters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.graph.operators import Graph
    from plait.model.settings import Settings
    from plait.node_runtime.elastic.watch import ElasticWatch
    from plait.node_runtime.host.committing import Committer
    from plait.node_runtime.host.restoring import Restored
    from plait.node_runtime.host.tls_tunnel import TlsTunnel
    from plait.results.breaker import Breaker

NO_CHECKPOINTS = "this job has no checkpoints"
HALT_S = 10.0
"""How long a node that is to halt waits for what it is writing."""
JOIN_S = 60.0
"""A node that joins must have read so soon how rows and epochs go together."""


class EngineHost:
    """The engine of a node, if it has one now."""

    def __init__(
        self,
        rank: int,
        payload: bytes | list[Any],
        token: str,
        listen_host: str,
        tunnel: TlsTunnel | None,
    ) -> None:
        self.rank = rank
        self.graph: Graph
        self.settings: Settings
        self.graph, self.settings, url = load_job(payload)
        self.keeper: CheckpointKeeper | None = None
        if url:
            self.keeper = CheckpointKeeper(self.graph, self.settings, url, rank)
        self.token = token
        self.cluster = NativeCluster(rank, self.graph.name, token)
        self.tunnel = tunnel
        self.listen_host = "127.0.0.1" if tunnel else listen_host
        self.port = port = self.cluster.listen(self.listen_host)
        if tunnel is not None:
            port = tunnel.serve(listen_host, 0, port)
        self.address = Peer(rank=rank, host=listen_host, port=port)
        self.known: set[int] = set()
        self.parts: EngineParts | None = None
        self.ends: Ends | None = None
        self.letters: Letters | None = None
        self.letters_lock = threading.Lock()
        """The keeper's thread sees to dead letters, too."""
        self.elastic: ElasticWatch | None = None
        self.measured: SourceRates | None = None
        self.tasks: TaskLoads | None = None
        self.saver: Saver | None = None
        self.loading = 0
        """The attempt for which a checkpoint is loaded."""
        self.first_epoch = 0
        self.records = self.settings.epoch_records
        """Of each source in an epoch, where a layout does not say it."""
        self.leaving = False
        self.left_at = 0
        self.begun = False
        self.rounds: dict[int, Answer] = {}
        """Answers to the promises of the last rounds."""
        self.committed = -1
        """The last round that was committed or lifted."""
        self.failing_since = 0.0
        self.breaker: Breaker | None = None
        self.broken = ""
        """Why the breaker has ended the job."""
        self.read_here: dict[int, int] = {}
        self.read_by_all = 0
        """By sources: the records read by this node; and by all nodes, as far as it is known."""
        self.members = 1
        self.shared: set[int] = set()
        """The sources that all nodes read."""

    def prepare(self, command: Prepare) -> Answer:
        if command.restore is not None:
            return self.prepare_to_load(command)
        if self.parts is None:
            with ExitStack() as undo:
                self.build(command, {}, None, undo)
                assert self.parts is not None
                self.parts.start()
                undo.pop_all()
        return self.connect(command.peers)

    def build(
        self,
        command: Prepare,
        positions: Mapping[str, Any],
        restored: Restored | None,
        undo: ExitStack,
    ) -> None:
        """The engine, with the ends that this node has."""
        here = {
            op
            for number, op in enumerate(self.graph.sources)
            if command.layout.readers[number] in (EVERYONE, self.rank)
        }
        if self.settings.order == "key" or self.rank == command.home:
            here.update(self.graph.sinks)
        resumes = None if restored is None else restored.resumes
        self.ends = open_ends(self.graph, positions, here, resumes)
        undo.callback(self.ends.abort)
        if here.intersection(self.graph.sinks):
            self.letters = Letters(self.graph, None if restored is None else restored.letters)
            undo.callback(self.letters.close, False)
            self.breaker = make_breaker(self.settings)
            self.letters.breaker = self.breaker
        self.read_here = dict.fromkeys(self.graph.sources, 0)
        self.read_by_all = 0
        self.members = len(command.layout.members)
        self.shared = {
            op
            for number, op in enumerate(self.graph.sources)
            if command.layout.readers[number] == EVERYONE
        }
        seat = Seat(cluster=self.cluster, rank=self.rank, home=command.home)
        pipeline = make_pipeline(self.graph, self.settings.fuse)
        self.parts = build(pipeline, self.settings, self.ends.sources, self.ends.sinks, seat)
        undo.callback(self.parts.stop_helpers)
        self.tasks = TaskLoads(pipeline, self.settings, self.parts, self.ends.cpu_s)
        self.cluster.hold(self.parts.engine)
        self.measured = SourceRates(
            self.graph, self.ends.sources, self.ends.gauges, self.parts.engine
        )

    def prepare_to_load(self, command: Prepare) -> Answer:
        """Builds the engine and loads a checkpoint into it, later: the report says when."""
        keeper = self.keeper
        if keeper is None:
            return Refused(reason=NO_CHECKPOINTS)
        if command.attempt < keeper.attempt:
            return Refused(reason=f"attempt {command.attempt} is over")
        if command.attempt > self.loading:
            keeper.begin_attempt(command.attempt)
            self.loading = command.attempt
            if command.token and command.token != self.token:
                self.cluster.close_door()
                self.token = command.token
                self.cluster = NativeCluster(self.rank, self.graph.name, command.token)
                self.cluster.listen(self.listen_host, self.port)
                self.known = set()
            told = keeper.told

            def action() -> None:
                try:
                    self.load(command)
                    told.restored = command.attempt
                except Exception as error:
                    told.load_error = f"{type(error).__name__}: {error}".split("\n")[0]

            keeper.do(action)
        if self.rank not in command.layout.owners and not keeper.wait_idle(JOIN_S):
            # One that joins is told to begin when it has answered: it must be able to.
            return Refused(reason=f"no checkpoint could be read within {JOIN_S:g} s")
        return self.connect(command.peers)

    def load(self, command: Prepare) -> None:
        """In the keeper's thread."""
        keeper, wanted = self.keeper, command.restore
        assert keeper is not None
        assert wanted is not None
        claim = Claim(job=self.graph.name, lineage=wanted.lineage, attempt=wanted.claim)
        owners = tuple(command.layout.owners)
        loads = self.rank in owners
        # One that joins owns nothing yet: any checkpoint tells it how rows and epochs go together,
        # and the one that the others began with may be gone.
        which = wanted.number if loads else keeper.folder.manifests()[0].id
        manifest = keeper.folder.read(which)
        if loads and manifest.epoch != wanted.epoch:
            raise StateError(
                f"{manifest.id} is at boundary {manifest.epoch}, not {wanted.epoch}: the folder was"
                " replaced"
            )
        is_home = self.rank == command.home
        chosen = keeper.chosen if is_home else None
        if is_home and loads and chosen is None and deciders_of(self.graph, keeper.ids):
            raise StateError("another node has asked the sinks that decide how far they are")
        restored = restore(self.graph, keeper.ids, manifest, claim.run, chosen)
        shared = {
            self.graph.operators[op].label  # type: ignore[union-attr]
            for number, op in enumerate(self.graph.sources)
            if command.layout.readers[number] == EVERYONE
        }
        positions = {
            label: None if label in shared else at for label, at in restored.positions.items()
        }
        records = self.records = (
            command.layout.epoch_records
            or int(manifest.settings.get(EPOCH_RECORDS, 0))
            or self.settings.epoch_records
        )
        with ExitStack() as undo:
            self.build(command, positions, restored, undo)
            parts, ends = self.parts, self.ends
            assert parts is not None
            assert ends is not None
            if not is_home:
                keeper.folder.unlock()  # it may have been home before
            saver = Saver(
                graph=self.graph,
                ids=keeper.ids,
                parts=parts,
                ends=ends,
                letters=self.letters,
                folder=keeper.folder,
                claim=claim,
                rank=self.rank,
                base=restored.counts if is_home else {},
            )
            if repeats(self.graph):
                saver.committer = self.make_committer(restored, saver) if is_home else None
                parts.engine.keep_cuts(is_home)
            parts.engine.keep_positions()
            parts.engine.slice_from(manifest.epoch, restored.rows, records)
            restored.put_into(parts)
            if loads:
                mine = is_owned(self.graph, owners, self.rank)
                put_bins(
                    self.graph,
                    keeper.ids,
                    parts,
                    keeper.folder,
                    manifest,
                    self.settings.bin_bits,
                    mine,
                )
            put_rows(restored, keeper.ids, saver, ends, manifest)
            if self.letters is not None:
                self.letters.go_on_from(manifest.letters)
            keeper.claim, keeper.manifest, keeper.parent = claim, manifest, manifest.id
            keeper.unsure = False
            keeper.epoch_records = records
            began = {claim.attempt: wanted.epoch, **dict(history_of(manifest))}
            keeper.history = tuple(sorted(began.items()))
            keeper.saver, keeper.collect = saver, self.collect_letters
            self.saver = saver
            parts.start()
            if saver.committer is not None:
                saver.committer.begin()
            undo.pop_all()

    def make_committer(self, restored: Restored, saver: Saver) -> Committer:
        """Sinks that commit between checkpoints do it by what has come to them: no other node is
        asked."""
        keeper = self.keeper
        assert keeper is not None
        told = keeper.told

        def fail(error: Exception) -> None:
            told.commit_error = f"a sink could not make its output visible: {error}".split("\n")[0]

        return make_committer(
            self.graph,
            keeper.ids,
            saver.parts,
            saver.ends,
            base=restored.epoch,
            delivered={} if keeper.chosen is None else keeper.chosen.delivered,
            fail=fail,
            again=restored.choices,
        )

    def collect_letters(self) -> None:
        """Takes the new dead letters from the engine."""
        with self.letters_lock:
            if self.letters is not None and self.parts is not None:
                self.letters.collect(self.parts.engine.letters())

    def breaks(self) -> str:
        """Why too many records became dead letters, if they did. All letters come to the node with
        the sinks, and so do the records of most sources; of one that all nodes read they have equal
        shares."""
        if self.breaker is None or self.broken or self.letters is None or self.parts is None:
            return self.broken
        for op, before in self.read_here.items():
            now = self.parts.engine.counts(op)[0]
            self.read_by_all += (now - before) * (self.members if op in self.shared else 1)
            self.read_here[op] = now
        with self.letters_lock:
            self.letters.note(self.parts.engine.letters())
            self.broken = self.breaker.look(time.monotonic(), self.read_by_all)
        return self.broken

    def halt(self, attempt: int) -> Answer:
        """Drops the engine and its links; the process stays for the next attempt."""
        keeper = self.keeper
        if keeper is None:
            return Refused(reason=NO_CHECKPOINTS)
        if attempt > keeper.attempt:
            keeper.begin_attempt(attempt)
            if self.parts is not None:
                self.parts.engine.abort()
            keeper.wait_idle(HALT_S)
            self.drop_engine()
        return Done()

    def drop_engine(self) -> None:
        parts, ends = self.parts, self.ends
        if self.elastic is not None:
            self.elastic.stop()
        if self.measured is not None:
            self.measured.stop()
        if self.saver is not None and self.saver.committer is not None:
            self.saver.committer.end(HALT_S)
        self.cluster.close()
        if parts is not None:
            parts.engine.abort()
            parts.engine.interrupt_python()
            parts.end(grace_s=0.0)
        if ends is not None:
            ends.abort()
        if self.letters is not None:
            self.letters.close(False)
        self.cluster.close_door()
        self.cluster.hold(None)
        self.parts = self.ends = self.letters = self.elastic = self.saver = None
        self.measured = None
        self.leaving = self.begun = False
        self.rounds, self.committed = {}, -1
        self.failing_since = 0.0
        self.token = ""
        self.known = set()

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


def load_payload(payload: bytes | list[Any]) -> tuple[Graph, Settings]:
    """A job, from its bytes or from its parts."""
    return load_job(payload)[:2]


def load_job(payload: bytes | list[Any]) -> tuple[Graph, Settings, str]:
    """A job, and where it keeps its checkpoints; empty: nowhere."""
    main, *buffers = [payload] if isinstance(payload, bytes) else payload
    graph, settings, *url = pickle.loads(main, buffers=buffers)
    return graph, settings, url[0] if url else ""
