"""The exception tree is the one that its docstring draws, and all of it is public."""

from __future__ import annotations

import inspect
import re
import signal

import plait
from plait import errors

LINE = re.compile(r"^ {4}((?:[│ ] {3})*(?:[├└]── )?)(\w+)(?:  |$)")


def drawn() -> dict[str, str]:
    """Each class of the drawing with the class above it."""
    above: list[str] = []
    found: dict[str, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        if match := LINE.match(line):
            depth = len(match[1]) // 4
            above[depth:] = [match[2]]
            found[match[2]] = above[depth - 1] if depth else "Exception"
    return found


def classes() -> dict[str, str]:
    """Each class of the module with its base."""
    members = inspect.getmembers(errors, inspect.isclass)
    return {
        name: value.__bases__[0].__name__
        for name, value in members
        if issubclass(value, BaseException) and value.__module__ == errors.__name__
    }


def test_the_drawing_is_the_tree() -> None:
    assert drawn() == classes()


def test_every_error_is_public() -> None:
    assert classes().keys() <= set(plait.__all__)


def test_no_error_is_defined_elsewhere() -> None:
    public = {name for name in plait.__all__ if inspect.isclass(getattr(plait, name))}
    raised = {name for name in public if issubclass(getattr(plait, name), BaseException)}
    assert raised == classes().keys()


def test_the_branches() -> None:
    assert issubclass(plait.RecordError, plait.PipelineError)
    assert not issubclass(plait.RecordError, plait.JobError)
    assert issubclass(plait.ClusterError, plait.EnvironmentFailure)


def test_who_handles_ctrl_c_handles_an_interrupted_run() -> None:
    assert issubclass(plait.Interrupted, KeyboardInterrupt)
    assert issubclass(plait.Interrupted, plait.PlaitError)
    assert not issubclass(plait.TimedOut, KeyboardInterrupt)
    assert plait.Interrupted("").exit_status == 130
    assert plait.Interrupted("", signal=signal.SIGHUP).exit_status == 129
