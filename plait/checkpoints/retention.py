"""What may be deleted; pure.

Kept are the newest valid checkpoints, all savepoints, everything that any of them names, and
whatever may belong to a checkpoint that is being written: files of the newest sealed one's attempt
with a higher number, and of higher attempts. All else goes: older manifests first, then parts, then
chunks, so that wherever it stops, every manifest that is left has all it names. Nothing is
remembered between two times: what one left is found by the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plait.checkpoints.paths import choice_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from plait.checkpoints.manifests import ManifestId
    from plait.checkpoints.paths import Contents


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A checkpoint that stays, and the parts and chunks that it names."""

    id: ManifestId
    files: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletions:
    """Paths in the order in which they are deleted."""

    manifests: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    chunks: tuple[str, ...] = ()
    attempts: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        return (*self.manifests, *self.parts, *self.chunks, *self.attempts)


def age(id: ManifestId) -> tuple[int, int]:
    """By this files are older or newer: whatever an older attempt wrote is older."""
    return (id.attempt, id.number)


def plan_deletions(
    contents: Contents, kept: Sequence[Kept], savepoints: Iterable[Kept]
) -> Deletions:
    """What goes, if these checkpoints (the newest valid ones, newest first) and savepoints stay."""
    if not kept:
        return Deletions()
    named = tuple(savepoints)
    newest = age(kept[0].id)
    staying = {each.id for each in kept}
    needed = frozenset().union(*(each.files for each in (*kept, *named)))
    manifests = [id for id in contents.manifests if age(id) < newest and id not in staying]
    first_attempt = min(each.id.attempt for each in (*kept, *named))
    return Deletions(
        manifests=tuple(contents.manifests[id] for id in sorted(manifests, key=age)),
        parts=unneeded(contents.parts, needed, newest),
        chunks=unneeded(contents.chunks, needed, newest),
        attempts=old_attempts(contents, first_attempt),
    )


def unneeded(
    files: dict[str, ManifestId], needed: frozenset[str], newest: tuple[int, int]
) -> tuple[str, ...]:
    gone = [(age(id), path) for path, id in files.items() if age(id) <= newest]
    return tuple(path for _, path in sorted(gone) if path not in needed)


def old_attempts(contents: Contents, first: int) -> tuple[str, ...]:
    """Claims and choices of attempts before the first that a kept checkpoint is of; never those of
    the newest attempt."""
    first = min(first, contents.attempt)
    written = contents.claims | contents.won | contents.beats
    claims = [path for path, at in written.items() if at < first]
    choices = [choice_path(at, start) for at, start in contents.choices.items() if at < first]
    return tuple(sorted((*claims, *choices)))
