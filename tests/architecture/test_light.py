"""`import plait` is light, and so is every pure module: nothing heavy is loaded before it is used.

Each module is imported in an interpreter of its own, which then tells what came along.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

HEAVY = (
    "ray",
    "pyspark",
    "kafka",
    "confluent_kafka",
    "pandas",
    "polars",
    "numba",
    "llvmlite",
    "pyarrow",
    "numpy",
    "matplotlib",
)
PURE = (
    "plait",
    "plait.errors",
    "plait.checkpoints.config",
    "plait.checkpoints.evolution",
    "plait.checkpoints.job_folder",
    "plait.checkpoints.retention",
    "plait.connectors.base",
    "plait.model.schema",
    "plait.model.settings",
    "plait.expr.tree",
    "plait.graph.operators",
    "plait.graph.stages",
    "plait.node_runtime.reference",
    "plait.node_runtime.elastic.worker_level",
)
PURE_FOLDERS = ("plait.migration", "plait.shedding")
COLUMNS = tuple(
    f"plait.shedding.{name}"
    for name in (
        "controller",
        "costs",
        "hold",
        "moves",
        "observe",
        "quality",
        "release",
        "scaling",
        "share",
        "tell",
        "view",
    )
)
"""The controller works on columns: it may load NumPy, and only that."""

PROBE = """
import importlib.machinery, json, sys
before = set(sys.modules)
__import__(sys.argv[1])
suffixes = tuple(importlib.machinery.EXTENSION_SUFFIXES)
loaded = {
    name: (getattr(module, "__file__", None) or "").endswith(suffixes)
    for name, module in list(sys.modules.items())
    if name not in before
}
print(json.dumps(loaded))
"""


def loaded_with(module: str, root: Path) -> dict[str, bool]:
    """What importing a module loads, by name, and whether it is compiled."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, module],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded: dict[str, bool] = json.loads(done.stdout)
    return loaded


def heavy(loaded: dict[str, bool]) -> list[str]:
    return sorted(
        name
        for name, compiled in loaded.items()
        if name.split(".")[0] in HEAVY or (compiled and name.startswith("plait."))
    )


def test_pure_modules_load_nothing_heavy(root: Path, modules: dict[str, Path]) -> None:
    pure = [name for name in modules if name in PURE or name.startswith(PURE_FOLDERS)]
    assert "plait" in pure
    found = {name: heavy(loaded_with(name, root)) for name in pure if name not in COLUMNS}
    assert not {name: what for name, what in found.items() if what}
    beside = {name for each in COLUMNS for name in heavy(loaded_with(each, root))}
    assert {name.split(".")[0] for name in beside} == {"numpy"}


@pytest.mark.parametrize("module", ["numpy", "msgpack"])
def test_the_probe_sees_what_is_loaded(module: str, root: Path) -> None:
    """So that the test above cannot pass by seeing nothing."""
    loaded = loaded_with(module, root)
    assert module in loaded
    assert any(loaded.values())
