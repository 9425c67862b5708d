"""Who may import whom.

The layers, from the bottom: vocabulary, logic, the runtime of a node, the coordinator, the rim. A
module imports only from its own layer or below, with the exceptions written in `allowed`. A module
of `plait/` that is not in a table here counts as logic, the strictest layer above the vocabulary:
one that needs more is added to RIM, on purpose.
"""

from __future__ import annotations

import ast
from fnmatch import fnmatch
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

FOLDERS = ("coordinator", "node_runtime", "migration", "shedding", "deploy")
VOCABULARY = ("plait.errors", "plait.model", "plait.scheduling", "plait.config")
BASES = (
    "plait.sources",
    "plait.sources.base",
    "plait.sources.columns",
    "plait.sinks",
    "plait.sinks.base",
    "plait.sinks.text",
)
RIM = (
    "plait.job",
    "plait.windows",
    "plait.joins",
    "plait.flow",
    "plait.run",
    "plait.ends",
    "plait.load",
    "plait.cli",
    "plait.cli_cluster",
    "plait.__main__",
    "plait.submit",
    "plait.handle",
    "plait.moving",
    "plait.top_rows",
    "plait.ray_connect",
    "plait.ray_pickle",
    "plait.coordinator.ray_gateway",
    "plait.coordinator.ray_hosts",
    "plait.coordinator.ray_manager",
    "plait.node_runtime.ray_node",
    "plait.testing",
    "plait.dashboard",
    "plait.sources",
    "plait.sinks",
    "plait.deploy",
)
NODE_WORDS = ("plait.node_messages", "plait.bin_maps")
SHARED_WITH_RUNTIME = tuple(
    f"plait.{folder}.{name}"
    for folder in ("migration", "shedding")
    for name in ("bins", "messages", "plan")
)
OPENS = (("plait.node_runtime.agent", "plait.ends"),)
"""A node opens the ends of its job as a run in one process does."""
RUNS_THE_RUNTIME = ("plait.testing.nodes",)
"""Of what is for tests: runs nodes, and judges nothing."""
MAY_DEPLOY = ("plait.deploy", "plait.cli_cluster")
OUTSIDE = {"ray": "ray_*.py", "kafka": "kafka*.py", "pyspark": "spark*.py"}


def within(module: str, names: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in names)


def layer(module: str) -> str:
    if module == "plait":
        return "front door"
    if module in BASES:
        return "logic"
    if within(module, RIM):
        return "rim"
    if within(module, VOCABULARY):
        return "vocabulary"
    folder = module.split(".")[1]
    return folder if folder in FOLDERS else "logic"


def native(module: str) -> bool:
    """Compiled modules are the ones with a leading underscore."""
    return module.startswith("plait.node_runtime.") and module.split(".")[2].startswith("_")


def allowed(importer: str, imported: str) -> bool:
    """Whether one module of ours may import another."""
    above, below = layer(importer), layer(imported)
    match above:
        case "vocabulary":
            # errors is the bottom; the words of the others raise them, and a setting may be a
            # scheduler.
            if imported == "plait.scheduling":
                return importer == "plait.config"
            return imported == "plait.errors" and importer != "plait.errors"
        case "logic":
            return below in ("vocabulary", "logic")
        case "migration" | "shedding":
            return below in ("vocabulary", above) or imported in NODE_WORDS
        case "node_runtime":
            own = below in ("vocabulary", "logic", "node_runtime")
            return own or within(imported, SHARED_WITH_RUNTIME) or (importer, imported) in OPENS
        case "coordinator":
            lower = ("vocabulary", "logic", "migration", "shedding", "node_runtime", "coordinator")
            return below in lower and not native(imported)
        case "front door":
            return True  # loads lazily; test_light.py sees what it really loads
        case _:
            return not within(imported, ("plait.deploy",)) or within(importer, MAY_DEPLOY)


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
                compiled = stem == "plait.node_runtime" and alias.name.startswith("_")
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
        elif top in OUTSIDE and not fnmatch(file, OUTSIDE[top]):
            wrong.append(f"{importer}: {top} may be imported only in files named {OUTSIDE[top]}")
        elif top == "plait" and not allowed(importer, name):
            wrong.append(f"{importer} ({layer(importer)}) imports {name} ({layer(name)})")
        judges = within(importer, ("plait.testing",)) and importer not in RUNS_THE_RUNTIME
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
        "plait.model",
        "plait.graph",
        "plait.job",
        "plait.sources.base",
        "plait.sources.files",
        "plait.migration.bins",
        "plait.migration.transfer",
        "plait.node_runtime.agent",
        "plait.coordinator.state",
        "plait.deploy.preflight",
        "plait.node_messages",
    )
)


@pytest.mark.parametrize(
    ("importer", "file", "source"),
    [
        ("plait.errors", "errors.py", "import plait.model"),
        ("plait.model", "model.py", "from plait.graph import Graph"),
        ("plait.graph", "graph.py", "from plait import job"),
        ("plait.graph", "graph.py", "import plait"),
        ("plait.unheard_of", "unheard_of.py", "import plait.node_runtime.agent"),
        ("plait.sources.base", "base.py", "import plait.sources.files"),
        ("plait.migration.bins", "bins.py", "import plait.shedding.plan"),
        ("plait.migration.bins", "bins.py", "import plait.graph"),
        ("plait.submit", "submit.py", "def f():\n    import ray"),
        ("plait.node_runtime.agent", "agent.py", "def f():\n    import plait.job"),
        ("plait.node_runtime.agent", "agent.py", "import plait.sources.files"),
        ("plait.node_runtime.agent", "agent.py", "import plait.migration.transfer"),
        ("plait.coordinator.state", "state.py", "from plait.node_runtime import _engine"),
        ("plait.coordinator.state", "state.py", "from plait.node_runtime._engine import Engine"),
        ("plait.testing", "testing.py", "import plait.node_runtime.agent"),
        ("plait.job", "job.py", "import plait.deploy.preflight"),
        ("plait.job", "job.py", "from . import run"),
        ("plait.job", "job.py", "import node_runtime.agent"),
        ("plait.coordinator.manager", "manager.py", "import ray"),
        ("plait.sources.files", "files.py", "from kafka.consumer import KafkaConsumer"),
        ("plait.sources.files", "files.py", "import pyspark.sql"),
    ],
)
def test_a_wrong_import_is_found(importer: str, file: str, source: str) -> None:
    assert len(violations(importer, file, source, OURS)) == 1


@pytest.mark.parametrize(
    ("importer", "file", "source"),
    [
        ("plait.model", "model.py", "from plait.errors import SchemaError"),
        ("plait.graph", "graph.py", "from plait import model\nimport numpy"),
        ("plait.node_runtime.agent", "agent.py", "from plait.migration import bins"),
        ("plait.node_runtime.agent", "agent.py", "from plait.node_runtime import _engine"),
        ("plait.coordinator.state", "state.py", "from plait.node_runtime import agent"),
        ("plait.coordinator.ray_job", "ray_job.py", "import ray"),
        ("plait.sources.kafka", "kafka.py", "def f():\n    import kafka"),
        ("plait.sinks.spark", "spark.py", "import pyspark"),
        ("plait.deploy.preflight", "preflight.py", "import plait.job"),
        ("plait.migration.bins", "bins.py", "from plait.node_messages import Layout"),
        ("plait.cli_cluster", "cli_cluster.py", "import plait.deploy.preflight"),
        ("plait.ray_connect", "ray_connect.py", "import ray"),
    ],
)
def test_a_right_import_is_let_through(importer: str, file: str, source: str) -> None:
    assert violations(importer, file, source, OURS) == []
