"""Damage anywhere: a flipped, cut, added or swapped byte of any file is never a wrong answer, and
never another exception than a StateError."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.checkpoints.codec import Key, decode, encode
from plait.checkpoints.job_folder import JobFolder
from plait.checkpoints.manifests import Manifest, SourceEntry
from plait.checkpoints.store import LocalStore
from plait.errors import StateError
from tests.unit.checkpoints.stores import Run, State, state_of

STATES: tuple[State, ...] = (
    {("count", bin): bytes([bin]) * 20 for bin in range(4)},
    {("count", bin): bytes([bin, 1]) * 10 for bin in range(2)} | {("sum", 2): b""},
    {("count", 0): b"zero", ("sum", 2): b"two"},
)


def build(root: Path, key: Key | None) -> None:
    for attempt in range(2):
        run = Run(LocalStore(root), key=key)
        run.restore()
        run.checkpoint(STATES[attempt], name="saved" if attempt == 0 else "")
    run.checkpoint(STATES[2])


@pytest.fixture(scope="module", params=[None, Key(b"key")], ids=["plain", "signed"])
def origin(request: pytest.FixtureRequest) -> Any:
    with TemporaryDirectory() as top:
        build(Path(top), request.param)
        yield Path(top), request.param


def damage(draw: st.DrawFn, data: bytes) -> bytes:
    """Other bytes than these."""
    at = draw(st.integers(0, max(0, len(data) - 1)))
    match draw(st.sampled_from(("flip", "cut", "drop", "add", "junk", "zeros"))):
        case "flip" if data:
            changed = bytearray(data)
            changed[at] ^= 1 << draw(st.integers(0, 7))
            return bytes(changed)
        case "cut" if data:
            return data[:at]
        case "drop" if data:
            return data[:at] + data[at + 1 :]
        case "zeros" if data:
            changed = bytearray(data)
            changed[at:] = bytes(len(data) - at)
            return bytes(changed)
        case "junk":
            return draw(st.binary(max_size=200))
    return data[:at] + draw(st.binary(min_size=1, max_size=9)) + data[at:]


@given(st.data())
def test_damage_is_refused_or_harmless(
    origin: tuple[Path, Key | None], data: st.DataObject
) -> None:
    """One file is damaged. Each checkpoint and the savepoint is read as it was, or refused; the
    list begins with one that is as it was."""
    source, key = origin
    paths = sorted(path.relative_to(source) for path in source.rglob("*") if path.is_file())
    victim = data.draw(st.sampled_from(paths))
    with TemporaryDirectory() as top:
        root = Path(top, "copy")
        shutil.copytree(source, root)
        was = (root / victim).read_bytes()
        now = data.draw(st.composite(lambda draw: damage(draw, was))())
        (root / victim).write_bytes(now)
        folder = JobFolder(LocalStore(root), "carts", key)
        right: dict[int | str, State] = {1: STATES[0], 2: STATES[1], 3: STATES[2]}
        right["saved"] = STATES[0]
        whole = 0
        for which, expected in right.items():
            try:
                found = state_of(folder, which)
            except StateError:
                continue
            assert found == expected
            whole += 1
        # One damaged file hurts what names it: bins of one chunk, one part, one manifest.
        assert whole >= 2 or was == now or "attempts" in str(victim)
        infos = folder.manifests()
        assert [info.number for info in infos] == sorted({1, 2, 3} & {i.number for i in infos})[
            ::-1
        ]
        for info in folder.savepoints():
            assert info.name == "saved"
        again = Run(LocalStore(root), key=key)
        assert again.claim.attempt == 3
        folder.retire(1)


plain_data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers(0, 99), inner)
    ),
    max_leaves=20,
)


@given(plain_data, plain_data, st.none() | st.just(Key(b"k")))
def test_plain_data_comes_back_as_it_was(position: Any, setting: Any, key: Key | None) -> None:
    manifest = Manifest(
        job="j",
        lineage="l",
        attempt=1,
        number=1,
        parent=None,
        epoch=1,
        sources=(SourceEntry(id="s", position=position),),
        settings={"x": setting},
    )
    found = decode(encode(manifest, key), Manifest, key, "it")
    assert found == manifest
    assert repr(found) == repr(manifest)  # True is not 1, a list is not a tuple


@given(st.binary(max_size=400))
def test_any_bytes_as_a_payload_are_refused_in_words(payload: bytes) -> None:
    """A right checksum over nonsense, as only a mistake or malice makes it."""
    import hashlib

    from plait.checkpoints.codec import HEADER, MAGIC, VERSION

    header = HEADER.pack(MAGIC, VERSION, 1, 0, len(payload))
    data = header + hashlib.sha256(header + payload).digest() + payload
    with pytest.raises(StateError):
        decode(data, Manifest, None, "it")


@given(st.data())
def test_wrong_values_in_a_right_frame_are_refused(data: st.DataObject) -> None:
    """A manifest with any field replaced by something else is refused, or is a manifest again."""
    import hashlib

    import msgpack

    from plait.checkpoints.codec import DEPTH, HEADER, MAGIC, VERSION, plain

    manifest = Manifest(job="j", lineage="l", attempt=1, number=1, parent=None, epoch=1)
    fields = plain(manifest, DEPTH)
    fields[data.draw(st.integers(0, len(fields) - 1))] = plain(data.draw(plain_data), DEPTH)
    payload = msgpack.packb(fields)
    header = HEADER.pack(MAGIC, VERSION, 1, 0, len(payload))
    framed = header + hashlib.sha256(header + payload).digest() + payload
    try:
        found = decode(framed, Manifest, None, "it")
    except StateError:
        return
    assert isinstance(found.job, str)
    assert isinstance(found.number, int)
    assert isinstance(found.parts, tuple)
    encode(found, None)
