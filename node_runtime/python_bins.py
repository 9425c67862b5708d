"""One bin of Python states as bytes: a header that can be checked, then a pickle.

The header says what the bytes are (magic, version), whose they are (fingerprint of the operator's
kind and key types, bits of the bin number) and whether they are whole (length, CRC-32). Nothing is
unpickled before all of it is found right, because loading a pickle runs code.
"""

from __future__ import annotations

import pickle
import struct
import zlib
from typing import Any

from plait.errors import StateError

MAGIC = b"PLP1"
VERSION = 1
HEADER = struct.Struct("<4sHHQQQQI")
"""magic, version, bin bits, fingerprint, bin, number of keys, length and CRC-32 of the payload."""

States = dict[tuple[Any, ...], Any]


def pack_bin(states: States, *, bin: int, bin_bits: int, fingerprint: int) -> bytes:
    """The states of a bin as bytes."""
    try:
        payload = pickle.dumps(states, protocol=5)
    except Exception as error:  # a state's own code may raise anything
        raise StateError(f"bin {bin}: a state cannot be pickled: {error}") from error
    fixed = (MAGIC, VERSION, bin_bits, fingerprint, bin, len(states), len(payload))
    start = HEADER.pack(*fixed, 0)[:-4]
    return start + struct.pack("<I", zlib.crc32(payload, zlib.crc32(start))) + payload


def unpack_bin(data: bytes, *, bin_bits: int, fingerprint: int) -> tuple[int, States]:
    """The bin's number and states, or a StateError that says why the bytes are refused."""
    if len(data) < HEADER.size:
        raise StateError(
            f"state of {len(data)} bytes is cut off: the header alone has {HEADER.size}"
        )
    magic, version, bits, print_, bin, count, length, checksum = HEADER.unpack_from(data)
    payload = memoryview(data)[HEADER.size :]
    if magic != MAGIC:
        raise StateError(
            f"these bytes are no state of a Python operator: they start with {magic!r}"
        )
    if version != VERSION:
        raise StateError(f"state has version {version}; this plait reads version {VERSION}")
    if len(payload) != length:
        raise StateError(f"state is cut off: {len(payload)} bytes of {length}")
    if zlib.crc32(payload, zlib.crc32(data[: HEADER.size - 4])) != checksum:
        raise StateError("state is damaged: its checksum is wrong")
    if print_ != fingerprint:
        raise StateError("state is of another operator, or of one with other keys")
    if bits != bin_bits:
        raise StateError(f"state has 2 ** {bits} bins; this operator has 2 ** {bin_bits}")
    try:
        states: States = pickle.loads(payload)
    except Exception as error:  # a class that is gone, or its own code
        raise StateError(f"bin {bin}: its states cannot be loaded: {error}") from error
    if len(states) != count:
        raise StateError(f"bin {bin}: {len(states)} keys of {count}")
    return bin, states
