"""Whose line is named, and that a public name is never hidden by a module of the same name."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

import pytest

import plait
import plait.place
from plait import col
from plait.locate import here
from plait.model import Schema
from plait.place import Place
from plait.sources.base import Source

if TYPE_CHECKING:
    from pathlib import Path


class Numbers(Source):
    schema = Schema.of({"n": int})


def test_here_is_the_first_line_outside_of_plait() -> None:
    at = here()
    assert at.file == __file__
    assert str(at).startswith("test_job_place.py:")


def test_the_line_is_that_of_the_file_that_calls(tmp_path: Path) -> None:
    script = tmp_path / "carts.py"
    script.write_text("\n\nmistake = lambda s: s.filter(col('m') > 1)\n", encoding="utf-8")
    names = {"col": col, "__name__": "carts"}
    exec(compile(script.read_text(encoding="utf-8"), str(script), "exec"), names)
    stream = plait.Job("test").source(Numbers())
    with pytest.raises(plait.JobError, match=r'^filter at carts\.py:3: no column "m"'):
        names["mistake"](stream)  # type: ignore[operator]


def test_a_place_keeps_the_kind_of_the_error() -> None:
    for kind in (plait.JobError, plait.SchemaError, plait.SourceError, plait.SinkError):
        with (
            pytest.raises(kind, match=r"map at test_job_place\.py:\d+: wrong") as caught,
            Place("map"),
        ):
            raise kind("wrong")
        assert type(caught.value) is kind
        assert caught.value.__suppress_context__
    with pytest.raises(ZeroDivisionError, match=r"^its own$"), Place("map"):
        raise ZeroDivisionError("its own")


def test_importing_a_module_does_not_hide_a_public_name() -> None:
    # This is what the import system does after it has loaded plait/run.py.
    plait.run = types.ModuleType("plait.run")  # type: ignore[assignment]
    assert not isinstance(vars(plait).get("run"), types.ModuleType)
    plait.place = plait.place  # modules whose names are not public stay where they are
    assert isinstance(plait.place, types.ModuleType)
