"""Every operation in every form of its operands, against the oracle, over one awkward table.

Forms: column, column with nulls, constant, null. The table holds all pairs of awkward values;
one of each form is also tried over the edge of a chunk. The last test makes sure that no kernel is
left out.
"""

from __future__ import annotations

import datetime
import itertools
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from plait.expr.tree import Expr, col, lit, wrapping
from plait.model.schema import Schema, Type
from plait.node_runtime.lowering.expressions import lower
from plait.node_runtime.native._kernels import evaluate, mask
from plait.testing.oracle.expressions import compiled
from plait.testing.oracle.values import Fault, held_to_arrow, to_held
from plait.testing.random_jobs import FAR_TIMES, FLOATS, INTS, STRINGS, TIMES

INT, FLOAT, BOOL = Type.INT64, Type.FLOAT64, Type.BOOL
STRING, BYTES, TIME = Type.STRING, Type.BYTES, Type.TIMESTAMP
POOLS: dict[Type, tuple[Any, ...]] = {
    INT: (*INTS, -7, 10, 1000),
    FLOAT: (*FLOATS, 2.5, -2.5, 3.0, 1e300, -(2.0**63)),
    BOOL: (True, False),
    STRING: (*STRINGS, "false", "+7", "abc", "b", "x" * 70 + "é", "9223372036854775808", "inf"),
    BYTES: (b"", b"a", b"\x00", b"\xff", "é".encode(), b"\xed\xa0\x80", b"ab"),
    TIME: (*TIMES, *FAR_TIMES),
}
CONSTANTS: dict[Type, tuple[Any, ...]] = {
    INT: (0, 7, -7, 8, 1000),
    FLOAT: (0.0, -2.5, float("nan")),
    BOOL: (True, False),
    STRING: ("", "a", "é"),
    BYTES: (b"", b"ab"),
    TIME: (TIMES[2],),
}
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
PAIRS = [
    *((op, INT, INT) for op in ("add", "sub", "mul", "truediv", "floordiv", "mod")),
    *((op, FLOAT, FLOAT) for op in ("add", "sub", "mul", "truediv", "floordiv", "mod")),
    *((op, INT, FLOAT) for op in ("add", "floordiv", "lt", "eq")),
    *((op, INT, INT) for op in ("bit_and", "bit_or", "bit_xor")),
    *((op, kind, kind) for op in COMPARISONS for kind in POOLS),
    *((op, BOOL, BOOL) for op in ("and", "or")),
    *((op, STRING, STRING) for op in ("add", "contains", "startswith", "endswith")),
    ("add", BYTES, BYTES),
    ("sub", TIME, TIME),
    *(("fill_null", kind, kind) for kind in POOLS),
]
SINGLES = [
    *((op, kind, None) for op in ("neg", "abs") for kind in (INT, FLOAT)),
    ("not", BOOL, None),
    ("is_nan", FLOAT, None),
    *(("is_null", kind, None) for kind in POOLS),
    *((op, STRING, None) for op in ("lower", "upper", "strip", "length")),
    ("length", BYTES, None),
    *((op, TIME, None) for op in ("year", "month", "day", "hour", "minute", "second")),
    *(("truncate", TIME, step) for step in (1, 1024, 7_000_001, 86_400_000_000)),
    *(("cast", INT, kind) for kind in (FLOAT, BOOL, STRING, TIME)),
    *(("cast", FLOAT, kind) for kind in (INT, BOOL, STRING)),
    *(("cast", BOOL, kind) for kind in (INT, FLOAT, STRING)),
    *(("cast", STRING, kind) for kind in (INT, FLOAT, BOOL, BYTES)),
    ("cast", BYTES, STRING),
    *(("cast", TIME, kind) for kind in (INT, STRING)),
    *(("is_in", kind, POOLS[kind][:3]) for kind in POOLS),
    *(("is_in", kind, POOLS[kind][::2] * 2) for kind in POOLS),
    *(("is_in", kind, ()) for kind in POOLS),
]
TALL = 1024 + 13


def schema_of(kinds: tuple[Type, ...]) -> Schema:
    """Columns a0, a1 without nulls and n0, n1 with."""
    plain = {f"a{i}": kind for i, kind in enumerate(kinds)}
    return Schema.of({**plain, **{f"n{i}": f"{kind.value}?" for i, kind in enumerate(kinds)}})


def table(kinds: tuple[Type, ...], at_least: int = 0) -> tuple[Schema, list[tuple[Any, ...]]]:
    """All combinations of values in the columns without nulls, and of values and nulls."""
    whole = list(itertools.product(*(POOLS[kind] for kind in kinds)))
    holes = list(itertools.product(*((*POOLS[kind], None) for kind in kinds)))
    count = max(len(holes) + 3, at_least)
    rows = itertools.islice(zip(itertools.cycle(whole), itertools.cycle(holes)), count)
    held = [tuple(to_held(v, k) for v, k in zip((*a, *n), kinds * 2, strict=True)) for a, n in rows]
    return schema_of(kinds), held


def forms(place: int, kind: Type) -> list[Expr]:
    null = Expr("cast", (lit(None),), kind)
    return [col(f"a{place}"), col(f"n{place}"), *map(lit, CONSTANTS[kind]), null]


def check(expr: Expr, schema: Schema, batch: pa.RecordBatch, held: list[tuple[Any, ...]]) -> None:
    lowered = lower(expr, schema)
    array, failed = evaluate(lowered, batch)
    array.validate(full=True)
    run = compiled(expr, schema).run
    wanted: list[Any] = []
    faults = []
    for i, row in enumerate(held):
        try:
            wanted.append(run(row))
        except Fault as fault:
            wanted.append(None)
            faults.append((i, str(fault)))
    assert failed == faults
    bad = {row for row, _ in failed}
    got = (array.cast(pa.int64()) if lowered.type is TIME else array).to_pylist()
    fair = [i for i in range(len(held)) if i not in bad]
    # The text of a float tells -0.0 from 0.0 and takes nan for nan.
    assert [repr(got[i]) for i in fair] == [repr(wanted[i]) for i in fair], str(expr)
    if lowered.type is BOOL:
        found, _ = mask(lowered, batch)
        assert [found[i] for i in fair] == [int(wanted[i] is True) for i in fair]


def batch_of(schema: Schema, held: list[tuple[Any, ...]]) -> pa.RecordBatch:
    return held_to_arrow(held, schema).combine_chunks().to_batches()[0]


@pytest.mark.parametrize(("op", "left", "right"), PAIRS)
def test_two_operands(op: str, left: Type, right: Type) -> None:
    schema, held = table((left, right))
    batch = batch_of(schema, held)
    for a, b in itertools.product(forms(0, left), forms(1, right)):
        check(Expr(op, (a, b)), schema, batch, held)
    schema, held = table((left, right), TALL)
    check(Expr(op, (col("n0"), col("n1"))), schema, batch_of(schema, held), held)


@pytest.mark.parametrize(("op", "kind", "value"), SINGLES)
def test_one_operand(op: str, kind: Type, value: Any) -> None:
    schema, held = table((kind,))
    batch = batch_of(schema, held)
    for arg in forms(0, kind):
        check(Expr(op, (arg,), value), schema, batch, held)
    schema, held = table((kind,), TALL)
    check(Expr(op, (col("n0"),), value), schema, batch_of(schema, held), held)


def others() -> list[tuple[tuple[Type, ...], Expr]]:
    """Shifts, multiply and add, times and durations, choices; each with the types of its table."""
    found: list[tuple[tuple[Type, ...], Expr]] = []
    for arg, by in itertools.product(forms(0, INT), (0, 1, 3, 63)):
        more = [Expr("shl", (arg, lit(by))), Expr("shr", (arg, lit(by)))]
        more += [arg * by + 7, arg * by - col("n1")]
        made = (arg * by + 7, arg - col("n1"), arg * col("n1"), arg + by, arg // by, -arg, abs(arg))
        more += [wrapping(expr) for expr in made]
        found += [((INT, INT), expr) for expr in more]
    for arg, factor in itertools.product(forms(0, FLOAT), (-0.5, 0.0, 1e300)):
        found += [((FLOAT, FLOAT), arg * factor + 2.5), ((FLOAT, FLOAT), arg * factor - 0.1)]
    for arg, days in itertools.product(forms(0, TIME), (-1, 0, 400_000)):
        by_days = datetime.timedelta(days=days)
        found += [((TIME,), arg + by_days), ((TIME,), arg - by_days)]
    for kind, condition in itertools.product(POOLS, forms(1, BOOL)):
        values = forms(0, kind)
        for one, other in itertools.product(values, values[:3]):
            found.append(((kind, BOOL), Expr("when", (condition, one, other))))
            chain = (condition, one, col("n1"), other, values[1])
            found.append(((kind, BOOL), Expr("when", chain)))
    return found


def test_shifts_durations_and_choices() -> None:
    tables = {kinds: table(kinds) for kinds in {kinds for kinds, _ in others()}}
    batches = {kinds: batch_of(*one) for kinds, one in tables.items()}
    for kinds, expr in others():
        schema, held = tables[kinds]
        check(expr, schema, batches[kinds], held)


def test_no_kernel_is_left_out() -> None:
    every = others()
    for op, left, right in PAIRS:
        pairs = itertools.product(forms(0, left), forms(1, right))
        every += [((left, right), Expr(op, pair)) for pair in pairs]
    for op, kind, value in SINGLES:
        every += [((kind,), Expr(op, (arg,), value)) for arg in forms(0, kind)]
    used: set[str] = set()
    for kinds, expr in every:
        used.update(step.kernel for step in lower(expr, schema_of(kinds)).instructions)
    header = Path(__file__).parents[4] / "node_runtime/include/plait/kernels/table.hpp"
    names = set(re.findall(r'"([a-z_0-9]+)"', header.read_text()))
    # Scopes, compiled functions and reading times have tests of their own.
    apart = {"call_i64", "call_f64", "call_bool", "scope_begin", "scope_end"}
    apart |= {"to_timestamp_str", "to_timestamp_i64", "to_timestamp_f64"}
    assert names - used <= apart
