"""One bin of Python states as bytes, or what changed in it: a header that can be checked, and the
states: as msgpack where their type was declared (`states_codec`), else as a pickle. The version in
the header says which; states that do not fit their declared type are a pickle, too.

The header says what the bytes are (magic, version), whose they are (fingerprint of the operator's
kind and key types, bits of the bin number), of which copy a difference is (base) and whether they
are whole (length, CRC-32). `read_head` finds all of that right before anything is unpickled,
because loading a pickle runs code.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from typing import Any, Literal

from plait.errors import StateError
from plait.node_runtime.state import pickling
from plait.node_runtime.state.states_codec import StatesCodec, dump_states, load_dumped
from plait.node_runtime.state.typed_values import Unfit

PICKLED, TYPED = 3, 4
"""The versions that there are."""
HEADER = struct.Struct("<4sHHQQQQQI")
"""magic, version, bin bits, fingerprint, bin, base, number of keys, length and CRC-32 of what
follows."""

Kind = Literal["whole", "difference"]
MAGIC: dict[Kind, bytes] = {"whole": b"PLP1", "difference": b"PLD1"}

Key = tuple[Any, ...]
States = dict[Key, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The operator that bytes belong to."""

    bin_bits: int
    fingerprint: int
    codec: StatesCodec | None = field(default=None, compare=False)
    """How its states are written; None: as a pickle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What is known of the bytes before they are loaded."""

    bin: int
    base: int
    """The number of the copy that a difference belongs to; 0: the bin is complete."""
    count: int
    payload: memoryview
    typed: bool = False
    codec: StatesCodec | None = None
    """How those of the operator are written."""


def pack_bin(states: States, owner: Owner, *, bin: int, base: int = 0) -> bytes:
    """The states of a bin as bytes."""
    return pack("whole", states, None, owner, bin, base)


def pack_difference(
    changed: States, gone: list[Key], owner: Owner, *, bin: int, base: int
) -> bytes:
    """What changed in a bin since its copy `base`: new states, and keys that are gone."""
    return pack("difference", changed, gone, owner, bin, base)


def pack(
    kind: Kind, states: States, gone: list[Key] | None, owner: Owner, bin: int, base: int
) -> bytes:
    version, payload = TYPED, typed_payload(states, gone, owner.codec)
    if payload is None:
        version, payload = PICKLED, pickled_payload(states, gone, bin)
    whose = (owner.bin_bits, owner.fingerprint, bin, base)
    count = len(states) + len(gone or ())
    start = HEADER.pack(MAGIC[kind], version, *whose, count, len(payload), 0)[:-4]
    return start + struct.pack("<I", zlib.crc32(payload, zlib.crc32(start))) + payload


def typed_payload(
    states: States, gone: list[Key] | None, codec: StatesCodec | None
) -> bytes | None:
    """None: their type was not declared, or they are not of it."""
    if codec is None:
        return None
    try:
        return dump_states(codec, states, gone)
    except (Unfit, OverflowError, ValueError):  # numbers beyond 64 bits, text that is no text
        return None


def pickled_payload(states: States, gone: list[Key] | None, bin: int) -> bytes:
    try:
        return pickling.dumps(states if gone is None else (states, gone))
    except Exception as error:  # a state's own code may raise anything
        raise StateError(f"bin {bin}: a state cannot be pickled: {error}") from error


def read_head(data: bytes, kind: Kind, owner: Owner) -> Head:
    """The head of bytes that are whole and belong to the operator, or a StateError says why not."""
    if len(data) < HEADER.size:
        raise StateError(
            f"state of {len(data)} bytes is cut off: the header alone has {HEADER.size}"
        )
    magic, version, bits, print_, bin, base, count, length, crc = HEADER.unpack_from(data)
    payload = memoryview(data)[HEADER.size :]
    if magic not in MAGIC.values():
        raise StateError(
            f"these bytes are no state of a Python operator: they start with {magic!r}"
        )
    if magic != MAGIC[kind]:
        raise StateError(f"these bytes are not the {kind} state of a bin")
    if version not in (PICKLED, TYPED):
        raise StateError(f"state has version {version}; this plait reads {PICKLED} and {TYPED}")
    if len(payload) != length:
        raise StateError(f"state is cut off: {len(payload)} bytes of {length}")
    if zlib.crc32(payload, zlib.crc32(data[: HEADER.size - 4])) != crc:
        raise StateError("state is damaged: its checksum is wrong")
    if print_ != owner.fingerprint:
        raise StateError("state is of another operator, or of one with other keys")
    if bits != owner.bin_bits:
        raise StateError(f"state has 2 ** {bits} bins; this operator has 2 ** {owner.bin_bits}")
    typed = version == TYPED
    return Head(bin=bin, base=base, count=count, payload=payload, typed=typed, codec=owner.codec)


def load_states(head: Head) -> States:
    """The states of a whole bin."""
    states: States = load_typed(head)[0] if head.typed else unpickle(head)
    if len(states) != head.count:
        raise StateError(f"bin {head.bin}: {len(states)} keys of {head.count}")
    return states


def load_difference(head: Head) -> tuple[States, list[Key]]:
    """The states that changed, and the keys that are gone."""
    changed: States
    gone: list[Key]
    changed, gone = load_typed(head) if head.typed else unpickle(head)
    if len(changed) + len(gone) != head.count:
        raise StateError(f"bin {head.bin}: {len(changed) + len(gone)} keys of {head.count}")
    return changed, gone


def load_typed(head: Head) -> tuple[States, list[Key]]:
    try:
        return load_dumped(head.payload, head.codec)
    except StateError as error:
        raise StateError(f"bin {head.bin}: {error}") from None
    except Exception as error:  # a class whose fields raise, or bytes that only look right
        raise StateError(f"bin {head.bin}: its states cannot be loaded: {error}") from error


def unpickle(head: Head) -> Any:
    try:
        return pickling.loads(head.payload)
    except Exception as error:  # a class that is gone, or its own code
        raise StateError(f"bin {head.bin}: its states cannot be loaded: {error}") from error
