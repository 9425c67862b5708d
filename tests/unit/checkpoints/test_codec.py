"""Files of a checkpoint: versions, kinds, sizes, and older files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgpack
import pytest

from plait.checkpoints import codec
from plait.checkpoints.codec import DEPTH, HEADER, MAGIC, VERSION, Key, decode, encode, key_of
from plait.checkpoints.manifests import BinRef, Claim, Manifest, ManifestId, Part
from plait.errors import StateError

DATA = Path(__file__).parents[2] / "data" / "checkpoints"
CLAIM = Claim(job="carts", lineage="feed", attempt=3)
BINS = tuple(
    BinRef(operator="count", bin=bin, chunk="chunks/x", at=bin, size=1, digest=bytes(32))
    for bin in range(100)
)


def frame(payload: bytes, version: int = VERSION, kind: int = 3) -> bytes:
    header = HEADER.pack(MAGIC, version, kind, 0, len(payload))
    return header + hashlib.sha256(header + payload).digest() + payload


def test_bins_are_written_by_columns() -> None:
    part = Part(number=1, attempt=1, rank=0, epoch=1, bins=BINS)
    data = encode(part, None)
    assert decode(data, Part, None, "it") == part
    assert len(data) < 100 * 60


def test_another_version_is_refused() -> None:
    with pytest.raises(StateError, match="it has format 2; this plait reads format 1"):
        decode(frame(b"", version=2), Claim, None, "it")


def test_another_kind_is_refused() -> None:
    with pytest.raises(StateError, match="it is not a manifest"):
        decode(encode(CLAIM, None), Manifest, None, "it")
    with pytest.raises(StateError, match="it is not a manifest"):
        decode(frame(codec.pack(CLAIM), kind=1), Manifest, None, "it")


def test_a_field_or_a_class_of_a_newer_version_is_refused() -> None:
    for value in (["d", "Claim", "carts", "feed", 3, None, "new"], ["d", "Novel"]):
        with pytest.raises(StateError, match="newer version of plait"):
            decode(frame(msgpack.packb(value)), Claim, None, "it")


def test_a_field_that_is_missing_takes_its_default() -> None:
    fields = codec.plain(
        Manifest(job="j", lineage="l", attempt=1, number=2, parent=ManifestId(1, 1), epoch=3), DEPTH
    )
    found = decode(frame(msgpack.packb(fields[:8]), kind=1), Manifest, None, "it")
    assert (found.epoch, found.parts, found.letters) == (3, (), 0)
    with pytest.raises(StateError, match="a Manifest lacks epoch"):
        decode(frame(msgpack.packb(fields[:7]), kind=1), Manifest, None, "it")


def test_nesting_has_an_end() -> None:
    deep: list[object] = []
    for _ in range(100):
        deep = [deep]
    manifest = Manifest(
        job="j", lineage="l", attempt=1, number=1, parent=None, epoch=1, settings={"x": deep}
    )
    with pytest.raises(StateError, match="nested too deep"):
        encode(manifest, None)
    packed = b"\x92\xa1l" * 5000 + b"\xc0"
    with pytest.raises(StateError, match="is refused"):
        decode(frame(packed), Claim, None, "it")


def test_a_length_is_not_believed() -> None:
    header = HEADER.pack(MAGIC, VERSION, 3, 0, 1 << 62)
    with pytest.raises(StateError, match="damaged"):
        decode(header + bytes(100), Claim, None, "it")


def test_too_much_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MOST_BYTES", 100)
    with pytest.raises(StateError, match="is too large"):
        encode(Part(number=1, attempt=1, rank=0, epoch=1, bins=BINS), None)


def test_the_key_comes_from_the_environment() -> None:
    assert key_of({}) is None
    assert key_of({"PLAIT_CHECKPOINT_KEY": ""}) is None
    assert key_of({"PLAIT_CHECKPOINT_KEY": "x"}) == Key(b"x")


def test_files_of_version_1_are_read() -> None:
    """Bytes that were written when the format was made; they stay readable."""
    claim = decode((DATA / "claim-1.plm").read_bytes(), Claim, None, "it")
    assert claim == CLAIM
    part = decode((DATA / "part-1.plm").read_bytes(), Part, Key(b"key"), "it")
    assert part == Part(number=1, attempt=3, rank=0, epoch=9, bins=BINS[:2], lineage="feed")
