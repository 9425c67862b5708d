"""Whose line is named in an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import plait
from plait import col
from plait.connectors.base import Source
from plait.model.call_site import CallSite, here
from plait.model.schema import Schema

if TYPE_CHECKING:
    from pathlib import Path


class Numbers(Source):
    schema = Schema.of({"n": int})


def test_here_is_the_first_line_outside_of_plait() -> None:
    at = here()
    assert at.file == __file__
    assert str(at).startswith("test_call_site.py:")


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
            pytest.raises(kind, match=r"map at test_call_site\.py:\d+: wrong") as caught,
            CallSite("map"),
        ):
            raise kind("wrong")
        assert type(caught.value) is kind
        assert caught.value.__suppress_context__
    with pytest.raises(ZeroDivisionError, match=r"^its own$"), CallSite("map"):
        raise ZeroDivisionError("its own")
