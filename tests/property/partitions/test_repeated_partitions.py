"""Crashes of jobs that repeat epochs of a live topic: whatever order its partitions come in, each
record is in the output once.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import random
import re
import tempfile
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import plait
from plait.connectors.kafka.part_times import PartTimes
from plait.connectors.kafka.reader import KafkaReader
from tests.property.checkpoints.crashing import MEMORY, Attempt, attempts, world_of
from tests.property.partitions.memory_topic import Ending, MemoryTopic

if TYPE_CHECKING:
    from plait.testing.crashes import Durable
    from tests.property.checkpoints.crashing import World

COLUMNS = {"p": int, "n": int, "k": int, "at": plait.Timestamp}
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
FOLDER = MEMORY if os.path.isdir(MEMORY) else None
MOST = 25
PARTITIONS = st.lists(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), max_size=MOST), min_size=2, max_size=4
)
"""Of each partition: the key of each record, and the seconds since the last one."""
few = settings(max_examples=max(5, settings().max_examples // 2), deadline=None)


def topic_of(partitions: list[list[tuple[int, int]]], chance: random.Random) -> MemoryTopic:
    values = []
    for p, given_rows in enumerate(partitions):
        at, rows = 0, []
        for n, (k, step) in enumerate(given_rows):
            at += step
            row = {"p": p, "n": n, "k": k, "at": (START + plait.seconds(at)).isoformat()}
            rows.append(json.dumps(row).encode())
        values.append(rows)
    return MemoryTopic(values, chance)


def source_of(topic: MemoryTopic) -> Ending:
    return Ending(plait.Kafka("t", schema=COLUMNS), topic.count)


def rows_of(sink: Durable) -> list[dict[str, Any]]:
    return [row for batch in sink.batches for row in batch.to_pylist()]


def live_on(world: World, plan: list[Attempt]) -> None:
    try:
        for attempt in (*plan, Attempt(settings=plan[-1].settings)):
            if world.live(attempt) is not None:
                break
        else:
            raise AssertionError("it never came to its end")
    except BaseException as error:
        error.add_note("\n".join(world.story))
        raise


def whole(topic: MemoryTopic) -> list[list[int]]:
    return [list(range(len(records))) for records in topic.records]


def numbers_in(sink: Durable, topic: MemoryTopic) -> list[list[int]]:
    rows = rows_of(sink)
    return [[row["n"] for row in rows if row["p"] == p] for p in range(len(topic.records))]


@few
@given(
    partitions=PARTITIONS,
    chance=st.randoms(use_true_random=True),
    plan=attempts(),
    commits=st.sampled_from([(True, True), (True, False), (False, False)]),
)
def test_each_record_is_there_once_in_the_order_of_its_partition(
    partitions: list[list[tuple[int, int]]], chance: Any, plan: list[Attempt], commits: Any
) -> None:
    topic = topic_of(partitions, chance)
    job = plait.Job("parts")
    rows = job.source(source_of(topic), "in")
    rows.sink(plait.Collect(), "plain")
    rows.key_by("k").aggregate(n=plait.last("n"), p=plait.last("p"), count=plait.count()).sink(
        plait.Collect(), "counted"
    )
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder, topic.in_place_of_brokers():
        world = world_of(job.graph(), folder, 2, commits)
        live_on(world, plan)
    for sink in world.sinks.values():
        assert numbers_in(sink, topic) == whole(topic), "\n".join(world.story)
    counts: Counter[int] = Counter()
    for row in rows_of(world.sinks["counted"]):
        counts[row["k"]] += 1
        assert row["count"] == counts[row["k"]]


@few
@given(
    partitions=PARTITIONS,
    chance=st.randoms(use_true_random=True),
    plan=attempts(),
    commits=st.booleans(),
)
def test_each_window_is_there_once(
    partitions: list[list[tuple[int, int]]], chance: Any, plan: list[Attempt], commits: bool
) -> None:
    topic = topic_of(partitions, chance)
    job = plait.Job("windows")
    rows = job.source(source_of(topic), "in", event_time="at", idle="1h")
    windows = rows.key_by("k").tumbling("10s")
    windows.aggregate(n=plait.count()).sink(plait.Collect(), "out")
    rows.sink(plait.Collect(), "plain")
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder, topic.in_place_of_brokers():
        world = world_of(job.graph(), folder, 2, (commits, True))
        live_on(world, plan)
    right: Counter[tuple[int, int]] = Counter()
    for given_rows in partitions:
        at = 0
        for k, step in given_rows:
            at += step
            right[k, at // 10 * 10] += 1
    found = [
        ((row["k"], (row["window_start"] - START).seconds), row["n"])
        for row in rows_of(world.sinks["out"])
    ]
    assert sorted(found) == sorted(right.items())


@few
@given(
    partitions=PARTITIONS,
    chance=st.randoms(use_true_random=True),
    polls=st.lists(st.integers(1, 9), min_size=1, max_size=30),
    kept=st.integers(0, 30),
    grows_at=st.integers(0, 30),
)
def test_rows_and_their_time_come_again(
    partitions: list[list[tuple[int, int]]],
    chance: Any,
    polls: list[int],
    kept: int,
    grows_at: int,
) -> None:
    repeat_rows(partitions, chance, polls, kept, grows_at)


def repeat_rows(
    partitions: list[list[tuple[int, int]]],
    chance: Any,
    polls: list[int],
    kept: int,
    grows_at: int,
) -> None:
    """Partitions are idle for a while, a new one comes; the reader is opened again at its position
    after poll `kept`."""
    topic = topic_of(partitions, chance)
    late_partition = topic.records.pop()
    source = plait.Kafka("t", schema=COLUMNS).by_partition("at", 1 << 60, 1000)
    assert source is not None
    with topic.in_place_of_brokers():
        reader: Any = source.open_reader(None)
        log = reader.log_choices([])
        assert log is not None
        now_s = 0.0
        reader.clock = lambda: now_s
        position, first, given_rows = reader.position(), 0, []
        for number, most in enumerate(polls):
            now_s += chance.choice([0.0001, 0.01])
            if number == grows_at:
                topic.records.append(late_partition)
            if chance.random() < 0.5:
                everything = list(range(len(topic.records)))
                reader.take_look(reader.consumer.bounds(everything))
            answer = reader.poll(most)
            if not isinstance(answer, plait.Wait):
                given_rows.append(answer.to_pylist())
            if number == kept:
                position, first, given_rows = reader.position(), len(log.between(0, 99)), []
        reader.close()
        choices = log.between(first, 99)
        assert len(choices) == len(given_rows)
        reopened: Any = source.open_reader(position)
        with closing(reopened) as again:
            log = again.log_choices(choices)
            assert log is not None
            for rows in given_rows:
                while isinstance(answer := again.poll(len(rows)), plait.Wait):
                    pass
                assert answer.to_pylist() == rows
            assert log.between(0, 99) == choices
            left = topic.count - sum(again.next.values())
            while left > 0:  # it is live, and gives the rest
                if not isinstance(answer := again.poll(5), plait.Wait):
                    left -= answer.num_rows
            assert left == 0


EQUAL = [[(0, 1)] * 40, [(1, 1)] * 40]


def crash_at_each_event(chance: random.Random) -> list[bool]:
    """First partition 0 comes alone, then, after a crash between a commit and the next checkpoint,
    partition 1: of each such crash, whether all records are there once."""
    found = []
    for crash_at in range(30):
        topic = topic_of(EQUAL, chance)
        job = plait.Job("order")
        job.source(source_of(topic), "in").sink(plait.Collect(), "out")
        once = {"epoch_records": 5, "workers": 1}
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder, topic.in_place_of_brokers():
            world = world_of(job.graph(), folder, 1, (True,))
            topic.order = (0, 1)
            crashing = Attempt(settings=once, gates=(20, 21), ticks=1, crash_at=crash_at)
            if world.live(crashing) is not None:
                break
            topic.order = (1, 0)
            live_on(world, [Attempt(settings=once)])
            if any(int(until) > int(epoch) for epoch, until in REPEATS.findall(str(world.story))):
                found.append(numbers_in(world.sinks["out"], topic) == whole(topic))
    return found


REPEATS = re.compile(r"at (\d+), repeats up to (\d+)")


def test_partitions_come_in_another_order_after_a_crash() -> None:
    found = crash_at_each_event(random.Random(1))
    assert found
    assert all(found)


def test_without_what_was_chosen_records_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test above is worth."""
    monkeypatch.setattr(KafkaReader, "log_choices", lambda reader, again: None)
    assert not all(crash_at_each_event(random.Random(1)))


def poll_often(reader: plait.Reader) -> None:
    for _ in range(10_000_000):
        reader.poll(7)


def test_records_that_are_gone_are_not_repeated() -> None:
    topic = topic_of(EQUAL, random.Random(1))
    source = plait.Kafka("t", schema=COLUMNS)
    with topic.in_place_of_brokers():
        first = source.open_reader(None)
        log = first.log_choices([])
        assert log is not None
        position = first.position()
        for _ in range(5):
            first.poll(7)
        first.close()
        again = log.between(0, 99)
        for partition in (0, 1):
            del topic.records[partition][3]  # compacted
        reader = source.open_reader(position)
        reader.log_choices(again)
        with pytest.raises(plait.SourceError, match=r"has changed since: .* there were"):
            poll_often(reader)
        reader.close()
        for records in topic.records:
            records.clear()
        reader = source.open_reader(position)
        with pytest.raises(plait.SourceError, match="those of partition 0 before offset 12"):
            reader.log_choices(again)
        reader.close()


def test_notes_without_choices_are_refused_for_several_partitions() -> None:
    topic = topic_of(EQUAL, random.Random(1))
    source = plait.Kafka("t", schema=COLUMNS)
    with topic.in_place_of_brokers():
        reader = source.open_reader(None)
        with pytest.raises(plait.SourceError, match="an earlier version of plait do not say"):
            reader.log_choices([b"", b""])
        reader.close()
        del topic.records[1]
        reader = source.open_reader(None)
        assert reader.log_choices([b"", b""]) is not None
        reader.close()


def test_arrow_values_of_several_partitions_are_refused() -> None:
    topic = topic_of([[], []], random.Random(1))
    source = plait.Kafka("t", schema=COLUMNS, format="arrow")
    with topic.in_place_of_brokers():
        reader = source.open_reader(None)
        with pytest.raises(plait.SourceError, match=r'"arrow" the 2 partitions .* leave out'):
            reader.log_choices([])
        reader.close()
        last = topic.records.pop()
        reader = source.open_reader(None)
        assert reader.log_choices([]) is None
        topic.records.append(last)  # it grows
        with pytest.raises(plait.SourceError, match='format="arrow" the 2 partitions'):
            poll_often(reader)
        reader.close()


@pytest.mark.parametrize("lost", ["now", "idle", "fresh"])
def test_without_the_choices_of_time_it_is_another(
    lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the test above is worth."""
    put_back = PartTimes.put_back
    nothing = {"now": None, "idle": (), "fresh": ()}[lost]
    monkeypatch.setattr(
        PartTimes,
        "put_back",
        lambda times, choice: put_back(times, dataclasses.replace(choice, **{lost: nothing})),
    )
    with pytest.raises((AssertionError, KeyError)):
        find_another_time()


def find_another_time() -> None:
    for seed in range(400):
        chance = random.Random(seed)
        partitions = [
            [(0, chance.randint(0, 9)) for _ in range(chance.randint(3, 12))] for _ in range(3)
        ]
        polls = [chance.randint(1, 5) for _ in range(25)]
        repeat_rows(partitions, chance, polls, chance.randint(0, 25), chance.randint(0, 8))
