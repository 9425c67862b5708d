"""Help is there: `help(plait.X)` says what X takes and gives, with an example that runs.

Every public class and function has a docstring with an example (`>>>`), every public method and
property has a docstring. Exceptions need no example. The examples run in an empty directory;
those that need a cluster, Spark or a file of the user are marked `# doctest: +SKIP`.
"""

from __future__ import annotations

import doctest
import inspect
import sys
from typing import TYPE_CHECKING, Any

import pytest

import plait

if TYPE_CHECKING:
    from pathlib import Path

FOLDERS = ("model", "expr", "functions", "graph", "results", "connectors", "cluster", "errors")
"""The folders whose public names are held to it."""
NAMES = [
    name
    for name in plait.__all__
    if str(getattr(getattr(plait, name), "__module__", "")).split(".")[:1] == ["plait"]
    and getattr(plait, name).__module__.split(".")[1] in FOLDERS
]


def is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def members(value: type) -> dict[str, Any]:
    """The public methods and properties that a class defines."""
    kinds = (property, classmethod, staticmethod)
    return {
        name: member
        for name, member in vars(value).items()
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, kinds))
    }


@pytest.mark.parametrize("name", NAMES)
def test_it_has_help(name: str) -> None:
    value = getattr(plait, name)
    text = vars(value).get("__doc__") if isinstance(value, type) else value.__doc__
    assert text, f"plait.{name} has no docstring"
    assert is_error(value) or ">>> " in text, f"help(plait.{name}) shows no example"
    if isinstance(value, type):
        bare = [key for key, member in members(value).items() if not inspect.getdoc(member)]
        assert not bare, f"without a docstring: {', '.join(f'{name}.{key}' for key in bare)}"


@pytest.mark.parametrize("name", NAMES)
def test_its_examples_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    value = getattr(plait, name)
    module = sys.modules[value.__module__]
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    globs = {**vars(module), "plait": plait}
    for test in doctest.DocTestFinder().find(value, name, module=module, globs=globs):
        runner.run(test)
    assert not runner.summarize(verbose=False).failed, capsys.readouterr().out
