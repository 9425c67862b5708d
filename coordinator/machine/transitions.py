"""Which wait may follow which, and by what fact: the life of a job as one table.

`step.py` and its helpers decide; this module writes down what may come of it, and decides nothing.
`invariants.check_transitions` holds every step of the simulator to it, and tests/sim takes every
row of it. docs/coordinator.md has it as diagrams, drawn by `diagram.py`.

>>> sorted(row.after for row in TRANSITIONS if row[:2] == ("join_pass", "done"))
['leave_promise', 'quiet', 'ready_expect', 'stop_promise']
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, assert_never

from plait.coordinator.machine.state import (
    Loading,
    Measuring,
    Pacing,
    Passing,
    Placing,
    Quiet,
    Readying,
    Starting,
    Surveying,
    Telling,
)
from plait.coordinator.messages.events import (
    Asked,
    CheckpointDue,
    ChunkDue,
    Expired,
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
from plait.coordinator.messages.requests import (
    AbortMigration,
    Cancel,
    Drain,
    Forget,
    PauseMigration,
    Rescale,
    ResumeMigration,
    Save,
    Shed,
    Stop,
    Submit,
    Take,
    Throttle,
)

if TYPE_CHECKING:
    from plait.coordinator.machine.state import JobState
    from plait.coordinator.messages.events import Fact
    from plait.coordinator.messages.requests import Request


class Transition(NamedTuple):
    """In the wait `before`, the fact `cause` may lead to the wait `after`."""

    before: str
    cause: str
    after: str


WAITS = {
    "start_place": "a look at the hosts, to place the first nodes",
    "start_make": "the first nodes to be made",
    "start_prepare": "the nodes to know each other and the first layout",
    "start_begin": "the nodes to begin",
    "quiet": "nothing: the job runs",
    "measure": "the loads of the bins, to plan a rescale",
    "join_place": "a look at the hosts, to place new nodes",
    "join_make": "the new nodes to be made",
    "join_prepare": "the new nodes and the members to connect",
    "join_promise": "the members to promise an epoch from which the new nodes are members",
    "join_lift": "the members to forget that promise",
    "join_commit": "the members to know the epoch, and the new nodes to begin",
    "join_pass": "all nodes to pass that epoch",
    "ready_expect": "the nodes to know which bins will move",
    "ready_wait": "the nodes that get bins to have memory for them",
    "chunk_pace": "the next chunk of moves to be due",
    "chunk_promise": "the members to promise an epoch for the chunk",
    "chunk_lift": "the members to forget that promise",
    "chunk_commit": "the members to know the layouts of the chunk",
    "chunk_pass": "all nodes to pass the last of them",
    "leave_promise": "the members to promise an epoch from which some nodes are gone",
    "leave_lift": "the members to forget that promise",
    "leave_commit": "the members to know the epoch",
    "leave_pass": "all nodes to pass that epoch, and the leaving ones to leave",
    "keep_promise": "the members to promise an epoch for what is kept of each query",
    "keep_lift": "the members to forget that promise",
    "keep_commit": "the members to know it and the epoch",
    "keep_pass": "all nodes to pass that epoch",
    "save_promise": "the members to promise an epoch for a checkpoint",
    "save_lift": "the members to forget that promise",
    "save_commit": "the members to know that epoch",
    "stop_promise": "the members to promise an epoch at which the sources end",
    "stop_lift": "the members to forget that promise",
    "stop_commit": "the members to know the epoch",
    "stop_wait": "the nodes to come to their end, and the last checkpoint",
    "drop_drop": "the members to know which nodes are gone",
    "restore_halt": "the nodes that are left to halt",
    "restore_place": "a look at the hosts, because no node is left",
    "restore_make": "new nodes to be made",
    "restore_survey": "the home to claim the checkpoints and to choose one",
    "restore_prepare": "the nodes to know each other and what they own",
    "restore_load": "the nodes to load it",
    "restore_begin": "the nodes to begin",
    "over_end": "the nodes to end",
    "over": "nothing: the job is over",
}
"""What a job waits for, by the name of the wait: the aim, then what is done for it."""

NEW = "new"
"""Before the first wait."""

TABLE: tuple[tuple[str, str, str], ...] = (
    (NEW, "submit", "start_place"),
    ("start_place", "hosts seen", "start_make over_end"),
    ("start_place", "node lost", "start_place"),
    ("start_place", "stop", "over_end"),
    ("start_make", "node made", "start_prepare restore_survey"),
    ("start_make", "node lost", "start_place"),
    ("start_make", "stop", "over_end"),
    ("start_prepare", "done", "start_begin"),
    ("start_prepare", "node lost", "start_place"),
    ("start_prepare", "refused", "over_end"),
    ("start_prepare", "stop", "over_end"),
    ("start_begin", "done", "quiet stop_promise"),
    ("start_begin", "refused", "over_end"),
    ("quiet", "rescale", "measure"),
    ("quiet", "stop", "stop_promise"),
    ("quiet", "shed", "keep_promise"),
    ("quiet", "node lost", "drop_drop"),
    ("quiet", "checkpoint due", "save_promise"),
    ("quiet", "slow done", "stop_promise"),
    ("quiet", "part failed", "stop_promise"),
    ("quiet", "nodes wanted", "measure"),
    ("measure", "loads known", "join_place ready_expect leave_promise quiet stop_promise"),
    ("measure", "node lost", "drop_drop"),
    ("join_place", "hosts seen", "join_make leave_promise quiet"),
    ("join_place", "node lost", "drop_drop"),
    ("join_place", "steer", "leave_promise quiet"),
    ("join_place", "stop", "stop_promise"),
    ("join_make", "node made", "join_prepare"),
    ("join_make", "node lost", "drop_drop leave_promise quiet"),
    ("join_make", "node failed", "leave_promise quiet"),
    ("join_make", "steer", "leave_promise quiet"),
    ("join_make", "stop", "stop_promise"),
    ("join_prepare", "done", "join_promise drop_drop"),
    ("join_prepare", "refused", "drop_drop"),
    ("join_prepare", "node lost", "drop_drop"),
    ("join_prepare", "node failed", "drop_drop"),
    ("join_promise", "done", "join_commit"),
    ("join_promise", "refused", "join_lift"),
    ("join_promise", "node lost", "join_lift"),
    ("join_promise", "node failed", "join_lift"),
    ("join_lift", "done", "join_promise drop_drop"),
    ("join_commit", "done", "join_pass drop_drop"),
    ("join_commit", "refused", "over_end"),
    ("join_pass", "done", "ready_expect leave_promise quiet stop_promise"),
    ("join_pass", "node lost", "drop_drop"),
    ("ready_expect", "done", "ready_wait drop_drop leave_promise quiet stop_promise"),
    ("ready_wait", "done", "chunk_pace leave_promise quiet stop_promise"),
    ("ready_wait", "node lost", "drop_drop"),
    ("ready_wait", "steer", "leave_promise quiet stop_promise"),
    ("ready_wait", "stop", "stop_promise"),
    ("chunk_pace", "chunk due", "chunk_promise"),
    ("chunk_pace", "checkpoint due", "save_promise"),
    ("chunk_pace", "node lost", "drop_drop"),
    ("chunk_pace", "steer", "leave_promise quiet"),
    ("chunk_pace", "stop", "stop_promise"),
    ("chunk_promise", "done", "chunk_commit"),
    ("chunk_promise", "refused", "chunk_lift"),
    ("chunk_promise", "node lost", "chunk_lift"),
    ("chunk_lift", "done", "chunk_pace drop_drop leave_promise quiet stop_promise"),
    ("chunk_commit", "done", "chunk_pass drop_drop"),
    ("chunk_commit", "refused", "over_end"),
    ("chunk_pass", "done", "chunk_pace leave_promise quiet stop_promise"),
    ("chunk_pass", "node lost", "drop_drop"),
    ("leave_promise", "done", "leave_commit"),
    ("leave_promise", "refused", "leave_lift"),
    ("leave_promise", "node lost", "leave_lift"),
    ("leave_lift", "done", "leave_promise drop_drop quiet stop_promise"),
    ("leave_commit", "done", "leave_pass drop_drop"),
    ("leave_commit", "refused", "over_end"),
    ("leave_pass", "done", "drop_drop quiet stop_promise"),
    ("leave_pass", "node lost", "drop_drop"),
    ("keep_promise", "done", "keep_commit"),
    ("keep_promise", "refused", "keep_lift"),
    ("keep_promise", "node lost", "keep_lift"),
    ("keep_lift", "done", "keep_promise quiet measure drop_drop stop_promise"),
    ("keep_commit", "done", "keep_pass drop_drop"),
    ("keep_commit", "refused", "over_end"),
    ("keep_pass", "done", "keep_promise quiet measure stop_promise"),
    ("keep_pass", "node lost", "drop_drop"),
    ("save_promise", "done", "save_commit"),
    ("save_promise", "refused", "save_lift"),
    ("save_promise", "node lost", "save_lift"),
    ("save_lift", "done", "quiet measure chunk_pace drop_drop leave_promise stop_promise"),
    ("save_commit", "done", "quiet measure chunk_pace drop_drop leave_promise"),
    ("save_commit", "refused", "restore_halt"),
    ("stop_promise", "done", "stop_commit"),
    ("stop_promise", "refused", "stop_lift"),
    ("stop_promise", "node lost", "stop_lift"),
    ("stop_lift", "done", "stop_promise drop_drop quiet"),
    ("stop_commit", "done", "stop_wait drop_drop"),
    ("stop_commit", "refused", "over_end"),
    ("stop_wait", "node lost", "drop_drop"),
    ("stop_wait", "checkpoint due", "stop_commit"),
    ("drop_drop", "done", "measure join_pass ready_wait chunk_pace chunk_pass keep_pass"),
    ("drop_drop", "done", "leave_promise leave_pass drop_drop quiet stop_promise stop_wait"),
    ("restore_halt", "done", "restore_survey restore_place"),
    ("restore_place", "hosts seen", "restore_make"),
    ("restore_make", "node made", "restore_survey"),
    ("restore_survey", "slow done", "restore_prepare"),
    ("restore_survey", "stop", "over_end"),
    ("restore_prepare", "stop", "over_end"),
    ("restore_load", "stop", "over_end"),
    ("restore_begin", "stop", "over_end"),
    ("restore_prepare", "done", "restore_load"),
    ("restore_prepare", "refused", "restore_halt over_end"),
    ("restore_load", "done", "restore_begin"),
    ("restore_begin", "done", "quiet stop_promise"),
    ("restore_begin", "refused", "restore_halt over_end"),
    ("over_end", "done", "over"),
    ("over_end", "turn failed", "over"),
)
"""In a wait (first), a fact (second) leads to one of the waits that are named third. What can end
a job in any wait is in ENDINGS."""

UNDER_WAY = tuple(name for name in WAITS if name not in ("over_end", "over"))
BEFORE_BEGIN = ("start_place", "start_make", "start_prepare")
BEGUN = tuple(
    name
    for name in UNDER_WAY
    if name not in BEFORE_BEGIN and (name == "restore_begin" or not name.startswith("restore_"))
)
WITH_STATE = tuple(name for name in UNDER_WAY if not name.startswith("start_"))
SAVED = tuple(name for name in WITH_STATE if not name.startswith("restore_"))

ENDINGS = {
    "cancel": UNDER_WAY,
    "node failed": UNDER_WAY,
    "node lost": UNDER_WAY,
    "turn failed": UNDER_WAY,
    "job over": BEGUN,
    "slow done": (*SAVED, "restore_survey"),
    "too old": SAVED,
}
"""What leads to `over_end`, and from which waits."""

RETURNS = {
    "node lost": WITH_STATE,
    "node failed": WITH_STATE,
    "slow done": (*SAVED, "restore_survey"),
}
"""What leads a job with checkpoints to `restore_halt`, and from which waits. A round that is
refused after it was promised does so too."""

LAST = tuple(name for name in BEGUN if name not in ("start_begin", "stop_wait"))
"""Waits from which a job with checkpoints whose nodes are at their end comes to `stop_wait`, or
with lost nodes to `drop_drop`."""

TRANSITIONS = frozenset(
    Transition(before, cause, after) for before, cause, afters in TABLE for after in afters.split()
) | frozenset(
    Transition(before, cause, "over_end") for cause, waits in ENDINGS.items() for before in waits
)
KEPT = frozenset(row._replace(after="keep_promise") for row in TRANSITIONS if row.after == "quiet")
"""... and what a job with queries may do besides: where it would be quiet it tells its nodes what
is to be kept, if that has changed since."""
CHECKPOINTED = (
    frozenset(
        Transition(before, cause, "restore_halt")
        for cause, waits in RETURNS.items()
        for before in waits
    )
    | frozenset(Transition(name, "job over", "stop_wait") for name in LAST)
    | frozenset(Transition(name, "job over", "drop_drop") for name in LAST)
    | frozenset(row._replace(after="quiet") for row in TRANSITIONS if row.after == "stop_promise")
    | frozenset(
        Transition(name, "refused", "restore_halt")
        for name in ("join_commit", "chunk_commit", "leave_commit", "keep_commit", "stop_commit")
    )
)
"""... and what a job with checkpoints may do besides. A stop waits, in `quiet`, for the checkpoint
in flight."""
"""Every step that a job may take."""


def wait_name(job: JobState | None) -> str:
    """The name of what a job waits for; of no job: `NEW`."""
    if job is None:
        return NEW
    match job.wait.kind:
        case Placing():
            return f"{making(job)}_place"
        case Starting():
            return f"{making(job)}_make"
        case Surveying():
            return "restore_survey"
        case Loading():
            return "restore_load"
        case Telling(aim=aim, act=act):
            return f"{aim}_{act}"
        case Passing(aim=aim):
            return f"{aim}_pass"
        case Measuring():
            return "measure"
        case Readying():
            return "ready_wait"
        case Pacing():
            return "chunk_pace"
        case Quiet():
            if job.over:
                return "over"
            return "stop_wait" if job.phase == "stopping" else "quiet"
        case _:
            assert_never(job.wait.kind)


def making(job: JobState) -> str:
    """What new nodes are for."""
    if job.phase == "recovering":
        return "restore"
    return "start" if job.changing is None else "join"


def cause_name(job: JobState | None, fact: Fact) -> str:
    """The name of a fact about a job. A process in the place of a known one means that the known
    one is lost."""
    match fact:
        case Asked(request=request):
            return request_name(request)
        case HostsSeen():
            return "hosts seen"
        case NodeMade(rank=rank):
            known = job.nodes.get(rank) if job is not None else None
            return "node made" if known is None or known.peer is None else "node lost"
        case NodeNotMade() | NodeLost():
            return "node lost"
        case WaitDone():
            return "done"
        case WaitRefused():
            return "refused"
        case LoadsKnown():
            return "loads known"
        case ChunkDue():
            return "chunk due"
        case NodeFailed():
            return "node failed"
        case CheckpointDue():
            return "checkpoint due"
        case PartsSaved():
            return "parts saved"
        case PartFailed():
            return "part failed"
        case SlowDone():
            return "slow done"
        case TooOld():
            return "too old"
        case NodesWanted():
            return "nodes wanted"
        case JobOver():
            return "job over"
        case QualityDecided():
            return "shed"
        case TurnFailed():
            return "turn failed"
        case Expired():
            return "expired"
        case Restarted():
            return "restarted"
        case _:
            assert_never(fact)


def request_name(request: Request) -> str:
    """The name of a request. `steer`: a wish about a running migration."""
    match request:
        case Submit():
            return "submit"
        case Rescale() | Drain():
            return "rescale"
        case Stop():
            return "stop"
        case Save():
            return "save"
        case Cancel():
            return "cancel"
        case PauseMigration() | ResumeMigration() | AbortMigration() | Throttle():
            return "steer"
        case Shed():
            return "shed"
        case Take():
            return "take"
        case Forget():
            return "forget"
        case _:
            assert_never(request)
