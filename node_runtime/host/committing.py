"""Sinks that commit between checkpoints, and the cuts that make their output repeatable.

A sink whose `commit` says so is marked every now and then at the boundary up to which everything
has come to it, and commits there at once; nothing else in the job takes part, so on nodes the one
with the sinks decides alone. What the sources put into the epochs since the last checkpoint goes
along as notes, in the sink's own transaction: after a crash the job goes on from the checkpoint,
repeats these epochs without output, and is where the sink is. In a job with several deciders the
same cuts go into the manifest, because a crash may come between two of their commits.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from plait.checkpoints.cuts import encode_piece, finish, from_log, join_pieces
from plait.errors import SinkError
from plait.graph.checkpoint_rules import commit_seconds, committers, deciders, sink_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from plait.checkpoints.choices import ChoiceLog
    from plait.checkpoints.cuts import Cuts
    from plait.graph.operators import Graph
    from plait.node_runtime.assembly.engine_parts import EngineParts
    from plait.node_runtime.host.endpoints import Ends
    from plait.results.failures import Letters

BUSY, EVERYTHING = -1, (1 << 64) - 1
BUSY_S = 0.0005
"""How soon a sink is asked again that is within an epoch ..."""
PATIENCE_S = 0.02
"""... and for how long: the rest of the epoch may be long in coming."""
LEAVE_S = 10.0
"""How long a worker may take to leave a sink when the run is over."""
NOTES_BYTES = 1 << 19
"""Longer notes ask for a checkpoint, with which they are short again."""


class CutShort(SinkError):
    """The run was over before a sink could commit a checkpoint that is sealed. The end of the run,
    or the next start, brings the sink there."""


@dataclass(slots=True, kw_only=True)
class Committer:
    """The commits of one engine between checkpoints, and its cuts since the last one."""

    graph: Graph
    ids: Sequence[str]
    parts: EngineParts
    ends: Ends
    base: int
    """The boundary of the last checkpoint that all sinks have committed."""
    fail: Callable[[Exception], None]
    """Told of what a commit raised: the run cannot go on."""
    hurry: Callable[[], None] = lambda: None
    """Asks for a checkpoint."""
    at: dict[int, int] = field(default_factory=dict)
    """Of each sink that commits: the boundary where it is."""
    pieces: list[tuple[int, bytes]] = field(default_factory=list)
    """Cuts since the last checkpoint: the first epoch behind them, and their bytes."""
    next: dict[int, int] = field(default_factory=dict)
    """Of each source: the epoch of the first cut that is in no piece."""
    choices: Mapping[int, ChoiceLog] = field(default_factory=dict)
    """Of sources whose order is not always the same: what their readers chose ..."""
    chosen: dict[int, int] = field(default_factory=dict)
    """... how many choices are in pieces ..."""
    chosen_at_base: dict[int, int] = field(default_factory=dict)
    """... and how many were made before the last checkpoint."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Held while a sink is marked and commits."""
    wake: threading.Event = field(default_factory=threading.Event)
    ended: bool = False
    thread: threading.Thread | None = None

    @property
    def sinks(self) -> list[int]:
        """Those that commit between checkpoints, here."""
        return [op for op in committers(self.graph) if op in self.ends.writers]

    def begin(self) -> None:
        """The engine runs."""
        if self.sinks:
            self.thread = threading.Thread(target=self.work, name="plait-committer", daemon=True)
            self.thread.start()

    def end(self, seconds: float | None = None) -> None:
        """From now on sinks are committed at checkpoints only; waits for a commit that is under
        way, at most so long."""
        self.ended = True
        self.wake.set()
        if self.thread is not None and self.thread is not threading.current_thread():
            self.thread.join(seconds)

    def work(self) -> None:
        """The thread."""
        every = {op: commit_seconds(sink_of(self.graph, op)) for op in self.sinks}
        due = {op: time.monotonic() + seconds for op, seconds in every.items()}
        while not self.ended:
            op = min(due, key=lambda each: due[each])
            self.wake.wait(max(0.0, due[op] - time.monotonic()))
            if self.ended:
                return
            try:
                self.commit(op)
            except Exception as error:
                self.ended = True
                self.fail(error)
                return
            due[op] = time.monotonic() + every[op]

    def commit(self, op: int, patience_s: float = PATIENCE_S) -> int:
        """Makes visible what has come to a sink, up to the last whole epoch; the boundary."""
        with self.lock:
            boundary = 0 if self.ended else self.mark(op, patience_s)
            if boundary > 0:
                try:
                    self.ends.writers[op].commit(boundary, self.notes(boundary))
                except BaseException:
                    self.ended = True  # what it has is not known: nothing may follow
                    raise
                self.at[op] = boundary
            return self.at.get(op, 0)

    def mark(self, op: int, patience_s: float) -> int:
        """The boundary, or nothing above 0 if there is none."""
        engine, stage = self.parts.engine, self.parts.sink_stages[op]
        until = time.monotonic() + patience_s
        while True:
            left = engine.left()  # asked first: then nothing comes any more, and nobody is busy
            if (boundary := engine.mark_complete(stage)) != BUSY:
                return boundary
            if until == math.inf and engine.wait(0.0):
                until = time.monotonic() + LEAVE_S
            if left or self.ended or time.monotonic() > until:
                engine.want_no_mark(stage)
                return BUSY
            time.sleep(BUSY_S)

    def notes(self, boundary: int) -> bytes:
        """All cuts since the last checkpoint; only those are encoded that are new."""
        self.add_piece()
        notes = join_pieces((piece for _, piece in self.pieces), boundary)
        if len(notes) > NOTES_BYTES:
            self.hurry()
        return notes

    def add_piece(self) -> None:
        found: dict[str, Cuts] = {}
        for source, op in enumerate(self.graph.sources):
            first = self.next.get(source, self.base)
            cuts = from_log(self.parts.engine.cut_log(source, first, EVERYTHING))
            if cuts.rows:
                found[self.ids[op]] = self.with_choices(source, cuts, self.chosen.get(source, 0))
                self.next[source] = cuts.end
                self.chosen[source] = self.chosen.get(source, 0) + polls_in(cuts)
        if found:
            self.pieces.append((max(cuts.end for cuts in found.values()), encode_piece(found)))

    def with_choices(self, source: int, cuts: Cuts, first: int) -> Cuts:
        """The cuts with what the reader chose for them, from its choice `first` on."""
        log = self.choices.get(source)
        if log is None:
            return cuts
        made = iter(log.between(first, first + polls_in(cuts)))
        return replace(cuts, choices=tuple(next(made) if rows else b"" for rows in cuts.rows))

    def cuts_between(self, source: int, boundary: int) -> Cuts:
        """Those since the last checkpoint."""
        return from_log(self.parts.engine.cut_log(source, self.base, boundary))

    def cuts_before(self, boundary: int, *, at_end: bool = False) -> bytes:
        """For the manifest of a checkpoint: the cuts since the one before."""
        found = {
            self.ids[op]: self.with_choices(
                source, self.cuts_between(source, boundary), self.chosen_at_base.get(source, 0)
            )
            for source, op in enumerate(self.graph.sources)
        }
        if at_end:
            found = finish(found, boundary)
        return join_pieces([encode_piece(found)], boundary)

    def confirm(self, boundary: int) -> None:
        """All deciders have committed a checkpoint: what was before it is not repeated."""
        with self.lock:
            self.add_piece()
            for source, log in self.choices.items():
                polls = polls_in(self.cuts_between(source, boundary))
                made = self.chosen_at_base.get(source, 0) + polls
                self.chosen_at_base[source] = made
                log.drop(made)
            self.base = boundary
            self.pieces = [(end, piece) for end, piece in self.pieces if end > boundary]
            self.parts.engine.drop_cuts(boundary)


def polls_in(cuts: Cuts) -> int:
    """How many polls gave their rows: each that gives rows is an epoch."""
    return sum(1 for rows in cuts.rows if rows)


def make_committer(
    graph: Graph,
    ids: Sequence[str],
    parts: EngineParts,
    ends: Ends,
    *,
    base: int,
    delivered: Mapping[int, int],
    fail: Callable[[Exception], None],
    again: Sequence[Sequence[bytes]] = (),
    hurry: Callable[[], None] = lambda: None,
) -> Committer:
    """Before the start of the engine: its sources log their cuts from now on, and readers what they
    choose. `again`: of each source, what its reader is to choose again."""
    parts.engine.keep_cuts(True)
    choices = {}
    for source, op in enumerate(graph.sources):
        reader = ends.reader_of.get(op)
        if reader is None or not hasattr(reader, "log_choices"):
            continue
        log = reader.log_choices(again[source] if again else ())
        if log is not None:
            choices[source] = log
    return Committer(
        graph=graph,
        ids=ids,
        parts=parts,
        ends=ends,
        base=base,
        fail=fail,
        hurry=hurry,
        at=dict(delivered),
        choices=choices,
    )


def commit_sinks(
    committer: Committer | None,
    graph: Graph,
    writers: Mapping[int, Any],
    boundary: int,
    letters: Letters | None = None,
    *,
    at_end: bool = False,
) -> None:
    """A checkpoint is sealed: its output becomes visible. Deciders first, one after the other: what
    they keep is what counts. Dead letters are the last of them, or of all. `at_end`: the writers
    were marked at the boundary, those that commit between checkpoints, too."""
    first = [number for number in deciders(graph) if number in writers]
    for number in first:
        if committer is None or at_end or number not in committer.sinks:
            writers[number].commit(boundary)
        elif (at := committer.commit(number, patience_s=math.inf)) < boundary:
            raise CutShort(f"the run ended when the sink was at {at}, before {boundary}")
    if letters is not None and letters.decides:
        letters.commit(boundary)
    if committer is not None:
        committer.confirm(boundary)
    for number, writer in writers.items():
        if number not in first:
            writer.commit(boundary)
    if letters is not None and not letters.decides:
        letters.commit(boundary)
