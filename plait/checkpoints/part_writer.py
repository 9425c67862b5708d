"""Writes what one node has to save of a checkpoint: chunks, then the part that names them.

Given the part before, a bin whose bytes have not changed is not written again: its old range is
named once more, also where it is only known that the bin did not change (`keep_rest`). So that old
chunks do not live on for a few bins, the bins of a chunk of which less than half is still named are
written anew, and so are those of small chunks when there are many. Names have a random end: a node
that saves a checkpoint twice overwrites nothing.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING

from plait.checkpoints.chunks import CHUNK_BYTES, ChunkWriter, read_bins
from plait.checkpoints.codec import encode
from plait.checkpoints.manifests import BinRef, BlobRef, ChunkRef, Part, PartRef
from plait.checkpoints.paths import chunk_path, part_path
from plait.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from plait.checkpoints.codec import Key
    from plait.checkpoints.manifests import Claim, SinkEntry, SourceEntry
    from plait.checkpoints.store import Store

SMALL_CHUNKS = 64
"""The most chunks of less than half the full size that a part may name."""


class PartWriter:
    """What one node writes of a checkpoint; made by `JobFolder.part_writer`. `part` is what was
    written, after `finish`: the part before of the next checkpoint, once this one is sealed."""

    def __init__(
        self,
        store: Store,
        folder: str,
        key: Key | None,
        claim: Claim,
        number: int,
        rank: int,
        before: Part | None,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        if before is not None and (before.job, before.lineage) != (claim.job, claim.lineage):
            raise StateError(
                f"the part before is of job {before.job!r}, lineage {before.lineage!r}; "
                f"this run is of {claim.job!r}, {claim.lineage!r}"
            )
        self.store, self.folder, self.key = store, folder, key
        self.claim, self.number, self.rank = claim, number, rank
        self.chunk_bytes = chunk_bytes
        self.part: Part | None = None
        self.old_chunks = {} if before is None else {each.path: each for each in before.chunks}
        rewritten = chunks_to_rewrite(before, chunk_bytes) if before is not None else frozenset()
        self.old_bins: dict[tuple[str, int], BinRef] = {}
        self.old_blobs: dict[str, BlobRef] = {}
        if before is not None:
            self.old_bins = {
                (ref.operator, ref.bin): ref for ref in before.bins if ref.chunk not in rewritten
            }
            self.old_blobs = {
                name: ref for name, ref in before.blobs.items() if ref.chunk not in rewritten
            }
        self.before = before
        self.rewritten = rewritten
        self.kept_blobs = {} if before is None else before.blobs
        self.bins: dict[tuple[str, int], BinRef] = {}
        self.blobs: dict[str, BlobRef] = {}
        self.chunks: dict[str, ChunkRef] = {}
        self.written_bytes = 0
        self.begin_chunk()

    def begin_chunk(self) -> None:
        self.chunk = ChunkWriter(self.claim, self.number, self.rank)
        count = len(self.chunks)
        random = secrets.token_hex(4)
        self.path = chunk_path(self.claim.attempt, self.number, self.rank, count, random)

    def add(self, operator: str, bin: int, data: bytes) -> None:
        """The state of a bin, as of the mark. Each is given once; those left out are empty."""
        place = (operator, bin)
        if place in self.bins:
            raise StateError(f"bin {bin} of {operator} was given twice")
        digest = hashlib.sha256(data).digest()
        old = self.old_bins.get(place)
        if old is not None and (old.size, old.digest) == (len(data), digest):
            self.bins[place] = old
            self.name_again(old.chunk)
            return
        at = self.chunk.add(operator, bin, data, digest)
        self.bins[place] = BinRef(
            operator=operator, bin=bin, chunk=self.path, at=at, size=len(data), digest=digest
        )
        self.write_if_full()

    def keep_rest(self, operator: str, gone: Container[int]) -> None:
        """The bins of the operator that the part before has and that were not given are as they
        were there; but those that are gone are empty now."""
        again: list[BinRef] = []
        for ref in () if self.before is None else self.before.bins:
            if ref.operator != operator or ref.bin in gone or (operator, ref.bin) in self.bins:
                continue
            if ref.chunk in self.rewritten:
                again.append(ref)
            else:
                self.bins[operator, ref.bin] = ref
                self.name_again(ref.chunk)
        for found, data in read_bins(self.store, self.folder, again):
            assert isinstance(found, BinRef)
            self.add(operator, found.bin, data)

    def add_blob(self, name: str, data: bytes) -> None:
        """Other bytes under a name."""
        if name in self.blobs:
            raise StateError(f"the blob {name} was given twice")
        digest = hashlib.sha256(data).digest()
        old = self.old_blobs.get(name)
        if old is not None and (old.size, old.digest) == (len(data), digest):
            self.blobs[name] = old
            self.name_again(old.chunk)
            return
        at = self.chunk.add(name, -1, data, digest)
        self.blobs[name] = BlobRef(chunk=self.path, at=at, size=len(data), digest=digest)
        self.write_if_full()

    def keep_blob(self, name: str) -> None:
        """A blob of the part before, as it was there."""
        if name not in self.kept_blobs:
            raise StateError(f"the part before has no blob {name}")
        self.blobs[name] = self.kept_blobs[name]
        self.name_again(self.blobs[name].chunk)

    def name_again(self, chunk: str) -> None:
        self.chunks.setdefault(chunk, self.old_chunks[chunk])

    def write_if_full(self) -> None:
        if self.chunk.data_bytes >= self.chunk_bytes:
            self.write_chunk()

    def write_chunk(self) -> None:
        pieces = self.chunk.pieces()
        size = sum(map(len, pieces))
        self.store.write(f"{self.folder}/{self.path}", pieces)
        self.written_bytes += size
        self.chunks[self.path] = ChunkRef(
            path=self.path, size_bytes=size, data_bytes=self.chunk.data_bytes
        )
        self.begin_chunk()

    def finish(
        self,
        *,
        epoch: int,
        sources: Sequence[SourceEntry] = (),
        sinks: Sequence[SinkEntry] = (),
        counts: Mapping[str, Sequence[int]] | None = None,
        letters: int = 0,
    ) -> PartRef:
        """Writes the rest and the part. The checkpoint may be sealed with what this returns."""
        if self.part is not None:
            raise StateError("the part is finished already")
        if self.chunk.entries:
            self.write_chunk()
        part = Part(
            number=self.number,
            attempt=self.claim.attempt,
            rank=self.rank,
            epoch=epoch,
            bins=tuple(self.bins.values()),
            blobs=dict(self.blobs),
            sources=tuple(sources),
            sinks=tuple(sinks),
            counts={operator: tuple(each) for operator, each in (counts or {}).items()},
            letters=letters,
            lineage=self.claim.lineage,
            chunks=tuple(self.chunks.values()),
            job=self.claim.job,
        )
        data = encode(part, self.key)
        path = part_path(self.claim.attempt, self.number, self.rank, secrets.token_hex(4))
        self.store.write(f"{self.folder}/{path}", [data])
        self.written_bytes += len(data)
        self.part = part
        digest = hashlib.sha256(data).digest()
        return PartRef(rank=self.rank, path=path, digest=digest, size_bytes=len(data))


def chunks_to_rewrite(part: Part, chunk_bytes: int) -> frozenset[str]:
    """The chunks of a part whose bins are written anew: those mostly dead, and the smallest of the
    small ones if there are too many."""
    named: dict[str, int] = {}
    for ref in part.refs:
        named[ref.chunk] = named.get(ref.chunk, 0) + ref.size
    dead = {each.path for each in part.chunks if 2 * named.get(each.path, 0) < each.data_bytes}
    small = sorted(
        (each.data_bytes, each.path)
        for each in part.chunks
        if each.path not in dead and 2 * each.data_bytes < chunk_bytes
    )
    excess = small[: max(0, len(small) - SMALL_CHUNKS)]
    return frozenset(dead.union(path for _, path in excess))
