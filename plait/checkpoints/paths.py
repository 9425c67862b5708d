"""The names of files in the folder of a job, and back; pure.

    attempts/000007.claim            attempt 7 is taken
    attempts/000007.beat             its owner lives, or has left
    attempts/000007.from-000042-000006   it goes on from checkpoint 42, sealed by attempt 6
    manifests/000043-000007.plm      checkpoint 43, sealed by attempt 7
    parts/000043/000007-0-1f2e3d4c.plm   what node 0 wrote of it
    chunks/000007/000043-0-0000-5a6b7c8d.pls   a chunk of that part
    savepoints/before-upgrade.plm    a checkpoint with a name

What counts can be told from names alone: which attempt is the newest, and which manifests are on
its chain. Whose file it is, and of which checkpoint, can be told before it is read or deleted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from plait.checkpoints.manifests import ManifestId
from plait.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plait.checkpoints.store import Entry

CLAIM = re.compile(r"attempts/(\d{6,})(?:-([0-9a-f]{16}))?\.(claim|won)")
BEAT = re.compile(r"attempts/(\d{6,})\.beat")
CHOICE = re.compile(r"attempts/(\d{6,})\.from-(?:none|(\d{6,})-(\d{6,}))")
MANIFEST = re.compile(r"manifests/(\d{6,})-(\d{6,})\.plm")
PART = re.compile(r"parts/(\d{6,})/(\d{6,})-\d+-[0-9a-f]+\.plm")
CHUNK = re.compile(r"chunks/(\d{6,})/(\d{6,})-\d+-\d{4,}-[0-9a-f]+\.pls")
SAVEPOINT = re.compile(r"savepoints/([A-Za-z0-9][A-Za-z0-9._-]*)\.plm")
SAVEPOINT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def folder_of(job: str) -> str:
    """The folder of a job: its name, with the characters that a path cannot have escaped."""
    if not job:
        raise JobError('a job with checkpoint= needs a name: plait.Job("carts")')
    name = quote(job, safe=" ")
    return f"%2E{name[1:]}" if name.startswith(".") else name


def job_of(folder: str) -> str:
    """The job of a folder.

    >>> job_of(folder_of("a/b"))
    'a/b'
    """
    return unquote(folder)


def claim_path(attempt: int, id: str = "") -> str:
    return f"attempts/{attempt:06}{'-' if id else ''}{id}.claim"


def won_path(attempt: int, id: str) -> str:
    return f"attempts/{attempt:06}-{id}.won"


def beat_path(attempt: int) -> str:
    return f"attempts/{attempt:06}.beat"


def choice_path(attempt: int, start: ManifestId | None) -> str:
    named = "none" if start is None else f"{start.number:06}-{start.attempt:06}"
    return f"attempts/{attempt:06}.from-{named}"


def manifest_path(id: ManifestId) -> str:
    return f"manifests/{id.number:06}-{id.attempt:06}.plm"


def part_path(attempt: int, number: int, rank: int, random: str) -> str:
    return f"parts/{number:06}/{attempt:06}-{rank}-{random}.plm"


def chunk_path(attempt: int, number: int, rank: int, count: int, random: str) -> str:
    return f"chunks/{attempt:06}/{number:06}-{rank}-{count:04}-{random}.pls"


def savepoint_path(name: str) -> str:
    if not SAVEPOINT_NAME.fullmatch(name):
        raise JobError(
            f"{name!r} cannot name a savepoint; use letters, digits, '.', '_' and '-', "
            "at most 100, a letter or digit first"
        )
    return f"savepoints/{name}.plm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The files of a job's folder, by what they are. Paths are relative to the folder."""

    claims: dict[str, int] = field(default_factory=dict)
    """Attempt by path, and so below for what is written of an attempt."""
    won: dict[str, int] = field(default_factory=dict)
    beats: dict[str, int] = field(default_factory=dict)
    choices: dict[int, ManifestId | None] = field(default_factory=dict)
    manifests: dict[ManifestId, str] = field(default_factory=dict)
    parts: dict[str, ManifestId] = field(default_factory=dict)
    chunks: dict[str, ManifestId] = field(default_factory=dict)
    savepoints: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def attempt(self) -> int:
        """The newest attempt, 0 if there is none."""
        return max(self.claims.values(), default=0)


def sort_files(folder: str, entries: Iterable[Entry]) -> Contents:
    """The files of a folder as `Contents`; what has no name of ours is left out."""
    found = Contents()
    for entry in entries:
        path = entry.path.removeprefix(f"{folder}/")
        if match := CLAIM.fullmatch(path):
            group = found.won if match[3] == "won" else found.claims
            group[path] = int(match[1])
        elif match := BEAT.fullmatch(path):
            found.beats[path] = int(match[1])
        elif match := CHOICE.fullmatch(path):
            start = ManifestId(int(match[2]), int(match[3])) if match[2] else None
            found.choices[int(match[1])] = start
        elif match := MANIFEST.fullmatch(path):
            found.manifests[ManifestId(int(match[1]), int(match[2]))] = path
        elif match := PART.fullmatch(path):
            found.parts[path] = ManifestId(int(match[1]), int(match[2]))
        elif match := CHUNK.fullmatch(path):
            found.chunks[path] = ManifestId(int(match[2]), int(match[1]))
        elif match := SAVEPOINT.fullmatch(path):
            found.savepoints[match[1]] = path
        else:
            continue
        found.sizes[path] = entry.size_bytes
    return found


def chain(contents: Contents) -> list[ManifestId]:
    """The manifests that count, newest first: those of the newest attempt that chose or sealed,
    those that were there when it chose, and so on back. A manifest that an older attempt sealed
    after a newer one had chosen is not among them."""
    numbers: dict[int, list[int]] = {}
    for id in contents.manifests:
        numbers.setdefault(id.attempt, []).append(id.number)
    found: list[ManifestId] = []
    attempt = max((*numbers, *contents.choices), default=0)
    limit: int | None = None
    while True:
        own = sorted(numbers.get(attempt, ()), reverse=True)
        found += [ManifestId(n, attempt) for n in own if limit is None or n <= limit]
        start = contents.choices.get(attempt)
        if start is None or start.attempt >= attempt:
            return found
        attempt, limit = start.attempt, start.number
