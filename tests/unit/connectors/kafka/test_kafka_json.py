"""JSON read natively and by Python's `json`: the same rows, and the same values are refused."""

from __future__ import annotations

import base64
import datetime
import json
import math
import struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.connectors.formats.json_lines import line_encoder
from plait.connectors.kafka.formats import (
    decode_rows,
    decoder_of,
    encode_json,
    encoder_of,
    json_decoder,
)
from plait.model.records import unpack_object
from plait.model.schema import Schema
from plait.node_runtime.native._json import JsonReader, JsonWriter

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = ("s", "i", "f", "b", "when", "raw", "any", "ä", 'q"\\', "a name of more than sixteen bytes")
PLAIN = Schema.of(
    {
        "s": str | None,
        "i": int | None,
        "f": float | None,
        "b": bool | None,
        "when": datetime.datetime | None,
        "raw": bytes | None,
        "ä": str | None,
        'q"\\': int | None,
        "a name of more than sixteen bytes": float | None,
    }
)
SCHEMA = Schema((*PLAIN, *Schema.of({"any": "object?"})))
STRICT = Schema.of({"s": str, "i": int, "f": float})
TIMES = st.datetimes().map(lambda moment: moment.isoformat()) | st.sampled_from(
    [
        "2024-02-29",
        "20240229",
        "2024-W09-4",
        "2023-02-29",
        "2024-01-01T24:00",
        "2024-01-01 10:00",
        "2024-01-01T10:00:60",
        "2024-01-01T10:00:00.123456789Z",
        "2024-01-01T10:00:00,5+05:30",
        "2024-01-01T10:00:00.+05:30",
        "2024-01-01T10:00:00-0530",
        "2024-01-01T10:00:00+23:59",
        "2024-01-01T10:00:00+24:00",
        "0001-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59.999999-00:01",
        "0000-01-01",
        "2024-13-01",
        "2024-01-01x10:00",
        "2024-01-01T1:00",
    ]
)
BASE64 = st.sampled_from(
    ["", "AA==", "AB==", "AAA=", "AAAA", "AAAA=", "AAAA====", "A", "A A=", "ä"]
)
ZEROS = ["-0", "-0.0", "1e-400", "-1e-400", "0e400", "5e-324", "2e-324"]
LARGE = ["1e400", "-1e400", "1.7976931348623157e308", "1.7976931348623159e308"]
EXACT = ["1E5", "1e+5", "1e22", "1e23", "9007199254740993", "123456789012345678.5"]
WRONG = ["01", "1.", ".5", "-", "+1", "1e", "0x1", "NaN", "Infinity", "-Infinity", "-NaN"]
LONG = ["9" * 308, "9" * 309, "9" * 4301, "0." + "0" * 400 + "1e401"]
FLOATS = st.floats().map(repr) | st.sampled_from([*ZEROS, *LARGE, *EXACT, *WRONG, *LONG])
TEXTS = st.text() | TIMES | BASE64 | st.sampled_from(["NaN", "Infinity", "-Infinity"])
SCALARS = (
    st.sampled_from(["null", "true", "false", "nul", "True"])
    | st.integers().map(str)
    | st.integers(-(2**65), 2**65).map(str)
    | FLOATS
    | TEXTS.map(json.dumps)
    | TEXTS.map(lambda text: json.dumps(text, ensure_ascii=False))
    | st.sampled_from(
        [r'"\ud800"', r'"\udc00\ud800"', r'"\ud83d\ude00"', r'"\u00"', r'"\x"', '"\t"']
    )
)
KEYS = st.sampled_from([*NAMES, "other"]) | st.text()


def container(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(inner, max_size=3).map(lambda parts: f"[{','.join(parts)}]") | objects(inner)


def objects(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    spaces = st.sampled_from(["", "", " ", "\n\t"])
    member = st.builds(
        lambda name, one, value: f"{one}{json.dumps(name)}{one}:{one}{value}{one}",
        KEYS,
        spaces,
        inner,
    )
    return st.lists(member, max_size=6).map(lambda parts: "{" + ",".join(parts) + "}")


VALUES = objects(st.recursive(SCALARS, container, max_leaves=4)).map(
    lambda text: text.encode("utf-8", "surrogatepass")
)


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.text(min_size=300),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def fitting_values() -> st.SearchStrategy[bytes]:
    """Values whose columns hold what they should, mostly."""
    columns = {
        "s": TEXTS,
        "i": st.integers(-(2**63), 2**63 - 1),
        "f": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70),
        "b": st.booleans(),
        "when": TIMES,
        "raw": st.binary().map(lambda raw: base64.b64encode(raw).decode()),
        "any": ANY,
        "ä": st.text(),
        'q"\\': st.integers(-9, 9),
        "a name of more than sixteen bytes": st.sampled_from(["NaN", "Infinity", 0.5]),
        "other": st.none() | st.text(),
    }
    some = st.fixed_dictionaries({}, optional=columns)
    return st.builds(
        lambda record, plain: json.dumps(record, ensure_ascii=plain).encode(), some, st.booleans()
    )


FITTING = fitting_values()


@st.composite
def changed(draw: Callable[..., Any], values: st.SearchStrategy[bytes]) -> bytes:
    """A value with some bytes changed, left out, doubled, or without its end."""
    value = bytearray(draw(values))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(value) - 1)))
        match draw(st.integers(0, 3)):
            case 0:
                del value[at:]
            case 1:
                del value[at : at + draw(st.integers(1, 4))]
            case 2:
                value[at:at] = value[at : at + draw(st.integers(1, 8))]
            case _:
                value[at : at + 1] = draw(
                    st.sampled_from([bytes([b]) for b in b'"\\{}[],:0-.eE \x00\x1f\x80\xed'])
                    | st.binary(min_size=1, max_size=1)
                )
    return bytes(value)


def bits(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(struct.pack("d", part) if isinstance(part, float) else part for part in row)


def parts_of(batch: Any, name: str) -> list[Any]:
    """The values of a column; of what is in objects, its `repr`, which tells all of JSON apart."""
    parts: list[Any] = batch.column(name).to_pylist()
    if name != "any":
        return parts
    return [None if part is None else repr(unpack_object(part)) for part in parts]


def rows_of(found: Any) -> dict[int, tuple[Any, ...]]:
    names = found.batch.schema.names
    rows = zip(*(parts_of(found.batch, name) for name in names), strict=True)
    return dict(zip(found.numbers, map(bits, rows), strict=True))


def check_same(values: list[bytes | None], schema: Schema) -> None:
    wanted = decode_rows(values, schema, json_decoder(schema))
    found = decoder_of("json", schema, None)(values)
    assert found.batch.schema == wanted.batch.schema
    found.batch.validate(full=True)
    assert rows_of(found) == rows_of(wanted)
    assert found.reasons.keys() == wanted.reasons.keys()
    assert all(found.reasons.values())


@given(st.lists(VALUES | FITTING | st.none(), max_size=6))
def test_values_are_read_as_python_reads_them(values: list[bytes | None]) -> None:
    check_same(values, SCHEMA)
    check_same(values, STRICT)


@given(st.lists(changed(VALUES | FITTING), min_size=1, max_size=6))
def test_changed_values_are_judged_as_python_does(values: list[bytes | None]) -> None:
    check_same(values, SCHEMA)
    check_same(values, STRICT)


@given(FITTING)
def test_every_beginning_of_a_value_is_judged_as_python_does(value: bytes) -> None:
    check_same([value[:end] for end in range(len(value) + 1)], SCHEMA)


@given(FLOATS)
def test_floats_are_the_same_bit_by_bit(text: str) -> None:
    check_same([b'{"f": %s}' % text.encode()], Schema.of({"f": float}))


@given(TIMES)
def test_times_are_the_same(text: str) -> None:
    check_same([json.dumps({"t": text}).encode()], Schema.of({"t": datetime.datetime}))


NESTED = [b'{"x": ' + b"[" * deep + b"]" * deep + b"}" for deep in (62, 63, 64, 65, 5000)]
EDGES = [
    b"",
    b" ",
    b"{}",
    b"[{}]",
    b"null",
    b'\xef\xbb\xbf{"i": 1}',
    b'{"i": 1} x',
    b'{"i": 1}\x00',
    b'{"i": 1}{"i": 1}',
    b'{"i": 1,}',
    b'{"i": 1 "f": 2}',
    b'{"s": "\x00"}',
    b'{"s": "\\u0000"}',
    b'{"s": "\x7f"}',
    b'{"s": "\\/\\b\\f\\n\\r\\t\\"\\\\"}',
    b"{'s': 1}",
    b'{"i": 1, "\\u0069": 2}',
    b'{"\\ud800": 1, "\\ud800": 2}',
    b'{"\\ud800": 1, "\\ud801": 2}',
    b'{"x": {"a": 1, "a": 2}}',
    b'{"x": [{"a": 1}, {"a": 2}]}',
    b'{"x": "\\ud800"}',
    b'{"s": "\\ud800\\ud800\\udc00"}',
    b'{"s": "\\ud800\\u00"}',
    b'{"i": -0, "f": -0}',
    b'{"i": 9223372036854775808}',
    b'{"i": -9223372036854775809}',
    b'{"i": 10000000000000000000000}',
    b'{"i": true}',
    b'{"b": 1}',
    b'{"when": 7}',
    b'{"raw": 7}',
    b'{"x": 1e400}',
    b'{"x": %s}' % (b"9" * 4301),
    b'{"x": -%s}' % (b"9" * 4300),
    b'{"x": NaN}',
    *(b'{"s": "%s"}' % (b"x" * size) for size in (14, 15, 16, 17, 31, 32, 33, 70_000)),
    *(b"{%s}" % b",".join(b'"x%d": 0' % (i % last) for i in range(2000)) for last in (1999, 2000)),
    *NESTED,
    *(value.replace(b'"x"', b'"any"') for value in NESTED),
    b'{"any": {"a": {"b": 1, "b": 2}}}',
    b'{"any": {"a": 1}, "any": 2}',
    b'{"any": [], "b": {}}',
    b'{"any": [-0, -0.0, 1E2, 9223372036854775807, -9223372036854775808, 9223372036854775808]}',
    b'{"any": 1e400}',
    b'{"any": [1e400]}',
    b'{"any": "\\ud800"}',
    b'{"any": {"\\ud800": "\\ud800"}}',
    b'{"any": [1, 2}',
    b'{"any": {"a" 1}}',
    b'{"any": {1: 1}}',
    b'{"any": nul}',
    b'{"any": [tru]}',
    b'{"any": [NaN]}',
    b'{"any": "%s"}' % (b"x" * 70_000),
    None,
]


def test_edges_are_judged_as_python_does() -> None:
    for value in EDGES:
        check_same([value], SCHEMA)
        check_same([b'{"s": "a", "i": 1, "f": 1}', value], STRICT)
    check_same([*EDGES, *EDGES], SCHEMA)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "no JSON: expected a value at byte 1"),
        (b"[1, 2]", "expected a JSON object, got [1, 2]"),
        (b'{"s": "\xff"}', "no JSON: not UTF-8 at byte 8"),
        (b'{"x": 1, s}', "no JSON: expected a name in double quotes at byte 10"),
        (b'{"s" 1}', 'no JSON: expected ":" at byte 6'),
        (b'{"x": 1 2}', 'no JSON: expected "," or the end of an object or a list at byte 9'),
        (b'{"s": "a', "no JSON: a text without an end at byte 9"),
        (b'{"s": "a\n"}', "no JSON: a control character in a text at byte 9"),
        (b'{"s": "\\x"}', "no JSON: an escape that JSON does not have at byte 8"),
        (b'{"x": 01}', "no JSON: not a number of JSON at byte 8"),
        (b'{"x": -Infinity}', "no JSON: -Infinity is not a number of JSON"),
        (b'{"i": %s}' % (b"1" * 4301), "no JSON: a number of more than 4,300 digits at byte 7"),
        (b'{"i": 1}}', "no JSON: more after the object at byte 9"),
        (b'{"s": 1.5}', 'column "s": expected string, got 1.5'),
        (b'{"s": null}', 'column "s": expected string, got null'),
        (b'{"i": 2e3}', 'column "i": expected int64, got 2e3'),
        (b'{"i": 9223372036854775808}', "got 9223372036854775808, beyond 64 bits"),
        (b'{"f": 1e400}', 'column "f": expected float64, got 1e400, beyond the range of a float'),
        (b'{"f": [%s1]}' % (b"0," * 50), "got [0,0,0,0,"),
        (b'{"S": "a", "\\u0069": 1}', 'column "s": missing; the record has S, i'),
        (b"{}", 'column "s": missing; the record has nothing'),
        (b'{"\\ud800": 1, "\\ud800": 2}', r'the name "\xed\xa0\x80" is there twice'),
    ],
)
def test_reasons_say_what_is_wrong_and_where(value: bytes, why: str) -> None:
    _, reasons, unsettled = JsonReader(STRICT).read([value])
    assert why in reasons[0]
    assert unsettled == []


def test_only_times_and_bytes_in_other_forms_are_left_to_python() -> None:
    reader = JsonReader(SCHEMA)
    values = [b'{"when": "20240229", "i": 1}', b'{"raw": "AAAA=", "i": 2}', b'{"i": 3}', b"{"]
    batch, reasons, unsettled = reader.read(values)
    assert batch.column("i").to_pylist() == [3]
    assert (list(reasons), unsettled) == ([3], [0, 1])
    found = decoder_of("json", SCHEMA, None)([values[0], values[2], values[3], values[0]])
    assert found.batch.column("i").to_pylist() == [1, 3, 1]
    assert (list(found.numbers), list(found.reasons)) == ([0, 1, 3], [2])


def test_a_reader_takes_bytes_and_columns_that_are_not_declared() -> None:
    with pytest.raises(TypeError, match="expected bytes or None, got str"):
        JsonReader(STRICT).read(["{}"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match='"o" is declared'):
        JsonReader(Schema.of({"o": list[int]}))


def test_declared_objects_are_read_by_python() -> None:
    schema = Schema.of({"i": int, "o": list[int]})
    found = decoder_of("json", schema, None)(
        [b'{"i": 1, "o": [1, 2]}', b'{"i": 1e400, "o": [1]}', b"[", b'{"i": 1, "o": {}}']
    )
    assert found.batch.num_rows == 1
    assert "beyond the range of a float" in found.reasons[1]
    assert "expected list[int]" in found.reasons[3]


def test_many_columns_in_any_order() -> None:
    names = [f"column {number}" for number in range(300)]
    schema = Schema.of(dict.fromkeys(names, int))
    forwards = json.dumps({name: i for i, name in enumerate(names)}).encode()
    backwards = json.dumps({name: i for i, name in reversed([*enumerate(names)])}).encode()
    found = decoder_of("json", schema, None)([forwards, backwards, forwards])
    assert [tuple(row.values()) for row in found.batch.to_pylist()] == [tuple(range(300))] * 3


NUMBERS = st.floats().map(lambda f: f if f == f else math.nan)
"""There is one NaN in JSON."""
ROWS = st.fixed_dictionaries(
    {
        "s": st.none() | st.text(),
        "i": st.none() | st.integers(-(2**63), 2**63 - 1),
        "f": st.none() | NUMBERS,
        "b": st.none() | st.booleans(),
        "when": st.none() | st.datetimes(timezones=st.just(datetime.UTC)),
        "raw": st.none() | st.binary(),
        "ä": st.none() | st.text('ab"\\/\x00\x1f\x7f\n\r\t\b\fäé', max_size=40),
        'q"\\': st.none() | st.integers(-9, 9),
        "a name of more than sixteen bytes": st.none() | NUMBERS,
    }
)


@given(st.lists(ROWS, max_size=5), st.integers(0, 3))
def test_rows_are_written_as_python_writes_them(rows: list[dict[str, Any]], skipped: int) -> None:
    batch = pa.RecordBatch.from_pylist(rows, schema=PLAIN.to_arrow())
    encode = encoder_of("json", PLAIN)
    backwards = batch.select([*reversed(PLAIN.names)])
    for given_batch in (batch, batch.slice(skipped), backwards):
        values = encode(given_batch)
        assert values == encode_json(given_batch, PLAIN)
        lines = b"".join(value + b"\n" for value in values if value is not None)
        assert line_encoder(PLAIN)(pa.Table.from_batches([given_batch])) == lines
    found = decoder_of("json", PLAIN, None)(encode(batch))
    assert found.reasons == {}
    assert [bits(tuple(row.values())) for row in found.batch.to_pylist()] == [
        bits(tuple(row.values())) for row in batch.to_pylist()
    ]


def test_what_native_code_cannot_write_is_left_to_python() -> None:
    schema = Schema.of({"t": datetime.datetime})
    late = pa.array([2**62], pa.timestamp("us", "UTC"))
    with pytest.raises(OverflowError):
        encoder_of("json", schema)(pa.RecordBatch.from_arrays([late], ["t"]))
    with pytest.raises(OverflowError):
        line_encoder(schema)(pa.table([late], ["t"]))
    narrow = pa.RecordBatch.from_pydict({"i": pa.array([1], pa.int8())})
    for given_rows in (narrow, pa.table(narrow)):
        assert encoder_of("json", Schema.of({"i": int}))(given_rows) == [b'{"i":1}']
    assert line_encoder(Schema.of({"i": int}))(pa.table(narrow)) == b'{"i":1}\n'
    with pytest.raises(ValueError, match='"o" holds objects'):
        JsonWriter(Schema.of({"o": object}))
