"""What a checkpoint is, as plain data: a manifest names parts, a part names bins in chunks.

A manifest is the small file that makes a checkpoint whole: once it is sealed the checkpoint counts,
and before that nothing of it does. Every reference carries the size and the SHA-256 of what it
names, so a manifest that was read right vouches for every byte under it. Fields are added at the
end and with a default, so that older files can still be read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, order=True)
class ManifestId:
    """A sealed checkpoint: its number, and the attempt that sealed it.

    The number alone is not enough: two attempts that go on from the same checkpoint seal the next
    number each, and only one of the two counts.
    """

    number: int
    attempt: int

    def __str__(self) -> str:
        return f"checkpoint {self.number} of attempt {self.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose a claim is: a run on one machine, or a node of a job on a cluster."""

    run: str
    """The same for all attempts of one life of a job; no two lives have the same."""
    node: str = ""
    host: str = ""
    pid: int = 0
    machine: str = ""
    began: str = ""
    """When the process began, as its machine counts: another one may get its number."""
    since: float = 0.0
    locked: bool = False
    """It holds the lock of the folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """The owner of an attempt lives; or, `ended`, it has left the folder."""

    attempt: int
    count: int = 0
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """The right of one run to write: no other run has this attempt, and none before has a higher
    one."""

    job: str
    lineage: str
    attempt: int
    owner: Owner | None = None

    @property
    def run(self) -> str:
        """Goes into hidden names of sinks."""
        return f"{self.lineage}-{self.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateShape:
    """What the bytes of an operator's bins are, so that they can be read without the job."""

    holder: str
    """Who wrote them: "aggregate" and "timed" are the engine's, "keyed" and "process" Python's."""
    keys: tuple[str, ...] = ()
    key_types: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    """Of the rows in which the engine shows its state: key columns, then values."""
    column_types: tuple[str, ...] = ()
    plan: dict[str, Any] = field(default_factory=dict)
    """What the engine's operator is made from, in plain data (lowering/state_shapes.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorEntry:
    """An operator that keeps state: its stable id, its kind, what its state looks like, and the
    digests of its functions."""

    id: str
    kind: str
    fingerprint: str = ""
    functions: tuple[str, ...] = ()
    shape: StateShape | None = None
    """None in checkpoints from before it was written."""
    version: int = 1
    """Of the state, as the user counts."""
    migrates: bool = False
    """Whether the job can make its version of older ones."""
    was: str = ""
    """The id that it had before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEntry:
    """Where a source stood at the boundary; `position` is plain data of its reader."""

    id: str
    position: Any = None
    rows: int = 0
    input: Any = None
    """Of a source whose records the engine counts: what `position_at` says of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkEntry:
    """What a sink gave for the boundary; `prepared` is plain data of its writer."""

    id: str
    kind: str = "plain"
    prepared: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRef:
    """The part that one node wrote."""

    rank: int
    path: str
    digest: bytes
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BinRef:
    """The state of one bin of an operator: a range of a chunk."""

    operator: str
    bin: int
    chunk: str
    at: int
    size: int
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobRef:
    """Bytes that are not a bin: a range of a chunk."""

    chunk: str
    at: int
    size: int
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRef:
    """A chunk that the bins or blobs of a part are in: its size, and how much of it is data."""

    path: str
    size_bytes: int
    data_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one node wrote of a checkpoint."""

    number: int
    attempt: int
    rank: int
    epoch: int
    bins: tuple[BinRef, ...] = ()
    blobs: dict[str, BlobRef] = field(default_factory=dict)
    sources: tuple[SourceEntry, ...] = ()
    sinks: tuple[SinkEntry, ...] = ()
    counts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    letters: int = 0
    lineage: str = ""
    """Filled in by the writer."""
    chunks: tuple[ChunkRef, ...] = ()
    """The chunks that `bins` and `blobs` name; filled in by the writer."""
    job: str = ""
    """Filled in by the writer."""

    @property
    def refs(self) -> tuple[BinRef | BlobRef, ...]:
        """All ranges of chunks that it names."""
        return (*self.bins, *self.blobs.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A whole checkpoint. `parent` is the one that it follows (None: the first of its lineage);
    `name` is that of a savepoint; `at` is the wall clock in seconds; `finished`: the sources have
    ended, and there is nothing to go on with."""

    job: str
    lineage: str
    attempt: int
    number: int
    parent: ManifestId | None
    epoch: int
    finished: bool = False
    name: str = ""
    at: float = 0.0
    version: str = ""
    bin_bits: int = 0
    operators: tuple[OperatorEntry, ...] = ()
    sources: tuple[SourceEntry, ...] = ()
    sinks: tuple[SinkEntry, ...] = ()
    counts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    letters: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    parts: tuple[PartRef, ...] = ()

    @property
    def id(self) -> ManifestId:
        return ManifestId(self.number, self.attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestInfo:
    """A checkpoint that can be restored, in short. `passed_over`: why the checkpoints between it
    and the next newer one that can be restored do not count, one sentence each."""

    number: int
    attempt: int
    epoch: int
    finished: bool
    name: str
    at: float
    path: str
    passed_over: tuple[str, ...] = ()

    @property
    def id(self) -> ManifestId:
        return ManifestId(self.number, self.attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retired:
    """What retention deleted: files by kind, and bytes. `kept_because`: not everything that looked
    old was deleted, in words. `kept`: the checkpoints that stay, savepoints too."""

    manifests: int = 0
    parts: int = 0
    chunks: int = 0
    size_bytes: int = 0
    kept_because: str = ""
    kept: tuple[Manifest, ...] = ()
