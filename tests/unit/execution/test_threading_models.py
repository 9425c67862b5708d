"""Threading models, regions and unfused operators: the same answer, whoever runs a stage."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait import col
from plait.execution.local_run import start
from plait.graph.stages import make_pipeline
from plait.model.settings import THREADINGS
from plait.testing import assert_same
from plait.testing.nodes import run_on_nodes

if TYPE_CHECKING:
    from plait.graph.operators import Graph

MANY = 1000
ROWS = 64
WAYS: tuple[dict[str, Any], ...] = (
    {"scheduler": "lru"},
    {"scheduler": "ct"},
    {"threading": "manual"},
    {"threading": "dedicated"},
)


def numbers(rows: int = ROWS) -> plait.Stream:
    return plait.stream([{"n": n} for n in range(rows)])


@pytest.fixture(scope="module")
def chain() -> Graph:
    made = numbers()
    for _ in range(MANY):
        made = made.with_columns(n=col("n") + 1)
    made.sink(plait.Collect(), "out")
    return made.job.graph()


@pytest.fixture(scope="module")
def wide() -> Graph:
    rows = numbers()
    branches = [rows.filter(col("n") % MANY == i) for i in range(MANY)]
    made = plait.union(*branches)
    made.sink(plait.Collect(), "out")
    return made.job.graph()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(way.values()))
def test_a_thousand_operators_in_a_row(chain: Graph, way: dict[str, Any]) -> None:
    given = {"workers": 2, "fuse": False, "epoch_records": 8, "timeout": 60, **way}
    out = plait.run(chain, **given).outputs["out"]
    assert out["n"].to_pylist() == [n + MANY for n in range(ROWS)]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(way.values()))
def test_a_thousand_operators_side_by_side(wide: Graph, way: dict[str, Any]) -> None:
    given = {"workers": 2, "fuse": False, "epoch_records": 16, "timeout": 60, **way}
    out = plait.run(wide, **given).outputs["out"]
    assert out["n"].to_pylist() == list(range(ROWS))


def test_small_rings_push_back_through_a_thousand_operators(chain: Graph) -> None:
    """Every stage is full: who finds no room runs the stage that is in the way."""
    tight: dict[str, Any] = {"queue_batches": 2, "queue_records": 1, "queue_bytes": 1}
    out = plait.run(
        chain, workers=2, fuse=False, epoch_records=1, timeout=60, scheduler="lru", **tight
    ).outputs["out"]
    assert out["n"].to_pylist() == [n + MANY for n in range(ROWS)]


def test_without_fusing_every_operator_is_a_stage() -> None:
    made = numbers().filter(col("n") > 1).with_columns(n=col("n") * 2).filter(col("n") < 50)
    made.sink(plait.Collect(), "out")
    graph = made.job.graph()
    assert [len(stage.operators) for stage in make_pipeline(graph).stages] == [1, 3, 1]
    assert [len(stage.operators) for stage in make_pipeline(graph, False).stages] == [1] * 5
    assert_same(graph, {"fuse": False, "workers": 2, "epoch_records": 3})


def regional() -> plait.Job:
    """Dynamic, dedicated and manual parts, with state and Python, that meet in a union."""
    rows = plait.stream([{"k": n % 3, "n": n} for n in range(200)])
    with plait.region("even", threading="dedicated"):
        even = rows.filter(col("n") % 2 == 0).with_columns(n=col("n") * 10)
        even = even.map(lambda row: {"k": row.k, "n": row.n})
    with plait.region("odd", threading="manual"):
        odd = rows.filter(col("n") % 2 == 1)
        counted = odd.key_by("k").count()
    plait.union(even, odd).key_by("k").sum("n").sink(plait.Collect(), "sums")
    with plait.region("odd", threading="manual"):
        counted.sink(plait.Collect(), "counts")
    return rows.job


@pytest.mark.parametrize("threading", THREADINGS)
@pytest.mark.parametrize("scheduler", ["ct", "lru"])
def test_regions_do_not_change_the_answer(threading: str, scheduler: str) -> None:
    tight = {"queue_batches": 2, "queue_records": 1, "queue_bytes": 1}
    for more in ({}, tight):
        given = {"workers": 2, "epoch_records": 7, "threading": threading, "scheduler": scheduler}
        assert_same(regional().graph(), {**given, **more})


@pytest.mark.parametrize("threading", THREADINGS)
def test_models_and_regions_on_nodes(threading: str) -> None:
    want = regional().run(workers=1)
    got = run_on_nodes(regional(), nodes=2, threading=threading, epoch_records=7)
    assert got.outputs["sums"] == want.outputs["sums"]
    assert got.outputs["counts"] == want.outputs["counts"]


def test_operators_of_different_regions_are_not_fused() -> None:
    rows = numbers()
    with plait.region("a", threading="manual"):
        first = rows.filter(col("n") > 1)
    with plait.region("b", threading="manual"):
        second = first.filter(col("n") > 2).filter(col("n") > 3)
    second.filter(col("n") > 4).sink(plait.Collect(), "out")
    stages = make_pipeline(rows.job.graph()).stages
    named = [None if stage.region is None else stage.region.name for stage in stages]
    assert [len(stage.operators) for stage in stages] == [1, 1, 2, 1, 1]
    assert named == [None, "a", "b", None, None]


def test_regions_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    job = regional()
    job.explain(workers=2, scheduler="lru")
    said = capsys.readouterr().out
    assert "2 workers, scheduler lru, total order" in said
    assert "region even: dedicated" in said
    assert "region odd: manual" in said
    job.explain(threading="dedicated")
    assert "a thread for each stage, total order" in capsys.readouterr().out
    job.explain(threading="manual")
    assert "one thread, total order" in capsys.readouterr().out


def test_wrong_regions() -> None:
    with pytest.raises(plait.JobError, match="region x: threading is 'fibre'; it must be one of"):
        plait.region("x", threading="fibre").__enter__()  # type: ignore[arg-type]
    with pytest.raises(plait.JobError, match="a region needs a name, not ''"):
        plait.region("", threading="manual").__enter__()
    rows = numbers()
    with plait.region("x", threading="manual"):
        one = rows.filter(col("n") > 1)
    with plait.region("x", threading="dedicated"):
        one.filter(col("n") > 2).sink(plait.Collect(), "out")
    with pytest.raises(plait.JobError, match='region "x" is manual in one place and dedicated in'):
        rows.job.graph()


def thread_names() -> list[str]:
    """Of the threads of this process that run stages."""
    names = [task.read_text().strip() for task in Path("/proc/self/task").glob("*/comm")]
    return sorted(name for name in names if re.fullmatch(r"plait-[wdm]\d+", name))


@pytest.mark.parametrize(
    ("settings", "want"),
    [
        ({"workers": 2}, ["plait-w0", "plait-w1"]),
        ({"threading": "manual"}, ["plait-m1"]),
        ({"threading": "dedicated", "fuse": False}, [f"plait-d{i}" for i in range(4)]),
    ],
)
def test_each_model_has_its_threads(settings: dict[str, Any], want: list[str]) -> None:
    rows = plait.stream(plait.Rate(1000.0))
    rows.filter(col("seq") >= 0).filter(col("seq") >= 0).sink(plait.Discard())
    running = start(rows.job, timeout_s=30.0, **settings)
    try:
        while running.engine.records_delivered() == 0 and not running.engine.wait(0.001):
            pass
        found = thread_names()
        while len(found) < len(want) and not running.engine.wait(0.001):
            found = thread_names()  # a thread names itself when it first runs
    finally:
        running.stop()
        running.wait()
    assert found == want
