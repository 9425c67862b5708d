"""Laws of event time, on the plain loop alone: what must hold whatever the job and its records.

The engine is compared with the loop elsewhere; here the loop is compared with itself. Time goes on
with every record, so with one source nothing depends on where its epochs are cut.
"""

from __future__ import annotations

import datetime
import random
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import plait
from plait import col, lit
from plait.graph.operators import CallOp, EventTimeOp, SourceOp
from plait.testing import Capture, sequential
from plait.testing.oracle import Loop
from plait.testing.oracle.epochs import epochs
from plait.testing.random_jobs import timed_graphs
from plait.testing.tables import Rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.graph.operators import AnyOp, Graph
    from plait.streams.stream import Stream
    from plait.testing.oracle import OracleResult

EXAMPLES = 50
slow = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    max_examples=max(EXAMPLES, settings().max_examples),
)
seeds = st.integers(0, 2**32 - 1)
START = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
SCHEMA = {"k": int, "v": int, "side": int, "ts": plait.Timestamp, "until": plait.Timestamp}
Record = tuple[int, int, int, int, int]
"""Key, value, side, and two times in seconds."""


def sees_batches(graph: Graph) -> bool:
    """Whether a function of the job sees where epochs are cut."""
    return any(isinstance(op, CallOp) and op.mode == "batches" for op in graph.operators)


def cut_at_random(graph: Graph, seed: int) -> dict[str, list[int]]:
    """Epochs of any size, none too, for the sources of a graph."""
    chance = random.Random(seed)
    found: dict[str, list[int]] = {}
    for op in graph.operators:
        if isinstance(op, SourceOp):
            left = rows_of(op)
            found[op.label] = cuts = []
            while left:
                cuts.append(min(left, chance.choice((0, 1, 1, 2, 3, 7, 30))))
                left -= cuts[-1]
    return found


def rows_of(op: SourceOp) -> int:
    return sum(map(len, epochs(op, 4096, None, None, [])))


def told(result: OracleResult) -> dict[str, Any]:
    """All that a run gives, without where it was cut; text, for which NaN is NaN."""
    ends = {label: str(failure) for label, failure in result.ends.items()}
    return {
        "outputs": repr(result.outputs),
        "beyond": repr(result.beyond),
        "counts": repr(result.operators),
        "account": repr(result.account),
        "letters": repr(result.dead_letters),
        "failure": str(result.failure),
        "ends": repr(ends),
    }


@slow
@given(graph=timed_graphs(sources=(1,)), seed=seeds)
def test_with_one_source_cuts_do_not_matter(graph: Graph, seed: int) -> None:
    assume(not sees_batches(graph))
    whole = told(sequential(graph, epoch_records=4096))
    assert told(sequential(graph, epoch_records=1)) == whole
    assert told(sequential(graph, cuts=cut_at_random(graph, seed))) == whole


def named_behind_sources(graph: Graph) -> Graph:
    """The event times of sources named by an operator directly behind each, as those that are
    expressions are."""
    operators: list[AnyOp] = []
    number: dict[int, int] = {}
    for old, op in enumerate(graph.operators):
        number[old] = len(operators)
        inputs = tuple(number[i] for i in op.inputs)
        if not isinstance(op, SourceOp) or op.event_time is None:
            operators.append(replace(op, inputs=inputs))
            continue
        named = EventTimeOp(
            name="with_event_time",
            at=op.at,
            inputs=(len(operators),),
            schema=op.schema,
            time=col(op.event_time),
            out_of_order_us=op.out_of_order_us,
            max_jump_us=op.max_jump_us,
        )
        operators += [replace(op, event_time=None, computed_time=col(op.event_time)), named]
        number[old] += 1
    return replace(graph, operators=tuple(operators))


@slow
@given(graph=timed_graphs(), epoch_records=st.sampled_from([1, 3, 4096]))
def test_it_does_not_matter_who_names_the_time_of_a_source(
    graph: Graph, epoch_records: int
) -> None:
    one = told(sequential(graph, epoch_records=epoch_records))
    other = told(sequential(named_behind_sources(graph), epoch_records=epoch_records))
    for what in ("outputs", "beyond", "letters", "failure", "ends"):
        assert one[what] == other[what]


@slow
@given(graph=timed_graphs(), epoch_records=st.sampled_from([1, 3, 4096]))
def test_rows_at_a_sink_ascend_in_row_and_half(graph: Graph, epoch_records: int) -> None:
    loop = Loop(graph)
    sources = {
        i: list(epochs(op, epoch_records, None, None, []))
        for i, op in enumerate(graph.operators)
        if isinstance(op, SourceOp)
    }
    try:
        for epoch in range(max(map(len, sources.values())) + 1):
            for i, units in sources.items():
                before = {label: len(items) for label, items in loop.outputs.items()}
                over = epoch >= len(units)
                loop.unit(i, [] if over else units[epoch], over=over)
                for label, items in loop.outputs.items():
                    places = [position for position, _ in items[before[label] :]]
                    assert places == sorted(places)
    finally:
        loop.close()


@st.composite
def records(draw: Any, *, distinct: bool = False) -> list[Record]:
    """Records in the order of their times. `distinct`: no two of one time."""
    chance = random.Random(draw(seeds))
    size = draw(st.integers(1, 40))
    steps = (1, 1, 2, 3, 5, 10, 50) if distinct else (0, 0, 1, 1, 2, 3, 5, 10, 50)
    found: list[Record] = []
    now = 0
    for number in range(size):
        now += chance.choice(steps)
        until = now + chance.choice((0, 1, 4, 9))
        found.append((chance.randrange(3), number, chance.randrange(2), now, until))
    return found


def run(
    rows: list[Record], build: Callable[[Stream], Stream], *, late_s: int = 0, epoch: int = 4096
) -> OracleResult:
    """The job that `build` makes of a source with these records."""
    job = plait.Job("laws")
    times = [(*row[:3], *(START + datetime.timedelta(seconds=t) for t in row[3:])) for row in rows]
    source = job.source(Rows(SCHEMA, times), event_time="ts", out_of_order=f"{late_s}s")
    build(source).sink(Capture(), name="out")
    result = sequential(job.graph(), epoch_records=epoch)
    assert result.failure is None
    return result


def sides(stream: Stream) -> tuple[Stream, Stream]:
    right = stream.filter(col("side") == 1).select("k", at=col("ts"), w=col("v"))
    return stream.filter(col("side") == 0), right.with_event_time("at")


def joined(stream: Stream, **how: Any) -> Stream:
    left, right = sides(stream)
    made: Stream = left.join(right, on="k", **how)
    return made


def as_of(stream: Stream) -> Stream:
    left, right = sides(stream)
    return left.join_as_of(right, on="k", tolerance="9s")


def spanned(stream: Stream) -> Stream:
    left, right = sides(stream)
    return left.join(right, on="k", between=(col("ts"), col("until")), how="left").count()


def keyed(stream: Stream, verb: str, *args: Any, **more: Any) -> Stream:
    made: Stream = getattr(stream.key_by("k"), verb)(*args, **more).count()
    return made


JOBS: dict[str, Callable[[Stream], Stream]] = {
    "tumbling": lambda s: keyed(s, "tumbling", "10s"),
    "sliding": lambda s: keyed(s, "sliding", "10s", every="3s"),
    "session": lambda s: keyed(s, "session", gap="3s"),
    "between": lambda s: joined(s, between=("-4s", "2s")),
    "between before": lambda s: joined(s, between=("-9s", "-3s"), how="left"),
    "between after": lambda s: joined(s, between=("3s", "9s"), how="left"),
    "window join": lambda s: joined(s, window=plait.Tumbling("10s"), how="left"),
    "as of": as_of,
    "spans": spanned,
}
CHAINS: dict[str, Callable[[Stream], Stream]] = {
    **JOBS,
    "ttl join": lambda s: joined(s, ttl="5s", how="left"),
    "past spans": lambda s: spanned(s.with_columns(until=col("ts") - plait.seconds(3))),
    "top of windows": lambda s: keyed(s, "tumbling", "10s").by_window().top(1, by="count"),
    "three windows": lambda s: (
        keyed(s, "tumbling", "5s").tumbling("10s").count().tumbling("20s").count()
    ),
    "behind semi": lambda s: (
        joined(s, window=plait.Tumbling("10s"), how="semi").tumbling("3s").count()
    ),
    "behind left": lambda s: (
        joined(s, window=plait.Tumbling("10s"), how="left").tumbling("3s").count()
    ),
    "behind anti": lambda s: joined(s, between=("-2s", "7s"), how="anti").session(gap="2s").count(),
    "behind semi between": lambda s: (
        joined(s, between=("-2s", "7s"), how="semi").tumbling("3s").count()
    ),
    "behind semi ttl": lambda s: joined(s, ttl="5s", how="semi").tumbling("2s").count(),
    "behind as of": lambda s: as_of(s).tumbling("1s").count(),
    "behind spans": lambda s: spanned(s).tumbling("1s").count(),
}


@pytest.mark.parametrize("name", CHAINS)
@slow
@given(rows=records(), epoch=st.sampled_from([1, 7, 4096]))
def test_no_record_in_order_is_late(name: str, rows: list[Record], epoch: int) -> None:
    result = run(rows, CHAINS[name], epoch=epoch)
    assert result.account.late == 0


@pytest.mark.parametrize("name", JOBS)
@slow
@given(rows=records(distinct=True), late_s=st.sampled_from([1, 3, 20]), seed=seeds)
def test_a_shuffle_within_out_of_order_changes_no_result(
    name: str, rows: list[Record], late_s: int, seed: int
) -> None:
    chance = random.Random(seed)
    shuffled = sorted(rows, key=lambda row: row[3] + chance.uniform(0, late_s))
    one, other = (run(given, JOBS[name], late_s=late_s) for given in (rows, shuffled))
    assert (one.account.late, other.account.late) == (0, 0)
    assert Counter(one.beyond["out"]) == Counter(other.beyond["out"])


def beside(stream: Stream, results: Stream) -> Stream:
    """The results, each behind the record before that at whose mark it came."""
    said = results.select("k", "count", what=lit("result"))
    return plait.union(stream.select("k", count=col("v"), what=lit("record")), said)


@slow
@given(rows=records(), fail=st.booleans(), late_s=st.sampled_from([0, 3]), seed=seeds)
def test_records_that_are_left_out_move_time_all_the_same(
    rows: list[Record], fail: bool, late_s: int, seed: int
) -> None:
    random.Random(seed).shuffle(rows)

    def before(stream: Stream) -> Stream:
        if fail:
            kept = stream.filter(lambda r: 1 // (1 - r.side) > 0, on_error="skip")
        else:
            kept = stream.filter(col("side") == 0)
        return beside(stream, keyed(kept, "tumbling", "10s"))

    def behind(stream: Stream) -> Stream:
        counts = stream.key_by("k", "side").tumbling("10s").count()
        return beside(stream, counts.filter(col("side") == 0))

    one, other = (run(rows, build, late_s=late_s).beyond["out"] for build in (before, behind))
    assert one == other


@slow
@given(rows=records(), late_s=st.sampled_from([0, 3]), seed=seeds)
def test_what_is_filtered_before_the_time_is_named_moves_nothing(
    rows: list[Record], late_s: int, seed: int
) -> None:
    random.Random(seed).shuffle(rows)

    def named(stream: Stream) -> Stream:
        kept = stream.filter(col("side") == 0).with_event_time("ts", out_of_order=f"{late_s}s")
        return keyed(kept, "tumbling", "10s")

    left = [row for row in rows if row[2] == 0]
    alone = run(left, lambda s: keyed(s, "tumbling", "10s"), late_s=late_s)
    result = run(rows, named)
    assert result.beyond == alone.beyond
    assert result.account.late == alone.account.late


@slow
@given(rows=records(), seed=seeds)
def test_pieces_of_a_record_are_not_late_for_each_other(rows: list[Record], seed: int) -> None:
    chance = random.Random(seed)
    steps = {row[1]: [chance.randrange(20) for _ in range(3)] for row in rows}

    def cut(record: Any) -> Any:
        for step in steps[record.v]:
            yield replace(record, ts=record.ts + plait.seconds(step))

    def build(stream: Stream) -> Stream:
        pieces = stream.flat_map(cut, schema=stream.schema)
        return keyed(pieces.with_event_time("ts"), "tumbling", "1s")

    apart = [(*row[:3], 100 * row[1], 0) for row in rows]  # no record is late for another
    assert run(apart, build).account.late == 0


@slow
@given(rows=records(), early=st.booleans(), late_s=st.sampled_from([0, 3]), seed=seeds)
def test_a_result_is_never_late_for_its_own_window(
    rows: list[Record], early: bool, late_s: int, seed: int
) -> None:
    random.Random(seed).shuffle(rows)
    first: list[int] = []

    def build(stream: Stream) -> Stream:
        window = plait.Tumbling("10s")
        counts = stream.key_by("k").window(window, early="3s" if early else None).count()
        first.append(len(counts.job._operators))
        return counts.by_window().top(1, by="count")

    result = run(rows, build, late_s=late_s)
    assert sum(one.late for one in result.operators[first[0] :]) == 0
