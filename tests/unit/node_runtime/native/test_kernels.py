"""Kernels on cases computed by hand or by Python itself, one concern a test."""

from __future__ import annotations

import datetime
import functools
import math
import operator
import random
import struct
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from plait.expr.conditionals import concat, when
from plait.expr.tree import Expr, col, lit, wrapping
from plait.model.schema import INT64_MAX, INT64_MIN, Schema, Type
from plait.node_runtime.lowering.expressions import lower
from plait.node_runtime.native._kernels import NativeProgram, evaluate, mask

if TYPE_CHECKING:
    from collections.abc import Callable

UTC = datetime.UTC
Failures = list[tuple[int, str]]


def compute(expr: Expr, **columns: tuple[Any, list[Any]]) -> tuple[list[Any], Failures]:
    """The values of an expression over columns given as name=(type, values)."""
    schema = Schema.of({name: kind for name, (kind, _) in columns.items()})
    arrow = schema.to_arrow()
    arrays = [pa.array(columns[f.name][1], f.type) for f in arrow]
    array, failed = evaluate(lower(expr, schema), pa.RecordBatch.from_arrays(arrays, schema=arrow))
    array.validate(full=True)
    return array.to_pylist(), failed


def values(expr: Expr, **columns: tuple[Any, list[Any]]) -> list[Any]:
    got, failed = compute(expr, **columns)
    assert failed == []
    return got


def awkward_ints(seed: int) -> list[int]:
    rng = random.Random(seed)
    edges = [0, 1, -1, 2, -2, INT64_MAX, INT64_MIN, INT64_MAX - 1, INT64_MIN + 1]
    return edges + [rng.randrange(-(2**bits), 2**bits) for bits in range(1, 64) for _ in range(20)]


@pytest.mark.parametrize(
    "divisor", [1, 2, 3, 5, 7, 10, 64, 641, 1000, 10**9 + 7, 2**31, 2**62, 2**62 + 1, INT64_MAX]
)
def test_division_by_a_constant_rounds_down(divisor: int) -> None:
    numbers = awkward_ints(divisor)
    numbers += [n * divisor + d for n in (-3, -1, 0, 1, 3) for d in (-1, 0, 1)]
    numbers = [n for n in numbers if INT64_MIN <= n <= INT64_MAX]
    assert values(col("k") // divisor, k=(int, numbers)) == [n // divisor for n in numbers]
    assert values(col("k") % divisor, k=(int, numbers)) == [n % divisor for n in numbers]


@pytest.mark.parametrize("divisor", [-1, -2, -7, -1000, INT64_MIN])
def test_division_by_a_negative_constant(divisor: int) -> None:
    numbers = [n for n in awkward_ints(-divisor) if (n, divisor) != (INT64_MIN, -1)]
    assert values(col("k") // divisor, k=(int, numbers)) == [n // divisor for n in numbers]
    assert values(col("k") % divisor, k=(int, numbers)) == [n % divisor for n in numbers]
    assert values(wrapping(col("k") // -1), k=(int, [INT64_MIN])) == [INT64_MIN]


def test_division_by_zero_fails_the_row_unless_an_operand_is_null() -> None:
    got, failed = compute(
        col("a") // col("b"), a=("int64?", [7, 7, None, 7]), b=("int64?", [2, 0, 0, None])
    )
    assert (got[0], got[2], got[3]) == (3, None, None)
    assert failed == [(1, "integer division by zero")]
    assert compute(col("a") % 0, a=(int, [5]))[1] == [(0, "integer modulo by zero")]


def test_fused_multiply_and_add_wraps_around() -> None:
    numbers = awkward_ints(5)
    schema = Schema.of({"k": int})
    assert [i.kernel for i in lower(wrapping(col("k") * 31 - 7), schema).instructions] == [
        "load_i64",
        "wrapping_muladd_i64",
    ]
    wanted = [(n * 31 - 7 + 2**63) % 2**64 - 2**63 for n in numbers]
    assert values(wrapping(col("k") * 31 - 7), k=(int, numbers)) == wanted


def overflow(text: str) -> str:
    return f"integer overflow: {text} does not fit int64"


FACTORS = [0, 1, -1, 2, -2, 31, -31, 1000, 2**31, -(2**31), 2**62, -(2**62), INT64_MAX, INT64_MIN]


@pytest.mark.parametrize("constant", FACTORS)
@pytest.mark.parametrize("op", ["+", "-", "*", "* +", "* -"])
def test_exactly_the_rows_that_leave_int64_fail(op: str, constant: int) -> None:
    numbers = awkward_ints(constant) + [INT64_MAX // (constant or 1) + d for d in (-1, 0, 1)]
    numbers = [n for n in numbers if INT64_MIN <= n <= INT64_MAX]
    makers: dict[str, Callable[[Any], Any]] = {
        "+": lambda k: k + constant,
        "-": lambda k: k - constant,
        "*": lambda k: k * constant,
        "* +": lambda k: k * 3 + constant,
        "* -": lambda k: k * -5 - constant,
    }
    wanted = [makers[op](n) for n in numbers]
    got, failed = compute(makers[op](col("k")), k=(int, numbers))
    first = {"* +": 3, "* -": -5}.get(op)
    fits = [
        INT64_MIN <= w <= INT64_MAX and (not first or INT64_MIN <= n * first <= INT64_MAX)
        for n, w in zip(numbers, wanted, strict=True)
    ]
    assert [row for row, _ in failed] == [i for i, fine in enumerate(fits) if not fine]
    assert [g for g, f in zip(got, fits, strict=True) if f] == [
        w for w, f in zip(wanted, fits, strict=True) if f
    ]


def test_two_columns_fail_where_they_leave_int64_unless_one_is_null() -> None:
    a = ("int64?", [INT64_MAX, INT64_MAX, None, 2**40, 2**40, -1])
    b = ("int64?", [1, None, 1, 2**20, 2**40, INT64_MIN])
    assert compute(col("a") + col("b"), a=a, b=b)[1] == [
        (0, overflow("9223372036854775807 + 1")),
        (5, overflow("-1 + -9223372036854775808")),
    ]
    assert compute(col("b") - col("a"), a=a, b=b)[1] == []
    assert compute(col("a") - col("b"), a=a, b=b)[1] == []
    assert compute(col("a") * col("b"), a=a, b=b)[1] == [
        (4, overflow("1099511627776 * 1099511627776")),
        (5, overflow("-1 * -9223372036854775808")),
    ]


def test_the_least_int_has_no_opposite() -> None:
    numbers = (int, [1, INT64_MIN, -INT64_MAX])
    assert compute(-col("k"), k=numbers)[1] == [(1, overflow(f"-({INT64_MIN})"))]
    assert compute(col("k").abs(), k=numbers)[1] == [(1, overflow(f"abs({INT64_MIN})"))]
    assert compute(col("k") // -1, k=numbers)[1] == [(1, overflow(f"{INT64_MIN} // -1"))]
    assert compute(col("k") % -1, k=numbers) == ([0, 0, 0], [])


def test_a_branch_not_taken_does_not_overflow() -> None:
    guarded = when(col("k") < 100).then(col("k") * 2**60).otherwise(0)
    assert compute(guarded, k=(int, [1, 100])) == ([2**60, 0], [])
    unused = (col("k") * 2**60 + 1).is_null()
    assert len(compute(unused, k=(int, [1, 100]))[1]) == 1


def test_a_time_that_cannot_be_rounded_down_fails() -> None:
    far = col("k").cast("timestamp").truncate("7s").cast(int)
    failed = compute(far, k=(int, [INT64_MIN, 0]))[1]
    assert failed == [(0, overflow(f"truncate({INT64_MIN})"))]


def test_floats_print_as_python_does() -> None:
    rng = random.Random(1)
    drawn = [struct.unpack("<d", rng.randbytes(8))[0] for _ in range(3000)]
    powers = [float(f"{m}e{e}") for e in range(-30, 30) for m in ("1", "1.5", "-9.87654321")]
    edges = [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, sys.float_info.max, 1e16, 1e-5]
    numbers = drawn + powers + edges
    assert values(col("x").cast(str), x=(float, numbers)) == [repr(x) for x in numbers]


def test_text_to_float_takes_pythons_grammar() -> None:
    good = [
        "1",
        "+1.",
        "-.5",
        "1e5",
        "1E-05",
        "inf",
        "-Infinity",
        "NaN",
        "1e999",
        "-1e999",
        "0e999",
    ]
    good += ["1e-999", "-1e-999", "00012.50", "0." + "0" * 400 + "1e380", "1" + "0" * 400 + "e-390"]
    got = values(col("s").cast(float), s=(str, good))
    assert [repr(x) for x in got] == [repr(float(text)) for text in good]
    bad = [
        "",
        "+",
        ".",
        "e5",
        "1e",
        "1e+",
        " 1",
        "1 ",
        "1_0",
        "0x1p3",
        "nan(1)",
        "++1",
        "infi",
        "١",
    ]
    _, failed = compute(col("s").cast(float), s=(str, bad))
    assert failed == [(i, f"cannot cast {text!r} to float64") for i, text in enumerate(bad)]


def test_text_to_int_takes_ascii_digits_that_fit() -> None:
    good = ["0", "-0", "+7", "0" * 30 + "9", str(INT64_MAX), str(INT64_MIN)]
    assert values(col("s").cast(int), s=(str, good)) == [int(text) for text in good]
    bad = ["", "-", "+-1", "-+1", " 1", "1.0", str(INT64_MAX + 1), str(INT64_MIN - 1), "٣", "1\x00"]
    _, failed = compute(col("s").cast(int), s=(str, bad))
    assert failed == [(i, f"cannot cast {text!r} to int64") for i, text in enumerate(bad)]


def test_every_character_changes_case_as_in_python() -> None:
    characters = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000 and chr(c) != "\0"]
    lines = ["x".join(characters[i : i + 500]) for i in range(0, len(characters), 500)]
    for change in (str.lower, str.upper):
        name = change.__name__
        wanted = ["".join(map(change, line)) for line in lines]
        assert values(Expr(name, (col("s"),)), s=(str, lines)) == wanted
    assert values(col("s").length(), s=(str, lines)) == [len(line) for line in lines]


def test_invalid_utf8_is_refused_as_in_python() -> None:
    rng = random.Random(2)
    alphabet = [0x00, 0x41, 0x7F, 0x80, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEF]
    alphabet += [0xF0, 0xF1, 0xF4, 0xF5, 0xFF]
    data = [bytes(rng.choices(alphabet, k=rng.randrange(1, 6))) for _ in range(5000)]
    got, failed = compute(col("b").cast(str), b=(bytes, data))
    refused = {row for row, _ in failed}
    for i, one in enumerate(data):
        try:
            assert got[i] == one.decode()
        except UnicodeDecodeError:
            assert i in refused
        else:
            assert i not in refused


def test_times_before_1970_and_at_the_ends() -> None:
    times = [
        datetime.datetime(1, 1, 1, tzinfo=UTC),
        datetime.datetime(1600, 2, 29, 23, 59, 59, 999999, tzinfo=UTC),
        datetime.datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC),
        datetime.datetime(2000, 3, 1, tzinfo=UTC),
        datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ]
    for part in ("year", "month", "day", "hour", "minute", "second"):
        wanted = [getattr(time, part) for time in times]
        assert values(Expr(part, (col("t"),)), t=(datetime.datetime, times)) == wanted
    texts = values(col("t").cast(str), t=(datetime.datetime, times))
    assert texts[0] == "0001-01-01T00:00:00.000000Z"
    assert texts[2] == "1969-12-31T23:59:59.000001Z"
    minute = values(col("t").truncate("1m"), t=(datetime.datetime, times))
    assert minute == [time.replace(second=0, microsecond=0) for time in times]


def test_errors_count_only_for_rows_that_use_the_value() -> None:
    columns: dict[str, tuple[Any, list[Any]]] = {
        "a": ("int64?", [6, 6, None, 0]),
        "s": (str, ["x", "2", "3", "x"]),
    }
    divided = when(col("a") == 0).then(lit(-1)).otherwise(lit(12) // col("a"))
    assert values(divided, **columns) == [2, 2, None, -1]
    filled = col("a").fill_null(col("s").cast(int))
    assert values(filled, **columns) == [6, 6, 3, 0]
    # The same failing part outside of a branch counts for every row.
    number = col("s").cast(int)
    both = when(col("a") == 0).then(number).otherwise(lit(1)) + number
    assert [row for row, _ in compute(both, **columns)[1]] == [0, 3]
    # The second condition is not looked at where the first is true.
    chain = when(col("a") == 6).then(lit(1)).when(number > 2).then(lit(2)).otherwise(lit(3))
    got, failed = compute(chain, **columns)
    assert (got[:3], [row for row, _ in failed]) == ([1, 1, 2], [3])


def test_large_sets_and_small_ones_agree() -> None:
    words = [f"word-{i}" for i in range(3000)]
    assert sum(values(col("s").is_in(words[::3]), s=(str, words))) == 1000
    numbers = list(range(-1500, 1500))
    assert sum(values(col("k").is_in(numbers[::5]), k=(int, numbers))) == 600
    floats = [-0.0, 0.0, math.nan, 1.5, None]
    many = [0.0, math.nan, *(float(i) + 0.5 for i in range(100))]
    for options in (many[:2], many):
        got = values(col("x").is_in(options), x=("float64?", floats))
        assert got == [True, True, False, len(options) > 2, None]


def test_text_over_the_limit_fails_its_row() -> None:
    schema = Schema.of({"s": str})
    batch = pa.RecordBatch.from_pydict({"s": ["a" * 30, "b" * 60, "c"]}, schema=schema.to_arrow())
    lowered = lower(col("s") + col("s"), schema)
    array, failed = evaluate(lowered, batch, 100)
    assert array.to_pylist() == ["a" * 60, "", "cc"]
    assert [row for row, _ in failed] == [1]
    with pytest.raises(RuntimeError, match="more than 2 GiB in a unit"):  # no row is to blame
        evaluate(lower(concat(col("s"), lit("")), schema), batch, 60)


def test_deep_and_shared_expressions() -> None:
    deep = functools.reduce(operator.add, [col("k")] * 5000)
    assert values(deep, k=(int, [3])) == [15000]
    shared = col("k")
    for _ in range(60):
        shared = shared + shared
    assert values(shared, k=(int, [3])) == [3 * 2**60]
    chain = when(col("k") == 0).then(lit("0"))
    for i in range(1, 300):
        chain = chain.when(col("k") == i).then(lit(str(i)))
    assert values(chain.otherwise(lit("many")), k=(int, [7, 299, 300])) == ["7", "299", "many"]


def test_a_bare_column_is_passed_through() -> None:
    schema = Schema.of({"a": int, "b": "string?"})
    assert lower(col("b"), schema).passthrough == 1
    assert lower(col("a") + 0, schema).passthrough is None
    assert lower(col("b"), schema).nullable
    assert not lower(col("b").fill_null(""), schema).nullable
    assert values(col("b"), a=(int, [1, 2]), b=("string?", [None, "x"])) == [None, "x"]


def test_constants_alone_fill_the_column() -> None:
    rows = (int, [0] * 1500)
    assert values(lit(7), k=rows) == [7] * 1500
    assert values(lit("é"), k=rows) == ["é"] * 1500
    assert values(lit(True), k=rows) == [True] * 1500
    assert values(lit(None).cast(float), k=rows) == [None] * 1500
    assert values(lit(2) * lit(3) + lit(1), k=rows) == [7] * 1500
    assert values(lit("a") + lit("b"), k=rows) == ["ab"] * 1500


def test_a_mask_is_zero_for_false_and_null() -> None:
    schema = Schema.of({"k": "int64?"})
    batch = pa.RecordBatch.from_pydict({"k": [1, None, 5, 3] * 700}, schema=schema.to_arrow())
    found, failed = mask(lower(col("k") > 2, schema), batch)
    assert (found, failed) == (bytes([0, 0, 1, 1]) * 700, [])
    with pytest.raises(ValueError, match="bool"):
        mask(lower(col("k"), schema), batch)


def test_an_empty_batch_gives_an_empty_column() -> None:
    assert values(col("s").upper() + "x", s=("string?", [])) == []
    assert values(col("k") // 0, k=(int, [])) == []


def test_a_wrong_program_is_refused_when_it_is_built() -> None:
    from dataclasses import replace

    schema = Schema.of({"k": int})
    lowered = lower(col("k") + 1, schema)
    load, add = lowered.instructions
    for wrong in (
        replace(add, kernel="sing"),
        replace(add, args=(9, 0)),
        replace(add, out=add.args[0]),
    ):
        with pytest.raises(ValueError, match=r"sing|register|input"):
            NativeProgram(replace(lowered, instructions=(load, wrong)))
    with pytest.raises(ValueError, match="column"):
        NativeProgram(replace(lowered, instructions=(replace(load, value=1), add)))


def test_types_of_results() -> None:
    schema = Schema.of({"k": int, "x": float, "t": "timestamp"})
    assert lower(col("k") / 2, schema).type is Type.FLOAT64
    assert lower(col("k") + col("x"), schema).type is Type.FLOAT64
    assert lower(col("t") - col("t"), schema).type is Type.INT64
    assert lower(col("t") + datetime.timedelta(seconds=1), schema).type is Type.TIMESTAMP


PARTS = ["", "a", "ab", "aa", "aba", "b" * 20, "ab" * 16, "ab" * 16 + "a", "ä", "x"]


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("part", PARTS)
def test_contains_in_texts_of_one_column(part: str, nullable: bool) -> None:
    """They lie behind each other: an occurrence over the end of one is none."""
    rng = random.Random(len(part))
    texts: list[str | None] = [
        "".join(rng.choice("aabä") for _ in range(rng.choice([0, 1, 2, 7, 40, 200])))
        for _ in range(3000)
    ]
    for row in range(0, len(texts), 7):
        at = rng.randrange(3)
        texts[row] = "b" * at + part + (texts[row] or "")
        texts[row + 1 : row + 3] = [part[: len(part) // 2], part[len(part) // 2 :]]
    if nullable:
        texts = [None if rng.random() < 0.1 else text for text in texts]
    kind = "string?" if nullable else "string"
    wanted = [None if text is None else part in text for text in texts]
    assert values(col("s").contains(part), s=(kind, texts)) == wanted


def test_contains_where_a_text_under_a_null_has_the_part() -> None:
    schema = Schema.of({"s": "string?"})
    array = pa.array(["needle", "needle", "hay"]).take(pa.array([0, 1, 2]))
    validity = pa.array([True, False, True]).buffers()[1]
    column = pa.Array.from_buffers(pa.string(), 3, [validity, *array.buffers()[1:]])
    batch = pa.RecordBatch.from_arrays([column], schema=schema.to_arrow())
    found, failed = evaluate(lower(col("s").contains("needle"), schema), batch)
    assert (found.to_pylist(), failed) == ([True, None, False], [])
