"""Functions of many values: every good value is a row, every bad one has a reason."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import plait
from plait.connectors.kafka.batch_decoding import batch_decoder
from plait.model.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = Schema.of({"n": int, "name": str | None})


def dicts(values: list[bytes | None]) -> list[dict[str, Any]]:
    return [json.loads(value or b"") for value in values]


def arrow(values: list[bytes | None]) -> pa.RecordBatch:
    # Wider types than those of the schema, as libraries give them.
    types = pa.schema({"n": pa.int32(), "name": pa.large_string()})
    return pa.RecordBatch.from_pylist(dicts(values), schema=types)


def table(values: list[bytes | None]) -> pa.Table:
    return pa.Table.from_batches([arrow(values[:1]), arrow(values[1:])])


@pytest.mark.parametrize("function", [dicts, arrow, table])
@given(kinds=st.lists(st.sampled_from(["good", "no JSON", "no n", "tombstone"]), max_size=12))
def test_every_value_is_a_row_or_a_reason(
    function: Callable[[list[bytes | None]], Any], kinds: list[str]
) -> None:
    values = {"no JSON": b"{", "no n": b'{"name": "x"}', "tombstone": None}
    found = batch_decoder(function, SCHEMA)(
        [b'{"n": %d}' % n if kind == "good" else values[kind] for n, kind in enumerate(kinds)]
    )
    good = [n for n, kind in enumerate(kinds) if kind == "good"]
    assert list(found.numbers) == good
    assert found.batch.to_pylist() == [{"n": n, "name": None} for n in good]
    assert found.batch.schema == SCHEMA.to_arrow()
    assert sorted(found.reasons) == [n for n, kind in enumerate(kinds) if kind != "good"]
    for n, kind in enumerate(kinds):
        if kind in ("no JSON", "tombstone"):
            assert found.reasons[n].startswith("decode_batch raised JSONDecodeError: ")
        elif kind == "no n":
            assert found.reasons[n].startswith("decode_batch returned: column ")


def test_a_good_batch_is_decoded_by_one_call() -> None:
    calls: list[int] = []

    def count(values: list[bytes | None]) -> Any:
        calls.append(len(values))
        return dicts(values)

    decode = batch_decoder(count, SCHEMA)
    decode([b'{"n": 1}'] * 1000)
    assert calls == [1000]
    decode([b'{"n": 1}'] * 999 + [b"{"])
    assert len(calls) < 25  # halves


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ([], "0 records for 2 values"),
        (7, r"decode_batch returned .*; it must return a list of records"),
        (pa.table({"n": [1]}), "1 records for 2 values"),
        (pa.table({"n": [1, 2]}), 'decode_batch returned a Table .* no column "name"'),
        (pa.table({"n": [[1], [2]], "name": ["a", "b"]}), 'decode_batch returned .* column "n"'),
        ({"n": [1, 2]}, r"decode_batch returned .* \(dict\); it must return a list of records"),
        (iter(()), "decode_batch returned .*; it must return a list of records"),
        (None, "decode_batch returned None; it must return a list of records"),
    ],
)
def test_a_function_that_is_wrong_ends_the_run(answer: Any, why: str) -> None:
    with pytest.raises(plait.SourceError, match=why):
        batch_decoder(lambda values: answer, SCHEMA)([b"", b""])


def test_half_of_a_surrogate_pair() -> None:
    found = batch_decoder(dicts, SCHEMA)([b'{"n": 1, "name": "\\ud800"}', b'{"n": 2}'])
    assert found.batch.to_pylist() == [{"n": 2, "name": None}]
    assert "surrogate" in found.reasons[0]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"decode_batch": 7, "schema": {"n": int}}, "decode_batch= takes a function"),
        ({"decode_batch": dicts}, "needs schema="),
        ({"decode_batch": dicts, "decode": json.loads, "schema": {"n": int}}, "are both given"),
    ],
)
def test_wrong_arguments_are_refused(arguments: Any, why: str) -> None:
    with pytest.raises(plait.JobError, match=why):
        plait.Kafka("t", **arguments)
