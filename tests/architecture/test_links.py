"""The links in `plait/` are for tools that look at folders; they must say what the build says."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def build_settings(root: Path) -> dict[str, Any]:
    settings: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return settings["tool"]["scikit-build"]  # type: ignore[no-any-return]


def links(root: Path) -> dict[str, str]:
    """Each link in plait/ and the text it holds."""
    return {
        path.relative_to(root).as_posix(): str(path.readlink())
        for path in sorted((root / "plait").rglob("*"))
        if path.is_symlink()
    }


def test_links_match_the_mapping_of_the_build(root: Path, build_settings: dict[str, Any]) -> None:
    mapping = build_settings["wheel"]["packages"]
    assert mapping.pop("plait") == "plait"
    assert links(root) == {package: f"../{folder}" for package, folder in mapping.items()}


def test_links_lead_sideways_to_real_packages(root: Path) -> None:
    assert links(root)
    for link in links(root):
        target = (root / link).resolve()
        assert target.parent == root
        assert (target / "__init__.py").is_file(), link


def test_no_folder_links_back(root: Path) -> None:
    """A link inside a linked folder could make a loop."""
    for link in links(root):
        inner = [path for path in (root / link).resolve().rglob("*") if path.is_symlink()]
        assert inner == []


def test_sdist_leaves_the_links_out(root: Path, build_settings: dict[str, Any]) -> None:
    assert set(build_settings["sdist"]["exclude"]) >= {f"/{link}" for link in links(root)}
