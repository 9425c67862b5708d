"""Runs a job on a cluster: checks it here, sends it, and gives a handle on it.

What is wrong with a job, or cannot be sent to other machines, is an error before anything starts.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from plait.cluster.job_handle import JobHandle
from plait.connectors.files import Files
from plait.connectors.memory_sinks import Collect
from plait.connectors.memory_sources import Table
from plait.connectors.rate import Rate
from plait.coordinator.messages.requests import Accepted, Rejected, Submit
from plait.coordinator.messages.spec import JobSpec, SourceSpec
from plait.errors import JobError
from plait.execution.local_run import graph_of
from plait.graph.operators import SinkOp, SourceOp
from plait.model.durations import Duration, to_seconds
from plait.model.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.coordinator.messages.views import JobView
    from plait.graph.operators import Graph

SPLIT = (Table, Rate)
"""Sources of which every node can read its own slice; any other is read by one node."""
MAX_NODES = 4096
MAX_EPOCH = 1 << 16


def submit(
    job: Any,
    *,
    address: str | None = None,
    nodes: int = 1,
    name: str | None = None,
    namespace: str = "plait",
    journal_dir: str | None = None,
    lost_after: float | Duration = 2.0,
    prefer: Sequence[str] = (),
    **settings: Any,
) -> JobHandle:
    """Starts `job` on `nodes` nodes of a Ray cluster and returns at once.

    Args:
        address: "auto", "host:port" or "ray://host:port"; by default the cluster this process is
            attached to, the one of RAY_ADDRESS, or the one running on this machine; if there is
            none, a Ray is started here and ends with this process.
        nodes: how many; several may be on one machine.
        name: what the job is called on the cluster; by default the name of the job.
        namespace: jobs of another namespace have a manager of their own.
        journal_dir: where the manager keeps its journal, if this is the first job.
        lost_after: a node that is silent for so long counts as lost, if this is the first job.
            Longer where a function of the job may hold the interpreter for seconds.
        prefer: hosts to be used first.
        settings: any other field of `plait.Settings`, for each node.
    """
    graph = graph_of(job)
    if "epoch_records" not in settings and isinstance(nodes, int) and len(graph.sources) == 1:
        # One source: where it is cut does not show in the order, so every node gets its share of a
        # longer epoch.
        settings["epoch_records"] = max(1, min(Settings().epoch_records * nodes, MAX_EPOCH))
    chosen = settings_for_nodes(settings)
    if chosen.order == "key":
        check_sinks(graph)
    if isinstance(nodes, bool) or not isinstance(nodes, int) or not 1 <= nodes <= MAX_NODES:
        raise JobError(f"nodes is {nodes!r}; it must be a whole number from 1 to {MAX_NODES}")
    lost_after_s = to_seconds(lost_after)
    if not lost_after_s > 0:
        raise JobError(f"lost_after is {lost_after!r}; it must be above 0 seconds")
    from plait.cluster.ray_link import connect, import_ray

    import_ray(address)
    from plait.cluster.ray_payload import payload_of

    payload = payload_of(graph, settings)
    spec = spec_of(graph, chosen, payload, nodes=nodes, name=name, prefer=prefer)
    link = connect(address, namespace, start=True)
    link.start_manager(journal_dir, lost_after_s)
    match link.request(Submit(spec=spec)):
        case Accepted(job=accepted):
            return JobHandle(link, accepted)
        case Rejected(reason=reason):
            raise JobError(reason)


def attach(name: str, address: str | None = None, *, namespace: str = "plait") -> JobHandle:
    """A handle on a job that runs on the cluster, from any process."""
    from plait.cluster.ray_link import connect

    link = connect(address, namespace)
    if link.view(name) is None:
        there = ", ".join(view.name for view in link.views())
        raise JobError(f'there is no job "{name}"; ' + (f"there are: {there}" if there else "none"))
    return JobHandle(link, name)


def jobs(address: str | None = None, *, namespace: str = "plait") -> tuple[JobView, ...]:
    """All jobs of the cluster, as they are now."""
    from plait.cluster.ray_link import connect

    return connect(address, namespace).views()


def settings_for_nodes(given: dict[str, Any]) -> Settings:
    try:
        chosen = Settings(**given)
    except TypeError as error:
        raise JobError(f"submit: {error}") from None
    if chosen.queue != "lanes":
        raise JobError(f'queue="{chosen.queue}" runs in one process; on nodes it must be "lanes"')
    if chosen.order == "none":
        raise JobError('order="none" runs in one process; on nodes choose "total" or "key"')
    if chosen.timeout_s is not None:
        raise JobError("timeout is of a run in this process; say handle.result(timeout=...)")
    return chosen


def check_sinks(graph: Graph) -> None:
    """With order="key" every node has its own sinks: those that can be only once are refused."""
    for node in graph.operators:
        if not isinstance(node, SinkOp):
            continue
        if isinstance(node.sink, Files):
            raise JobError(
                f'{node}: with order="key" every node would write the same files; '
                'use order="total", or a sink of your own that writes where its node is'
            )
        if isinstance(node.sink, Collect) and node.sink.limit is not None:
            raise JobError(f'{node}: a limit needs order="total": each node has a sink of its own')
    if isinstance(graph.dead_letters, Files):
        raise JobError(
            'with order="key" every node would write the same file of dead letters; '
            'use order="total"'
        )


def spec_of(
    graph: Graph,
    settings: Settings,
    payload: bytes,
    *,
    nodes: int,
    name: str | None,
    prefer: Sequence[str],
) -> JobSpec:
    chosen = graph.name if name is None else name
    if not chosen or len(chosen) > 200 or not chosen.isprintable():
        raise JobError(f"a job on a cluster needs a name of 1 to 200 printable letters: {chosen!r}")
    sources = [node for node in graph.operators if isinstance(node, SourceOp)]
    return JobSpec(
        name=chosen,
        payload=payload,
        token=secrets.token_hex(32),
        bin_bits=settings.bin_bits,
        sources=tuple(
            SourceSpec(label=node.label, splits=type(node.source) in SPLIT) for node in sources
        ),
        nodes=nodes,
        order="key" if str(settings.order) == "key" else "total",
        epoch_records=settings.epoch_records,
        bounded=all(bool(node.source.bounded) for node in sources),
        prefer=tuple(prefer),
        seed=secrets.randbelow(2**32),
    )
