"""States of declared types as plain data, and the bytes of every format that was ever written."""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path
from typing import Any

import pytest

from plait.errors import StateError
from plait.node_runtime.state.bin_bytes import Owner, load_states, pack_bin, read_head
from plait.node_runtime.state.saved_bins import python_states
from plait.node_runtime.state.states_codec import codec_of

DATA = Path(__file__).resolve().parents[3] / "data" / "checkpoints"
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)


@dataclasses.dataclass
class Point:
    x: int
    y: float


@dataclasses.dataclass(frozen=True, slots=True)
class Cart:
    items: dict[str, int]
    at: datetime.datetime | None
    points: list[Point]
    pair: tuple[int, str]
    many: tuple[float, ...]
    raw: bytes = b""


CARTS = {
    (1, "a"): Cart({"tea": 3}, NOW, [Point(1, 2.5)], (1, "z"), (0.5, 1.5), b"\xff"),
    (None, "b"): Cart({}, None, [], (0, ""), ()),
}


def through(hint: Any, states: dict[Any, Any]) -> tuple[bytes, dict[Any, Any]]:
    owner = Owner(bin_bits=3, fingerprint=7, codec=codec_of(hint))
    data = pack_bin(states, owner, bin=5)
    return data, load_states(read_head(data, "whole", owner))


@pytest.mark.parametrize(
    ("hint", "values"),
    [
        (int, [0, -(2**63), 2**64 - 1]),
        (float, [0.5, -0.0, 3]),
        (bool, [True, False]),
        (str, ["", "tea \u2615"]),
        (bytes, [b"", b"\x00\xff"]),
        (int | None, [None, 4]),
        (list[int], [[], [1, 2]]),
        (dict[int, list[str]], [{}, {3: ["a"]}]),
        (tuple[int, ...], [(), (1, 2)]),
        (tuple[Point, str], [(Point(1, 1.0), "a")]),
        (datetime.datetime, [NOW]),
    ],
)
def test_they_come_back_without_a_pickle(hint: Any, values: list[Any]) -> None:
    states = {(i,): value for i, value in enumerate(values)}
    data, found = through(hint, states)
    assert found == states
    assert [type(value) for value in found.values()] == [type(value) for value in values]
    assert int.from_bytes(data[4:6], "little") == 4
    assert b"Point" not in data or b"test_typed_states" not in data


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (int, 2**70),
        (int, [1]),
        (str, "\ud800"),
        (list[int], (1,)),
        (tuple[int, int], (1,)),
        (dict[str, int], {(1, 2): 3}),
        (object, 5),
    ],
)
def test_what_does_not_fit_is_a_pickle(hint: Any, value: Any) -> None:
    data, found = through(hint, {(1,): value})
    assert found == {(1,): value}
    assert int.from_bytes(data[4:6], "little") == 3


def test_an_attribute_that_is_no_field_is_not_lost() -> None:
    point = Point(1, 2.0)
    point.extra = 3  # type: ignore[attr-defined]
    data, found = through(Point, {(1,): point})
    assert int.from_bytes(data[4:6], "little") == 3
    assert vars(found[1,]) == {"x": 1, "y": 2.0, "extra": 3}


def test_the_bytes_that_were_written_once() -> None:
    """Those of this format; a change that cannot read them needs a new version, and keeps them."""
    data = (DATA / "typed-bin-4.bin").read_bytes()
    owner = Owner(bin_bits=3, fingerprint=7, codec=codec_of(Cart))
    assert load_states(read_head(data, "whole", owner)) == CARTS
    assert python_states(data)[1, "a"]["points"] == [{"x": 1, "y": 2.5}]
    old = (DATA / "pickled-bin-3.bin").read_bytes()
    assert load_states(read_head(old, "whole", owner)) == {(1,): 2, (2,): [3, "a"]}


def test_damage_is_refused() -> None:
    data = (DATA / "typed-bin-4.bin").read_bytes()
    owner = Owner(bin_bits=3, fingerprint=7, codec=codec_of(Cart))
    for at in range(len(data)):
        broken = bytearray(data)
        broken[at] ^= 1
        with pytest.raises(StateError):
            load_states(read_head(bytes(broken), "whole", owner))
