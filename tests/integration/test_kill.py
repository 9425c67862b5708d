"""`kill -9` of a job with checkpoints at random moments, started again until it is finished.

What it left behind is what a plain loop gives: each row once, in order, in files and in databases.
After each kill, what is visible is the beginning of that.
"""

from __future__ import annotations

import csv
import json
import random
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from plait.checkpoints.folder_reader import FolderReader
from plait.checkpoints.store import open_store

ROOT = Path(__file__).parent.parent.parent
JOB = Path(__file__).parent / "killed_job.py"
RATE = 20_000
"""As in `killed_job.py`."""
Row = tuple[Any, ...]


def plain_loop(rows: list[tuple[int, int, int]]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {"totals": [], "folded": [], "numbers": [], "letters": []}
    totals: dict[int, int] = {}
    states: dict[int, int] = {}
    count = whole = 0
    for place, (n, k, v) in enumerate(rows, 1):
        if v % 1000 == 999:
            found["letters"].append((place,))
            continue
        totals[k] = totals.get(k, 0) + v
        states[k] = (states.get(k, 0) * 31 + v) % 1_000_003
        count, whole = count + 1, whole + v
        found["totals"].append((k, n, totals[k]))
        found["folded"].append((k, states[k]))
        found["numbers"].append((count, whole))
    return found


def write_input(folder: Path, count: int, chance: random.Random) -> list[tuple[int, int, int]]:
    rows = [(n, chance.randrange(500), chance.randrange(100_000)) for n in range(count)]
    (folder / "in").mkdir()
    for part, first in enumerate(range(0, count, 7_000)):
        lines = [json.dumps({"n": n, "k": k, "v": v}) for n, k, v in rows[first : first + 7_000]]
        (folder / "in" / f"{part:03}.jsonl").write_text("\n".join(lines) + "\n")
    return rows


def visible(folder: Path, kind: str) -> dict[str, list[Row]]:
    """What the sinks show."""
    totals = [
        tuple(row.values())
        for path in sorted((folder / "totals").glob("part-*"))
        for row in pq.read_table(path).to_pylist()
    ]
    letters = [(row["row"],) for row in json_rows(folder / "letters")]
    folded: list[Row] = []
    if (folder / "folded.csv").exists():
        with (folder / "folded.csv").open() as file:
            folded = [(int(k), int(value)) for k, value in list(csv.reader(file))[1:]]
    if kind == "files":
        numbers = [(row["n"], row["square"]) for row in json_rows(folder / "sums")]
    else:
        numbers = rows_in_database(folder / "numbers.db")
    found = {"totals": totals, "folded": folded, "numbers": numbers, "letters": letters}
    if kind == "databases":
        found["second"] = rows_in_database(folder / "second.db")
    return found


def rows_in_database(path: Path) -> list[Row]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT n, square FROM numbers ORDER BY rowid").fetchall()
    except sqlite3.OperationalError:  # not made yet
        return []
    finally:
        connection.close()


def json_rows(folder: Path) -> list[dict[str, Any]]:
    paths = sorted(folder.glob("part-*"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def kill_and_go_on(folder: Path, kills: int, seed: int, kind: str) -> int:
    """Kills the job until it is finished, at most `kills` times; how often it was."""
    chance = random.Random(seed)
    rows = write_input(folder, int(kills * 0.25 * RATE), chance)
    (folder / "kind").write_text(kind)
    right = plain_loop(rows)
    if kind == "databases":
        right["second"] = right["numbers"]
    killed = 0
    while True:
        epoch_records = chance.choice([64, 512, 4096])
        command = [sys.executable, str(JOB), str(folder), str(epoch_records)]
        with subprocess.Popen(
            command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()  # the imports are done
            if killed < kills and is_alive_after(process, folder, chance):
                process.kill()
                process.communicate()
                killed += 1
                check_beginning(visible(folder, kind), right, f"kill {killed}")
                continue
            said, errors = process.communicate()
        assert process.returncode == 0, errors.decode()
        break
    found = visible(folder, kind)
    for name, rows_there in right.items():
        assert found[name] == rows_there, f"{name}: {len(found[name])} rows of {len(rows_there)}"
    assert f"read {len(rows)}" in said.decode()
    hidden = [path.name for path in folder.rglob(".*") if path.name != ".tmp"]
    assert hidden == [], hidden
    return killed


def is_alive_after(process: subprocess.Popen[bytes], folder: Path, chance: random.Random) -> bool:
    """Waits for a random moment: a while from now, or from a new checkpoint; False if the process
    has ended by then. Without the latter a slow machine would never get anywhere."""
    manifests = folder / "checkpoints" / "killed" / "manifests"
    before = len(list(manifests.glob("*"))), newest(manifests)
    if chance.random() < 0.75:
        while (len(list(manifests.glob("*"))), newest(manifests)) == before:
            if ends_within(process, 0.002):
                return False
    return not ends_within(process, chance.random() * 0.3)


def newest(manifests: Path) -> str:
    return max((path.name for path in manifests.glob("*")), default="")


def ends_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT)}


def check_beginning(found: dict[str, list[Row]], right: dict[str, list[Row]], when: str) -> None:
    for name, rows in found.items():
        assert rows == right[name][: len(rows)], f"{when}: {name} shows what is not right"


@pytest.mark.parametrize("kind", ["files", "database", "databases"])
def test_five_kills(tmp_path: Path, seed: int, kind: str) -> None:
    assert kill_and_go_on(tmp_path, 5, seed, kind) >= 2
    newest = FolderReader(open_store(str(tmp_path / "checkpoints")), "killed").manifests()[0]
    assert newest.finished


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
@pytest.mark.parametrize("kind", ["files", "database", "databases"])
def test_a_hundred_kills(tmp_path: Path, seed: int, part: int, kind: str) -> None:
    """Ten at a time."""
    assert kill_and_go_on(tmp_path, 10, seed + 1 + part, kind) >= 5
