"""The job manager as a function: a state and a fact give the next state and the commands to send.

No clock, no chance, no effect: the same facts give the same state, so replaying the journal is the
whole of recovery. A fact that is no longer true of the present stage (its number says so) changes
nothing. Commands are safe to send again at any time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from plait.coordinator.machine import on_request
from plait.coordinator.machine.drop_nodes import tell_drop
from plait.coordinator.machine.epoch_agreement import commit, lift
from plait.coordinator.machine.job_end import end, ended, stop_nodes
from plait.coordinator.machine.node_loss import dropped, given_up, lose
from plait.coordinator.machine.rescale import (
    chunk_due,
    committed,
    expected,
    lifted,
    move,
    passed,
    settle,
    weighed,
)
from plait.coordinator.machine.stage import Result, commands, enter, waited_for
from plait.coordinator.machine.start_nodes import (
    all_made,
    begin,
    crowded,
    made,
    meet,
    placed,
    prepare,
)
from plait.coordinator.machine.state import (
    JobState,
    JobWatch,
    Measuring,
    Pacing,
    Passing,
    Placing,
    Quiet,
    Readying,
    Starting,
    State,
    Telling,
    with_job,
)
from plait.coordinator.messages.commands import Outgoing, ReplyTo, StopNode
from plait.coordinator.messages.events import (
    Asked,
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
    Restarted,
    StageDone,
    StageRefused,
)
from plait.errors import InternalError
from plait.protocol.messages import Drop

if TYPE_CHECKING:
    from plait.coordinator.messages.spec import Policy


def step(state: State, event: Fact) -> tuple[State, list[Outgoing]]:
    """What follows from a fact."""
    state, out = follow(state, event)
    replies = {one.request_id: one.reply for one in out if isinstance(one, ReplyTo)}
    if replies:
        kept = {**state.replies, **replies}
        for old in list(kept)[: max(len(kept) - state.policy.replies, 0)]:
            del kept[old]
        state = replace(state, replies=kept)
    return state, out


def follow(state: State, event: Fact) -> tuple[State, list[Outgoing]]:
    match event:
        case Asked():
            return on_request.asked(state, event)
        case HostsSeen():
            return hosts_seen(state, event)
        case Restarted():
            return restarted(state, event)
        case _:
            job = state.jobs.get(event.job)
            if job is None:
                return state, stray(event)
            job, out = job_step(job, event, state.policy)
            return with_job(state, job), out


def stray(event: Fact) -> list[Outgoing]:
    """A node of a job that is not known: it is stopped."""
    if isinstance(event, NodeMade):
        return [StopNode(job=event.job, rank=event.rank, cause="no such job")]
    return []


def hosts_seen(state: State, event: HostsSeen) -> tuple[State, list[Outgoing]]:
    """Every job that waits for a place gets one; earlier ones count for later ones."""
    out: list[Outgoing] = []
    for job in state.jobs.values():
        if not isinstance(job.stage.awaits, Placing):
            continue
        hosts = crowded(event.hosts, state.jobs)
        result = placed(job, hosts, state.policy, event.at, job.stage.cause)
        if isinstance(result, str):
            result = homeless(job, result, state.policy, event)
        state = with_job(state, result[0])
        out += result[1]
    return state, out


def homeless(job: JobState, reason: str, policy: Policy, event: HostsSeen) -> Result:
    reason = f"no host for its nodes: {reason}"
    if job.changing is None:
        return end(job, "failed", reason, event.at, event.cause)
    return move(given_up(job, reason, event.at), policy, event.at, event.cause)


def restarted(state: State, event: Restarted) -> tuple[State, list[Outgoing]]:
    """All is told again that was not known to be answered; every node has time to speak."""
    out: list[Outgoing] = []
    for job in state.jobs.values():
        watch = JobWatch(
            missing=frozenset(waited_for(job.stage.awaits)),
            told_at=event.at,
            heard=dict.fromkeys(job.live, event.at),
        )
        job = replace(job, watch=watch, stage=replace(job.stage, since=event.at))
        state = with_job(state, job)
        if not job.over:
            out += commands(job)
    return state, out


JobFact = (
    NodeMade
    | NodeNotMade
    | NodeLost
    | StageDone
    | StageRefused
    | LoadsKnown
    | ChunkDue
    | NodeFailed
    | JobOver
    | Expired
)


def job_step(job: JobState, event: JobFact, policy: Policy) -> Result:
    at, cause = event.at, event.cause
    match event:
        case NodeMade():
            return node_made(job, event, policy)
        case NodeNotMade(rank=rank, reason=reason):
            waits = job.nodes.get(rank)
            if waits is None or waits.phase != "starting" or waits.peer is not None or job.over:
                return job, []
            return lose(job, rank, f"could not be made: {reason}", policy, at, cause)
        case NodeLost(rank=rank, reason=reason):
            if rank not in job.nodes:
                return job, [StopNode(job=job.name, rank=rank, cause=cause)]
            return lose(job, rank, reason, policy, at, cause)
        case StageDone(stage=stage, epoch=epoch):
            return done(job, epoch, policy, at, cause) if stage == job.stage.id else (job, [])
        case StageRefused(stage=stage):
            return refused(job, event, policy) if stage == job.stage.id else (job, [])
        case LoadsKnown(stage=stage):
            return weighed(job, event, policy, at, cause) if stage == job.stage.id else (job, [])
        case ChunkDue(stage=stage, epochs_per_s=rate):
            return chunk_due(job, rate, policy, at, cause) if stage == job.stage.id else (job, [])
        case NodeFailed(rank=rank, error=error):
            node = job.nodes.get(rank)
            if node is None or job.over or job.phase == "ending":
                return job, []
            if node.phase in ("starting", "joining") and job.changing is not None:
                # It was only to join: the job does without it.
                return lose(job, rank, error, policy, at, cause)
            return end(job, "failed", f"node-{rank}: {error}", at, cause)
        case JobOver():
            return (
                (job, []) if job.over or job.phase == "ending" else end(job, "ended", "", at, cause)
            )
        case Expired():
            return replace(job, kept=False), stop_nodes(job, cause)
        case _:
            assert_never(event)


def node_made(job: JobState, event: NodeMade, policy: Policy) -> Result:
    """A node that was asked for, one that is known already, or one that nobody wants any more."""
    node = job.nodes.get(event.rank)
    unwanted: list[Outgoing] = [StopNode(job=job.name, rank=event.rank, cause="not wanted")]
    if node is None or node.phase == "lost":
        return job, unwanted
    if node.peer is not None:
        if (node.peer, node.pid) == (event.peer, event.pid):
            return job, []
        return lose(job, node.rank, "its process was replaced", policy, event.at, event.cause)
    job = made(job, event.rank, event.peer, event.host, event.pid, event.at)
    if not all_made(job):
        return job, []
    if job.changing is not None:
        return meet(job, event.at, job.stage.cause)
    return prepare(job, event.at, job.stage.cause)


def done(job: JobState, epoch: int, policy: Policy, at: float, cause: str) -> Result:
    """The present stage has all it waited for: the next one."""
    cause = job.stage.cause
    awaits = job.stage.awaits
    match awaits:
        case Telling(act="prepare", aim="start"):
            return begin(job, at, cause)
        case Telling(act="prepare"):
            return move(job, policy, at, cause)
        case Telling(act="begin"):
            return settle(replace(job, phase="running", began_at=at), policy, at, cause)
        case Telling(act="expect"):
            return expected(job, policy, at, cause)
        case Readying():
            return move(job, policy, at, cause)
        case Telling(act="promise", aim=aim):
            return commit(job, aim, epoch, at, cause)
        case Telling(act="commit", aim="stop"):
            if job.dropping:
                return tell_drop(job, Quiet(), at, cause)
            return enter(job, Quiet(), at, cause)
        case Telling(act="commit", aim=aim):
            return committed(job, aim, at, cause)
        case Telling(act="lift", aim=aim):
            return lifted(job, aim, policy, at, cause)
        case Telling(act="drop", orders=orders):
            told = [order.command for order in orders]
            names = {rank for one in told if isinstance(one, Drop) for rank in one.ranks}
            # With nobody to tell, all are told.
            return dropped(job, tuple(names) or job.dropping, policy, at, cause)
        case Telling(act="end"):
            return ended(job, at, cause)
        case Passing():
            return passed(job, awaits, policy, at, cause)
        case Telling() | Placing() | Starting() | Measuring() | Pacing() | Quiet():
            raise InternalError(f"{job.name}: stage {job.stage} cannot be done")
        case _:
            assert_never(awaits)


def refused(job: JobState, event: StageRefused, policy: Policy) -> Result:
    """A node refused its part."""
    at, cause, who = event.at, event.cause, f"node-{event.rank}"
    awaits = job.stage.awaits
    if not isinstance(awaits, Telling):
        return job, []
    match awaits.act:
        case "prepare" if awaits.aim == "join":
            job = given_up(job, f"{who} could not be joined: {event.reason}", at)
            return move(job, policy, at, cause)
        case "prepare" | "begin":
            return end(job, "failed", f"{who} could not start: {event.reason}", at, cause)
        case "promise":
            job = replace(job, refusals=job.refusals + 1)
            if job.changing is not None and job.refusals > policy.round_tries:
                job = given_up(job, f"{who} refused: {event.reason}", at)
            return lift(job, at, cause)
        case "commit":
            # It promised, and the others may have the layouts: the only way is forward.
            return end(job, "failed", f"{who} broke its promise: {event.reason}", at, cause)
        case "expect" | "lift" | "drop" | "end":
            return job, []
        case _:
            assert_never(awaits.act)
