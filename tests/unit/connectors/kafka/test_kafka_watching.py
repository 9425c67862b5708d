"""What a look at a topic means: a pure decision, with the time as an argument."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait.connectors.kafka.client import Bounds
from plait.connectors.kafka.watch.watching import CERTAIN, LOOK_S, STALL_S, Found, Watch, judge

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class Looks:
    """A reader's looks, one every few seconds."""

    def __init__(self) -> None:
        self.memory = Watch()
        self.now_s = 0.0

    def look(
        self,
        ends: Mapping[int, int],
        reached: Mapping[int, int],
        *,
        drained: bool = True,
        held: Collection[int] = (),
        after_s: float = LOOK_S,
    ) -> Found:
        self.now_s += after_s
        look = {p: Bounds(0, end) for p, end in ends.items()}
        found, self.memory = judge(
            look,
            reached=reached,
            drained=drained,
            held=held,
            memory=self.memory,
            now_s=self.now_s,
        )
        return found

    def until_stalled(self, ends: Mapping[int, int], reached: Mapping[int, int]) -> float:
        """The seconds from the first look at which nothing had come to the one that says so."""
        self.look(ends, reached)
        began = self.now_s
        while not self.look(ends, reached).stalled:
            assert self.now_s - began < 10_000
        return self.now_s - began


def test_new_partitions_begin_at_their_first_offset() -> None:
    found, _ = judge(
        {0: Bounds(0, 9), 1: Bounds(3, 4), 2: Bounds(0, 0)},
        reached={0: 9},
        drained=True,
        memory=Watch(),
        now_s=1.0,
    )
    assert found == Found(fresh={1: 3, 2: 0}, stalled={})


def test_records_that_do_not_come() -> None:
    looks = Looks()
    assert looks.until_stalled({0: 9, 1: 5}, {0: 4, 1: 5}) == STALL_S
    assert looks.look({0: 9}, {0: 9}) == Found(fresh={}, stalled={})


def test_a_new_consumer_that_does_not_help_is_given_more_time() -> None:
    looks = Looks()
    waits = [looks.until_stalled({0: 9}, {0: 4}) for _ in range(6)]
    assert waits == [30, 60, 120, 240, 480, 600]
    assert looks.until_stalled({0: 9}, {0: 5}) == STALL_S  # one has come


def test_what_is_not_a_stall() -> None:
    cases: dict[str, list[tuple[dict[int, int], dict[int, int], dict[str, Any]]]] = {
        "records come": [({0: 90}, {0: n}, {}) for n in range(20)],
        "all was read": [({0: 4}, {0: 4}, {})] * 20,
        "the reader does not keep up": [({0: 9}, {0: 4}, {"drained": False})] * 20,
        "the reader was away": [({0: 9}, {0: 4}, {"after_s": 60.0})] * 20,
        "it is held": [({0: 9}, {0: 4}, {"held": {0}})] * 20,
    }
    for name, steps in cases.items():
        looks = Looks()
        for ends, reached, more in steps:
            assert not looks.look(ends, reached, **more).stalled, name


def test_a_busy_reader_begins_to_wait_anew() -> None:
    looks = Looks()
    for _ in range(4):
        looks.look({0: 9}, {0: 4})
    looks.look({0: 9}, {0: 4}, drained=False)
    began = looks.now_s
    while not looks.look({0: 9}, {0: 4}).stalled:
        pass
    assert looks.now_s - began == STALL_S


def test_a_topic_that_is_not_what_it_was() -> None:
    for ends, why in (({0: 9}, "partition 1 is gone"), ({0: 9, 1: 3}, "ends at 3")):
        looks = Looks()
        looks.look({0: 9, 1: 9}, {0: 9, 1: 9})
        said = [looks.look(ends, {0: 9, 1: 9}).wrong for _ in range(CERTAIN)]
        assert said[:-1] == [""] * (CERTAIN - 1)
        assert why in said[-1]


def test_a_broker_that_is_behind_for_a_moment_and_a_look_that_is_old() -> None:
    looks = Looks()
    for n in range(10):
        looks.look({0: 9, 1: 9}, {0: 9, 1: 9})
        assert not looks.look({0: 9}, {0: 9, 1: 9}).wrong, n
    looks = Looks()
    for n in range(10):  # since the brokers were asked, more was read
        assert not looks.look({0: 100 * n}, {0: 100 * n + 50}).wrong
