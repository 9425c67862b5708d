"""docs/coordinator.md draws the table of transitions as it is."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from plait.coordinator.machine import diagram, transitions
from plait.coordinator.machine.diagram import PARTS, draw, list_waits
from plait.coordinator.machine.transitions import NEW, WAITS

PAGE = (Path(__file__).parents[3] / "docs" / "coordinator.md").read_text()


@pytest.mark.parametrize("part", PARTS)
def test_the_page_holds_the_diagram(part: str) -> None:
    text = draw(part)
    assert text in PAGE, f"docs/coordinator.md should hold:\n\n{text}\n"


def test_the_page_lists_the_waits() -> None:
    text = list_waits()
    assert text in PAGE, f"docs/coordinator.md should hold:\n\n{text}\n"


def test_the_page_draws_nothing_else() -> None:
    """Besides the diagrams of the table: one of the parts, one of the phases."""
    assert PAGE.count("```mermaid") == len(PARTS) + 2


def test_every_wait_is_in_one_part() -> None:
    names = [name for part in PARTS.values() for name in part]
    assert sorted(names) == sorted({NEW, *WAITS} - {"over"})


@pytest.mark.parametrize("module", [transitions, diagram])
def test_the_examples_run(module: object) -> None:
    for test in doctest.DocTestFinder().find(module):
        assert doctest.DocTestRunner().run(test).failed == 0
