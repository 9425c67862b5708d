"""Folds and state machines in Python: states by key and bin, failures, and bins as bytes."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.errors import JobError, StateError
from plait.graph.operators import FoldOp, StatefulOp
from plait.model.key_hash import bin_of
from plait.model.records import error_text
from plait.model.schema import Location, Schema
from plait.node_runtime.native._batch import NativeBatch
from plait.node_runtime.state.bin_bytes import HEADER, pack_difference
from plait.node_runtime.state.folds import KeyedPython

if TYPE_CHECKING:
    from plait.node_runtime.functions.calls import CallResult

AT = Location("job.py", 1)
SALES = Schema.of({"shop": str | None, "rate": float, "n": int})


def batch(rows: list[tuple[Any, ...]], schema: Schema = SALES) -> NativeBatch:
    dicts = [dict(zip(schema.names, row, strict=True)) for row in rows]
    return NativeBatch.from_arrow(
        pa.RecordBatch.from_pylist(dicts, schema=schema.to_arrow()), schema
    )


def add(total: int, sale: Any) -> int:
    if sale.n < 0:
        raise ValueError("negative")
    return total + int(sale.n)


def fold(
    keys: tuple[str, ...] = ("shop",),
    step: Any = add,
    init: Any = 0,
    value: Any = int,
    on_error: Any = "skip",
    bin_bits: int = 4,
) -> KeyedPython:
    schema = Schema.of({**{name: SALES[name] for name in keys}, "value": value})
    node = FoldOp(
        name="fold",
        at=AT,
        inputs=(0,),
        schema=schema,
        on_error=on_error,
        keys=keys,
        init=init,
        step=step,
    )
    return KeyedPython(node, SALES, bin_bits)


def rows(result: CallResult, operator: KeyedPython) -> list[tuple[Any, ...]]:
    arrow = result.out.to_arrow(operator.operator.schema)
    arrow.validate(full=True)
    return [tuple(row.values()) for row in arrow.to_pylist()]


def test_a_running_fold() -> None:
    operator = fold()
    first = operator(batch([("a", 0.0, 1), (None, 0.0, 5), ("a", 0.0, 2)]))
    assert rows(first, operator) == [("a", 1), (None, 5), ("a", 3)]
    assert first.kept is None
    second = operator(batch([(None, 0.0, 1), ("b", 0.0, 7)]))
    assert rows(second, operator) == [(None, 6), ("b", 7)]
    assert operator.key_count() == 3
    assert operator.states[bin_of(("a",), operator.types, 4)][("a",)] == 3


def test_no_keys_is_one_state() -> None:
    operator = fold(keys=())
    assert rows(operator(batch([("a", 0.0, 1), ("b", 0.0, 2)])), operator) == [(1,), (3,)]
    assert operator.states == {0: {(): 3}}
    failing = operator(batch([("a", 0.0, -1), ("b", 0.0, 2)]))
    assert rows(failing, operator) == [(5,)]
    assert rows(operator(batch([])), operator) == []


def test_a_failing_step_leaves_the_state_as_it_was() -> None:
    operator = fold()
    result = operator(batch([("a", 0.0, 1), ("a", 0.0, -1), ("new", 0.0, -1), ("a", 0.0, 2)]))
    assert rows(result, operator) == [("a", 1), ("a", 3)]
    assert list(result.kept or ()) == result.out.row_numbers() == [0, 3]
    assert [(row, error_text(e)) for row, e in result.failures] == [
        (1, "ValueError: negative"),
        (2, "ValueError: negative"),
    ]
    assert operator.key_count() == 1


def test_a_state_that_does_not_fit_the_output_is_not_kept() -> None:
    operator = fold(step=lambda total, sale: "x" if sale.n == 2 else total + sale.n)
    result = operator(batch([("a", 0.0, 1), ("a", 0.0, 2), ("a", 0.0, 3)]))
    assert rows(result, operator) == [("a", 1), ("a", 4)]
    (failure,) = result.failures
    assert error_text(failure[1]) == """column "value": expected int64, got 'x' (str)"""


def test_fail_stops_at_the_first() -> None:
    operator = fold(on_error="fail")
    result = operator(batch([("a", 0.0, 1), ("a", 0.0, -1), ("a", 0.0, 2)]))
    assert rows(result, operator) == [("a", 1)]
    assert operator.states[bin_of(("a",), operator.types, 4)] == {("a",): 1}


def test_float_keys_have_one_zero_and_no_nan() -> None:
    operator = fold(keys=("rate",))
    result = operator(batch([("a", 0.0, 1), ("a", float("nan"), 1), ("a", -0.0, 2)]))
    assert [value for _, value in rows(result, operator)] == [1, 3]
    assert [(row, error_text(e)) for row, e in result.failures] == [(1, "NaN cannot be a key")]
    assert operator.key_count() == 1


def test_init_is_copied_or_made_for_each_key() -> None:
    def append(seen: list[int], sale: Any) -> list[int]:
        seen.append(sale.n)
        return seen

    inits: list[Any] = [[], list]
    for init in inits:
        operator = fold(step=append, init=init, value=object)
        result = operator(batch([("a", 0.0, 1), ("b", 0.0, 2), ("a", 0.0, 3)]))
        values = [pickle.loads(value) for _, value in rows(result, operator)]
        assert values == [[1], [2], [1, 3]]
    assert inits == [[], list]


def test_some_rows_of_a_batch() -> None:
    operator = fold()
    given_batch = batch([("a", 0.0, 1), ("b", 0.0, 2), ("a", 0.0, 4)])
    result = operator(given_batch, [0, 2])
    assert rows(result, operator) == [("a", 1), ("a", 5)]
    assert result.out.row_numbers() == [0, 2]


def test_an_object_cannot_be_a_key() -> None:
    schema = Schema.of({"k": object, "value": int})
    node = FoldOp(name="fold", at=AT, inputs=(0,), schema=schema, keys=("k",), init=0, step=add)
    with pytest.raises(JobError, match='column "k" holds objects'):
        KeyedPython(node, schema, 4)


def machine(step: Any, on_error: Any = "skip") -> KeyedPython:
    node = StatefulOp(
        name="stateful",
        at=AT,
        inputs=(0,),
        schema=Schema.of({"shop": str, "rise": int}),
        on_error=on_error,
        keys=("shop",),
        init=None,
        step=step,
    )
    return KeyedPython(node, SALES, 4)


def rise(last: int | None, sale: Any) -> tuple[int, Any]:
    if last is None or sale.n <= last:
        return sale.n, None
    return sale.n, (sale.shop, sale.n - last)


def test_a_state_machine_sends_records_or_nothing() -> None:
    operator = machine(rise)
    result = operator(batch([("a", 0.0, 1), ("b", 0.0, 9), ("a", 0.0, 4), ("a", 0.0, 3)]))
    assert rows(result, operator) == [("a", 3)]
    assert list(result.kept or ()) == [2]
    again = operator(batch([("b", 0.0, 10), ("a", 0.0, 5)]))
    assert rows(again, operator) == [("b", 1), ("a", 2)]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (5, "the step must return (state, record or None), not 5"),
        ((1, 2, 3), "the step must return (state, record or None), not (1, 2, 3)"),
        ((1, ("x", "y")), """column "rise": expected int64, got 'y' (str)"""),
    ],
)
def test_nonsense_from_a_step_fails_the_row_and_keeps_the_state(answer: Any, message: str) -> None:
    operator = machine(lambda state, sale: answer if sale.n == 2 else (sale.n, None))
    result = operator(batch([("a", 0.0, 1), ("a", 0.0, 2)]))
    assert [error_text(error) for _, error in result.failures] == [message]
    assert operator.states[bin_of(("a",), operator.types, 4)] == {("a",): 1}


SALE = st.tuples(st.sampled_from(["a", "b", "ü", "", None]), st.just(0.5), st.integers(-2, 9))


@given(st.lists(SALE, max_size=30), st.lists(SALE, max_size=30), st.sampled_from([0, 1, 4]))
def test_a_fold_moved_bin_by_bin_goes_on_as_if_it_had_stayed(
    before: list[Any], after: list[Any], bin_bits: int
) -> None:
    stays, leaves = (
        fold(keys=("shop", "rate"), bin_bits=bin_bits),
        fold(keys=("shop", "rate"), bin_bits=bin_bits),
    )
    for operator in (stays, leaves):
        operator(batch(before))
    arrives = fold(keys=("shop", "rate"), bin_bits=bin_bits)
    for bin in range(2**bin_bits):
        copied = leaves.copy_bin(bin)
        assert leaves.take_bin(bin) == copied
        assert arrives.put_bin(copied) == bin
    assert leaves.key_count() == 0
    assert leaves.bins() == []
    assert arrives.bins() == stays.bins()
    assert not leaves.states
    assert rows(arrives(batch(after)), arrives) == rows(stays(batch(after)), stays)


def test_bytes_that_are_not_this_bin_are_refused_and_nothing_changes() -> None:
    operator = fold()
    operator(batch([("a", 0.0, 1)]))
    bin = bin_of(("a",), operator.types, 4)
    data = operator.copy_bin(bin)
    states = copy.deepcopy(operator.states)
    fresh = fold()
    with pytest.raises(StateError, match="has state here already"):
        operator.put_bin(data)
    for broken, message in [
        (b"", "cut off"),
        (data[:10], "cut off"),
        (data[:-1], "cut off: .* bytes of"),
        (b"PLB1" + data[4:], "no state of a Python operator"),
        (data[:4] + b"\x09\x00" + data[6:], "version 9"),
        (data[:20] + bytes([data[20] ^ 1]) + data[21:], "damaged"),
        (data[:-1] + bytes([data[-1] ^ 1]), "damaged"),
    ]:
        with pytest.raises(StateError, match=message):
            fresh.put_bin(broken)
    for other in (fold(keys=("rate",)), machine(rise)):
        with pytest.raises(StateError, match="another operator"):
            other.put_bin(data)
    with pytest.raises(StateError, match=r"2 \*\* 4 bins; this operator has 2 \*\* 5"):
        fold(bin_bits=5).put_bin(data)
    assert operator.states == states
    assert fresh.states == {}


@given(st.data())
def test_no_flipped_bit_goes_unseen(data: st.DataObject) -> None:
    operator = fold()
    operator(batch([("a", 0.0, 1)]))
    whole = bytearray(operator.copy_bin(bin_of(("a",), operator.types, 4)))
    assert len(whole) > HEADER.size
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    whole[bit // 8] ^= 1 << bit % 8
    with pytest.raises(StateError):
        fold().put_bin(bytes(whole))


def test_a_state_that_cannot_be_pickled_stays() -> None:
    operator = machine(lambda state, sale: (lambda: None, None))
    operator(batch([("a", 0.0, 1)]))
    bin = bin_of(("a",), operator.types, 4)
    with pytest.raises(StateError, match="cannot be pickled"):
        operator.take_bin(bin)
    assert operator.key_count() == 1


def append(seen: list[int], sale: Any) -> list[int]:
    seen.append(sale.n)
    if sale.n < 0:
        raise ValueError("negative")
    return seen


def lists() -> KeyedPython:
    return fold(step=append, init=list, value=object, bin_bits=0)


def test_a_bin_moves_by_its_copy_and_a_difference() -> None:
    here, there = lists(), lists()
    here(batch([(name, 0.0, 1) for name in "abcdefgh"]))
    here.track(0)
    copied = here.copy_bin(0)
    # A step that fails has changed the state in place, and "y" never came to be.
    here(batch([("a", 0.0, 2), ("b", 0.0, -1), ("x", 0.0, 3), ("y", 0.0, -1)]))
    right = copy.deepcopy(here.states)
    there.put_bin(copied)
    assert there.waits_for_difference(0)
    difference = here.take_difference(0)
    assert len(difference) < len(copied)
    assert here.key_count() == here.bin_keys(0) == 0
    assert there.apply_difference(difference) == 0
    assert not there.waits_for_difference(0)
    assert there.states == right
    assert right[0][("b",)] == [1, -1]
    there(batch([("x", 0.0, 4)]))
    assert there.states[0][("x",)] == [3, 4]


def test_keys_that_are_gone_go() -> None:
    here = lists()
    here(batch([("a", 0.0, 1), ("b", 0.0, 1)]))
    here.track(0)
    there = lists()
    there.put_bin(here.copy_bin(0))
    gone: list[Any] = [("a",), ("never",)]
    there.apply_difference(pack_difference({}, gone, here.owner, bin=0, base=here.numbers[0]))
    assert there.states == {0: {("b",): [1]}}
    assert there.key_count() == 1


def test_differences_are_refused_without_their_copy() -> None:
    here, there = lists(), lists()
    here(batch([("a", 0.0, 1)]))
    with pytest.raises(StateError, match="is not tracked"):
        here.take_difference(0)
    before = here.copy_bin(0)
    here.track(0)
    empty = lists()
    empty.track(0)
    with pytest.raises(StateError, match="is tracked here"):
        empty.put_bin(before)
    first = here.copy_bin(0)
    here.untrack(0)
    here.track(0)
    second = here.copy_bin(0)
    difference = here.copy_difference(0)
    assert here.key_count() == 1
    with pytest.raises(StateError, match="its copy is not here"):
        there.apply_difference(difference)
    for other, reason in ((before, "its copy is not here"), (first, "of another copy")):
        there.put_bin(other)
        with pytest.raises(StateError, match=reason):
            there.apply_difference(difference)
        there.discard_bin(0)
        assert there.key_count() == 0
    there.put_bin(second)
    kept = copy.deepcopy(there.states)
    for wrong, reason in (
        (second, "not the difference state"),
        (difference[:-1], "cut off"),
        (difference[:-1] + bytes([difference[-1] ^ 1]), "damaged"),
    ):
        with pytest.raises(StateError, match=reason):
            there.apply_difference(wrong)
    assert there.states == kept
    there.apply_difference(difference)
    with pytest.raises(StateError, match="not the whole state"):
        lists().put_bin(difference)


def test_the_weight_of_a_bin_is_guessed_from_the_last() -> None:
    operator = lists()
    assert operator.bin_bytes(0) == HEADER.size
    operator(batch([("a", 0.0, 1), ("b", 0.0, 1)]))
    assert operator.bin_bytes(0) == HEADER.size + 128
    data = operator.copy_bin(0)
    assert operator.bin_bytes(0) == len(data)


moves = st.sampled_from(["copy", "difference", "whole", "forget"])
steps = st.tuples(
    st.lists(st.tuples(st.sampled_from("abcdefg"), st.just(0.0), st.integers(-1, 3)), max_size=8),
    st.lists(st.tuples(st.integers(0, 3), moves), max_size=3),
)


@given(st.lists(steps, max_size=8))
def test_bins_move_while_rows_come(steps: list[Any]) -> None:
    def operator() -> KeyedPython:
        return fold(step=append, init=list, value=object, bin_bits=2)

    sides, alone = (operator(), operator()), operator()
    owner, copied = [0] * 4, [False] * 4
    for sales, ways in steps:
        alone(batch(sales))
        bins = [bin_of((sale[0],), alone.types, 2) for sale in sales]
        for side in (0, 1):
            mine = [row for row, bin in enumerate(bins) if owner[bin] == side]
            sides[side](batch(sales), mine)
        for bin, way in ways:
            here, there = sides[owner[bin]], sides[1 - owner[bin]]
            if way == "difference" and copied[bin]:
                there.apply_difference(here.take_difference(bin))
            else:
                here.untrack(bin)
                there.discard_bin(bin)
                copied[bin] = False
                if way == "copy":
                    here.track(bin)
                    there.put_bin(here.copy_bin(bin))
                    copied[bin] = True
                elif way == "whole":
                    there.put_bin(here.take_bin(bin))
            if way == "whole" or (way == "difference" and copied[bin]):
                owner[bin], copied[bin] = 1 - owner[bin], False
        found = {b: dict(sides[owner[b]].states.get(b, {})) for b in range(4)}
        assert found == {b: alone.states.get(b, {}) for b in range(4)}
