"""Rounds: how all members come to the same epoch for a change.

Promise to all members; the greatest fence is the epoch; Commit to all. Until the fact that all have
promised is journalled, the round can be lifted; from then on it goes through, whatever
happens: the layouts belong to the job at that moment, before the first node has heard of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from plait.coordinator.machine.stage import Result, enter, waited_for
from plait.coordinator.machine.state import Aim, JobState, Order, Telling, with_change, with_nodes
from plait.errors import InternalError
from plait.migration.machine import chunk_committed, chunk_layouts
from plait.protocol.messages import Begin, Commit, Layout, Lift, Promise

if TYPE_CHECKING:
    from plait.coordinator.messages.spec import Policy


def promise(job: JobState, aim: Aim, policy: Policy, at: float, cause: str) -> Result:
    """A round begins. Its number is that of its first stage."""
    command = Promise(round=job.next_stage, margin_s=policy.margin_s)
    orders = (Order(ranks=job.members, command=command),)
    return enter(job, Telling(aim=aim, act="promise", orders=orders), at, cause)


def lift(job: JobState, at: float, cause: str) -> Result:
    """The present round will not happen."""
    awaits = job.stage.awaits
    if not isinstance(awaits, Telling) or awaits.act != "promise":
        raise InternalError(f"{job.name}: no round can be lifted in stage {job.stage}")
    command = Lift(round=job.stage.id)
    orders = (Order(ranks=waited_for(awaits), command=command),)
    return enter(job, replace(awaits, act="lift", orders=orders), at, cause)


def commit(job: JobState, aim: Aim, fence: int, at: float, cause: str) -> Result:
    """All have promised: the change holds from the agreed epoch on."""
    number, members = job.stage.id, job.members
    # A fence is never behind the layout in force; later than all fences is as safe.
    epoch = max(fence, job.layout.epoch + 1)
    if aim == "stop":
        stop = Order(ranks=members, command=Commit(round=number, stop_at=epoch))
        job = replace(job, phase="stopping", refusals=0)
        return enter(job, Telling(aim=aim, act="commit", orders=(stop,)), at, cause)
    job, layouts = agreed(job, aim, epoch)
    orders = [Order(ranks=members, command=Commit(round=number, layouts=layouts))]
    if aim == "join":
        orders.append(Order(ranks=joining(job), command=Begin(layout=layouts[-1])))
        job = with_nodes(job, (replace(job.nodes[rank], phase="member") for rank in joining(job)))
    job = replace(job, layouts=(*job.layouts, *layouts), refusals=0)
    return enter(job, Telling(aim=aim, act="commit", orders=tuple(orders)), at, cause)


def agreed(job: JobState, aim: Aim, epoch: int) -> tuple[JobState, tuple[Layout, ...]]:
    """The layouts of a round, now that its epoch is known."""
    change, base = job.changing, job.layout
    if change is None or change.migration is None:
        raise InternalError(f"{job.name}: a round for {aim} without a rescale")
    plain = replace(base, epoch=epoch, copies=(), epoch_records=0)
    match aim:
        case "join":
            members = tuple(sorted((*base.members, *joining(job))))
            return job, (replace(plain, members=members),)
        case "leave":
            members = tuple(rank for rank in base.members if rank not in change.leaving)
            return job, (replace(plain, members=members),)
        case "chunk":
            migration = change.migration
            if migration.chunk is None:
                raise InternalError(f"{job.name}: a round for a chunk without a chunk")
            layouts = chunk_layouts(migration, migration.chunk, base, epoch)
            migration = chunk_committed(migration, layouts[-1].epoch)
            return with_change(job, replace(change, migration=migration)), layouts
        case "start" | "ready" | "stop" | "drop" | "over":
            raise InternalError(f"{job.name}: a round for {aim} has no layouts")
        case _:
            assert_never(aim)


def joining(job: JobState) -> tuple[int, ...]:
    """Nodes of the running rescale that are no members yet."""
    change = job.changing
    if change is None:
        return ()
    return tuple(r for r in change.joining if job.nodes[r].phase in ("starting", "joining"))
