"""Cuts: what each source put into each epoch; as bytes, and put together to a script. Pure.

A cut is the number of rows, the wall clock of the unit (0 in jobs without a use for it), and its
kind: how the source was, and whether the order of time left the epoch out. Of a reader whose order
depends on when records come there is what it chose, too (`choices.py`). The cuts before a
delivered boundary are what makes its output repeatable: they are in the notes of the sink that
keeps the boundary, or in the checkpoint of that boundary. Notes are pieces, one for each commit
since the last checkpoint, so that a commit encodes only what is new; length and CRC-32 cover every
byte, and what is not whole is refused.

    >>> cuts = {"clicks": Cuts(first=7, rows=(3, 3, 0), stamps=(0, 0, 0), kinds=(0, 0, 1))}
    >>> notes = join_pieces([encode_piece(cuts)], boundary=10)
    >>> decode_notes(notes, "the notes")["clicks"].rows
    (3, 3, 0)
"""

from __future__ import annotations

import itertools
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plait.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

OVER = 4
"""The kind of a cut behind the end of its source."""
KINDS = frozenset((*range(5), *(flow | 8 for flow in range(5))))
MAGIC = b"plc2"
WITHOUT_CHOICES = b"plc1"
"""The magic of notes from before there were any."""
HEAD = struct.Struct("<4sQII")
"""Magic, boundary, number of pieces, and the length of all of them; a CRC-32 is at the end."""
SUM = struct.Struct("<I")
MOST_CUTS = 1 << 24
"""Of a source in one piece; more is not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cuts:
    """The cuts of one source from epoch `first` on."""

    first: int
    rows: tuple[int, ...] = ()
    stamps: tuple[int, ...] = ()
    kinds: tuple[int, ...] = ()
    choices: tuple[bytes, ...] = ()
    """What the reader chose for each of these epochs, b"" for one without rows; (): it is always
    the same, or not known."""

    @property
    def end(self) -> int:
        return self.first + len(self.rows)

    def between(self, first: int, end: int) -> Cuts:
        """Those of the epochs in [first, end) that it has."""
        first = max(first, self.first)
        some = slice(first - self.first, max(first, min(end, self.end)) - self.first)
        return Cuts(
            first=first,
            rows=self.rows[some],
            stamps=self.stamps[some],
            kinds=self.kinds[some],
            choices=self.choices[some],
        )

    def choices_made(self) -> list[bytes]:
        """Of each epoch with rows: what the reader chose, b"" if that is not known."""
        choices = self.choices or (b"",) * len(self.rows)
        return [choice for rows, choice in zip(self.rows, choices, strict=True) if rows]

    def as_log(self) -> list[int]:
        """As the engine takes it: the first epoch, then rows, stamp and kind of each."""
        cuts = zip(self.rows, self.stamps, self.kinds, strict=True)
        return [self.first, *itertools.chain.from_iterable(cuts)]


def from_log(log: Sequence[int]) -> Cuts:
    """What the engine gives."""
    return Cuts(
        first=log[0],
        rows=tuple(log[1::3]),
        stamps=tuple(log[2::3]),
        kinds=tuple(log[3::3]),
    )


def finish(cuts: Mapping[str, Cuts], end: int) -> dict[str, Cuts]:
    """The cuts of a job at its end: behind its last epoch each source is over."""
    found = {}
    for id, known in cuts.items():
        more = max(0, end - known.end)
        found[id] = Cuts(
            first=known.first,
            rows=(*known.rows, *[0] * more),
            stamps=(*known.stamps, *[0] * more),
            kinds=(*known.kinds, *[OVER] * more),
            choices=(*known.choices, *[b""] * more) if known.choices else (),
        )
    return found


def encode_piece(cuts: Mapping[str, Cuts]) -> bytes:
    """Runs of equal cuts, and the steps between stamps."""
    out = bytearray()
    put_number(out, len(cuts))
    for id, known in cuts.items():
        name = id.encode()
        put_number(out, len(name))
        out += name
        put_number(out, known.first)
        put_number(out, len(known.rows))
        pairs = zip(known.rows, known.kinds, strict=True)
        for (rows, kind), run in itertools.groupby(pairs):
            put_number(out, sum(1 for _ in run))
            put_number(out, rows)
            out.append(kind)
        put_stamps(out, known.stamps)
        put_choices(out, known)
    return bytes(out)


def put_stamps(out: bytearray, stamps: Sequence[int]) -> None:
    out.append(1 if any(stamps) else 0)
    if not any(stamps):
        return
    last = 0
    for stamp in stamps:
        put_signed(out, stamp - last)
        last = stamp


def put_choices(out: bytearray, known: Cuts) -> None:
    out.append(1 if known.choices else 0)
    if not known.choices:
        return
    for choice in known.choices_made():
        put_number(out, len(choice))
        out += choice


def put_signed(out: bytearray, number: int) -> None:
    put_number(out, number << 1 if number >= 0 else (-number << 1) - 1)


def put_number(out: bytearray, number: int) -> None:
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def join_pieces(pieces: Iterable[bytes], boundary: int) -> bytes:
    """The notes for a commit of this boundary."""
    lengths = bytearray()
    found = list(pieces)
    for piece in found:
        put_number(lengths, len(piece))
    body = b"".join((bytes(lengths), *found))
    whole = HEAD.pack(MAGIC, boundary, len(found), len(body)) + body
    return whole + SUM.pack(zlib.crc32(whole))


def boundary_of(notes: bytes, name: str) -> int:
    """The boundary that the notes were given with."""
    check_whole(notes, name)
    return int(HEAD.unpack_from(notes)[1])


def check_whole(notes: bytes, name: str) -> None:
    if len(notes) < HEAD.size + SUM.size:
        raise StateError(f"{name} are damaged: there are only {len(notes)} bytes of them")
    magic, _, _, length = HEAD.unpack_from(notes)
    if magic not in (MAGIC, WITHOUT_CHOICES):
        raise StateError(f"{name} are damaged, or not notes of plait")
    if len(notes) != HEAD.size + length + SUM.size:
        raise StateError(f"{name} are damaged: they have {len(notes):,} bytes")
    if zlib.crc32(notes[: -SUM.size]) != SUM.unpack(notes[-SUM.size :])[0]:
        raise StateError(f"{name} are damaged: their checksum does not match")


def decode_notes(notes: bytes, name: str) -> dict[str, Cuts]:
    """The cuts of each source, by its id. Raises a StateError unless every byte is right."""
    check_whole(notes, name)
    _, _, count, _ = HEAD.unpack_from(notes)
    read = NoteReader(notes, HEAD.size, len(notes) - SUM.size, name)
    read.has_choices = notes[: len(MAGIC)] == MAGIC
    lengths = [read.number() for _ in range(min(count, len(notes)))]
    found: dict[str, Cuts] = {}
    for length in lengths:
        end = read.at + length
        for id, cuts in read.piece().items():
            found[id] = follow(found.get(id), cuts, id, name)
        if read.at != end:
            raise StateError(f"{name} are damaged: a piece is not as long as it says")
    if len(lengths) != count or read.at != read.end:
        raise StateError(f"{name} are damaged: they are not as long as they say")
    return found


def follow(before: Cuts | None, cuts: Cuts, id: str, name: str) -> Cuts:
    if before is None:
        return cuts
    if before.end != cuts.first:
        raise StateError(f"{name} are damaged: epoch {before.end} of {id} is missing")
    return Cuts(
        first=before.first,
        rows=before.rows + cuts.rows,
        stamps=before.stamps + cuts.stamps,
        kinds=before.kinds + cuts.kinds,
        choices=join_choices(before, cuts),
    )


def join_choices(before: Cuts, cuts: Cuts) -> tuple[bytes, ...]:
    if not before.choices and not cuts.choices:
        return ()
    return tuple(
        choice for part in (before, cuts) for choice in (part.choices or (b"",) * len(part.rows))
    )


class NoteReader:
    """Reads a piece; whatever it says is checked before it is believed."""

    def __init__(self, data: bytes, at: int, end: int, name: str) -> None:
        self.data, self.at, self.end, self.name = data, at, end, name
        self.has_choices = True

    def damaged(self) -> StateError:
        return StateError(f"{self.name} are damaged at byte {self.at}")

    def byte(self) -> int:
        if self.at >= self.end:
            raise self.damaged()
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        found = shift = 0
        while (byte := self.byte()) & 0x80:
            found |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise self.damaged()
        return found | byte << shift

    def signed(self) -> int:
        found = self.number()
        return found >> 1 if found & 1 == 0 else -((found + 1) >> 1)

    def some_bytes(self) -> bytes:
        length = self.number()
        if length > self.end - self.at:
            raise self.damaged()
        self.at += length
        return self.data[self.at - length : self.at]

    def text(self) -> str:
        try:
            return self.some_bytes().decode()
        except UnicodeDecodeError:
            raise self.damaged() from None

    def piece(self) -> dict[str, Cuts]:
        found: dict[str, Cuts] = {}
        for _ in range(self.number()):
            id = self.text()
            if id in found:
                raise self.damaged()
            found[id] = self.cuts()
        return found

    def cuts(self) -> Cuts:
        first, count = self.number(), self.number()
        if count > MOST_CUTS:
            raise self.damaged()
        rows: list[int] = []
        kinds: list[int] = []
        while len(rows) < count:
            run, each, kind = self.number(), self.number(), self.byte()
            if run == 0 or len(rows) + run > count or kind not in KINDS:
                raise self.damaged()
            rows += [each] * run
            kinds += [kind] * run
        stamps = self.stamps(count)
        return Cuts(
            first=first,
            rows=tuple(rows),
            stamps=stamps,
            kinds=tuple(kinds),
            choices=self.choices(rows) if self.has_choices else (),
        )

    def choices(self, rows: Sequence[int]) -> tuple[bytes, ...]:
        match self.byte():
            case 0:
                return ()
            case 1:
                return tuple(self.some_bytes() if each else b"" for each in rows)
            case _:
                raise self.damaged()

    def stamps(self, count: int) -> tuple[int, ...]:
        match self.byte():
            case 0:
                return (0,) * count
            case 1:
                return tuple(itertools.accumulate(self.signed() for _ in range(count)))
            case _:
                raise self.damaged()


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What the sources of a job repeat before they are free again."""

    until: int
    """No epoch from here on is repeated."""
    cuts: Mapping[str, Cuts]

    def logs(self, ids: Sequence[str]) -> list[list[int]]:
        """For the engine, of each of its sources."""
        return [self.cuts[id].as_log() if id in self.cuts else [0] for id in ids]

    def choices(self, ids: Sequence[str]) -> list[list[bytes]]:
        """For the readers, of each source."""
        return [self.cuts[id].choices_made() if id in self.cuts else [] for id in ids]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of the epochs before the boundary that a sink has delivered."""

    sink: str
    boundary: int
    cuts: Mapping[str, Cuts]
    sources: tuple[str, ...]
    """Those that reach the sink."""


def write_script(found: Sequence[Known], start: int) -> Script | None:
    """What is to be repeated from `start` on, so that every sink can leave out what it has
    delivered; None: nothing. Raises a StateError if that is not known."""
    ahead = [known for known in found if known.boundary > start]
    if not ahead:
        return None
    script: dict[str, Cuts] = {}
    for known in ahead:
        for id, cuts in known.cuts.items():
            # What a sink's notes say of epochs behind its boundary need not have come to be.
            some = cuts.between(start, known.boundary)
            script[id] = agree(script.get(id), some, id, known.sink)
    for known in ahead:
        for id in known.sources:
            there = script.get(id)
            if there is None or there.first > start or there.end < known.boundary:
                raise StateError(
                    f"{known.sink}: its output ends at boundary {known.boundary}, and what source"
                    f" {id} put into the epochs from {start} on is not known. The sink or the"
                    " checkpoints were changed from outside: restore both from one time, or give"
                    " the job a new folder and the sink a new target"
                )
    whole = {id: cuts for id, cuts in script.items() if cuts.first == start}
    return Script(until=max(known.boundary for known in ahead), cuts=whole)


def agree(before: Cuts | None, cuts: Cuts, id: str, sink: str) -> Cuts:
    """The longer one of two that say the same of the epochs that both have."""
    if before is None or not before.rows:
        return cuts
    if not cuts.rows:
        return before
    first, end = max(before.first, cuts.first), min(before.end, cuts.end)
    if before.between(first, end) != cuts.between(first, end):
        raise StateError(
            f"{sink}: its notes do not agree with those of another sink about source {id}; they"
            " are not of one job"
        )
    if before.first != cuts.first:
        return before if before.first < cuts.first else cuts
    return before if before.end >= cuts.end else cuts
