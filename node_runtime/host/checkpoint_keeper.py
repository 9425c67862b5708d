"""A node's side of checkpoints: saves its part at a mark, and keeps the job's folder if it is home.

Everything that waits for a store or a sink runs here, in one thread, in the order it was asked
for: saving at a mark, loading before the start, the slow commands of `checkpoint_messages`. What
came of it is told in reports. A new attempt ends the one before: what is left of its work comes to
nothing.
"""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from plait.checkpoints.job_folder import InUse, JobFolder, Overtaken
from plait.checkpoints.manifests import PartRef as StoredPart
from plait.checkpoints.manifests import SourceEntry
from plait.checkpoints.owners import this_process
from plait.checkpoints.store import StoreFailed, open_store
from plait.errors import EnvironmentFailure, StateError
from plait.graph.operator_ids import operator_ids
from plait.node_runtime.host.choosing import CUTS, choose_manifest
from plait.node_runtime.host.endpoints import open_ends
from plait.node_runtime.host.manifest_making import check_fit, make_manifest, plans_before
from plait.node_runtime.host.releasing import release_sources
from plait.node_runtime.host.restoring import SLICES
from plait.node_runtime.host.state_entries import state_entries
from plait.node_runtime.state.saved_bins import group_of
from plait.protocol.checkpoint_messages import (
    Finished,
    Mark,
    PartRef,
    Publish,
    Retire,
    Seal,
    Survey,
    Surveyed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plait.checkpoints.manifests import Claim, Manifest, ManifestId, Part
    from plait.graph.operators import Graph
    from plait.model.settings import Settings
    from plait.node_runtime.host.choosing import Chosen
    from plait.node_runtime.host.saving import Saver
    from plait.node_runtime.native._control import ControlItem

TICK_S = 0.2
LEAVE_S = 2.0
HISTORY = "history"
"""The setting of a manifest that says at which epoch each attempt began, by its claim."""
EPOCH_RECORDS = "epoch_records"
"""The setting of a manifest that says how many records of a source an epoch has on nodes."""


@dataclass(slots=True)
class Told:
    """What reports say of checkpoints; of one attempt."""

    restored: int = 0
    saved: PartRef | None = None
    save_failed: int = 0
    save_error: str = ""
    finished: dict[str, Finished] = field(default_factory=dict)
    load_error: str = ""
    commit_error: str = ""
    """Why a sink could not commit between two checkpoints."""


class CheckpointKeeper:
    """The checkpoints of a job, as one of its nodes sees them."""

    def __init__(self, graph: Graph, settings: Settings, url: str, rank: int) -> None:
        self.graph = graph
        self.settings = settings
        self.rank = rank
        self.ids = operator_ids(graph)
        self.entries = state_entries(graph, self.ids)
        self.folder = JobFolder(open_store(url), graph.name)
        self.attempt = 0
        self.claim: Claim | None = None
        self.manifest: Manifest | None = None
        """The checkpoint that the attempt goes on from."""
        self.parent: ManifestId | None = None
        self.unsure = False
        """A seal failed, and may have come through all the same."""
        self.chosen: Chosen | None = None
        """What the survey of this node found: how far the deciders are, and what is repeated."""
        self.saver: Saver | None = None
        self.collect: Callable[[], None] = lambda: None
        """Takes the dead letters out of the engine."""
        self.slices: dict[int, list[int]] = {}
        self.epoch_records = 0
        self.history: tuple[tuple[int, int], ...] = ()
        """The epoch at which each attempt began, by its claim."""
        self.boundaries: dict[int, int] = {}
        """Of each checkpoint that was sealed here: its epoch."""
        self.told = Told()
        self.marked = 0
        """The newest mark: parts of older ones are not wanted any more."""
        self.todo: queue.SimpleQueue[tuple[int, Callable[[], None]] | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self.work, name=f"plait-keeper-{rank}", daemon=True)
        self.thread.start()

    def work(self) -> None:
        """The thread."""
        while (entry := self.todo.get()) is not None:
            attempt, action = entry
            if attempt == self.attempt:
                action()

    def do(self, action: Callable[[], None]) -> None:
        """Later, in the thread, unless the attempt is over by then."""
        self.todo.put((self.attempt, action))

    def begin_attempt(self, attempt: int) -> None:
        """What was asked for before comes to nothing."""
        if attempt > self.attempt:
            self.attempt = attempt
            self.told = Told()
            self.saver = None
            self.chosen = None
            self.boundaries = {}

    def wait_idle(self, seconds: float) -> bool:
        """Waits until what the thread is at has come to its end; False: it has not."""
        idle = threading.Event()
        self.todo.put((self.attempt, idle.set))
        return idle.wait(seconds)

    def close(self) -> None:
        """The thread ends when it has done what it is at, and others may use the folder."""
        self.attempt = -1
        self.todo.put((-1, self.folder.leave))
        self.todo.put(None)

    def leave(self) -> None:
        """The job is over here: others may use the folder. A store that is away is not waited for
        for long: then who comes next looks whether somebody is here."""
        self.do(self.folder.leave)
        self.wait_idle(LEAVE_S)

    # Saving, on every node.

    def save(self, mark: Mark, item: ControlItem | None) -> None:
        """A mark was put into the stream, or the node is at its end."""
        self.marked = mark.number
        attempt, told = self.attempt, self.told

        def action() -> None:
            saver = self.saver
            assert saver is not None
            try:
                ref = self.write_part(saver, mark, item, attempt)
            except Exception as error:
                told.save_failed = mark.number
                told.save_error = in_words(error)
                return
            if ref is not None and mark.number == self.marked:
                told.saved = ref

        self.do(action)

    def write_part(
        self, saver: Saver, mark: Mark, item: ControlItem | None, attempt: int
    ) -> PartRef | None:
        engine = saver.parts.engine
        if item is None:
            if saver.committer is not None:
                saver.committer.end()
            self.collect()
            if saver.letters is not None:
                saver.letters.mark(mark.epoch)
            ref = saver.save_end(mark.number, mark.epoch)
        else:
            while not engine.wait_control(item, TICK_S):
                if self.attempt != attempt:
                    return None
                if engine.wait(0.0) and not engine.wait_control(item, 0.0):
                    raise StateError("the node ended before the mark had passed it")
            self.collect()
            if saver.letters is not None:
                saver.letters.mark(mark.epoch)
            saver.confirm_sealed()
            ref = saver.save(mark.number, item)
            self.slices[mark.number] = item.slices()
        return PartRef(
            number=mark.number,
            rank=self.rank,
            path=ref.path,
            digest=ref.digest.hex(),
            size_bytes=saver.written_bytes,
            file_bytes=ref.size_bytes,
        )

    # Slow commands, at home.

    def carry_out(self, command: Seal | Publish | Retire | Survey) -> None:
        """Later; `Told.finished` says when."""
        told = self.told
        what = type(command).__name__.lower()
        number = command.attempt if isinstance(command, Survey) else command.number

        def action() -> None:
            found: Surveyed | None = None
            error, fatal, lost_claim = "", False, False
            try:
                match command:
                    case Seal():
                        self.seal(command)
                    case Publish():
                        self.publish(command)
                    case Retire():
                        retired = self.folder.retire(command.keep)
                        release_sources(self.graph, self.ids, retired.kept)
                    case Survey():
                        found = self.survey(command)
            except Exception as raised:
                error = in_words(raised)
                lost_claim = isinstance(raised, Overtaken) or (
                    not isinstance(raised, InUse) and self.has_lost_claim()
                )
                passing = isinstance(raised, StoreFailed | EnvironmentFailure | OSError)
                fatal = not passing and not lost_claim
            told.finished[what] = Finished(
                what=what,  # type: ignore[arg-type]
                number=number,
                error=error,
                fatal=fatal,
                lost_claim=lost_claim,
                found=found,
            )

        self.do(action)

    def has_lost_claim(self) -> bool:
        """Whether a newer attempt has claimed the folder: a survey that came through late, or
        another run. The next attempt claims it anew, unless that run lives (`InUse`)."""
        try:
            return self.claim is not None and not self.folder.is_current(self.claim)
        except StateError:
            return False

    def survey(self, command: Survey) -> Surveyed:
        """Claims the folder, asks the deciders, and chooses the checkpoint to go on from."""
        owner = this_process(command.run, f"node-{self.rank}") if command.run else None
        self.claim = self.folder.claim(command.lineage or None, owner)
        chosen = choose_manifest(self.graph, self.ids, self.folder, command.start)
        self.chosen, manifest = chosen, chosen.manifest
        if manifest is not None:
            check_fit(manifest, self.entries, self.graph.dropped)
        self.folder.choose(self.claim, None if manifest is None else manifest.id)
        if manifest is None:
            manifest = self.start_manifest(self.claim)
            self.folder.seal(manifest)
            release_sources(self.graph, self.ids, (manifest,))
        self.manifest, self.parent, self.unsure = manifest, manifest.id, False
        parts = [self.folder.read_part(ref) for ref in manifest.parts]
        sizes = bin_sizes(parts, manifest.bin_bits, self.settings.bin_bits)
        rows = {entry.id: entry.rows for entry in manifest.sources}
        return Surveyed(
            lineage=self.claim.lineage,
            claim=self.claim.attempt,
            number=manifest.number,
            epoch=manifest.epoch,
            newest=self.folder.newest_number(),
            finished=manifest.finished,
            bins=tuple(sizes),
            sizes=tuple(sizes.values()),
            first_rows=tuple(rows.get(self.ids[op], 0) for op in self.graph.sources),
            epoch_records=int(manifest.settings.get(EPOCH_RECORDS, 0)),
            positions=tuple(str(entry.position) for entry in manifest.sources),
            sealed_at=manifest.at,
        )

    def start_manifest(self, claim: Claim) -> Manifest:
        """Checkpoint 0: where the sources begin, before the first record is read."""
        ends = open_ends(self.graph, {}, set(self.graph.sources))
        try:
            sources = tuple(
                SourceEntry(id=self.ids[op], position=ends.first_position(op), rows=0)
                for op in self.graph.sources
            )
        finally:
            ends.abort()
        return self.manifest_of(claim, number=0, epoch=0, sources=sources)

    def seal(self, command: Seal) -> None:
        """Writes the manifest of the parts that all nodes have saved."""
        assert self.claim is not None
        refs = tuple(
            StoredPart(
                rank=part.rank,
                path=part.path,
                digest=bytes.fromhex(part.digest),
                size_bytes=part.file_bytes,
            )
            for part in command.parts
        )
        parts = [self.folder.read_part(ref) for ref in refs]
        if self.unsure:
            self.parent = self.folder.last_of(self.claim)
        manifest = self.manifest_of(
            self.claim,
            number=command.number,
            epoch=command.epoch,
            name=command.name,
            finished=command.finished,
            refs=refs,
            parts=parts,
        )
        self.unsure = True
        self.folder.seal(manifest)
        self.unsure = False
        self.parent = manifest.id
        self.boundaries[command.number] = command.epoch
        self.slices.pop(command.number, None)

    def publish(self, command: Publish) -> None:
        """Output before the checkpoint becomes visible: deciders first, then followers."""
        assert self.claim is not None
        assert self.saver is not None
        self.folder.check_current(self.claim)
        self.saver.commit(self.boundaries[command.number])

    def manifest_of(
        self,
        claim: Claim,
        *,
        number: int,
        epoch: int,
        sources: tuple[SourceEntry, ...] = (),
        name: str = "",
        finished: bool = False,
        refs: tuple[StoredPart, ...] = (),
        parts: Sequence[Part] = (),
    ) -> Manifest:
        settings: dict[str, Any] = {
            EPOCH_RECORDS: self.epoch_records,
            HISTORY: [list(entry) for entry in self.history],
        }
        if slices := self.slices.get(number):
            settings[SLICES] = list(slices)
        committer = None if self.saver is None else self.saver.committer
        if parts and committer is not None:
            settings[CUTS] = committer.cuts_before(epoch, at_end=finished)
        if parts and self.saver is not None:
            plans = self.saver.parts.engine.keeps()
            settings |= plans_before(self.graph, self.ids, plans, epoch)
        return make_manifest(
            claim,
            self.entries,
            bin_bits=self.settings.bin_bits,
            number=number,
            parent=self.parent if number else None,
            epoch=epoch,
            name=name,
            finished=finished,
            refs=refs,
            parts=parts,
            sources=sources,
            settings=settings,
        )


def history_of(manifest: Manifest) -> tuple[tuple[int, int], ...]:
    """At which epoch each attempt before began, by its claim."""
    return tuple((claim, epoch) for claim, epoch in manifest.settings.get(HISTORY, ()))


def bin_sizes(parts: list[Part], old_bits: int, new_bits: int) -> dict[int, int]:
    """The bytes of each bin of the job, over all operators; about those where its bins are others
    than those of the checkpoint."""
    sizes: dict[int, int] = {}
    more = max(0, new_bits - old_bits)
    for part in parts:
        for ref in part.bins:
            first = group_of(ref.bin, old_bits, new_bits) << more
            for bin in range(first, first + (1 << more)):
                sizes[bin] = sizes.get(bin, 0) + (ref.size >> more)
    return dict(sorted(sizes.items()))


def in_words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".split("\n")[0]
