"""A rescale from the request to its end: measure, plan, join, make ready, move in chunks, leave.

Each part is a stage or a round; between two of them the user's wishes (pause, abort, stop) are
looked at. A rescale that is given up leaves every bin with the owner it has at that moment; new
nodes that own nothing leave again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from plait.coordinator.machine.drop_nodes import abandon, tell_drop
from plait.coordinator.machine.epoch_agreement import joining, promise
from plait.coordinator.machine.stage import Result, enter
from plait.coordinator.machine.start_nodes import ask_for
from plait.coordinator.machine.state import (
    Aim,
    JobState,
    Measuring,
    Order,
    Pacing,
    Passing,
    Quiet,
    Readying,
    Rescaling,
    Telling,
    with_change,
    with_nodes,
)
from plait.coordinator.messages.commands import ReplyTo
from plait.coordinator.messages.requests import Accepted, Rejected, Rescale
from plait.errors import InternalError, JobError, PlaitError
from plait.migration import machine
from plait.migration.bins import BinMap
from plait.migration.expectations import expectations, receivers
from plait.migration.plan import make_plan
from plait.migration.spread import spread

if TYPE_CHECKING:
    from plait.coordinator.messages.events import LoadsKnown
    from plait.coordinator.messages.spec import Policy
    from plait.protocol.messages import Rank


NAMED = 8


def ask(job: JobState, request: Rescale, request_id: str, at: float) -> Result | Rejected:
    """A rescale is asked for: first the bins are weighed."""
    if job.phase != "running" or job.changing is not None or job.stop_asked:
        return Rejected(reason=f"{job.name} is {doing(job)}: rescale it when it runs")
    wrong = [rank for rank in request.away if rank not in job.members]
    if wrong:
        return Rejected(reason=f"{job.name} has no node-{wrong[0]}; it has {named(job.members)}")
    staying = [rank for rank in job.members if rank not in request.away]
    wanted = len(staying) if request.nodes is None else request.nodes
    if wanted < 1:
        return Rejected(reason=f"{job.name} needs at least one node, got {wanted}")
    away = set(request.away) | set(leavers(job, staying)[: max(len(staying) - wanted, 0)])
    if job.home in away:
        return Rejected(
            reason=f"node-{job.home} of {job.name} has its sinks and cannot leave, nor could an "
            "operator with its own loop; stop the job and submit it again to have them elsewhere"
        )
    if request.throttle_bytes_per_s is not None and request.throttle_bytes_per_s <= 0.0:
        return Rejected(reason=f"a throttle must be above 0, got {request.throttle_bytes_per_s}")
    count = max(wanted - len(staying), 0)
    draft = Rescaling(
        number=(job.change.number if job.change else 0) + 1,
        request_id=request_id,
        strategy=request.strategy,
        gap_epochs=request.gap_epochs,
        throttle_bytes_per_s=request.throttle_bytes_per_s,
        balance=request.balance,
        dry_run=request.dry_run,
        joining=tuple(range(job.next_rank, job.next_rank + count)),
        leaving=tuple(sorted(away)),
        began_at=at,
    )
    return enter(job, Measuring(ranks=job.members, draft=draft), at, f"request {request_id}")


def leavers(job: JobState, staying: list[Rank]) -> list[Rank]:
    """Who would leave first: the highest ranks, never the home."""
    return [rank for rank in reversed(staying) if rank != job.home]


def doing(job: JobState) -> str:
    if isinstance(job.stage.awaits, Measuring):
        return "being measured for another rescale"
    return "stopping" if job.stop_asked else job.phase


def named(ranks: tuple[Rank, ...]) -> str:
    """The nodes by name; of very many, how many."""
    if len(ranks) > NAMED:
        return f"{len(ranks)} nodes (node-{ranks[0]} to node-{ranks[-1]})"
    return ", ".join(f"node-{rank}" for rank in ranks)


def weighed(job: JobState, loads: LoadsKnown, policy: Policy, at: float, cause: str) -> Result:
    """The loads are known: the plan is made, and told to the client."""
    awaits = job.stage.awaits
    if not isinstance(awaits, Measuring):
        raise InternalError(f"{job.name}: loads came in stage {job.stage}")
    draft = awaits.draft
    # A member may have been lost while the bins were weighed.
    draft = replace(draft, leaving=tuple(r for r in draft.leaving if r in job.members))
    try:
        if job.stop_asked:
            raise JobError(f"{job.name} is stopping")
        migration = planned(job, draft, loads, policy, at)
    except PlaitError as error:
        job, commands = settle(job, policy, at, cause)
        return job, [reply(draft, Rejected(reason=str(error))), *commands]
    answer = reply(draft, Accepted(job=job.name, plan=plan_text(draft, migration)))
    if draft.dry_run:
        job, commands = settle(job, policy, at, cause)
        return job, [answer, *commands]
    job = with_change(replace(job, phase="rescaling"), replace(draft, migration=migration))
    if draft.joining:
        job, commands = ask_for(job, len(draft.joining), at, cause)
    else:
        job, commands = move(job, policy, at, cause)
    return job, [answer, *commands]


def planned(
    job: JobState, draft: Rescaling, loads: LoadsKnown, policy: Policy, at: float
) -> machine.Migration:
    current = BinMap(version=job.layout.epoch, owners=tuple(job.layout.owners))
    capacities = {rank: job.nodes[rank].capacity for rank in job.members}
    mean = sum(capacities.values()) / len(capacities)
    capacities |= dict.fromkeys(draft.joining, mean)
    weights = None
    if draft.balance:
        weights = dict(zip(loads.bins, map(float, loads.records), strict=True))
    target = spread(current, capacities, weights, frozenset(draft.leaving))
    sizes = dict(zip(loads.bins, loads.sizes, strict=True))
    plan = make_plan(
        current,
        target,
        draft.strategy,
        sizes,
        draft.gap_epochs,
        bandwidth_bytes_per_s=policy.bandwidth_bytes_per_s,
    )
    return machine.begin(plan, at, draft.throttle_bytes_per_s)


def plan_text(draft: Rescaling, migration: machine.Migration) -> str:
    lines = []
    if draft.joining:
        lines.append(f"{named(draft.joining)} will join")
    lines.append(str(migration.plan))
    if draft.leaving:
        lines.append(f"{named(draft.leaving)} will leave")
    return "\n".join(lines)


def reply(draft: Rescaling, what: Accepted | Rejected) -> ReplyTo:
    return ReplyTo(request_id=draft.request_id, reply=what, cause=f"request {draft.request_id}")


def move(job: JobState, policy: Policy, at: float, cause: str) -> Result:
    """The next part of the rescale: chunks while there are any, then the leaving, then the end."""
    change, migration = running(job)
    if job.stop_asked:
        migration = machine.abort(migration, "the job was asked to stop", at)
        job = with_change(job, replace(change, migration=migration))
    if joining(job):
        if not migration.over:
            return promise(job, "join", policy, at, cause)
        job, stops = abandon(job, cause)
        job, commands = move(job, policy, at, cause)
        return job, stops + commands
    if job.dropping:
        return tell_drop(job, Pacing(), at, cause)
    job = with_change(job, replace(running(job)[0], phase="running"))
    if not migration.over:
        if not change.expected:
            return expect(job, at, cause)
        return enter(job, Pacing(), at, cause)
    leaving = who_leave(job)
    if leaving and job.refusals <= policy.round_tries and not job.stop_asked:
        job = with_change(job, replace(running(job)[0], leaving=leaving))
        job = with_nodes(job, (replace(job.nodes[rank], phase="leaving") for rank in leaving))
        return promise(job, "leave", policy, at, cause)
    return close(job, policy, at, cause)


def expect(job: JobState, at: float, cause: str) -> Result:
    """Before the first chunk, each node is told what will move from it and to it."""
    change, migration = running(job)
    number = job.next_stage
    orders = tuple(
        Order(ranks=(rank,), command=command)
        for rank, command in expectations(migration.plan, number).items()
    )
    job = with_change(job, replace(change, expected=True))
    return enter(job, Telling(aim="ready", act="expect", orders=orders), at, cause)


def expected(job: JobState, policy: Policy, at: float, cause: str) -> Result:
    """All know what will move: those who get bins make memory ready for them."""
    _, migration = running(job)
    if migration.over:
        return move(job, policy, at, cause)
    ranks = tuple(sorted(receivers(migration.plan) & set(job.members)))
    readying = Readying(number=job.stage.id, ranks=ranks)
    if job.dropping:
        return tell_drop(job, readying, at, cause)
    return enter(job, readying, at, cause)


def running(job: JobState) -> tuple[Rescaling, machine.Migration]:
    change = job.changing
    if change is None or change.migration is None:
        raise InternalError(f"{job.name}: no rescale is running")
    return change, change.migration


def who_leave(job: JobState) -> tuple[Rank, ...]:
    """The nodes that are to leave; of a rescale that was given up, all it touched that own
    nothing."""
    change, migration = running(job)
    touched = change.leaving
    if not migration.complete:
        touched = tuple(sorted({*change.joining, *change.leaving}))
    owners = set(job.layout.owners)
    return tuple(r for r in touched if r in job.members and r not in owners and r != job.home)


def chunk_due(job: JobState, epochs_per_s: float, policy: Policy, at: float, cause: str) -> Result:
    """Take the next steps of the plan."""
    change, migration = running(job)
    chunk = machine.next_chunk(migration, epochs_per_s, policy.chunk_s)
    if chunk is None:
        return job, []
    chunk = replace(chunk, epochs=chunk.epochs[: policy.chunk_layouts])
    migration = machine.chunk_issued(migration, chunk)
    job = with_change(job, replace(change, migration=migration))
    return promise(job, "chunk", policy, at, cause)


def committed(job: JobState, aim: Aim, at: float, cause: str) -> Result:
    """All know the layouts: now they pass them."""
    leaving: tuple[Rank, ...] = ()
    if aim == "leave":
        leaving = tuple(r for r, node in job.nodes.items() if node.phase == "leaving")
    ranks = tuple(sorted({*job.members, *leaving}))
    passing = Passing(aim=aim, epoch=job.layout.epoch, ranks=ranks, leaving=leaving)
    if job.dropping:
        # The members would wait for the parts of the lost node.
        return tell_drop(job, passing, at, cause)
    return enter(job, passing, at, cause)


def passed(job: JobState, passing: Passing, policy: Policy, at: float, cause: str) -> Result:
    """All nodes have passed the newest layout: it is the only one in force."""
    job = replace(job, layouts=job.layouts[-1:])
    change, migration = running(job)
    if passing.aim == "chunk":
        migration = machine.chunk_done(migration, at)
        job = with_change(job, replace(change, migration=migration))
    if passing.aim == "leave":
        gone = [job.nodes[r] for r in change.leaving if job.nodes[r].phase == "leaving"]
        job = with_nodes(job, (replace(node, phase="left") for node in gone))
        return close(job, policy, at, cause)
    return move(job, policy, at, cause)


def lifted(job: JobState, aim: Aim, policy: Policy, at: float, cause: str) -> Result:
    """A round was lifted: try again, or give up what it was for."""
    if aim == "stop":
        if job.refusals > policy.round_tries:
            job = replace(job, stop_asked=False, refusals=0)
        if job.dropping:
            return tell_drop(job, Quiet(), at, cause)
        return settle(job, policy, at, cause)
    change, migration = running(job)
    if migration.chunk is not None and not migration.chunk.committed:
        migration = machine.chunk_withdrawn(migration, at)
    if job.refusals > policy.round_tries:
        migration = machine.abort(migration, change.reason or "its rounds were refused", at)
    job = with_change(job, replace(change, migration=migration))
    return move(job, policy, at, cause)


def close(job: JobState, policy: Policy, at: float, cause: str) -> Result:
    """The rescale is over."""
    change, migration = running(job)
    reason = change.reason or migration.reason
    good = migration.complete and not reason and not who_leave(job)
    change = replace(
        change,
        phase="done" if good else "failed",
        reason="" if good else reason or "not all nodes could leave",
        ended_at=at,
    )
    # A node that could not leave is a member like any other.
    stayed = [n for n in job.nodes.values() if n.phase == "leaving" and n.rank in job.members]
    job = with_nodes(with_change(job, change), (replace(node, phase="member") for node in stayed))
    return settle(replace(job, phase="running", refusals=0), policy, at, cause)


def settle(job: JobState, policy: Policy, at: float, cause: str) -> Result:
    """Nothing is under way: wait, or stop if that was asked for meanwhile."""
    if job.stop_asked and job.phase == "running":
        return promise(job, "stop", policy, at, cause)
    return enter(job, Quiet(), at, cause)
