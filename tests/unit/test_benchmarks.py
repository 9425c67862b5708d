"""The benchmarks can be listed and run, and report what they must. No speed is tested."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = [
    "keyed_count",
    "skew",
    "reorder",
    "heuristics",
    "functions",
    "import_time",
    "exchange",
    "migration",
    "bins_overhead",
]


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
    assert benchmarks("--list").stdout.split() == NAMES
    programs = {path.stem for path in (ROOT / "benchmarks" / "micro").glob("*.py")}
    assert programs == set(NAMES)


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
