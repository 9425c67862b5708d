"""From a submitted job, or a rescale with new nodes, to nodes that are placed, made and prepared.

A node that cannot be made before the job began is replaced by one of another rank, on another host
if there is one, a bounded number of times. Ranks are never used twice: a node that shows up late
under an old rank is stopped and does no harm.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from plait.coordinator.machine.checkpoints.records import token_of
from plait.coordinator.machine.drop_nodes import without_gone
from plait.coordinator.machine.epoch_agreement import joining_ranks
from plait.coordinator.machine.job_end import end
from plait.coordinator.machine.placement import TaskAsk, place
from plait.coordinator.machine.state import (
    JobState,
    NodeOrder,
    NodeState,
    Placing,
    Starting,
    Telling,
    with_nodes,
)
from plait.coordinator.machine.turn import Next
from plait.coordinator.machine.wait import enter
from plait.coordinator.messages.commands import StopNode
from plait.migration.bins import initial
from plait.protocol.messages import EVERYONE, Begin, Connect, Layout, Peer, Prepare, Rank

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from plait.coordinator.machine.turn import Turn
    from plait.coordinator.messages.hosts import HostView

MEASURED_S = 2.0
"""A node's use of its host is known when it has run for so long."""


def request_nodes(job: JobState, count: int, turn: Turn) -> Next:
    """Adds `count` new nodes: the next ranks wait for a place. The oldest of those that are gone
    make room for them."""
    job = without_gone(job, turn.policy.gone)
    ranks = tuple(range(job.next_rank, job.next_rank + count))
    nodes = [NodeState(rank=rank, host="", phase="starting") for rank in ranks]
    job = with_nodes(replace(job, next_rank=job.next_rank + count), nodes)
    return enter(job, Placing(ranks=ranks), turn)


def with_pending_nodes(
    hosts: Iterable[HostView], jobs: Mapping[str, JobState], at: float
) -> tuple[HostView, ...]:
    """The hosts, with the nodes on them that no measurement shows yet: those that have not run for
    some seconds."""
    fresh: Counter[str] = Counter()
    tasks: Counter[str] = Counter()
    for job in jobs.values():
        for node in job.nodes.values() if not job.over else ():
            if node.host and node.phase not in ("left", "lost"):
                tasks[node.host] += 1
                fresh[node.host] += not is_measured(job, node, at)
    return tuple(
        replace(
            host,
            tasks=max(host.tasks, tasks[host.host]),
            unmeasured_tasks=max(host.unmeasured_tasks, fresh[host.host]),
        )
        for host in hosts
    )


def is_measured(job: JobState, node: NodeState, at: float) -> bool:
    """Whether the use of its host shows what the node uses."""
    if node.made_at is None or job.began_at is None:
        return False
    return at - max(node.made_at, job.began_at) >= MEASURED_S


def bad_hosts(job: JobState, turn: Turn) -> set[str]:
    """Where a node could not be made of late, or where more than one was lost. One process that has
    ended says nothing of its host; and a host that is bad now need not be so for ever."""
    recent = [
        node
        for node in job.nodes.values()
        if node.lost_at is not None and turn.at - node.lost_at < turn.policy.avoid_s
    ]
    losses = Counter(node.host for node in recent)
    unmade = {node.host for node in recent if node.peer is None}
    return unmade | {host for host, count in losses.items() if count > 1}


def place_nodes(job: JobState, hosts: tuple[HostView, ...], turn: Turn) -> Next | str:
    """Puts the waiting ranks on hosts; or says why that cannot be."""
    if not isinstance(job.wait.kind, Placing):
        return Next(job)
    ranks = job.wait.kind.ranks
    bad = bad_hosts(job, turn)
    good = tuple(host for host in hosts if host.host not in bad) or hosts
    asks = [
        TaskAsk(task=str(rank), cores_needed=job.spec.cores_per_node, prefer=job.spec.prefer)
        for rank in ranks
    ]
    taken = {node.host for node in job.nodes.values() if node.phase not in ("left", "lost")}
    placement = place(asks, good, job.spec.seed + job.tries, taken)
    if placement.infeasible:
        return placement.infeasible[0].reason
    where = {int(assigned.task): assigned.host for assigned in placement.assignments}
    cores = {host.host: host.cores for host in good}
    crowd = Counter(where.values())
    job = with_nodes(
        job,
        (
            replace(job.nodes[rank], host=host, capacity=cores[host] / crowd[host])
            for rank, host in where.items()
        ),
    )
    phase = job.phase if job.changing or job.phase == "recovering" else "starting"
    unmade = tuple(rank for rank, node in job.nodes.items() if node.phase == "starting")
    return enter(replace(job, phase=phase), Starting(ranks=unmade), turn)


def note_made(job: JobState, rank: Rank, peer: Peer, host: str, pid: int, at: float) -> JobState:
    """A node is there."""
    known = job.nodes[rank]
    node = replace(known, peer=peer, host=host or known.host, pid=pid, made_at=at)
    watch = replace(job.watch, heard={**job.watch.heard, rank: at})
    return replace(with_nodes(job, (node,)), watch=watch)


def all_made(job: JobState) -> bool:
    kind = job.wait.kind
    return isinstance(kind, Starting) and all(
        job.nodes[rank].peer is not None for rank in kind.ranks
    )


def prepare(job: JobState, turn: Turn) -> Next:
    """All nodes of a new job are made: who is who, and the first layout."""
    ranks = tuple(sorted(rank for rank, node in job.nodes.items() if node.phase == "starting"))
    weights = {rank: job.nodes[rank].capacity for rank in ranks}
    home = ranks[0]
    layout = Layout(
        epoch=0,
        members=ranks,
        owners=initial(job.spec.bins, ranks, weights).owners,
        readers=tuple(EVERYONE if source.splits else home for source in job.spec.sources),
        epoch_records=job.spec.epoch_records,
    )
    job = replace(job, phase="preparing", layouts=(layout,), home=home)
    job = with_nodes(job, (replace(job.nodes[rank], phase="joining") for rank in ranks))
    orders = (prepare_order(job, ranks, ranks, layout),)
    return enter(job, Telling(aim="start", act="prepare", orders=orders), turn)


def connect_new(job: JobState, turn: Turn) -> Next:
    """The new nodes of a rescale are made: they and the members connect."""
    fresh = joining_ranks(job)
    job = with_nodes(job, (replace(job.nodes[rank], phase="joining") for rank in fresh))
    everyone = tuple(sorted((*job.members, *fresh)))
    layout = replace(job.layout, members=everyone, copies=())
    connect = Connect(peers=tuple(peer_of(job, rank) for rank in fresh))
    orders = (
        NodeOrder(ranks=job.members, command=connect),
        prepare_order(job, fresh, everyone, layout),
    )
    return enter(job, Telling(aim="join", act="prepare", orders=orders), turn)


def prepare_order(
    job: JobState, ranks: tuple[Rank, ...], everyone: tuple[Rank, ...], layout: Layout
) -> NodeOrder:
    peers = tuple(peer_of(job, rank) for rank in everyone)
    command = Prepare(
        rank=ranks[0],
        layout=layout,
        peers=peers,
        home=job.home,
        attempt=job.attempt,
        token=token_of(job) if job.attempt else "",
        restore=job.checkpoints.restore if job.checkpoints is not None else None,
    )
    return NodeOrder(ranks=ranks, command=command)


def peer_of(job: JobState, rank: Rank) -> Peer:
    peer = job.nodes[rank].peer
    assert peer is not None, f"{job.name}: node {rank} was never made"
    return peer


def begin(job: JobState, turn: Turn) -> Next:
    orders = (NodeOrder(ranks=job.members, command=Begin(layout=job.layout)),)
    job = with_nodes(job, (replace(job.nodes[rank], phase="member") for rank in job.members))
    job = replace(job, phase="beginning")
    return enter(job, Telling(aim="start", act="begin", orders=orders), turn)


def replace_nodes(job: JobState, gone: tuple[Rank, ...], reason: str, turn: Turn) -> Next:
    """Before the job began these nodes could not be made or were lost: others take their place."""
    tries = job.tries + 1
    if tries > turn.policy.tries + job.spec.nodes // 10:
        return end(job, "failed", f"its nodes could not be started: {reason}", turn)
    stops = tuple(StopNode(job=job.name, rank=rank, cause=turn.cause) for rank in gone)
    job = with_nodes(
        job,
        (
            replace(job.nodes[rank], phase="lost", peer=None, reason=reason, lost_at=turn.at)
            for rank in gone
        ),
    )
    waiting = job.wait.kind.ranks if isinstance(job.wait.kind, Placing) else ()
    waiting = tuple(rank for rank in waiting if rank not in gone)
    fresh = tuple(range(job.next_rank, job.next_rank + len(gone)))
    job = with_nodes(job, (NodeState(rank=rank, host="", phase="starting") for rank in fresh))
    job = replace(
        job, tries=tries, phase="placing", next_rank=job.next_rank + len(gone), layouts=()
    )
    return Next(job, stops).then(enter, Placing(ranks=(*waiting, *fresh)), turn)
