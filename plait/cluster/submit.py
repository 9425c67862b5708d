"""Runs a job on a cluster: checks it here, sends it, and returns a handle on it.

A job that is wrong, or cannot be sent to other machines, is an error before anything starts.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from plait.cluster.job_handle import JobHandle
from plait.connectors.files import Files
from plait.connectors.memory_sinks import Collect
from plait.connectors.memory_sources import Table, has_bad_rows
from plait.connectors.rate import Rate
from plait.coordinator.messages.requests import Accepted, Rejected, Submit
from plait.coordinator.messages.spec import JobSpec, SourceSpec
from plait.errors import JobError
from plait.execution.local_run import graph_of, with_letters
from plait.graph.operators import SinkOp, SourceOp
from plait.model.durations import Duration, to_seconds
from plait.model.settings import Settings, unknown_setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.connectors.base import Sink
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
    dead_letters: Sink | None = None,
    **settings: Any,
) -> JobHandle:
    """Starts `job` on `nodes` nodes of a Ray cluster and returns at once.

    Args:
        address: "auto", "host:port" or "ray://host:port"; by default the cluster this process is
            attached to, the one of RAY_ADDRESS, or the one running on this machine; if there is
            none, a Ray is started here and ends with this process.
        nodes: number of nodes; several may be on one machine.
        name: name of the job on the cluster; by default that of the job.
        namespace: each namespace has its own manager of jobs.
        journal_dir: where the manager keeps its journal; used by the first job of a namespace.
        lost_after: a node that is silent this long counts as lost ("2s", a timedelta, or seconds);
            used by the first job of a namespace. Choose more if a function of the job may hold the
            interpreter for seconds.
        prefer: hosts to use first.
        dead_letters: a sink for dead letters, in place of that of the job; a file is written on the
            machine of the node with the sinks.
        settings: any other field of `plait.Settings`, for each node.

    Returns a `JobHandle`. JobError if the job cannot run on nodes or is refused; ClusterError if
    the cluster does not answer.

    >>> handle = plait.submit(job, nodes=2, address="auto")  # doctest: +SKIP
    >>> handle.result(timeout="10m")                         # doctest: +SKIP
    """
    graph = with_letters(graph_of(job), dead_letters)
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
    """A handle on a job of the cluster, from any process. JobError if there is no such job.

    >>> plait.attach("carts").rescale(nodes=4).wait()  # doctest: +SKIP
    """
    from plait.cluster.ray_link import connect

    link = connect(address, namespace)
    if link.view(name) is None:
        there = ", ".join(view.name for view in link.views())
        raise JobError(
            f'no job "{name}" on the cluster; '
            + (f"jobs are: {there}" if there else "it has no jobs")
        )
    return JobHandle(link, name)


def jobs(address: str | None = None, *, namespace: str = "plait") -> tuple[JobView, ...]:
    """All jobs of the cluster as they are now, each as `JobHandle.status` returns it.

    >>> [view.name for view in plait.jobs("auto")]  # doctest: +SKIP
    """
    from plait.cluster.ray_link import connect

    return connect(address, namespace).views()


def settings_for_nodes(given: dict[str, Any]) -> Settings:
    try:
        chosen = Settings(**given)
    except TypeError as error:
        raise JobError(f"submit: {unknown_setting(given) or error}") from None
    if chosen.queue != "lanes":
        raise JobError(f'queue="{chosen.queue}" works in plait.run only; use "lanes" on nodes')
    if chosen.order == "none":
        raise JobError('order="none" works in plait.run only; use "total" or "key" on nodes')
    if chosen.timeout_s is not None:
        raise JobError("timeout= applies to plait.run only; use handle.result(timeout=...)")
    return chosen


def check_sinks(graph: Graph) -> None:
    """With order="key" every node has its own sinks: those that must exist once are refused."""
    for op in graph.operators:
        if not isinstance(op, SinkOp):
            continue
        if isinstance(op.sink, Files):
            raise JobError(
                f'{op}: with order="key" every node would write the same files; '
                'use order="total", or your own Sink class that writes where its node is'
            )
        if isinstance(op.sink, Collect) and op.sink.limit is not None:
            raise JobError(f'{op}: a limit needs order="total"; with "key" each node has its sink')
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
    sources = [op for op in graph.operators if isinstance(op, SourceOp)]
    return JobSpec(
        name=chosen,
        payload=payload,
        token=secrets.token_hex(32),
        bin_bits=settings.bin_bits,
        sources=tuple(
            SourceSpec(label=op.label, splits=type(op.source) in SPLIT and not has_bad_rows(op))
            for op in sources
        ),
        nodes=nodes,
        order="key" if str(settings.order) == "key" else "total",
        epoch_records=settings.epoch_records,
        bounded=all(bool(op.source.bounded) for op in sources),
        prefer=tuple(prefer),
        seed=secrets.randbelow(2**32),
    )
