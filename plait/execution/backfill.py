"""Runs a job over its history, so that it goes live with the state that streaming it all would have
given: `plait.backfill`.

The job itself runs, with a history in the place of each live source and outputs dropped. When the
histories are over no window closes; a savepoint is taken whose positions are those of the live
sources. Records that no state can hold any more by then (`graph.horizon`) need not be run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from plait.checkpoints.config import to_checkpoint
from plait.checkpoints.job_folder import JobFolder
from plait.checkpoints.paths import savepoint_path
from plait.checkpoints.store import open_store
from plait.connectors.base import Source
from plait.connectors.history import Pace, Replay, greatest_time
from plait.connectors.memory_sinks import Discard
from plait.errors import JobError, StateError
from plait.execution.checkpointing import Checkpointing
from plait.execution.local_run import LocalRun, graph_of
from plait.execution.signals import Presses
from plait.graph.checkpoint_rules import refuse_unsaveable
from plait.graph.delays import is_arrival
from plait.graph.horizon import Horizon, source_horizons
from plait.graph.operators import SinkOp, SourceOp, TimedOp
from plait.graph.temporal import ProcessSpec
from plait.model.records import describe
from plait.model.settings import Settings, unknown_setting

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from plait.checkpoints.config import Checkpoint
    from plait.graph.operators import AnyOp, Graph
    from plait.model.schema import Schema
    from plait.results.result import Result

NEVER = "36500d"


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """What `plait.backfill` did, or with `dry_run` would do: `print` it.

    >>> print(Backfill(savepoint="", rows=0, skipped=0, dropped=0, seconds=0.0, told=("a: all",)))
    a: all
    """

    savepoint: str
    """What to give as `start=` to `plait.run` or `plait.submit`; "" of a dry run."""
    rows: int
    """Of the history, that the job read."""
    skipped: int
    """Rows that cannot matter any more and were left out."""
    dropped: int
    """Rows of output that nobody was given."""
    seconds: float
    told: tuple[str, ...]
    """Of each source, how much of its history is needed, and why."""

    def __str__(self) -> str:
        lines = list(self.told)
        if self.savepoint:
            lines.append(
                f"{self.rows:,} rows in {self.seconds:.1f} s, {self.skipped:,} left out;"
                f' go live with start="{self.savepoint}"'
            )
        return "\n".join(lines)


def backfill(
    job: Any,
    *,
    history: Mapping[str, Any],
    until: Mapping[str, Any],
    checkpoint: str | os.PathLike[str] | Checkpoint,
    name: str = "backfill",
    cut: bool = True,
    dry_run: bool = False,
    progress: bool | None = None,
    **settings: Any,
) -> Backfill:
    """Runs `job` over old records, drops its output, and saves its state, from which it goes live.

    >>> import tempfile
    >>> rows = [{"user": 1}, {"user": 1}, {"user": 2}, {"user": 1}]
    >>> job = plait.Job("counts")
    >>> counts = job.source(rows, "clicks").key_by("user").count().sink(plait.Collect(), "out")
    >>> saved = tempfile.mkdtemp()
    >>> old = {"clicks": rows[:2]}
    >>> done = plait.backfill(job, history=old, until={"clicks": 2}, checkpoint=saved)
    >>> done.rows, done.savepoint
    (2, 'savepoint:backfill')
    >>> live = plait.run(job, checkpoint=saved, start=done.savepoint)
    >>> live.outputs["out"].to_pylist()
    [{'user': 2, 'count': 1}, {'user': 1, 'count': 3}]

    Args:
        history: for each live source, by its name, what came before: any source that ends
            (`plait.Files`, `plait.from_spark` of a batch frame, a table, a list), with at least its
            columns. A source with an end that is not named is read as it is.
        until: for each of them the first live position after the history: of Kafka the next offset
            of each partition, of a `BatchLog` the number of the next batch, of others what their
            readers give. The history must be exactly what is before it.
        checkpoint: where the job keeps its checkpoints; there must be none of this job yet.
        name: of the savepoint.
        cut: leave out rows that are too old to matter.
        dry_run: run nothing, only say what would be cut.
        progress: show a progress line; by default when stderr is a terminal.
        settings: fields of `plait.Settings`, such as `workers=4`.
    """
    graph = graph_of(job)
    try:
        chosen = Settings(**settings)
    except TypeError as error:
        raise JobError(f"backfill: {unknown_setting(settings) or error}") from None
    savepoint_path(name)
    refuse(graph, chosen)
    sources = live_sources(graph)
    histories = {label: checked_history(sources, label, history[label]) for label in history}
    positions = live_positions(sources, histories, until)
    config = replace(to_checkpoint(checkpoint), every=NEVER, max_age=None)
    plan = plan_cut(graph, histories, cut=cut)
    if dry_run:
        return Backfill(savepoint="", rows=0, skipped=0, dropped=0, seconds=0.0, told=plan.told)
    refuse_begun(graph, config)
    labels = {op.label for op in sources.values()}
    pace = Pace(labels, lambda: saved.stop())
    replayed = with_replays(graph, histories, positions, plan.keep_from_us, pace)
    saved = Checkpointing(replayed, chosen, config, "new")
    saved.last_name = name
    with Presses() as presses:
        running = ReplayRun(replayed, chosen, None, saved)
        result: Result = running.watch_to_end(progress, presses)
    if not saved.stopped_at_mark:
        raise StateError("backfill: the job ended before its state could be saved")
    return Backfill(
        savepoint=f"savepoint:{name}",
        rows=pace.read,
        skipped=pace.skipped,
        dropped=result.account.delivered,
        seconds=result.seconds,
        told=plan.told,
    )


class ReplayRun(LocalRun):
    """A run that is worth nothing if it is stopped before the end."""

    def stop(self, *, finish: Any = None) -> None:
        self.abort()


def refuse(graph: Graph, settings: Settings) -> None:
    """Raises a JobError for jobs of which the state after a replay would not be that of a job that
    ran all the time."""
    refuse_unsaveable(graph, settings)
    for op in graph.operators:
        if is_arrival(op):
            raise JobError(
                f"{op} goes by the time at which records arrive, and those of a history arrived"
                ' long ago; use by="event_time", or begin without a backfill'
            )
        if isinstance(op, TimedOp) and isinstance(op.spec, ProcessSpec) and uses_clock(op.spec):
            raise JobError(
                f"{op} has timers by the wall clock (on_timeout), which would fire while the"
                " history is replayed; use timers.at, by event time, or begin without a backfill"
            )


def uses_clock(spec: ProcessSpec) -> bool:
    from plait.functions.process import Process

    own = spec.process if isinstance(spec.process, type) else type(spec.process)
    return getattr(own, "on_timeout", None) is not getattr(Process, "on_timeout", None)


def live_sources(graph: Graph) -> dict[str, SourceOp]:
    found = (graph.operators[number] for number in graph.sources)
    return {op.label: op for op in found if isinstance(op, SourceOp)}


def checked_history(sources: Mapping[str, SourceOp], label: str, given: Any) -> Source:
    """The history of a source, as a source that ends and has its columns."""
    from plait.connectors.convert import to_source

    if label not in sources:
        known = ", ".join(sources)
        raise JobError(f'backfill: there is no source "{label}"; the job has: {known}')
    found = given if isinstance(given, Source) else to_source(given)
    if not found.bounded:
        raise JobError(
            f"backfill: the history of {label} is {describe(found)}, which has no end; give files,"
            " a table, a batch frame of Spark, or Kafka with end="
        )
    live: Schema = sources[label].schema
    for field in live:
        if field.name not in found.schema:
            have = ", ".join(found.schema.names)
            raise JobError(
                f'backfill: the history of {label} has no column "{field.name}"; it has: {have}'
            )
        if found.schema[field.name].type is not field.type:
            raise JobError(
                f'backfill: column "{field.name}" of {label} is {field.type.value}, and'
                f" {found.schema[field.name].type.value} in its history; make them the same"
            )
    return found


def live_positions(
    sources: Mapping[str, SourceOp], histories: Mapping[str, Source], until: Mapping[str, Any]
) -> dict[str, Any]:
    """Where each live source goes on."""
    for label in until:
        if label not in histories:
            raise JobError(f"backfill: until= names {label}, and history= does not")
    if not histories:
        raise JobError("backfill: history= is empty; give what came before, by the source's name")
    positions = {}
    for label, op in sources.items():
        if label in histories:
            if label not in until:
                raise JobError(
                    f"backfill: until= does not say where {label} goes on live; write"
                    f' until={{"{label}": ...}}'
                )
            positions[label] = op.source.position_after(until[label])
        elif not op.source.bounded:
            raise JobError(
                f"backfill: {label} has no end and no history; give one that is before its live"
                f' position: history={{"{label}": ...}}'
            )
    return positions


def refuse_begun(graph: Graph, config: Checkpoint) -> None:
    """Raises a StateError if the job has run already: its state would be given up."""
    folder = JobFolder(open_store(config.url), graph.name)
    if any(info.number > 0 for info in folder.manifests()) or folder.savepoints():
        raise StateError(
            f"backfill: there are checkpoints of {graph.name} in {config!r} already; give another"
            " folder, or the job another name"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPlan:
    """Which rows of the histories are left out."""

    keep_from_us: Mapping[str, int]
    """Of each source that is cut: the first event time that matters."""
    told: tuple[str, ...]


def plan_cut(graph: Graph, histories: Mapping[str, Source], *, cut: bool) -> CutPlan:
    """What of each history matters: its horizon before the watermark at the end of all of them."""
    horizons: dict[str, Horizon] = {}
    for number, horizon in source_horizons(graph).items():
        op = graph.operators[number]
        assert isinstance(op, SourceOp)
        if op.label in histories:
            horizons[op.label] = horizon
    if not cut:
        return CutPlan(
            keep_from_us={}, told=tuple(f"{h}: all is read: cut=False" for h in horizons)
        )
    told = {
        label: f"{label}: all is read: {horizon.why}"
        for label, horizon in horizons.items()
        if horizon.us is None
    }
    if len(told) == len(horizons):
        return CutPlan(keep_from_us={}, told=tuple(told.values()))
    watermark = watermark_after(graph, histories)
    keep: dict[str, int] = {}
    for label, horizon in horizons.items():
        if horizon.us is None:
            continue
        if watermark is None:
            told[label] = f"{label}: all is read: the watermark at its end is not known beforehand"
            continue
        keep[label] = watermark - horizon.us
        told[label] = f"{label}: {seconds_text(horizon.us)} before the watermark are read"
    return CutPlan(keep_from_us=keep, told=tuple(told[label] for label in horizons))


def watermark_after(graph: Graph, histories: Mapping[str, Source]) -> int | None:
    """The least time of the sources at the end of their histories; None: it is not known."""
    least: int | None = None
    for op in live_sources(graph).values():
        if op.event_time is None:
            continue
        source = histories.get(op.label, op.source)
        if not (source.repeatable or source.replayable):
            return None
        reached = greatest_time(source, op.schema, op.event_time, op.max_jump_us)
        if reached is None:
            return None
        reached -= op.out_of_order_us
        least = reached if least is None else min(least, reached)
    return least


def seconds_text(us: int) -> str:
    return f"{us / 1e6:,.12g} s"


def with_replays(
    graph: Graph,
    histories: Mapping[str, Source],
    positions: Mapping[str, Any],
    keep_from_us: Mapping[str, int],
    pace: Pace,
) -> Graph:
    """The same job over its history; its sinks take nothing."""
    operators: list[AnyOp] = []
    for op in graph.operators:
        if isinstance(op, SourceOp):
            source = Replay(
                op.source,
                histories.get(op.label),
                schema=op.schema,
                label=op.label,
                until=positions.get(op.label),
                column=op.event_time or "",
                pace=pace,
                keep_from_us=keep_from_us.get(op.label),
            )
            operators.append(replace(op, source=source, idle_us=0))
        elif isinstance(op, SinkOp):
            operators.append(replace(op, sink=Discard()))
        else:
            operators.append(op)
    letters = None if graph.dead_letters is None else Discard()
    return replace(graph, operators=tuple(operators), dead_letters=letters)
