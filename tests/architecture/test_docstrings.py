"""Help is there: `help(plait.X)` says what X takes and gives, with an example that runs.

Every public class and function of `plait` and `plait.testing` has a docstring with an example
(`>>>`), every public method and property has a docstring, and so has one that comes from a base
class of ours; the verbs of streams have an example each. Exceptions need no example. The examples
run in an empty directory; those that need a cluster, Spark or a file of the user are marked
`# doctest: +SKIP`.
"""

from __future__ import annotations

import doctest
import inspect
import sys
from typing import TYPE_CHECKING, Any

import pytest

import plait
import plait.testing

if TYPE_CHECKING:
    from pathlib import Path

VERBS = ("Stream", "KeyedStream", "Windowed", "Job", "Flow")
"""Each method of these has an example."""
ORACLE = "plait.testing.oracle"
"""Not held to it: the definition of a right answer is read, not called by users."""


def public_values() -> dict[str, Any]:
    """What users can import, by its name; the same thing under two names once."""
    names = {f"plait.{name}": getattr(plait, name) for name in plait.__all__}
    names |= {f"plait.testing.{n}": getattr(plait.testing, n) for n in plait.testing.__all__}
    return {
        name: value
        for name, value in names.items()
        if (module := str(getattr(value, "__module__", ""))).startswith("plait.")
        and not module.startswith(ORACLE)
    }


VALUES = public_values()


def is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def own_classes(value: type) -> list[type]:
    """The class and those of plait that it inherits from."""
    return [base for base in value.__mro__ if base.__module__.startswith("plait.")]


def members(value: type) -> dict[str, Any]:
    """The public methods and properties of a class that plait defines."""
    kinds = (property, classmethod, staticmethod)
    return {
        name: getattr(value, name, member) if isinstance(member, kinds) else member
        for base in reversed(own_classes(value))
        for name, member in vars(base).items()
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, kinds))
    }


@pytest.mark.parametrize("name", VALUES)
def test_it_has_help(name: str) -> None:
    value = VALUES[name]
    text = vars(value).get("__doc__") if isinstance(value, type) else value.__doc__
    assert text, f"{name} has no docstring"
    assert is_error(value) or ">>> " in text, f"help({name}) shows no example"
    if isinstance(value, type):
        bare = [key for key, member in members(value).items() if not inspect.getdoc(member)]
        assert not bare, f"without a docstring: {', '.join(f'{name}.{key}' for key in bare)}"


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_has_an_example(name: str) -> None:
    verbs = {key: verb for key, verb in members(getattr(plait, name)).items() if callable(verb)}
    assert verbs
    bare = [key for key, verb in verbs.items() if ">>> " not in (inspect.getdoc(verb) or "")]
    assert not bare, f"without an example: {', '.join(f'{name}.{key}' for key in bare)}"


@pytest.mark.parametrize("name", VALUES)
def test_its_examples_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    value = VALUES[name]
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for part in own_classes(value) if isinstance(value, type) else [value]:
        module = sys.modules[part.__module__]
        globs = {**vars(module), "plait": plait}
        for test in doctest.DocTestFinder().find(part, name, module=module, globs=globs):
            runner.run(test)
    assert not runner.summarize(verbose=False).failed, capsys.readouterr().out
