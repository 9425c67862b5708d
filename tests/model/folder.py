"""What counts in the store, by the product's own decisions: the chain of manifests, and what
retention deletes. The model has the same names of files as the product."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from plait.checkpoints.manifests import ManifestId
from plait.checkpoints.paths import (
    chain,
    choice_path,
    chunk_path,
    claim_path,
    manifest_path,
    part_path,
    sort_files,
)
from plait.checkpoints.retention import Kept, plan_deletions
from plait.checkpoints.store import Entry
from tests.model.world import Id, Manifest

if TYPE_CHECKING:
    from plait.checkpoints.paths import Contents
    from tests.model.world import Store


def contents_of(store: Store) -> Contents:
    paths = [
        *(claim_path(claim) for claim in range(1, store.claims + 1)),
        *(choice_path(claim, real_id(start)) for claim, start in store.choices),
        *(path_of(manifest.id) for manifest in store.manifests),
        *store.files,
    ]
    return sort_files("job", [Entry(path=f"job/{path}", size_bytes=1) for path in paths])


def real_id(id: Id | None) -> ManifestId | None:
    return None if id is None else ManifestId(id.number, id.claim)


def path_of(id: Id) -> str:
    return manifest_path(ManifestId(id.number, id.claim))


def name_part(claim: int, number: int, rank: int) -> str:
    return part_path(claim, number, rank, "0")


def name_chunk(claim: int, number: int, rank: int) -> str:
    return chunk_path(claim, number, rank, 0, "0")


@lru_cache(maxsize=1 << 16)
def on_chain(store: Store) -> tuple[Manifest, ...]:
    """The manifests that count, newest first, whole or not."""
    by_id = {manifest.id: manifest for manifest in store.manifests}
    return tuple(by_id[Id(id.number, id.attempt)] for id in chain(contents_of(store)))


@lru_cache(maxsize=1 << 16)
def restorable(store: Store) -> tuple[Manifest, ...]:
    """Those of which all files are there: what `FolderReader.manifests` gives."""
    return tuple(manifest for manifest in on_chain(store) if manifest.files <= store.files)


def doomed(store: Store, keep: int, *, by_number: bool = False) -> tuple[str, ...]:
    """What `JobFolder.retire` deletes, in its order."""
    contents = contents_of(store)
    whose = contents.parts | contents.chunks
    kept = []
    for manifest in restorable(store)[:keep]:
        id = ManifestId(manifest.id.number, manifest.id.claim)
        named = {path for path in manifest.files if whose[path] == id}
        kept.append(Kept(id=id, files=frozenset(named) if by_number else manifest.files))
    return plan_deletions(contents, kept, ()).paths


class Choice(NamedTuple):
    """Where to go on, and which cuts come again; or why not."""

    manifest: Manifest | None = None
    script: str = ""
    error: str = ""


def choose(
    store: Store, found: tuple[Manifest, ...], seen: tuple[int, ...], leading: Id | None
) -> Choice:
    """From the newest checkpoint that is not ahead of any decider. Those that are ahead of it
    suppress what they have, and the cuts of that are in the checkpoint which they showed."""
    newest = found[0] if found else None
    if not seen:
        return Choice(newest)
    least, greatest = min(seen), max(seen)
    if newest is None:
        return Choice() if greatest == 0 else Choice(error=f"{greatest} is delivered")
    # A checkpoint is sealed after the one before it was committed: the sinks are at the newest two.
    near = [manifest for manifest in found[:2] if manifest.epoch <= least]
    if not near:
        return Choice(error=f"deciders are at {seen}, checkpoints at {[m.epoch for m in found]}")
    chosen = near[0]
    if greatest == chosen.epoch:
        return Choice(chosen)
    if len(seen) == 1:
        return Choice(error=f"the decider is at {least}, {chosen.id} at {chosen.epoch}")
    shown = next((m for m in store.manifests if m.id == leading), None)
    if shown is None or not shown.past.startswith(chosen.past) or shown.epoch < greatest:
        return Choice(error=f"the cuts of {chosen.epoch} to {greatest} are gone")
    return Choice(chosen, shown.past[chosen.epoch : greatest])
