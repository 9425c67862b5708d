"""A node's keeper, step by step: what `node_runtime/host/checkpoint_keeper.py` and the sinks do.

Every step is one thing that the store or a sink does as a whole. `work` gives what the next step of
a node can lead to: usually one world, more where something can go wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model.folder import (
    choose,
    doomed,
    name_chunk,
    name_part,
    path_of,
    restorable,
)
from tests.model.world import Answer, Id, Manifest, Part, Ready

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.model.world import Bounds, Bugs, Decider, Follower, Node, Task, World

Step = tuple[str, "World"]


def work(world: World, rank: int, bounds: Bounds, bugs: Bugs) -> Iterator[Step]:
    """The next step of what a node has to do."""
    node = world.nodes[rank]
    if node is None or not node.todo:
        return
    task = node.todo[0]
    what = f"node {rank}{' (lost)' if node.lost else ''}: {task.what} {task.number or task.attempt}"
    match task.what:
        case "save":
            steps = save(world, rank, node, task, bugs)
        case "seal":
            steps = seal(world, rank, node, task, bugs)
        case "publish":
            steps = publish(world, rank, node, task, bugs)
        case "retire":
            steps = retire(world, rank, node, task, bounds, bugs)
        case "survey":
            steps = survey(world, rank, node, task, bugs)
        case "load":
            steps = load(world, rank, node, task, bugs)
        case _:
            raise AssertionError(task)
    for label, after in steps:
        yield f"{what}: {label}", after


def put(world: World, rank: int, node: Node | None) -> World:
    if node is not None and node.lost and not node.todo:
        node = None  # nothing that it does is seen any more
    nodes = (*world.nodes[:rank], node, *world.nodes[rank + 1 :])
    return world._replace(nodes=nodes)


def go_on(world: World, rank: int, node: Node, task: Task) -> World:
    """The task has a next step."""
    return put(world, rank, node._replace(todo=(task._replace(at=task.at + 1), *node.todo[1:])))


def tell(world: World, rank: int, node: Node, answer: Answer) -> World:
    """The task is over. Nobody hears of one from an attempt before."""
    task = node.todo[0]
    node = node._replace(todo=node.todo[1:])
    if task.attempt == node.attempt:
        node = node._replace(answer=answer)
    return put(world, rank, node)


def fail(world: World, rank: int, node: Node, error: str) -> World:
    task = node.todo[0]
    return tell(world, rank, node, Answer(task.what, task.number or task.attempt, error))


# Saving, on every node.


def save(world: World, rank: int, node: Node, task: Task, bugs: Bugs) -> Iterator[Step]:
    """The part goes to the store; the sinks prepare."""
    past, claim = node.past[: task.epoch], task.claim
    sealed = node.sealed
    if node.saved is not None and Id(node.saved_number, claim) in ids(world):
        sealed = node.saved
    before = {} if sealed is None else {bin: (n, chunk) for bin, n, chunk in sealed.bins}
    fresh = name_chunk(claim, task.number, rank)
    entries = []
    for bin in task.bins:
        known = before.get(bin)
        count = past.count(bin)
        entries.append((bin, count, known[1] if known and known[0] == count else fresh))
    part = Part(name_part(claim, task.number, rank), past, tuple(entries))
    follower, ready, next_file = world.follower, node.ready, node.next_file
    if task.home and follower is not None:
        rows = past[node.filed :]
        file = Ready(0 if bugs.same_hidden_names else claim, next_file, rows)
        others = frozenset(h for h in follower.hidden if h[:2] != file[:2])
        follower = follower._replace(hidden=others | {file})
        ready, next_file = (*ready, file), next_file + 1
        part = part._replace(ready=ready, next_file=next_file)
    if world.left.errors:
        left = world.left._replace(errors=world.left.errors - 1)
        yield "the store is away", fail(world._replace(left=left), rank, node, "away")
    written = {chunk for _, _, chunk in entries if chunk == fresh} | {part.path}
    store = world.store._replace(files=world.store.files | written)
    node = node._replace(
        todo=node.todo[1:],
        sealed=sealed,
        ready=ready,
        next_file=next_file,
        filed=task.epoch if task.home else node.filed,
    )
    if task.attempt == node.attempt:
        node = node._replace(saved=part, saved_number=task.number)
    yield "part", put(world._replace(store=store, follower=follower), rank, node)


def ids(world: World) -> set[Id]:
    return {manifest.id for manifest in world.store.manifests}


# Slow commands, at home.


def seal(world: World, rank: int, node: Node, task: Task, bugs: Bugs) -> Iterator[Step]:
    store, claim = world.store, task.claim
    id = Id(task.number, claim)
    if task.at == 0:
        own = [i for i in ids(world) if i.claim == claim]
        if store.claims > claim:
            yield "claimed by another", fail(world, rank, node, "lost")
        elif max(own, default=node.parent) != node.parent and not bugs.go_on_after_doubt:
            # One that was given up is there after all.
            yield "another is there", fail(world, rank, node, "lost")
        elif not all(part.path in store.files for part in task.parts):
            yield "a part is gone", fail(world, rank, node, f"a part of {id} is gone")
        else:
            yield "is current", go_on(world, rank, node, task)
        return
    past = task.parts[0].past
    manifest = Manifest(id, past, task.parts)
    sealed = store._replace(manifests=store.manifests | {manifest})
    after = world._replace(store=sealed)
    done = node._replace(parent=id)
    yield "manifest", tell(after, rank, done, Answer("seal", task.number))
    if world.left.errors:
        left = world.left._replace(errors=world.left.errors - 1)
        yield (
            "nobody knows whether it came through, it did",
            fail(after._replace(left=left), rank, node, "away"),
        )
        yield "the store is away", fail(world._replace(left=left), rank, node, "away")


def publish(world: World, rank: int, node: Node, task: Task, bugs: Bugs) -> Iterator[Step]:
    """Looks at the claims; then deciders, then followers."""
    if task.at == 0:
        if not bugs.blind_publish and world.store.claims > task.claim:
            yield "claimed by another", fail(world, rank, node, "lost")
        else:
            yield "is current", go_on(world, rank, node, task)
        return
    turn = task.at - 1
    order = [*(("decider", n) for n in range(len(world.deciders)))]
    if world.follower is not None:
        order = [("follower", 0), *order] if bugs.follower_first else [*order, ("follower", 0)]
    if turn >= len(order):
        bases = (task.epoch,) * len(node.bases)
        node = node._replace(bases=bases, ready=() if task.attempt == node.attempt else node.ready)
        yield "done", tell(world, rank, node, Answer("publish", task.number))
        return
    kind, number = order[turn]
    if kind == "decider":
        yield from decide(world, rank, node, task, number, bugs)
        return
    follower = world.follower
    assert follower is not None
    waiting = [file for file in node.ready if file in follower.hidden]
    gone = [file for file in node.ready if file not in follower.hidden]
    if any(file.rows != shown(follower, file) for file in gone):
        yield "a hidden file is gone", fail(world, rank, node, f"{gone} of {task.number} is gone")
    elif not waiting:
        yield "files are shown", go_on(world, rank, node, task)
    else:
        after = world._replace(follower=show(follower, waiting[0]))
        rest = task if len(waiting) > 1 else task._replace(at=task.at + 1)
        yield (
            f"shows {waiting[0]}",
            put(after, rank, node._replace(todo=(rest, *node.todo[1:]))),
        )


def decide(
    world: World, rank: int, node: Node, task: Task, number: int, bugs: Bugs
) -> Iterator[Step]:
    """The decider's transaction: rows and boundary, unless the writer is fenced."""
    decider = world.deciders[number]
    if task.claim < decider.fence and not bugs.fence_nobody:
        yield "fenced", fail(world, rank, node, "lost")
        return
    if decider.boundary >= task.epoch:
        yield f"decider {number} has it", go_on(world, rank, node, task)
        return
    rows = decider.rows + node.past[node.bases[number] : task.epoch]
    by = Id(task.number, task.claim)
    whole = decider._replace(rows=rows, boundary=task.epoch, by=by)
    if bugs.progress_apart and decider.rows != rows and len(decider.rows) <= decider.boundary:
        half = decider._replace(rows=rows)
        yield "rows alone", put_decider(world, number, half)
        return
    if bugs.progress_apart:
        whole = whole._replace(rows=decider.rows)
    after = put_decider(world, number, whole)
    yield f"decider {number} shows up to {task.epoch}", go_on(after, rank, node, task)
    if world.left.errors:
        left = world.left._replace(errors=world.left.errors - 1)
        yield (
            f"nobody knows whether decider {number} did it, it did",
            fail(after._replace(left=left), rank, node, "away"),
        )
        yield "the decider is away", fail(world._replace(left=left), rank, node, "away")


def put_decider(world: World, number: int, decider: Decider) -> World:
    deciders = (*world.deciders[:number], decider, *world.deciders[number + 1 :])
    return world._replace(deciders=deciders)


def shown(follower: Follower, file: Ready) -> str | None:
    return follower.visible[file.number] if file.number < len(follower.visible) else None


def show(follower: Follower, file: Ready) -> Follower:
    """Gives a hidden file its name, over whatever has it."""
    before, after = follower.visible[: file.number], follower.visible[file.number + 1 :]
    gap = ("?",) * (file.number - len(before))
    return follower._replace(
        visible=(*before, *gap, file.rows, *after), hidden=follower.hidden - {file}
    )


def retire(
    world: World, rank: int, node: Node, task: Task, bounds: Bounds, bugs: Bugs
) -> Iterator[Step]:
    store = world.store
    if task.at == 0:
        if store.claims > task.claim:
            yield "claimed by another", fail(world, rank, node, "lost")
            return
        gone = doomed(store, bounds.keep, by_number=bugs.retire_by_number)
        gone = tuple(path for path in gone if not path.startswith("attempts/"))
        yield "plan", go_on(world, rank, node, task._replace(doomed=gone))
        return
    if not task.doomed:
        yield "done", tell(world, rank, node, Answer("retire", task.number))
        return
    path, rest = task.doomed[0], task.doomed[1:]
    manifests = frozenset(m for m in store.manifests if path_of(m.id) != path)
    store = store._replace(manifests=manifests, files=store.files - {path})
    after = world._replace(store=store)
    yield f"deletes {path}", go_on(after, rank, node, task._replace(doomed=rest))


# The way back.


def survey(world: World, rank: int, node: Node, task: Task, bugs: Bugs) -> Iterator[Step]:
    """Claim, list, fence and ask each decider, choose."""
    order = ["claim", "list"]
    asks = ["fence", "ask"]
    if bugs.survey_before_fence:
        asks = ["ask", "fence"]
    order += [f"{ask} {number}" for number in range(len(world.deciders)) for ask in asks]
    if bugs.claim_after_survey:
        order = [*order[1:], "claim"]
    order += ["choose", "look", "begin"]
    step, _, tail = order[task.at].partition(" ")
    number = int(tail or 0)
    store = world.store
    match step:
        case "claim":
            claim = store.claims + 1
            after = world._replace(store=store._replace(claims=claim))
            node = node._replace(claim=claim) if task.attempt == node.attempt else node
            yield f"claim {claim}", go_on(after, rank, node, task._replace(claim=claim))
        case "list":
            found = restorable(store)
            yield "list", go_on(world, rank, node, task._replace(found=found))
        case "fence":
            decider = world.deciders[number]
            fence = max(decider.fence, task.claim or store.claims + 1)
            after = put_decider(world, number, decider._replace(fence=fence))
            yield f"fence {number}", go_on(after, rank, node, task)
        case "ask":
            boundary = world.deciders[number].boundary
            yield "ask", go_on(world, rank, node, task._replace(seen=(*task.seen, boundary)))
            if world.left.stale and boundary:
                # The decider cannot say how far it is.
                left = world.left._replace(stale=world.left.stale - 1)
                after = world._replace(left=left)
                if bugs.absence_is_zero:
                    yield "no answer", go_on(after, rank, node, task._replace(seen=(*task.seen, 0)))
                else:
                    yield "no answer", fail(after, rank, node, "away")
        case "choose":
            yield from settle(world, rank, node, task, bugs)
        case "look" if store.claims > task.claim:
            yield "claimed by another", fail(world, rank, node, "lost")
        case "look":
            yield "is current", go_on(world, rank, node, task)
        case _:
            chosen = task.chosen
            if chosen is None:
                chosen = Manifest(Id(0, task.claim), "", ())
                world = world._replace(store=store._replace(manifests=store.manifests | {chosen}))
            numbers = [manifest.id.number for manifest in (chosen, *task.found)]
            answer = Answer("survey", task.attempt, found=chosen, script=task.script)
            answer = answer._replace(newest=max(numbers), claim=task.claim)
            yield f"goes on from {chosen.id}", tell(world, rank, node, answer)


def settle(world: World, rank: int, node: Node, task: Task, bugs: Bugs) -> Iterator[Step]:
    """Chooses, and writes it down: what older claims seal from now on does not count."""
    leading = max(world.deciders, key=lambda d: d.boundary).by if world.deciders else None
    seen = tuple(boundary or 0 for boundary in task.seen)
    chosen: Manifest | None
    if bugs.suppress_by_rows and task.found:
        chosen, script, error = task.found[:2][-1], "", ""
    else:
        chosen, script, error = choose(world.store, task.found, seen, leading)
    if bugs.script_too_short:
        script = ""
    if error and world.store.claims == task.claim:
        yield "refused", fail(world, rank, node, error)
        return
    if error:
        yield "claimed by another", fail(world, rank, node, "lost")
        return
    start = None if chosen is None else chosen.id
    store = world.store._replace(choices=(*world.store.choices, (task.claim, start)))
    task = task._replace(chosen=chosen, script=script, found=task.found[:1])
    yield "choose", go_on(world._replace(store=store), rank, node, task)


def load(world: World, rank: int, node: Node, task: Task, bugs: Bugs) -> Iterator[Step]:
    """Loads the bins; the home also opens the sinks."""
    [manifest] = task.found
    current = world.store.claims == task.claim
    if task.at == 0:
        if not manifest.files <= world.store.files:
            words = f"{manifest.id} is not whole" if current else "lost"
            yield "not whole", fail(world, rank, node, words)
            return
        whole = {bin: (bin, n, chunk) for part in manifest.parts for bin, n, chunk in part.bins}
        part = Part("", manifest.past, tuple(whole[bin] for bin in task.bins if bin in whole))
        node = node._replace(past=manifest.past, sealed=part, parent=manifest.id)
        node = node._replace(ready=(), next_file=manifest.next_file, filed=manifest.epoch)
        yield "loaded", go_on(world, rank, node, task)
        return
    follower = world.follower
    if follower is None or not task.home:
        node = node._replace(bases=task.bases)
        yield "done", tell(world, rank, node, Answer("load", task.attempt))
        return
    waiting = [file for file in manifest.ready if file in follower.hidden]
    gone = [file for file in manifest.ready if file not in follower.hidden]
    if any(file.rows != shown(follower, file) for file in gone):
        words = f"{gone} of {manifest.id} is gone" if current else "lost"
        yield "a hidden file is gone", fail(world, rank, node, words)
        return
    if waiting:
        yield f"shows {waiting[0]}", world._replace(follower=show(follower, waiting[0]))
        return
    if len(follower.visible) > manifest.next_file:
        words = f"{manifest.id} does not know {follower.visible}" if current else "lost"
        yield "an unknown file", fail(world, rank, node, words)
        return
    stay = frozenset(
        file
        for file in follower.hidden
        if file in manifest.ready or (file.claim >= task.claim and not bugs.remove_newer)
    )
    after = world._replace(follower=follower._replace(hidden=stay))
    node = node._replace(bases=task.bases)
    yield "opened", tell(after, rank, node, Answer("load", task.attempt))
