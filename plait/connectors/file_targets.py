"""The names of a sink's files: what becomes visible, and what is hidden until then; pure but for
looking into the folder.

A part is known by its number, which counts the parts of the job in order, so a part that is written
again after a crash has the same name. A hidden file has the run in its name: what an earlier run
that still lives writes is never taken for ours.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait.errors import JobError, SinkError
from plait.model.durations import to_seconds

if TYPE_CHECKING:
    from pathlib import Path

SIZE = re.compile(r"([0-9.]+) ?(kB|KB|MB|GB|TB)")
SIZES = {"kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
PART = re.compile(r"part-([0-9]+)")


@dataclass(frozen=True, slots=True)
class Roll:
    """When a file is long enough; neither: at every checkpoint that has rows."""

    size_bytes: float | None = None
    age_s: float | None = None

    def is_due(self, size: int, age_s: float) -> bool:
        if self.size_bytes is not None:
            return size >= self.size_bytes
        return self.age_s is None or age_s >= self.age_s


def to_roll(given: Any) -> Roll:
    """`roll=` of `Files`.

    >>> to_roll("128MB"), to_roll("10m")
    (Roll(size_bytes=128000000.0, age_s=None), Roll(size_bytes=None, age_s=600.0))
    """
    if given is None:
        return Roll()
    try:
        if isinstance(given, str) and (size := SIZE.fullmatch(given)):
            return Roll(size_bytes=float(size[1]) * SIZES[size[2]])
        return Roll(age_s=to_seconds(given))
    except (JobError, ValueError, TypeError):
        raise SinkError(
            f'Files: roll is {given!r}; give a size such as "128MB" or a time such as "10m"'
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The files of one sink in a job with checkpoints."""

    folder: Path
    file: str
    """The one file; "": parts."""
    suffix: str
    """Of parts."""
    run: str

    @property
    def single(self) -> bool:
        return bool(self.file)

    def shown(self) -> str:
        """As results and errors name it."""
        return str(self.folder / self.file) if self.file else str(self.folder)

    def final(self, number: int) -> str:
        return self.file or f"part-{number:08d}.{self.suffix}"

    def hidden(self, number: int, what: str) -> str:
        return f".{self.final(number)}.{self.run}.{what}"

    def number_of(self, name: str) -> int | None:
        """Of a part; None for any other file."""
        stem = name.removesuffix(f".{self.suffix}")
        found = PART.fullmatch(stem)
        if self.file or found is None or stem == name:
            return None
        return int(found[1])

    def parts_from(self, number: int) -> list[str]:
        """The parts that are there and are not those with lower numbers."""
        there = [(self.number_of(name), name) for name in os.listdir(self.folder)]
        return sorted(
            name
            for found, name in there
            if found is not None and (found >= number or name != self.final(found))
        )

    def left_by_earlier_runs(self) -> list[str]:
        """The hidden files of earlier runs of the same job. Those of later ones stay: whoever comes
        here late, after another has taken over, must not take its files away."""
        lineage, _, attempt = self.run.rpartition("-")
        found = []
        for name in os.listdir(self.folder):
            final, _, rest = name.removesuffix(".log").removesuffix(".part").rpartition(".")
            run = rest if name.endswith((".log", ".part")) else ""
            ours = final == f".{self.file}" if self.file else self.number_of(final[1:]) is not None
            of, _, other = run.rpartition("-")
            if ours and of == lineage and other.isdigit() and int(other) < int(attempt):
                found.append(name)
        return sorted(found)
