"""What a run gives back: counts per operator, rates, latencies, the outputs of the sinks, and the
conservation law.

`Account` is the law: every record that was read, copied by a fan-out or made by an operator is
delivered, filtered, skipped, dead-lettered, shed, late, or absorbed by an event-time
operator (a window, a join: what it gives is made). It holds for each operator too. A difference is
a bug in plait.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from plait.protocol.keeps import ratio_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.protocol.part_use import PartUse
    from plait.protocol.quality import QualityPoint, QualityStep, QueryQuality
    from plait.protocol.rates import SourceRate


ACCOUNT = (
    "read",
    "made",
    "copied",
    "delivered",
    "filtered",
    "skipped",
    "dead_lettered",
    "shed",
    "late",
    "absorbed",
)
"""The terms of an account: what came in, then where it went."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Where all records went."""

    read: int = 0
    made: int = 0
    """Rows a flat_map (or batch function) returned beyond one for each record, and all rows of
    event-time operators."""
    copied: int = 0
    """Rows a fan-out handed on beyond the first branch."""
    delivered: int = 0
    filtered: int = 0
    skipped: int = 0
    dead_lettered: int = 0
    shed: int = 0
    late: int = 0
    """Records that came after all windows they belong to had ended."""
    absorbed: int = 0
    """Records that event-time operators took and that were not late."""
    unfinished: int = 0
    """Results that event-time operators had not given yet when the run was stopped: open windows
    and sessions, timers, records that waited for a partner. No part of the sum; 0 after a run that
    came to its end."""

    @property
    def difference(self) -> int:
        """Records that are not accounted for: 0, or plait has a bug."""
        went = (
            self.delivered
            + self.filtered
            + self.skipped
            + self.dead_lettered
            + self.shed
            + self.late
            + self.absorbed
        )
        return self.read + self.made + self.copied - went

    def __str__(self) -> str:
        parts = [f"{self.read:,} read"]
        for name in (*ACCOUNT[1:], "unfinished"):
            value = getattr(self, name)
            if value or name == "delivered":
                parts.append(f"{value:,} {name.replace('_', '-')}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCounts:
    """What one operator saw. `made` may be counted where one record gave several; an event-time
    operator absorbs what is not late, and makes all that it gives."""

    number: int
    """Of the operator, in the order in which the job was built."""
    name: str
    at: str
    records_in: int = 0
    records_out: int = 0
    filtered: int = 0
    skipped: int = 0
    dead_lettered: int = 0
    made: int = 0
    late: int = 0
    absorbed: int = 0
    shed: int = 0
    unfinished: int = 0
    """Results that it had not given yet when the run was stopped; no part of the sum."""

    @property
    def difference(self) -> int:
        """What came in or was made here and neither went on nor is accounted for."""
        went = (
            self.records_out
            + self.filtered
            + self.skipped
            + self.dead_lettered
            + self.late
            + self.absorbed
            + self.shed
        )
        return self.records_in + self.made - went


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLine:
    """A line of a file that could not be read: the record of its dead letter.

    >>> import pathlib, plait
    >>> _ = pathlib.Path("bad.jsonl").write_text('{"n": 1}\\n{"n": \\n{"n": 3}\\n')
    >>> result = plait.stream("bad.jsonl", on_error="dead_letter").sink(plait.Discard()).run()
    >>> result.dead_letters[0].record
    BadLine(file='bad.jsonl', line=2, text='{"n": ')
    """

    file: str
    line: int
    """Its number in the file, from 1; that of the first line if a quoted field spans several."""
    text: str
    """As it is in the file, without the line end. Bytes that are not text are written \\xff."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record that an operator, or a source, with on_error="dead_letter" could not take."""

    operator: str
    at: str
    source: str
    row: int
    """The number of the record in its source, from 1, as in error messages."""
    error: str
    record: Any
    """As the operator got it. Of a source: a `BadLine`, or the record that its reader gave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """From the time a record was due at its source to its arrival at a sink, in milliseconds."""

    p50_ms: float = 0.0
    p99_ms: float = 0.0
    p999_ms: float = 0.0
    max_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelStep:
    """One period of a run with workers="elastic"."""

    at_s: float
    """The end of the period, since the start."""
    level: int
    """Workers in it."""
    records_per_s: float
    """Of all stages together."""
    next_level: int
    reason: str
    node: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DegreeStep:
    """A stage got another degree of parallelism, with stage_parallelism="elastic"."""

    at_s: float
    stage: str
    degree: int
    """The most workers that may be in it from here on."""
    records_per_s: float
    """Of all stages together, before."""
    reason: str
    node: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepStep:
    """From this epoch on a query keeps its records whose hash is below the threshold."""

    epoch: int
    query: str
    """The label of its sink."""
    threshold: int
    """As `plait.shedding.plan` has it."""

    @property
    def ratio(self) -> float:
        """The share of its input that is kept."""
        return ratio_of(self.threshold)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome of a run: what `plait.run`, `Job.run` and `JobHandle.result` return.

    >>> import plait
    >>> result = plait.stream([{"n": 1}, {"n": 2}]).sink(plait.Collect(), "rows").run()
    >>> result.outputs["rows"].num_rows
    2
    >>> result
    Result of job "job": 2 read, 2 delivered, in ...
      rows: 2 rows
    """

    job: str
    """The name of the job."""
    seconds: float
    """How long the run took."""
    account: Account
    """Where all records went."""
    operators: tuple[OperatorCounts, ...]
    """What each operator saw."""
    latency: Latency
    """From the time a record was due at its source to its arrival at a sink."""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """What each sink returned when it was closed, by its label."""
    stopped: tuple[str, ...] = ()
    """The labels of the sources that were stopped before their end."""
    without: tuple[str, ...] = ()
    """Nodes whose process ended in the moment of leaving the job: `outputs` are whole, and what
    these nodes did is missing in `account`, `operators` and `dead_letters`."""
    dead_letters: tuple[DeadLetter, ...] = ()
    """The first 10,000, in order; `dead_letters_left_out` counts the others."""
    cuts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The rows of each epoch (of the first million) of each source, by its label: with them the
    sequential run repeats this one exactly."""
    stamps: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """When each of these was cut (microseconds since 1970), in a job with timers or windows by the
    wall clock."""
    levels: tuple[LevelStep, ...] = ()
    """With workers="elastic": every period (of the last 10,000), with its throughput and why the
    next one had as many workers as it had."""
    degrees: tuple[DegreeStep, ...] = ()
    """With stage_parallelism="elastic": every change of a stage's degree (of the last 10,000)."""
    routes: Mapping[str, str] = field(default_factory=dict)
    """Of each plain Python function that could use worker processes, by operator and line: whether
    it did, and what it had cost before. Of a run in one process."""

    keeps: tuple[KeepStep, ...] = ()
    """Every change of what is kept of the queries with a floor. With `cuts` it says which records
    were shed: the same run can be repeated."""

    queries: tuple[QueryQuality, ...] = ()
    """Of a job with a floor: what each query asked for, and the accuracy it got."""
    decisions: tuple[QualityStep, ...] = ()
    """What was decided under overload, and why: the last 1,000 times."""
    accuracy: tuple[QualityPoint, ...] = ()
    """The accuracy of each query over time: the last 10,000 looks, on a cluster 600 of each."""

    rates: Mapping[str, SourceRate] = field(default_factory=dict)
    """Of each source that records come in at by themselves (Kafka, Spark, a rate), by its label:
    how fast they did at the end, and how far behind the job was."""

    tasks: tuple[PartUse, ...] = ()
    """What each sub-pipeline used: processor time, records, how long it was blocked. Print it with
    `result.cpu_table()`."""
    other_cpu_s: float = 0.0
    """Processor time of the run's processes that is in none of them."""

    def cpu_table(self) -> str:
        """What each sub-pipeline used, as a table."""
        from plait.text.part_table import parts_text

        other = self.other_cpu_s / self.seconds if self.seconds else 0.0
        return parts_text(self.tasks, other, self.other_cpu_s)

    def __repr__(self) -> str:
        """One line, and one for each sink."""
        from plait.text.units import plural, seconds_text

        lines = [f'Result of job "{self.job}": {self.account}, in {seconds_text(self.seconds)}']
        for label, output in self.outputs.items():
            rows = getattr(output, "num_rows", None)
            lines.append(f"  {label}: {repr(output)[:70] if rows is None else plural(rows, 'row')}")
        if self.without:
            lines.append(f"  without the counts of {', '.join(self.without)}, lost on leaving")
        return "\n".join(lines)

    @property
    def unfinished(self) -> int:
        """Results that were not complete when the run was stopped, and are left out; `operators`
        says of which operators."""
        return self.account.unfinished

    @property
    def dead_letters_left_out(self) -> int:
        """How many dead letters are not in `dead_letters`, which keeps the first 10,000. All of
        them go to the sink for dead letters of the job, if it has one."""
        return self.account.dead_lettered - len(self.dead_letters)

    @property
    def records_per_s(self) -> float:
        """Records read per second of the run."""
        return self.account.read / self.seconds if self.seconds else 0.0
