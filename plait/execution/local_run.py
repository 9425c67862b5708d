"""Runs a job in this process, on every core: opens its ends, starts the engine and watches it.

`run` waits for the end; `start` gives a handle on the running job that can take a snapshot of its
state, move bins out and in, and stop it. Ctrl-C, SIGTERM and SIGHUP stop the sources and deliver
what was read; a second one ends at once. So does the first, after a while, if a function of the job
does not come to its end: what was delivered by then is kept.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from plait.checkpoints.config import to_checkpoint
from plait.checkpoints.starts import to_start
from plait.connectors.base import checked_sink
from plait.connectors.memory_sinks import Discard
from plait.errors import (
    BreakerError,
    InternalError,
    Interrupted,
    JobError,
    StateError,
    TimedOut,
)
from plait.execution import quality_watch
from plait.execution.checkpointing import Checkpointing
from plait.execution.keeping import Keeping
from plait.execution.signals import Presses
from plait.execution.waiting import describe_wait
from plait.graph.operators import Graph, SinkOp, SourceOp
from plait.graph.snapshot import Snapshot, check_snapshot, keeps_state
from plait.graph.source_order import is_in_time
from plait.graph.stages import has_loop, make_pipeline
from plait.model.durations import Duration, to_seconds
from plait.model.settings import Settings, unknown_setting
from plait.node_runtime.assembly.build import build
from plait.node_runtime.assembly.task_loads import TaskLoads
from plait.node_runtime.elastic.watch import ElasticWatch, start_watch
from plait.node_runtime.host.endpoints import Ends, open_ends
from plait.node_runtime.host.source_rates import SourceRates
from plait.protocol.part_use import average_cores
from plait.results.breaker import make_breaker
from plait.results.engine_failures import FailureKind
from plait.results.failures import Letters, error_of
from plait.results.outcomes import keep_steps, stopped_sources, tally
from plait.results.result import Latency, Result
from plait.shedding.plan import ratios_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from plait.checkpoints.config import Checkpoint
    from plait.connectors.base import Sink
    from plait.execution.progress import ProgressLine
    from plait.protocol.messages import Finish
    from plait.protocol.part_use import PartUse
    from plait.protocol.quality import QualityStep, QueryQuality
    from plait.protocol.rates import SourceRate
    from plait.results.outcomes import Plan

TICK_S = 0.1
GRACE_S = 10.0
"""How long a stopped run may take to deliver what it had read, before it is ended at once ..."""
STILL_S = 3.0
"""... and how long nothing may move in it."""
SAY_S = 0.5
"""A stopped run that does not move for so long says what it waits for."""

Stopped = type[Interrupted] | type[TimedOut]
"""What a run raises that was stopped."""

LEFT_BEHIND = "; a function of the job does not return, its thread was left behind"


def run(
    job: Any,
    *,
    workers: int | Literal["elastic"] | None = None,
    limit: int | None = None,
    timeout: float | Duration | None = None,
    progress: bool | None = None,
    dead_letters: Sink | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    start: str = "",
    **settings: Any,
) -> Result:
    """Runs `job` until its sources end and gives its `plait.Result`.

    >>> counts = plait.stream([1, 2, 3]).count().sink(plait.Collect(), name="counts")
    >>> plait.run(counts, workers=2).outputs["counts"].to_pydict()
    {'count': [1, 2, 3]}

    Args:
        workers: threads; by default one for each core this process may use. "elastic": as many of
            these as give the best throughput, found while the job runs.
        limit: stop after so many records of each source.
        timeout: after this long ("10s", a timedelta, or seconds) the run is stopped: TimedOut.
        progress: show a progress line; by default when stderr is a terminal.
        dead_letters: a sink for dead letters, in place of that of the job.
        checkpoint: a folder, a URL or a `plait.Checkpoint`: the state is saved there every 10 s,
            and the next run of the same job goes on from it, also after a crash.
        start: with `checkpoint=`, where to go on instead of at the newest checkpoint:
            "savepoint:NAME", "checkpoint:NUMBER", or "new" for the beginning.
        settings: any other field of `plait.Settings`.
    """
    timeout_s = None if timeout is None else to_seconds(timeout)
    given: dict[str, Any] = {"workers": workers, "limit": limit, "timeout_s": timeout_s}
    chosen = {name: value for name, value in given.items() if value is not None}
    with Presses() as presses:
        running = begin(job, None, dead_letters, checkpoint, {**chosen, **settings}, start)
        if isinstance(running, Result):
            return running
        return running.watch_to_end(progress, presses)


def start(
    job: Any,
    *,
    state: Snapshot | None = None,
    dead_letters: Sink | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    start: str = "",
    **settings: Any,
) -> LocalRun:
    """Starts `job` and returns at once, with a `plait.LocalRun`.

    >>> numbers = plait.stream([1, 2, 3]).sink(plait.Discard())
    >>> running = plait.start(numbers, workers=2)
    >>> running.wait().account.delivered
    3

    Args:
        job: a `plait.Job`, or a stream of it.
        state: go on from a snapshot of the same job.
        dead_letters: a sink for dead letters, in place of that of the job.
        checkpoint: where the state is saved while it runs, and goes on from; see `plait.run`.
        start: with `checkpoint=`: where to go on; see `plait.run`.
        settings: fields of `plait.Settings`, such as `workers=4`.
    """
    return running_of(begin(job, state, dead_letters, checkpoint, settings, start))


def running_of(running: LocalRun | Result) -> LocalRun:
    """A job that runs."""
    if isinstance(running, Result):
        raise StateError(
            f'the job "{running.job}" is finished: its checkpoint says that all sources have ended;'
            " plait.run gives its result again"
        )
    return running


def begin(
    job: Any,
    state: Snapshot | None,
    dead_letters: Sink | None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None,
    settings: dict[str, Any],
    start: str = "",
    keeps: Sequence[Plan] = (),
) -> LocalRun | Result:
    """Starts the job; the result of one whose checkpoint says that it is finished. `keeps`: what is
    kept of each query, from which epoch on."""
    try:
        chosen = Settings(**settings)
    except TypeError as error:
        raise JobError(f"run: {unknown_setting(settings) or error}") from None
    graph = with_letters(graph_of(job), dead_letters)
    if chosen.order == "none" and any(len(op.inputs) > 1 for op in graph.operators):
        raise JobError(
            'order="none" cannot be combined with union, whose output is defined by order'
        )
    if chosen.order == "none" and any(has_loop(op) for op in graph.operators):
        raise JobError(
            'order="none" cannot be combined with operators with their own loop, whose output is'
            " defined by order"
        )
    in_time = is_in_time(graph, chosen.order)
    if state is not None and in_time:
        raise JobError(
            "a snapshot does not say how far the order of time is; go on from it with"
            ' order="total", as in the run it is of'
        )
    to_start(start)
    if checkpoint is None and start:
        raise JobError("start= says where to go on; say where the checkpoints are: checkpoint=")
    if checkpoint is None:
        return LocalRun(graph, chosen, state, keeps=keeps)
    if state is not None:
        raise JobError("state= and checkpoint= both say where to go on; give one of them")
    config = to_checkpoint(checkpoint)
    graph = replace(graph, dropped=config.drop)
    saved = Checkpointing(graph, chosen, config, start)
    if saved.manifest is not None and saved.manifest.finished:
        return saved.finished_result()
    return LocalRun(graph, chosen, None, saved, keeps=keeps)


def graph_of(job: Any) -> Graph:
    if isinstance(job, Graph):
        return job
    if callable(getattr(job, "graph", None)):
        return job.graph()  # type: ignore[no-any-return]
    if hasattr(job, "job"):
        return graph_of(job.job)
    raise JobError(f"run needs a Job, not {job!r}")


def with_letters(graph: Graph, sink: Sink | None) -> Graph:
    """The graph with a sink for its dead letters, if one is given."""
    return graph if sink is None else replace(graph, dead_letters=checked_sink(sink))


class LocalRun:
    """A job that runs in this process, made by `plait.start`.

    >>> running = plait.start(plait.stream([1, 2, 3]).count().sink(plait.Discard()))
    >>> running.wait().account.delivered
    3
    """

    started: ClassVar[int] = 0
    """How many runs this process has started."""
    ended = True
    """Whether there is nothing that must be ended."""

    def __init__(
        self,
        graph: Graph,
        settings: Settings,
        state: Snapshot | None,
        saved: Checkpointing | None = None,
        keeps: Sequence[Plan] = (),
    ) -> None:
        LocalRun.started += 1
        self.graph = graph
        self.settings = settings
        self.saved = saved
        self.pipeline = make_pipeline(graph, settings.fuse)
        self.aborted = False
        self.done: Result | None = None
        self.elastic: ElasticWatch | None = None
        self.breaker = make_breaker(settings)
        self.broken: BreakerError | None = None
        """Why the breaker ended the run."""
        self.quality: quality_watch.QualityWatch | None = None
        self.letters_lock = threading.Lock()
        """The thread that takes checkpoints sees to dead letters, too."""
        with ExitStack() as undo:
            if saved is not None:
                undo.callback(saved.close)
            self.ends: Ends = self.open_ends(state)
            undo.callback(self.ends.abort)
            self.letters = Letters(graph, None if saved is None else saved.restored.letters)
            undo.callback(self.letters.close, False)
            self.letters.breaker = self.breaker
            self.parts = build(self.pipeline, settings, self.ends.sources, self.ends.sinks)
            undo.callback(self.parts.stop_helpers)
            undo.callback(self.parts.close)
            self.engine = self.parts.engine
            self.keeping = Keeping(graph, self.engine)
            self.task_loads = TaskLoads(self.pipeline, settings, self.parts, self.ends.cpu_s)
            self.measured = SourceRates(graph, self.ends.sources, self.ends.gauges, self.engine)
            self.began = time.perf_counter()
            if state:
                self.put_state(state)
            if saved is not None:
                saved.attach(self.parts, self.ends, self.letters, self.collect_letters)
                self.keeping.decided = ratios_of(saved.restored.keeps)
            for epoch, kept in keeps:
                self.engine.keep_from(epoch, kept)
            self.parts.start()
            self.ended = False
            self.elastic = start_watch(self.engine, settings)
            self.quality = quality_watch.start_watch(self)
            if self.quality is None:
                self.keeping.hand_over()
            else:
                undo.callback(self.quality.stop)
            self.measured.start()
            if saved is not None:
                saved.begin()
            undo.pop_all()

    def open_ends(self, state: Snapshot | None) -> Ends:
        """Opens sources and sinks, where the run goes on from."""
        if self.saved is not None:
            restored = self.saved.restored
            return open_ends(self.graph, restored.positions, resumes=restored.resumes)
        return open_ends(self.graph, check_snapshot(state, self.graph).positions if state else {})

    def put_state(self, state: Snapshot) -> None:
        """Before the start: the bins of a snapshot; epochs and rows go on from it."""
        self.raise_refusal("the snapshot", self.engine.put_now(state.bins))
        self.engine.start_at(state.epoch, state.rows, [0] * len(state.rows))

    def __del__(self) -> None:
        """A run that nobody waits for ends here, with its loops and processes."""
        if not self.ended:
            self.abort()
            self.end_workers()

    def wait(self, *, progress: bool | None = None) -> Result:
        """Waits for the end and gives the result, or raises what ended the run."""
        with Presses() as presses:
            return self.watch_to_end(progress, presses)

    def watch_to_end(self, progress: bool | None, presses: Presses) -> Result:
        """Waits for the end and gives the result; whatever happens, nothing is left open."""
        try:
            stopped = self.watch(progress, presses)
        except KeyboardInterrupt:  # a second one while the first was being answered
            self.abort()
            stopped = Interrupted
        except BaseException:
            self.give_up()
            raise
        return self.finish(stopped, presses.signal)

    def give_up(self) -> None:
        """Watching failed (a sink for dead letters cannot be written): nothing may be left open."""
        self.abort()
        self.end_workers()
        self.end_checkpoints(False)
        self.ends.abort()
        self.letters.close(False)

    def watch(self, progress: bool | None, presses: Presses) -> Stopped | None:
        """Returns when the run is over: what stopped it, if anything did."""
        from plait.execution.progress import ProgressLine

        shown = sys.stderr.isatty() if progress is None else progress
        line = ProgressLine(sys.stderr)
        deadline = self.deadline()
        stopped: Stopped | None = None
        while not presses.wait(self.engine, TICK_S if deadline is None else 0.02):
            if self.breaks():
                self.abort()
                break
            self.collect_letters()
            if shown:
                line.update(
                    self.engine.records_read(), self.engine.records_delivered(), self.seconds()
                )
            late = deadline is not None and time.monotonic() >= deadline
            if presses.count or late:
                stopped = Interrupted if presses.count else TimedOut
                self.stop()
                if shown:
                    line.note("stopping after what was read; Ctrl-C again to end at once")
                self.watch_stopped(line if progress is not False else None, presses)
                break
        line.done()
        return Interrupted if stopped is None and presses.count else stopped

    def watch_stopped(self, line: ProgressLine | None, presses: Presses) -> None:
        """Returns when a stopped run is over. One that does not move says what it waits for, and is
        then ended at once, as it is by one more Ctrl-C."""
        presses_before = min(presses.count, 1)
        began = moved_at = time.monotonic()
        moved, said = self.progress_made(), False
        while not presses.wait(self.engine, 0.02):
            self.collect_letters()
            now = time.monotonic()
            if (made := self.progress_made()) != moved:
                moved, moved_at, said = made, now, False
            still_s = now - moved_at
            if presses.count > presses_before or now - began >= GRACE_S or still_s >= STILL_S:
                self.abort()
                return
            if line is not None and still_s >= SAY_S and not said:
                said = True
                what = describe_wait(self.parts, self.graph)
                line.note(f"stopping: waiting for {what}, for {still_s:.1f} s until now")

    def progress_made(self) -> tuple[int, int]:
        """Grows whenever a batch gets on."""
        return self.engine.load()[0], self.engine.records_delivered()

    def deadline(self) -> float | None:
        """When the timeout of the settings will have passed, on the monotonic clock."""
        timeout_s = self.settings.timeout_s
        return None if timeout_s is None else time.monotonic() + timeout_s

    def seconds(self) -> float:
        """How long the job has been running."""
        return time.perf_counter() - self.began

    def rates(self) -> dict[str, SourceRate]:
        """How fast records come in at each source and how far behind the job is, by its label.
        Sources that are read as fast as they are taken (files, tables) have no rate."""
        return self.measured.rates()

    def tasks(self) -> tuple[PartUse, ...]:
        """What each sub-pipeline of the job has used so far: processor time, records taken, records
        that wait, how long it was blocked. `cores` is on average since the start."""
        return average_cores(self.task_loads.uses(), self.seconds())

    def stop(self, *, finish: Finish | None = None) -> None:
        """Ends the sources; what was read is delivered. `wait` gives the result. `finish`: whether
        windows that are open are left out ("leave") or given as they are ("flush"); by default as
        the setting says. A run with checkpoints takes a last one and stops at its mark, windows
        stay open, and the next run goes on from there."""
        if self.saved is not None:
            self.saved.stop()
            return
        self.engine.stop((finish or self.settings.finish) == "flush")

    def abort(self) -> None:
        """Ends at once; what is in flight is dropped, a Python function is interrupted."""
        self.aborted = True
        self.engine.abort()
        self.engine.interrupt_python()

    def end_workers(self) -> str:
        """Waits until the workers have left; says so if a function holds one up for ever."""
        self.ended = True
        if self.elastic is not None:
            self.elastic.stop()
        if self.quality is not None:
            self.quality.stop()
        self.measured.stop()
        return "" if self.parts.end(grace_s=0.0 if self.aborted else GRACE_S) else LEFT_BEHIND

    def finish(self, stopped: Stopped | None, signal: int | None = None) -> Result:
        """Closes the sinks and gives the result, or raises what ended the run."""
        seconds = self.seconds()
        held_up = self.end_workers()
        if self.aborted and stopped is None and self.broken is None:
            stopped = Interrupted
        try:
            self.collect_letters()
        except BaseException:
            self.give_up()
            raise
        failure = None if self.aborted else self.engine.error()
        broken = self.parts.pools.broken if self.parts.pools is not None else None
        good = failure is None and stopped is None and self.broken is None
        unsaved = self.end_checkpoints(good)
        good = good and unsaved is None
        try:
            outputs = self.ends.close(good, self.parts)
        finally:
            self.letters.close(good)
        result = self.done = self.result(seconds, {**outputs, **self.counts_of_discarded()})
        if self.broken is not None:
            raise self.broken
        if unsaved is not None:
            raise unsaved
        if failure is not None and failure.kind is FailureKind.POOL and broken is not None:
            raise broken
        if failure is not None:
            raise error_of(failure, self.graph)
        if stopped is TimedOut:
            raise TimedOut(f"the timeout passed: {result.account}{held_up}", result)
        if stopped is not None:
            raise Interrupted(f"interrupted: {result.account}{held_up}", result, signal)
        if self.parts.closing_error is not None:
            raise self.parts.closing_error
        if result.account.difference and not self.ends.stops_early:
            raise InternalError(
                f"records were lost or doubled: {result.account}\n"
                f"  difference {result.account.difference}; please report this with the job"
            )
        return result

    def end_checkpoints(self, good: bool) -> BaseException | None:
        """Ends the taking of checkpoints; a run that came to its end takes a last one. Gives what
        went wrong with them."""
        if self.saved is None:
            return None
        try:
            self.saved.end(good=good)
        except Exception as error:
            return error
        finally:
            self.saved.close()
        return self.saved.failure

    def collect_letters(self) -> None:
        """Takes the new dead letters from the engine."""
        with self.letters_lock:
            self.letters.collect(self.engine.letters())

    def breaks(self) -> bool:
        """Whether too many records became dead letters by now."""
        if self.breaker is None:
            return False
        with self.letters_lock:
            self.letters.note(self.engine.letters())
            words = self.breaker.look(time.monotonic(), self.engine.records_read())
        self.broken = BreakerError(words) if words else None
        return self.broken is not None

    def result(self, seconds: float, outputs: Mapping[str, Any]) -> Result:
        """The result, from the counts of the engine and what the sinks gave."""
        counts = [self.counts_of(i) for i in range(len(self.graph.operators))]
        account, operators = tally(self.graph, counts, self.unfinished())
        p50, p99, p999, most = (ns / 1e6 for ns in self.engine.latency_ns([50.0, 99.0, 99.9]))
        sources = [op for op in self.graph.operators if isinstance(op, SourceOp)]
        return Result(
            job=self.graph.name,
            seconds=seconds,
            account=account,
            operators=operators,
            latency=Latency(p50_ms=p50, p99_ms=p99, p999_ms=p999, max_ms=most),
            outputs=outputs,
            stopped=stopped_sources(self.graph, self.engine),
            dead_letters=self.letters.kept(),
            cuts={op.label: tuple(self.engine.cuts(i)) for i, op in enumerate(sources)},
            stamps={
                op.label: stamps
                for i, op in enumerate(sources)
                if (stamps := tuple(self.engine.stamps(i)))
            },
            levels=tuple(self.elastic.levels) if self.elastic is not None else (),
            degrees=tuple(self.elastic.degrees) if self.elastic is not None else (),
            routes=self.routes(),
            keeps=keep_steps(self.graph, self.engine.keeps()),
            queries=self.queries(),
            decisions=self.why(),
            accuracy=() if self.quality is None else tuple(self.quality.points),
            rates=self.rates(),
            tasks=average_cores(self.task_loads.uses(), seconds),
            other_cpu_s=self.task_loads.cpu(self.task_loads.reports()).other_s,
        )

    def counts_of(self, op: int) -> Sequence[int]:
        """The counts of an operator, with those from before a checkpoint."""
        return self.engine.counts(op) if self.saved is None else self.saved.saver.total(op)

    def counts_of_discarded(self) -> dict[str, int]:
        """Of a run with checkpoints: the rows of sinks that only count them, since the start."""
        if self.saved is None:
            return {}
        sinks = [(i, op) for i, op in enumerate(self.graph.operators) if isinstance(op, SinkOp)]
        return {op.label: self.counts_of(i)[1] for i, op in sinks if type(op.sink) is Discard}

    def unfinished(self) -> dict[int, int]:
        """Results that were not complete when the run was stopped, by operator; at the end."""
        return {} if self.ends.stops_early else self.parts.unfinished(self.graph)

    def routes(self) -> dict[str, str]:
        """For each operator with Python functions in a pool: where they ran."""
        told = self.parts.pools.describe() if self.parts.pools is not None else {}
        return {str(self.graph.operators[op]): words for op, words in told.items()}

    def savepoint(self, name: str) -> int:
        """Takes a checkpoint with a name now, which is kept until it is deleted; gives its number.
        `plait.run(job, checkpoint=..., start="savepoint:name")` goes on from it."""
        if self.saved is None:
            raise StateError("savepoint: the job was started without checkpoint=")
        manifest = self.saved.take(name)
        if manifest is None:
            raise StateError("savepoint: the job ended before it could be taken")
        return manifest.number

    def shed(self, query: str, ratio: float | None) -> int:
        """Keeps at most this share of a query's input from the next epoch on, until it is called
        again; None: all of it. The query is named by its sink, which has a floor (`min_accuracy`).

        Returns:
            The epoch from which on it holds.
        """
        return self.keeping.bound(query, ratio)

    def why(self, query: str | None = None) -> tuple[QualityStep, ...]:
        """What was decided under overload and why, the last 1,000 times; of one query or of all.
        Print them one by one."""
        if query is not None and query not in (
            labels := [op.label for op in self.graph.operators if isinstance(op, SinkOp)]
        ):
            known = ", ".join(map(repr, labels))
            raise JobError(f'{self.graph.name} has no query "{query}"; its sinks are: {known}')
        steps = () if self.quality is None else tuple(self.quality.steps)
        return tuple(step for step in steps if query in (None, step.reason.query))

    def queries(self) -> tuple[QueryQuality, ...]:
        """Every query with a floor, or all if one has one: what it asks for and what it gets."""
        return quality_watch.qualities(self)

    def snapshot(self, timeout: float = 60.0) -> Snapshot:
        """The state of all bins and the positions of the sources at one epoch boundary. A run in
        order of time has read ahead of it: StateError."""
        if is_in_time(self.graph, self.settings.order):
            raise StateError(
                'snapshot: a run in order of time has read ahead; start it with order="total"'
            )
        item = self.control("snapshot", timeout)
        labels = [op.label for op in self.graph.operators if isinstance(op, SourceOp)]
        positions: dict[str, Any] = {}
        for label, (rows, handle, _) in zip(labels, item.positions(), strict=True):
            found = self.engine.raised[handle] if handle >= 0 else rows
            if isinstance(found, BaseException):
                raise StateError(f"source {label} cannot tell its position: {found!r}") from found
            positions[label] = found
        return Snapshot(
            job=self.graph.name,
            epoch=item.epoch,
            positions=positions,
            rows=tuple(rows for rows, _, _ in item.positions()),
            bins=tuple(sorted(item.bins())),
        )

    def take_bins(self, op: int, bins: Iterable[int], timeout: float = 60.0) -> dict[int, bytes]:
        """Takes bins of the operator `op` out, at one epoch boundary: their keys start anew."""
        wanted = self.known_bins(op, bins)
        item = self.control("take", timeout, op=op, bins=wanted)
        return {number: data for _, number, data in item.bins()}

    def put_bins(self, op: int, bins: Mapping[int, bytes], timeout: float = 60.0) -> None:
        """Puts bins into the operator `op`, at one epoch boundary; StateError if refused."""
        put = tuple((op, number, bins[number]) for number in self.known_bins(op, bins))
        self.control("put", timeout, put=put)

    def known_bins(self, op: int, bins: Iterable[int]) -> tuple[int, ...]:
        """The bins, if the operator has such ones."""
        if not keeps_state(self.graph, op):
            raise StateError(f"operator {op} keeps no state")
        wanted = tuple(dict.fromkeys(bins))
        most = (1 << self.settings.bin_bits) - 1
        for number in wanted:
            if not 0 <= number <= most:
                raise StateError(f"there is no bin {number}: bins go from 0 to {most}")
        return wanted

    def control(self, kind: str, timeout: float, **given: Any) -> Any:
        """Sends a control item along with the records and waits until it is through."""
        item = self.engine.control(kind, **given)
        if item is None or not self.engine.wait_control(item, timeout):
            if item is not None and not self.engine.wait(0.0):
                raise StateError(f"{kind}: the state was not reached within {timeout:g} s")
            raise StateError(f"{kind}: the job ended before its state could be reached")
        self.raise_refusal(f"{kind} at epoch {item.epoch}", item.errors())
        return item

    def raise_refusal(self, what: str, why: Sequence[str]) -> None:
        """Raises a StateError if there is a reason for it."""
        if why:
            raise StateError(f"{what}: {'; '.join(why)}")
