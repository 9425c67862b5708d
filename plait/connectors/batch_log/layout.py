"""What is in a batch log, as plain data, and what may be done to it; pure.

    <log>/log.json                 what the log is: its columns and who writes it
    <log>/batches/000000042.json   batch 42: created once, never changed
    <log>/batches/000000040.first  the log begins at batch 40: what is before it does not count
    <log>/segments/...arrow        the rows of one part of a batch, an Arrow stream
    <log>/readers/<name>.json      how far a reader is, and from where it may need the log again
    <log>/end.json                 nothing comes after this batch

A batch is in the log when its file is. Numbers have no holes: `judge_append` says what a writer
that comes with a number has to do, and `plan_deletions` what no reader needs any more. The effects
are in `storage`, `append`, `read` and `retire`.

    >>> judge_append(5, oldest=2, newest=4), judge_append(4, oldest=2, newest=4)
    ('create', 'there')
    >>> judge_append(7, oldest=2, newest=4), judge_append(1, oldest=2, newest=4)
    ('hole', 'there')
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from plait.errors import StateError
from plait.model.schema import Field, Schema, Type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

VERSION = 1
LOG, END, BATCHES, SEGMENTS, READERS = "log.json", "end.json", "batches", "segments", "readers"
MOST_BATCH_FILE_BYTES = 16 << 20

WriterKind = Literal["spark", "plait", "other"]
Judgement = Literal["create", "there", "hole"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The rows of one task of a batch: a file of segments, its size and its CRC-32."""

    name: str
    rows: int
    size_bytes: int
    crc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFile:
    """A batch that is in the log. The order of its rows is that of `parts`, then of their rows."""

    number: int
    writer: str
    run: str
    parts: tuple[Part, ...]
    committed_at: float
    """Wall clock, in seconds."""
    boundary: int = 0
    """Of a checkpoint, if plait wrote the batch."""

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who writes the log from a number on. `shift` is what is added to the writer's own numbers: a
    new Spark query counts from 0 again."""

    writer: str
    first: int
    shift: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """What the log is."""

    id: str
    """Random: another log at the same path has another one."""
    kind: WriterKind
    schema: Schema
    owners: tuple[Owner, ...]
    """The last one writes."""

    @property
    def owner(self) -> Owner:
        return self.owners[-1]

    @property
    def crc(self) -> int:
        """In positions between two batches: they belong to this log."""
        return zlib.crc32(self.id.encode())

    def adopted(self, writer: str, first: int, shift: int) -> LogFile:
        """The log with another writer from batch `first` on."""
        return replace(self, owners=(*self.owners, Owner(writer=writer, first=first, shift=shift)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderFile:
    """How far a reader is."""

    name: str
    read: int
    """All batches before this one are read."""
    needed: int
    """It may go back to this batch, and to none before it."""
    at: float
    """When it said so: wall clock, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletions:
    """In this order: wherever it stops, every batch that still counts has its segments."""

    first: int = 0
    """The log begins here from now on. It is written down before anything is removed: a writer that
    comes late with a batch that was removed does not bring it back."""
    batches: tuple[int, ...] = ()
    segments: tuple[str, ...] = ()


def judge_append(number: int, *, oldest: int | None, newest: int | None) -> Judgement:
    """What a writer has to do that comes with a batch. `oldest` and `newest` are those in the log;
    None: it has none, and may begin at any number."""
    if oldest is None or newest is None or number == newest + 1:
        return "create"
    return "hole" if number > newest else "there"


def newest_run(numbers: Iterable[int]) -> tuple[int, int] | None:
    """The first and the last of the batches without holes that end with the newest: what is before
    a hole was left by a deletion that stopped."""
    left = sorted(numbers, reverse=True)
    if not left:
        return None
    oldest = newest = left[0]
    for number in left[1:]:
        if number != oldest - 1:
            break
        oldest = number
    return oldest, newest


def plan_deletions(
    batches: Mapping[int, Sequence[str]], readers: Iterable[ReaderFile]
) -> Deletions:
    """What goes: the batches that no reader may go back to, and their segments. The newest batch
    stays, so that its number is known; without readers everything does. `batches`: the segments
    of each."""
    needed = [reader.needed for reader in readers]
    if not needed or not batches:
        return Deletions()
    before = min(*needed, max(batches))
    doomed = sorted(number for number in batches if number < before)
    return Deletions(
        first=before,
        batches=tuple(doomed),
        segments=tuple(name for number in doomed for name in batches[number]),
    )


def plan_sweep(
    segments: Mapping[str, float], batches: Mapping[int, Sequence[str]], now: float, age_s: float
) -> tuple[str, ...]:
    """Segments that no batch has and none will: older than `age_s`, and of a batch that is two
    before the newest. `segments`: when each was last written."""
    if not batches:
        return ()
    named = {name for names in batches.values() for name in names}
    newest = max(batches)
    return tuple(
        sorted(
            name
            for name, written_at in segments.items()
            if name not in named
            and now - written_at > age_s
            and (number_of_segment(name) or 0) <= newest - 2
        )
    )


def batch_name(number: int) -> str:
    return f"{number:09d}.json"


def number_of_batch(name: str) -> int | None:
    """The number in the name of a batch file; None for another file."""
    found = re.fullmatch(r"(\d{9,})\.json", name)
    return int(found[1]) if found else None


def first_name(number: int) -> str:
    return f"{number:09d}.first"


def number_of_first(name: str) -> int | None:
    """The batch with which the log begins, by the name of the file that says so."""
    found = re.fullmatch(r"(\d{9,})\.first", name)
    return int(found[1]) if found else None


def segment_name(number: int, part: int, attempt: str, random: str) -> str:
    return f"{number:09d}-{part:05d}-{attempt}-{random}.arrow"


def number_of_segment(name: str) -> int | None:
    found = re.fullmatch(r"(\d{9,})-.*\.arrow", name)
    return int(found[1]) if found else None


def reader_name(given: str) -> str:
    """A name for a file; names that differ stay different."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", given).lstrip(".")
    return plain if plain == given else f"{plain}-{zlib.crc32(given.encode()):08x}"


def encode(file: LogFile | BatchFile | ReaderFile) -> bytes:
    """The bytes of a file; those of a batch are always the same."""
    match file:
        case LogFile():
            plain: dict[str, Any] = {
                "version": VERSION,
                "id": file.id,
                "kind": file.kind,
                "schema": [[f.name, f.type.value, f.nullable] for f in file.schema],
                "owners": [
                    {"writer": each.writer, "first": each.first, "shift": each.shift}
                    for each in file.owners
                ],
            }
        case BatchFile():
            plain = {
                "number": file.number,
                "writer": file.writer,
                "run": file.run,
                "rows": file.rows,
                "bytes": file.size_bytes,
                "committed_at": file.committed_at,
                "boundary": file.boundary,
                "parts": [[p.name, p.rows, p.size_bytes, p.crc] for p in file.parts],
            }
        case ReaderFile():
            plain = {"read": file.read, "needed": file.needed, "at": file.at, "name": file.name}
    return json.dumps(plain, separators=(",", ":")).encode()


def decode_log(data: bytes, path: object) -> LogFile:
    plain = plain_of(data, path)
    try:
        if plain["version"] != VERSION:
            raise StateError(
                f"{path} is of version {plain['version']} of batch logs; this plait knows {VERSION}"
            )
        return LogFile(
            id=str(plain["id"]),
            kind=plain["kind"],
            schema=Schema(tuple(Field(n, Type(t), bool(null)) for n, t, null in plain["schema"])),
            owners=tuple(
                Owner(writer=each["writer"], first=each["first"], shift=each["shift"])
                for each in plain["owners"]
            ),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise damaged(path, error) from None


def decode_batch(data: bytes, path: object) -> BatchFile:
    plain = plain_of(data, path)
    try:
        batch = BatchFile(
            number=int(plain["number"]),
            writer=str(plain["writer"]),
            run=str(plain["run"]),
            parts=tuple(
                Part(name=checked_segment(name), rows=int(rows), size_bytes=int(size), crc=int(crc))
                for name, rows, size, crc in plain["parts"]
            ),
            committed_at=float(plain["committed_at"]),
            boundary=int(plain["boundary"]),
        )
        if (batch.rows, batch.size_bytes) != (plain["rows"], plain["bytes"]):
            raise ValueError("its parts do not add up")
    except (KeyError, ValueError, TypeError) as error:
        raise damaged(path, error) from None
    return batch


def decode_reader(data: bytes, path: object) -> ReaderFile:
    plain = plain_of(data, path)
    try:
        return ReaderFile(
            name=str(plain["name"]),
            read=int(plain["read"]),
            needed=int(plain["needed"]),
            at=float(plain["at"]),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise damaged(path, error) from None


def checked_segment(name: Any) -> str:
    """The name of a segment; it never leads out of the folder."""
    if not isinstance(name, str) or "/" in name or number_of_segment(name) is None:
        raise ValueError(f"{name!r} is not the name of a segment")
    return name


def plain_of(data: bytes, path: object) -> dict[str, Any]:
    try:
        plain = json.loads(data)
    except ValueError as error:
        raise damaged(path, error) from None
    if not isinstance(plain, dict):
        raise damaged(path, "it is not an object")
    return plain


def damaged(path: object, why: object) -> StateError:
    return StateError(f"{path} is damaged: {why}")
