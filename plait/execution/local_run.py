"""Runs a job in this process, on every core: opens its ends, starts the engine and watches it.

`run` waits for the end; `start` gives a handle on the running job that can take a snapshot of its
state, move bins out and in, and stop it. Ctrl-C, SIGTERM and SIGHUP stop the sources and deliver
what was read; a second one ends at once. So does the first, after a while, if a function of the job
does not come to its end: what was delivered by then is kept.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from plait.connectors.base import checked_sink
from plait.errors import InternalError, Interrupted, JobError, StateError, TimedOut
from plait.execution.signals import Presses
from plait.execution.waiting import describe_wait
from plait.graph.operators import Graph, SourceOp
from plait.graph.snapshot import Snapshot, check_snapshot, keeps_state
from plait.graph.source_order import is_in_time
from plait.graph.stages import has_loop, make_pipeline
from plait.model.durations import Duration, to_seconds
from plait.model.settings import Settings, unknown_setting
from plait.node_runtime.assembly.build import build
from plait.node_runtime.elastic.watch import ElasticWatch, start_watch
from plait.node_runtime.host.endpoints import Ends, open_ends
from plait.results.engine_failures import FailureKind
from plait.results.failures import Letters, error_of
from plait.results.outcomes import stopped_sources, tally
from plait.results.result import Latency, Result

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from plait.connectors.base import Sink
    from plait.execution.progress import ProgressLine
    from plait.protocol.messages import Finish

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
        settings: any other field of `plait.Settings`.
    """
    timeout_s = None if timeout is None else to_seconds(timeout)
    given: dict[str, Any] = {"workers": workers, "limit": limit, "timeout_s": timeout_s}
    chosen = {name: value for name, value in given.items() if value is not None}
    with Presses() as presses:
        running = start(job, dead_letters=dead_letters, **chosen, **settings)
        return running.watch_to_end(progress, presses)


def start(
    job: Any,
    *,
    state: Snapshot | None = None,
    dead_letters: Sink | None = None,
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
        settings: fields of `plait.Settings`, such as `workers=4`.
    """
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
    if state is not None and is_in_time(graph, chosen.order):
        raise JobError(
            "a snapshot does not say how far the order of time is; go on from it with"
            ' order="total", as in the run it is of'
        )
    return LocalRun(graph, chosen, state)


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

    def __init__(self, graph: Graph, settings: Settings, state: Snapshot | None) -> None:
        LocalRun.started += 1
        self.graph = graph
        self.settings = settings
        self.pipeline = make_pipeline(graph, settings.fuse)
        positions = check_snapshot(state, graph).positions if state else {}
        self.from_rows = positions
        self.aborted = False
        self.done: Result | None = None
        self.elastic: ElasticWatch | None = None
        self.ends: Ends = open_ends(graph, positions)
        with ExitStack() as undo:
            undo.callback(self.ends.abort)
            self.letters = Letters(graph)
            undo.callback(self.letters.close, False)
            self.parts = build(self.pipeline, settings, self.ends.sources, self.ends.sinks)
            undo.callback(self.parts.stop_helpers)
            undo.callback(self.parts.close)
            self.engine = self.parts.engine
            self.began = time.perf_counter()
            if state:
                self.raise_refusal("the snapshot", self.engine.put_now(state.bins))
            self.parts.start()
            self.ended = False
            self.elastic = start_watch(self.engine, settings)
            undo.pop_all()

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

    def stop(self, *, finish: Finish | None = None) -> None:
        """Ends the sources; what was read is delivered. `wait` gives the result. `finish`: whether
        windows that are open are left out ("leave") or given as they are ("flush"); by default as
        the setting says."""
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
        return "" if self.parts.end(grace_s=0.0 if self.aborted else GRACE_S) else LEFT_BEHIND

    def finish(self, stopped: Stopped | None, signal: int | None = None) -> Result:
        """Closes the sinks and gives the result, or raises what ended the run."""
        seconds = self.seconds()
        held_up = self.end_workers()
        if self.aborted and stopped is None:
            stopped = Interrupted
        try:
            self.collect_letters()
        except BaseException:
            self.give_up()
            raise
        failure = None if self.aborted else self.engine.error()
        broken = self.parts.pools.broken if self.parts.pools is not None else None
        good = failure is None and stopped is None
        try:
            outputs = self.ends.close(good, self.parts)
        finally:
            self.letters.close(good)
        result = self.done = self.result(seconds, outputs)
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

    def collect_letters(self) -> None:
        """Takes the new dead letters from the engine."""
        self.letters.add(self.engine.letters())

    def result(self, seconds: float, outputs: Mapping[str, Any]) -> Result:
        """The result, from the counts of the engine and what the sinks gave."""
        counts = [self.engine.counts(i) for i in range(len(self.graph.operators))]
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
        )

    def unfinished(self) -> dict[int, int]:
        """Results that were not complete when the run was stopped, by operator; at the end."""
        return {} if self.ends.stops_early else self.parts.unfinished(self.graph)

    def routes(self) -> dict[str, str]:
        """For each operator with Python functions in a pool: where they ran."""
        told = self.parts.pools.describe() if self.parts.pools is not None else {}
        return {str(self.graph.operators[op]): words for op, words in told.items()}

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
        for label, (rows, handle) in zip(labels, item.positions(), strict=True):
            # The engine counts rows from where this run began.
            start = self.from_rows.get(label) or 0 if handle < 0 else None
            found = self.engine.raised[handle] if start is None else start + rows
            if isinstance(found, BaseException):
                raise StateError(f"source {label} cannot tell its position: {found!r}") from found
            positions[label] = found
        return Snapshot(
            job=self.graph.name,
            epoch=item.epoch,
            positions=positions,
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
