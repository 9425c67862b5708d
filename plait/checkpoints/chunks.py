"""Chunks: the bytes of many bins in one file, written once and never appended to.

A chunk is a header (magic, version, and whose it is), the bins one after the other, an index of
them, and a trailer with the SHA-256 of header and index. The index has the digest of every bin, so
the trailer vouches for all of it. Parts name ranges of chunks with their digests, and what is read
by them needs no index; `read_index` is for those who look at a chunk alone.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plait.checkpoints.manifests import BinRef, BlobRef
from plait.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from plait.checkpoints.manifests import Claim
    from plait.checkpoints.store import Store

MAGIC = b"plaitchk"
VERSION = 1
HEADER = struct.Struct("<8sHH")
"""Magic, version, length of the owner's text."""
TRAILER = struct.Struct("<QQ32s8s")
"""Length of the index, length of the file, SHA-256 of header, owner and index, magic."""
CHUNK_BYTES = 64_000_000
"""A chunk is written when it has so much."""
RANGE_BYTES = 16_000_000
"""Bins that are near each other are read together, up to this much."""
GAP_BYTES = 65_536
"""Near: at most this far apart."""
INDEX_BYTES = 1 << 28

Ref = BinRef | BlobRef


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """A range of a chunk; of a blob `bin` is -1."""

    name: str
    bin: int
    at: int
    size: int
    digest: bytes


class ChunkWriter:
    """Collects the bytes of one chunk. Nothing is written before `pieces` is."""

    def __init__(self, claim: Claim, number: int, rank: int) -> None:
        import msgpack

        owner = msgpack.packb([claim.job, claim.lineage, claim.attempt, number, rank])
        if len(owner) > 0xFFFF:
            raise StateError(f"the name of the job {claim.job[:40]!r}... is too long")
        self.head = HEADER.pack(MAGIC, VERSION, len(owner)) + owner
        self.data: list[bytes] = []
        self.entries: list[IndexEntry] = []
        self.data_bytes = 0

    def add(self, name: str, bin: int, data: bytes, digest: bytes) -> int:
        """Where in the chunk the bytes will be."""
        at = len(self.head) + self.data_bytes
        self.data.append(data)
        self.data_bytes += len(data)
        self.entries.append(IndexEntry(name=name, bin=bin, at=at, size=len(data), digest=digest))
        return at

    def pieces(self) -> list[bytes]:
        """The whole file."""
        import msgpack

        index = msgpack.packb([[e.name, e.bin, e.at, e.size, e.digest] for e in self.entries])
        length = len(self.head) + self.data_bytes + len(index) + TRAILER.size
        digest = hashlib.sha256(self.head + index).digest()
        return [self.head, *self.data, index, TRAILER.pack(len(index), length, digest, MAGIC)]


def read_index(store: Store, path: str, size: int) -> list[IndexEntry]:
    """What is in a chunk of so many bytes, checked but for the data itself."""
    import msgpack

    if size < HEADER.size + TRAILER.size:
        raise StateError(f"{path} is damaged: it has only {size} bytes")
    trailer = store.read_range(path, size - TRAILER.size, TRAILER.size)
    index_bytes, length, digest, magic = TRAILER.unpack(trailer)
    magic_there, version, owner_bytes = HEADER.unpack(store.read_range(path, 0, HEADER.size))
    if magic != MAGIC or magic_there != MAGIC or length != size:
        raise StateError(f"{path} is damaged, or not a chunk of a checkpoint")
    if version != VERSION:
        raise StateError(f"{path} has format {version}; this plait reads format {VERSION}")
    start = HEADER.size + owner_bytes
    if index_bytes > min(INDEX_BYTES, size - TRAILER.size - start):
        raise StateError(f"{path} is damaged: the length of its index is wrong")
    head = store.read_range(path, 0, start)
    end = size - TRAILER.size - index_bytes
    index = store.read_range(path, end, index_bytes)
    if hashlib.sha256(head + index).digest() != digest:
        raise StateError(f"{path} is damaged: its checksum does not match")
    try:
        rows = msgpack.unpackb(index, raw=False)
        entries = [
            IndexEntry(name=name, bin=bin, at=at, size=length, digest=bytes(found))
            for name, bin, at, length, found in rows
        ]
    except Exception as error:  # what msgpack raises is not one class
        raise StateError(f"{path} is damaged: its index cannot be read ({error})") from None
    at = start
    for entry in entries:
        if entry.at != at or not 0 <= entry.size <= end - at:
            raise StateError(f"{path} is damaged: its index names what is not there")
        at += entry.size
    if at != end:
        raise StateError(f"{path} is damaged: it has bytes that its index does not name")
    return entries


def read_bins(store: Store, folder: str, refs: Iterable[Ref]) -> Iterator[tuple[Ref, bytes]]:
    """The bytes that the references name, chunk by chunk, each checked against its digest."""
    by_chunk: dict[str, list[Ref]] = {}
    for ref in refs:
        by_chunk.setdefault(ref.chunk, []).append(ref)
    for chunk, wanted in by_chunk.items():
        path = f"{folder}/{chunk}"
        for together in ranges(sorted(wanted, key=lambda ref: ref.at)):
            start = together[0].at
            end = max(ref.at + ref.size for ref in together)
            data = memoryview(store.read_range(path, start, end - start))
            for ref in together:
                found = bytes(data[ref.at - start : ref.at - start + ref.size])
                if hashlib.sha256(found).digest() != ref.digest:
                    raise StateError(f"{path} is damaged: {what(ref)} does not match its digest")
                yield ref, found


def ranges(refs: list[Ref]) -> Iterator[list[Ref]]:
    """References in the order of their places, those that are read together in one list."""
    together: list[Ref] = []
    start = end = 0
    for ref in refs:
        near = ref.at <= end + GAP_BYTES and ref.at + ref.size - start <= RANGE_BYTES
        if together and not near:
            yield together
            together = []
        if not together:
            start = end = ref.at
        together.append(ref)
        end = max(end, ref.at + ref.size)
    if together:
        yield together


def what(ref: Ref) -> str:
    return f"bin {ref.bin} of {ref.operator}" if isinstance(ref, BinRef) else "a blob"
