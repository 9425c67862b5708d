"""What must hold of the state after every event, and of every step.

`check` and `check_transitions` raise InternalError with the story of the job that breaks a rule.
They run in tests: `check` after every event, at a cost that grows with the bins of the layouts in
force, `check_transitions` at every fact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.coordinator.machine.state import Measuring, Pacing, Passing, Quiet, Readying, Telling
from plait.coordinator.machine.transitions import (
    CHECKPOINTED,
    KEPT,
    TRANSITIONS,
    Transition,
    cause_name,
    wait_name,
)
from plait.coordinator.machine.wait import awaited_ranks
from plait.errors import InternalError
from plait.protocol.keeps import ratio_of
from plait.protocol.messages import EVERYONE, Commit, Promise
from plait.shedding.plan import threshold

if TYPE_CHECKING:
    from plait.coordinator.machine.state import JobState, State
    from plait.coordinator.messages.events import Fact


def check(state: State) -> None:
    """Every rule, for every job."""
    for name, job in state.jobs.items():
        for rule in (layouts, nodes, wait, change, phase, keep, checkpoints):
            if wrong := rule(job):
                raise InternalError(f"job {name}: {wrong}\n{story(job)}")
        if name != job.name:
            raise InternalError(f"job {job.name} is kept as {name}")


def check_transitions(before: State, fact: Fact, after: State) -> list[Transition]:
    """The transitions that a fact led to, of all jobs: one of a job at most, and a legal one."""
    taken = []
    for name, job in after.jobs.items():
        old = before.jobs.get(name)
        if old is not None and old.wait.id == job.wait.id:
            continue
        if old is not None and job.wait.id != old.next_wait:
            raise InternalError(f"job {name}: {fact} entered two waits\n{story(job)}")
        transition = Transition(wait_name(old), cause_name(old, fact), wait_name(job))
        legal = (
            transition in TRANSITIONS
            or (job.checkpoints is not None and transition in CHECKPOINTED)
            or (bool(job.spec.queries) and transition in KEPT)
        )
        if not legal:
            raise InternalError(f"job {name}: {transition} is not in the table\n{story(job)}")
        taken.append(transition)
    return taken


def layouts(job: JobState) -> str:
    """One owner for each bin, a member; epochs ascend; lost nodes are in no layout."""
    last = -1
    for layout in job.layouts:
        members = set(layout.members)
        if layout.epoch <= last:
            return f"layout of epoch {layout.epoch} follows one of epoch {last}"
        last = layout.epoch
        if len(layout.owners) != job.spec.bins:
            count = len(layout.owners)
            return f"{count} of {job.spec.bins} bins have an owner at epoch {layout.epoch}"
        if len(members) != len(layout.members) or list(layout.members) != sorted(members):
            return f"members {layout.members} are not ascending"
        if strangers := set(layout.owners) - members:
            return f"bins are owned by {sorted(strangers)}, not members at epoch {layout.epoch}"
        if strangers := set(layout.readers) - members - {EVERYONE}:
            return f"sources are read by {sorted(strangers)}, not members at epoch {layout.epoch}"
        lost = [rank for rank in layout.members if job.nodes[rank].phase == "lost"]
        if lost and job.phase != "ending" and not job.over:
            return f"lost nodes {lost} are members at epoch {layout.epoch}"
    return ""


def nodes(job: JobState) -> str:
    for rank, node in job.nodes.items():
        if rank != node.rank or rank >= job.next_rank:
            return f"node {node.rank} is kept as {rank}, next is {job.next_rank}"
        if node.phase in ("joining", "member", "leaving") and node.peer is None:
            return f"node {rank} takes part and was never made"
        if node.phase == "left" and rank in job.members:
            return f"node {rank} has left and is a member"
    return ""


def wait(job: JobState) -> str:
    """The job waits only for nodes that are there; a round is the only one, of this number."""
    kind = job.wait.kind
    if job.wait.id >= job.next_wait:
        return f"wait {job.wait.id} is not below the next, {job.next_wait}"
    lost = [rank for rank in awaited_ranks(kind) if job.nodes[rank].phase in ("lost", "left")]
    if lost:
        return f"wait {job.wait.id} waits for {lost}, which are gone"
    if not job.watch.missing.issubset(awaited_ranks(kind)):
        return f"wait {job.wait.id} misses {sorted(job.watch.missing)}, which it does not wait for"
    if isinstance(kind, Telling):
        ranks = awaited_ranks(kind)
        if len(set(ranks)) != len(ranks):
            return f"wait {job.wait.id} tells a node two things"
        commands = [order.command for order in kind.orders]
        rounds = {c.round for c in commands if isinstance(c, Promise)}
        if rounds - {job.wait.id}:
            return f"round {rounds} in wait {job.wait.id}"
        committed = [c for c in commands if isinstance(c, Commit) and c.layouts]
        if any(c.layouts[-1].epoch != job.layout.epoch for c in committed):
            return "what is committed is not the newest layout"
    settled = isinstance(kind, Pacing | Readying | Measuring | Quiet) or (
        isinstance(kind, Telling) and kind.act in ("prepare", "expect", "promise", "lift")
    )
    if settled and len(job.layouts) > 1 and not job.over:
        return f"{len(job.layouts)} layouts are in force in wait {job.wait.id}"
    return ""


def change(job: JobState) -> str:
    rescale = job.changing
    if rescale is None:
        if job.phase == "rescaling":
            return "it is rescaling without a rescale"
        return ""
    migration = rescale.migration
    if migration is None:
        return "a rescale runs without a plan"
    chunk = migration.chunk
    if chunk is None or not chunk.committed:
        if migration.owners.owners != job.layout.owners:
            return "the migration and the layout differ in who owns what"
    elif not isinstance(job.wait.kind, Passing | Telling):
        return f"a chunk is committed in {job.wait}"
    return ""


def phase(job: JobState) -> str:
    if job.phase in ("running", "rescaling", "stopping") and not job.layouts:
        return f"it is {job.phase} without a layout"
    if job.over and not isinstance(job.wait.kind, Quiet):
        return f"it is over, in {job.wait}"
    rounds = isinstance(job.wait.kind, Telling | Passing)
    if job.held is not None and not (job.phase == "running" and rounds):
        return f"a rescale is held back by nothing in {job.wait}"
    if job.dropping and (job.over or isinstance(job.wait.kind, Quiet | Pacing | Readying)):
        return f"no member is told of the lost nodes {job.dropping}"
    return ""


def keep(job: JobState) -> str:
    """What is wanted is on its way, unless nothing can be sent now; and no lossless query is shed,
    or one below its floor."""
    queries = job.spec.queries
    for layout in job.layouts:
        if layout.keep and len(layout.keep) != len(queries):
            return f"{len(layout.keep)} thresholds for {len(queries)} queries"
    for query, kept in zip(queries, job.keep, strict=False):
        suspended = kept == 0 and query.below_floor == "suspend"
        if kept < threshold(query.min_accuracy) and not suspended:
            return f"{query.label} is kept at {ratio_of(kept)}, its floor is {query.min_accuracy}"
    idle = isinstance(job.wait.kind, Quiet) and job.phase == "running" and not job.stop_asked
    if idle and job.keep != job.layout.keep:
        return "nobody tells the members what is to be kept"
    return ""


def checkpoints(job: JobState) -> str:
    """Marks and layouts have epochs of their own; a checkpoint is sealed before it is published,
    follows the newest sealed one, and waits only for nodes that are there."""
    known = job.checkpoints
    if known is None:
        if job.phase == "recovering" or job.spec.checkpoint is not None:
            return "it has no record of checkpoints"
        return ""
    began = known.restore.epoch if known.restore is not None else -1
    if known.marked != began and any(one.epoch == known.marked for one in job.layouts):
        return f"a layout and a mark share epoch {known.marked}"
    saving = known.saving
    if saving is None:
        return ""
    if job.phase in ("placing", "starting", "preparing", "recovering", "ending") or job.over:
        return f"a checkpoint is in flight and it is {job.phase}"
    number = saving.mark.number
    if number >= known.next_number:
        return f"checkpoint {number} is not below the next, {known.next_number}"
    sealed = saving.step in ("publish", "retire")
    if sealed != (known.parent == number) or known.parent > number:
        return f"checkpoint {number} is at {saving.step}, the newest sealed is {known.parent}"
    gone = [r for r in saving.ranks if job.nodes[r].phase in ("lost", "left")]
    if saving.step == "parts" and gone:
        return f"checkpoint {number} waits for parts of {gone}, which are gone"
    if saving.step != "parts" and {part.rank for part in saving.parts} != {*saving.ranks}:
        return f"checkpoint {number} goes on without parts of all of {saving.ranks}"
    return ""


def story(job: JobState) -> str:
    """The job in a few lines, to debug it."""
    lines = [
        f"  phase {job.phase}, home {job.home}, tries {job.tries}, error {job.error!r}",
        f"  wait {job.wait.id} since {job.wait.since:.3f} by {job.wait.cause}: "
        f"{str(job.wait.kind)[:500]}",
        f"  misses {sorted(job.watch.missing)[:20]}",
    ]
    lines += [
        f"  layout at {layout.epoch}: members {layout.members[:20]}, "
        f"owners {layout.owners[:32]}{'...' if len(layout.owners) > 32 else ''}"
        for layout in job.layouts[:8]
    ]
    lines += [
        f"  node-{node.rank} on {node.host or '?'}: {node.phase} {node.reason}"
        for node in list(job.nodes.values())[:20]
    ]
    if job.change is not None:
        lines.append(f"  rescale {job.change.number}: {job.change.phase} {job.change.reason}")
    return "\n".join(lines)
