"""The native keyed state against a dict of running aggregates in Python.

Any key columns, any aggregates, any number of lanes and bins; between batches bins are copied, or
taken out and put back, also into a state with another number of lanes. Bins also move between two
states while rows come, whole or by a copy and a difference. The results must be those of the model,
row by row, and floats bit by bit.
"""

from __future__ import annotations

import datetime
import math
import struct
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from plait.model.key_hash import bin_of
from plait.model.schema import Field, Schema, Type
from plait.node_runtime.native._batch import NativeBatch
from plait.node_runtime.native._state import KINDS, KeyedStates
from plait.testing.oracle.aggregates import Running

KEY_TYPES = (Type.INT64, Type.FLOAT64, Type.BOOL, Type.STRING, Type.BYTES, Type.TIMESTAMP)
NUMBERS = (Type.INT64, Type.FLOAT64)

Row = tuple[Any, ...]
Spec = tuple[str, int | None, Type, bool]

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def moment(microseconds: int) -> datetime.datetime:
    return EPOCH + datetime.timedelta(microseconds=microseconds)


VALUES: dict[Type, st.SearchStrategy[Any]] = {
    Type.INT64: st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1)),
    Type.FLOAT64: st.one_of(st.sampled_from([0.0, -0.0, 1.0, math.inf, math.nan]), st.floats()),
    Type.BOOL: st.booleans(),
    Type.STRING: st.one_of(st.sampled_from(["", "a", "ab", "é"]), st.text(max_size=40)),
    Type.BYTES: st.one_of(st.sampled_from([b"", b"\0", b"a"]), st.binary(max_size=40)),
    Type.TIMESTAMP: st.integers(-(10**9), 10**15).map(moment),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    schema: Schema
    keys: tuple[int, ...]
    specs: tuple[Spec, ...]
    batches: tuple[tuple[Row, ...], ...]
    bin_bits: int
    lane_bits: int

    def key(self, row: Row) -> Row:
        """-0.0 and 0.0 are one key."""
        return tuple(row[k] + 0.0 if isinstance(row[k], float) else row[k] for k in self.keys)

    def types(self) -> tuple[Type, ...]:
        return tuple(self.schema.fields[k].type for k in self.keys)

    def states(self, lane_bits: int) -> KeyedStates:
        keys = [(k, self.schema.fields[k].type) for k in self.keys]
        return KeyedStates(keys, self.specs, bin_bits=self.bin_bits, lane_bits=lane_bits)

    def result_schema(self) -> Schema:
        kinds = [result_type(kind, over) for kind, _, over, _ in self.specs]
        results = [Field(f"r{i}", kind, nullable=True) for i, kind in enumerate(kinds)]
        return Schema((*(self.schema.fields[k] for k in self.keys), *results))


def result_type(kind: str, over: Type) -> Type:
    return {"count": Type.INT64, "mean": Type.FLOAT64}.get(kind, over)


def specs_over(fields: list[Field]) -> st.SearchStrategy[Spec]:
    rows: Spec = ("count", None, Type.INT64, False)
    found = [rows]
    for column, field in enumerate(fields):
        for kind in KINDS:
            if kind == "sum" and field.type is Type.INT64:
                kind = "wrapping_sum"  # the values are as large as an int64 can be
            if kind not in ("sum", "wrapping_sum", "mean") or field.type in NUMBERS:
                found.append((kind, column, field.type, field.nullable))
    return st.sampled_from(found)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kinds = st.sampled_from(KEY_TYPES)
    key_kinds = draw(st.lists(kinds, max_size=3))
    value_kinds = draw(st.lists(kinds, min_size=1, max_size=3))
    fields = [
        Field(f"c{i}", kind, nullable=draw(st.booleans()))
        for i, kind in enumerate(key_kinds + value_kinds)
    ]
    pools = []
    for i, field in enumerate(fields):
        values = VALUES[field.type]
        if i < len(key_kinds):
            not_nan = values.filter(lambda v: v == v)
            # Few different keys, so that they meet; or many, so that tables grow.
            several = draw(st.sampled_from([4, 4, 60]))
            values = st.sampled_from(draw(st.lists(not_nan, min_size=1, max_size=several)))
        pools.append(st.one_of(st.none(), values) if field.nullable else values)
    bin_bits = draw(st.integers(0, 7))
    return Case(
        schema=Schema(tuple(fields)),
        keys=tuple(range(len(key_kinds))),
        specs=tuple(draw(st.lists(specs_over(fields), min_size=1, max_size=4))),
        batches=tuple(
            tuple(batch)
            for batch in draw(st.lists(st.lists(st.tuples(*pools), max_size=70), max_size=4))
        ),
        bin_bits=bin_bits,
        lane_bits=draw(st.integers(0, min(3, bin_bits))),
    )


def native(rows: tuple[Row, ...], schema: Schema) -> NativeBatch:
    arrow = schema.to_arrow()
    columns = [pa.array([row[i] for row in rows], f.type) for i, f in enumerate(arrow)]
    return NativeBatch.from_arrow(pa.RecordBatch.from_arrays(columns, schema=arrow), schema)


def rows_of(batch: NativeBatch, schema: Schema) -> list[Row]:
    arrow = batch.to_arrow(schema)
    arrow.validate(full=True)
    columns = [column.to_pylist() for column in arrow.columns]
    return [tuple(column[i] for column in columns) for i in range(arrow.num_rows)]


def exact(row: Row) -> Row:
    """Floats by their bits, every NaN alike."""
    return tuple(
        ("nan" if math.isnan(v) else struct.pack("<d", v)) if isinstance(v, float) else v
        for v in row
    )


Model = dict[Row, list[Running]]


def expected(case: Case, model: Model, rows: tuple[Row, ...]) -> list[Row]:
    out = []
    for row in rows:
        running = model.setdefault(
            case.key(row),
            [
                Running(kind=kind.removeprefix("wrapping_"), type=over, wrap=True)
                for kind, _, over, _ in case.specs
            ],
        )
        for state, (_, column, _, _) in zip(running, case.specs, strict=True):
            if column is None or row[column] is not None:
                state.feed(row[column] if column is not None else None)
        out.append((*(row[k] for k in case.keys), *(state.result() for state in running)))
    return out


def move_all(case: Case, source: KeyedStates, target: KeyedStates) -> None:
    for bin in range(2**case.bin_bits):
        copied = source.copy_bin(bin)
        assert source.take_bin(bin) == copied
        target.put_bin(bin, copied)
    assert source.key_count() == 0


@given(case=cases(), data=st.data())
def test_results_are_those_of_a_dict(case: Case, data: st.DataObject) -> None:
    states, model = case.states(case.lane_bits), Model()
    schema = case.result_schema()
    for rows in case.batches:
        batch = native(rows, case.schema)
        assert states.nan_key_rows(batch) == []
        lanes = data.draw(st.permutations(range(2**case.lane_bits)))
        got = rows_of(states.process(batch, lanes), schema)
        assert [exact(row) for row in got] == [exact(row) for row in expected(case, model, rows)]
        assert states.key_count() == len(model)
        match data.draw(st.sampled_from(["stay", "bin", "all"])):
            case "bin":
                bin = data.draw(st.integers(0, 2**case.bin_bits - 1))
                there = sum(bin_of(key, case.types(), case.bin_bits) == bin for key in model)
                taken = states.take_bin(bin)
                assert states.key_count() == len(model) - there
                states.put_bin(bin, taken)
            case "all":
                lane_bits = data.draw(st.integers(0, min(3, case.bin_bits)))
                moved = case.states(lane_bits)
                move_all(case, states, moved)
                states = moved
                case = Case(
                    schema=case.schema,
                    keys=case.keys,
                    specs=case.specs,
                    batches=case.batches,
                    bin_bits=case.bin_bits,
                    lane_bits=lane_bits,
                )


@given(case=cases(), data=st.data())
def test_damaged_bytes_change_nothing(case: Case, data: st.DataObject) -> None:
    states = case.states(case.lane_bits)
    for rows in case.batches:
        states.process(native(rows, case.schema))
    bin = data.draw(st.integers(0, 2**case.bin_bits - 1))
    taken = states.take_bin(bin)
    keys = states.key_count()
    at = data.draw(st.integers(0, len(taken) - 1))
    flipped = taken[:at] + bytes([taken[at] ^ data.draw(st.integers(1, 255))]) + taken[at + 1 :]
    for wrong in (flipped, taken[:at], taken + b"\0"):
        try:
            states.put_bin(bin, wrong)
        except ValueError:
            assert states.key_count() == keys
        else:
            raise AssertionError(f"{len(wrong)} damaged bytes were accepted")
    states.put_bin(bin, taken)
    assert states.copy_bin(bin)[:48] == taken[:48]


@dataclass(slots=True)
class Nodes:
    """Two states, which of them owns each bin, and the bins that the other one has a copy of."""

    case: Case
    sides: tuple[KeyedStates, KeyedStates]
    owner: list[int]
    copied: set[int]

    def process(self, rows: tuple[Row, ...]) -> list[Row]:
        """The results in the order of the rows, each by the owner of its bin."""
        types, bits, schema = self.case.types(), self.case.bin_bits, self.case.result_schema()
        owners = [self.owner[bin_of(self.case.key(row), types, bits)] for row in rows]
        out: list[list[Row]] = []
        for side, states in enumerate(self.sides):
            mine = tuple(row for row, own in zip(rows, owners, strict=True) if own == side)
            out.append(rows_of(states.process(native(mine, self.case.schema)), schema))
        return [out[own].pop(0) for own in owners]

    def move(self, bin: int, by: str) -> None:
        here, there = self.sides[self.owner[bin]], self.sides[1 - self.owner[bin]]
        if by == "whole" or (by == "difference" and bin not in self.copied):
            self.forget(bin)
            there.put_bin(bin, here.take_bin(bin))
        elif by == "difference":
            keys = here.bin_keys(bin)
            there.apply_difference(bin, here.take_difference(bin))
            assert there.bin_keys(bin) == keys
        elif by == "copy":
            self.forget(bin)
            here.track(bin)
            there.put_bin(bin, here.copy_bin(bin))
            self.copied.add(bin)
            return
        else:
            self.forget(bin)
            return
        assert here.bin_keys(bin) == 0
        self.copied.discard(bin)
        self.owner[bin] = 1 - self.owner[bin]

    def forget(self, bin: int) -> None:
        """The copy was in vain."""
        if bin in self.copied:
            self.sides[self.owner[bin]].untrack(bin)
            self.sides[1 - self.owner[bin]].discard_bin(bin)
            self.copied.discard(bin)


@given(case=cases(), data=st.data())
def test_bins_move_while_rows_come(case: Case, data: st.DataObject) -> None:
    bins = 2**case.bin_bits
    other = data.draw(st.integers(0, min(3, case.bin_bits)))
    sides = (case.states(case.lane_bits), case.states(other))
    nodes, model = Nodes(case=case, sides=sides, owner=[0] * bins, copied=set()), Model()
    ways = st.sampled_from(["copy", "copy", "difference", "whole", "forget"])
    for rows in (*case.batches, *case.batches):
        got = nodes.process(rows)
        assert [exact(row) for row in got] == [exact(row) for row in expected(case, model, rows)]
        moved = {bin_of(key, case.types(), case.bin_bits) for key in model} or {0}
        for bin in data.draw(st.lists(st.sampled_from(sorted(moved)), max_size=6)):
            nodes.move(bin, data.draw(ways))
        assert sum(sides[own].bin_keys(bin) for bin, own in enumerate(nodes.owner)) == len(model)


@given(case=cases(), data=st.data())
def test_damaged_differences_change_nothing(case: Case, data: st.DataObject) -> None:
    here, there = case.states(case.lane_bits), case.states(case.lane_bits)
    bin = data.draw(st.integers(0, 2**case.bin_bits - 1))
    here.track(bin)
    there.put_bin(bin, here.copy_bin(bin))
    for rows in case.batches:
        here.process(native(rows, case.schema))
    keys = here.bin_keys(bin)
    whole = here.copy_bin(bin)
    difference = here.take_difference(bin)
    at = data.draw(st.integers(0, len(difference) - 1))
    flip = bytes([difference[at] ^ data.draw(st.integers(1, 255))])
    flipped = difference[:at] + flip + difference[at + 1 :]
    for wrong in (flipped, difference[:at], difference + b"\0", whole):
        try:
            there.apply_difference(bin, wrong)
        except ValueError:
            assert there.bin_keys(bin) == 0
            assert there.waits_for_difference(bin)
        else:
            raise AssertionError(f"{len(wrong)} damaged bytes were accepted")
    there.apply_difference(bin, difference)
    assert there.bin_keys(bin) == keys
