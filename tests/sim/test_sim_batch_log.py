"""The batch log as a pure model: two Spark drivers of one query, a plait job that checkpoints and
goes back, and every interleaving of their single steps for three batches, with crashes anywhere.

The decisions are the real ones (`batch_log.layout`); files are sets, and each change of a file is a
step of its own. Whatever happens, each batch is in the output once and in order, and what a kept
checkpoint may read again is there. Planted bugs must be found.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from plait.connectors.batch_log.layout import (
    ReaderFile,
    judge_append,
    newest_run,
    plan_deletions,
    plan_sweep,
    segment_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCHES = 3
KEEP = 2


class Wrong(Exception):
    """An invariant does not hold."""


@dataclass(frozen=True, slots=True)
class Driver:
    """A Spark driver: which of its steps comes next."""

    step: str = "write"
    batch: int = 0
    attempt: int = 0
    alive: bool = True


@dataclass(frozen=True, slots=True)
class World:
    batches: tuple[tuple[int, tuple[str, ...]], ...] = ()
    first: int = 0
    """The log begins there."""
    segments: frozenset[str] = frozenset()
    committed: int = -1
    """The last batch in Spark's own commit log."""
    drivers: tuple[Driver, ...] = (Driver(),)
    position: int = 0
    """The next batch of the job ..."""
    kept: tuple[int, ...] = (0,)
    """... and that of each kept checkpoint, oldest first."""
    registered: int = 0
    """What the job's reader file says that it needs."""
    doomed: tuple[str, ...] = ()
    """What is being removed."""
    seen: tuple[tuple[str, ...], ...] = ()
    """The segments of each batch as the job read it first."""
    crashes: int = 0

    def numbers(self) -> tuple[int, ...]:
        return tuple(number for number, _ in self.batches if number >= self.first)

    def of(self, number: int) -> tuple[str, ...] | None:
        return dict(self.batches).get(number)

    def newest(self) -> int:
        return max(self.numbers(), default=-1)


def segments_of(number: int, attempt: int) -> tuple[str, ...]:
    """Spark cuts a repeated batch into another number of parts."""
    return tuple(segment_name(number, part, str(attempt), "x") for part in range(1 + attempt % 2))


def drive(world: World, at: int, bug: str) -> Iterator[World]:
    """The next step of a driver, if it has one."""
    driver = world.drivers[at]
    if not driver.alive or driver.batch >= BATCHES:
        return
    number = driver.batch

    def then(step: str, batch: int = number) -> tuple[Driver, ...]:
        drivers = list(world.drivers)
        drivers[at] = replace(driver, step=step, batch=batch)
        return tuple(drivers)

    made = segments_of(number, driver.attempt)
    match driver.step:
        case "write":
            yield replace(world, segments=world.segments.union(made), drivers=then("look"))
        case "look":
            run = newest_run(world.numbers())
            oldest, newest = (None, None) if run is None else run
            judgement = judge_append(number, oldest=oldest, newest=newest)
            if judgement == "hole":
                raise Wrong(f"batch {number} would make a hole after {newest}")
            if bug == "accepts a repeated batch":
                judgement = "create"
            yield replace(world, drivers=then("create" if judgement == "create" else "commit"))
        case "create":
            there = world.of(number)
            if there is not None and bug != "accepts a repeated batch":
                yield replace(world, drivers=then("commit"))
            else:
                kept = tuple(entry for entry in world.batches if entry[0] != number)
                batches = tuple(sorted((*kept, (number, made))))
                yield replace(world, batches=batches, drivers=then("commit"))
        case "commit":
            committed = max(world.committed, number)
            yield replace(world, committed=committed, drivers=then("write", number + 1))


def restart(world: World, at: int, bug: str) -> World:
    """A driver dies anywhere; the next begins after what Spark has committed."""
    drivers = list(world.drivers)
    old = drivers[at]
    drivers[at] = Driver(batch=world.committed + 1, attempt=old.attempt + 2)
    segments = world.segments
    if bug == "deletes on abort" and old.batch < BATCHES:
        segments = segments.difference(segments_of(old.batch, old.attempt))
    return replace(world, drivers=tuple(drivers), segments=segments, crashes=world.crashes + 1)


def job_steps(world: World, bug: str) -> Iterator[World]:
    """What the job may do next."""
    there = world.of(world.position)
    if there is not None:
        missing = [name for name in there if name not in world.segments]
        if missing:
            raise Wrong(f"batch {world.position} has lost {missing[0]}")
        seen = world.seen
        if world.position < len(seen):
            if seen[world.position] != there:
                raise Wrong(f"batch {world.position} has changed")
        else:
            seen = (*seen, there)
        yield replace(world, position=world.position + 1, seen=seen)
    elif world.newest() > world.position:
        raise Wrong(f"batch {world.position} is gone before it was read")
    if world.position > world.kept[-1]:
        kept = (*world.kept, world.position)[-KEEP:]
        needed = kept[-1] if bug == "releases by the newest checkpoint" else kept[0]
        yield replace(world, kept=kept, registered=needed)
    if not world.doomed:
        reader = ReaderFile(name="job", read=0, needed=world.registered, at=0.0)
        batches = dict(world.batches)
        found = plan_deletions(batches, [reader])
        swept = plan_sweep(dict.fromkeys(world.segments, 0.0), batches, 1e9, 600.0)
        doomed = (*map(str, found.batches), *found.segments, *swept)
        if found.batches and bug != "does not say where the log begins":
            doomed = (f"first {found.first}", *doomed)
        if bug == "segments before batch files":
            doomed = (*found.segments, *map(str, found.batches))
        if doomed:
            yield replace(world, doomed=doomed)
    else:
        name, rest = world.doomed[0], world.doomed[1:]
        if name.startswith("first"):
            first = max(world.first, int(name.split()[1]))
            yield replace(world, first=first, doomed=rest)
        elif name.isdigit():
            left = tuple(entry for entry in world.batches if entry[0] != int(name))
            yield replace(world, batches=left, doomed=rest)
        else:
            yield replace(world, segments=world.segments.difference((name,)), doomed=rest)


def fall(world: World, to: int) -> World:
    """The job dies and goes on from a kept checkpoint."""
    kept = tuple(position for position in world.kept if position <= to)
    return replace(world, position=to, kept=kept, doomed=(), crashes=world.crashes + 1)


def check(world: World) -> None:
    numbers = world.numbers()
    run = newest_run(numbers)
    if run is not None:
        for number in range(max(run[0], world.kept[0]), run[1] + 1):
            missing = [s for s in world.of(number) or () if s not in world.segments]
            if missing:
                raise Wrong(f"batch {number}, which is kept, has lost {missing[0]}")
        if run[0] > world.kept[0]:
            raise Wrong(f"batch {world.kept[0]} is gone, and a kept checkpoint needs it")
        fresh = run[0]
        first = world.of(fresh) or ()
        if any(name not in world.segments for name in first):
            raise Wrong(f"a new reader begins at batch {fresh}, which has lost its segments")
    if not world.committed <= world.newest():
        raise Wrong("Spark has committed a batch that is not in the log")


def explore(bug: str = "", crashes: int = 1) -> int:
    """Every world that can be reached; gives how many there are."""
    start = World()
    todo, known = [start], {start}
    ends = 0
    while todo:
        world = todo.pop()
        check(world)
        after: list[World] = []
        for at in range(len(world.drivers)):
            after += drive(world, at, bug)
            if world.crashes < crashes:
                after.append(restart(world, at, bug))
        if len(world.drivers) == 1 and world.crashes < crashes:
            second = Driver(batch=world.committed + 1, attempt=1)
            after.append(
                replace(world, drivers=(*world.drivers, second), crashes=world.crashes + 1)
            )
        after += job_steps(world, bug)
        if world.crashes < crashes:
            after += [fall(world, to) for to in world.kept]
        if world.position == BATCHES and len(world.seen) == BATCHES:
            ends += 1
        for each in after:
            if each not in known:
                known.add(each)
                todo.append(each)
    assert ends, "no history came to its end"
    return len(known)


def test_every_interleaving_keeps_each_batch_once_and_what_is_needed() -> None:
    assert explore() > 20_000


@pytest.mark.slow
def test_every_interleaving_with_two_faults() -> None:
    assert explore(crashes=2) > 500_000


@pytest.mark.parametrize(
    "bug",
    [
        "accepts a repeated batch",
        "deletes on abort",
        "releases by the newest checkpoint",
        "segments before batch files",
        "does not say where the log begins",
    ],
)
def test_planted_bugs_are_found(bug: str) -> None:
    with pytest.raises(Wrong):
        explore(bug)
