"""From which checkpoint a job goes on, and what it has to repeat from there.

A sink's visible output ends at a boundary. Deciders keep theirs (`Sink.survey`): the newest
checkpoint that is not beyond the least of them is restored, and a sink that is further leaves out
what it has delivered. For that the epochs between must have the cuts of before: they are in the
notes of the sink, or in the checkpoint of its boundary, which may have become void. Without a
decider it is the newest checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from plait.checkpoints.cuts import Known, boundary_of, decode_notes, write_script
from plait.checkpoints.retention import age
from plait.checkpoints.starts import Start, to_start
from plait.errors import StateError
from plait.graph.checkpoint_rules import (
    LETTERS,
    deciders,
    letters_decide,
    sink_of,
    sources_before,
)
from plait.node_runtime.host.saving import LETTERS as LETTERS_ID

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.checkpoints.cuts import Cuts, Script
    from plait.checkpoints.job_folder import JobFolder
    from plait.checkpoints.manifests import Manifest, ManifestInfo
    from plait.connectors.base import Delivered
    from plait.graph.operators import Graph


CUTS = "cuts"
"""The setting of a manifest that says what the sources put into the epochs since the one before, in
jobs where that may have to be repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Where a job goes on."""

    manifest: Manifest | None
    """None: from the start."""
    delivered: Mapping[int, int] = field(default_factory=dict)
    """Of deciders: the boundary before which all is delivered."""
    script: Script | None = None
    """What the sources repeat."""


class Decider(NamedTuple):
    """A sink that keeps, with its rows, how far it is; that for dead letters may be one."""

    number: int
    id: str
    name: str
    sink: Any
    sources: Sequence[int]
    """Those that reach it."""


def deciders_of(graph: Graph, ids: Sequence[str]) -> list[Decider]:
    found = [
        Decider(
            number,
            ids[number],
            str(graph.operators[number]),
            sink_of(graph, number),
            sources_before(graph, number),
        )
        for number in deciders(graph)
    ]
    if letters_decide(graph):
        name = "the sink for dead letters"
        found.append(Decider(LETTERS, LETTERS_ID, name, graph.dead_letters, graph.sources))
    return found


def lock_out(asked: Sequence[Decider]) -> None:
    """Of several: what an earlier run left open at one may keep another from being read."""
    for decider in asked if len(asked) > 1 else ():
        if hasattr(decider.sink, "lock_out"):
            decider.sink.lock_out()


def choose_manifest(graph: Graph, ids: Sequence[str], folder: JobFolder, start: str = "") -> Chosen:
    """The checkpoint to go on from. The folder is claimed already, so no older run seals another
    one. `start`: see `to_start`."""
    wanted = to_start(start)
    if wanted.kind == "newest" and (again := unfinished_start(folder)) is not None:
        wanted = Start("savepoint", name=again)
    if wanted.kind != "newest":
        return Chosen(manifest=choose_start(graph, ids, folder, wanted))
    found = folder.manifests()
    newest = folder.read(found[0].id) if found else None
    entries = {} if newest is None else {entry.id: entry for entry in newest.sinks}
    surveyed: dict[int, Delivered | None] = {}
    asked = {decider.number: decider for decider in deciders_of(graph, ids)}
    lock_out(list(asked.values()))
    for number, decider in asked.items():
        entry = entries.get(decider.id)
        delivered = decider.sink.survey(None if entry is None else entry.prepared)
        if entry is None and newest is not None and newest.number > 0:
            continue  # the sink is new in the job
        surveyed[number] = delivered
    if not surveyed:
        return Chosen(manifest=newest)
    boundaries = {
        number: 0 if delivered is None else delivered.boundary
        for number, delivered in surveyed.items()
    }
    if newest is None and not any(boundaries.values()):
        return Chosen(manifest=None)
    least = min(boundaries, key=lambda number: boundaries[number])
    info = next((info for info in found if info.epoch <= boundaries[least]), None)
    if info is None:
        raise changed(asked[least].name, boundaries[least], found)
    known = [
        Known(
            sink=asked[number].name,
            boundary=boundary,
            cuts=find_cuts(asked[number].name, surveyed[number], folder, found),
            sources=tuple(ids[source] for source in asked[number].sources),
        )
        for number, boundary in boundaries.items()
        if boundary > info.epoch
    ]
    return Chosen(
        manifest=folder.read(info.id),
        delivered=boundaries,
        script=write_script(known, info.epoch),
    )


def find_cuts(
    sink: str, delivered: Delivered | None, folder: JobFolder, found: Sequence[ManifestInfo]
) -> dict[str, Cuts]:
    """The cuts of the epochs before the boundary of a sink: those it keeps, or those of the
    checkpoint at which it was committed."""
    assert delivered is not None
    boundary = delivered.boundary
    if delivered.notes:
        name = f"{sink}: the notes of its output"
        noted = boundary_of(delivered.notes, name)
        if noted != boundary:
            raise StateError(
                f"{name} are of boundary {noted}, and the output ends at {boundary}; a sink keeps"
                " rows, boundary and notes in one transaction"
            )
        return decode_notes(delivered.notes, name)
    contents = folder.contents()
    # Of the newest attempt: it has repeated whatever was delivered before it.
    for id in sorted(contents.manifests, key=age, reverse=True):
        try:
            manifest = folder.read_manifest(contents.manifests[id])
        except StateError:
            continue  # torn: nothing was committed with it
        if manifest.epoch == boundary and CUTS in manifest.settings:
            return decode_notes(manifest.settings[CUTS], f"{sink}: the cuts of {manifest.id}")
    raise changed(sink, boundary, found)


def changed(sink: str, boundary: int, found: Sequence[ManifestInfo]) -> StateError:
    known = ", ".join(str(info.epoch) for info in found[:2]) or "none"
    return StateError(
        f"{sink}: its output ends at boundary {boundary}, and the newest checkpoints are at"
        f" {known}. The sink or the checkpoints were changed from outside: restore both from one"
        " time, or give the job a new folder and the sink a new target"
    )


def choose_start(
    graph: Graph, ids: Sequence[str], folder: JobFolder, start: Start
) -> Manifest | None:
    """The checkpoint that `start` names, if the sinks that decide are where they were then; None:
    the job begins anew."""
    manifest = None
    if start.kind != "new":
        manifest = folder.read(start.name or start.number)
    anew = manifest is None or manifest.number == 0
    entries = {} if manifest is None else {sink.id: sink for sink in manifest.sinks}
    epoch = 0 if manifest is None else manifest.epoch
    asked = deciders_of(graph, ids)
    lock_out(asked)
    for decider in asked:
        entry = entries.get(decider.id)
        delivered = decider.sink.survey(None if entry is None else entry.prepared)
        boundary = 0 if delivered is None else delivered.boundary
        if boundary != epoch and (entry is not None or anew):
            where = "its beginning" if anew else f"{start}, which is at {epoch}"
            raise StateError(
                f"{decider.name}: its output ends at boundary {boundary}, and the job is to go on"
                f" from {where}: what came between would be delivered twice. Restore the target"
                " from that time, or give the sink another one"
            )
    return manifest


def unfinished_start(folder: JobFolder) -> str | None:
    """The savepoint from which the last run started, if it ended before its first checkpoint and
    the checkpoint itself is no longer kept."""
    contents = folder.contents()
    attempt = max(contents.choices, default=0)
    chosen = contents.choices.get(attempt)
    if chosen is None or chosen in contents.manifests:
        return None
    if any(id.attempt == attempt for id in contents.manifests):
        return None
    return next((info.name for info in folder.savepoints() if info.id == chosen), None)
