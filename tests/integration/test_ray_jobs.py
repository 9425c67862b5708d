"""Jobs on a real Ray cluster: the right answer on any number of nodes; errors come back."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import plait
from plait import Schema, col
from plait.model.records import records_of
from plait.testing import sequential

pytestmark = pytest.mark.integration

PATIENCE_S = 300.0


def counts(name: str, records: int = 30_000) -> plait.Job:
    """Each record of some is counted by its key."""
    job = plait.Job(name)
    given = job.source(plait.Rate(1e9, total=records))
    keyed = (
        given.filter(col("seq") % 7 != 0).with_columns(key=col("seq") * 7919 % 101).key_by("key")
    )
    keyed.count().sink(plait.Collect(), name="counts")
    return job


def rows(result: Any, label: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = result.outputs[label].to_pylist()
    return found


def right(job: plait.Job, label: str) -> list[dict[str, Any]]:
    """What a plain loop gives."""
    wanted = sequential(job.graph())
    return [dict(zip(("key", "count"), row, strict=True)) for row in wanted.outputs[label]]


@pytest.mark.parametrize("nodes", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_the_output_is_that_of_a_plain_loop(cluster: str, nodes: int) -> None:
    job = counts(f"counts-{nodes}")
    handle = plait.submit(job, address=cluster, nodes=nodes, workers=1)
    result = handle.result(PATIENCE_S)
    assert rows(result, "counts") == right(job, "counts")
    assert result.account.read == 30_000
    assert result.account.difference == 0
    view = handle.status()
    assert view.phase == "ended"
    assert [node.rank for node in view.members] == list(range(nodes))
    handle.forget()


def test_in_the_order_of_each_key_every_node_has_sinks(cluster: str) -> None:
    job = counts("by-key")
    handle = plait.submit(job, address=cluster, nodes=2, workers=1, order="key")
    got = rows(handle.result(PATIENCE_S), "counts")
    wanted = right(job, "counts")
    assert by_key(got) == by_key(wanted)
    assert [part.outputs["counts"].num_rows > 0 for part in handle.outcomes()] == [True, True]
    handle.forget()


def by_key(given: list[dict[str, Any]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in given:
        found.setdefault(row["key"], []).append(row["count"])
    return found


def test_two_jobs_at_once(cluster: str) -> None:
    jobs = [counts(f"both-{number}", 20_000 + number) for number in (1, 2)]
    handles = [plait.submit(job, address=cluster, nodes=2, workers=1) for job in jobs]
    for job, handle in zip(jobs, handles, strict=True):
        assert rows(handle.result(PATIENCE_S), "counts") == right(job, "counts")
        handle.forget()


def test_functions_of_the_users_file_are_sent_along(cluster: str) -> None:
    job = plait.Job("functions")
    given = job.source(plait.Items([{"n": n} for n in range(1000)]))
    given.map(doubled, schema={"n": int}).with_columns(m=third(col("n"))).sink(
        plait.Collect(), name="out"
    )
    handle = plait.submit(job, address=cluster, nodes=2, workers=1)
    out = rows(handle.result(PATIENCE_S), "out")
    assert out == [{"n": 2 * n, "m": 2 * n // 3} for n in range(1000)]
    assert "doubled" in handle.explain()
    assert "half of the way" in handle.logs()
    handle.forget()


def doubled(record: Any) -> dict[str, int]:
    if record.n == 500:
        print("half of the way")
    return {"n": 2 * record.n}


@plait.compiled
def third(n: int) -> int:
    return n // 3


@dataclass
class Part:
    price: Decimal


@dataclass
class Built:
    n: int
    parts: list[Part]


def dearer(built: Built) -> Built:
    assert all(type(part) is Part for part in built.parts)
    return Built(built.n, [Part(part.price + 1) for part in built.parts])


def test_objects_of_declared_classes_travel(cluster: str) -> None:
    job = plait.Job("declared")
    rows = [{"n": n, "parts": [{"price": f"{n}.5"}]} for n in range(200)]
    made = job.source(plait.Items(rows, schema=Built)).map(dearer).key_by("n")
    made.stateful(0, lambda state, built: (state, built)).sink(plait.Collect(), name="out")
    handle = plait.submit(job, address=cluster, nodes=2, workers=1)
    table = handle.result(PATIENCE_S).outputs["out"]
    wanted = [Built(n, [Part(Decimal(f"{n + 1}.5"))]) for n in range(200)]
    found = [one for batch in table.to_batches() for one in records_of(batch, Schema.of(Built))]
    assert found == wanted
    handle.forget()


def test_a_record_that_fails_comes_back_with_the_error(cluster: str) -> None:
    job = plait.Job("failing")
    given = job.source(plait.Items([{"n": n} for n in range(100)]))
    given.map(refuses_41, schema={"n": int}).sink(plait.Collect(), name="out")
    handle = plait.submit(job, address=cluster, nodes=2, workers=1)
    with pytest.raises(plait.RecordError, match="no 41") as raised:
        handle.result(PATIENCE_S)
    assert raised.value.row == 42
    assert raised.value.record.n == 41
    assert isinstance(raised.value.__cause__, ValueError)
    assert handle.status().phase == "failed"
    handle.forget()


def refuses_41(record: Any) -> dict[str, int]:
    if record.n == 41:
        raise ValueError("no 41")
    return {"n": record.n}


def test_what_cannot_be_sent_is_refused_before_anything_starts(cluster: str) -> None:
    lock = threading.Lock()
    job = plait.Job("locked")
    given = job.source(plait.Items([{"n": 1}]))
    given.filter(lambda record: not lock.locked()).sink(plait.Collect())
    with pytest.raises(plait.JobError, match=r'filter at .*; it holds "lock", a lock'):
        plait.submit(job, address=cluster)


def test_a_name_is_used_once(cluster: str) -> None:
    job = counts("twice", 1000)
    handle = plait.submit(job, address=cluster, workers=1)
    with pytest.raises(plait.JobError, match="there is a job twice already"):
        plait.submit(job, address=cluster, workers=1)
    handle.result(PATIENCE_S)
    handle.forget()
    again = plait.submit(job, address=cluster, workers=1)
    assert rows(again.result(PATIENCE_S), "counts") == right(job, "counts")
    again.forget()


def test_an_unknown_job_is_said_to_be_none(cluster: str) -> None:
    with pytest.raises(plait.JobError, match='no job "nowhere"'):
        plait.attach("nowhere", cluster)


JOB_FILE = """
import plait
from plait import col

job = plait.Job("from-a-file")
source = job.source(plait.Rate(1e9, total=5000))
source.with_columns(k=col("seq") % 3).key_by("k").count().sink(plait.Collect(), name="counts")
"""


def plait_command(environment: dict[str, str], folder: Path, *arguments: str) -> str:
    """Runs the command line in a process of its own, as a user's other terminal."""
    return command(environment, folder, sys.executable, "-m", "plait", *arguments)


def command(environment: dict[str, str], folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        arguments,
        cwd=folder,
        env={**environment, "PATH": "/usr/bin:/bin", "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_command_line_from_other_processes(
    cluster: str, cluster_environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "job.py").write_text(JOB_FILE, encoding="utf-8")
    facts = json.loads(
        plait_command(
            cluster_environment, tmp_path, "submit", "job.py", "--nodes", "2", "--wait", "--json"
        )
    )
    assert facts["account"]["read"] == 5000
    assert facts["outputs"] == {"counts": {"rows": 5000}}
    told = plait_command(cluster_environment, tmp_path, "ls", "--json")
    assert {view["name"]: view["phase"] for view in json.loads(told)}["from-a-file"] == "ended"
    handle = plait.attach("from-a-file", cluster)
    assert handle.status().phase == "ended"
    handle.forget()


SCRIPT = (
    JOB_FILE.replace("from-a-file", "NAME")
    + """
if __name__ == "__main__":
    handle = plait.submit(job, nodes=2, workers=1)
    result = handle.result(timeout="2m")
    print("rows", result.outputs["counts"].num_rows, handle.status().phase)
    handle.forget()
"""
)


@pytest.mark.slow
def test_inside_ray_job_submit(
    cluster: str, cluster_environment: dict[str, str], tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("NAME", "inside"), encoding="utf-8")
    ray = Path(sys.executable).parent / "ray"
    entry = (sys.executable, str(script))
    told = command(cluster_environment, tmp_path, str(ray), "job", "submit", "--", *entry)
    assert "rows 5000 ended" in told


@pytest.mark.slow
def test_from_a_machine_outside_the_cluster(
    cluster: str, cluster_environment: dict[str, str], tmp_path: Path
) -> None:
    """By a Ray client address: the process need not be on a node of the cluster."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("NAME", "outside"), encoding="utf-8")
    outside = {**cluster_environment, "RAY_ADDRESS": cluster_environment["CLIENT_ADDRESS"]}
    assert "rows 5000 ended" in command(outside, tmp_path, sys.executable, str(script))
