"""Which bins of Python states have changed since a mark, and what they were at the mark, written
behind it.

At a mark the bins that have changed since the one before are noted, and nothing is packed. From
then on a bin is packed when its turn comes; a key that is handed to the user's function before that
is put by first, as it was. So the function may change states in place, and what is packed is what
they were at the mark. One thread at a time: the holder of the states.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from plait.errors import StateError
from plait.node_runtime.state import pickling
from plait.node_runtime.state.bin_bytes import pack_bin

if TYPE_CHECKING:
    from plait.node_runtime.state.bin_bytes import Key, Owner, States

PLAIN = frozenset({int, float, str, bytes, bool, type(None)})
"""Values of these classes cannot be changed in place."""


class Absent:
    """Stands for a key that was not there at the mark."""


ABSENT = Absent()


class Packed:
    """A state that was put by."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class LateSaves:
    """The marks of the states of one operator. Bins are known by their dicts: those of a bin that
    leaves are told to `forget`."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.marked = 0
        """The number of the last mark."""
        self.changed: set[int] = set()
        """The ids of the dicts that have changed since."""
        self.had_keys: set[int] = set()
        """The bins that had keys then."""
        self.waiting: dict[int, tuple[int, States, States]] = {}
        """By the id of its dict, of each bin that is to be packed: its number, the dict, and the
        states that were put by."""
        self.packed: list[tuple[int, bytes]] = []

    def watches(self, bins: int) -> bool:
        """Whether `touch` has to be told of keys, if there are so many dicts."""
        return bool(self.waiting) or (self.marked != 0 and len(self.changed) < bins)

    def begin(self, number: int, since: int, states: dict[int, States]) -> bool:
        """A mark; what was to be packed for an older one is forgotten. Whether only the bins that
        changed since the mark `since` are packed; then those that are empty now have no bytes."""
        partial = since != 0 and since == self.marked
        here = {bin: part for bin, part in states.items() if part}
        self.waiting = {
            id(part): (bin, part, {})
            for bin, part in sorted(here.items())
            if not partial or id(part) in self.changed
        }
        self.packed = [(bin, b"") for bin in sorted(self.had_keys - here.keys()) if partial]
        self.had_keys = set(here)
        self.changed = set()
        self.marked = number
        return partial

    def touch(self, key: Key, part: States) -> None:
        """The state of a key is handed out."""
        at = id(part)
        self.changed.add(at)
        if (entry := self.waiting.get(at)) is not None and key not in (put_by := entry[2]):
            state = part.get(key, ABSENT)
            put_by[key] = state if type(state) in PLAIN or state is ABSENT else self.put_by(state)

    def touch_bin(self, part: States) -> None:
        """The bin of this dict came, or is another one now."""
        self.changed.add(id(part))

    def put_by(self, state: Any) -> Any:
        """One that cannot be pickled is found out again when its bin is packed."""
        try:
            return Packed(pickling.dumps(state))
        except Exception:
            return state

    def forget(self, part: States) -> None:
        """The bin of this dict leaves: what a mark wants of it is packed now."""
        if id(part) in self.waiting:
            self.pack(id(part))
        self.changed.discard(id(part))

    def save(self, seconds: float) -> tuple[list[tuple[int, bytes]], bool]:
        """Packs bins for about so long: those that are packed, and whether they were the last."""
        until = time.perf_counter() + seconds
        while self.waiting:
            self.pack(next(iter(self.waiting)))
            if time.perf_counter() >= until:
                break
        packed, self.packed = self.packed, []
        return packed, not self.waiting

    def pack(self, at: int) -> None:
        bin, part, put_by = self.waiting.pop(at)
        states = part
        if put_by:
            states = {
                key: pickling.loads(state.data) if isinstance(state, Packed) else state
                for key, state in (part | put_by).items()
                if state is not ABSENT
            }
        try:
            self.packed.append((bin, pack_bin(states, self.owner, bin=bin)))
        except StateError:
            self.waiting = {}
            raise
