"""The states of a bin as msgpack, where their type was declared; see `typed_values`.

The payload is [description, keys, states], or with the keys that are gone behind them. Times in
keys are msgpack extension 1, microseconds since 1970.
"""

from __future__ import annotations

import datetime
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from plait.errors import StateError
from plait.graph.state_types import Description, describe
from plait.model.records import datetime_of, microseconds_of
from plait.node_runtime.state.timers import Kept
from plait.node_runtime.state.typed_values import PLAIN, Unfit, checked, decoder, encoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KEPT = "kept"
TIME_EXTENSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StatesCodec:
    """How the states of an operator are written: by `hint`, the type of each, or by `kinds`, those
    of the values of a process."""

    description: Description
    hint: Any = None
    kinds: Mapping[str, Any] = field(default_factory=dict)

    def encode(self, states: Iterable[Any]) -> list[Any]:
        """The states as plain data; Unfit: one of them is not what was declared."""
        found = list(states)
        if self.kinds:
            makers = [(name, checked(kind)) for name, kind in self.kinds.items()]
            return [kept_list(kept, makers) for kept in found]
        one = encoder(self.hint)
        if one is not None:
            return [one(state) for state in found]
        if not PLAIN.issuperset(map(type, found)):
            raise Unfit("a state is not of the type that was declared")
        return found


def codec_of(hint: Any) -> StatesCodec | None:
    """For states of a declared type; None: they cannot be written as plain data."""
    description = describe(hint)
    return None if description is None else StatesCodec(description=description, hint=hint)


def kept_codec(kinds: Mapping[str, Any]) -> StatesCodec | None:
    """For what a process keeps."""
    values = [[name, describe(kind)] for name, kind in kinds.items()]
    if not values or any(found is None for _, found in values):
        return None
    return StatesCodec(description=[KEPT, values], kinds=dict(kinds))


def kept_list(kept: Kept, makers: list[tuple[str, Any]]) -> list[Any]:
    timers = [[[at, *when] for at, when in each.items()] for each in kept.timers]
    return [[make(kept.values[name]) for name, make in makers], timers, kept.last]


def dump_states(codec: StatesCodec, states: Mapping[Any, Any], gone: list[Any] | None) -> bytes:
    """The payload; Unfit, OverflowError or ValueError: these states cannot be written so."""
    import msgpack

    what = [codec.description, list(states), codec.encode(states.values())]
    if gone is not None:
        what.append(gone)
    return bytes(msgpack.packb(what, use_bin_type=True, default=pack_time))


def pack_time(value: Any) -> Any:
    import msgpack

    if type(value) is datetime.datetime and value.utcoffset() is not None:
        return msgpack.ExtType(TIME_EXTENSION, struct.pack("<q", microseconds_of(value)))
    raise Unfit(f"a key has a {type(value).__name__}")


def load_dumped(
    payload: bytes | memoryview, codec: StatesCodec | None
) -> tuple[dict[Any, Any], list[Any]]:
    """The states by key, and the keys that are gone. Without a codec, or with one for other states,
    they are plain: a dataclass is a dict of its fields."""
    import msgpack

    try:
        found = msgpack.unpackb(
            payload, raw=False, ext_hook=load_time, strict_map_key=False, use_list=False
        )
        description, keys, states, *gone = found
    except StateError:
        raise
    except Exception as error:  # what msgpack raises is not one class
        raise StateError(f"its states cannot be decoded: {error}") from None
    if isinstance(description, tuple) and description[0] == KEPT:
        makers = [(name, decoder(each)) for name, each in description[1]]
        made = [load_kept(each, makers) for each in states]
    else:
        make = decoder(description, None if codec is None else codec.hint)
        made = states if make is None else [make(each) for each in states]
    return dict(zip(keys, made, strict=True)), list(gone[0]) if gone else []


def load_time(code: int, data: bytes) -> Any:
    if code != TIME_EXTENSION:
        raise StateError(f"a key of the kind {code} was written by a newer version of plait")
    return datetime_of(struct.unpack("<q", data)[0])


def load_kept(found: list[Any], makers: list[tuple[str, Any]]) -> Kept:
    given, timers, last = found
    kept = Kept()
    kept.values = {
        name: each if make is None else make(each)
        for (name, make), each in zip(makers, given, strict=True)
    }
    event, wall = ({at: (due, place) for at, due, place in each} for each in timers)
    kept.timers = (event, wall)
    kept.last = last
    return kept
