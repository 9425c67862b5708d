"""The folder of one job on a store: the one door for runs.

A run locks the folder, claims an attempt, reads what there is, chooses where it goes on, and from
then on writes parts and seals manifests. `folder_reader.py` has what reads.

    >>> import tempfile
    >>> folder = JobFolder(open_store(tempfile.mkdtemp()), "carts")
    >>> claim = folder.claim(None)
    >>> writer = folder.part_writer(claim, number=1, rank=0, before=None)
    >>> writer.add("count(user)", 3, b"state")
    >>> first = Manifest(job="carts", lineage=claim.lineage, attempt=1, number=1, parent=None,
    ...                  epoch=10, parts=(writer.finish(epoch=10),))
    >>> folder.seal(first)
    >>> list(folder.read_bins(folder.read(1)))
    [('count(user)', 3, b'state')]
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from plait.checkpoints import claims, paths
from plait.checkpoints.chunks import CHUNK_BYTES
from plait.checkpoints.codec import decode, encode, most_bytes
from plait.checkpoints.folder_reader import FolderReader
from plait.checkpoints.manifests import Beat, Claim, Manifest, ManifestId, Part, Retired
from plait.checkpoints.owners import Heart, Sign, describe, is_in_use
from plait.checkpoints.part_writer import PartWriter
from plait.checkpoints.retention import Kept, plan_deletions
from plait.checkpoints.store import StoreFailed, open_store
from plait.errors import StateError

if TYPE_CHECKING:
    from plait.checkpoints.codec import Key
    from plait.checkpoints.manifests import Owner
    from plait.checkpoints.paths import Contents
    from plait.checkpoints.store import Lock, Store

__all__ = ["JobFolder", "Manifest", "Overtaken", "PartWriter", "StoreFailed", "open_store"]


class InUse(StateError):
    """Another run that lives has the folder."""


class JobFolder(FolderReader):
    """The checkpoints of a job, to go on with. Every method raises a StateError for what is
    damaged, missing or of another job; `StoreFailed`, one of these, if the store is full or away.
    """

    def __init__(self, store: Store, job: str, key: Key | None = None) -> None:
        super().__init__(store, job, key)
        self.held: Lock | None = None
        self.mine: Claim | None = None
        self.heart: Heart | None = None

    def __enter__(self) -> Self:
        self.lock()
        return self

    def __exit__(self, *raised: object) -> None:
        self.unlock()

    def lock(self) -> None:
        """Locks a local folder for this run; a second run on it is refused while it is held."""
        if not self.try_to_lock():
            found = claims.newest(self.store, self.folder, self.key)
            raise self.in_use(None if found is None else found.owner)

    def try_to_lock(self) -> bool:
        if self.held is None:
            self.held = self.store.lock(self.full("lock"))
        return self.held is not None

    def unlock(self) -> None:
        """Leaves the folder to others, as the end of the process would."""
        heart, self.heart = self.heart, None
        if heart is not None:
            heart.stop()
        held, self.held = self.held, None
        if held is not None:
            held.close()

    def leave(self) -> None:
        """As `unlock`, in good order: who comes next need not look whether somebody is here."""
        owner = None if self.mine is None else self.mine.owner
        self.unlock()
        if self.mine is not None and owner is not None and (owner.node or not owner.locked):
            with contextlib.suppress(StateError):  # then they look
                self.write_beat(Beat(attempt=self.mine.attempt, ended=True))

    def claim(self, lineage: str | None, owner: Owner | None = None) -> Claim:
        """The next attempt, for this run alone. None: the lineage of the folder, or a new one.
        A lineage that is given must be that of the folder, if there is one. `owner`: who it is
        for; `InUse` if another run lives in the folder."""
        if owner is not None:
            owner = self.take_place(owner)
        self.mine = claims.take(self.store, self.folder, self.job, lineage, self.key, owner)
        self.known_lineage = self.mine.lineage
        if owner is not None and not owner.locked:
            self.heart = Heart(self.write_beat, self.mine.attempt)
        self.store.sweep(self.folder)
        return self.mine

    def take_place(self, owner: Owner) -> Owner:
        """The owner as it will be in the claim, if the folder is free for it."""
        if self.heart is not None:
            self.heart.stop()
            self.heart = None
        locked = self.try_to_lock() and self.store.exclusive
        if self.store.exclusive and not locked:
            found = claims.newest(self.store, self.folder, self.key)
            if found is None or found.owner is None or found.owner.run != owner.run:
                raise self.in_use(None if found is None else found.owner)
        else:
            other = is_in_use(self.look, owner.run, locked=locked)
            if other is not None:
                self.unlock()
                raise self.in_use(other)
        return replace(owner, locked=locked)

    def look(self) -> Sign:
        found = claims.newest(self.store, self.folder, self.key)
        if found is None or found.owner is None:
            return Sign(attempt=0, owner=None, beat=None)
        path = self.full(paths.beat_path(found.attempt))
        try:
            beat = decode(self.store.read(path, claims.CLAIM_BYTES), Beat, self.key, path)
        except StoreFailed:
            raise
        except StateError:  # there is none yet, or it is just being written
            beat = None
        return Sign(attempt=found.attempt, owner=found.owner, beat=beat)

    def write_beat(self, beat: Beat) -> None:
        self.store.write(self.full(paths.beat_path(beat.attempt)), [encode(beat, self.key)])

    def in_use(self, owner: Owner | None) -> InUse:
        who = "another run" if owner is None else describe(owner)
        return InUse(
            f"the checkpoints of job {self.job!r} in {self.store!r} are in use by {who};"
            " stop it first, or give this one another folder or name"
        )

    def describe_owner(self) -> str:
        """Whose the newest attempt is, in words."""
        try:
            found = claims.newest(self.store, self.folder, self.key)
        except StateError:
            found = None
        return "another run" if found is None or found.owner is None else describe(found.owner)

    def is_current(self, claim: Claim) -> bool:
        """Whether no higher attempt is there."""
        return claims.list_attempts(self.store, self.folder).attempt <= claim.attempt

    def check_current(self, claim: Claim) -> None:
        if not self.is_current(claim):
            raise StateError(
                f"a newer run of job {self.job!r} has taken over from attempt {claim.attempt}:"
                f" {self.describe_owner()}"
            )

    def choose(self, claim: Claim, start: ManifestId | None) -> None:
        """Notes that the attempt goes on from `start` (None: from the beginning). To be called
        before sinks are opened: from then on no manifest that an older attempt seals late counts.
        Raises if a higher attempt is there. `seal` does it for an attempt that has not."""
        found = claims.list_attempts(self.store, self.folder).choices
        if claim.attempt in found and found[claim.attempt] != start:
            raise StateError(f"attempt {claim.attempt} goes on from {found[claim.attempt]} already")
        self.store.write(
            self.full(paths.choice_path(claim.attempt, start)), [encode(claim, self.key)]
        )
        self.check_current(claim)

    def part_writer(
        self,
        claim: Claim,
        number: int,
        rank: int,
        before: Part | None = None,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> PartWriter:
        """Writes what a node has to save. `before`: the part it wrote of the last sealed
        checkpoint, so that bins that did not change are not written again."""
        store, folder, key = self.store, self.folder, self.key
        return PartWriter(store, folder, key, claim, number, rank, before, chunk_bytes)

    def seal(self, manifest: Manifest) -> None:
        """Makes a checkpoint whole. It may be repeated. Refused if a part or a chunk is missing, if
        a newer attempt is there, or if the manifest does not follow the chain."""
        claim = Claim(job=self.job, lineage=manifest.lineage, attempt=manifest.attempt)
        self.check_owner(f"the manifest of {manifest.id}", manifest.job, manifest.lineage)
        self.check_current(claim)
        contents = self.contents()
        data = encode(manifest, self.key)
        if manifest.name:
            self.check_name(manifest, contents, data)
        path = paths.manifest_path(manifest.id)
        if not self.is_there(path, manifest, contents, data):
            self.check_place(manifest, contents)
            self.check(manifest, contents)
            if manifest.attempt not in contents.choices:
                self.choose(claim, manifest.parent)
            self.put_once(path, data)
        if manifest.name and manifest.name not in contents.savepoints:
            self.put_once(paths.savepoint_path(manifest.name), data)

    def is_there(self, path: str, manifest: Manifest, contents: Contents, data: bytes) -> bool:
        """Whether the same manifest was sealed before. One that was torn is written again."""
        if manifest.id not in contents.manifests:
            return False
        there = self.store.read(self.full(path), most_bytes())
        if there == data:
            return True
        try:
            decode(there, Manifest, self.key, path)
        except StateError:
            self.store.delete(self.full(path))
            return False
        raise StateError(
            f"{manifest.id} of job {self.job!r} is sealed already, with other contents"
        )

    def check_name(self, manifest: Manifest, contents: Contents, data: bytes) -> None:
        path = paths.savepoint_path(manifest.name)
        if manifest.name not in contents.savepoints:
            return
        if self.store.read(self.full(path), most_bytes()) != data:
            raise StateError(f"job {self.job!r} has a savepoint {manifest.name!r} already")

    def last_of(self, claim: Claim) -> ManifestId | None:
        """The newest checkpoint that the attempt has sealed, or what it goes on from. A seal that
        failed may have come through all the same: this tells."""
        contents = self.contents()
        own = [id for id in contents.manifests if id.attempt == claim.attempt]
        return max(own, default=contents.choices.get(claim.attempt))

    def check_place(self, manifest: Manifest, contents: Contents) -> None:
        """Refuses a manifest that does not follow the newest one of its attempt, or what the
        attempt goes on from."""
        own = [
            id for id in contents.manifests if id.attempt == manifest.attempt and id != manifest.id
        ]
        start = contents.choices.get(manifest.attempt, manifest.parent)
        before = max(own, default=start)
        if manifest.parent == before and (before is None or manifest.number > before.number):
            return
        words = (
            f"{manifest.id} follows {manifest.parent or 'nothing'}; the last one of job "
            f"{self.job!r} that counts is {before or 'none'}"
        )
        if before in own and manifest.parent in (start, *own):
            raise Overtaken(f"{words}, which was given up and is there after all")
        raise StateError(words)

    def put_once(self, path: str, data: bytes) -> None:
        try:
            if self.store.create(self.full(path), data):
                return
        except StoreFailed:
            # The answer may have been lost, and the file be there.
            with contextlib.suppress(StateError):
                if self.store.read(self.full(path), most_bytes()) == data:
                    return
            raise
        if self.store.read(self.full(path), most_bytes()) != data:
            raise StateError(f"{path} of job {self.job!r} was written by somebody else")

    def retire(self, keep: int) -> Retired:
        """Deletes what neither the newest `keep` checkpoints nor any savepoint needs. It may stop
        anywhere and be called again."""
        contents = self.contents()
        kept: list[Kept] = []
        staying: list[Manifest] = []
        for id in paths.chain(contents):
            if len(kept) >= max(1, keep):
                break
            try:
                manifest, parts = self.load(id, contents)
            except StoreFailed:
                raise
            except StateError:
                continue
            kept.append(needs(manifest, parts))
            staying.append(manifest)
        try:
            loaded = [self.load_savepoint(name, contents) for name in contents.savepoints]
        except StoreFailed:
            raise
        except StateError as error:
            return Retired(kept_because=f"nothing is deleted while a savepoint is damaged: {error}")
        if self.mine is not None:
            self.check_current(self.mine)
        named = [needs(*each) for each in loaded]
        doomed = plan_deletions(contents, kept, named)
        for path in doomed.paths:
            self.store.delete(self.full(path))
        return Retired(
            manifests=len(doomed.manifests),
            parts=len(doomed.parts),
            chunks=len(doomed.chunks),
            size_bytes=sum(contents.sizes[path] for path in doomed.paths),
            kept=(*staying, *(manifest for manifest, _ in loaded)),
        )


class Overtaken(StateError):
    """A checkpoint that was given up is there after all, so the next one cannot follow the one
    before it. Whoever goes back to a checkpoint finds all in order."""


def needs(manifest: Manifest, parts: list[Part]) -> Kept:
    """The files that a manifest names."""
    chunks = {each.path for part in parts for each in part.chunks}
    return Kept(id=manifest.id, files=frozenset(chunks.union(ref.path for ref in manifest.parts)))
