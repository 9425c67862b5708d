"""The front door: `plait.__all__`, what is visible and what a type checker sees are one."""

from __future__ import annotations

import ast
import types
from typing import TYPE_CHECKING

import pytest

import plait

if TYPE_CHECKING:
    from pathlib import Path


def names_for_type_checkers(source: str) -> set[str]:
    """The names that a front door binds: under `if TYPE_CHECKING`, and by its own statements."""
    found: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for inner in node.body:
                if isinstance(inner, ast.ImportFrom | ast.Import):
                    found.update(alias.asname or alias.name for alias in inner.names)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


def public(names: set[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def test_all_is_what_is_visible() -> None:
    submodules = {
        name
        for name, value in vars(plait).items()
        if isinstance(value, types.ModuleType) and value.__name__ == f"plait.{name}"
    }
    assert public(set(dir(plait))) - (submodules - set(plait.__all__)) == public(set(plait.__all__))


def test_all_is_what_type_checkers_see(root: Path) -> None:
    source = (root / "plait" / "__init__.py").read_text(encoding="utf-8")
    assert public(names_for_type_checkers(source)) == public(set(plait.__all__))


def test_no_name_is_listed_twice() -> None:
    assert len(plait.__all__) == len(set(plait.__all__))


def test_every_name_resolves_and_stays() -> None:
    for name in plait.__all__:
        assert getattr(plait, name) is getattr(plait, name), name


def test_star_import_brings_all_of_it() -> None:
    namespace: dict[str, object] = {}
    exec("from plait import *", namespace)
    assert namespace.keys() - {"__builtins__"} == set(plait.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    name = "no_such_name"
    with pytest.raises(AttributeError, match=name):
        getattr(plait, name)
