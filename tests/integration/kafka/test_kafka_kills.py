"""`kill -9` of a job with Kafka in and out, started again until it is finished: whoever reads
committed records sees each row once, in order, at any time.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from plait.connectors.kafka.client import Record, connect

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.testing.broker import LocalBroker

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parent.parent.parent.parent
JOB = Path(__file__).parent / "killed_kafka_job.py"
KEYS = 50
Row = tuple[int, int, int]


def is_bad(n: int) -> bool:
    return n % 97 == 0


def value_of(k: int, n: int) -> bytes:
    """Some records are not JSON: they become dead letters."""
    return b"bad %d" % n if is_bad(n) else json.dumps({"k": k, "n": n}).encode()


def plain_loop(rows: list[tuple[int, int]]) -> list[Row]:
    counts: dict[int, int] = {}
    found = []
    for k, n in rows:
        counts[k] = counts.get(k, 0) + 1
        found.append((k, n, counts[k]))
    return found


def visible(kafka: LocalBroker, topic: str, count: int = 0) -> list[Row]:
    values = [json.loads(record.value or b"") for record in kafka.read(topic, count=count)]
    return [(row["k"], row["n"], row["count"]) for row in values]


def newest(checkpoints: Path) -> str:
    manifests = checkpoints / "killed" / "manifests"
    return max((path.name for path in manifests.glob("*")), default="")


class Watcher:
    """Reads committed records all the time, while jobs come and go."""

    def __init__(self, kafka: LocalBroker, topic: str) -> None:
        self.consumer = connect(kafka.connection).consumer(topic)
        self.consumer.assign({0: 0})
        self.seen: list[Row] = []

    def look(self) -> int:
        """How many rows it has seen by now."""
        values = [json.loads(record.value or b"") for record in self.consumer.fetch(10_000)]
        self.seen += [(row["k"], row["n"], row["count"]) for row in values]
        return len(self.seen)


def is_alive_after(
    process: subprocess.Popen[str], progress: Callable[[], Any], chance: random.Random
) -> bool:
    """Waits until there is more than before and for a random while; False if the process has ended
    by then."""
    before = progress()
    while progress() == before:
        if ends_within(process, 0.005):
            return False
    return not ends_within(process, chance.random() * 0.4)


def ends_within(process: subprocess.Popen[str], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def kill_and_go_on(
    kafka: LocalBroker,
    folder: Path,
    kills: int,
    seed: int,
    count: int,
    every: str = "100ms",
    commit: str = "",
) -> int:
    """With `commit` output is visible between checkpoints, and the process is killed when there is
    more of it."""
    chance = random.Random(seed)
    rows = [(chance.randrange(KEYS), n) for n in range(count)]
    topic_in, topic_out = kafka.make_topic("killed-in", 3), kafka.make_topic("killed-out")
    topic_letters = kafka.make_topic("killed-letters")
    kafka.produce(
        topic_in, [Record(n % 3, 0, 1_000_000 + n, None, value_of(k, n), ()) for k, n in rows]
    )
    right = plain_loop([(k, n) for k, n in rows if not is_bad(n)])
    bad = [value_of(k, n) for k, n in rows if is_bad(n)]
    checkpoints = folder / "checkpoints"
    ends = [kafka.servers, topic_in, topic_out, topic_letters, str(checkpoints)]
    command = [sys.executable, str(JOB), *ends, every, *([commit] if commit else [])]
    watcher = Watcher(kafka, topic_out)
    progress = watcher.look if commit else partial(newest, checkpoints)
    killed = 0
    while True:
        with subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()  # the imports are done
            if killed < kills and is_alive_after(process, progress, chance):
                process.kill()
                process.communicate()
                killed += 1
                shown = visible(kafka, topic_out)
                assert shown == right[: len(shown)], f"kill {killed} shows what is not right"
                letters = [record.value for record in kafka.read(topic_letters)]
                assert letters == bad[: len(letters)], f"kill {killed} has other letters"
                continue
            said, errors = process.communicate()
        assert process.returncode == 0, errors
        break
    assert visible(kafka, topic_out, len(right)) == right
    assert [record.value for record in kafka.read(topic_letters, count=len(bad))] == bad
    while watcher.look() < len(right):
        pass
    watcher.consumer.close()
    assert watcher.seen == right
    assert f"read {count}" in said
    return killed


def kill_live(kafka: LocalBroker, folder: Path, kills: int, seed: int, count: int) -> int:
    """Four partitions are filled while jobs come and go; a job reads them as they come, commits
    every 50 ms, with few checkpoints, and is killed behind a commit."""
    chance = random.Random(seed)
    parts = 4
    topic_in, topic_out = kafka.make_topic("live-in", parts), kafka.make_topic("live-out")
    topic_letters = kafka.make_topic("live-letters")
    ends = [kafka.servers, topic_in, topic_out, topic_letters, str(folder / "checkpoints")]
    command = [sys.executable, str(JOB), *ends, "2s", "50ms", "live"]
    watcher = Watcher(kafka, topic_out)
    sent: list[int] = []
    """The partition of each record; its key is one of that partition."""

    def send(most: int) -> None:
        """A few records, of which each partition gets some or none."""
        some = range(len(sent), min(count, len(sent) + most))
        sent.extend(chance.choice([0, 0, 0, 1, 2, 2, 3]) for _ in some)
        records = [Record(sent[n], 0, 1_000_000, None, value_of(sent[n], n), ()) for n in some]
        kafka.produce(topic_in, records)

    def progress() -> int:
        send(chance.randrange(400))
        return watcher.look()

    def wanted() -> list[list[Row]]:
        good = [(p, n) for n, p in enumerate(sent) if not is_bad(n)]
        found = [[n for p, n in good if p == part] for part in range(parts)]
        return [[(p, n, at + 1) for at, n in enumerate(rows)] for p, rows in enumerate(found)]

    def by_partition(rows: list[Row]) -> list[list[Row]]:
        return [[row for row in rows if row[0] == part] for part in range(parts)]

    killed = 0
    while True:
        with subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            if killed < kills:
                alive = is_alive_after(process, progress, chance)
            else:
                send(count)
                good = sum(not is_bad(n) for n in range(count))
                while (alive := not ends_within(process, 0.01)) and watcher.look() < good:
                    pass
            process.kill()
            _, errors = process.communicate()
        assert alive, errors
        for rows, right in zip(by_partition(watcher.seen), wanted(), strict=True):
            assert rows == right[: len(rows)], f"kill {killed} shows what is not right"
        if killed == kills:
            break
        killed += 1
    watcher.consumer.close()
    assert by_partition(watcher.seen) == wanted()
    assert by_partition(visible(kafka, topic_out)) == wanted()
    return killed


def test_three_kills(kafka: LocalBroker, tmp_path: Path, seed: int) -> None:
    assert kill_and_go_on(kafka, tmp_path, 3, seed, 12_000) >= 2


def test_three_kills_between_checkpoints(kafka: LocalBroker, tmp_path: Path, seed: int) -> None:
    """Most of what is visible has no checkpoint: what comes again is known from the notes."""
    killed = kill_and_go_on(kafka, tmp_path, 3, seed, 24_000, every="600ms", commit="50ms")
    assert killed >= 2


def test_kills_of_a_live_job_with_several_partitions(
    kafka: LocalBroker, tmp_path: Path, seed: int
) -> None:
    """Partitions come in another order each time; what is repeated is what it was."""
    assert kill_live(kafka, tmp_path, 4, seed, 20_000) == 4


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_thirty_kills_of_a_live_job(
    kafka: LocalBroker, tmp_path: Path, seed: int, part: int
) -> None:
    """Ten at a time."""
    assert kill_live(kafka, tmp_path, 10, seed + 21 + part, 60_000) == 10


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_fifty_kills(kafka: LocalBroker, tmp_path: Path, seed: int, part: int) -> None:
    """Ten at a time."""
    assert kill_and_go_on(kafka, tmp_path, 10, seed + 1 + part, 40_000) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_fifty_kills_between_checkpoints(
    kafka: LocalBroker, tmp_path: Path, seed: int, part: int
) -> None:
    """Ten at a time; part 4 has no checkpoint at all but those of starts and ends."""
    every = "1h" if part == 4 else "500ms"
    killed = kill_and_go_on(
        kafka, tmp_path, 10, seed + 11 + part, 40_000, every=every, commit="30ms"
    )
    assert killed >= 5
