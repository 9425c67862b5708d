"""The commands of a page: its ```sh blocks, by the heading they stand under.

What a test runs is what people read, so the page cannot say something else than what works.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

HEADING = re.compile(r"#+ (.*)")


def blocks_of(page: Path) -> dict[str, list[str]]:
    """For each heading the texts of its blocks."""
    blocks: dict[str, list[str]] = {}
    heading, inside = "", False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            inside = line == "```sh"
            if inside:
                blocks.setdefault(heading, []).append("")
        elif inside:
            blocks[heading][-1] += f"{line}\n"
        elif found := HEADING.match(line):
            heading = found[1]
    return blocks


def lines_of(block: str) -> list[str]:
    """The commands of a block, without what is said about them."""
    bare = (re.sub(r"\s{2,}# .*", "", line).strip() for line in block.splitlines())
    return [line for line in bare if line and not line.startswith("#")]
