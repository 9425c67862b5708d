"""Dead letters as records of a topic: key and value as they came, and headers."""

from __future__ import annotations

from typing import Any

import pytest

import plait
from plait.connectors.kafka.client import Record
from plait.connectors.kafka.done_offsets import Done, parse_done
from plait.connectors.kafka.letters import MOST_BYTES, LetterRows, parse_letter
from plait.connectors.kafka.replay import Choice
from plait.errors import EnvironmentFailure
from plait.results.result import BadLine, DeadLetter

RAW = {
    "topic": "clicks",
    "partition": 2,
    "offset": 7,
    "timestamp_ms": 5,
    "key": b"k",
    "headers": [],
}


def rows_of(*records: Any, **source: Any) -> list[Any]:
    job = plait.Job("clicks")
    given = plait.Kafka("clicks", schema={"n": int}, **source)
    job.source(given, "in").sink(plait.Discard())
    letters = [
        DeadLetter(operator="map", at="a.py:3", source="in", row=n, error="no: ä", record=record)
        for n, record in enumerate(records, 1)
    ]
    return LetterRows(plait.Kafka("letters"), job.graph()).of(letters)


def parsed(row: Any, at_ms: int = 1_000) -> Any:
    key, value, headers = row
    return parse_letter(Record(0, 3, at_ms, key, value, headers))


def test_a_record_that_was_not_read_is_there_as_it_came() -> None:
    headers = [["trace", b"1"], ["plait-operator", b"older"], ["plait-replayed", b"2"]]
    (row,) = rows_of({**RAW, "value": b"\xff", "headers": headers})
    letter = parsed(row)
    assert (letter.key, letter.value, letter.raw, letter.replayed) == (b"k", b"\xff", True, 2)
    assert letter.headers == [("trace", b"1")]
    assert letter.told == {
        "job": "clicks",
        "operator": "map",
        "at": "a.py:3",
        "source": "in",
        "row": "1",
        "error": "no: ä",
        "content": "raw",
        "topic": "clicks",
        "partition": "2",
        "offset": "7",
        "replayed": "2",
    }


def test_of_other_records_the_columns_are_there() -> None:
    known = {"n": 1, "partition": 3, "offset": 9}
    line = BadLine(file="a", line=3, text="x,y")
    rows = rows_of(known, object(), line, metadata=("partition", "offset"))
    first, second, third = (parsed(row) for row in rows)
    assert (first.value, first.raw) == (b'{"n": 1, "partition": 3, "offset": 9}', False)
    assert [first.told[name] for name in ("topic", "partition", "offset")] == ["clicks", "3", "9"]
    assert (second.value, second.told["content"]) == (None, "left out")
    assert "offset" not in second.told
    assert third.value == b"x,y"
    (unknown,) = rows_of({"n": 1})
    assert "offset" not in parsed(unknown).told


def test_a_long_value_is_left_out() -> None:
    (row,) = rows_of({**RAW, "value": bytes(MOST_BYTES + 1)})
    letter = parsed(row)
    assert (letter.value, letter.told["content"], letter.told["offset"]) == (None, "left out", "7")


def test_any_record_is_a_letter() -> None:
    letter = parse_letter(Record(0, 0, 5, None, b"x", [("plait-replayed", b"often"), ("a", None)]))
    assert (letter.value, letter.replayed, letter.raw) == (b"x", 0, True)
    assert letter.headers == [("a", None)]


@pytest.mark.parametrize("arguments", [{"key": "n"}, {"format": "msgpack"}])
def test_letters_have_their_own_form(arguments: Any) -> None:
    job = plait.Job("clicks")
    job.source([1]).sink(plait.Discard())
    with pytest.raises(plait.JobError, match="as they came; leave out"):
        LetterRows(plait.Kafka("letters", **arguments), job.graph())


def test_letters_are_chosen() -> None:
    letter = parsed(rows_of({**RAW, "value": b"x"})[0], at_ms=1_000)
    assert Choice().takes(letter)
    assert Choice(operator="map", error="NO", since_ms=1_000).takes(letter)
    assert not Choice(operator="ma").takes(letter)
    assert not Choice(error="yes").takes(letter)
    assert not Choice(since_ms=1_001).takes(letter)


def test_what_is_done_is_kept_as_an_offset_and_ranges() -> None:
    done = Done(10).with_offsets([14, 12, 11, 20])
    assert (done, done.text()) == (Done(10, ((11, 12), (14, 14), (20, 20))), "11-12,14,20")
    assert parse_done(10, done.text()) == done
    inside = [offset for offset in range(9, 22) if offset in done]
    assert inside == [9, 11, 12, 14, 20]
    assert done.with_offsets([10]) == Done(13, ((14, 14), (20, 20)))
    assert done.with_offsets([10, 13]) == Done(15, ((20, 20),))
    assert done.skipping(14) == Done(15, ((20, 20),))
    assert parse_done(4, "") == Done(4)
    assert not Done(0).with_offsets(range(1, 9_000, 2)).fits()
    with pytest.raises(EnvironmentFailure, match="not ours"):
        parse_done(4, "someone")
