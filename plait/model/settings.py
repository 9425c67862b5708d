"""Settings of a run: frozen, units in the names, checked when made. Every default is safe."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Literal, get_args

from plait.errors import JobError
from plait.model.breaker import parse_breaker
from plait.model.schedulers import AnyScheduler, NativeScheduler, Scheduler
from plait.protocol.messages import Finish

if TYPE_CHECKING:
    from collections.abc import Iterable

SchedulerName = Literal[
    "ct",
    "et",
    "lp",
    "qst",
    "lru",
    "random",
    "max_queue",
    "min_latency",
    "least_recent",
    "max_running",
]
Threading = Literal["dynamic", "dedicated", "manual"]
Queue = Literal["lanes", "hybrid", "partitioned", "shared"]
Reorder = Literal["nonblocking", "locked"]
Order = Literal["time", "total", "key", "none"]
ElasticRule = Literal["trend", "utilisation"]
Quality = Literal["auto", "off"]

SCHEDULERS: tuple[SchedulerName, ...] = get_args(SchedulerName)
THREADINGS: tuple[Threading, ...] = get_args(Threading)
MAX_WORKERS = 64


def usable_cores() -> int:
    """The number of cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a job is run. Apart from `order`, `limit`, `timeout_s` and `finish`, no field changes the
    result.

    Each field can be given to `plait.run`, `plait.start` and `plait.submit` by name, and to the
    command line as `--set NAME=VALUE`. Wrong values are a JobError when the object is made. The
    last three fields are for experiments.

    >>> Settings(workers=2, order="key").epoch_records
    4096
    >>> Settings(order="random")
    Traceback (most recent call last):
        ...
    plait.errors.JobError: order is 'random'; it must be one of "time", "total", "key", "none"
    """

    workers: int | Literal["elastic"] = field(default_factory=usable_cores)
    """Threads of the dynamic model (default: one per core). "elastic": between min_workers and
    max_workers, as many as give the best throughput, found while the job runs."""
    threading: Threading = "dynamic"
    """Which thread runs a stage. dynamic: any worker, sent by the scheduler. dedicated: each stage
    has its own thread. manual: one thread runs all stages in pipeline order, a batch at a time.
    `plait.region` chooses another model for a part of a job."""
    scheduler: SchedulerName | AnyScheduler = "ct"
    """Which stage a worker turns to next.

    ct: the lowest throughput, normalised, in the last 10 ms. et: the most work waiting. lp: the
    last in the pipeline. qst: the first whose output queue is short. lru: the least recently
    served, from a lock-free list; the only one whose cost does not grow with the number of stages:
    choose it from some 50 stages on. random: any. max_queue: sources, then the longest worklist.
    min_latency: the oldest record in front. least_recent: the least recently run. max_running: the
    one that can run longest before it is empty or held up. Or your own: an object of a
    `plait.Scheduler` or a `plait.NativeScheduler`."""
    fuse: bool = True
    """Whether operators that follow each other share a stage where they can. Without it each is its
    own stage, with a worklist in front: to measure, and for very costly operators."""
    min_workers: int = 1
    """With workers="elastic": the fewest workers."""
    max_workers: int | None = None
    """With workers="elastic": the most workers; None: the cores this process may run on."""
    elastic_rule: ElasticRule = "trend"
    """With workers="elastic": decide by the trend of the throughput ("trend"), or by how busy the
    workers are ("utilisation")."""
    elastic_period_ms: int = 250
    """How often elastic workers and stages are measured and decided again."""
    stage_parallelism: int | Literal["free", "elastic"] = "free"
    """How many workers may be in a stage at a time. free: any number. elastic: one at first, and
    one more for the stage that holds up the others, as long as that helps. Or a number."""
    order: Order | None = None
    """The order of the output: that of a sequential run, which reads the sources in turn.

    time: in turn for each slice of event time, so that the order depends on nothing but the
    records; all sources must have an end and an event time. total: in turn for each epoch. None:
    time for jobs with several sources where it can be, otherwise total. key: on several nodes every
    node has its own sinks, with the records of a key in the order of None (on one node all are).
    none: state is updated in that order, outputs leave when they are ready; on one node only."""
    epoch_records: int = 4096
    """The most records a source puts into one epoch: one batch. Live sources cut smaller ones when
    idle."""
    bin_bits: int = 10
    """A keyed operator's state has 2 ** bin_bits bins, which is what moves between nodes."""
    lanes: int | None = None
    """How many parts of the key space run side by side, a power of two; None: as many as workers,
    rounded up."""
    slice_us: int = 200
    """How long a worker stays with a stage before it asks the scheduler again. A batch is never
    left in the middle: the stage is left at the end of the batch in which the time passes, so
    `epoch_records` bounds how far a slice can be exceeded."""
    queue_records: int = 1 << 17
    """A stage's worklist takes no more batches above this many records, which holds back the
    source."""
    queue_bytes: int = 64 << 20
    """The same limit in bytes."""
    queue_batches: int = 32
    """The most batches a stage holds, waiting or in work; a power of two."""
    pool: int | None = None
    """Worker processes for plain Python functions. None: as many as workers, for functions that
    have been measured to cost enough. 0: none. A number: that many, from the first record on."""
    pool_hang_s: float = 300.0
    """A worker process that has not finished a record (of map_batches: a batch) after this many
    seconds is killed, and its batch is tried again."""
    pool_replay_bytes: int = 1 << 25
    """Records that are kept for each worker process and operator with keyed state, to be done again
    if the process dies; when they are more (and more than twice the state), the state is copied."""
    limit: int | None = None
    """Stop after this many records of each source; None: read all."""
    timeout_s: float | None = None
    """Stop the run after this many seconds with TimedOut; `plait.run` takes it as `timeout=`."""
    breaker: str | None = None
    """Stop the job when more than a share of its records become dead letters: "1% of 10s" is 1 in
    100 of those read in the last 10 seconds, and never judged by fewer than 1,000. None: never."""
    quality: Quality = "auto"
    """What happens under overload to queries with a floor (`sink(..., min_accuracy=)`). auto: input
    is shed by priority, as little as possible. off: only by hand."""
    quality_period_ms: int = 1000
    """How often that is decided anew."""
    finish: Finish = "leave"
    """What becomes of windows, sessions, timers and waiting records that are not complete when a
    run is stopped before its sources end. "leave": nothing is given for them, and
    `Account.unfinished` counts them. "flush": they are given as they are. Sources that end by
    themselves complete everything."""

    # For experiments: to compare with published designs and to repeat their random choices.
    queue: Queue = "lanes"
    """For experiments: how a keyed stage shares out its work. "lanes" is plait's design; hybrid,
    partitioned and shared are the published structures it was measured against."""
    reorder: Reorder = "nonblocking"
    """For experiments: the buffer that puts outputs back in order. "nonblocking" is plait's design;
    "locked" is the baseline with a lock."""
    scheduler_seed: int = 0
    """For experiments: seed of the `random` and `max_queue` schedulers."""

    def __post_init__(self) -> None:
        check_workers(self)
        if self.stage_parallelism not in ("free", "elastic"):
            check(
                'stage_parallelism (or "free", "elastic")', self.stage_parallelism, 1, MAX_WORKERS
            )
        check("elastic_period_ms", self.elastic_period_ms, 1, 3_600_000)
        check("quality_period_ms", self.quality_period_ms, 10, 3_600_000)
        check("epoch_records", self.epoch_records, 1, 1 << 20)
        check("bin_bits", self.bin_bits, 0, 20)
        check("slice_us", self.slice_us, 1, 1_000_000)
        check("queue_records", self.queue_records, 1, 1 << 40)
        check("queue_bytes", self.queue_bytes, 1, 1 << 50)
        check("queue_batches", self.queue_batches, 2, 1 << 16)
        if self.queue_batches & (self.queue_batches - 1):
            raise JobError(f"queue_batches is {self.queue_batches}; it must be a power of two")
        if self.lanes is not None:
            check("lanes", self.lanes, 1, 256)
            if self.lanes & (self.lanes - 1):
                raise JobError(f"lanes is {self.lanes}; it must be a power of two")
        if self.pool is not None:
            check("pool", self.pool, 0, MAX_WORKERS)
        if not self.pool_hang_s > 0:
            raise JobError(f"pool_hang_s is {self.pool_hang_s}; it must be above 0 seconds")
        check("pool_replay_bytes", self.pool_replay_bytes, 1, 1 << 40)
        if self.limit is not None:
            check("limit", self.limit, 0, 1 << 62)
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise JobError(f"timeout is {self.timeout_s}; it must be above 0 seconds")
        if self.breaker is not None:
            parse_breaker(self.breaker)
        check("scheduler_seed", self.scheduler_seed, 0, (1 << 64) - 1)
        if not isinstance(self.fuse, bool):
            raise JobError(f"fuse is {self.fuse!r}; it must be True or False")
        if isinstance(self.scheduler, type) and issubclass(self.scheduler, Scheduler):
            made = self.scheduler.__name__
            raise JobError(f"scheduler is the class {made}; give an object of it: {made}()")
        choices = (
            ("scheduler", SchedulerName),
            ("threading", Threading),
            ("queue", Queue),
            ("reorder", Reorder),
            ("order", Order),
            ("elastic_rule", ElasticRule),
            ("finish", Finish),
            ("quality", Quality),
        )
        for name, allowed in choices:
            given = getattr(self, name)
            if isinstance(given, Scheduler | NativeScheduler) and name == "scheduler":
                continue
            if given is None and name == "order":
                continue
            if given not in get_args(allowed):
                words = ", ".join(f'"{word}"' for word in get_args(allowed))
                raise JobError(f"{name} is {given!r}; it must be one of {words}")

    @property
    def threads(self) -> int:
        """The number of worker threads that are started; elastic ones may be suspended."""
        if self.workers != "elastic":
            return self.workers
        return (
            max(usable_cores(), self.min_workers) if self.max_workers is None else self.max_workers
        )


def check_workers(settings: Settings) -> None:
    if settings.workers != "elastic":
        if isinstance(settings.workers, str):
            raise JobError(f'workers is {settings.workers!r}; it must be a number or "elastic"')
        check("workers", settings.workers, 1, MAX_WORKERS)
        if settings.min_workers != 1 or settings.max_workers is not None:
            raise JobError('min_workers and max_workers need workers="elastic"')
        return
    if settings.threading != "dynamic":
        raise JobError('workers="elastic" needs threading="dynamic"')
    check("min_workers", settings.min_workers, 1, MAX_WORKERS)
    if settings.max_workers is not None:
        check("max_workers", settings.max_workers, settings.min_workers, MAX_WORKERS)


def check(name: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise JobError(f"{name} is {value!r}; it must be a whole number from {least} to {most}")


def unknown_setting(given: Iterable[str]) -> str:
    """For names among which one is not a setting: which one, and what may have been meant.

    >>> unknown_setting(["limit", "worker"])
    'there is no setting "worker"; did you mean "workers"?'
    """
    known = [field.name for field in fields(Settings)]
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f'did you mean "{close[0]}"?' if close else f"there are: {', '.join(known)}"
            return f'there is no setting "{name}"; {hint}'
    return ""
