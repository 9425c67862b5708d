"""Runs a job on a cluster: checks it here, sends it, and returns a handle on it.

A job that is wrong, or cannot be sent to other machines, is an error before anything starts.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
from typing import TYPE_CHECKING, Any, Literal

from plait.checkpoints.config import Checkpoint, to_checkpoint
from plait.cluster.job_handle import JobHandle
from plait.cluster.whole_paths import with_whole_paths
from plait.connectors.files import Files
from plait.connectors.memory_sinks import Collect
from plait.connectors.splitting import splitting
from plait.coordinator.messages.request_checks import objection_to
from plait.coordinator.messages.requests import Submit
from plait.coordinator.messages.spec import CheckpointSpec, JobSpec, PartSpec, QuerySpec, SourceSpec
from plait.errors import JobError
from plait.execution.local_run import graph_of, with_letters
from plait.graph.checkpoint_rules import refuse_unsaveable
from plait.graph.operators import SinkOp, SourceOp
from plait.graph.source_order import is_in_time
from plait.graph.stages import make_pipeline
from plait.graph.subpipelines import cut
from plait.model.durations import Duration, to_seconds
from plait.model.settings import Settings, unknown_setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.connectors.base import Sink
    from plait.coordinator.messages.views import JobView
    from plait.graph.operators import Graph

MAX_EPOCH = 1 << 16


def submit(
    job: Any,
    *,
    address: str | None = None,
    nodes: int = 1,
    name: str | None = None,
    namespace: str = "plait",
    journal_dir: str | None = None,
    silence: float | Duration | None = None,
    prefer: Sequence[str] = (),
    replace: bool = False,
    wait: Literal["running"] | None = None,
    dead_letters: Sink | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    start: str = "",
    **settings: Any,
) -> JobHandle:
    """Starts `job` on `nodes` nodes of a Ray cluster and returns at once.

    Args:
        address: "auto", "host:port" or "ray://host:port"; by default the cluster this process is
            attached to, the one of RAY_ADDRESS, or the one running on this machine; if there is
            none, a Ray is started here and ends with this process (for several nodes only where
            RAY_AUTH_TOKEN_PATH is not set: it names the token of a cluster).
        nodes: number of nodes; several may be on one machine.
        name: name of the job on the cluster; by default that of the job.
        namespace: each namespace has its own manager of jobs.
        journal_dir: where the manager keeps its journal; used by the first job of a namespace.
        silence: a node of which nothing is heard this long counts as lost ("20s", a timedelta, or
            seconds); by default as long as Ray itself waits for a host, at most 10 s. A process
            that ends is noticed at once in any case.
        prefer: hosts to use first.
        replace: a job of the same name makes room: one that runs is cancelled, one whose result
            nobody has taken is forgotten.
        wait: "running" returns when the job runs; it raises ClusterError if it does not start.
        dead_letters: a sink for dead letters, in place of that of the job; a file is written on the
            machine of the node with the sinks.
        checkpoint: where the job is saved, every 10 s: a path that all nodes can reach, a URL, or a
            `plait.Checkpoint`. If nodes are lost the job goes on from there by itself; a job of the
            same name that is submitted with the same checkpoint goes on from there too.
        start: with `checkpoint=`, where to go on instead of at the newest checkpoint:
            "savepoint:NAME", "checkpoint:NUMBER", or "new" for the beginning.
        settings: any other field of `plait.Settings`, for each node.

    Returns a `JobHandle`. JobError if the job cannot run on nodes or is refused; ClusterError if
    the cluster does not answer.

    >>> handle = plait.submit(job, nodes=2, address="auto")  # doctest: +SKIP
    >>> handle.result(timeout="10m")                         # doctest: +SKIP
    """
    graph = with_letters(graph_of(job), dead_letters)
    chosen = settings_for_nodes(settings)
    in_time = is_in_time(graph, chosen.order)
    cuts_show = len(graph.sources) > 1 and not in_time
    if "epoch_records" not in settings and type(nodes) is int and not cuts_show:
        # Where sources are cut does not show in the order, so every node gets its share of a longer
        # epoch.
        settings["epoch_records"] = max(1, min(Settings().epoch_records * nodes, MAX_EPOCH))
        chosen = settings_for_nodes(settings)
    if chosen.order == "key":
        check_sinks(graph)
        if chosen.breaker is not None:
            raise JobError(
                f'breaker="{chosen.breaker}" cannot be combined with order="key" on nodes: no node'
                " sees all dead letters"
            )
    if checkpoint is not None:
        # What it is called on the cluster is the name under which it is found again.
        refuse_unsaveable(
            dataclasses.replace(graph, name=name or graph.name), chosen, on_nodes=True
        )
        if chosen.order == "key":
            raise JobError('order="key" cannot be combined with checkpoint= on nodes yet')
    if not isinstance(start, str):
        raise JobError(f'start is {start!r}; it must be text such as "savepoint:NAME"')
    if start and checkpoint is None:
        raise JobError("start= says where to go on; say where the checkpoints are: checkpoint=")
    if wait not in (None, "running"):
        raise JobError(f'wait is {wait!r}; it must be "running", or left out')
    spec = spec_of(graph, chosen, nodes=nodes, name=name, prefer=prefer, silence=silence)
    spec = dataclasses.replace(spec, checkpoint=checkpoint_spec(checkpoint, start))
    raise_objection(objection_to(Submit(spec=spec, replace=replace)))
    from plait.cluster.ray_link import connect, import_ray

    import_ray(address)
    from plait.cluster.ray_payload import payload_of

    url = "" if spec.checkpoint is None else spec.checkpoint.url
    dropped = () if checkpoint is None else to_checkpoint(checkpoint).drop
    payload = payload_of(
        dataclasses.replace(with_whole_paths(graph), name=spec.name, dropped=dropped), settings, url
    )
    link = connect(address, namespace, start=True, nodes=nodes)
    link.start_manager(journal_dir)
    handle = JobHandle(link, spec.name)
    if replace:
        handle._end_for_another()
    spec = dataclasses.replace(spec, payload=link.store_payload(payload))
    del payload
    handle._ask(Submit(spec=spec, replace=replace))
    if wait is not None:
        handle._wait_until_running()
    return handle


def attach(name: str, address: str | None = None, *, namespace: str = "plait") -> JobHandle:
    """A handle on a job of the cluster, from any process. JobError if there is no such job.

    >>> plait.attach("carts").rescale(nodes=4).wait()  # doctest: +SKIP
    """
    from plait.cluster.ray_link import connect

    link = connect(address, namespace)
    names = [view.name for view in link.views()]
    if name not in names:
        there = f"jobs are: {', '.join(names)}" if names else "it has no jobs"
        raise JobError(f'no job "{name}" on the cluster; {there}')
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


def checkpoint_spec(
    given: str | os.PathLike[str] | Checkpoint | None, start: str = ""
) -> CheckpointSpec | None:
    """Where and how often the job is saved; a path is named from the root."""
    if given is None:
        return None
    chosen = to_checkpoint(given)
    url = chosen.url if "://" in chosen.url else os.path.abspath(chosen.url)
    return CheckpointSpec(
        url=url,
        every_s=chosen.every_s,
        keep=chosen.keep,
        max_age_s=chosen.max_age_s,
        restarts=chosen.restarts,
        start=start,
    )


def raise_objection(wrong: str) -> None:
    if wrong:
        raise JobError(wrong)


def hosts_of(prefer: Sequence[str]) -> tuple[str, ...]:
    if not isinstance(prefer, list | tuple) or not all(isinstance(host, str) for host in prefer):
        raise JobError(f"prefer must be names of hosts, got {prefer!r}")
    return tuple(prefer)


def spec_of(
    graph: Graph,
    settings: Settings,
    *,
    nodes: int,
    name: str | None,
    prefer: Sequence[str],
    silence: float | Duration | None,
) -> JobSpec:
    """The job for the coordinator; where its payload is comes later."""
    sources = [op for op in graph.operators if isinstance(op, SourceOp)]
    return JobSpec(
        name=graph.name if name is None else name,
        payload="",
        token=secrets.token_hex(32),
        bin_bits=settings.bin_bits,
        sources=tuple(
            SourceSpec(label=op.label, splits=splits)
            for op, splits in zip(sources, splitting(graph, settings.order), strict=True)
        ),
        nodes=nodes,
        parts=parts_of(graph, settings),
        queries=queries_of(graph),
        sheds=settings.quality != "off",
        order="key" if str(settings.order) == "key" else "total",
        epoch_records=settings.epoch_records,
        bounded=all(bool(op.source.bounded) for op in sources),
        prefer=hosts_of(prefer),
        seed=secrets.randbelow(2**32),
        silence_s=None if silence is None else to_seconds(silence),
    )


def queries_of(graph: Graph) -> tuple[QuerySpec, ...]:
    """The sinks of the job, with what they ask for under overload."""
    sinks = [op for op in graph.operators if isinstance(op, SinkOp)]
    return tuple(
        QuerySpec(
            label=sink.label,
            priority=sink.quality.priority,
            min_accuracy=sink.quality.min_accuracy,
            freshness_s=sink.quality.freshness_us / 1e6,
            below_floor=sink.quality.below_floor,
        )
        for sink in sinks
    )


def parts_of(graph: Graph, settings: Settings) -> tuple[PartSpec, ...]:
    """The sub-pipelines of the job, as the nodes cut it."""
    return tuple(
        PartSpec(
            name=part.name,
            kind=part.kind,
            inputs=part.inputs,
            sources=part.sources,
            queries=part.queries,
            region=part.region,
            pinned=part.pinned,
        )
        for part in cut(make_pipeline(graph, settings.fuse), total=settings.order != "key")
    )
