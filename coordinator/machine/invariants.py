"""What must hold of the state after every event.

`check` raises InternalError with the story of the job that breaks a rule. It runs after every event
in tests; its cost grows with the bins of the layouts in force.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.coordinator.machine.stage import waited_for
from plait.coordinator.machine.state import Measuring, Pacing, Passing, Quiet, Readying, Telling
from plait.errors import InternalError
from plait.protocol.messages import EVERYONE, Commit, Promise

if TYPE_CHECKING:
    from plait.coordinator.machine.state import JobState, State


def check(state: State) -> None:
    """Every rule, for every job."""
    for name, job in state.jobs.items():
        for rule in (layouts, nodes, stage, change, phase):
            if wrong := rule(job):
                raise InternalError(f"job {name}: {wrong}\n{story(job)}")
        if name != job.name:
            raise InternalError(f"job {job.name} is kept as {name}")


def layouts(job: JobState) -> str:
    """One owner for each bin, a member; epochs ascend; lost nodes are in no layout."""
    last = -1
    for one in job.layouts:
        members = set(one.members)
        if one.epoch <= last:
            return f"layout of epoch {one.epoch} follows one of epoch {last}"
        last = one.epoch
        if len(one.owners) != job.spec.bins:
            return f"{len(one.owners)} of {job.spec.bins} bins have an owner at epoch {one.epoch}"
        if len(members) != len(one.members) or list(one.members) != sorted(members):
            return f"members {one.members} are not ascending"
        if strangers := set(one.owners) - members:
            return f"bins are owned by {sorted(strangers)}, no members at epoch {one.epoch}"
        if strangers := set(one.readers) - members - {EVERYONE}:
            return f"sources are read by {sorted(strangers)}, no members at epoch {one.epoch}"
        lost = [rank for rank in one.members if job.nodes[rank].phase == "lost"]
        if lost and job.phase != "ending" and not job.over:
            return f"lost nodes {lost} are members at epoch {one.epoch}"
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


def stage(job: JobState) -> str:
    """The stage waits only for nodes that are there; a round is the only one, of this number."""
    awaits = job.stage.awaits
    if job.stage.id >= job.next_stage:
        return f"stage {job.stage.id} is not below the next, {job.next_stage}"
    lost = [rank for rank in waited_for(awaits) if job.nodes[rank].phase in ("lost", "left")]
    if lost:
        return f"stage {job.stage.id} waits for {lost}, which are gone"
    if not job.watch.missing.issubset(waited_for(awaits)):
        return f"stage {job.stage.id} misses {sorted(job.watch.missing)}, whom it does not wait for"
    if isinstance(awaits, Telling):
        told = waited_for(awaits)
        if len(set(told)) != len(told):
            return f"stage {job.stage.id} tells a node two things"
        commands = [order.command for order in awaits.orders]
        rounds = {c.round for c in commands if isinstance(c, Promise)}
        if rounds - {job.stage.id}:
            return f"round {rounds} in stage {job.stage.id}"
        committed = [c for c in commands if isinstance(c, Commit) and c.layouts]
        if any(c.layouts[-1].epoch != job.layout.epoch for c in committed):
            return "what is committed is not the newest layout"
    settled = isinstance(awaits, Pacing | Readying | Measuring | Quiet) or (
        isinstance(awaits, Telling) and awaits.act in ("prepare", "expect", "promise", "lift")
    )
    if settled and len(job.layouts) > 1 and not job.over:
        return f"{len(job.layouts)} layouts are in force in stage {job.stage.id}"
    return ""


def change(job: JobState) -> str:
    one = job.changing
    if one is None:
        if job.phase == "rescaling":
            return "it is rescaling without a rescale"
        return ""
    migration = one.migration
    if migration is None:
        return "a rescale runs without a plan"
    chunk = migration.chunk
    if chunk is None or not chunk.committed:
        if migration.owners.owners != job.layout.owners:
            return "the migration and the layout differ in who owns what"
    elif not isinstance(job.stage.awaits, Passing | Telling):
        return f"a chunk is committed in stage {job.stage}"
    return ""


def phase(job: JobState) -> str:
    if job.phase in ("running", "rescaling", "stopping") and not job.layouts:
        return f"it is {job.phase} without a layout"
    if job.over and not isinstance(job.stage.awaits, Quiet):
        return f"it is over, in stage {job.stage}"
    if job.dropping and (job.over or isinstance(job.stage.awaits, Quiet | Pacing | Readying)):
        return f"nobody is told of the lost nodes {job.dropping}"
    return ""


def story(job: JobState) -> str:
    """The job in a few lines, for the one who has to find out."""
    lines = [
        f"  phase {job.phase}, home {job.home}, tries {job.tries}, error {job.error!r}",
        f"  stage {job.stage.id} since {job.stage.since:.3f} by {job.stage.cause}: "
        f"{str(job.stage.awaits)[:500]}",
        f"  misses {sorted(job.watch.missing)[:20]}",
    ]
    lines += [
        f"  layout at {one.epoch}: members {one.members[:20]}, "
        f"owners {one.owners[:32]}{'...' if len(one.owners) > 32 else ''}"
        for one in job.layouts[:8]
    ]
    lines += [
        f"  node-{node.rank} on {node.host or '?'}: {node.phase} {node.reason}"
        for node in list(job.nodes.values())[:20]
    ]
    if job.change is not None:
        lines.append(f"  rescale {job.change.number}: {job.change.phase} {job.change.reason}")
    return "\n".join(lines)
