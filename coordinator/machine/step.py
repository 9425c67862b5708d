"""The job manager as a function: a state and a fact give the next state and the commands to send.

No clock, no chance, no effect: the same facts give the same state, so replaying the journal is the
whole of recovery. A fact about a wait that is over (its number says so) changes nothing. Commands
are safe to send again at any time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from plait.coordinator.machine import on_request
from plait.coordinator.machine.checkpoints.records import saves
from plait.coordinator.machine.checkpoints.recovery import (
    begin_again,
    follow_slow,
    grow,
    load,
    recover,
    refused_restore,
    run_on,
    survey,
)
from plait.coordinator.machine.checkpoints.saving import (
    begin_save,
    come_to_end,
    go_back,
    miss_part,
    seal,
    slow_commands,
)
from plait.coordinator.machine.drop_nodes import send_drop
from plait.coordinator.machine.epoch_agreement import commit, lift
from plait.coordinator.machine.job_end import end, finish, stop_nodes
from plait.coordinator.machine.node_loss import give_up_rescale, lose, resume_after_drop
from plait.coordinator.machine.quality.follow import follow_decision
from plait.coordinator.machine.rescale import (
    await_passing,
    issue_chunk,
    make_ready,
    plan_rescale,
    proceed,
    retire_layouts,
    retry_round,
    settle,
)
from plait.coordinator.machine.start_nodes import (
    all_made,
    begin,
    connect_new,
    note_made,
    place_nodes,
    prepare,
    with_pending_nodes,
)
from plait.coordinator.machine.state import (
    JobState,
    JobWatch,
    Loading,
    Measuring,
    Pacing,
    Passing,
    Placing,
    Quiet,
    Readying,
    Starting,
    State,
    Surveying,
    Telling,
    with_job,
)
from plait.coordinator.machine.turn import Next, Turn
from plait.coordinator.machine.wait import awaited_ranks, commands, enter
from plait.coordinator.messages.commands import Outgoing, ReplyTo, StopNode
from plait.coordinator.messages.events import (
    Asked,
    CheckpointDue,
    ChunkDue,
    Expired,
    Fact,
    HostsSeen,
    JobOver,
    LoadsKnown,
    NodeFailed,
    NodeLost,
    NodeMade,
    NodeNotMade,
    NodesWanted,
    PartFailed,
    PartsSaved,
    QualityDecided,
    Restarted,
    SlowDone,
    TooOld,
    TurnFailed,
    WaitDone,
    WaitRefused,
)
from plait.errors import InternalError
from plait.protocol.messages import Drop


def step(state: State, event: Fact) -> tuple[State, list[Outgoing]]:
    """What follows from a fact."""
    state, out = follow(state, event)
    replies = {reply.request_id: reply.reply for reply in out if isinstance(reply, ReplyTo)}
    if replies:
        kept = {**state.replies, **replies}
        for old in list(kept)[: max(len(kept) - state.policy.replies, 0)]:
            del kept[old]
        state = replace(state, replies=kept)
    return state, out


def follow(state: State, event: Fact) -> tuple[State, list[Outgoing]]:
    match event:
        case Asked():
            return on_request.follow_request(state, event)
        case HostsSeen():
            return place_waiting_jobs(state, event)
        case Restarted():
            return resume_jobs(state, event)
        case _:
            job = state.jobs.get(event.job)
            if job is None:
                return state, stop_stray(event)
            after = job_step(job, event, Turn(policy=state.policy, at=event.at, cause=event.cause))
            return with_job(state, after.job), list(after.commands)


def stop_stray(event: Fact) -> list[Outgoing]:
    """A node of an unknown job is stopped."""
    if isinstance(event, NodeMade):
        return [StopNode(job=event.job, rank=event.rank, cause="no such job")]
    return []


def place_waiting_jobs(state: State, event: HostsSeen) -> tuple[State, list[Outgoing]]:
    """Every job that waits for a place gets one; earlier ones count for later ones."""
    out: list[Outgoing] = []
    turn = Turn(policy=state.policy, at=event.at, cause=event.cause)
    for job in state.jobs.values():
        if not isinstance(job.wait.kind, Placing):
            continue
        hosts = with_pending_nodes(event.hosts, state.jobs, event.at)
        try:
            after = place_nodes(job, hosts, replace(turn, cause=job.wait.cause))
        except Exception as error:  # of this job alone: the others are placed
            after = f"{type(error).__name__}: {error}"
        if isinstance(after, str):
            if job.phase == "recovering":
                continue  # it waits for a place, however long that takes
            after = give_up_placing(job, f"no host for its nodes: {after}", turn)
        state = with_job(state, after.job)
        out += after.commands
    return state, out


def give_up_placing(job: JobState, reason: str, turn: Turn) -> Next:
    if job.changing is None:
        return end(job, "failed", reason, turn)
    return proceed(give_up_rescale(job, reason, turn), turn)


def resume_jobs(state: State, event: Restarted) -> tuple[State, list[Outgoing]]:
    """Every command not known to be answered is sent again; every node has time to report."""
    out: list[Outgoing] = []
    for job in state.jobs.values():
        watch = JobWatch(
            missing=frozenset(awaited_ranks(job.wait.kind)),
            sent_at=event.at,
            heard=dict.fromkeys(job.live, event.at),
        )
        job = replace(job, watch=watch, wait=replace(job.wait, since=event.at))
        state = with_job(state, job)
        if not job.over:
            out += [*commands(job), *slow_commands(job)]
    return state, out


JobFact = (
    NodeMade
    | NodeNotMade
    | NodeLost
    | WaitDone
    | WaitRefused
    | LoadsKnown
    | ChunkDue
    | NodeFailed
    | CheckpointDue
    | PartsSaved
    | PartFailed
    | SlowDone
    | TooOld
    | NodesWanted
    | JobOver
    | QualityDecided
    | TurnFailed
    | Expired
)


def job_step(job: JobState, event: JobFact, turn: Turn) -> Next:
    match event:
        case NodeMade():
            return accept_node(job, event, turn)
        case NodeNotMade(rank=rank, reason=reason):
            node = job.nodes.get(rank)
            if node is None or node.phase != "starting" or node.peer is not None or job.over:
                return Next(job)
            return lose(job, rank, f"could not be made: {reason}", turn)
        case NodeLost(rank=rank, reason=reason):
            if rank not in job.nodes:
                return Next(job, (StopNode(job=job.name, rank=rank, cause=turn.cause),))
            return lose(job, rank, reason, turn)
        case (
            WaitDone() | WaitRefused() | LoadsKnown() | ChunkDue() | CheckpointDue() | NodesWanted()
        ) if event.wait != job.wait.id:
            return Next(job)
        case CheckpointDue() | PartsSaved() | PartFailed() | SlowDone() | TooOld() | NodesWanted():
            return checkpoint_step(job, event, turn)
        case WaitDone(epoch=epoch):
            return end_wait(job, epoch, turn)
        case WaitRefused():
            return follow_refusal(job, event, turn)
        case LoadsKnown():
            return plan_rescale(job, event, turn)
        case ChunkDue(epochs_per_s=rate):
            return issue_chunk(job, rate, turn)
        case NodeFailed() | JobOver() if event.attempt != job.attempt:
            return Next(job)  # the job has gone back to a checkpoint since
        case NodeFailed(rank=rank, error=error, lost_peer=lost_peer):
            node = job.nodes.get(rank)
            if node is None or node.phase == "lost" or job.over or job.phase == "ending":
                return Next(job)
            if node.phase in ("starting", "joining") and job.changing is not None:
                # It was only to join: the job does without it.
                return lose(job, rank, error, turn)
            if lost_peer and job.attempt:
                return recover(job, f"node-{rank}: {error}", turn)
            return end(job, "failed", f"node-{rank}: {error}", turn)
        case JobOver(satisfied=satisfied):
            if job.over or job.phase == "ending":
                return Next(job)
            if job.checkpoints is not None:
                return come_to_end(job, satisfied, turn)
            return end(job, "ended", "", turn)
        case QualityDecided():
            return follow_decision(job, event, turn)
        case TurnFailed(reason=reason):
            if job.over:
                return Next(job)
            if job.phase == "ending":  # it cannot even wait for its nodes to end
                return finish(job, turn)
            return end(job, "failed", f"plait has a bug, please report it: {reason}", turn)
        case Expired():
            return Next(replace(job, kept=False), tuple(stop_nodes(job, turn.cause)))
        case _:
            assert_never(event)


CheckpointFact = CheckpointDue | PartsSaved | PartFailed | SlowDone | TooOld | NodesWanted


def checkpoint_step(job: JobState, event: CheckpointFact, turn: Turn) -> Next:
    """What follows from a fact about the checkpoints of a job."""
    if job.checkpoints is None or job.over or job.phase == "ending":
        return Next(job)
    match event:
        case CheckpointDue():
            return begin_save(job, event, turn)
        case PartsSaved():
            return seal(job, event, turn)
        case PartFailed():
            return miss_part(job, event, turn)
        case SlowDone():
            return follow_slow(job, event, turn)
        case NodesWanted():
            return grow(job, turn)
        case TooOld(age_s=age_s):
            reasons = [one.reason for one in saves(job).unsaved[-1:]]
            why = f": {reasons[0]}" if reasons else ""
            return end(job, "failed", f"no checkpoint was made for {age_s:.0f} s{why}", turn)
        case _:
            assert_never(event)


def accept_node(job: JobState, event: NodeMade, turn: Turn) -> Next:
    """A node that was asked for, one that is known already, or one that is not wanted any more."""
    node = job.nodes.get(event.rank)
    if node is None or node.phase == "lost":
        return Next(job, (StopNode(job=job.name, rank=event.rank, cause="not wanted"),))
    if node.peer is not None:
        if (node.peer, node.pid) == (event.peer, event.pid):
            return Next(job)
        return lose(job, node.rank, "its process was replaced", turn)
    job = note_made(job, event.rank, event.peer, event.host, event.pid, event.at)
    if not all_made(job):
        return Next(job)
    turn = replace(turn, cause=job.wait.cause)
    if job.checkpoints is not None and job.changing is None:
        return survey(job, turn)
    return prepare(job, turn) if job.changing is None else connect_new(job, turn)


def end_wait(job: JobState, epoch: int, turn: Turn) -> Next:
    """The job has all it waited for: the next wait."""
    kind = job.wait.kind
    turn = replace(turn, cause=job.wait.cause)
    match kind:
        case Telling(act="halt"):
            return survey(job, turn)
        case Telling(act="prepare", aim="restore"):
            return load(job, turn)
        case Loading():
            return begin_again(job, turn)
        case Telling(act="begin", aim="restore"):
            return run_on(job, turn)
        case Telling(act="prepare", aim="start"):
            return begin(job, turn)
        case Telling(act="prepare") | Readying():
            return proceed(job, turn)
        case Telling(act="begin"):
            return settle(replace(job, phase="running", began_at=turn.at), turn)
        case Telling(act="expect"):
            return make_ready(job, turn)
        case Telling(act="promise", aim=aim):
            return commit(job, aim, epoch, turn)
        case Telling(act="commit", aim="save"):
            return go_back(job, turn)
        case Telling(act="commit", aim="stop"):
            return send_drop(job, Quiet(), turn) if job.dropping else enter(job, Quiet(), turn)
        case Telling(act="commit", aim=aim):
            return await_passing(job, aim, turn)
        case Telling(act="lift", aim=aim):
            return retry_round(job, aim, turn)
        case Telling(act="drop", orders=orders):
            drops = [order.command for order in orders]
            ranks = {rank for drop in drops if isinstance(drop, Drop) for rank in drop.ranks}
            # Without a node to tell, all have been told.
            return resume_after_drop(job, tuple(ranks) or job.dropping, turn)
        case Telling(act="end"):
            return finish(job, turn)
        case Passing():
            return retire_layouts(job, kind, turn)
        case Telling() | Placing() | Starting() | Measuring() | Pacing() | Quiet():
            raise InternalError(f"{job.name}: {job.wait} cannot be done")
        case Surveying():
            raise InternalError(f"{job.name}: {job.wait} cannot be done")
        case _:
            assert_never(kind)


def follow_refusal(job: JobState, event: WaitRefused, turn: Turn) -> Next:
    """A node refused its part."""
    node, kind = f"node-{event.rank}", job.wait.kind
    if not isinstance(kind, Telling):
        return Next(job)
    match kind.act:
        case "prepare" if kind.aim == "join":
            job = give_up_rescale(job, f"{node} could not be joined: {event.reason}", turn)
            return proceed(job, turn)
        case "halt":
            return lose(job, event.rank, f"it could not halt: {event.reason}", turn)
        case "prepare" | "begin" if kind.aim == "restore":
            return refused_restore(job, f"{node} could not start: {event.reason}", turn)
        case "prepare" | "begin":
            return end(job, "failed", f"{node} could not start: {event.reason}", turn)
        case "promise":
            job = replace(job, refusals=job.refusals + 1)
            if job.changing is not None and job.refusals > turn.policy.round_tries:
                job = give_up_rescale(job, f"{node} refused: {event.reason}", turn)
            return lift(job, turn)
        case "commit":
            # It promised, and the others may have the layouts: the only way is forward, or back to
            # a checkpoint.
            if job.checkpoints is not None:
                return recover(job, f"{node} broke its promise: {event.reason}", turn)
            return end(job, "failed", f"{node} broke its promise: {event.reason}", turn)
        case "expect" | "lift" | "drop" | "end":
            return Next(job)
        case _:
            assert_never(kind.act)
