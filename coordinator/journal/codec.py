"""Facts and states as bytes, without pickle.

Every value says what it is: a dataclass is its name and its fields, a tuple is a tuple again. Only
the classes listed here are ever made, so bytes from anywhere can be decoded safely. A field that is
missing takes its default; a field or a class that is not known is refused, because it was written
by a newer version.
"""

from __future__ import annotations

from array import array
from dataclasses import fields, is_dataclass
from typing import Any

import msgpack

from plait.coordinator.machine import placement, state
from plait.coordinator.machine.checkpoints import records
from plait.coordinator.messages import events, hosts, requests, spec
from plait.errors import StateError
from plait.migration import bins, machine, plan
from plait.protocol import checkpoint_messages, messages, quality
from plait.protocol.bin_maps import Chained

VERSION = 5
"""5: sub-pipelines; 4: checkpoints and attempts; 3: the payload of a job is a key, not bytes. A
journal of an older version is refused: the jobs it tells of have nodes that speak another
protocol."""
SKIPPED = frozenset(("watch", "swept_at", "quality_memory"))
"""Fields that are not written: what was heard is forgotten in a restart."""
PACKED_FROM = 16
"""Tuples of so many small integers are packed: the owners of the bins are the bulk of a state."""


def classes() -> dict[str, type]:
    """Every dataclass that may be in a journal."""
    found: dict[str, type] = {}
    told = (messages, checkpoint_messages, quality, events, hosts, requests, spec)
    for module in (*told, placement, state, records, bins, machine, plan):
        for name, value in vars(module).items():
            if not isinstance(value, type) or not is_dataclass(value):
                continue
            if found.setdefault(name, value) is not value:
                raise StateError(f"two classes are called {name}")
    return found


CLASSES = classes()
NAMES = {value: name for name, value in CLASSES.items()}
FIELDS = {
    value: tuple(one.name for one in fields(value) if one.name not in SKIPPED) for value in NAMES
}


def encode(value: object) -> bytes:
    return bytes(msgpack.packb([VERSION, plain(value)], use_bin_type=True))


def decode(data: bytes) -> Any:
    try:
        version, value = msgpack.unpackb(data, raw=False, strict_map_key=False)
    except Exception as error:
        raise StateError(f"not a record of a journal: {error}") from None
    if version != VERSION:
        raise StateError(f"a record of version {version}; this plait reads version {VERSION}")
    return rich(value)


def plain(value: Any) -> Any:
    """As what msgpack carries: every container becomes a list that begins with its kind."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if isinstance(value, Chained):
        value = value.whole()
    if isinstance(value, tuple):
        if len(value) >= PACKED_FROM and all(type(one) is int for one in value):
            return packed(value)
        return ["t", *map(plain, value)]
    if isinstance(value, dict):
        return ["m", *([plain(key), plain(one)] for key, one in value.items())]
    if isinstance(value, frozenset):
        return ["s", *map(plain, sorted(value))]
    name = NAMES.get(type(value))
    if name is None:
        raise StateError(f"a {type(value).__name__} cannot be journalled")
    return ["d", name, {one: plain(getattr(value, one)) for one in FIELDS[type(value)]}]


def packed(numbers: tuple[int, ...]) -> list[Any]:
    """In 4 bytes each, else in 8, else one by one. Little-endian machines only, like the links."""
    for kind in ("i", "q"):
        try:
            return [kind, array(kind, numbers).tobytes()]
        except OverflowError:
            continue
    return ["t", *numbers]


def rich(value: Any) -> Any:
    if isinstance(value, list):
        match value:
            case ["t", *items]:
                return tuple(map(rich, items))
            case ["i" | "q" as kind, bytes(data)]:
                numbers = array(kind, data)
                return tuple(numbers)
            case ["m", *pairs]:
                return {rich(key): rich(one) for key, one in pairs}
            case ["s", *items]:
                return frozenset(map(rich, items))
            case ["d", str(name), dict(given)]:
                return made(name, {key: rich(one) for key, one in given.items()})
            case _:
                raise StateError(f"a journalled value of an unknown kind: {value[:1]!r}")
    return value


def made(name: str, given: dict[str, Any]) -> Any:
    kind = CLASSES.get(name)
    if kind is None:
        raise StateError(f"a {name} was written by a newer version of plait")
    unknown = given.keys() - set(FIELDS[kind])
    if unknown:
        raise StateError(f"{name}.{min(unknown)} was written by a newer version of plait")
    try:
        return kind(**given)
    except TypeError as error:
        raise StateError(f"a journalled {name} lacks a field: {error}") from None
