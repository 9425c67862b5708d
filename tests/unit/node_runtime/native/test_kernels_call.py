"""Compiled functions inside expressions: called once a chunk, null where an argument is null."""

from __future__ import annotations

import pyarrow as pa

from plait.expr.tree import col
from plait.model.schema import Schema, Type
from plait.node_runtime.functions.compiled import compiled
from plait.node_runtime.lowering.expressions import lower
from plait.node_runtime.native._kernels import evaluate


@compiled
def bucket(price: int, share: float, double: bool) -> int:
    size = int(price * share)
    return size * 2 if double else size


def test_a_compiled_function_runs_over_columns_and_constants() -> None:
    schema = Schema.of({"k": "int64?", "x": "float64?", "b": bool})
    rows = 2500
    ks = [None if i % 7 == 0 else i for i in range(rows)]
    xs = [None if i % 11 == 0 else i / 3 for i in range(rows)]
    bs = [i % 2 == 0 for i in range(rows)]
    batch = pa.RecordBatch.from_pydict({"k": ks, "x": xs, "b": bs}, schema=schema.to_arrow())
    lowered = lower(bucket(col("k"), col("x"), col("b")) + 1, schema)
    assert (lowered.type, lowered.nullable) == (Type.INT64, True)
    array, failed = evaluate(lowered, batch)
    wanted = [
        None if k is None or x is None else int(k * x) * (2 if b else 1) + 1
        for k, x, b in zip(ks, xs, bs, strict=True)
    ]
    assert (array.to_pylist(), failed) == (wanted, [])
    # An int where a float is wanted is widened, and a constant fills the batch.
    array, _ = evaluate(lower(bucket(10, col("k"), True), schema), batch)
    assert array.to_pylist() == [None if k is None else 20 * k for k in ks]
