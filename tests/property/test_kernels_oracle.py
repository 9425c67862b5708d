"""The native kernels against the oracle: the same values, the same failing rows, the same messages.

Expressions of all operations but call over random typed rows. The rows are also tiled over several
chunks and cut at an odd row: chunk edges and bit offsets are where vectorised code goes wrong.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from plait.model.schema import Schema, Type
from plait.node_runtime.lowering.expressions import lower
from plait.node_runtime.native._kernels import evaluate, filter_arrow, mask
from plait.testing.oracle.expressions import compiled
from plait.testing.oracle.values import Fault, held_to_arrow, to_held
from plait.testing.random_jobs import TYPES, expressions, rows, schemas

if TYPE_CHECKING:
    from plait.expr.tree import Expr

CHUNK = 1024


def expected(expr: Expr, schema: Schema, held: list[tuple[Any, ...]]) -> list[Any]:
    """Each row's value, or the Fault it failed with."""
    run = compiled(expr, schema).run

    def one(row: tuple[Any, ...]) -> Any:
        try:
            return run(row)
        except Fault as fault:
            return fault

    return [one(row) for row in held]


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        both_nan = math.isnan(a) and math.isnan(b)
        return both_nan or struct.pack("<d", a) == struct.pack("<d", b)
    return type(a) is type(b) and bool(a == b)


def check(expr: Expr, schema: Schema, batch: pa.RecordBatch, wanted: list[Any]) -> None:
    lowered = lower(expr, schema)
    array, failed = evaluate(lowered, batch)
    array.validate(full=True)
    faults = [(i, str(value)) for i, value in enumerate(wanted) if isinstance(value, Fault)]
    assert failed == faults
    got = (array.cast(pa.int64()) if lowered.type is Type.TIMESTAMP else array).to_pylist()
    assert len(got) == len(wanted)
    for i, (a, b) in enumerate(zip(got, wanted, strict=True)):
        assert isinstance(b, Fault) or same(a, b), f"row {i}: {a!r} instead of {b!r} for {expr}"
    if not lowered.nullable:
        assert not any(value is None for value in wanted)
    if lowered.type is Type.BOOL:
        bytes_, failed = mask(lowered, batch)
        assert failed == faults
        for a, b in zip(bytes_, wanted, strict=True):
            assert isinstance(b, Fault) or a == (b is True)


@given(data=st.data())
def test_kernels_compute_what_the_oracle_does(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    held = [
        tuple(to_held(v, f.type) for v, f in zip(row, schema.fields, strict=True))
        for row in data.draw(rows(schema, max_size=20))
    ]
    kind = data.draw(st.sampled_from(TYPES))
    expr = data.draw(expressions(schema, kind))
    wanted = expected(expr, schema, held)
    batch = held_to_arrow(held, schema).combine_chunks().to_batches()
    whole = batch[0] if batch else pa.RecordBatch.from_pylist([], schema=schema.to_arrow())
    check(expr, schema, whole, wanted)
    cut = data.draw(st.integers(0, len(held)))
    check(expr, schema, whole.slice(cut), wanted[cut:])
    small = sum(len(v) for row in held for v in row if isinstance(v, (str, bytes))) < 1000
    if held and small and data.draw(st.booleans()):
        times = CHUNK // len(held) + 2
        tiled = pa.Table.from_batches([whole] * times).combine_chunks().to_batches()[0]
        check(expr, schema, tiled.slice(cut), (wanted * times)[cut:])


@given(data=st.data())
def test_filters_keep_rows_and_their_numbers(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    table = data.draw(rows(schema, min_size=1))
    held = [
        tuple(to_held(v, f.type) for v, f in zip(row, schema.fields, strict=True)) for row in table
    ]
    cut = data.draw(st.integers(0, len(held) - 1))
    arrow = held_to_arrow(held, schema).combine_chunks().to_batches()[0].slice(cut)
    left = list(range(arrow.num_rows))
    masks = []
    for _ in range(data.draw(st.integers(1, 3))):
        bits = st.sampled_from([0, 1]) if data.draw(st.booleans()) else st.just(1)
        one = bytes(data.draw(st.lists(bits, min_size=len(left), max_size=len(left))))
        masks.append(one)
        left = [row for row, keep in zip(left, one, strict=True) if keep]
    got, numbers = filter_arrow(arrow, masks)
    got.validate(full=True)
    assert numbers == left
    for name in schema.names:
        kept = arrow.column(name).take(pa.array(left, pa.int64()))
        assert values_of(got.column(name)) == values_of(kept)


def values_of(column: pa.Array) -> list[Any]:
    plain = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
    return [repr(value) for value in plain.to_pylist()]
