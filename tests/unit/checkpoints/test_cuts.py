"""Cuts as bytes, and how a script is made of what several sinks know."""

from __future__ import annotations

import contextlib
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.checkpoints.cuts import (
    HEAD,
    KINDS,
    MAGIC,
    OVER,
    SUM,
    WITHOUT_CHOICES,
    Cuts,
    Known,
    boundary_of,
    decode_notes,
    encode_piece,
    finish,
    from_log,
    join_pieces,
    write_script,
)
from plait.errors import StateError

NOTES = "the notes"


@st.composite
def pieces(draw: st.DrawFn) -> list[dict[str, Cuts]]:
    """Of some sources, each of which goes on where its last piece ended."""
    names = draw(st.lists(st.text(max_size=8), min_size=1, max_size=3, unique=True))
    at = {name: draw(st.integers(0, 1 << 40)) for name in names}
    found = []
    for _ in range(draw(st.integers(1, 4))):
        piece = {}
        for name in names:
            count = draw(st.integers(0, 6))
            if count == 0:
                continue
            stamped = draw(st.booleans())
            stamps = st.integers(-(1 << 50), 1 << 50) if stamped else st.just(0)
            rows = draw(st.lists(st.integers(0, 1 << 30), min_size=count, max_size=count))
            choices = [draw(st.binary(max_size=9)) if each else b"" for each in rows]
            piece[name] = Cuts(
                first=at[name],
                rows=tuple(rows),
                choices=tuple(choices) if draw(st.booleans()) else (),
                stamps=tuple(draw(st.lists(stamps, min_size=count, max_size=count))),
                kinds=tuple(
                    draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=count, max_size=count))
                ),
            )
            at[name] += count
        found.append(piece)
    return found


@given(found=pieces(), boundary=st.integers(0, 1 << 60))
def test_notes_come_back(found: list[dict[str, Cuts]], boundary: int) -> None:
    notes = join_pieces(map(encode_piece, found), boundary)
    assert boundary_of(notes, NOTES) == boundary
    whole = decode_notes(notes, NOTES)
    for name in {name for piece in found for name in piece}:
        parts = [piece[name] for piece in found if name in piece]
        assert whole[name].first == parts[0].first
        assert whole[name].rows == tuple(n for part in parts for n in part.rows)
        assert whole[name].stamps == tuple(n for part in parts for n in part.stamps)
        assert whole[name].kinds == tuple(n for part in parts for n in part.kinds)
        assert whole[name].choices_made() == [c for part in parts for c in part.choices_made()]
        assert from_log(whole[name].as_log()) == replace(whole[name], choices=())


@given(found=pieces(), data=st.data())
def test_damaged_notes_are_refused(found: list[dict[str, Cuts]], data: st.DataObject) -> None:
    notes = bytearray(join_pieces(map(encode_piece, found), 7))
    if data.draw(st.booleans()):
        bit = data.draw(st.integers(0, 8 * len(notes) - 1))
        notes[bit // 8] ^= 1 << bit % 8
    else:
        del notes[data.draw(st.integers(0, len(notes) - 1)) :]
    with pytest.raises(StateError, match="damaged"):
        decode_notes(bytes(notes), NOTES)


@given(body=st.binary(max_size=60), count=st.integers(0, 5))
def test_nonsense_with_a_right_checksum_is_refused(body: bytes, count: int) -> None:
    """Whatever is in them: they are read, or refused, and nothing else."""
    whole = HEAD.pack(MAGIC, 3, count, len(body)) + body
    found = {}
    with contextlib.suppress(StateError):
        found = decode_notes(whole + SUM.pack(zlib.crc32(whole)), NOTES)
    assert all(len(cuts.rows) == len(cuts.kinds) for cuts in found.values())


def test_notes_from_before_there_were_choices_are_read() -> None:
    piece = encode_piece({"a": of(3, 1, 0, 2)})[:-1]  # their last byte says that there are none
    notes = join_pieces([piece], 6)[: -SUM.size].replace(MAGIC, WITHOUT_CHOICES)
    found = decode_notes(notes + SUM.pack(zlib.crc32(notes)), NOTES)
    assert found == {"a": of(3, 1, 0, 2)}
    assert found["a"].choices_made() == [b"", b""]


def test_choices_are_repeated_with_their_epochs() -> None:
    cuts = replace(of(3, 1, 0, 2), choices=(b"x", b"", b"y"))
    script = write_script([known(6, a=cuts)], 4)
    assert script is not None
    assert script.choices(["b", "a"]) == [[], [b"y"]]
    other = replace(cuts, choices=(b"x", b"", b"z"))
    with pytest.raises(StateError, match="not of one job"):
        write_script([known(6, a=cuts), known(6, a=other)], 3)
    assert finish({"a": cuts}, 8)["a"].choices == (b"x", b"", b"y", b"", b"")


def test_equal_epochs_are_short() -> None:
    cuts = Cuts(first=1_000_000, rows=(256,) * 1000, stamps=(0,) * 1000, kinds=(0,) * 1000)
    assert len(join_pieces([encode_piece({"source": cuts})], 1)) < 50


def of(first: int, *rows: int) -> Cuts:
    return Cuts(first=first, rows=rows, stamps=(0,) * len(rows), kinds=(0,) * len(rows))


def known(boundary: int, sink: str = "sink", **cuts: Cuts) -> Known:
    return Known(sink=sink, boundary=boundary, cuts=cuts, sources=tuple(cuts))


def test_nothing_is_repeated_where_all_sinks_are_at_the_checkpoint() -> None:
    assert write_script([known(5, a=of(3, 1, 1))], 5) is None


def test_each_sink_is_repeated_to_its_own_boundary() -> None:
    script = write_script([known(5, a=of(3, 1, 2, 3)), known(7, a=of(3, 1, 2, 4, 5))], 3)
    assert script is not None
    assert script.until == 7
    assert script.cuts["a"].rows == (1, 2, 4, 5)  # of the first one only what is before 5 counts
    assert script.logs(["b", "a"])[0] == [0]


def test_a_source_that_reaches_one_sink_alone_is_free_behind_its_boundary() -> None:
    script = write_script([known(5, a=of(3, 1, 2)), known(4, b=of(3, 9, 9))], 3)
    assert script is not None
    assert (script.cuts["a"].rows, script.cuts["b"].rows) == ((1, 2), (9,))


@pytest.mark.parametrize(
    "found",
    [
        [known(6, a=of(3, 1, 2))],
        [known(6, a=of(4, 1, 2))],
        [Known(sink="sink", boundary=6, cuts={}, sources=("a",))],
    ],
)
def test_a_gap_is_an_error(found: list[Known]) -> None:
    with pytest.raises(StateError, match="is not known"):
        write_script(found, 3)


def test_two_sinks_of_two_jobs_are_an_error() -> None:
    with pytest.raises(StateError, match="not of one job"):
        write_script([known(5, a=of(3, 1, 2)), known(5, a=of(3, 2, 1))], 3)


def test_behind_the_end_of_a_job_its_sources_are_over() -> None:
    assert finish({"a": of(3, 1)}, 6)["a"].kinds == (0, OVER, OVER)
