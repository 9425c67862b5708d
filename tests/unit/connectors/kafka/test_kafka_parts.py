"""The pure parts of Kafka in and out: positions, merging, formats, settings."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import plait
from plait.connectors.kafka.client import Bounds, Record
from plait.connectors.kafka.formats import decoder_of, encode_json
from plait.connectors.kafka.kafka import CLOCK
from plait.connectors.kafka.merging import TimeMerge
from plait.connectors.kafka.positions import Places, check_same_topic, find_lost
from plait.connectors.kafka.settings import Connection
from plait.graph.operators import SourceOp
from plait.model.schema import Schema

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = Schema.of({"s": str, "i": int, "f": float | None, "b": bool | None})
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
OBJECTS = st.dictionaries(st.sampled_from(["s", "i", "f", "b", "other"]), JSON)


def decoded(values: list[bytes | None], schema: Schema = SCHEMA) -> tuple[list[Any], set[int]]:
    found = decoder_of("json", schema, None)(values)
    assert found.batch.num_rows == len(found.numbers)
    assert sorted([*found.numbers, *found.reasons]) == list(range(len(values)))
    return found.batch.to_pylist(), set(found.reasons)


def fits(record: dict[str, Any]) -> bool:
    """What the schema takes, said once more."""
    strange = ("NaN", "Infinity", "-Infinity")
    numbers = record.get("f") is None or type(record["f"]) in (int, float) or record["f"] in strange
    return (
        isinstance(record.get("s"), str)
        and not any("\ud800" <= letter <= "\udfff" for letter in record["s"])
        and type(record.get("i")) is int
        and -(2**63) <= record["i"] < 2**63
        and numbers
        and type(record.get("b")) in (bool, type(None))
    )


@given(st.lists(OBJECTS, max_size=5))
def test_json_is_what_python_reads(records: list[dict[str, Any]]) -> None:
    values: list[bytes | None] = []
    wanted, refused = [], set()
    for number, record in enumerate(records):
        text = json.dumps(record)
        values.append(text.encode())
        again = json.loads(text)
        if "NaN" in text.replace('"NaN"', "") or "Infinity" in text.replace('Infinity"', ""):
            refused.add(number)  # Python's JSON has them, the real one has not
        elif not fits(again) or too_large(again.get("f")):
            refused.add(number)
        else:
            wanted.append(again)
    rows, bad = decoded(values)
    assert bad == refused
    for row, record in zip(rows, wanted, strict=True):
        assert (row["s"], row["i"], row["b"]) == (record["s"], record["i"], record.get("b"))
        if isinstance(record.get("f"), str):
            assert json.dumps(row["f"]) == record["f"]
        else:
            assert row["f"] == (None if record.get("f") is None else float(record["f"]))


def too_large(number: Any) -> bool:
    try:
        float(number if type(number) is int else 0)
    except OverflowError:
        return True
    return False


@given(st.binary(max_size=40))
def test_any_bytes_are_a_row_or_a_reason(value: bytes) -> None:
    decoded([value, b'{"s": "", "i": 0}'])


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b'{"s": "a", "i": 1, "i": 2}', 'the name "i" is there twice'),
        (b'{"s": "a", "i": NaN}', "NaN is not a number"),
        (b'{"s": "a", "i": 1} x', "more after the object at byte 20"),
        (b'{"s": "\xff"}', "not UTF-8 at byte 8"),
        (b'{"s": "\\ud800", "i": 1}', "surrogate"),
        (b'{"s": "a", "i": 1, "x": ' + b"[" * 70 + b"]" * 70 + b"}", "nested deeper than 64"),
        (b'{"s": "a", "i": 1, "x": ' + b"[" * 99_999, "nested deeper than 64"),
        (b'{"s": "a", "i": 1.0}', 'column "i"'),
        (b'{"s": "a"}', 'column "i": missing'),
        (b"7", "expected a JSON object"),
        (None, "tombstone"),
    ],
)
def test_what_is_wrong_with_a_value(value: bytes | None, why: str) -> None:
    found = decoder_of("json", SCHEMA, None)([b'{"s": "a", "i": 1}', value])
    assert why in found.reasons[1]
    assert found.batch.num_rows == 1


def test_what_is_encoded_decodes() -> None:
    import pyarrow as pa

    rows = [{"s": 'ä"\\', "i": -(2**63), "f": float("inf"), "b": None}]
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA.to_arrow())
    assert decoded(encode_json(batch, SCHEMA)) == (rows, set())


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=8), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
    st.integers(1, 5),
)
def test_a_merge_does_not_depend_on_arrival(times: list[list[int]], chance: Any, most: int) -> None:
    keyed = []
    for partition, found in enumerate(times):
        newest = -1
        for offset, time in enumerate(found):
            newest = max(newest, time)
            keyed.append((newest, partition, offset))
    merge = TimeMerge(dict.fromkeys(range(len(times)), -1))
    left = dict.fromkeys(range(len(times)), 0)
    taken: list[tuple[int, int]] = []
    while not merge.over:
        if left:
            partition = chance.choice(sorted(left))
            at = left[partition]
            if at == len(times[partition]):
                del left[partition]
                merge.finish(partition)
            else:
                merge.add([Record(partition, at, times[partition][at], None, None, ())])
                left[partition] += 1
        taken += [(record.partition, record.offset) for record in merge.take(most)]
    assert taken == [(partition, offset) for _, partition, offset in sorted(keyed)]


def test_positions() -> None:
    places = Places(next={1: 5, 0: 2}, end={0: 9, 1: 9}, merged_ms={0: 3})
    assert Places.of(json.loads(json.dumps(places.to_plain()))) == places
    with pytest.raises(plait.SourceError, match="not a position"):
        Places.of(7)
    assert find_lost({0: 2, 1: 9}, {0: Bounds(5, 9), 1: Bounds(5, 9)}) == {0: 3}
    with pytest.raises(plait.SourceError, match="made anew"):
        check_same_topic("t", {0: 10}, {0: Bounds(0, 9)})


def test_settings_are_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORD", "canary-env")
    (tmp_path / "word").write_text("canary-file\n")
    given_settings = {"a": "canary-plain", "b": "env:WORD", "c": f"file:{tmp_path / 'word'}"}
    connection = Connection(servers="h:1", settings=given_settings)
    assert list(connection.for_client().values()) == ["canary-plain", "canary-env", "canary-file"]
    assert "canary" not in repr(connection)
    assert connection.redact("canary-plain canary-env canary-file") == "*** *** ***"
    source = plait.Kafka("t", schema={"n": int}, settings=given_settings)
    assert "canary" not in repr(source)
    assert b"canary-env" not in pickle.dumps(source)
    monkeypatch.delenv("WORD")
    with pytest.raises(plait.EnvironmentFailure, match="environment variable WORD"):
        connection.for_client()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"format": "xml"}, "format is 'xml'"),
        ({"start": "now"}, "start is 'now'"),
        ({"end": "earliest"}, "end is 'earliest'"),
        ({"metadata": ("colour",)}, "metadata names 'colour'"),
        ({"client": "other"}, "client is 'other'"),
        ({"decode": 7}, "decode= takes a function"),
        ({"settings": "x"}, "settings= takes a dict"),
        ({"max_drift": "1m", "end": "latest"}, "max_drift= is for a topic without end="),
        ({"max_drift": "0s"}, "must be above zero"),
    ],
)
def test_wrong_arguments_are_refused(arguments: Any, why: str) -> None:
    with pytest.raises(plait.JobError, match=why):
        plait.Kafka("t", schema={"n": int}, **arguments)


def test_a_source_needs_columns() -> None:
    with pytest.raises(plait.JobError, match="needs the columns of its records"):
        plait.stream(plait.Kafka("t"))


@dataclass
class Visit:
    user: str
    at: plait.Timestamp


def test_the_clock_of_a_live_topic_is_not_seen() -> None:
    def clocks(source: plait.Kafka, **given: Any) -> tuple[list[str | None], Schema]:
        stream = plait.stream(source, **given)
        sources = [op for op in stream.job._operators if isinstance(op, SourceOp)]
        return [op.clock for op in sources], stream.schema

    live = plait.Kafka("t", schema=Visit)
    found, schema = clocks(live, event_time="at", idle="5s")
    assert found == [CLOCK]
    assert schema == live.schema
    assert schema.record_class is Visit
    found, schema = clocks(live, event_time="when", rename={"at": "when"})
    assert (found, list(schema.names)) == ([CLOCK], ["user", "when"])
    assert clocks(live)[0] == [None]
    assert clocks(live, event_time=plait.col("at"))[0] == [None]
    assert clocks(plait.Kafka("t", schema=Visit, end="latest"), event_time="at")[0] == [None]


def test_drift_needs_event_times() -> None:
    source = plait.Kafka("t", schema={"n": int, "at": plait.Timestamp}, max_drift="1m")
    with pytest.raises(plait.JobError, match="max_drift= compares event times"):
        plait.stream(source)
    with pytest.raises(plait.JobError, match="max_drift= compares event times"):
        plait.stream(source, event_time=plait.col("n").to_timestamp(unit="ms"))


def test_letters_are_not_committed_between_checkpoints(tmp_path: Path) -> None:
    job = plait.Job("letters", dead_letters=plait.Kafka("letters", commit="1s"))
    job.source([1]).sink(plait.Discard())
    with pytest.raises(plait.JobError, match="leave out commit="):
        job.run(checkpoint=tmp_path)
