"""The world of the model: a store, sinks, nodes, a coordinator. Frozen, so that it can be hashed.

A record is a letter, that of the source it came from; an epoch has one record. So the string of
all letters so far is everything at once: what the sources gave, where epochs were cut, the state of
the job, and the output that a sequential run has. Two runs that differ are two strings.

Named tuples and not dataclasses: they are hashed in C, which the search does all the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

BINS = "ab"
"""The state of a job: how many records each source gave, in a bin each."""


class Id(NamedTuple):
    """Of a manifest."""

    number: int
    claim: int


class Ready(NamedTuple):
    """A hidden file that only needs its name: `claim` is in its hidden name, `number` in the last
    one."""

    claim: int
    number: int
    rows: str


class Part(NamedTuple):
    """What a node wrote of a checkpoint: of each bin its count, and the chunk that has it."""

    path: str
    past: str
    bins: tuple[tuple[str, int, str], ...]
    ready: tuple[Ready, ...] | None = None
    """What the follower prepared, if it is written at that node ..."""
    next_file: int = 0
    """... and the number of its next file."""


class Manifest(NamedTuple):
    id: Id
    past: str
    parts: tuple[Part, ...]

    @property
    def epoch(self) -> int:
        return len(self.past)

    @property
    def files(self) -> frozenset[str]:
        chunks = {chunk for part in self.parts for _, _, chunk in part.bins}
        return frozenset(chunks | {part.path for part in self.parts})

    @property
    def ready(self) -> tuple[Ready, ...]:
        return next((part.ready for part in self.parts if part.ready is not None), ())

    @property
    def next_file(self) -> int:
        return max((part.next_file for part in self.parts), default=0)


class Store(NamedTuple):
    """The folder of checkpoints."""

    claims: int = 0
    """The highest one."""
    choices: tuple[tuple[int, Id | None], ...] = ()
    """What each claim goes on from."""
    manifests: frozenset[Manifest] = frozenset()
    files: frozenset[str] = frozenset()
    """Parts and chunks, by path."""


class Decider(NamedTuple):
    """Keeps rows and its boundary in one transaction, and refuses claims below the fence."""

    rows: str = ""
    boundary: int = 0
    by: Id | None = None
    """The checkpoint whose output it showed last: its cuts are those of the rows."""
    fence: int = 0


class Follower(NamedTuple):
    """Files: visible ones by number, and hidden ones."""

    visible: tuple[str, ...] = ()
    hidden: frozenset[Ready] = frozenset()

    @property
    def rows(self) -> str:
        return "".join(self.visible)


class Task(NamedTuple):
    """What a node's keeper does, in several steps: `at` is the next one."""

    what: str
    attempt: int
    number: int = 0
    epoch: int = 0
    at: int = 0
    home: bool = False
    bins: str = ""
    """Save, load: those of the node."""
    claim: int = 0
    seen: tuple[int | None, ...] = ()
    """Survey: the boundaries that the deciders told."""
    chosen: Manifest | None = None
    script: str = ""
    found: tuple[Manifest, ...] = ()
    """Survey: the checkpoints that count, newest first. Load: the one to load."""
    parts: tuple[Part, ...] = ()
    doomed: tuple[str, ...] = ()
    """Retire: what goes, in this order."""
    bases: tuple[int, ...] = ()


class Answer(NamedTuple):
    """What reports tell of the last task."""

    what: str
    number: int
    error: str = ""
    """"lost": a newer claim is there. "away": the store was. Anything else ends the job."""
    found: Manifest | None = None
    script: str = ""
    newest: int = 0
    claim: int = 0


class Node(NamedTuple):
    """A process."""

    attempt: int = 0
    claim: int = 0
    past: str = ""
    todo: tuple[Task, ...] = ()
    answer: Answer | None = None
    saved: Part | None = None
    """The last part, and the number of its checkpoint."""
    saved_number: int = 0
    sealed: Part | None = None
    """The last part that is known to be sealed: the next one names again what did not change."""
    parent: Id | None = None
    """The last one that was sealed here, or gone back to."""
    bases: tuple[int, ...] = ()
    """Of each decider: up to here its rows are visible, or suppressed. Only at home."""
    filed: int = 0
    """Up to here the follower's rows are in files."""
    ready: tuple[Ready, ...] = ()
    next_file: int = 0
    lost: bool = False
    """The coordinator counts it as lost. It may come back: a zombie."""


class Coordinator(NamedTuple):
    """What is in the journal, and what reports told since."""

    attempt: int = 1
    phase: str = "survey"
    live: tuple[int, ...] = (0, 1)
    home: int = 0
    restore: Manifest | None = None
    script: str = ""
    """The cuts that come again first."""
    next_number: int = 1
    claim: int = 0
    saving: int = 0
    epoch: int = 0
    """Of the mark of the one in flight."""
    step: str = ""
    told: tuple[tuple[int, Part | None], ...] = ()
    """The nodes that have told of their part, or that they are loaded; not journalled."""
    parts: tuple[Part, ...] = ()


class Left(NamedTuple):
    """How much may still go wrong."""

    kills: int = 0
    freezes: int = 0
    errors: int = 0
    restarts: int = 0
    stale: int = 0


class World(NamedTuple):
    left: Left
    store: Store = Store()
    deciders: tuple[Decider, ...] = ()
    follower: Follower | None = None
    nodes: tuple[Node | None, ...] = (Node(), Node())
    """By rank; None: the process has ended."""
    coordinator: Coordinator = Coordinator()
    failed: str = ""
    """Why the job has ended: nothing that the model does may lead to that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How large a world is searched."""

    checkpoints: int = 2
    attempts: int = 3
    deciders: int = 1
    follower: bool = True
    keep: int = 1
    left: Left


@dataclass(frozen=True, slots=True, kw_only=True)
class Bugs:
    """Mistakes that the search must find."""

    commit_before_seal: bool = False
    survey_before_fence: bool = False
    claim_after_survey: bool = False
    retire_too_early: bool = False
    retire_by_number: bool = False
    """Chunks go with their own checkpoint, whoever names them."""
    progress_apart: bool = False
    """The decider's rows and its boundary are two transactions."""
    suppress_by_rows: bool = False
    script_too_short: bool = False
    absence_is_zero: bool = False
    follower_first: bool = False
    blind_publish: bool = False
    """Looks at the claims before it seals, and not again before it publishes."""
    fence_nobody: bool = False
    """Writers are fenced by a name that has the attempt in it."""
    same_hidden_names: bool = False
    """Hidden files have no attempt in their names."""
    remove_newer: bool = False
    """Whoever opens the follower removes hidden files of all others, newer ones too."""
    go_on_after_doubt: bool = False
    """A checkpoint whose seal failed is forgotten, although it may be there."""


def start(bounds: Bounds) -> World:
    first = Node(attempt=1, todo=(Task("survey", 1),))
    return World(
        left=bounds.left,
        deciders=(Decider(),) * bounds.deciders,
        follower=Follower() if bounds.follower else None,
        nodes=(first, Node(attempt=1)),
    )
