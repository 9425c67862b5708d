"""The checkpoints of a run in this process: a thread that takes one after the other.

A checkpoint is: a mark through the job, the part of the engine in the store, the manifest that
makes it whole (sealed), then the sinks show their output (committed), then old ones are removed.
A crash anywhere leaves the last sealed one, and sinks that can be brought to it. A checkpoint that
cannot be written is given up and the job goes on; after `max_age` without one it stops.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from plait.checkpoints.job_folder import JobFolder, Overtaken
from plait.checkpoints.manifests import Manifest, SourceEntry
from plait.checkpoints.owners import this_process
from plait.checkpoints.store import StoreFailed, open_store
from plait.errors import CheckpointError, PlaitError, StateError
from plait.graph.checkpoint_rules import refuse_unsaveable, repeats
from plait.graph.operator_ids import operator_ids
from plait.node_runtime.host.choosing import CUTS, choose_manifest
from plait.node_runtime.host.committing import CutShort, make_committer
from plait.node_runtime.host.manifest_making import check_fit, make_manifest, plans_before
from plait.node_runtime.host.releasing import release_sources
from plait.node_runtime.host.restoring import (
    SLICES,
    Restored,
    put_bins,
    put_rows,
    restore,
    show_outputs,
)
from plait.node_runtime.host.saving import Saver
from plait.node_runtime.host.state_entries import state_entries
from plait.results.outcomes import tally
from plait.results.result import Latency, Result

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.checkpoints.config import Checkpoint
    from plait.checkpoints.manifests import ManifestId, PartRef
    from plait.graph.operators import Graph
    from plait.model.settings import Settings
    from plait.node_runtime.assembly.engine_parts import EngineParts
    from plait.node_runtime.host.committing import Committer
    from plait.node_runtime.host.endpoints import Ends
    from plait.node_runtime.native._control import ControlItem
    from plait.results.failures import Letters

LOG = logging.getLogger("plait.checkpoints")
TICK_S = 0.2
AGAIN_S = 1.0
"""The last checkpoint of a job that is at its end is tried again after so long at the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointStats:
    """Of the checkpoints that this run has taken."""

    taken: int = 0
    failed: int = 0
    last_number: int = 0
    last_bytes: int = 0
    """Written for the last one; what had not changed was not written again."""
    last_seconds: float = 0.0
    longest_hold_ms: float = 0.0
    """For which a checkpoint kept one holder of state from its work at a time."""
    error: str = ""
    """Why the last one that failed did."""


class Checkpointing:
    """The checkpoints of one run. Made before the ends are opened: it says where they go on."""

    def __init__(
        self, graph: Graph, settings: Settings, config: Checkpoint, start: str = ""
    ) -> None:
        refuse_unsaveable(graph, settings)
        self.graph = graph
        self.settings = settings
        self.config = config
        self.ids = operator_ids(graph)
        self.entries = state_entries(graph, self.ids)
        self.folder = JobFolder(open_store(config.url), graph.name)
        self.folder.lock()
        try:
            self.claim = self.folder.claim(None, this_process(secrets.token_hex(8)))
            self.chosen = choose_manifest(graph, self.ids, self.folder, start)
            self.manifest = self.chosen.manifest
            if self.manifest is not None:
                for told in check_fit(self.manifest, self.entries, graph.dropped):
                    LOG.warning("%s", told)
            self.restored = self.from_manifest()
            self.folder.choose(self.claim, None if self.manifest is None else self.manifest.id)
        except BaseException:
            self.folder.unlock()
            raise
        self.sealed: Manifest | None = self.manifest
        """The newest checkpoint that is known to be safe."""
        self.parent: ManifestId | None = None if self.manifest is None else self.manifest.id
        self.unsure = False
        """A seal failed, and may have come through all the same."""
        self.number = 0 if self.manifest is None else self.folder.newest_number()
        self.stats = CheckpointStats()
        self.saver: Saver
        self.committer: Committer | None = None
        self.collect: Callable[[], None]
        self.safe_at = time.monotonic()
        self.lock = threading.Lock()
        """Held while a checkpoint is taken."""
        self.wake = threading.Event()
        self.ending = False
        self.last = False
        """The next mark is the last: the sources stop there."""
        self.last_name = ""
        """The last checkpoint is a savepoint of this name, if there is one."""
        self.stopped_at_mark = False
        self.failure: PlaitError | None = None
        self.cut_short: CutShort | None = None
        """The run was over before a checkpoint was visible. If it came to its end, the last one
        makes all visible; if it failed, that is what is told."""
        self.thread = threading.Thread(target=self.work, name="plait-saver", daemon=True)

    def from_manifest(self) -> Restored:
        if self.manifest is not None:
            return restore(self.graph, self.ids, self.manifest, self.claim.run, self.chosen)
        nothing = Manifest(
            job=self.graph.name,
            lineage=self.claim.lineage,
            attempt=self.claim.attempt,
            number=0,
            parent=None,
            epoch=0,
        )
        return restore(self.graph, self.ids, nothing, self.claim.run)

    def attach(
        self, parts: EngineParts, ends: Ends, letters: Letters, collect: Callable[[], None]
    ) -> None:
        """Before the start: gives the engine its state, or notes where the job begins. `collect`
        takes the dead letters out of the engine."""
        self.collect = collect
        self.saver = Saver(
            graph=self.graph,
            ids=self.ids,
            parts=parts,
            ends=ends,
            letters=letters,
            folder=self.folder,
            claim=self.claim,
            base=self.restored.counts,
        )
        parts.engine.keep_positions()
        if repeats(self.graph):
            self.committer = self.saver.committer = make_committer(
                self.graph,
                self.ids,
                parts,
                ends,
                base=self.restored.epoch,
                delivered=self.chosen.delivered,
                fail=self.fail_committing,
                again=self.restored.choices,
                hurry=self.wake.set,
            )
        if self.manifest is None:
            self.seal_start(ends)
            return
        began = time.perf_counter()
        size = put_bins(
            self.graph, self.ids, parts, self.folder, self.manifest, self.settings.bin_bits
        )
        put_rows(self.restored, self.ids, self.saver, ends, self.manifest)
        self.restored.put_into(parts)
        letters.go_on_from(self.manifest.letters)
        LOG.info(
            "goes on from checkpoint %d: %.1f MB of state in %.2f s",
            self.manifest.number,
            size / 1e6,
            time.perf_counter() - began,
        )

    def finished_result(self) -> Result:
        """Of a job that had come to its end: what it gave then. Sinks show it, if they did not."""
        assert self.manifest is not None
        LOG.info("%s is finished: checkpoint %d", self.graph.name, self.manifest.number)
        restored = self.restored
        try:
            outputs = show_outputs(self.graph, self.ids, restored, self.folder, self.manifest)
        finally:
            self.close()
        counts = [restored.counts[id] for id in self.ids]
        account, operators = tally(self.graph, counts, {})
        return Result(
            job=self.graph.name,
            seconds=0.0,
            account=account,
            operators=operators,
            latency=Latency(p50_ms=0.0, p99_ms=0.0, p999_ms=0.0, max_ms=0.0),
            outputs=outputs,
        )

    def seal_start(self, ends: Ends) -> None:
        """Before the first record is read: the positions at which the sources begin."""
        sources = tuple(
            SourceEntry(id=self.ids[op], position=ends.first_position(op), rows=0)
            for op in self.graph.sources
        )
        manifest = self.manifest_of((), 0, sources=sources)
        self.folder.seal(manifest)
        self.sealed, self.parent = manifest, manifest.id
        release_sources(self.graph, self.ids, (manifest,))
        self.number = self.folder.newest_number()

    def begin(self) -> None:
        """Starts to take checkpoints; the engine runs."""
        self.safe_at = time.monotonic()
        self.thread.start()
        if self.committer is not None:
            self.committer.begin()

    def work(self) -> None:
        """The thread."""
        due = time.monotonic() + self.config.every_s
        while not self.ending:
            self.wake.wait(max(0.0, due - time.monotonic()))
            if self.ending:
                return
            self.wake.clear()
            self.try_to_take()
            if self.failure is not None or self.stopped_at_mark:
                return
            due = time.monotonic() + self.config.every_s

    def try_to_take(self) -> None:
        """Takes a checkpoint; one that cannot be written is given up, unless that went on for too
        long."""
        try:
            self.take(self.last_name if self.last else "")
        except Uncommitted as error:
            self.fail(error)
        except CutShort as error:
            self.cut_short = error
        except Exception as error:
            self.give_up(error)

    def give_up(self, error: Exception) -> None:
        words = f"{type(error).__name__}: {error}"
        self.stats = replace(self.stats, failed=self.stats.failed + 1, error=words)
        age_s = time.monotonic() - self.safe_at
        if self.last or age_s > self.config.max_age_s:
            self.fail(
                CheckpointError(
                    f"no checkpoint for {age_s:.0f} s (max_age is {self.config.max_age_s:.0f} s):"
                    f" {words}\n  the next start goes on from checkpoint"
                    f" {0 if self.parent is None else self.parent.number}"
                )
            )
        else:
            LOG.warning("checkpoint %d was given up: %s", self.number, words)

    def fail(self, error: PlaitError) -> None:
        """The run cannot go on."""
        self.failure = error
        self.saver.parts.engine.abort()
        self.saver.parts.engine.interrupt_python()

    def fail_committing(self, error: Exception) -> None:
        """A sink could not commit between two checkpoints."""
        self.fail(
            Uncommitted(
                f"a sink could not make its output visible: {error}\n  the next start goes on from"
                " where it is"
            )
        )

    def take(self, name: str = "") -> Manifest | None:
        """Takes a checkpoint now and waits for it; None: the job is at its end."""
        with self.lock:
            last = self.last
            began = time.perf_counter()
            before = self.saver.before
            item = self.saver.parts.engine.control(
                "mark",
                last=last,
                number=self.number + 1,
                since=0 if before is None else before.number,
            )
            if item is None or not self.arrives(item):
                return None
            self.stopped_at_mark = last
            self.collect()
            sealed = self.sealed
            if sealed is not None and sealed.epoch == item.epoch and not (name or last):
                # Nothing came since: that checkpoint is as new as another one would be.
                self.saver.counts_at_mark()
                self.safe_at = time.monotonic()
                return sealed
            self.number += 1
            letters = self.saver.letters
            if letters is not None:
                letters.mark(item.epoch)
            ref = self.saver.save(self.number, item)
            self.look_again()
            slices = item.slices()
            manifest = self.manifest_of((ref,), item.epoch, name=name, slices=slices)
            self.make_safe(manifest, time.perf_counter() - began)
            return manifest

    def arrives(self, item: ControlItem) -> bool:
        engine = self.saver.parts.engine
        while not engine.wait_control(item, TICK_S):
            if engine.wait(0.0):
                return engine.wait_control(item, 0.0)
        return True

    def take_end(self) -> None:
        """The sources have ended and the workers have left: everything becomes visible."""
        with self.lock:
            began = time.perf_counter()
            self.number += 1
            engine = self.saver.parts.engine
            # What is delivered up to the end of an earlier attempt ends there now, too.
            epoch = max(engine.next_epoch() + 1, self.restored.repeat_until)
            if self.saver.letters is not None:
                self.saver.letters.mark(epoch)
            ref = self.saver.save_end(self.number, epoch)
            self.look_again()
            manifest = self.manifest_of((ref,), epoch, finished=True)
            self.make_safe(manifest, time.perf_counter() - began)

    def look_again(self) -> None:
        """After a seal that failed: looks whether it came through. Its output was not shown, and
        belongs to the next checkpoint, which follows it."""
        if self.unsure:
            self.parent = self.folder.last_of(self.claim)
            self.unsure = False

    def make_safe(self, manifest: Manifest, seconds: float) -> None:
        """Seals the checkpoint, makes its output visible, and removes old ones."""
        self.check_current()
        self.unsure = True
        try:
            self.folder.seal(manifest)
        except Overtaken as error:
            raise Uncommitted(f"{error}; the next start goes on from there") from error
        self.unsure = False
        # And again: it counts only if it was there before anybody else began to look.
        self.check_current()
        self.saver.confirm()
        self.sealed, self.parent = manifest, manifest.id
        self.safe_at = time.monotonic()
        self.commit(manifest.epoch)
        written = self.saver.written_bytes
        self.stats = replace(
            self.stats,
            taken=self.stats.taken + 1,
            last_number=manifest.number,
            last_bytes=written,
            last_seconds=seconds,
            longest_hold_ms=max(self.stats.longest_hold_ms, self.saver.hold_ms),
        )
        LOG.info("checkpoint %d: %.1f MB in %.2f s", manifest.number, written / 1e6, seconds)
        try:
            retired = self.folder.retire(self.config.keep)
        except StateError as error:  # found again by the next one
            LOG.warning("old checkpoints could not be removed: %s", error)
        else:
            release_sources(self.graph, self.ids, retired.kept)

    def check_current(self) -> None:
        if not self.folder.is_current(self.claim):
            raise Uncommitted(
                f'another run of "{self.graph.name}" has taken over its checkpoints'
                f" ({self.folder.describe_owner()}); this one ends"
            )

    def commit(self, boundary: int) -> None:
        """The sinks show their output before the boundary."""
        try:
            self.saver.commit(boundary)
        except CutShort:
            raise
        except Exception as error:
            raise self.not_visible(error) from error

    def not_visible(self, error: Exception) -> Uncommitted:
        return Uncommitted(
            f"checkpoint {self.number} is sealed, but a sink could not make its output visible:"
            f" {error}\n  the next start brings it to where the checkpoint is"
        )

    def manifest_of(
        self,
        parts: tuple[PartRef, ...],
        epoch: int,
        *,
        name: str = "",
        finished: bool = False,
        sources: tuple[SourceEntry, ...] = (),
        slices: Any = (),
    ) -> Manifest:
        part = self.saver.part if parts else None
        settings: dict[str, Any] = {SLICES: list(slices)} if slices else {}
        if part is not None and self.committer is not None:
            settings[CUTS] = self.committer.cuts_before(epoch, at_end=finished)
        if part is not None:
            plans = self.saver.parts.engine.keeps()
            settings |= plans_before(self.graph, self.ids, plans, epoch)
        return make_manifest(
            self.claim,
            self.entries,
            bin_bits=self.settings.bin_bits,
            number=self.number,
            parent=self.parent,
            epoch=epoch,
            name=name,
            finished=finished,
            refs=parts,
            parts=() if part is None else (part,),
            sources=sources,
            settings=settings,
        )

    def stop(self) -> None:
        """The next mark comes at once and is the last: the sources stop there, windows stay open,
        and the next run goes on from there."""
        self.last = True
        self.wake.set()

    def end(self, *, good: bool) -> None:
        """When the workers have left; `good`: the sources came to their end."""
        self.ending = True
        self.wake.set()
        if self.thread.is_alive():
            self.thread.join()
        if self.committer is not None:
            self.committer.end()
        if good and self.stopped_at_mark and self.cut_short is not None:
            raise self.not_visible(self.cut_short)
        if not good or self.failure is not None or self.stopped_at_mark:
            return None
        while True:
            try:
                return self.take_end()
            except StoreFailed as error:  # all is done but this: worth waiting for
                self.give_up(error)
                if self.failure is not None:
                    raise self.failure from error
            self.wake.clear()
            self.wake.wait(min(self.config.every_s, AGAIN_S))

    def close(self) -> None:
        """Others may use the folder again."""
        self.folder.leave()


class Uncommitted(CheckpointError):
    """A checkpoint is safe, but its output is not visible, or no longer this run's to show."""
