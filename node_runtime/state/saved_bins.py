"""Bins of a checkpoint outside a run: as rows to look at, or as other bins.

The bytes say nothing of themselves but whose they are; the shape that the manifest keeps says the
rest. Native state is read by a lane of its own operator (`RestingState`), Python state by
`bin_bytes`. In front of the bins of timed operators is what is known of time (`unit_time.hpp`),
which goes on as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from plait.checkpoints.state_changes import aggregate_sources
from plait.errors import StateError
from plait.functions.process import fitting, initial
from plait.model.key_hash import bin_of
from plait.model.schema import Field, Schema, Type
from plait.node_runtime.lowering.state_shapes import plan_of
from plait.node_runtime.native._resting import RestingState, convert_aggregate
from plait.node_runtime.native._timed import NativeTimedPlan
from plait.node_runtime.state.bin_bytes import (
    HEADER,
    MAGIC,
    Owner,
    States,
    load_states,
    pack_bin,
    read_head,
)
from plait.node_runtime.state.processes import process_fingerprint
from plait.node_runtime.state.timers import Kept

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plait.checkpoints.manifests import StateShape
    from plait.node_runtime.state.states_codec import StatesCodec

Bin = tuple[int, bytes]
"""Its number and its bytes."""
NATIVE = ("aggregate", "timed")
WITH_TIME = ("timed", "process")


def split_time(shape: StateShape, data: bytes) -> tuple[bytes, bytes]:
    """What a bin says of time, and the bin itself."""
    if shape.holder not in WITH_TIME:
        return b"", data
    size = 16 + int.from_bytes(data[8:16], "little")
    return data[:size], data[size:]


def watermark_of(time: bytes) -> int:
    """The watermark in what a bin says of time: it is first behind the head (`watermarks.hpp`)."""
    return int.from_bytes(time[16:24], "little", signed=True)


def resting(shape: StateShape, put_bits: int, bin_bits: int) -> RestingState:
    """An empty state of a native operator, which takes bins of 2 ** put_bits."""
    plan = plan_of(shape)
    try:
        if shape.holder == "aggregate":
            return RestingState.aggregate(
                plan.keys, plan.aggregates, put_bits=put_bits, bin_bits=bin_bits
            )
        timed = NativeTimedPlan(
            types=plan.types,
            out_types=plan.out_types,
            keys=plan.keys,
            aggregates=plan.aggregates,
            origins=[],
            numbers=plan.numbers,
            bin_bits=bin_bits,
            lane_bits=0,
            sub_bits=0,
        )
        return RestingState.timed(timed, put_bits=put_bits)
    except (KeyError, ValueError) as error:
        raise StateError(
            f"the checkpoint says of its state what this plait does not know: {error}"
        ) from None


def native_rows(shape: StateShape, bits: int, bin: int, data: bytes) -> Any:
    """What a bin of native state holds, as a record batch of the shape's columns."""
    state = resting(shape, bits, 0)
    types = [Type(kind) for kind in shape.column_types]
    time, body = split_time(shape, data)
    try:
        if body:
            state.put(bin, body)
        rows = state.rows(types, watermark_of(time))
    except (ValueError, RuntimeError) as error:
        raise StateError(f"bin {bin} cannot be read: {error}") from None
    # Names may come twice (a key that is a column of the record too), so they are put on later.
    fields = [Field(f"c{i}", kind, nullable=True) for i, kind in enumerate(types)]
    return rows.to_arrow(Schema(tuple(fields))).rename_columns(list(shape.columns))


def python_states(data: bytes, codec: StatesCodec | None = None) -> States:
    """Keys and states of a bin of Python state; those of declared types are plain data unless a
    `codec` says otherwise."""
    return load_states(read_head(data, "whole", owner_of(data, codec)))


def owner_of(data: bytes, codec: StatesCodec | None = None) -> Owner:
    if data[:4] != MAGIC["whole"] or len(data) < HEADER.size:
        raise StateError("these bytes are not the whole state of a bin of a Python operator")
    _, _, bits, fingerprint, *_ = HEADER.unpack_from(data)
    return Owner(bin_bits=bits, fingerprint=fingerprint, codec=codec)


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover:
    """How an operator takes over the state that a checkpoint keeps under the id `source`."""

    source: str
    shape: StateShape
    """Of the operator as it is now."""
    before: StateShape | None = None
    """That of the checkpoint, if the bytes must be made anew for another one."""
    version: int = 1
    """Of the state in the checkpoint."""
    migrate: Callable[[Any, int], Any] | None = None
    """Makes a state of one of that version, if it is an older one."""
    kinds: Mapping[str, Any] = field(default_factory=dict)
    """Of a process: the types of its values now."""
    codec: StatesCodec | None = None
    """How its states are written now."""


def remake(how: Takeover, bins: Sequence[Bin], old_bits: int, new_bits: int) -> list[Bin]:
    """The state of these bins as the operator takes it, in bins of 2 ** new_bits. `bins` are all
    that have a key of the new ones in them: those of one `group_of`."""
    if not bins:
        return []
    time, _ = split_time(how.shape, bins[0][1])
    first = group_of(bins[0][0], old_bits, new_bits) << max(0, new_bits - old_bits)
    bodies = [(bin, split_time(how.shape, data)[1]) for bin, data in bins]
    bodies = [(bin, body) for bin, body in bodies if body]
    if not bodies:
        return [(first, time)] if time else []
    if how.shape.holder not in NATIVE:
        return remake_python(how, [body for _, body in bodies], time, new_bits)
    if how.before is not None:
        bodies = [(bin, convert(how.before, how.shape, old_bits, body)) for bin, body in bodies]
    if old_bits != new_bits:
        wanted = list(range(first, first + (1 << max(0, new_bits - old_bits))))
        bodies = split_native(how.shape, bodies, wanted, old_bits, new_bits)
    return [(bin, time + body) for bin, body in bodies]


def convert(before: StateShape, now: StateShape, bits: int, body: bytes) -> bytes:
    """A bin of running aggregates for other aggregates."""
    old, new = plan_of(before), plan_of(now)
    source = aggregate_sources(before.plan["aggregates"], now.plan["aggregates"])
    try:
        return convert_aggregate(
            new.keys, old.aggregates, new.aggregates, source, bin_bits=bits, data=body
        )
    except ValueError as error:
        raise StateError(f"a bin cannot be read: {error}") from None


def split_native(
    shape: StateShape, bodies: Sequence[Bin], wanted: list[int], old_bits: int, new_bits: int
) -> list[Bin]:
    state = resting(shape, old_bits, new_bits)
    for bin, body in bodies:
        try:
            state.put(bin, body)
        except ValueError as error:
            raise StateError(f"bin {bin} cannot be read: {error}") from None
    made = zip(wanted, state.take(wanted), strict=True)
    return [(bin, body) for bin, body in made if body]


def remake_python(how: Takeover, bodies: Sequence[bytes], time: bytes, new_bits: int) -> list[Bin]:
    types = [Type(kind) for kind in how.shape.key_types]
    fingerprint = owner_of(bodies[0]).fingerprint
    if how.before is not None and how.shape.holder == "process":
        fingerprint = process_fingerprint(how.kinds, types)
    owner = Owner(bin_bits=new_bits, fingerprint=fingerprint, codec=how.codec)
    codec = (
        how.codec if how.migrate is None else None
    )  # an old state may be of a class that is gone
    parts: dict[int, States] = {}
    for body in bodies:
        for key, state in python_states(body, codec).items():
            made = state if how.before is None else convert_state(how, state)
            parts.setdefault(bin_of(key, types, new_bits), {})[key] = made
    return [(bin, time + pack_bin(states, owner, bin=bin)) for bin, states in sorted(parts.items())]


def convert_state(how: Takeover, state: Any) -> Any:
    """A state of an older shape or version."""
    if not isinstance(state, Kept):
        return migrated(how, state)
    values = migrated(how, dict(state.values))
    if not isinstance(values, Mapping):
        raise StateError(f"{how.source}: migrate must return a dict of values, not {values!r}")
    unknown = [name for name in values if name not in how.kinds]
    if how.migrate is not None and unknown:
        raise StateError(
            f"{how.source}: migrate gives {unknown[0]!r}, which is not in the state of the process;"
            f" it has {', '.join(how.kinds)}"
        )
    fresh = initial(how.kinds)
    for name, kind in how.kinds.items():
        if name in values:
            given = values[name]
            wider = kind is float and type(given) is int
            fresh[name] = float(given) if wider else checked_value(how, name, given, kind)
    state.values = fresh
    return state


def checked_value(how: Takeover, name: str, given: Any, kind: Any) -> Any:
    if given is None or kind is object:
        return given
    try:
        return fitting(name, given, kind)
    except TypeError as error:
        raise StateError(f"{how.source}: {error}; write a migrate(self, old, version)") from None


def migrated(how: Takeover, state: Any) -> Any:
    if how.migrate is None:
        return state
    try:
        return how.migrate(state, how.version)
    except Exception as error:
        raise StateError(
            f"{how.source}: migrate failed on {state!r} of version {how.version}:"
            f" {type(error).__name__}: {error}"
        ) from error


def group_of(bin: int, old_bits: int, new_bits: int) -> int:
    """Bins of the same group, and no others, have keys of the same new bins."""
    return bin >> max(0, old_bits - new_bits)
