"""How a job goes back to a checkpoint: after a loss, and when a job with checkpoints starts.

A new attempt has a number and a token of its own, so nothing that the one before still does counts.
The survivors halt; one of them, the home, claims the folder of checkpoints, has older writers
fenced and chooses where to go on; all load what they own of it, and begin. The job goes on with the
nodes that are there, and missing ones are asked for as soon as it runs. Whatever is lost on the way
leads to the next attempt, and too many of them in a short time to the end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from plait.coordinator.machine.checkpoints.records import (
    KEPT,
    Recovery,
    Restart,
    Saved,
    saves,
    settings,
    token_of,
    with_saves,
)
from plait.coordinator.machine.checkpoints.saving import follow_saving, give_up
from plait.coordinator.machine.job_end import close_rescale, end, reject_unplanned
from plait.coordinator.machine.rescale import GROWING, measure, settle
from plait.coordinator.machine.start_nodes import peer_of, request_nodes
from plait.coordinator.machine.state import (
    Loading,
    NodeOrder,
    Placing,
    Starting,
    Surveying,
    Telling,
    with_nodes,
)
from plait.coordinator.machine.turn import Next
from plait.coordinator.machine.wait import enter
from plait.coordinator.messages.requests import Rejected, Rescale
from plait.migration.bins import initial
from plait.migration.spread import spread
from plait.protocol.checkpoint_messages import Halt, Restore
from plait.protocol.messages import EVERYONE, Begin, Layout, Prepare

if TYPE_CHECKING:
    from plait.coordinator.machine.state import JobState
    from plait.coordinator.machine.turn import Turn
    from plait.coordinator.messages.events import SlowDone
    from plait.protocol.checkpoint_messages import Surveyed
    from plait.protocol.messages import Rank


def recover(job: JobState, reason: str, turn: Turn) -> Next:
    """The next attempt begins, with the nodes that are there."""
    known, limits = saves(job), settings(job)
    saving = known.saving
    if saving is not None and saving.step == "retire" and saving.mark.last and known.at_end:
        # All is published: nothing is left to do.
        return end(job, "ended", "", turn)
    recent = tuple(one for one in known.restarts if turn.at - one.at < limits.restarts_s)
    if not recent or turn.at - recent[-1].at >= turn.policy.burst_s:
        if len(recent) >= limits.restarts:
            return end(job, "failed", exhausted(recent, reason, limits.restarts_s), turn)
        recent = (*recent, Restart(at=turn.at, reason=reason))
    job, refusals = reject_unplanned(job, f"{job.name} went back to a checkpoint")
    wanted = wanted_nodes(job)
    job = give_up(job, f"the job went back to checkpoint {known.parent}", turn)
    job, stops = close_rescale(job, f"the job went back to checkpoint {known.parent}", turn)
    job = with_saves(
        job,
        replace(
            saves(job),
            attempt=known.attempt + 1,
            restarts=recent[-max(limits.restarts, KEPT) :],
            ending="",
            stop_epoch=0,
            at_end=False,
            complete=False,
            wanted=wanted,
            recovery=Recovery(attempt=known.attempt + 1, reason=reason, began_at=turn.at),
        ),
    )
    job = with_nodes(job, (replace(job.nodes[rank], phase="joining") for rank in job.live))
    job = replace(
        job,
        phase="recovering",
        layouts=(),
        dropping=(),
        interrupted=None,
        refusals=0,
        watch=replace(job.watch, ended=frozenset(), reports={}, parts={}),
    )
    orders = (NodeOrder(ranks=job.live, command=Halt(attempt=job.attempt)),)
    halting = Telling(aim="restore", act="halt", orders=orders)
    return Next(note(job, "halt", turn), (*refusals, *stops)).then(enter, halting, turn)


def exhausted(recent: tuple[Restart, ...], reason: str, within_s: float) -> str:
    causes = list(dict.fromkeys([*(one.reason for one in recent), reason]))
    shown = "; ".join(causes[-3:])
    return f"it went back to a checkpoint {len(recent)} times in {within_s:g} s, last: {shown}"


def wanted_nodes(job: JobState) -> int:
    """The number of nodes that the job is to have; that of an open rescale counts."""
    change = job.changing
    if change is None or change.migration is None or change.migration.over:
        return saves(job).wanted
    staying = {*job.members, *change.joining} - {*change.leaving}
    return max(len(staying), 1)


def place_anew(job: JobState, turn: Turn) -> Next:
    """No node is left: all are made anew, as soon as there is a place for them."""
    return request_nodes(note(job, "place", turn), saves(job).wanted, turn)


def note(job: JobState, step: str, turn: Turn) -> JobState:
    """Writes down when a step of the way back began."""
    recovery = saves(job).recovery
    if recovery is None:
        return job
    recovery = replace(recovery, steps=(*recovery.steps, (step, turn.at)))
    return with_saves(job, replace(saves(job), recovery=recovery))


def lose_restoring(job: JobState, rank: Rank, reason: str, turn: Turn) -> Next:
    """A node was lost on the way back, or before a job with checkpoints began."""
    words = f"node-{rank} was lost: {reason}"
    match job.wait.kind:
        case Telling(act="halt"):
            return Next(job)
        case Surveying(rank=home) if rank != home:
            return Next(job)
        case _:
            return recover(job, words, turn)


def survey(job: JobState, turn: Turn) -> Next:
    """The nodes are as new: one of them looks at the checkpoints."""
    live = job.live
    if not live:
        return place_anew(job, turn)
    known = saves(job)
    if known.attempt == 0:
        known = replace(known, attempt=1)
        job = replace(job, phase="preparing")
    home = job.home if job.home in live else min(live)
    number = known.next_slow
    job = with_saves(replace(job, home=home), replace(known, next_slow=number + 1))
    job = with_nodes(job, (replace(job.nodes[rank], phase="joining") for rank in live))
    surveying = Surveying(rank=home, command_id=number)
    return enter(note(job, "survey", turn), surveying, turn)


def follow_slow(job: JobState, event: SlowDone, turn: Turn) -> Next:
    """A slow command of the present attempt came to its end."""
    done, saving = event.finished, saves(job).saving
    if event.attempt != job.attempt or job.over or job.phase == "ending":
        return Next(job)
    if done.what == "survey":
        if not isinstance(job.wait.kind, Surveying) or done.number != job.attempt:
            return Next(job)
        if done.error or done.found is None:
            return fail_slow(job, f"the checkpoints could not be read: {done.error}", event, turn)
        return follow_survey(job, done.found, turn)
    if saving is None or (saving.step, saving.mark.number) != (done.what, done.number):
        return Next(job)
    if done.error and (done.fatal or done.lost_claim or done.what == "publish"):
        words = f"checkpoint {done.number}, {done.what} at node-{event.rank}: {done.error}"
        return fail_slow(job, words, event, turn)
    return follow_saving(job, saving, done, turn)


def fail_slow(job: JobState, words: str, event: SlowDone, turn: Turn) -> Next:
    if event.finished.fatal:
        return end(job, "failed", words, turn)
    return recover(job, words, turn)


def follow_survey(job: JobState, found: Surveyed, turn: Turn) -> Next:
    """It is known where to go on: the nodes load what they own of it."""
    known = saves(job)
    restore = Restore(
        lineage=found.lineage, claim=found.claim, number=found.number, epoch=found.epoch
    )
    last = known.last
    if found.number and (last is None or last.number != found.number):
        last = Saved(number=found.number, epoch=found.epoch, name="", at=turn.at)
    if known.recovery is not None:
        recovery = replace(known.recovery, number=found.number, epoch=found.epoch)
        known = replace(known, recovery=recovery)
    known = replace(
        known,
        restore=restore,
        parent=found.number,
        next_number=max(known.next_number, found.newest + 1),
        marked=found.epoch,
        last=last,
    )
    job = with_saves(job, known)
    if found.finished or (found.last and job.stop_asked):
        return end(job, "ended", "", turn)
    layout = first_layout(job, found)
    job = replace(job, layouts=(layout,))
    peers = tuple(peer_of(job, rank) for rank in layout.members)
    command = Prepare(
        rank=job.home,
        layout=layout,
        peers=peers,
        home=job.home,
        attempt=job.attempt,
        token=token_of(job),
        restore=restore,
    )
    orders = (NodeOrder(ranks=layout.members, command=command),)
    preparing = Telling(aim="restore", act="prepare", orders=orders)
    return enter(note(job, "prepare", turn), preparing, turn)


def first_layout(job: JobState, found: Surveyed) -> Layout:
    """The bins are in the store: they go to the nodes that are there, by size."""
    ranks = tuple(sorted(job.live))
    weights = {rank: job.nodes[rank].capacity for rank in ranks}
    owners = initial(job.spec.bins, ranks, weights)
    if found.sizes:
        sizes = dict(zip(found.bins, map(float, found.sizes), strict=True))
        owners = spread(owners, weights, sizes)
    return Layout(
        epoch=found.epoch,
        members=ranks,
        owners=owners.owners,
        readers=tuple(EVERYONE if source.splits else job.home for source in job.spec.sources),
        epoch_records=found.epoch_records or job.spec.epoch_records,
        first_row=found.first_rows,
        keep=job.keep,
    )


def load(job: JobState, turn: Turn) -> Next:
    """All know what to load."""
    loading = Loading(attempt=job.attempt, ranks=job.members)
    return enter(note(job, "load", turn), loading, turn)


def begin_again(job: JobState, turn: Turn) -> Next:
    """All have loaded what they own."""
    orders = (NodeOrder(ranks=job.members, command=Begin(layout=job.layout)),)
    job = with_nodes(job, (replace(job.nodes[rank], phase="member") for rank in job.members))
    return enter(note(job, "begin", turn), Telling(aim="restore", act="begin", orders=orders), turn)


def run_on(job: JobState, turn: Turn) -> Next:
    """All have begun."""
    known = saves(job)
    recovery = known.recovery
    known = replace(
        known,
        next_at=turn.at + settings(job).every_s,
        fresh_at=turn.at,
        grow_at=turn.at,
        recovery=replace(recovery, ended_at=turn.at) if recovery is not None else None,
    )
    began_at = turn.at if job.began_at is None else job.began_at
    return settle(with_saves(replace(job, phase="running", began_at=began_at), known), turn)


def grow(job: JobState, turn: Turn) -> Next:
    """The job runs on another number of nodes than is wanted: an ordinary rescale."""
    known = saves(job)
    job = with_saves(job, replace(known, grow_at=turn.at + turn.policy.grow_s))
    number = (job.change.number if job.change else 0) + 1
    wish = Rescale(job=job.name, nodes=known.wanted)
    after = measure(job, wish, f"{GROWING} {job.name} {number}", turn)
    return Next(job) if isinstance(after, Rejected) else after


def is_placing(job: JobState) -> bool:
    """Whether a job waits for nodes to go on with, however long that takes."""
    return job.phase == "recovering" and isinstance(job.wait.kind, Placing | Starting)


def refused_restore(job: JobState, words: str, turn: Turn) -> Next:
    """A node could not be prepared or begin: at the first attempt that is the end."""
    if job.phase != "recovering":
        return end(job, "failed", words, turn)
    return recover(job, words, turn)
