"""The coordinator, as `coordinator/machine/checkpoints` has it: one checkpoint in flight, and the
way back. Its facts are in the journal before it acts, so a restart forgets only what it was told.

Rounds, layouts and migrations are not here: `tests/sim` has them, with the real machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model.world import BINS, Node, Task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.model.keeper import Step
    from tests.model.world import Bounds, Bugs, Coordinator, World


def coordinate(world: World, bounds: Bounds, bugs: Bugs) -> Iterator[Step]:
    """What the coordinator may do next."""
    known = world.coordinator
    dead = [rank for rank in known.live if world.nodes[rank] is None]
    for rank in dead:
        yield f"coordinator: node {rank} is lost", recover(world, bounds, {rank})
    if known.phase == "failed":
        return
    if known.phase == "survey":
        yield from hear_survey(world, bounds, bugs)
    elif known.phase == "load":
        yield from hear_loaded(world, bounds)
    elif not known.saving:
        yield from mark(world, bounds)
    else:
        yield from hear_saving(world, bounds, bugs)


def give(world: World, rank: int, task: Task) -> World:
    """A command, put where the node finds it. It is told once: a node does not do one twice."""
    node = world.nodes[rank]
    if node is None:
        return world
    nodes = list(world.nodes)
    nodes[rank] = node._replace(todo=(*node.todo, task), answer=None)
    return world._replace(nodes=tuple(nodes))


def owned(known: Coordinator, rank: int) -> str:
    """The bins of a node."""
    members = sorted(known.live)
    return "".join(b for n, b in enumerate(BINS) if members[n % len(members)] == rank)


def recover(world: World, bounds: Bounds, lost: set[int]) -> World:
    """The next attempt: survivors halt, one of them surveys. What a keeper is in the middle of, it
    does to its end; what it has not begun comes to nothing."""
    known = world.coordinator
    attempt = known.attempt + 1
    live = tuple(rank for rank in known.live if rank not in lost)
    nodes = list(world.nodes)
    for rank in lost:
        node = nodes[rank]
        if node is not None:
            nodes[rank] = node._replace(lost=True) if node.todo else None
    if attempt > bounds.attempts:
        known = known._replace(phase="failed", saving=0, step="", live=live)
        return world._replace(coordinator=known, nodes=tuple(nodes))
    if not live:
        live = (len(nodes), len(nodes) + 1)
        nodes += [Node(), Node()]
    for rank in live:
        node = nodes[rank]
        if node is not None:
            begun = tuple(task for task in node.todo[:1] if task.at > 0)
            nodes[rank] = Node(
                attempt=attempt, todo=begun, ready=node.ready, past=node.past, bases=node.bases
            )
    home = known.home if known.home in live else min(live)
    known = known._replace(
        attempt=attempt,
        phase="survey",
        live=live,
        home=home,
        saving=0,
        epoch=0,
        step="",
        told=(),
        parts=(),
        claim=0,
        restore=None,
        script="",
    )
    world = world._replace(coordinator=known, nodes=tuple(nodes))
    return give(world, home, Task("survey", attempt))


def hear_survey(world: World, bounds: Bounds, bugs: Bugs) -> Iterator[Step]:
    known = world.coordinator
    home = world.nodes[known.home]
    answer = None if home is None else home.answer
    if answer is None or (answer.what, answer.number) != ("survey", known.attempt):
        return
    if answer.error or answer.found is None:
        yield "coordinator: the survey failed", go_back(world, bounds, answer.error)
        return
    found = answer.found
    after = world._replace(
        coordinator=known._replace(
            phase="load",
            restore=found,
            script=answer.script,
            claim=answer.claim,
            next_number=max(known.next_number, answer.newest + 1),
        )
    )
    for rank in known.live:
        node = after.nodes[rank]
        if node is None:
            continue
        nodes = list(after.nodes)
        nodes[rank] = node._replace(claim=answer.claim, attempt=known.attempt)
        is_home = rank == known.home
        bases = tuple(
            len(d.rows) if bugs.suppress_by_rows else max(d.boundary, found.epoch)
            for d in world.deciders
        )
        task = Task("load", known.attempt, claim=answer.claim, found=(found,), home=is_home)
        task = task._replace(bins=owned(known, rank), bases=bases if is_home else ())
        after = give(after._replace(nodes=tuple(nodes)), rank, task)
    yield f"coordinator: load {found.id}", after


def go_back(world: World, bounds: Bounds, error: str) -> World:
    """A store that was away or a claim that was lost leads to the next attempt; anything else
    ends the job."""
    if error in ("lost", "away"):
        return recover(world, bounds, set())
    return world._replace(
        failed=error, coordinator=world.coordinator._replace(phase="failed", saving=0)
    )


def hear_loaded(world: World, bounds: Bounds) -> Iterator[Step]:
    known = world.coordinator
    for rank in known.live:
        node = world.nodes[rank]
        answer = None if node is None else node.answer
        if answer is None or answer.what != "load" or answer.number != known.attempt:
            continue
        if answer.error:
            yield "coordinator: loading failed", go_back(world, bounds, answer.error)
        elif (rank, None) not in known.told:
            told = tuple(sorted((*known.told, (rank, None))))
            heard = known._replace(told=told)
            if len(told) == len(known.live):
                heard = known._replace(told=(), phase="run", restore=None)
            yield f"coordinator: node {rank} has loaded", world._replace(coordinator=heard)


def mark(world: World, bounds: Bounds) -> Iterator[Step]:
    """An epoch passes, live or as the script has it, and the next checkpoint's mark with it."""
    known = world.coordinator
    members = [world.nodes[rank] for rank in known.live]
    if any(node is None or node.attempt != known.attempt for node in members):
        return
    home = world.nodes[known.home]
    assert home is not None
    past = home.past
    if known.script:
        longer = [past + known.script]
    elif len(past) >= bounds.checkpoints:
        return
    elif not past:
        longer = ["a"] if known.attempt == 1 else list(BINS)  # the sources are alike
    else:
        longer = [past + letter for letter in BINS]
    number = known.next_number
    for new in longer:
        nodes = list(world.nodes)
        for rank in known.live:
            node = nodes[rank]
            assert node is not None
            is_home = rank == known.home
            task = Task("save", known.attempt, number, len(new), home=is_home)
            task = task._replace(bins=owned(known, rank), claim=known.claim)
            nodes[rank] = node._replace(past=new, todo=(*node.todo, task), answer=None)
        after = known._replace(
            saving=number, epoch=len(new), step="parts", next_number=number + 1, script=""
        )
        yield f"mark {number} after {new}", world._replace(nodes=tuple(nodes), coordinator=after)


NEXT = {"parts": "seal", "seal": "publish", "publish": "retire", "retire": ""}
HASTY = {"parts": "publish", "publish": "seal", "seal": "retire", "retire": ""}
"""Commits before it seals."""
GREEDY = {"parts": "seal", "seal": "retire", "retire": "publish", "publish": ""}
"""Retires before it publishes."""


def hear_saving(world: World, bounds: Bounds, bugs: Bugs) -> Iterator[Step]:
    known = world.coordinator
    if known.step == "parts":
        for rank in known.live:
            node = world.nodes[rank]
            if node is None:
                continue
            if node.answer is not None and node.answer.what == "save" and node.answer.error:
                yield "coordinator: gives up", give_up(world)
            elif node.saved_number == known.saving and (rank, node.saved) not in known.told:
                told = tuple(sorted((*known.told, (rank, node.saved))))
                parts = tuple(part for _, part in told if part is not None)
                if len(told) == len(known.live):
                    all_saved = world._replace(coordinator=known._replace(told=(), parts=parts))
                    after = next_step(all_saved, bugs)
                else:
                    after = world._replace(coordinator=known._replace(told=told))
                yield f"coordinator: node {rank} has saved", after
        return
    home = world.nodes[known.home]
    answer = None if home is None else home.answer
    if answer is None or (answer.what, answer.number) != (known.step, known.saving):
        return
    if not answer.error:
        yield f"coordinator: {known.step} is done", next_step(world, bugs)
    elif answer.what == "seal" and answer.error == "away":
        yield "coordinator: gives up", give_up(world)
    elif answer.what == "retire" and answer.error == "away":
        yield "coordinator: goes on", next_step(world, bugs)
    else:
        yield f"coordinator: {known.step} failed", go_back(world, bounds, answer.error)


def give_up(world: World) -> World:
    """The sinks keep the interval open."""
    return world._replace(
        coordinator=world.coordinator._replace(saving=0, epoch=0, step="", told=(), parts=())
    )


def next_step(world: World, bugs: Bugs) -> World:
    known = world.coordinator
    order = HASTY if bugs.commit_before_seal else GREEDY if bugs.retire_too_early else NEXT
    step = order[known.step]
    if not step:
        return give_up(world)
    after = world._replace(coordinator=known._replace(step=step, told=()))
    task = Task(step, known.attempt, known.saving, known.epoch, claim=known.claim)
    return give(after, known.home, task._replace(parts=known.parts))
