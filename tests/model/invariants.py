"""What must hold in every world, and of every step."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tests.model.folder import choose, on_chain, restorable
from tests.model.world import BINS

if TYPE_CHECKING:
    from tests.model.world import Decider, Follower, Manifest, Store, World


def check(world: World) -> str:
    """What is wrong with a world; empty: nothing."""
    if world.failed:
        return f"the job ended: {world.failed}"
    return judge(world.store, world.deciders, world.follower)


@lru_cache(maxsize=1 << 18)
def judge(store: Store, deciders: tuple[Decider, ...], follower: Follower | None) -> str:
    """What is outside of the nodes: many worlds share it."""
    found = on_chain(store)
    for manifest in found:
        if wrong := part_of_one_run(manifest):
            return f"I5: {wrong}"
        if not manifest.files <= store.files:
            return f"I3: {manifest.id} counts, and {set(manifest.files - store.files)} is gone"
    for number, decider in enumerate(deciders):
        if len(decider.rows) != decider.boundary:
            return f"I1: decider {number} shows {decider.rows!r} and says {decider.boundary}"
        fixed = [m for m in store.manifests if m.past.startswith(decider.rows)]
        if decider.rows and not fixed:
            return f"I2: no checkpoint has the cuts of {decider.rows!r}, which decider {number} has"
    shown = [decider.rows for decider in deciders]
    if follower is not None:
        if "?" in follower.rows:
            return f"I1: a file is left out: {follower.visible}"
        if deciders and len(follower.rows) > max(len(row) for row in shown):
            return f"I1: the follower shows {follower.rows!r}, the deciders {shown}"
        shown.append(follower.rows)
    longest = max(shown, key=len, default="")
    if not all(longest.startswith(row) for row in shown):
        return f"I1: sinks show different runs: {shown}"
    return restore_from(store, deciders, follower)


def part_of_one_run(manifest: Manifest) -> str:
    """Every bin once, as of one place."""
    if manifest.id.number == 0:
        return ""
    bins = {bin: count for part in manifest.parts for bin, count, _ in part.bins}
    named = sorted(bin for part in manifest.parts for bin, _, _ in part.bins)
    if named != list(BINS):
        return f"{manifest.id} has the bins {named}"
    if any(part.past != manifest.past for part in manifest.parts):
        return f"{manifest.id} has parts of different places"
    if any(bins[bin] != manifest.past.count(bin) for bin in BINS):
        return f"{manifest.id} has {bins} after {manifest.past!r}"
    return ""


def restore_from(store: Store, deciders: tuple[Decider, ...], follower: Follower | None) -> str:
    """If all nodes were lost now, the job could go on."""
    seen = tuple(decider.boundary for decider in deciders)
    leading = max(deciders, key=lambda d: d.boundary).by if deciders else None
    manifest, script, error = choose(store, restorable(store), seen, leading)
    if error:
        return f"I3: nothing to go on from: {error}"
    past = "" if manifest is None else manifest.past
    for decider in deciders:
        if not (past + script).startswith(decider.rows):
            return f"I1: it would go on from {past!r} and {script!r}, {decider.rows!r} is shown"
    if follower is None:
        return ""
    if manifest is None:
        return f"I1: {follower.rows!r} is shown, and it would begin anew" if follower.rows else ""
    if len(follower.visible) > manifest.next_file:
        return f"I1: it would go on from {past!r}, and {follower.visible} is shown"
    files = list(follower.visible) + [""] * (manifest.next_file - len(follower.visible))
    for ready in manifest.ready:
        if ready in follower.hidden:
            files[ready.number] = ready.rows
        elif files[ready.number] != ready.rows:
            return f"I7: {manifest.id} counts on {ready}, which is gone"
    if "".join(files) != past:
        return f"I1: {manifest.id} is at {past!r}, its files have {files}"
    return ""


def check_step(before: World, after: World, label: str) -> str:
    """What was visible stays; a claim that another has followed changes only what that one knows
    of."""
    rows = [decider.rows for decider in before.deciders]
    later = [decider.rows for decider in after.deciders]
    if before.follower is not None and after.follower is not None:
        rows.append(before.follower.rows)
        later.append(after.follower.rows)
    if rows == later:
        return ""
    for old, new in zip(rows, later, strict=True):
        if not new.startswith(old):
            return f"I1: {old!r} was visible, and then {new!r}"
    if "(lost)" in label and before.store.choices:
        claim, start = before.store.choices[-1]
        known = {m.id: m.past for m in before.store.manifests}
        if claim == before.store.claims and start is not None:
            past = known.get(start, "")
            newer = [m.past for m in on_chain(before.store)]
            if not all(any(p.startswith(new) for p in (past, *newer)) for new in later):
                return (
                    f"I4: a node that was replaced shows {later}, claim {claim} began at {past!r}"
                )
    return ""
