"""Stores for the tests: one that fails at the k-th operation, and folders with checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from plait.checkpoints.job_folder import JobFolder
from plait.checkpoints.manifests import Claim, Manifest, ManifestId, Part, PartRef
from plait.checkpoints.store import LocalStore, StoreFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from plait.checkpoints.codec import Key
    from plait.checkpoints.store import Entry, Lock, Store

State = dict[tuple[str, int], bytes]


class FailingStore:
    """A store whose k-th operation fails: before it is done, or, for those that change something,
    after it is done, as when an answer is lost. From then on all fail, as after a crash."""

    def __init__(self, inner: Store, fail_at: int | None = None, *, after: bool = False) -> None:
        self.inner = inner
        self.exclusive = inner.exclusive
        self.fail_at = fail_at
        self.after = after
        self.count = 0

    def step(self, changes: bool, act: Callable[[], object]) -> object:
        number, self.count = self.count, self.count + 1
        if self.fail_at is not None and number >= self.fail_at:
            if number == self.fail_at and self.after and changes:
                act()
            raise StoreFailed(f"operation {number} fails")
        return act()

    def read(self, path: str, most: int) -> bytes:
        return self.step(False, lambda: self.inner.read(path, most))  # type: ignore[return-value]

    def read_range(self, path: str, at: int, size: int) -> bytes:
        return self.step(  # type: ignore[return-value]
            False, lambda: self.inner.read_range(path, at, size)
        )

    def write(self, path: str, data: Sequence[bytes]) -> None:
        self.step(True, lambda: self.inner.write(path, data))

    def create(self, path: str, data: bytes) -> bool:
        return self.step(True, lambda: self.inner.create(path, data))  # type: ignore[return-value]

    def list(self, folder: str) -> list[Entry]:
        return self.step(False, lambda: self.inner.list(folder))  # type: ignore[return-value]

    def delete(self, path: str) -> None:
        self.step(True, lambda: self.inner.delete(path))

    def sweep(self, folder: str) -> None:
        self.step(True, lambda: self.inner.sweep(folder))

    def lock(self, path: str) -> Lock | None:
        return self.inner.lock(path)


class Run:
    """One attempt of a job: what a run does with its folder, on a state of bins."""

    def __init__(self, store: Store, job: str = "carts", key: Key | None = None) -> None:
        self.folder = JobFolder(store, job, key)
        self.claim = self.folder.claim(None)
        self.before: dict[int, Part] = {}
        self.parent: ManifestId | None = None
        self.number = 0

    def restore(self) -> State:
        """Goes on from the newest checkpoint."""
        infos = self.folder.manifests()
        self.parent = infos[0].id if infos else None
        self.number = infos[0].number if infos else 0
        self.folder.choose(self.claim, self.parent)
        return state_of(self.folder, self.parent) if self.parent else {}

    def save(self, states: Mapping[int, State], *, blob: bytes = b"") -> tuple[PartRef, ...]:
        """Writes the parts of the next checkpoint: a state for each node."""
        self.number += 1
        refs: list[PartRef] = []
        self.written: dict[int, Part] = {}
        for rank, state in states.items():
            before = self.before.get(rank)
            writer = self.folder.part_writer(self.claim, self.number, rank, before)
            for (operator, bin), data in state.items():
                writer.add(operator, bin, data)
            if blob:
                writer.add_blob("letters", blob)
            refs.append(writer.finish(epoch=10 * self.number))
            assert writer.part is not None
            self.written[rank] = writer.part
        return tuple(refs)

    def manifest(self, parts: tuple[PartRef, ...], name: str = "") -> Manifest:
        return Manifest(
            job=self.folder.job,
            lineage=self.claim.lineage,
            attempt=self.claim.attempt,
            number=self.number,
            parent=self.parent,
            epoch=10 * self.number,
            name=name,
            parts=parts,
        )

    def checkpoint(self, state: State, name: str = "") -> Manifest:
        """A whole checkpoint of one node."""
        manifest = self.manifest(self.save({0: state}), name)
        self.folder.seal(manifest)
        self.parent, self.before = manifest.id, self.written
        return manifest


def state_of(folder: JobFolder, which: int | str | ManifestId) -> State:
    return {(op, bin): data for op, bin, data in folder.read_bins(folder.read(which))}


def files(store: Store, folder: str = "carts") -> list[str]:
    return [entry.path for entry in store.list(folder)]


def local_run(path: Path, job: str = "carts", key: Key | None = None) -> Run:
    return Run(LocalStore(path), job, key)


def claim_of(job: str = "carts", attempt: int = 1) -> Claim:
    return Claim(job=job, lineage="0123456789abcdef", attempt=attempt)


T = TypeVar("T")


class FlakyStore:
    """A store that can be told to fail, and to work again."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.exclusive = inner.exclusive
        self.verb = self.where = ""
        self.after = False
        self.left = 0
        self.away = False

    def fail(
        self, verb: str, where: str = "", *, after: bool = False, times: int = 1 << 60
    ) -> None:
        """From now on such operations on such paths fail: before they are done, or after it. Then
        nobody can look whether they were: no path of the kind can be read."""
        self.verb, self.where, self.after, self.left = verb, where, after, times
        self.away = False

    def heal(self) -> None:
        self.left = 0

    def step(self, verb: str, path: str, act: Callable[[], T]) -> T:
        if self.where not in path or not self.left:
            return act()
        if verb != self.verb and not (self.away and verb == "read"):
            return act()
        self.left -= 1
        if self.after and verb == self.verb:
            act()
            self.away = True
        raise StoreFailed(f"cannot {verb} {path}: it fails")

    def read(self, path: str, most: int) -> bytes:
        return self.step("read", path, lambda: self.inner.read(path, most))

    def read_range(self, path: str, at: int, size: int) -> bytes:
        return self.step("read", path, lambda: self.inner.read_range(path, at, size))

    def write(self, path: str, data: Sequence[bytes]) -> None:
        self.step("write", path, lambda: self.inner.write(path, data))

    def create(self, path: str, data: bytes) -> bool:
        return self.step("create", path, lambda: self.inner.create(path, data))

    def list(self, folder: str) -> list[Entry]:
        return self.step("list", folder, lambda: self.inner.list(folder))

    def delete(self, path: str) -> None:
        self.step("delete", path, lambda: self.inner.delete(path))

    def sweep(self, folder: str) -> None:
        self.step("sweep", folder, lambda: self.inner.sweep(folder))

    def lock(self, path: str) -> Lock | None:
        return self.inner.lock(path)
