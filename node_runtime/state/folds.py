"""Folds and state machines in plain Python: a state for each key, changed by the user's step.

`KeyedPython` is called by one thread at a time, with the batches in order. A row that fails leaves
no trace in the output or the state; with `stop_at_first` (the policy "fail") nothing after the
first failing row is computed. What is not an Exception (SystemExit) fails no row: it ends the run.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

from plait.errors import JobError
from plait.graph.operators import FoldOp, StatefulOp
from plait.graph.state_types import state_type
from plait.model.key_hash import bin_of, xxh64
from plait.model.records import Misfit
from plait.model.schema import Schema, Type
from plait.node_runtime.functions.calls import CallResult, ends_run
from plait.node_runtime.native._calls import assemble, select_rows
from plait.node_runtime.native._keyed_calls import KeyedCall
from plait.node_runtime.native._records import Shape, place
from plait.node_runtime.state.bin_bytes import Key, Owner, States
from plait.node_runtime.state.keyed_states import PythonStates
from plait.node_runtime.state.states_codec import codec_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plait.node_runtime.native._batch import NativeBatch


class KeyedPython(PythonStates):
    """A fold or a state machine in Python: one state for each key, kept by bin.

    The state changes only when the step returned and its result fits the output. A step that
    changes a mutable state in place and then raises has changed it: nothing can take that back.
    """

    def __init__(
        self,
        op: FoldOp | StatefulOp,
        in_schema: Schema,
        bin_bits: int,
        number: int = 0,
        stop_at_first: bool | None = None,
    ) -> None:
        self.operator = op
        self.number = number
        self.shape = Shape(in_schema)
        self.bin_bits = bin_bits
        self.stop_at_first = op.on_error == "fail" if stop_at_first is None else stop_at_first
        self.places = [in_schema.index(name) for name in op.keys]
        self.types = tuple(in_schema.fields[i].type for i in self.places)
        for name, kind in zip(op.keys, self.types, strict=True):
            if kind is Type.OBJECT:
                raise JobError(f'column "{name}" holds objects, which cannot be keys')
        self.out = Shape(op.schema)
        words = (type(op).__name__, *(kind.value for kind in self.types))
        fingerprint = xxh64("|".join(words).encode())
        codec = codec_of(state_type(op))
        super().__init__(Owner(bin_bits=bin_bits, fingerprint=fingerprint, codec=codec))
        self.beat: Callable[[], None] | None = None
        """Called before each row, where someone looks whether it gets on."""
        form = canonical if Type.FLOAT64 in self.types else None
        self.calls = KeyedCall(
            op.step, self.first, self.add_key, form, self.home, self.shape, self.places,
            self.stop_at_first,
        )  # fmt: skip

    def __call__(self, batch: NativeBatch, rows: Sequence[int] | None = None) -> CallResult:
        """Takes a batch, or the given rows of it (ascending)."""
        result = self.attempt(batch, rows)
        if result.failures and ends_run(result.failures[-1][1]):
            raise result.failures[-1][1]
        return result

    def attempt(self, batch: NativeBatch, rows: Sequence[int] | None = None) -> CallResult:
        """As a call, but what ends the run is the last failure: what was made before it counts
        where an earlier row fails elsewhere."""
        self.open_first()
        before = self.touch if self.watches() else None
        if isinstance(self.operator, FoldOp):
            return self.fold(batch, rows, before)
        return CallResult(*self.calls.run(batch, rows, self.out, before, self.beat))

    def fold(
        self, batch: NativeBatch, rows: Sequence[int] | None, before: Callable[[Key], None] | None
    ) -> CallResult:
        field = self.operator.schema.fields[-1]
        fresh, kept, failures = self.calls.fold(batch, rows, field, before, self.beat)
        place(fresh, batch, kept)
        if kept is None:
            return CallResult(assemble((*self.places, -1), batch, fresh), None, failures)
        keys = select_rows(assemble(self.places, batch, batch), kept)
        return CallResult(assemble((*range(len(self.places)), -1), keys, fresh), kept, failures)

    def first(self) -> Any:
        """The state of a key that has none."""
        init = self.operator.init
        return init() if callable(init) else copy.deepcopy(init)

    def add_key(self, key: Key) -> States:
        """The part of the states in which a new key is to be."""
        bin = bin_of(key, self.types, self.bin_bits)
        part = self.home[key] = self.states.setdefault(bin, {})
        self.saves.touch(key, part)
        return part


def canonical(key: Key) -> Key:
    """The key in the one form in which equal ones are the same; NaN is none."""
    if any(isinstance(value, float) and math.isnan(value) for value in key):
        raise Misfit("NaN cannot be a key")
    return tuple(v + 0.0 if isinstance(v, float) else v for v in key)
