"""Pieces of one record come to `with_event_time` on several nodes, and one of them ends the job."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait import col
from plait.testing import check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plait.streams.stream import Stream

START = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
PIECES: dict[str, Any] = {"n": int, "k": int, "ts": plait.Timestamp | None}
KEYS = 8
"""So many that no node has all."""


class Cut:
    """A piece for every key. Of the last record one has no time, and the others are much later."""

    def __init__(self, wrong: int) -> None:
        self.wrong = wrong

    def __call__(self, record: Any) -> Iterator[dict[str, Any]]:
        for k in range(KEYS):
            ts = START + plait.seconds(record.n if record.n < 2 else 20 + k)
            yield {"n": record.n, "k": k, "ts": None if record.n == 2 and k == self.wrong else ts}


def same(state: int, record: Any) -> tuple[int, Any]:
    return state + 1, record


def wary(state: int, record: Any) -> tuple[int, Any]:
    if record.ts is None:
        raise ValueError("no time")
    return state + 1, record


def apart(stream: Stream, wrong: int, step: Callable[[int, Any], tuple[int, Any]]) -> Stream:
    pieces = stream.flat_map(Cut(wrong), schema=PIECES)
    return pieces.key_by("k").stateful(0, step, schema=PIECES)


@pytest.mark.parametrize("step", [same, wary], ids=["there", "before"])
@pytest.mark.parametrize("wrong", [0, 3, KEYS - 1])
def test_pieces_of_the_record_that_ended_the_stream_move_no_time(
    wrong: int, step: Callable[[int, Any], tuple[int, Any]]
) -> None:
    def build(stream: Stream) -> Stream:
        named = apart(stream, wrong, step).with_event_time("ts")
        return named.key_by("k").tumbling("4s").count()

    rows = [{"n": n} for n in range(3)]
    for epoch_records in (1, 4096):
        check(
            build,
            rows,
            workers=(1, 2),
            nodes=(1, 2, 3),
            epoch_records=epoch_records,
            raises=plait.RecordError,
        )


@pytest.mark.parametrize("wrong", [1, 3, KEYS - 1, KEYS])
def test_a_failure_behind_it_hides_nothing(wrong: int) -> None:
    """The first piece of the record fails behind `with_event_time`, if need be on the node of the
    one without a time."""

    def build(stream: Stream) -> Stream:
        named = apart(stream, wrong, same).with_event_time("ts")
        sure = named.filter(1 // (col("k") + 2 - col("n")) < 9)
        return sure.key_by("k").tumbling("4s").count()

    rows = [{"n": n} for n in range(3)]
    check(build, rows, workers=(1,), nodes=(1, 2, 3), raises=plait.RecordError)
