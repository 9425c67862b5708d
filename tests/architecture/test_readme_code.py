"""The Python code in the READMEs runs as it stands.

Each ```python block is a program of its own, run in an empty working directory. A block is left out
if the line above it is the comment `<!-- not run -->`. The code is written to a file at the line it
has in the README, so that a failure names the line to look at.
"""

from __future__ import annotations

import runpy
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

READMES = ("README.md", "plait/README.md", "node_runtime/README.md")
NOT_RUN = "<!-- not run -->"


def blocks(text: str) -> list[tuple[int, str]]:
    """The Python blocks of a page: the number of their first line, and the code."""
    found: list[tuple[int, str]] = []
    lines = text.splitlines()
    fence = ""
    start = 0
    last = ""
    run = False
    for number, line in enumerate(lines):
        bare = line.strip()
        if not fence and bare.startswith("```"):
            fence, start = bare, number + 1
            run = bare[3:].strip() == "python" and last != NOT_RUN
        elif fence and bare == "```":
            if run:
                found.append((start + 1, "\n".join(lines[start:number]) + "\n"))
            fence = ""
        if bare:
            last = bare
    return found


@pytest.mark.parametrize("readme", READMES)
def test_code_in_the_readme_runs(
    readme: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for line, code in blocks((root / readme).read_text(encoding="utf-8")):
        folder = tmp_path / f"line_{line}"
        folder.mkdir()
        monkeypatch.chdir(folder)
        script = folder / f"{readme.replace('/', '_')}.py"
        script.write_text("\n" * (line - 1) + code, encoding="utf-8")
        runpy.run_path(str(script), run_name="readme_block")


def test_blocks_are_found() -> None:
    page = "a\n```python\nx = 1\n```\n```sh\nls\n```\n```\ny\n```\n\n```python\nz = 2\n\nz\n```\n"
    assert blocks(page) == [(3, "x = 1\n"), (13, "z = 2\n\nz\n")]


def test_a_marked_block_is_left_out() -> None:
    page = f"{NOT_RUN}\n\n```python\nbroken(\n```\ntext\n```python\nx = 1\n```\n"
    assert blocks(page) == [(8, "x = 1\n")]
