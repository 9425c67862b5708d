"""From a submitted job, or a rescale with new nodes, to nodes that are placed, made and prepared.

A node that cannot be made before the job began is replaced by one of another rank, on another host
if there is one, a bounded number of times. Ranks are never used twice: a node that shows up late
under an old rank is stopped and harms nobody.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from plait.coordinator.machine.epoch_agreement import joining
from plait.coordinator.machine.job_end import end
from plait.coordinator.machine.placement import TaskAsk, place
from plait.coordinator.machine.stage import Result, enter
from plait.coordinator.machine.state import (
    JobState,
    NodeState,
    Order,
    Placing,
    Starting,
    Telling,
    with_nodes,
)
from plait.coordinator.messages.commands import Outgoing, StopNode
from plait.migration.bins import initial
from plait.protocol.messages import EVERYONE, Begin, Connect, Layout, Peer, Prepare, Rank

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from plait.coordinator.messages.hosts import HostView
    from plait.coordinator.messages.spec import Policy


def ask_for(job: JobState, count: int, at: float, cause: str) -> Result:
    """So many new nodes are wanted: the next ranks wait for a place."""
    ranks = tuple(range(job.next_rank, job.next_rank + count))
    nodes = [NodeState(rank=rank, host="", phase="starting") for rank in ranks]
    job = with_nodes(replace(job, next_rank=job.next_rank + count), nodes)
    return enter(job, Placing(ranks=ranks), at, cause)


def crowded(hosts: Iterable[HostView], jobs: Mapping[str, JobState]) -> tuple[HostView, ...]:
    """The hosts, with the nodes on them that no measurement shows yet."""
    fresh: Counter[str] = Counter()
    tasks: Counter[str] = Counter()
    for job in jobs.values():
        for node in job.nodes.values() if not job.over else ():
            if node.host and node.phase not in ("left", "lost"):
                tasks[node.host] += 1
                fresh[node.host] += node.phase == "starting"
    return tuple(
        replace(
            host,
            tasks=max(host.tasks, tasks[host.host]),
            unmeasured_tasks=max(host.unmeasured_tasks, fresh[host.host]),
        )
        for host in hosts
    )


def placed(
    job: JobState, hosts: tuple[HostView, ...], policy: Policy, at: float, cause: str
) -> Result | str:
    """The waiting ranks on their hosts; or why that cannot be."""
    if not isinstance(job.stage.awaits, Placing):
        return job, []
    ranks = job.stage.awaits.ranks
    bad = {node.host for node in job.nodes.values() if node.phase == "lost"}
    good = tuple(host for host in hosts if host.host not in bad) or hosts
    asks = [
        TaskAsk(task=str(rank), cores_needed=job.spec.cores_per_node, prefer=job.spec.prefer)
        for rank in ranks
    ]
    placement = place(asks, good, job.spec.seed + job.tries)
    if placement.infeasible:
        return placement.infeasible[0].reason
    where = {int(one.task): one.host for one in placement.assignments}
    cores = {host.host: host.cores for host in good}
    crowd = Counter(where.values())
    job = with_nodes(
        job,
        (
            replace(job.nodes[rank], host=host, capacity=cores[host] / crowd[host])
            for rank, host in where.items()
        ),
    )
    phase = job.phase if job.changing else "starting"
    unmade = tuple(rank for rank, node in job.nodes.items() if node.phase == "starting")
    return enter(replace(job, phase=phase), Starting(ranks=unmade), at, cause)


def made(job: JobState, rank: Rank, peer: Peer, host: str, pid: int, at: float) -> JobState:
    """A node is there."""
    node = replace(job.nodes[rank], peer=peer, host=host or job.nodes[rank].host, pid=pid)
    watch = replace(job.watch, heard={**job.watch.heard, rank: at})
    return replace(with_nodes(job, (node,)), watch=watch)


def all_made(job: JobState) -> bool:
    awaits = job.stage.awaits
    return isinstance(awaits, Starting) and all(
        job.nodes[rank].peer is not None for rank in awaits.ranks
    )


def prepare(job: JobState, at: float, cause: str) -> Result:
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
    return enter(job, Telling(aim="start", act="prepare", orders=orders), at, cause)


def meet(job: JobState, at: float, cause: str) -> Result:
    """The new nodes of a rescale are made: they and the members connect."""
    fresh = joining(job)
    job = with_nodes(job, (replace(job.nodes[rank], phase="joining") for rank in fresh))
    everyone = tuple(sorted((*job.members, *fresh)))
    layout = replace(job.layout, members=everyone, copies=())
    connect = Connect(peers=tuple(peer_of(job, rank) for rank in fresh))
    orders = (
        Order(ranks=job.members, command=connect),
        prepare_order(job, fresh, everyone, layout),
    )
    return enter(job, Telling(aim="join", act="prepare", orders=orders), at, cause)


def prepare_order(
    job: JobState, ranks: tuple[Rank, ...], everyone: tuple[Rank, ...], layout: Layout
) -> Order:
    peers = tuple(peer_of(job, rank) for rank in everyone)
    command = Prepare(rank=ranks[0], layout=layout, peers=peers, home=job.home)
    return Order(ranks=ranks, command=command)


def peer_of(job: JobState, rank: Rank) -> Peer:
    peer = job.nodes[rank].peer
    assert peer is not None, f"{job.name}: node {rank} was never made"
    return peer


def begin(job: JobState, at: float, cause: str) -> Result:
    orders = (Order(ranks=job.members, command=Begin(layout=job.layout)),)
    job = with_nodes(job, (replace(job.nodes[rank], phase="member") for rank in job.members))
    job = replace(job, phase="beginning")
    return enter(job, Telling(aim="start", act="begin", orders=orders), at, cause)


def anew(
    job: JobState, gone: tuple[Rank, ...], reason: str, policy: Policy, at: float, cause: str
) -> Result:
    """Before the job began these nodes could not be made or were lost: others take their place."""
    tries = job.tries + 1
    if tries > policy.tries + job.spec.nodes // 10:
        return end(job, "failed", f"its nodes could not be started: {reason}", at, cause)
    stops: list[Outgoing] = [StopNode(job=job.name, rank=rank, cause=cause) for rank in gone]
    job = with_nodes(
        job, (replace(job.nodes[rank], phase="lost", peer=None, reason=reason) for rank in gone)
    )
    waiting = job.stage.awaits.ranks if isinstance(job.stage.awaits, Placing) else ()
    waiting = tuple(rank for rank in waiting if rank not in gone)
    fresh = tuple(range(job.next_rank, job.next_rank + len(gone)))
    job = with_nodes(job, (NodeState(rank=rank, host="", phase="starting") for rank in fresh))
    job = replace(
        job, tries=tries, phase="placing", next_rank=job.next_rank + len(gone), layouts=()
    )
    job, commands = enter(job, Placing(ranks=(*waiting, *fresh)), at, cause)
    return job, stops + commands
