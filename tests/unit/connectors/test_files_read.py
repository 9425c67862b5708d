"""Files as a source: formats, order, positions, and what is said about bad files."""

from __future__ import annotations

import datetime
import gzip
import json
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import plait
from plait.connectors.files import Files
from plait.connectors.formats.json_lines import block_reader, read_lines
from plait.errors import SourceError
from plait.model.records import column_values
from plait.model.schema import Schema

if TYPE_CHECKING:
    from pathlib import Path

UTC = datetime.UTC


def rows(source: Files, position: Any = None, at_once: int = 7) -> list[dict[str, Any]]:
    reader = source.open(position)
    found: list[dict[str, Any]] = []
    try:
        while (batch := reader.poll(at_once)) is not None:
            assert 0 < batch.num_rows <= at_once
            assert batch.schema == source.schema.to_arrow()
            found += batch.to_pylist()
    finally:
        reader.close()
    return found


def write(path: Path, numbers: range) -> None:
    """A file of n and text columns, in the format of its suffix."""
    match path.suffix:
        case ".parquet":
            table = pa.table({"n": list(numbers), "s": [f"t{n}" for n in numbers]})
            pq.write_table(table, path, row_group_size=9)
        case ".csv":
            path.write_text("n,s\n" + "".join(f"{n},t{n}\n" for n in numbers))
        case _:
            path.write_text("".join(json.dumps({"n": n, "s": f"t{n}"}) + "\n" for n in numbers))


FORMATS = pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl", "ndjson"])


@FORMATS
def test_files_are_read_in_sorted_order(suffix: str, tmp_path: Path) -> None:
    write(tmp_path / f"b.{suffix}", range(20, 35))
    write(tmp_path / f"a.{suffix}", range(20))
    (tmp_path / f".hidden.{suffix}").write_text("x")
    (tmp_path / "_SUCCESS").write_text("")
    expected = [{"n": n, "s": f"t{n}"} for n in range(35)]
    for path in (
        tmp_path,
        str(tmp_path / f"*.{suffix}"),
        [tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"],
    ):
        source = Files(path)
        assert str(source.schema) == "n: int64?, s: string?"
        assert rows(source) == expected


@FORMATS
def test_every_position_is_one_to_go_on_from(suffix: str, tmp_path: Path) -> None:
    write(tmp_path / f"a.{suffix}", range(20))
    write(tmp_path / f"b.{suffix}", range(20, 30))
    source = Files(tmp_path, batch_rows=4)
    reader = source.open()
    read = 0
    while True:
        rest = rows(source, reader.position())
        assert [row["n"] for row in rest] == list(range(read, 30))
        batch = reader.poll(3)
        if batch is None:
            break
        read += batch.num_rows
    assert read == 30
    assert reader.position()["path"] is None


@FORMATS
def test_a_schema_chooses_columns_and_types(suffix: str, tmp_path: Path) -> None:
    write(tmp_path / f"a.{suffix}", range(3))
    source = Files(tmp_path, schema={"s": str, "n": float})
    assert rows(source)[2] == {"s": "t2", "n": 2.0}
    assert rows(Files(tmp_path, schema={"s": str})) == [{"s": f"t{n}"} for n in range(3)]


@FORMATS
def test_a_wanted_column_that_is_not_there(suffix: str, tmp_path: Path) -> None:
    write(tmp_path / f"a.{suffix}", range(3))
    with pytest.raises(SourceError, match="zz"):
        rows(Files(tmp_path, schema={"zz": int}))


@FORMATS
def test_files_must_agree(suffix: str, tmp_path: Path) -> None:
    write(tmp_path / f"a.{suffix}", range(3))
    other = tmp_path / f"b.{suffix}"
    match suffix:
        case "parquet":
            pq.write_table(pa.table({"n": [1], "s": ["x"], "more": [1]}), other)
        case "csv":
            other.write_text("n,s,more\n1,x,1\n")
        case _:
            other.write_text('{"n": 1, "s": "x", "more": 1}\n')
    with pytest.raises(SourceError, match=rf"b\.{suffix}: .*more"):
        rows(Files(tmp_path))


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_compressed_text(suffix: str, tmp_path: Path) -> None:
    write(tmp_path / f"a.{suffix}", range(10))
    packed = tmp_path / f"z.{suffix}.gz"
    packed.write_bytes(gzip.compress((tmp_path / f"a.{suffix}").read_bytes()))
    assert rows(Files(packed)) == rows(Files(tmp_path / f"a.{suffix}"))


def position_at(path: Path, row: int) -> Any:
    reader = Files(path).open()
    while row:
        row -= reader.poll(row).num_rows
    reader.close()
    return reader.position()


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_text_larger_than_a_block(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.connectors.formats.text_files.BLOCK_BYTES", 100)
    monkeypatch.setattr("plait.connectors.formats.file_readers.LOOKED_AT", 100)
    path = tmp_path / f"a.{suffix}"
    write(path, range(500))
    assert [row["n"] for row in rows(Files(path))] == list(range(500))
    assert [row["n"] for row in rows(Files(path), position_at(path, 333))] == [*range(333, 500)]
    with path.open("a") as file:
        file.write("x,y\n" if suffix == "csv" else '{"n": "x", "s": "y"}\n')
    line = 502 if suffix == "csv" else 501
    with pytest.raises(SourceError, match=rf"a\.{suffix}: line {line}.*\"n\": expected int64"):
        rows(Files(path))
    with pytest.raises(SourceError, match=rf"line {line}\b"):
        rows(Files(path), position_at(path, 400))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n3\n", "line 3: expected 2 columns, got 1\n  3\n"),
        ("a,b\n1,2\n\n3,4,5\n", "line 4: expected 2 columns, got 3\n  3,4,5\n"),
        ("", "is empty: no line says its columns; give schema="),
        ("a,a\n1,2\n", 'column "a" is there twice'),
    ],
)
def test_malformed_csv(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(SourceError) as caught:
        rows(Files(tmp_path / "bad.csv"))
    assert str(caught.value).startswith(f"{tmp_path}/bad.csv")
    assert said in str(caught.value)


def test_a_csv_value_that_does_not_fit(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('s,n\n"two\nlines",1\n\nx,oops\n')
    with pytest.raises(SourceError, match=r"line 5: column \"n\": expected int64, got 'oops'"):
        rows(Files(tmp_path / "a.csv", schema={"s": str, "n": int}))
    (tmp_path / "a.csv").write_text("s,n\nx,1\ny,\n")
    with pytest.raises(SourceError, match='line 3: column "n" is empty'):
        rows(Files(tmp_path / "a.csv", schema={"s": str, "n": int}))
    with pytest.raises(SourceError, match="no objects"):
        rows(Files(tmp_path / "a.csv", schema={"s": object}))


def test_csv_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"s\n\xff\xfe\n")
    with pytest.raises(SourceError, match="not UTF-8"):
        rows(Files(tmp_path / "a.csv"))


def test_times_in_text(tmp_path: Path) -> None:
    moment = datetime.datetime(2024, 5, 1, 12, 0, 0, 500_000, tzinfo=UTC)
    (tmp_path / "a.csv").write_text(
        "zone,none,day\n"
        "2024-05-01T14:00:00.5+02:00,2024-05-01 12:00:00,2024-05-01\n"
        ",2024-05-01 12:00:00.5,\n"
    )
    found = rows(Files(tmp_path / "a.csv"))
    assert found[0]["zone"] == moment
    assert found[1]["none"] == moment
    assert found[0]["day"] == datetime.datetime(2024, 5, 1, tzinfo=UTC)
    (tmp_path / "a.jsonl").write_text('{"t": "2024-05-01T14:00:00.5+02:00"}\n')
    assert rows(Files(tmp_path / "a.jsonl")) == [{"t": moment}]
    (tmp_path / "a.jsonl").write_text('{"t": "2024-05-01T12:00:00.5"}\n')
    assert rows(Files(tmp_path / "a.jsonl", schema={"t": datetime.datetime})) == [{"t": moment}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1}\n\n{"a": 2\n', "line 3: no JSON: Expecting ',' delimiter at"),
        ('{"a": 1}\n[2]\n', "line 2: expected an object, got"),
        ('{"a": 1}\n{"a": 1}{"a": 2}\n', "line 2: no JSON: Extra data"),
        ('{"a": 1}\n{"a": 9223372036854775808}\n', 'column "a": expected int64'),
        ('{"a": 1}\n{"a": "\\ud800"}\n', "line 2"),
        ('{"a": 1}\n{"a": 1.0}\n', "line 2"),
        ("", "has no line to take the schema from"),
    ],
)
def test_malformed_jsonl(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    schema = {"a": int} if text else None
    with pytest.raises(SourceError) as caught:
        rows(Files(path, schema=schema))
    assert str(caught.value).startswith(str(path))
    assert said in str(caught.value)


def test_jsonl_shapes(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"a": 1, "deep": {"x": [1]}, "f": "NaN"}\r\n\r\n{"a": null, "f": 2}'
    )
    source = Files(path)
    assert str(source.schema) == "a: int64?, deep: object?, f: float64?"
    first, second = rows(source)
    assert first["f"] != first["f"]
    assert (second["a"], second["deep"], second["f"]) == (None, None, 2.0)
    path.write_bytes(b'{"a": "x"}\n{"a": "\xff"}\n')
    with pytest.raises(SourceError, match="line 2: not UTF-8"):
        rows(Files(path, schema={"a": str}))


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_damaged_archive(suffix: str, tmp_path: Path) -> None:
    write(tmp_path / f"a.{suffix}", range(3000))
    packed = gzip.compress((tmp_path / f"a.{suffix}").read_bytes())
    path = tmp_path / f"z.{suffix}.gz"
    for damaged in (b"no archive", packed[: len(packed) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(SourceError, match=str(path)):
            rows(Files(path))


JSON_VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**65), 2**65)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["NaN", "2024-05-01T12:00:00Z", "2024-05-01 12:00:00.123456+02:00", "2024"])
    | st.lists(st.integers(), max_size=2)
)
TYPES = st.sampled_from(["int64", "float64", "bool", "string", "timestamp", "bytes", "object"])
LINES = st.dictionaries(st.sampled_from("abc"), JSON_VALUES).map(json.dumps) | st.sampled_from(
    ["", " \t", "[]", "{", '{"a": 1, "a": 2}', '{"a": 1} x', '{"a": 01}', '{"c": {"d": [0, 0]}}']
)


@given(
    kinds=st.tuples(TYPES, TYPES),
    nullable=st.booleans(),
    only_known=st.booleans(),
    lines=st.lists(LINES, max_size=6),
    skipped=st.integers(0, 3),
    ended=st.booleans(),
)
def test_lines_are_read_natively_as_in_python(
    kinds: tuple[str, str],
    nullable: bool,
    only_known: bool,
    lines: list[str],
    skipped: int,
    ended: bool,
) -> None:
    """The quick way through a block of JSONL is only ever the slow way, quicker."""
    schema = Schema.of(
        {name: kind + "?" * nullable for name, kind in zip("ab", kinds, strict=True)}
    )
    text = ("\n".join(lines) + "\n" * ended).encode()
    numbered = [(10 + i, line.encode()) for i, line in enumerate(lines, 1) if line.strip()]
    slow = read_lines("x", numbered[skipped:], schema, only_known=only_known)
    quick, count, ends = block_reader("x", schema, only_known=only_known)(text, skipped, 10)
    assert (count, ends) == (len(numbered), text.count(b"\n"))
    assert quick.bad == slow.bad
    assert quick.good.schema == slow.good.schema
    assert values_of(quick.good, schema) == values_of(slow.good, schema)


def values_of(batch: pa.RecordBatch, schema: Schema) -> list[str]:
    batch.validate(full=True)
    return [repr(column_values(batch.column(field.name), field.type)) for field in schema]


def test_a_long_line_is_shortened(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": "' + "x" * 1000 + "\n")
    with pytest.raises(SourceError) as caught:
        rows(Files(path))
    assert len(str(caught.value)) < len(str(path)) + 250


def test_parquet_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("hello, this is no parquet file")
    with pytest.raises(SourceError, match=r"a\.parquet: no Parquet file"):
        _ = Files(tmp_path / "a.parquet").schema


def test_parquet_with_nulls_where_none_may_be(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, None]}), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match=r'a\.parquet: row 2: column "a" is null'):
        rows(Files(tmp_path, schema={"a": int}))


def test_missing_files(tmp_path: Path) -> None:
    (tmp_path / "there.csv").write_text("a\n1\n")
    with pytest.raises(SourceError, match=r"no file .*gone\.csv; the folder .* has: there\.csv"):
        _ = Files(tmp_path / "gone.csv").schema
    with pytest.raises(SourceError, match=r"matched no file; the folder .* has: there\.csv"):
        _ = Files(str(tmp_path / "*.parquet")).schema
    with pytest.raises(SourceError, match="no parquet file"):
        _ = Files(tmp_path, format="parquet").schema
    (tmp_path / "data.txt").write_text("a\n1\n")
    with pytest.raises(SourceError, match="give format="):
        _ = Files(tmp_path / "data.txt").schema
    assert rows(Files(tmp_path / "data.txt", format="csv")) == [{"a": 1}]
    wrong: Any = "xml"
    with pytest.raises(SourceError, match='"xml" is not known'):
        Files(tmp_path, format=wrong)


@pytest.mark.parametrize("bad", [1, 2, 700, 1999])
def test_rows_before_a_bad_line_are_delivered(tmp_path: Path, bad: int) -> None:
    def seen(path: Path) -> list[int]:
        got: list[int] = []
        schema = {"a": int, "s": str}
        with pytest.raises(SourceError, match="line"):
            plait.stream(plait.Files(str(path), schema=schema)).sink(
                plait.Call(lambda record: got.append(record.a))
            ).run()
        return got

    lines = [f'{{"a": {n}, "s": "x"}}' for n in range(2000)]
    lines[bad] = '{"a": 1, "s": '
    (tmp_path / "bad.jsonl").write_text("\n".join(lines))
    assert seen(tmp_path / "bad.jsonl") == list(range(bad))

    rows = ["a,s", *(f'{n},"x\ny"' for n in range(2000))]
    rows[bad + 1] = "n/a,x"
    (tmp_path / "bad.csv").write_text("\n".join(rows))
    assert seen(tmp_path / "bad.csv") == list(range(bad))


def test_bytes_of_a_file_are_never_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "pickles.parquet"
    pq.write_table(pa.table({"a": pa.array([pickle.dumps("loaded"), None])}), path)
    stream = plait.stream(Files(path, schema={"a": Any}))
    assert [record.a for record in stream.collect()] == [pickle.dumps("loaded"), None]
