"""Breadth-first over all that can happen, from the start to where nothing more can.

The first violation that is found has the shortest story; `Found` tells it step by step.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.model.coordinator import coordinate, recover
from tests.model.invariants import check, check_step
from tests.model.keeper import work
from tests.model.world import Bugs, start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.model.keeper import Step
    from tests.model.world import Bounds, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    states: int
    steps: int
    ends: int
    """Worlds in which nothing more can happen."""
    shown: int
    """... and those of them in which all output is visible."""
    wrong: str = ""
    story: tuple[str, ...] = ()

    def __str__(self) -> str:
        told = f"{self.states:,} states, {self.steps:,} steps, {self.ends:,} ends"
        return "\n  ".join([f"{told}: {self.wrong or 'all is well'}", *self.story])


def successors(world: World, bounds: Bounds, bugs: Bugs) -> Iterator[Step]:
    """All that can happen next: a node does a step, the coordinator does, something goes wrong."""
    if world.failed:
        return
    for rank in range(len(world.nodes)):
        yield from work(world, rank, bounds, bugs)
    yield from coordinate(world, bounds, bugs)
    yield from go_wrong(world, bounds)


def go_wrong(world: World, bounds: Bounds) -> Iterator[Step]:
    left, known = world.left, world.coordinator
    for rank, node in enumerate(world.nodes):
        if node is None:
            continue
        if left.kills and not node.lost:
            nodes = (*world.nodes[:rank], None, *world.nodes[rank + 1 :])
            after = world._replace(nodes=nodes, left=left._replace(kills=left.kills - 1))
            yield f"node {rank} is killed", after
        if left.freezes and rank in known.live and known.phase != "failed":
            after = world._replace(left=left._replace(freezes=left.freezes - 1))
            yield f"node {rank} counts as lost, but lives", recover(after, bounds, {rank})
    if left.restarts and known.told:
        fresh = known._replace(told=())
        left = left._replace(restarts=left.restarts - 1)
        yield "the coordinator restarts", world._replace(left=left, coordinator=fresh)


def search(bounds: Bounds, bugs: Bugs | None = None, most: int = 10_000_000) -> Found:
    """Looks at every world that can be reached, or at all until the first that is wrong."""
    bugs = bugs or Bugs()
    first = start(bounds)
    before: dict[World, tuple[World, str] | None] = {first: None}
    queue = deque([first])
    steps = ends = shown = 0
    while queue:
        world = queue.popleft()
        moved = False
        for label, after in successors(world, bounds, bugs):
            steps += 1
            moved = True
            wrong = check_step(world, after, label)
            if after not in before:
                before[after] = (world, label)
                queue.append(after)
                wrong = wrong or check(after)
            if wrong:
                story = (*tell(world, before), label)
                found = Found(states=len(before), steps=steps, ends=ends, shown=shown)
                return replace(found, wrong=wrong, story=story)
        if not moved:
            ends += 1
            shown += is_shown(world, bounds)
            if not is_shown(world, bounds) and world.coordinator.phase not in ("failed", "run"):
                found = Found(states=len(before), steps=steps, ends=ends, shown=shown)
                wrong = f"it hangs: {world.coordinator}"
                return replace(found, wrong=wrong, story=tell(world, before))
        if len(before) > most:
            raise AssertionError(f"more than {most:,} states")
    return Found(states=len(before), steps=steps, ends=ends, shown=shown)


def is_shown(world: World, bounds: Bounds) -> bool:
    """Whether everything is visible."""
    rows = [decider.rows for decider in world.deciders]
    if world.follower is not None:
        rows.append(world.follower.rows)
    return all(len(row) == bounds.checkpoints for row in rows)


def tell(world: World, before: dict[World, tuple[World, str] | None]) -> tuple[str, ...]:
    story = []
    while (step := before[world]) is not None:
        world, label = step
        story.append(label)
    return tuple(reversed(story))
