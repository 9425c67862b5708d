"""The keyed state by example: what each aggregate says about nulls and NaN, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from plait.model.schema import Field, Schema, Type
from plait.node_runtime.native._batch import NativeBatch
from plait.node_runtime.native._state import KeyedStates

KEY = Field("k", Type.INT64)
ROWS = ("count", None, Type.INT64, False)


def batch(values: list[Any], kind: Type, keys: list[int] | None = None) -> NativeBatch:
    schema = Schema((KEY, Field("v", kind, nullable=True)))
    arrow = schema.to_arrow()
    columns = [
        pa.array([0] * len(values) if keys is None else keys, pa.int64()),
        pa.array(values, arrow.field(1).type),
    ]
    return NativeBatch.from_arrow(pa.RecordBatch.from_arrays(columns, schema=arrow), schema)


def running(aggregate: str, values: list[Any], kind: Type, result: Type | None = None) -> list[Any]:
    """The results of one aggregate over one key."""
    states = KeyedStates([(0, Type.INT64)], [(aggregate, 1, kind, True)], bin_bits=4, lane_bits=1)
    out = states.process(batch(values, kind))
    schema = Schema((KEY, Field("r", result or kind, nullable=True)))
    results: list[Any] = out.to_arrow(schema).column(1).to_pylist()
    return results


def count_states(bin_bits: int = 4, lane_bits: int = 1) -> KeyedStates:
    return KeyedStates([(0, Type.INT64)], [ROWS], bin_bits=bin_bits, lane_bits=lane_bits)


def test_nulls_are_skipped_and_results_null_until_a_value() -> None:
    values = [None, 3, None, -1]
    assert running("count", values, Type.INT64) == [0, 1, 1, 2]
    assert running("sum", values, Type.INT64) == [None, 3, 3, 2]
    assert running("min", values, Type.INT64) == [None, 3, 3, -1]
    assert running("max", values, Type.INT64) == [None, 3, 3, 3]
    assert running("mean", values, Type.INT64, Type.FLOAT64) == [None, 3.0, 3.0, 1.0]
    assert running("first", values, Type.INT64) == [None, 3, 3, 3]
    assert running("last", values, Type.INT64) == [None, 3, 3, -1]


def test_nan_counts_only_when_there_is_nothing_else() -> None:
    low = running("min", [math.nan, 2.0, math.nan, 1.0], Type.FLOAT64)
    assert math.isnan(low[0])
    assert low[1:] == [2.0, 2.0, 1.0]
    assert running("max", [1.0, math.nan], Type.FLOAT64) == [1.0, 1.0]


def test_sums_of_integers_wrap_if_they_are_to() -> None:
    top = 2**63 - 1
    assert running("wrapping_sum", [top, 1], Type.INT64) == [top, -(2**63)]
    assert running("sum", [top, -1, 1, None], Type.INT64) == [top, top - 1, top, top]


def test_texts_are_ordered_by_code_point() -> None:
    assert running("max", ["b", "é", "a", "\U0001f600", ""], Type.STRING)[-1] == "\U0001f600"
    assert running("min", ["b", None, "ab", "abc"], Type.STRING) == ["b", "b", "ab", "ab"]
    assert running("last", ["long " * 20, "x"], Type.STRING)[-1] == "x"


def test_booleans_keep_their_type() -> None:
    assert running("max", [False, None, True], Type.BOOL) == [False, False, True]


def test_nan_keys_are_found() -> None:
    keys = [(1, Type.FLOAT64), (1, Type.FLOAT64)]
    states = KeyedStates(keys, [ROWS], bin_bits=4, lane_bits=1)
    assert states.nan_key_rows(batch([1.0, math.nan, None, math.nan], Type.FLOAT64)) == [1, 3]
    assert count_states().nan_key_rows(batch([math.nan], Type.FLOAT64)) == []


@pytest.mark.parametrize(
    ("keys", "aggregates", "bin_bits", "lane_bits", "reason"),
    [
        ([(0, Type.OBJECT)], [ROWS], 4, 0, "object column cannot be a key"),
        ([(0, Type.INT64)], [("sum", 1, Type.STRING, False)], 4, 0, "of numbers"),
        ([(0, Type.INT64)], [("max", 1, Type.OBJECT, False)], 4, 0, "no order"),
        ([(0, Type.INT64)], [("max", None, Type.INT64, False)], 4, 0, "without an input"),
        ([(0, Type.INT64)], [ROWS], 2, 3, "one bin a lane"),
    ],
)
def test_senseless_plans_are_refused(
    keys: list[tuple[int, Type]],
    aggregates: list[tuple[str, int | None, Type, bool]],
    bin_bits: int,
    lane_bits: int,
    reason: str,
) -> None:
    with pytest.raises(ValueError, match=reason):
        KeyedStates(keys, aggregates, bin_bits=bin_bits, lane_bits=lane_bits)


def test_refusals_say_why() -> None:
    states = count_states()
    states.process(batch([0] * 50, Type.INT64, list(range(50))))
    full = next(b for b in range(16) if states.bin_keys(b) > 0)
    with pytest.raises(ValueError, match="is here already"):
        states.put_bin(full, states.copy_bin(full))
    taken = states.take_bin(full)
    with pytest.raises(ValueError, match="truncated"):
        states.put_bin(full, taken[:20])
    with pytest.raises(ValueError, match="not the state of a bin"):
        states.put_bin(full, b"x" * 56)
    with pytest.raises(ValueError, match="wrong checksum"):
        states.put_bin(full, taken[:-1] + bytes([taken[-1] ^ 1]))
    with pytest.raises(ValueError, match="version 9"):
        states.put_bin(full, taken[:4] + b"\x09" + taken[5:])
    with pytest.raises(ValueError, match="another plan"):
        KeyedStates([(0, Type.TIMESTAMP)], [ROWS], bin_bits=4, lane_bits=1).put_bin(full, taken)
    with pytest.raises(ValueError, match="bins, this one has"):
        count_states(bin_bits=5).put_bin(full, taken)
    with pytest.raises(ValueError, match="is not of lane"):
        states.put_bin(full ^ 8, taken)
    states.put_bin(full, taken)
    assert states.key_count() == 50


def test_an_empty_bin_is_bytes_too() -> None:
    states = count_states()
    states.put_bin(3, states.take_bin(3))
    assert states.key_count() == 0


def test_memory_comes_back_when_the_bins_are_gone() -> None:
    states = count_states()
    before = states.byte_size()
    states.process(batch([0] * 20_000, Type.INT64, list(range(20_000))))
    assert states.byte_size() > before
    for bin in range(16):
        states.take_bin(bin)
    assert states.byte_size() == before


def test_a_bin_moves_by_its_copy_and_a_difference() -> None:
    here, there = count_states(bin_bits=0, lane_bits=0), count_states(bin_bits=0, lane_bits=0)
    here.process(batch([0] * 5_000, Type.INT64, list(range(5_000))))
    here.track(0)
    copied = here.copy_bin(0)
    here.process(batch([0] * 3, Type.INT64, [1, 1, 9_999]))
    there.put_bin(0, copied)
    assert there.waits_for_difference(0)
    difference = here.take_difference(0)
    assert len(difference) < len(copied) / 100
    assert here.key_count() == 0
    there.apply_difference(0, difference)
    assert not there.waits_for_difference(0)
    assert there.key_count() == 5_001
    out = there.process(batch([0] * 3, Type.INT64, [1, 2, 9_999]))
    schema = Schema((KEY, Field("n", Type.INT64)))
    assert out.to_arrow(schema).column(1).to_pylist() == [4, 2, 2]


def test_differences_are_refused_without_their_copy() -> None:
    here, there = count_states(), count_states()
    here.process(batch([0] * 50, Type.INT64, list(range(50))))
    full = next(b for b in range(16) if here.bin_keys(b) > 0)
    with pytest.raises(ValueError, match="is not tracked"):
        here.take_difference(full)
    before = here.copy_bin(full)
    here.track(full)
    first = here.copy_bin(full)
    here.untrack(full)
    with pytest.raises(ValueError, match="is not tracked"):
        here.take_difference(full)
    here.track(full)
    second = here.copy_bin(full)
    difference = here.take_difference(full)
    with pytest.raises(ValueError, match="its copy is not here"):
        there.apply_difference(full, difference)
    for other, reason in ((before, "its copy is not here"), (first, "of another copy")):
        there.put_bin(full, other)
        with pytest.raises(ValueError, match=reason):
            there.apply_difference(full, difference)
        there.discard_bin(full)
        assert there.bin_keys(full) == 0
    there.put_bin(full, second)
    with pytest.raises(ValueError, match="not the difference"):
        there.apply_difference(full, second)
    with pytest.raises(ValueError, match="wrong checksum"):
        there.apply_difference(full, difference[:-1] + bytes([difference[-1] ^ 1]))
    there.apply_difference(full, difference)
    with pytest.raises(ValueError, match="whole bin"):
        count_states().put_bin(full, difference)


def test_a_tracked_bin_takes_none_in() -> None:
    here = count_states()
    empty = here.copy_bin(3)
    here.track(3)
    with pytest.raises(ValueError, match="is tracked here"):
        here.put_bin(3, empty)


def test_memory_is_made_ready_once_and_given_back() -> None:
    states = count_states(bin_bits=8)
    touched = states.prepare(range(256), 1_000_000)
    assert touched >= 1_000_000 * 16
    assert states.prepare(range(256), 1_000_000) == 0
    before = states.byte_size()
    states.prepare((), 0)
    assert states.byte_size() == before
    assert states.prepare(range(256), 1_000_000) == touched


def test_the_weight_of_a_bin_is_about_its_bytes() -> None:
    states = count_states()
    states.process(batch([0] * 20_000, Type.INT64, list(range(20_000))))
    for bin in range(16):
        assert states.bin_bytes(bin) == len(states.copy_bin(bin))
    assert sum(states.bin_keys(bin) for bin in range(16)) == 20_000
