"""Who may import whom. A module's layer is its folder; nothing here lists modules.

`LAYERS` names the folders from the bottom up: a module imports from its own folder and from those
below it. `migration` and `shedding` know only a few words of the others, `testing` stands beside,
and the front door loads lazily.
"""

from __future__ import annotations

import ast
from fnmatch import fnmatch
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

FOLDERS = ("coordinator", "node_runtime", "migration", "shedding", "deploy")
LAYERS = (
    "errors",
    "protocol",
    "model",
    "text",
    "checkpoints",
    "expr",
    "functions",
    "graph",
    "results",
    "node_runtime.native._json",
    "connectors",
    "migration",
    "shedding",
    "node_runtime",
    "node_runtime.native",
    "node_runtime.lowering",
    "node_runtime.functions",
    "node_runtime.state",
    "node_runtime.pool",
    "node_runtime.elastic",
    "node_runtime.assembly",
    "node_runtime.host",
    "coordinator",
    "coordinator.messages",
    "coordinator.machine",
    "coordinator.journal",
    "coordinator.shell",
    "execution",
    "streams",
    "loops",
    "cluster",
    "deploy",
    "cli",
    "__main__",
    "testing",
    "testing.oracle",
    "testing.random_jobs",
)
BELOW_CONNECTORS = "node_runtime.native._json"
"""A compiled module with a layer of its own: bytes to columns, which knows only `model`."""
ONLY = {
    "checkpoints": ("errors", "model", "text"),
    "migration": ("errors", "protocol", "model", "text"),
    "shedding": ("errors", "protocol", "model", "text"),
    "deploy": (
        "errors",
        "protocol",
        "model",
        "text",
        "connectors",
        "coordinator.messages",
        "execution",
    ),
}
"""Folders that may import less than what is below them."""
BESIDE = "testing"
"""Its folders import each other, and everything but the runtime they judge."""
RUNS_NODES = ("plait.testing.nodes", "plait.testing.crashing_nodes")
"""The modules of `testing` that run the runtime; they judge nothing."""
RUNS_A_BROKER = "plait.testing.broker"
"""The one module of `testing` that starts a program of `deploy`."""
OUTSIDE = {
    "ray": "ray_*.py",
    "kafka": "kafka*.py",
    "confluent_kafka": "kafka*.py",
    "pyspark": "spark*.py",
}
"""In which files each may be imported; a folder of the name, such as spark/, will do, too."""


def within(module: str, names: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in names)


def layer(module: str) -> str:
    """The folder of a module, as `LAYERS` names it; "front door" for the package itself."""
    parts = module.split(".")[1:]
    if not parts:
        return "front door"
    if ".".join(parts) == BELOW_CONNECTORS:
        return BELOW_CONNECTORS
    return ".".join(parts[:2]) if ".".join(parts[:2]) in LAYERS else parts[0]


def allowed(importer: str, imported: str) -> bool:
    """Whether one module of ours may import another."""
    above, below = layer(importer), layer(imported)
    if above == "front door":
        return True  # loads lazily; test_light.py sees what it really loads
    if above not in LAYERS:
        return False  # a folder that is not in the list has no place yet
    if below == "front door":
        # The version, and for the command line the public names.
        return LAYERS.index(above) >= LAYERS.index("coordinator.shell")
    if above.split(".")[0] == BESIDE:
        return below != "deploy" or importer == RUNS_A_BROKER
    if above in ONLY:
        return below == above or below in ONLY[above]
    if below == "node_runtime.native" and above.startswith("coordinator"):
        return False
    return below in LAYERS and LAYERS.index(below) <= LAYERS.index(above)


def imports(source: str, ours: frozenset[str]) -> set[str]:
    """The modules that a text imports anywhere. `from a import b` is a.b if that is a module."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            stem = "." * node.level + (node.module or "")
            for alias in node.names:
                inner = f"{stem}.{alias.name}"
                compiled = stem == "plait.node_runtime.native" and alias.name.startswith("_")
                found.add(inner if inner in ours or compiled else stem)
    return found


def violations(importer: str, file: str, source: str, ours: frozenset[str]) -> list[str]:
    """What is wrong with the imports of one module, in words."""
    wrong: list[str] = []
    for name in sorted(imports(source, ours)):
        top = name.split(".")[0]
        if name.startswith("."):
            wrong.append(f"{importer}: relative import of {name}")
        elif top in FOLDERS:
            wrong.append(f"{importer}: write plait.{name}, not {name}")
        elif top in OUTSIDE and not (
            fnmatch(file, OUTSIDE[top])
            or any(fnmatch(f"{part}.py", OUTSIDE[top]) for part in importer.split(".")[1:-1])
        ):
            wrong.append(f"{importer}: {top} may be imported only in files named {OUTSIDE[top]}")
        elif top == "plait" and not allowed(importer, name):
            wrong.append(f"{importer} ({layer(importer)}) imports {name} ({layer(name)})")
        judges = within(importer, ("plait.testing",)) and importer not in RUNS_NODES
        if judges and within(name, ("plait.node_runtime",)):
            wrong.append(f"{importer}: the oracle must not lean on the runtime it judges: {name}")
    return wrong


def test_every_import_keeps_to_the_table(modules: dict[str, Path]) -> None:
    ours = frozenset(modules)
    wrong = [
        line
        for name, path in modules.items()
        for line in violations(name, path.name, path.read_text(encoding="utf-8"), ours)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_oracle_reaches_no_runtime(modules: dict[str, Path]) -> None:
    """Not even through other modules of ours: what judges the engine shares no code with it."""
    ours = frozenset(modules)
    oracles = [name for name in modules if "oracle" in name]
    for oracle in oracles:
        seen: set[str] = set()
        todo = [oracle]
        while todo:
            name = todo.pop()
            if name in seen or name not in modules or name == "plait":
                continue
            seen.add(name)
            todo.extend(imports(modules[name].read_text(encoding="utf-8"), ours))
        reached = sorted(name for name in seen if within(name, ("plait.node_runtime",)))
        assert not reached, f"{oracle} reaches {reached}"


OURS = frozenset(
    (
        "plait",
        "plait.errors",
        "plait.model.schema",
        "plait.graph.operators",
        "plait.streams.job",
        "plait.connectors.base",
        "plait.migration.bins",
        "plait.node_runtime.host.agent",
        "plait.node_runtime.native",
        "plait.coordinator.machine.state",
        "plait.deploy.preflight",
        "plait.protocol.messages",
    )
)


@pytest.mark.parametrize(
    ("importer", "file", "source"),
    [
        ("plait.errors", "errors.py", "import plait.model.schema"),
        ("plait.model.schema", "schema.py", "from plait.graph.operators import Graph"),
        ("plait.graph.operators", "operators.py", "from plait.streams import job"),
        ("plait.graph.operators", "operators.py", "import plait"),
        ("plait.unheard_of.module", "module.py", "import plait.errors"),
        ("plait.connectors.base", "base.py", "import plait.streams.job"),
        ("plait.migration.bins", "bins.py", "import plait.shedding.plan"),
        ("plait.migration.bins", "bins.py", "import plait.graph.operators"),
        ("plait.cluster.submit", "submit.py", "def f():\n    import ray"),
        ("plait.node_runtime.host.agent", "agent.py", "def f():\n    import plait.streams.job"),
        ("plait.node_runtime.state.folds", "folds.py", "import plait.node_runtime.pool.pool"),
        (
            "plait.coordinator.machine.state",
            "s.py",
            "from plait.node_runtime.native import _engine",
        ),
        ("plait.coordinator.machine.state", "s.py", "import plait.node_runtime.native._engine"),
        ("plait.coordinator.machine.state", "s.py", "import plait.coordinator.shell.manager"),
        ("plait.testing.check", "check.py", "import plait.node_runtime.host.agent"),
        ("plait.streams.job", "job.py", "import plait.deploy.preflight"),
        ("plait.streams.job", "job.py", "from . import run"),
        ("plait.streams.job", "job.py", "import node_runtime.host.agent"),
        ("plait.coordinator.shell.manager", "manager.py", "import ray"),
        ("plait.connectors.files", "files.py", "from kafka.consumer import KafkaConsumer"),
        ("plait.connectors.files", "files.py", "import confluent_kafka"),
        ("plait.connectors.files", "files.py", "import pyspark.sql"),
        (
            "plait.connectors.files",
            "files.py",
            "from plait.node_runtime.native import _engine",
        ),
        ("plait.testing.check", "check.py", "import plait.deploy.preflight"),
    ],
)
def test_a_wrong_import_is_found(importer: str, file: str, source: str) -> None:
    assert len(violations(importer, file, source, OURS)) == 1


@pytest.mark.parametrize(
    ("importer", "file", "source"),
    [
        ("plait.model.schema", "schema.py", "from plait.errors import SchemaError"),
        ("plait.graph.operators", "operators.py", "from plait.model import schema\nimport numpy"),
        ("plait.node_runtime.host.agent", "agent.py", "from plait.migration import bins"),
        ("plait.node_runtime.host.agent", "a.py", "from plait.node_runtime.native import _engine"),
        ("plait.coordinator.shell.manager", "m.py", "from plait.node_runtime.host import agent"),
        ("plait.coordinator.shell.ray_job", "ray_job.py", "import ray"),
        ("plait.connectors.kafka", "kafka.py", "def f():\n    import kafka"),
        ("plait.connectors.spark", "spark.py", "import pyspark"),
        (
            "plait.connectors.files",
            "files.py",
            "from plait.node_runtime.native._json import JsonReader",
        ),
        ("plait.connectors.spark.reader", "reader.py", "import pyspark"),
        ("plait.migration.bins", "bins.py", "from plait.protocol.messages import Layout"),
        ("plait.cli.cluster_commands", "cluster_commands.py", "import plait.deploy.preflight"),
        ("plait.cluster.ray_link", "ray_link.py", "import ray"),
        ("plait.testing.nodes", "nodes.py", "import plait.node_runtime.host.agent"),
        ("plait.testing.broker", "broker.py", "import plait.deploy.preflight"),
    ],
)
def test_a_right_import_is_let_through(importer: str, file: str, source: str) -> None:
    assert violations(importer, file, source, OURS) == []


def test_every_folder_has_a_layer(modules: dict[str, Path]) -> None:
    assert {layer(name) for name in modules} - {"front door"} == {*LAYERS} - {BELOW_CONNECTORS}


def test_no_folder_is_crowded(root: Path) -> None:
    """A folder is one word of the architecture and holds at most 20 source files."""
    counts: dict[Path, int] = {}
    for top in ("plait", *FOLDERS, "tests", "benchmarks", "examples"):
        for path in (root / top).rglob("*"):
            if path.suffix in (".py", ".pyx", ".hpp", ".cpp") and "flink" not in path.parts:
                counts[path.parent] = counts.get(path.parent, 0) + 1
    assert {str(folder) for folder, count in counts.items() if count > 20} == set()
