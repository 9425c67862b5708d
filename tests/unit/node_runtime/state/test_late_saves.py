"""Python states that are packed behind a mark: what they were there, whatever happens meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.errors import StateError
from plait.node_runtime.state.bin_bytes import Owner, load_states, read_head
from plait.node_runtime.state.keyed_states import PythonStates

if TYPE_CHECKING:
    from plait.node_runtime.state.bin_bytes import States

OWNER = Owner(bin_bits=2, fingerprint=1)
AT_ONCE = -1.0
"""A turn that is over after one bin."""


def make(states: dict[int, States]) -> PythonStates:
    made = PythonStates(OWNER)
    for bin, part in states.items():
        for key, state in part.items():
            change(made, bin, key, state)
    return made


def change(states: PythonStates, bin: int, key: Any, state: Any) -> None:
    """As an operator does with a row."""
    if states.watches():
        states.touch(key)
    if key not in states.home:
        part = states.home[key] = states.states.setdefault(bin, {})
        states.saves.touch(key, part)
    states.home[key][key] = state


def read(data: bytes) -> States:
    return load_states(read_head(data, "whole", OWNER))


def save_all(states: PythonStates) -> dict[int, States]:
    found: dict[int, States] = {}
    done = False
    while not done:
        packed, done = states.save(AT_ONCE)
        assert not set(dict(packed)) & set(found)
        found |= {bin: read(data) if data else {} for bin, data in packed}
    return found


def test_what_is_packed_is_what_was_there_at_the_mark() -> None:
    states = make({0: {("a",): [1], ("b",): 2}, 3: {("c",): 3}})
    assert not states.begin_save(7, 0)
    states.touch(("a",))
    states.home["a",]["a",].append(9)
    change(states, 0, ("new",), 5)
    change(states, 3, ("c",), 4)
    assert save_all(states) == {0: {("a",): [1], ("b",): 2}, 3: {("c",): 3}}
    assert states.states[0] == {("a",): [1, 9], ("b",): 2, ("new",): 5}


def test_only_what_changed_since_the_last_mark_is_packed() -> None:
    states = make({0: {("a",): 1}, 1: {("b",): 2}, 2: {("c",): 3}})
    states.begin_save(1, 0)
    save_all(states)
    assert states.watches()
    change(states, 1, ("b",), 5)
    states.discard_bin(2)
    change(states, 3, ("d",), 6)
    assert states.begin_save(2, 1)
    assert save_all(states) == {1: {("b",): 5}, 2: {}, 3: {("d",): 6}}
    assert states.begin_save(3, 2)
    assert save_all(states) == {}
    # The checkpoint before was given up: it is another one that the next is compared with.
    assert not states.begin_save(4, 2)
    assert save_all(states) == {0: {("a",): 1}, 1: {("b",): 5}, 3: {("d",): 6}}


def test_nothing_is_watched_when_all_bins_have_changed() -> None:
    states = make({0: {("a",): 1}, 1: {("b",): 2}})
    assert not states.watches()
    states.begin_save(1, 0)
    save_all(states)
    change(states, 0, ("a",), 2)
    assert states.watches()
    change(states, 1, ("b",), 2)
    assert not states.watches()


def test_a_state_that_cannot_be_packed_is_told() -> None:
    states = make({0: {("a",): lambda: None}})
    states.begin_save(1, 0)
    states.touch(("a",))
    with pytest.raises(StateError, match="cannot be pickled"):
        save_all(states)
    change(states, 0, ("a",), 1)
    states.begin_save(2, 0)
    assert save_all(states) == {0: {("a",): 1}}


Steps = st.lists(
    st.one_of(
        st.tuples(st.just("change"), st.integers(0, 7), st.integers(0, 99)),
        st.tuples(st.just("leave"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("move"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("mark"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("save"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@given(Steps)
def test_marks_put_together_are_copies_at_the_marks(steps: list[tuple[str, int, int]]) -> None:
    states = PythonStates(OWNER)
    kept: dict[int, States] = {}
    at_mark: dict[int, States] = {}
    number = sealed = 0
    saving = False
    for what, which, value in steps:
        if what == "change":
            key = (which,)
            if states.watches():
                states.touch(key)
            if key in states.home:  # in place
                states.home[key][key].append(value)
            else:
                change(states, which % 4, key, [value])
        elif what == "leave":
            states.discard_bin(which)
        elif what == "move" and which in states.bins():
            states.put_bin(states.take_bin(which))
        elif what == "mark":
            if saving:
                sealed = 0  # given up
            number += 1
            at_mark = {bin: read(states.copy_bin(bin)) for bin in states.bins()}
            if not states.begin_save(number, sealed):
                kept = {}
            saving, sealed = True, 0
        elif what == "save" and saving:
            packed, done = states.save(AT_ONCE)
            for bin, data in packed:
                kept.pop(bin, None)
                if data:
                    kept[bin] = read(data)
            if done:
                assert kept == at_mark
                saving, sealed = False, number
