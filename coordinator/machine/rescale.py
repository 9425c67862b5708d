"""A rescale from the request to its end: measure, plan, join, make ready, move in chunks, leave.

Each part is a wait or a round; between two of them the user's wishes (pause, abort, stop) are
looked at. A rescale that is given up leaves every bin with the owner it has at that moment; new
nodes that own nothing leave again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from plait.coordinator.machine.checkpoints.records import is_saving
from plait.coordinator.machine.drop_nodes import abandon_joining, send_drop
from plait.coordinator.machine.epoch_agreement import joining_ranks, promise
from plait.coordinator.machine.start_nodes import request_nodes
from plait.coordinator.machine.state import (
    Aim,
    HeldRescale,
    JobState,
    Measuring,
    NodeOrder,
    Pacing,
    Passing,
    Quiet,
    Readying,
    Rescaling,
    Telling,
    with_change,
    with_nodes,
)
from plait.coordinator.machine.turn import Next
from plait.coordinator.machine.wait import enter
from plait.coordinator.messages.commands import ReplyTo, StopNode
from plait.coordinator.messages.requests import Accepted, Rejected, Rescale
from plait.errors import InternalError, JobError, PlaitError
from plait.migration import machine
from plait.migration.bins import BinMap
from plait.migration.expectations import expectations, receivers
from plait.migration.plan import make_plan
from plait.migration.spread import spread

if TYPE_CHECKING:
    from plait.coordinator.machine.turn import Turn
    from plait.coordinator.messages.events import LoadsKnown
    from plait.protocol.messages import Rank


NAMES_SHOWN = 8
GROWING = "grow"
"""How the id of a rescale begins that nobody asked for: lost nodes are replaced."""


def measure(job: JobState, request: Rescale, request_id: str, turn: Turn) -> Next | Rejected:
    """Begins a rescale, unless something is wrong with it: at once, or after what is short."""
    if job.phase != "running" or job.stop_asked or job.held is not None:
        return Rejected(reason=f"{job.name} is {activity(job)}: rescale it when it runs")
    if isinstance(job.wait.kind, Quiet):
        return weigh(job, request, request_id, turn)
    if isinstance(job.wait.kind, Measuring) or isinstance(job.interrupted, Measuring):
        return Rejected(reason=f"{job.name} is {activity(job)}: rescale it when it runs")
    # A round for a mark, or the members are told of nodes that are gone, as at the end of every
    # rescale in which some leave: nobody can know when that is, so nobody is sent away for it.
    return Next(replace(job, held=HeldRescale(request=request, request_id=request_id)))


def weigh(job: JobState, request: Rescale, request_id: str, turn: Turn) -> Next | Rejected:
    """The first wait of a rescale of a job that waits for nothing else: the load of the bins."""
    wrong = [rank for rank in request.away if rank not in job.members]
    if wrong:
        members = node_names(job.members)
        return Rejected(reason=f"{job.name} has no node-{wrong[0]}; it has {members}")
    staying = [rank for rank in job.members if rank not in request.away]
    wanted = len(staying) if request.nodes is None else request.nodes
    if wanted < 1:
        return Rejected(reason=f"{job.name} needs at least one node")
    away = set(request.away) | set(first_to_leave(job, staying)[: max(len(staying) - wanted, 0)])
    if job.home in away:
        return Rejected(
            reason=f"node-{job.home} of {job.name} has its sinks and cannot leave, nor could an "
            "operator with its own loop; stop the job and submit it again to have them elsewhere"
        )
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
        began_at=turn.at,
    )
    return enter(job, Measuring(ranks=job.members, draft=draft), turn)


def first_to_leave(job: JobState, staying: list[Rank]) -> list[Rank]:
    """The nodes in the order in which they would leave: highest ranks first, never the home."""
    return [rank for rank in reversed(staying) if rank != job.home]


def activity(job: JobState) -> str:
    if job.stop_asked:
        return "stopping"
    if isinstance(job.wait.kind, Measuring) or isinstance(job.interrupted, Measuring):
        return "being measured for another rescale"
    return "about to be rescaled" if job.held is not None else job.phase


def node_names(ranks: tuple[Rank, ...]) -> str:
    """The nodes by name; if there are many, their number."""
    if len(ranks) > NAMES_SHOWN:
        return f"{len(ranks)} nodes (node-{ranks[0]} to node-{ranks[-1]})"
    return ", ".join(f"node-{rank}" for rank in ranks)


def plan_rescale(job: JobState, loads: LoadsKnown, turn: Turn) -> Next:
    """The loads are known: makes the plan and replies to the client."""
    kind = job.wait.kind
    if not isinstance(kind, Measuring):
        raise InternalError(f"{job.name}: loads came in {job.wait}")
    # A member may have been lost while the bins were weighed.
    leaving = tuple(rank for rank in kind.draft.leaving if rank in job.members)
    draft = replace(kind.draft, leaving=leaving)
    try:
        if job.stop_asked:
            raise JobError(f"{job.name} is stopping")
        migration = plan_migration(job, draft, loads, turn)
    except Exception as error:  # the request is refused, and the job runs on
        why = str(error) if isinstance(error, PlaitError) else f"{type(error).__name__}: {error}"
        return Next(job, (reply(draft, Rejected(reason=why)),)).then(settle, turn)
    answer = (reply(draft, Accepted(job=job.name, plan=plan_text(draft, migration))),)
    if draft.dry_run:
        return Next(job, answer).then(settle, turn)
    job = with_change(replace(job, phase="rescaling"), replace(draft, migration=migration))
    if draft.joining:
        return Next(job, answer).then(request_nodes, len(draft.joining), turn)
    return Next(job, answer).then(proceed, turn)


def plan_migration(
    job: JobState, draft: Rescaling, loads: LoadsKnown, turn: Turn
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
        bandwidth_bytes_per_s=turn.policy.bandwidth_bytes_per_s,
    )
    return machine.begin(plan, turn.at, draft.throttle_bytes_per_s)


def plan_text(draft: Rescaling, migration: machine.Migration) -> str:
    lines = []
    if draft.joining:
        lines.append(f"{node_names(draft.joining)} will join")
    lines.append(str(migration.plan))
    if draft.leaving:
        lines.append(f"{node_names(draft.leaving)} will leave")
    return "\n".join(lines)


def reply(asked: Rescaling | HeldRescale, what: Accepted | Rejected) -> ReplyTo:
    return ReplyTo(request_id=asked.request_id, reply=what, cause=f"request {asked.request_id}")


def proceed(job: JobState, turn: Turn) -> Next:
    """The next part of the rescale: chunks while there are any, then the leaving, then the end."""
    change, migration = open_rescale(job)
    if job.stop_asked:
        migration = machine.abort(migration, "the job was asked to stop", turn.at)
        job = with_change(job, replace(change, migration=migration))
    if joining_ranks(job):
        if not migration.over:
            return promise(job, "join", turn)
        return abandon_joining(job, turn).then(proceed, turn)
    if job.dropping:
        return send_drop(job, Pacing(), turn)
    job = with_change(job, replace(open_rescale(job)[0], phase="running"))
    if not migration.over:
        if not change.expected:
            return announce_moves(job, turn)
        return enter(job, Pacing(), turn)
    leaving = leaving_ranks(job)
    if leaving and job.refusals <= turn.policy.round_tries and not job.stop_asked:
        job = with_change(job, replace(open_rescale(job)[0], leaving=leaving))
        job = with_nodes(job, (replace(job.nodes[rank], phase="leaving") for rank in leaving))
        return promise(job, "leave", turn)
    return close(job, turn)


def announce_moves(job: JobState, turn: Turn) -> Next:
    """Before the first chunk, tells each node what will move from it and to it."""
    change, migration = open_rescale(job)
    number = job.next_wait
    orders = tuple(
        NodeOrder(ranks=(rank,), command=command)
        for rank, command in expectations(migration.plan, number).items()
    )
    job = with_change(job, replace(change, expected=True))
    return enter(job, Telling(aim="ready", act="expect", orders=orders), turn)


def make_ready(job: JobState, turn: Turn) -> Next:
    """All know what will move: the nodes that get bins make memory ready for them."""
    _, migration = open_rescale(job)
    if migration.over:
        return proceed(job, turn)
    ranks = tuple(sorted(receivers(migration.plan) & set(job.members)))
    readying = Readying(number=job.wait.id, ranks=ranks)
    if job.dropping:
        return send_drop(job, readying, turn)
    return enter(job, readying, turn)


def open_rescale(job: JobState) -> tuple[Rescaling, machine.Migration]:
    change = job.changing
    if change is None or change.migration is None:
        raise InternalError(f"{job.name}: no rescale is running")
    return change, change.migration


def leaving_ranks(job: JobState) -> tuple[Rank, ...]:
    """The nodes to leave; of a rescale that was given up, all it touched that own nothing."""
    change, migration = open_rescale(job)
    touched = change.leaving
    if not migration.complete:
        touched = tuple(sorted({*change.joining, *change.leaving}))
    owners = set(job.layout.owners)
    return tuple(r for r in touched if r in job.members and r not in owners and r != job.home)


def issue_chunk(job: JobState, epochs_per_s: float, turn: Turn) -> Next:
    """Begins the round for the next steps of the plan."""
    change, migration = open_rescale(job)
    chunk = machine.next_chunk(migration, epochs_per_s, turn.policy.chunk_s)
    if chunk is None:
        return Next(job)
    chunk = replace(chunk, epochs=chunk.epochs[: turn.policy.chunk_layouts])
    migration = machine.issue_chunk(migration, chunk)
    job = with_change(job, replace(change, migration=migration))
    return promise(job, "chunk", turn)


def await_passing(job: JobState, aim: Aim, turn: Turn) -> Next:
    """All know the new layouts: waits until they have passed them."""
    leaving: tuple[Rank, ...] = ()
    if aim == "leave":
        leaving = tuple(r for r, node in job.nodes.items() if node.phase == "leaving")
    ranks = tuple(sorted({*job.members, *leaving}))
    passing = Passing(aim=aim, epoch=job.layout.epoch, ranks=ranks, leaving=leaving)
    if job.dropping:
        # The members would wait for the parts of the lost node.
        return send_drop(job, passing, turn)
    return enter(job, passing, turn)


def retire_layouts(job: JobState, passing: Passing, turn: Turn) -> Next:
    """All nodes have passed the newest layout: it is the only one in force."""
    job = replace(job, layouts=job.layouts[-1:])
    if passing.aim == "keep":
        return settle(job, turn)
    change, migration = open_rescale(job)
    if passing.aim == "chunk":
        migration = machine.finish_chunk(migration, turn.at)
        job = with_change(job, replace(change, migration=migration))
    if passing.aim == "leave":
        gone = [job.nodes[r] for r in change.leaving if job.nodes[r].phase == "leaving"]
        job = with_nodes(job, (replace(node, phase="left") for node in gone))
        stops = tuple(
            StopNode(job=job.name, rank=node.rank, cause=turn.cause, keep=True) for node in gone
        )
        # The members need not connect to them any more.
        job = replace(job, dropping=(*job.dropping, *(node.rank for node in gone)))
        return Next(job, stops).then(close, turn)
    return proceed(job, turn)


def give_up_round(job: JobState, turn: Turn) -> Next:
    """A mark was not promised by all: another one is tried later, and the job goes on."""
    if job.checkpoints is not None:
        again = replace(job.checkpoints, next_at=turn.at + turn.policy.save_again_s)
        job = replace(job, checkpoints=again, refusals=0)
    return settle(job, turn) if job.changing is None else proceed(job, turn)


def retry_round(job: JobState, aim: Aim, turn: Turn) -> Next:
    """A round was lifted: tries it again, or gives up what it was for."""
    if aim == "save":
        return give_up_round(job, turn)
    if aim == "keep":
        if job.refusals > turn.policy.round_tries:  # its sources are at their end, mostly
            job = replace(job, keep=job.layout.keep, refusals=0)
        return settle(job, turn)
    if aim == "stop":
        if job.refusals > turn.policy.round_tries:
            job = replace(job, stop_asked=False, refusals=0)
        if job.dropping:
            return send_drop(job, Quiet(), turn)
        return settle(job, turn)
    change, migration = open_rescale(job)
    if migration.chunk is not None and not migration.chunk.committed:
        migration = machine.withdraw_chunk(migration, turn.at)
    if job.refusals > turn.policy.round_tries:
        migration = machine.abort(migration, change.reason or "its rounds were refused", turn.at)
    job = with_change(job, replace(change, migration=migration))
    return proceed(job, turn)


def close(job: JobState, turn: Turn) -> Next:
    """The rescale is over."""
    change, migration = open_rescale(job)
    reason = change.reason or migration.reason
    good = migration.complete and not reason and not leaving_ranks(job)
    change = replace(
        change,
        phase="done" if good else "failed",
        reason="" if good else reason or "not all nodes could leave",
        ended_at=turn.at,
    )
    # A node that could not leave is a member like any other.
    stayed = [n for n in job.nodes.values() if n.phase == "leaving" and n.rank in job.members]
    job = with_nodes(with_change(job, change), (replace(node, phase="member") for node in stayed))
    if job.checkpoints is not None and not change.request_id.startswith(GROWING):
        job = replace(job, checkpoints=replace(job.checkpoints, wanted=len(job.members)))
    return settle(replace(job, phase="running", refusals=0), turn)


def settle(job: JobState, turn: Turn) -> Next:
    """Nothing is under way: waits, or does what was requested meanwhile: stop, rescale."""
    if job.dropping:
        return send_drop(job, Quiet(), turn)
    if job.held is not None:
        return take_up(job, job.held, turn)
    if job.stop_asked and job.phase == "running" and not is_saving(job):
        return promise(job, "stop", turn)
    if wants_keep(job):
        return promise(job, "keep", turn)
    return enter(job, Quiet(), turn)


def wants_keep(job: JobState) -> bool:
    """Whether the members do not know yet what is to be kept."""
    return job.phase == "running" and not job.stop_asked and job.keep != job.layout.keep


def take_up(job: JobState, held: HeldRescale, turn: Turn) -> Next:
    """The rescale that had to wait."""
    job = replace(job, held=None)
    after: Next | Rejected = Rejected(reason=f"{job.name} is {activity(job)}")
    if job.phase == "running" and not job.stop_asked:
        cause = f"request {held.request_id}"
        after = weigh(job, held.request, held.request_id, replace(turn, cause=cause))
    if isinstance(after, Rejected):
        return Next(job, (reply(held, after),)).then(settle, turn)
    return after
