"""What the sub-pipelines of a job use, as a small table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.text.tables import shorten, small_table
from plait.text.units import count_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.protocol.part_use import PartUse

NAME = 24
HEAD = ["sub-pipeline", "for", "cores", "cpu s", "ns/record", "taken", "waiting", "blocked s"]


def parts_text(parts: Sequence[PartUse], other_cores: float, other_cpu_s: float) -> str:
    """A line for each, in pipeline order, and one for what the processes use beside them."""
    rows = [part_row(part) for part in parts]
    rows.append(["(other)", "", f"{other_cores:.2f}", f"{other_cpu_s:.2f}", "", "", "", ""])
    return small_table(HEAD, rows, [False, False] + [True] * (len(HEAD) - 2))


def part_row(part: PartUse) -> list[str]:
    return [
        shorten(part.name, NAME),
        shorten(", ".join(part.queries), NAME),
        f"{part.cores:.2f}",
        f"{part.cpu_s:.2f}",
        count_text(part.ns_per_record),
        f"{part.taken:,}",
        f"{part.waiting:,}",
        f"{part.blocked_s:.1f}",
    ]
