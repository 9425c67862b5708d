"""A job with checkpoints on nodes in this process that are lost while it runs: no Ray.

`CrashingNodes` does by hand what the coordinator does: besides all that `Nodes` does it takes
checkpoints, step by step, and after a crash goes back to the last one: the survivors halt, a home
claims the folder and asks the sinks, all load what they own and begin. A crash is a node of which
nothing more is done: its engine is ended, its writers are dropped without `close` or `abort`.
Changes are given, or drawn from a seed; what was done is in the message when something goes wrong.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from plait.errors import InternalError
from plait.graph.operators import SourceOp
from plait.protocol.checkpoint_messages import Halt, Mark, Publish, Restore, Seal, Survey
from plait.protocol.messages import Begin, Commit, Done, End, Layout, Prepare
from plait.testing.changes import Crash, Leave, Save, draw_change, draw_crash
from plait.testing.nodes import Nodes, settings_on_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from plait.graph.operators import Graph
    from plait.node_runtime.host.agent import NodeAgent
    from plait.protocol.checkpoint_messages import Finished, PartRef, SlowCommand, Surveyed
    from plait.protocol.messages import Rank
    from plait.results.outcomes import NodeOutcome
    from plait.testing.changes import Change, RecoveryStep, SaveStep
    from plait.testing.crashes import Lineage

DRAWN = 8
"""So many changes are drawn for a job."""
LIVES = 6
"""So many crashes are drawn for a job at most."""
STILL_S = 0.1
"""Nodes that have not moved for so long are at the end of their sources."""
AT_END_S = 0.5
"""The same, where a change that is given should come."""
MOST_MEMBERS = 3
"""More nodes are not put in the place of lost ones."""


class CrashingNodes(Nodes):
    """The nodes of one job over all its attempts."""

    def __init__(
        self,
        graph_at: Callable[[int], Graph],
        nodes: int,
        changes: Iterable[Change],
        seed: int | None,
        timeout: float,
        settings: dict[str, Any],
        *,
        url: str,
        lineage: Lineage,
        lives: Sequence[Mapping[str, Any]] = (),
        crash_at_end: SaveStep | None = None,
    ) -> None:
        """`lineage` gets the epochs of all attempts; `lives`: other settings, for the nodes that
        come after all of them were lost, in turn. What those had done that left before is kept, as
        by a coordinator that lives."""
        super().__init__(graph_at, nodes, changes, seed, timeout, settings)
        self.url = url
        self.lineage = lineage
        self.lives = list(lives)
        self.crash_at_end = crash_at_end
        """All are lost once when the last checkpoint is so far."""
        if self.drawing:
            del self.coming[DRAWN:]
        self.first_nodes = nodes
        self.attempt = 0
        self.ranks = 0
        """How many nodes there ever were."""
        self.crashes = 0
        self.number = 0
        """Of the last checkpoint that was begun."""
        self.parent = 0
        """Of the last one that was sealed, or to which the job went back."""
        self.unpublished = False
        self.open: Mark | None = None
        """The mark of a checkpoint that was given up: its parts are still being saved. No other
        mark may come before they are."""
        self.owing: tuple[Rank, ...] = ()
        """The nodes that save a part of the last mark."""
        self.marked = 0
        self.restore: Restore
        self.past: list[NodeOutcome] = []
        """Of nodes that left in good order."""
        self.engines: list[tuple[int, Any]] = []
        """Those of the attempt, and where each began."""
        self.first_epoch = 0
        self.finished = False
        """The last checkpoint is safe."""
        self.finishes = 0

    @property
    def labels(self) -> list[str]:
        return [op.label for op in self.graph.operators if isinstance(op, SourceOp)]

    @property
    def taken(self) -> int:
        return max(self.layout.epoch, self.marked)

    @property
    def next_rank(self) -> int:
        return self.ranks

    def payload_of(self, rank: int) -> tuple[Any, ...]:
        return self.graph_at(rank), self.settings, self.url

    def make(self, rank: int) -> NodeAgent:
        self.ranks = max(self.ranks, rank + 1)
        return super().make(rank)

    # The life of the job.

    def outcomes(self) -> list[NodeOutcome]:
        try:
            self.begin_attempt(self.first_nodes, None)
            while not self.finish():
                pass
            for agent in self.agents.values():
                self.tell(agent, End(good=True))
            self.note_epochs()
            found = [agent.outcome() for agent in self.agents.values()]
            return [*self.past, *(outcome for outcome in found if outcome is not None)]
        except BaseException as error:
            error.add_note(self.story_text())
            raise
        finally:
            for agent in self.agents.values():
                agent.close()
                if agent.keeper is not None:
                    agent.keeper.thread.join()

    def finish(self) -> bool:
        """To the end of the sources, and the last checkpoint; False: it crashed there."""
        if self.finished:
            return True
        if not self.watch():
            told = [agent.report().error for agent in self.agents.values()]
            raise InternalError(f"the job failed: {'; '.join(filter(None, told))}")
        if self.finished:
            return True
        self.close_open()
        self.finishes += 1
        crash, self.crash_at_end = self.crash_at_end, None
        if self.drawing and self.finishes < 3:
            crash = self.chance.choice((None, "marked", "saved", "sealed", "published"))
        upto = crash or "published"
        epoch = max(agent.cluster.next_epoch() for agent in self.members)
        self.marked = max(epoch, self.taken + 1)
        mark = Mark(
            number=self.count_checkpoint(),
            epoch=self.marked,
            since=self.parent,
            last=True,
            finished=True,
            ended=True,
        )
        self.round += 1
        self.owing = self.layout.members
        for agent in self.members:
            self.must(agent, Commit(round=self.round, mark=mark))
        self.follow(mark, upto)
        if crash is None:
            return True
        self.story.append(f"crash at the end, when it was {crash}")
        lost = None if self.chance.randrange(2) else (self.home,)
        self.crash(Crash(ranks=lost))
        return self.finished

    def draw(self) -> Change:
        """Half of the changes are checkpoints and crashes."""
        if self.chance.randrange(2):
            change = draw_crash(self.chance, self.layout.members, self.layout.owners)
            if not isinstance(change, Crash) or self.crashes < LIVES:
                return change
        while True:
            change = draw_change(self.chance, self.layout, self.homeless, len(self.agents))
            if type(change).__name__ != "Stop":
                return change

    def change(self, given: Change | None) -> bool:
        change = given or self.draw()
        if not isinstance(change, Save | Crash):
            if isinstance(change, Leave):  # a node that owes a part does not leave
                self.close_open()
            return super().change(change)
        self.story.append(f"gate {self.gate}, nodes at {self.places()}: {change}")
        if isinstance(change, Save):
            return self.save(change)
        if not self.drawing and not self.pass_layouts():
            return False
        self.crash(change)
        return not self.finished

    def move_gate(self) -> None:
        if self.finished:
            self.gate = None
        else:
            super().move_gate()

    def at_the_gate(self) -> bool:
        """Changes that are given are made where they should, or at the end of the sources."""
        if self.drawing:
            return super().at_the_gate()
        assert self.gate is not None
        places: list[int] = []
        still = 0.0
        while min(now := self.places()) < self.gate and not self.failing():
            self.pause()
            if now != places:
                places, still = now, time.monotonic() + AT_END_S
            elif time.monotonic() > still:
                break
        return not self.failing()

    # Checkpoints.

    def count_checkpoint(self) -> int:
        self.number += 1
        return self.number

    def save(self, change: Save) -> bool:
        """A checkpoint as far as it is to come; False if the sources are at their end."""
        if not self.pass_layouts():
            return False
        self.close_open()
        marks: list[Mark] = []

        def make_commit(epoch: int) -> Commit:
            mark = Mark(number=self.count_checkpoint(), epoch=epoch, since=self.parent)
            marks.append(mark)
            return Commit(round=self.round, mark=mark)

        if not self.agree(make_commit):
            return False
        [mark] = marks
        self.marked, self.owing = mark.epoch, self.layout.members
        if change.between is not None and not self.move(change.between):
            self.story.append("the sources are at their end")
        self.let_pass(self.taken + 1)
        return self.follow(mark, change.upto)

    def close_open(self) -> None:
        """What is left of the checkpoint before comes to its end."""
        mark, self.open = self.open, None
        if mark is not None:
            self.let_pass(mark.epoch)
            self.follow(mark, "saved")
        if self.unpublished:
            self.publish(self.parent)

    def pass_layouts(self) -> bool:
        """No checkpoint is begun while a node is leaving; False if the sources end before."""
        leaving = [self.agents[rank] for rank in self.gone if rank in self.agents]
        if leaving:
            self.let_pass(self.taken + 1)
        return all(self.wait(partial(self.has_left_or_ended, agent)) for agent in leaving)

    def has_left_or_ended(self, agent: NodeAgent) -> bool | None:
        if has_left(agent):
            return True
        return False if all(one.engine.wait(0.0) for one in self.members) else None

    def let_pass(self, epoch: int) -> None:
        """The gate is behind this epoch."""
        if self.gate is not None and self.gate <= epoch:
            self.gate = epoch + 1
            self.tell_gate()

    def follow(self, mark: Mark, upto: str) -> bool:
        """What comes after the mark, so far; False: it was given up, as the nodes ended first."""
        if upto == "marked":
            self.open = mark
            return True
        agents = [self.agents[rank] for rank in self.owing]
        parts = [self.wait(partial(self.part_of, agent, mark)) for agent in agents]
        if not all(parts):
            self.story.append(f"checkpoint {mark.number} was given up: the nodes ended first")
            return False
        if upto == "saved":
            return True
        seal = Seal(
            number=mark.number,
            epoch=mark.epoch,
            parent=self.parent,
            parts=tuple(parts),
            last=mark.last,
            finished=mark.finished,
        )
        self.slow(seal, "seal", mark.number)
        self.parent, self.unpublished = mark.number, True
        if upto == "published":
            self.publish(mark.number)
        return True

    def part_of(self, agent: NodeAgent, mark: Mark) -> PartRef | bool | None:
        """What the node has saved; False if it was at its end before, None as long as it is not
        known."""
        report = agent.report()
        if report.save_failed == mark.number:
            if "ended before the mark" in report.save_error:
                return False
            raise InternalError(f"node {agent.rank} could not save: {report.save_error}")
        if report.phase == "failed":
            raise InternalError(f"node {agent.rank} failed: {report.error}")
        part = report.saved
        return part if part is not None and part.number == mark.number else None

    def publish(self, number: int) -> None:
        self.slow(Publish(number=number), "publish", number)
        self.unpublished = False

    def slow(self, command: SlowCommand, what: str, number: int) -> Finished:
        """A command that the home carries out later."""
        home = self.agents[self.home]
        if not isinstance(home.apply(command), Done):
            raise InternalError(f"node {self.home} refused {command}")

        def finished() -> Finished | None:
            told = home.report().finished
            return next((one for one in told if (one.what, one.number) == (what, number)), None)

        found: Finished = self.wait(finished)
        if found.error:
            raise InternalError(f"node {self.home} could not {what} {number}: {found.error}")
        return found

    def wait(self, find: Callable[[], Any]) -> Any:
        """Waits for what is not None. Nodes that stand still before the gate are at the end of
        their sources: there is no gate any more."""
        places: list[int] = []
        still = 0.0
        while (found := find()) is None:
            self.check_time()
            time.sleep(0.0005)
            if self.gate is None:
                continue
            if (now := self.places()) != places:
                places, still = now, time.monotonic() + STILL_S
            elif now and time.monotonic() > still and min(now) < self.gate:
                self.gate = None
                self.tell_gate()
        return found

    def places(self) -> list[int]:
        members = [self.agents[rank] for rank in self.layout.members if rank in self.agents]
        return [agent.cluster.next_epoch() for agent in members if agent.begun]

    # Crashes.

    def crash(self, change: Crash) -> None:
        """Nodes are lost; the others and new ones go on from the last checkpoint."""
        lost, joins, again = change.ranks, change.joins, change.again
        while True:
            self.crashes += 1
            self.end_attempt(lost)
            if not self.agents and self.lives:
                self.settings = settings_on_nodes(dict(self.lives.pop(0)))
                self.story.append(f"all are lost; the next ones have {self.settings}")
            if self.begin_attempt(joins, again):
                return
            self.story.append(f"node {self.home} is lost when the next attempt has {again}")
            lost, joins, again = (self.home,), 1, None

    def end_attempt(self, lost: Sequence[Rank] | None) -> None:
        """What a loss leaves of an attempt."""
        for rank in [rank for rank in self.gone if rank in self.agents]:
            agent = self.agents.pop(rank)
            if has_left(agent):
                agent.apply(End(good=True))
                if (outcome := agent.outcome()) is not None:
                    self.past.append(outcome)
            lose(agent)
        for rank in list(self.agents) if lost is None else lost:
            if rank in self.agents:
                lose(self.agents.pop(rank))
        self.attempt += 1
        for agent in self.agents.values():
            self.must(agent, Halt(attempt=self.attempt))
        self.note_epochs()

    def note_epochs(self) -> None:
        """What the sources put into the epochs of the attempt, over all nodes."""
        if not self.engines:
            return
        cuts: dict[str, list[int]] = {}
        stamps: dict[str, list[int]] = {}
        for number, label in enumerate(self.labels):
            shares = [self.padded(at, engine.cuts(number)) for at, engine in self.engines]
            times = [self.padded(at, engine.stamps(number)) for at, engine in self.engines]
            cuts[label] = [sum(epoch) for epoch in zip_longest(*shares, fillvalue=0)]
            stamps[label] = [max(epoch) for epoch in zip_longest(*times, fillvalue=0)]
        self.lineage.add(cuts, stamps)
        self.engines = []

    def padded(self, first_epoch: int, numbers: Sequence[int]) -> list[int]:
        """Numbers of a node that joined later, by the epochs of the attempt."""
        return [0] * (first_epoch - self.first_epoch) + list(numbers) if numbers else []

    def begin_attempt(self, joins: int, stop_at: RecoveryStep | None) -> bool:
        """The next attempt; False: it came as far as `stop_at`."""
        if self.attempt == 0:
            self.attempt = 1
            count = joins
        else:
            room = max(0, MOST_MEMBERS - len(self.agents))
            count = max(min(joins, room), 0 if self.agents else 1)
        for _ in range(count):
            self.make(self.next_rank)
        ranks = sorted(self.agents)
        self.home = self.chance.choice(ranks) if self.drawing else ranks[0]
        survey = Survey(attempt=self.attempt, run=f"{os.getpid()} {id(self)}")
        told = self.slow(survey, "survey", self.attempt)
        found = told.found
        assert found is not None
        self.story.append(
            f"attempt {self.attempt} on nodes {ranks}, home {self.home}: from checkpoint"
            f" {found.number} at {found.epoch}"
        )
        self.number = max(self.number, found.newest)
        self.parent, self.marked = found.number, found.epoch
        self.open, self.unpublished = None, False
        if found.finished:
            self.finished = True
            self.lineage.begin(found.epoch, 0)
            return True
        if stop_at == "surveyed":
            return False
        self.layout = self.layout_after(found)
        self.restore = Restore(
            lineage=found.lineage, claim=found.claim, number=found.number, epoch=found.epoch
        )
        for agent in self.members:
            self.must(agent, self.preparation(agent))
        for agent in self.members:
            self.wait(partial(self.has_loaded, agent))
        self.begin_lineage(found)
        if stop_at == "loaded":
            return False
        self.gate = found.epoch
        self.move_gate()
        for agent in self.members:
            self.must(agent, Begin(layout=self.layout))
            if stop_at == "begun":
                return False
        return True

    def begin_lineage(self, found: Surveyed) -> None:
        """Epochs before the boundary stay; others come again, some of them as they were."""
        keeper = self.agents[self.home].keeper
        assert keeper is not None
        script = None if keeper.chosen is None else keeper.chosen.script
        self.first_epoch = found.epoch
        self.lineage.begin(found.epoch, 0 if script is None else script.until)
        self.engines = [(found.epoch, agent.engine) for agent in self.members]

    def join(self, change: Any) -> bool:
        ranks = set(self.agents)
        good = super().join(change)
        for rank in set(self.agents) - ranks:
            agent = self.agents[rank]
            self.engines.append((agent.first_epoch, agent.engine))
        return good

    def layout_after(self, found: Surveyed) -> Layout:
        """Bins go to any node, or in turn."""
        ranks = sorted(self.agents)
        bins = range(1 << self.settings.bin_bits)
        drawn = [self.chance.choice(ranks) if self.drawing else None for _ in bins]
        layout = self.first_layout(len(ranks), False)
        return replace(
            layout,
            epoch=found.epoch,
            members=tuple(ranks),
            owners=tuple(
                ranks[bin % len(ranks)] if rank is None else rank
                for bin, rank in zip(bins, drawn, strict=True)
            ),
            readers=tuple(-1 if reader < 0 else self.home for reader in layout.readers),
            epoch_records=found.epoch_records or self.settings.epoch_records,
            first_row=found.first_rows,
        )

    def preparation(self, agent: NodeAgent) -> Prepare:
        return replace(
            super().preparation(agent),
            attempt=self.attempt,
            token=f"attempt {self.attempt}",
            restore=self.restore,
        )

    def has_loaded(self, agent: NodeAgent) -> bool | None:
        report = agent.report()
        if report.phase == "failed":
            raise InternalError(f"node {agent.rank} could not load: {report.error}")
        return True if report.restored == self.attempt else None


def has_left(agent: NodeAgent) -> bool | None:
    """True when the node has done all that it had to do before it left."""
    return True if agent.report().phase == "left" else None


def lose(agent: NodeAgent) -> None:
    """Ends a node as a crash would: nothing is closed, committed or aborted. What its thread for
    slow commands is at comes to its end, as it would if the crash came a moment later."""
    keeper, parts, ends, saver = agent.keeper, agent.parts, agent.ends, agent.saver
    assert keeper is not None
    keeper.attempt = -1
    if parts is not None:
        parts.engine.abort()
    keeper.todo.put(None)
    keeper.thread.join()
    keeper.folder.unlock()
    for watch in (agent.elastic, agent.measured):
        if watch is not None:
            watch.stop()
    if saver is not None and saver.committer is not None:
        saver.committer.end()
    agent.cluster.close()
    if parts is not None:
        parts.engine.interrupt_python()
        parts.end(grace_s=0.0)
    if ends is not None:
        for writer in ends.writers.values():
            thread = getattr(writer, "thread", None)  # of a user's: it ends, the writer does not
            if thread is not None:
                thread.end()
        for reader in ends.readers:
            with suppress(Exception):
                reader.close()
    agent.cluster.close_door()
    agent.cluster.hold(None)
