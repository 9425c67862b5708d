"""Rounds: how all members agree on the epoch of a change.

Promise to all members; the greatest fence is the epoch; Commit to all. Until the fact that all have
promised is journalled, the round can be lifted; from then on it goes through, whatever happens: the
layouts belong to the job at that moment, before the first node has heard of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from plait.coordinator.machine.checkpoints.records import free_epoch, set_mark
from plait.coordinator.machine.state import (
    Aim,
    JobState,
    NodeOrder,
    Telling,
    with_change,
    with_nodes,
)
from plait.coordinator.machine.wait import awaited_ranks, enter
from plait.errors import InternalError
from plait.migration.machine import chunk_layouts, commit_chunk
from plait.protocol.messages import Begin, Commit, Layout, Lift, Promise

if TYPE_CHECKING:
    from plait.coordinator.machine.turn import Next, Turn


def promise(job: JobState, aim: Aim, turn: Turn) -> Next:
    """Begins a round. Its number is that of its first wait."""
    command = Promise(round=job.next_wait, margin_s=turn.policy.margin_s)
    orders = (NodeOrder(ranks=job.members, command=command),)
    return enter(job, Telling(aim=aim, act="promise", orders=orders), turn)


def lift(job: JobState, turn: Turn) -> Next:
    """Calls the present round off."""
    kind = job.wait.kind
    if not isinstance(kind, Telling) or kind.act != "promise":
        raise InternalError(f"{job.name}: no round can be lifted in {job.wait}")
    command = Lift(round=job.wait.id)
    orders = (NodeOrder(ranks=awaited_ranks(kind), command=command),)
    return enter(job, replace(kind, act="lift", orders=orders), turn)


def commit(job: JobState, aim: Aim, fence: int, turn: Turn) -> Next:
    """All have promised: the change holds from the agreed epoch on."""
    number, members = job.wait.id, job.members
    epoch = free_epoch(job, fence)
    if aim == "save":
        job, mark = set_mark(job, epoch, members, turn.at)
        order = NodeOrder(ranks=members, command=Commit(round=number, mark=mark))
        job = replace(job, refusals=0)
        return enter(job, Telling(aim=aim, act="commit", orders=(order,)), turn)
    if aim == "stop":
        job, command = stop_commit(job, number, epoch, turn)
        job = replace(job, phase="stopping", refusals=0)
        stop = NodeOrder(ranks=members, command=command)
        return enter(job, Telling(aim=aim, act="commit", orders=(stop,)), turn)
    job, layouts = round_layouts(job, aim, epoch)
    orders = [NodeOrder(ranks=members, command=Commit(round=number, layouts=layouts))]
    if aim == "join":
        fresh = joining_ranks(job)
        orders.append(NodeOrder(ranks=fresh, command=Begin(layout=layouts[-1], joins=True)))
        job = with_nodes(job, (replace(job.nodes[rank], phase="member") for rank in fresh))
    job = replace(job, layouts=(*job.layouts, *layouts), refusals=0)
    return enter(job, Telling(aim=aim, act="commit", orders=tuple(orders)), turn)


def stop_commit(job: JobState, number: int, epoch: int, turn: Turn) -> tuple[JobState, Commit]:
    """The common end; with checkpoints the last one is there, unless windows are to be flushed:
    then it follows when all that came of them is delivered."""
    if job.checkpoints is None or job.finish == "flush":
        return job, Commit(round=number, stop_at=epoch, finish=job.finish)
    known = replace(job.checkpoints, ending="stopped", stop_epoch=epoch)
    job, mark = set_mark(replace(job, checkpoints=known), epoch, job.members, turn.at)
    return job, Commit(round=number, stop_at=epoch, finish="leave", mark=mark)


def round_layouts(job: JobState, aim: Aim, epoch: int) -> tuple[JobState, tuple[Layout, ...]]:
    """The layouts of a round, now that its epoch is known."""
    change, base = job.changing, replace(job.layout, keep=job.keep)
    if aim == "keep":
        return job, (replace(base, epoch=epoch, copies=(), epoch_records=0, first_row=()),)
    if change is None or change.migration is None:
        raise InternalError(f"{job.name}: a round for {aim} without a rescale")
    plain = replace(base, epoch=epoch, copies=(), epoch_records=0, first_row=())
    match aim:
        case "join":
            members = tuple(sorted((*base.members, *joining_ranks(job))))
            return job, (replace(plain, members=members),)
        case "leave":
            members = tuple(rank for rank in base.members if rank not in change.leaving)
            return job, (replace(plain, members=members),)
        case "chunk":
            migration = change.migration
            if migration.chunk is None:
                raise InternalError(f"{job.name}: a round for a chunk without a chunk")
            layouts = chunk_layouts(migration, migration.chunk, base, epoch)
            migration = commit_chunk(migration, layouts[-1].epoch)
            return with_change(job, replace(change, migration=migration)), layouts
        case "start" | "ready" | "save" | "stop" | "drop" | "restore" | "over":
            raise InternalError(f"{job.name}: a round for {aim} has no layouts")
        case _:
            assert_never(aim)


def joining_ranks(job: JobState) -> tuple[int, ...]:
    """Nodes of the running rescale that are not members yet."""
    change = job.changing
    if change is None:
        return ()
    return tuple(r for r in change.joining if job.nodes[r].phase in ("starting", "joining"))
