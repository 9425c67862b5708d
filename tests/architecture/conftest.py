"""The repository as the architecture tests see it: its root, its folders and its modules."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDERS = ("coordinator", "node_runtime", "migration", "shedding", "deploy")


@pytest.fixture(scope="session")
def root() -> Path:
    return Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def modules(root: Path) -> dict[str, Path]:
    """Every module of the package by its import name, from the real files and not the links."""
    found: dict[str, Path] = {}
    for folder in ("plait", *FOLDERS):
        top = () if folder == "plait" else (folder,)
        for path in sorted((root / folder).rglob("*.py")):
            inner = path.relative_to(root / folder)
            if folder == "plait" and inner.parts[0] in FOLDERS:
                continue  # through a link
            parts = inner.with_suffix("").parts
            name = ".".join(("plait", *top, *parts)).removesuffix(".__init__")
            found[name] = path
    return found
