"""The benchmarks can be listed and run, and report what they must. No speed is tested."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import MODULES, NAMES
from benchmarks.micro import bins_overhead, control, exchange, migration
from benchmarks.support import charts, migrating
from benchmarks.support.nodes import Nodes, Reading, Recipe
from benchmarks.support.stalls import Stalls

ROOT = Path(__file__).resolve().parents[3]
MICRO = [path.stem for path in (ROOT / "benchmarks" / "micro").glob("*.py")]


def benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    plot = tmp_path_factory.mktemp("plots") / "import_time.png"
    done = benchmarks("import_time", "--quick", "--rounds", "1", "--plot", str(plot))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), plot


def report(lines: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def test_the_names_are_listed_and_each_has_a_program() -> None:
    assert benchmarks("--list").stdout.split() == list(NAMES)
    assert set(NAMES) == {*MICRO, *MODULES}
    for name in MODULES.values():
        module = importlib.import_module(name)
        assert callable(module.run)
        assert callable(module.plot)


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    done = benchmarks("keyed_cuont")
    assert done.returncode == 2
    assert "keyed_count" in done.stderr


def test_the_last_line_is_the_report(small_run: tuple[list[str], Path]) -> None:
    found = report(small_run[0])
    assert list(found) == ["benchmark", "figures", "machine"]
    assert found["benchmark"] == "import_time"
    figures = found["figures"]
    assert {"import_ms", "first_job_ms", "vs_numpy", "process_ms"} <= set(figures)
    assert set(figures["process_ms"]) == {"bare", "plait", "plait_job", "numpy", "pyarrow"}
    assert figures["rounds"] == 1


def test_the_machine_is_described(small_run: tuple[list[str], Path]) -> None:
    machine = report(small_run[0])["machine"]
    assert machine["cores"] >= 1
    assert machine["memory_gb"] > 0
    assert machine["python"] == ".".join(map(str, sys.version_info[:3]))
    for name in ("cpu", "compiler", "system"):
        assert machine[name]
    assert 0 <= machine["others_cpu_ratio"] <= 1
    assert {"load_before", "load_after", "avx2"} <= set(machine)


def test_the_figures_can_be_read_and_drawn(small_run: tuple[list[str], Path]) -> None:
    lines, plot = small_run
    assert any(line.startswith("import_ms") for line in lines)
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_the_exchange_is_right_on_two_nodes(tmp_path: Path) -> None:
    path = tmp_path / "keys.bin"
    exchange.draw("hot", path)
    with Nodes(2) as nodes:
        exchange.check(nodes, path)
        found = exchange.latency(nodes, path, "key", 1e6, 0.05)
    assert found["max_ms"] >= found["p99_ms"] >= found["p50_ms"] > 0


def test_every_strategy_moves_state_and_keeps_the_results(tmp_path: Path) -> None:
    with Nodes(2) as nodes:
        migration.check(nodes, tmp_path / "keys.bin")


def test_a_node_may_join_a_benchmark(tmp_path: Path) -> None:
    path = tmp_path / "keys.bin"
    case = migration.Case(kind="key", state_mb=1, bin_bits=4)
    migration.write_keys(case, path)
    given = (str(path), case.keys, 10**9, 200_000.0, True)
    with Nodes(2) as nodes:
        nodes.begin(Recipe(migration.counting, given, migration.settings(case)))
        assert nodes.join() == 2
        before = nodes.layout.owners
        owners = [bin % 3 for bin in range(16)]
        moved = migrating.migrate(nodes, owners, "fluid", {}, 24.0)
        result = nodes.stop()
    assert moved.bins == sum(a != b for a, b in zip(owners, before, strict=True))
    assert result.account.difference == 0
    keys = result.outputs["out"]["key"].to_pylist()
    assert len(keys) == result.account.read
    assert keys[: case.keys] == list(range(min(case.keys, len(keys))))


def test_runs_at_any_number_of_bins(tmp_path: Path) -> None:
    path = tmp_path / "keys.bin"
    exchange.draw("1e6", path)
    with Nodes(1) as nodes:
        for bits in (0, 12):
            cut = bins_overhead.WithBins(nodes, path, 50_000, bits)
            cut()
            assert cut.whole[0] > 0
    whole = bins_overhead.PlaitRun(path, 50_000)
    whole()
    assert whole.whole[0] > 0
    rates = {"plait_run": 9.0, "1": 10.0, "16": 9.0, "4096": 11.0}
    assert bins_overhead.overheads(rates) == {"16": 0.1, "4096": -0.1}


def test_the_manager_decides_for_nodes_that_answer_at_once() -> None:
    found = control.decided(nodes=4, moves=1)
    assert found["commands"] > 0
    assert found["commands_per_s"] > 0


def test_windows_are_differences_of_readings() -> None:
    first = Reading(at=10.0, counts={1_000_000: 5})
    then = Reading(at=10.06, counts={1_000_000: 104, 8_000_000: 1})
    assert migrating.between(first, then) == {1_000_000: 99, 8_000_000: 1}
    found = migrating.windows([first, then], 0.05, 10.0)
    assert found == [{"at_s": 0.06, "p50_ms": 1.0, "p99_ms": 1.0, "max_ms": 8.0, "records": 100}]
    other = [Reading(at=9.0, counts={1_000_000: 1}), Reading(at=11.0, counts={1_000_000: 2})]
    assert [one.counts for one in migrating.joined([[first, then], other])] == [
        {1_000_000: 6},
        {1_000_000: 105, 8_000_000: 1},
    ]


def test_latencies_by_time_are_drawn(tmp_path: Path) -> None:
    file = tmp_path / "lines.png"
    points = [{"at_s": 0.1 * i, "max_ms": 1.0 + i} for i in range(5)]
    charts.timelines(str(file), {"a": {"fluid": points}, "b": {"none": points}})
    assert file.read_bytes().startswith(b"\x89PNG")


def test_a_machine_that_stands_still_is_seen() -> None:
    with Stalls() as stalls:
        stalls.longest_ms(0.0, 0.0)  # it runs
        began = time.monotonic()
        os.kill(stalls.process.pid, signal.SIGSTOP)
        time.sleep(0.05)
        os.kill(stalls.process.pid, signal.SIGCONT)
        assert stalls.longest_ms(began, time.monotonic()) >= 45
        assert stalls.longest_ms(0.0, began - 1) == 0


def test_disturbed_migrations_count_only_if_there_are_no_others() -> None:
    def migrated(latency_ms: float, stall_ms: float) -> dict[str, Any]:
        return {"max_latency_ms": latency_ms, "stall_ms": stall_ms, "timeline": [latency_ms]}

    calm, disturbed = migrated(5.0, 0.0), migrated(40.0, 36.0)
    found = migration.summed([disturbed, calm, disturbed])
    assert (found["max_latency_ms"], found["timeline"]) == (5.0, [5.0])
    assert found["max_latency_all_ms"] == [40.0, 5.0, 40.0]
    assert found["stall_all_ms"] == [36.0, 0.0, 36.0]
    assert migration.summed([disturbed])["max_latency_ms"] == 40.0
