"""Manifests, parts and claims as bytes: known classes only, framed, checked before they are
decoded.

A file is a header (magic, version, kind, whether it is signed, length), the SHA-256 of header and
payload, the HMAC of all of it if there is a key, and the payload. Every byte is covered: a flipped
one, a missing one and one too many are refused. With a key nothing without a right HMAC is decoded,
and without a key nothing that is signed. Payloads are msgpack; a dataclass is its name and its
fields in order, so only the classes listed here are ever made.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

from plait.checkpoints.manifests import (
    Beat,
    BinRef,
    BlobRef,
    ChunkRef,
    Claim,
    Manifest,
    ManifestId,
    OperatorEntry,
    Owner,
    Part,
    PartRef,
    SinkEntry,
    SourceEntry,
    StateShape,
)
from plait.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAGIC = b"plaitckp"
VERSION = 1
HEADER = struct.Struct("<8sHBBQ")
"""Magic, version, kind, signed, length of the payload."""
DIGEST = 32
MOST_BYTES = 1 << 28
"""The longest payload that is read: 256 MB, a part of some million bins."""
DEPTH = 64
"""The deepest nesting of a position, a prepared value or a setting."""
KEY_VARIABLE = "PLAIT_CHECKPOINT_KEY"
KINDS: dict[type, int] = {Manifest: 1, Part: 2, Claim: 3, Beat: 4}
CLASSES: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        Beat,
        BinRef,
        BlobRef,
        ChunkRef,
        Claim,
        Manifest,
        ManifestId,
        OperatorEntry,
        Owner,
        Part,
        PartRef,
        SinkEntry,
        SourceEntry,
        StateShape,
    )
}
FIELDS = {kind: tuple(fields(kind)) for kind in CLASSES.values()}
NAMES = {kind: tuple(each.name for each in FIELDS[kind]) for kind in FIELDS}
FLAT: dict[type, tuple[type, ...]] = {BinRef: (str, int, str, int, int, bytes)}
"""Classes that come in thousands: a tuple of them is written by columns, of these types."""

T = TypeVar("T", Manifest, Part, Claim, Beat)


@dataclass(frozen=True, slots=True, repr=False)
class Key:
    """The secret that signs manifests, parts and claims. It is never shown."""

    secret: bytes

    def __repr__(self) -> str:
        return "Key(...)"

    def sign(self, *pieces: bytes) -> bytes:
        made = hmac.new(self.secret, digestmod=hashlib.sha256)
        for piece in pieces:
            made.update(piece)
        return made.digest()


def key_of(environment: Mapping[str, str] = os.environ) -> Key | None:
    """The key that PLAIT_CHECKPOINT_KEY gives, or None."""
    text = environment.get(KEY_VARIABLE, "")
    return Key(text.encode()) if text else None


def encode(value: T, key: Key | None) -> bytes:
    """The whole file of a manifest, a part or a claim."""
    payload = pack(value)
    if len(payload) > MOST_BYTES:
        raise StateError(
            f"a {type(value).__name__.lower()} of {len(payload):,} bytes is too large; "
            f"the most is {MOST_BYTES:,}"
        )
    signed = key is not None
    header = HEADER.pack(MAGIC, VERSION, KINDS[type(value)], signed, len(payload))
    digest = hashlib.sha256(header + payload).digest()
    mac = key.sign(header, digest, payload) if key is not None else b""
    return b"".join((header, digest, mac, payload))


def most_bytes() -> int:
    """The longest file that `decode` takes."""
    return HEADER.size + 2 * DIGEST + MOST_BYTES


def decode(data: bytes, expected: type[T], key: Key | None, name: str) -> T:
    """What the file `name` holds. Raises a StateError in words unless every byte of it is right."""
    if len(data) < HEADER.size:
        raise StateError(f"{name} is damaged: it has only {len(data)} bytes")
    magic, version, kind, signed, length = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise StateError(f"{name} is damaged, or not a file of a checkpoint")
    if version != VERSION:
        raise StateError(f"{name} has format {version}; this plait reads format {VERSION}")
    if signed not in (0, 1):
        raise StateError(f"{name} is damaged: its header is wrong")
    start = HEADER.size + DIGEST * (1 + signed)
    if len(data) != start + length:
        raise StateError(f"{name} is damaged: it has {len(data):,} bytes, not {start + length:,}")
    header, digest = data[: HEADER.size], data[HEADER.size : HEADER.size + DIGEST]
    payload = data[start:]
    if not hmac.compare_digest(hashlib.sha256(header + payload).digest(), digest):
        raise StateError(f"{name} is damaged: its checksum does not match")
    check_signature(data, header, digest, payload, key, name)
    if kind != KINDS[expected]:
        raise StateError(f"{name} is not a {expected.__name__.lower()}")
    value = unpack(payload, name)
    if type(value) is not expected:
        raise StateError(f"{name} is not a {expected.__name__.lower()}")
    return value


def check_signature(
    data: bytes, header: bytes, digest: bytes, payload: bytes, key: Key | None, name: str
) -> None:
    signed = len(data) - len(payload) == HEADER.size + 2 * DIGEST
    if key is None:
        if signed:
            raise StateError(f"{name} is signed; set {KEY_VARIABLE} to the key it was written with")
        return
    if not signed:
        raise StateError(f"{name} is not signed, and {KEY_VARIABLE} is set: it is not read")
    mac = data[HEADER.size + DIGEST : HEADER.size + 2 * DIGEST]
    if not hmac.compare_digest(key.sign(header, digest, payload), mac):
        raise StateError(f"{name} was signed with another key than {KEY_VARIABLE} gives")


def pack(value: object) -> bytes:
    import msgpack

    try:
        return bytes(msgpack.packb(plain(value, DEPTH), use_bin_type=True))
    except (OverflowError, ValueError, UnicodeEncodeError) as error:
        raise StateError(f"a checkpoint cannot hold this value: {error}") from None


def unpack(payload: bytes, name: str) -> Any:
    import msgpack

    try:
        return rich(msgpack.unpackb(payload, raw=False, strict_map_key=False), DEPTH + 8)
    except StateError as error:
        raise StateError(f"{name} is refused: {error}") from None
    except Exception as error:  # what msgpack raises is not one class
        raise StateError(f"{name} is refused: it cannot be decoded ({error})") from None


def plain(value: Any, depth: int) -> Any:
    """As what msgpack carries: every container becomes a list that begins with its kind."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if depth <= 0:
        raise StateError("a value of a checkpoint is nested too deep")
    if isinstance(value, tuple) and type(value) is tuple:
        kind = type(value[0]) if value else None
        if kind in FLAT:
            return ["c", kind.__name__, *columns(value, kind)]
        return ["t", *(plain(each, depth - 1) for each in value)]
    if type(value) is list:
        return ["l", *(plain(each, depth - 1) for each in value)]
    if type(value) is dict:
        return [
            "m",
            *([plain(key, depth - 1), plain(each, depth - 1)] for key, each in value.items()),
        ]
    names = NAMES.get(type(value))
    if names is None:
        raise StateError(
            f"a checkpoint cannot hold a {type(value).__name__}; positions and what a sink "
            "prepares are plain data: numbers, text, bytes, lists, tuples and dicts"
        )
    return ["d", type(value).__name__, *(plain(getattr(value, each), depth - 1) for each in names)]


def columns(rows: tuple[Any, ...], kind: type) -> list[list[Any]]:
    if any(type(row) is not kind for row in rows):
        raise StateError(f"a tuple of {kind.__name__} holds something else")
    return [[getattr(row, name) for row in rows] for name in NAMES[kind]]


def rich(value: Any, depth: int) -> Any:
    if isinstance(value, dict):
        raise StateError("a value of an unknown kind")
    if not isinstance(value, list):
        return value
    if depth <= 0:
        raise StateError("a value is nested too deep")
    match value:
        case ["t", *items]:
            return tuple([rich(each, depth - 1) for each in items])
        case ["l", *items]:
            return [rich(each, depth - 1) for each in items]
        case ["m", *pairs]:
            return {rich(key, depth - 1): rich(each, depth - 1) for key, each in pairs}
        case ["d", str(name), *given]:
            return make(known(name), [rich(each, depth - 1) for each in given])
        case ["c", str(name), *given]:
            return rows_of(known(name), given)
        case _:
            raise StateError("a value of an unknown kind")


def known(name: str) -> type:
    kind = CLASSES.get(name)
    if kind is None:
        raise StateError(f"{name} was written by a newer version of plait")
    return kind


def rows_of(kind: type, given: list[list[Any]]) -> tuple[Any, ...]:
    types = FLAT.get(kind)
    if types is None or len(given) != len(types):
        raise StateError(f"the columns of {kind.__name__} are not those of this version")
    for column, expected in zip(given, types, strict=True):
        if any(type(each) is not expected for each in column):
            raise StateError(f"a column of {kind.__name__} has values of a wrong type")
    names = NAMES[kind]
    return tuple([kind(**dict(zip(names, row, strict=True))) for row in zip(*given, strict=True)])


def make(kind: type, given: list[Any]) -> Any:
    known_fields = FIELDS[kind]
    if len(given) > len(known_fields):
        raise StateError(f"a {kind.__name__} was written by a newer version of plait")
    for missing in known_fields[len(given) :]:
        if missing.default is MISSING and missing.default_factory is MISSING:
            raise StateError(f"a {kind.__name__} lacks {missing.name}")
    for each, value in zip(known_fields, given, strict=False):
        if not fits(value, str(each.type)):
            raise StateError(f"{kind.__name__}.{each.name} has a value of a wrong type")
    return kind(**{each.name: value for each, value in zip(known_fields, given, strict=False)})


SCALARS: dict[str, type] = {"str": str, "int": int, "bool": bool, "bytes": bytes}


def fits(value: Any, hint: str) -> bool:
    """Whether a value is of the type that a field of the classes above is written with."""
    if hint == "Any":
        return True
    if hint.endswith(" | None"):
        return value is None or fits(value, hint.removesuffix(" | None"))
    if hint.startswith("tuple["):
        inner = hint[len("tuple[") : -len(", ...]")]
        return type(value) is tuple and all(fits(each, inner) for each in value)
    if hint.startswith("dict[str, "):
        inner = hint[len("dict[str, ") : -1]
        return type(value) is dict and all(
            type(key) is str and fits(each, inner) for key, each in value.items()
        )
    if hint == "float":
        return type(value) in (float, int)
    expected = SCALARS.get(hint) or CLASSES[hint]
    return type(value) is expected
