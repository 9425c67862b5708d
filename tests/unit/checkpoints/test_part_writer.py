"""Parts: what did not change is not written again, and old chunks do not live on for little."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plait.checkpoints.chunks import read_index
from plait.checkpoints.manifests import BinRef, ChunkRef, Part
from plait.checkpoints.part_writer import SMALL_CHUNKS, chunks_to_rewrite
from plait.errors import StateError
from tests.unit.checkpoints.stores import Run, State, local_run, state_of

if TYPE_CHECKING:
    from pathlib import Path

    from plait.checkpoints.store import Store


def state(count: int, size: int = 1000, salt: int = 0) -> State:
    return {("count", bin): bytes([bin % 256, salt]) * (size // 2) for bin in range(count)}


def chunk_bytes(run: Run) -> int:
    entries = run.folder.store.list("carts/chunks")
    return sum(entry.size_bytes for entry in entries)


def test_a_bin_that_did_not_change_is_named_again(store: Store) -> None:
    run = Run(store)
    run.restore()
    before = state(100)
    run.checkpoint(before)
    first = {ref.bin: ref for ref in run.before[0].bins}
    run.checkpoint({**before, ("count", 5): b"new"})
    second = {ref.bin: ref for ref in run.before[0].bins}
    assert {bin for bin in first if first[bin] != second[bin]} == {5}
    assert len(run.before[0].chunks) == 2
    assert chunk_bytes(run) < 1.2 * 100 * 1000
    assert state_of(run.folder, 2) == {**before, ("count", 5): b"new"}
    assert state_of(run.folder, 1) == before


def test_a_blob_that_did_not_change_is_named_again(store: Store) -> None:
    run = Run(store)
    run.restore()
    for number in (1, 2):
        manifest = run.manifest(run.save({0: state(1)}, blob=b"x" * 5000))
        run.folder.seal(manifest)
        run.parent, run.before = manifest.id, run.written
        assert len(store.list("carts/chunks")) == 1, number


def test_a_bin_of_the_same_size_with_other_bytes_is_written(store: Store) -> None:
    run = Run(store)
    run.restore()
    run.checkpoint({("count", 1): b"aaaa", ("sum", 1): b"bbbb"})
    run.checkpoint({("count", 1): b"bbbb", ("sum", 1): b"aaaa"})
    assert state_of(run.folder, 2) == {("count", 1): b"bbbb", ("sum", 1): b"aaaa"}


def test_chunks_are_cut_at_their_size(store: Store) -> None:
    run = Run(store)
    writer = run.folder.part_writer(run.claim, 1, 0, None, chunk_bytes=2500)
    whole = state(10)
    for (operator, bin), data in whole.items():
        writer.add(operator, bin, data)
    run.number = 1
    run.folder.seal(run.manifest((writer.finish(epoch=10),)))
    assert writer.part is not None
    assert [chunk.data_bytes for chunk in writer.part.chunks] == [3000, 3000, 3000, 1000]
    assert state_of(run.folder, 1) == whole
    indexed = [
        (entry.name, entry.bin)
        for chunk in writer.part.chunks
        for entry in read_index(store, f"carts/{chunk.path}", chunk.size_bytes)
    ]
    assert indexed == list(whole)


def test_the_bins_of_a_dead_chunk_are_written_anew(tmp_path: Path) -> None:
    run = local_run(tmp_path)
    run.restore()
    whole = state(10)
    run.checkpoint(whole)
    (old,) = (chunk.path for chunk in run.before[0].chunks)
    for changed in range(6):  # six of ten bins are dead after this
        whole[("count", changed)] = bytes([changed]) * 999
        run.checkpoint(whole)
        assert old in {chunk.path for chunk in run.before[0].chunks}
    run.checkpoint(whole)
    assert old not in {chunk.path for chunk in run.before[0].chunks}
    assert state_of(run.folder, run.number) == whole
    run.folder.retire(1)
    assert not (tmp_path / "carts" / old).exists()
    assert run.folder.verify(run.folder.read(run.number)) == sum(map(len, whole.values()))


def test_what_is_written_stays_near_the_state(tmp_path: Path) -> None:
    """After any number of checkpoints the folder has at most some times the state."""
    run = local_run(tmp_path)
    run.restore()
    whole = state(64)
    for number in range(200):
        whole[("count", number * 7 % 64)] = bytes([number]) * 1000
        run.checkpoint(whole)
        run.folder.retire(1)
    assert len(run.before[0].chunks) <= SMALL_CHUNKS + 1
    assert chunk_bytes(run) < 3 * 64 * 1000
    assert state_of(run.folder, 200) == whole


def part_of(chunks: dict[str, tuple[int, int]]) -> Part:
    """A part with chunks of (data bytes, named bytes)."""
    refs = (
        BinRef(operator="o", bin=bin, chunk=path, at=0, size=named, digest=b"")
        for bin, (path, (_, named)) in enumerate(chunks.items())
    )
    sizes = (
        ChunkRef(path=path, size_bytes=data + 100, data_bytes=data)
        for path, (data, _) in chunks.items()
    )
    return Part(number=1, attempt=1, rank=0, epoch=1, bins=tuple(refs), chunks=tuple(sizes))


def test_less_than_half_is_mostly_dead() -> None:
    part = part_of({"half": (1000, 500), "less": (1000, 499), "all": (1000, 1000)})
    assert chunks_to_rewrite(part, 10) == {"less"}


def test_many_small_chunks_are_joined_and_full_ones_are_not() -> None:
    small = {f"small-{size:03}": (size, size) for size in range(1, SMALL_CHUNKS + 4)}
    full = {f"full-{number}": (900, 900) for number in range(100)}
    assert chunks_to_rewrite(part_of({**small, **full}), 1000) == {
        "small-001",
        "small-002",
        "small-003",
    }


def test_a_bin_or_a_blob_is_given_once(tmp_path: Path) -> None:
    run = local_run(tmp_path)
    writer = run.folder.part_writer(run.claim, 1, 0)
    writer.add("count", 1, b"a")
    with pytest.raises(StateError, match="bin 1 of count was given twice"):
        writer.add("count", 1, b"a")
    writer.add_blob("x", b"")
    with pytest.raises(StateError, match="blob x was given twice"):
        writer.add_blob("x", b"")
    writer.finish(epoch=1)
    with pytest.raises(StateError, match="finished already"):
        writer.finish(epoch=1)


def test_a_part_of_another_job_is_not_built_upon(tmp_path: Path) -> None:
    other = local_run(tmp_path, "other")
    other.checkpoint(state(1))
    run = local_run(tmp_path)
    with pytest.raises(StateError, match="the part before is of job 'other'"):
        run.folder.part_writer(run.claim, 1, 0, other.before[0])


def test_two_parts_with_the_same_bin_are_refused(tmp_path: Path) -> None:
    run = local_run(tmp_path)
    run.restore()
    run.folder.seal(run.manifest(run.save({0: state(2), 1: state(1)})))
    with pytest.raises(StateError, match="two states of one bin"):
        list(run.folder.read_bins(run.folder.read(1)))


def test_bins_that_are_known_not_to_have_changed_are_named_again(store: Store) -> None:
    run = Run(store)
    run.restore()
    before = {**state(10), ("sum", 3): b"sum"}
    run.checkpoint(before)
    writer = run.folder.part_writer(run.claim, 2, 0, run.before[0])
    writer.add("count", 4, b"new")
    writer.keep_rest("count", {7})
    run.number = 2
    run.folder.seal(run.manifest((writer.finish(epoch=20),)))
    left = {place: data for place, data in before.items() if place[0] == "count"}
    del left["count", 7]
    assert state_of(run.folder, 2) == {**left, ("count", 4): b"new"}
    assert writer.written_bytes < 2000


def test_bins_of_a_chunk_that_is_mostly_dead_are_read_and_written_again(store: Store) -> None:
    run = Run(store)
    run.restore()
    before = state(10)
    run.checkpoint(before)
    part = run.before[0]
    for number in (2, 3):
        writer = run.folder.part_writer(run.claim, number, 0, part)
        for bin in range(8):
            writer.add("count", bin, bytes([number, bin]) * 500)
        writer.keep_rest("count", ())
        run.number = number
        manifest = run.manifest((writer.finish(epoch=10 * number),))
        run.folder.seal(manifest)
        run.parent = manifest.id
        assert writer.part is not None
        part = writer.part
    assert len(part.chunks) == 1
    fresh = {("count", bin): bytes([3, bin]) * 500 for bin in range(8)}
    assert state_of(run.folder, 3) == {**before, **fresh}
