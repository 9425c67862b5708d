"""The states of a Python operator by key and bin, and how its bins move.

One thread at a time. A bin goes out as bytes (copy, take) and comes in as bytes (put). To move it
while its records flow: track it and copy it, put the copy elsewhere, and at the switch take the
difference here and apply it there; the copy is nobody's state until then. A key whose state was
handed to the user's function counts as changed, because the function may change it in place.
Refused bytes raise a StateError and change nothing.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from plait.errors import StateError
from plait.node_runtime.state.bin_bytes import (
    HEADER,
    Key,
    Owner,
    States,
    load_difference,
    load_states,
    pack_bin,
    pack_difference,
    read_head,
)
from plait.node_runtime.state.late_saves import LateSaves

if TYPE_CHECKING:
    from collections.abc import Callable

BYTES_PER_KEY = 64.0
"""The guess while no bin has come or gone."""


class PythonStates:
    """States by bin and key."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.states: dict[int, States] = {}
        self.home: dict[Key, States] = {}
        """The bin's part of `states` in which each key is: a key is hashed once only."""
        self.numbers: dict[int, int] = {}
        """The number of its copy, of each bin that is tracked."""
        self.touched: set[Key] = set()
        """Keys handed out since their bin is tracked, and keys of bins that are not."""
        self.bases: dict[int, int] = {}
        """The number of each copy here whose difference has not come."""
        self.saves = LateSaves(owner)
        """What a checkpoint wants of them."""
        self.bytes_per_key = BYTES_PER_KEY
        self.opener: Callable[[], None] | None = None
        """Opens what the user's function opens, before the first batch."""

    def open_first(self) -> None:
        if self.opener is not None:
            self.opener()
            self.opener = None

    def key_count(self) -> int:
        return len(self.home)

    def bins(self) -> list[int]:
        """The bins that have state."""
        return sorted(bin for bin, states in self.states.items() if states)

    def bin_keys(self, bin: int) -> int:
        return len(self.states.get(bin, ()))

    def bin_bytes(self, bin: int) -> int:
        """About what the bin weighs on the way, guessed from the bins that came or went last."""
        return HEADER.size + int(self.bin_keys(bin) * self.bytes_per_key)

    def copy_bin(self, bin: int) -> bytes:
        """The states of a bin as bytes; the bin stays. If it is tracked, a difference follows."""
        states = self.states.get(bin, {})
        data = pack_bin(states, self.owner, bin=bin, base=self.numbers.get(bin, 0))
        self.learn(len(states), data)
        return data

    def take_bin(self, bin: int) -> bytes:
        """The states of a bin as bytes; the bin is empty afterwards."""
        states = self.states.get(bin, {})
        data = pack_bin(states, self.owner, bin=bin)
        self.learn(len(states), data)
        self.discard_bin(bin)
        return data

    def put_bin(self, data: bytes) -> int:
        """Takes over the states of a bin and returns its number; StateError changes nothing.

        The bytes hold a pickle, which is read only after all checks: take them only from where you
        would take code.
        """
        head = read_head(data, "whole", self.owner)
        if self.states.get(head.bin):
            raise StateError(f"bin {head.bin} has state here already; take it away first")
        if head.bin in self.numbers:
            raise StateError(f"bin {head.bin} is tracked here")
        states = load_states(head)
        self.learn(len(states), data)
        if head.bin in self.states:
            self.saves.forget(self.states[head.bin])
        self.states[head.bin] = states
        self.saves.touch_bin(states)
        self.home.update(dict.fromkeys(states, states))
        self.bases.pop(head.bin, None)
        if head.base:
            self.bases[head.bin] = head.base
        return head.bin

    def waits_for_difference(self, bin: int) -> bool:
        """Whether the bin came as a copy whose difference has not come yet."""
        return bin in self.bases

    def track(self, bin: int) -> None:
        """From now on the keys of the bin that change are remembered."""
        self.numbers[bin] = secrets.randbits(64) | 1
        self.touched.difference_update(self.states.get(bin, ()))

    def untrack(self, bin: int) -> None:
        self.numbers.pop(bin, None)
        if not self.numbers:
            self.touched.clear()

    def copy_difference(self, bin: int) -> bytes:
        """The states that changed since `track`. Tracking ends; the keys stay for `discard_bin`."""
        number = self.numbers.get(bin)
        if number is None:
            raise StateError(f"bin {bin} is not tracked")
        states = self.states.get(bin, {})
        changed = {key: states[key] for key in states.keys() & self.touched}
        data = pack_difference(changed, [], self.owner, bin=bin, base=number)
        self.untrack(bin)
        return data

    def take_difference(self, bin: int) -> bytes:
        """The states that changed since `track`; the bin is empty afterwards."""
        data = self.copy_difference(bin)
        self.discard_bin(bin)
        return data

    def apply_difference(self, data: bytes) -> int:
        """Brings a copy to what the bin was where the difference was taken; returns its number."""
        head = read_head(data, "difference", self.owner)
        base = self.bases.get(head.bin)
        if base is None:
            raise StateError(f"bin {head.bin}: its copy is not here")
        if base != head.base:
            raise StateError(f"bin {head.bin}: the difference is of another copy")
        changed, gone = load_difference(head)
        del self.bases[head.bin]
        states = self.states.setdefault(head.bin, {})
        self.saves.forget(states)
        self.saves.touch_bin(states)
        states.update(changed)
        self.home.update(dict.fromkeys(changed, states))
        for key in gone:
            states.pop(key, None)
            self.home.pop(key, None)
        if self.numbers:
            self.touched.update(changed)
        return head.bin

    def discard_bin(self, bin: int) -> None:
        """Forgets a bin: its keys, its changes, and that it was a copy."""
        self.untrack(bin)
        self.bases.pop(bin, None)
        states = self.states.pop(bin, {})
        self.saves.forget(states)
        for key in states:
            del self.home[key]

    def watches(self) -> bool:
        """Whether `touch` has to be told of the keys of the next batch."""
        return bool(self.numbers) or self.saves.watches(len(self.states))

    def touch(self, key: Key) -> None:
        """The state of a key is handed to the user's function, which may change it."""
        if self.numbers:
            self.touched.add(key)
        part = self.home.get(key)
        if part is not None:
            self.saves.touch(key, part)

    def begin_save(self, number: int, since: int) -> bool:
        """A mark of a checkpoint meets the states: `save` gives the bins as they are now. Whether
        they are only those that changed since the checkpoint `since`."""
        return self.saves.begin(number, since, self.states)

    def save(self, seconds: float) -> tuple[list[tuple[int, bytes]], bool]:
        """Some of the bins as they were at the mark, and whether they were the last; without bytes:
        it is empty."""
        return self.saves.save(seconds)

    def learn(self, keys: int, data: bytes) -> None:
        if keys:
            self.bytes_per_key = (len(data) - HEADER.size) / keys
