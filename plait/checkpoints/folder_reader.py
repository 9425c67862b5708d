"""Reads the folder of one job: manifests, savepoints, parts, bins. Writes nothing.

Everything that is read is checked, and refused as a whole with a StateError if a byte of it is
wrong. A manifest counts if it is on the chain (`paths.chain`), is undamaged, and has all its parts
and chunks.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from plait.checkpoints import claims, paths
from plait.checkpoints.chunks import read_bins, read_index
from plait.checkpoints.codec import decode, key_of, most_bytes
from plait.checkpoints.manifests import BinRef, Manifest, ManifestId, ManifestInfo, Part
from plait.checkpoints.store import StoreFailed
from plait.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from plait.checkpoints.codec import Key
    from plait.checkpoints.manifests import BlobRef, PartRef
    from plait.checkpoints.paths import Contents
    from plait.checkpoints.store import Store


class FolderReader:
    """The checkpoints of a job, to look at. `key` is that of PLAIT_CHECKPOINT_KEY unless given."""

    def __init__(self, store: Store, job: str, key: Key | None = None) -> None:
        self.store = store
        self.job = job
        self.folder = paths.folder_of(job)
        self.key = key if key is not None else key_of()
        self.known_lineage: str | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.store!r}, {self.job!r})"

    def manifests(self) -> list[ManifestInfo]:
        """The checkpoints that can be restored, newest first. Why others cannot is told by the one
        after them in `passed_over`. If there are some and none can be restored it raises: a job
        that has state must not begin without it."""
        contents = self.contents()
        on_chain = paths.chain(contents)
        reasons = off_chain(contents, on_chain)
        found: list[ManifestInfo] = []
        for id in on_chain:
            try:
                manifest, _ = self.load(id, contents)
            except StoreFailed:
                raise
            except StateError as error:
                reasons.append(f"{id} is refused: {error}")
                continue
            found.append(info_of(manifest, contents.manifests[id], tuple(reasons)))
            reasons = []
        expected = contents.choices.get(max(contents.choices, default=0))
        if not found and (on_chain or expected is not None):
            told = "; ".join(reasons) or f"{expected} is not there"
            raise StateError(f"no checkpoint of job {self.job!r} can be restored: {told}")
        return found

    def savepoints(self) -> list[ManifestInfo]:
        """The savepoints that can be restored, newest first. A damaged one is refused by `read`."""
        contents = self.contents()
        found: list[ManifestInfo] = []
        for name, path in contents.savepoints.items():
            try:
                manifest, _ = self.load_savepoint(name, contents)
            except StoreFailed:
                raise
            except StateError:
                continue
            found.append(info_of(manifest, path, ()))
        return sorted(found, key=lambda info: (info.attempt, info.number, info.name), reverse=True)

    def read(self, which: int | str | ManifestId) -> Manifest:
        """A checkpoint by its number, or a savepoint by its name. The number may be that of a
        savepoint, too: the checkpoint itself may be gone by then."""
        contents = self.contents()
        if isinstance(which, str):
            return self.load_savepoint(which, contents)[0]
        for id in paths.chain(contents):
            if which in (id, id.number):
                return self.load(id, contents)[0]
        named = [info.name for info in self.savepoints() if which in (info.id, info.number)]
        if named:
            return self.load_savepoint(named[0], contents)[0]
        there = ", ".join(str(id.number) for id in reversed(paths.chain(contents))) or "none"
        raise StateError(f"job {self.job!r} has no checkpoint {which}; there are: {there}")

    def newest_number(self) -> int:
        """No checkpoint of the job has a higher number, whether it counts or not; 0: none."""
        numbers = [id.number for id in self.contents().manifests]
        return max([*numbers, *(info.number for info in self.savepoints())], default=0)

    def load_savepoint(self, name: str, contents: Contents) -> tuple[Manifest, list[Part]]:
        path = paths.savepoint_path(name)
        if name not in contents.savepoints:
            there = ", ".join(sorted(contents.savepoints)) or "none"
            raise StateError(f"job {self.job!r} has no savepoint {name!r}; there are: {there}")
        manifest = self.read_manifest(path)
        if manifest.name != name:
            raise StateError(f"{path} is the savepoint {manifest.name!r}, not {name!r}")
        return manifest, self.check(manifest, contents)

    def load(self, id: ManifestId, contents: Contents) -> tuple[Manifest, list[Part]]:
        """A checkpoint and its parts, if all of it is there and right."""
        path = contents.manifests[id]
        manifest = self.read_manifest(path)
        if manifest.id != id:
            raise StateError(f"{path} is {manifest.id}, not {id}")
        return manifest, self.check(manifest, contents)

    def read_manifest(self, path: str) -> Manifest:
        """A manifest of this job and lineage; its parts are not looked at."""
        manifest = decode(self.store.read(self.full(path), most_bytes()), Manifest, self.key, path)
        self.check_owner(path, manifest.job, manifest.lineage)
        return manifest

    def check_owner(self, path: str, job: str, lineage: str) -> None:
        if job != self.job:
            raise StateError(f"{path} is of job {job!r}, not {self.job!r}")
        known = self.lineage()
        if lineage != known:
            raise StateError(f"{path} is of lineage {lineage}; this folder's is {known}")

    def lineage(self) -> str | None:
        """That of the folder, None if it has no claims."""
        if self.known_lineage is None:
            contents = claims.list_attempts(self.store, self.folder)
            self.known_lineage = claims.lineage_of(
                self.store, self.folder, contents, self.job, self.key
            )
        return self.known_lineage

    def check(self, manifest: Manifest, contents: Contents) -> list[Part]:
        """The parts of a manifest, if all of them and all chunks they name are there."""
        parts = [self.read_part(ref) for ref in manifest.parts]
        if len({part.rank for part in parts}) != len(parts):
            raise StateError(f"{manifest.id} has two parts of one node")
        for part in parts:
            if (part.number, part.attempt, part.epoch) != (
                manifest.number,
                manifest.attempt,
                manifest.epoch,
            ):
                raise StateError(f"a part of {manifest.id} is of another checkpoint")
            for chunk in part.chunks:
                size = contents.sizes.get(chunk.path)
                if size is None:
                    raise StateError(f"{chunk.path} is not there")
                if size != chunk.size_bytes:
                    raise StateError(
                        f"{chunk.path} is damaged: it has {size:,} bytes, not {chunk.size_bytes:,}"
                    )
        return parts

    def read_part(self, ref: PartRef) -> Part:
        """What a node wrote."""
        data = self.store.read(self.full(ref.path), most_bytes())
        if len(data) != ref.size_bytes or hashlib.sha256(data).digest() != ref.digest:
            raise StateError(f"{ref.path} is damaged: it is not what the manifest names")
        part = decode(data, Part, self.key, ref.path)
        self.check_owner(ref.path, part.job, part.lineage)
        if part.rank != ref.rank:
            raise StateError(f"{ref.path} is of node {part.rank}, not {ref.rank}")
        sizes = {chunk.path: chunk.size_bytes for chunk in part.chunks}
        for each in part.refs:
            if each.at < 0 or each.size < 0 or each.at + each.size > sizes.get(each.chunk, -1):
                raise StateError(f"{ref.path} names bytes that are in no chunk of it")
        return part

    def read_bins(
        self, manifest: Manifest, wanted: Callable[[str, int], bool] | None = None
    ) -> Iterator[tuple[str, int, bytes]]:
        """The state: operator id, bin and bytes, of the bins that `wanted` says, or all."""
        return self.read_refs(self.bin_refs(manifest, wanted))

    def bin_refs(
        self, manifest: Manifest, wanted: Callable[[str, int], bool] | None = None
    ) -> list[BinRef]:
        """Where the state is."""
        parts = [self.read_part(ref) for ref in manifest.parts]
        refs = [
            ref
            for part in parts
            for ref in part.bins
            if wanted is None or wanted(ref.operator, ref.bin)
        ]
        return without_placeholders(refs, manifest)

    def read_refs(self, refs: Sequence[BinRef]) -> Iterator[tuple[str, int, bytes]]:
        """The state that is there."""
        for ref, data in read_bins(self.store, self.folder, refs):
            assert isinstance(ref, BinRef)
            yield ref.operator, ref.bin, data

    def read_blob(self, ref: BlobRef) -> bytes:
        return next(data for _, data in read_bins(self.store, self.folder, [ref]))

    def verify(self, manifest: Manifest) -> int:
        """Reads all that a manifest names and the index of every chunk; the bytes of its state."""
        contents = self.contents()
        parts = self.check(manifest, contents)
        for path in {chunk.path for part in parts for chunk in part.chunks}:
            read_index(self.store, self.full(path), contents.sizes[path])
        for part in parts:
            for blob in part.blobs.values():
                self.read_blob(blob)
        return sum(len(data) for _, _, data in self.read_bins(manifest))

    def contents(self) -> Contents:
        return paths.sort_files(self.folder, self.store.list(self.folder))

    def full(self, path: str) -> str:
        return f"{self.folder}/{path}"


def info_of(manifest: Manifest, path: str, passed_over: tuple[str, ...]) -> ManifestInfo:
    return ManifestInfo(
        number=manifest.number,
        attempt=manifest.attempt,
        epoch=manifest.epoch,
        finished=manifest.finished,
        name=manifest.name,
        at=manifest.at,
        path=path,
        passed_over=passed_over,
    )


def off_chain(contents: Contents, on_chain: list[ManifestId]) -> list[str]:
    """Why manifests that look newer than the newest one do not count."""
    counted = set(on_chain)
    top = on_chain[0].number if on_chain else -1
    newest = max((*contents.choices, *(id.attempt for id in contents.manifests)), default=0)
    return [
        f"{id} does not count: attempt {newest} had already gone on without it"
        for id in sorted(contents.manifests, reverse=True)
        if id not in counted and id.number >= top
    ]


WITHOUT_TIME = ("keyed", "aggregate")
"""Holders of state that know nothing of time."""


def without_placeholders(refs: list[BinRef], manifest: Manifest) -> list[BinRef]:
    """Each bin once. A node without state of an operator that knows the time writes what it knows
    as a bin without keys, whoever has that bin: the one with most bytes is the state. The others
    say the same of time, since all were written at one mark."""
    timeless = {
        entry.id
        for entry in manifest.operators
        if entry.shape is not None and entry.shape.holder in WITHOUT_TIME
    }
    timed = {entry.id for entry in manifest.operators} - timeless
    found: dict[tuple[str, int], BinRef] = {}
    for ref in refs:
        other = found.get((ref.operator, ref.bin))
        if other is None or (ref.operator in timed and ref.size > other.size):
            found[ref.operator, ref.bin] = ref
        elif ref.operator not in timed:
            raise StateError(f"{manifest.id} has two states of one bin")
    return list(found.values())
