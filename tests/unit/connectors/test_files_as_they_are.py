"""Files as people have them: dialects, encodings, archives, empty files, files that differ."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import plait
from plait.connectors.files import Files
from plait.connectors.formats.csv_reader import CsvReader
from plait.connectors.opening import open_reader
from plait.errors import SinkError, SourceError
from plait.model.schema import Schema

if TYPE_CHECKING:
    from pathlib import Path


def read(source: Files) -> list[dict[str, Any]]:
    reader = source.open()
    found: list[dict[str, Any]] = []
    try:
        while (batch := reader.poll(100)) is not None:
            found += batch.to_pylist()
    finally:
        reader.close()
    return found


def sorted_out(source: Files) -> tuple[list[dict[str, Any]], list[tuple[int, str, str]]]:
    """The good rows; line, text and reason of the bad ones."""
    reader = open_reader(source, source.schema, None, "in")
    good: list[dict[str, Any]] = []
    bad: list[tuple[int, str, str]] = []
    while (rows := reader.poll_with_bad(100)) is not None:
        good += rows.good.to_pylist()
        bad += [(one.record.line, one.record.text, one.reason) for one in rows.bad]
    reader.close()
    return good, bad


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("a;b\n1;x,y\n", {"delimiter": ";"}, [{"a": 1, "b": "x,y"}]),
        ("a\tb\n1\tx\n", {"delimiter": "\t"}, [{"a": 1, "b": "x"}]),
        ("a,b\n1,'x,y'\n", {"quote": "'"}, [{"a": 1, "b": "x,y"}]),
        ('a,b\n1,"x\n', {"quote": None}, [{"a": 1, "b": '"x'}]),
        ("a,b\n1,x\\,y\n", {"escape": "\\"}, [{"a": 1, "b": "x,y"}]),
        ("1,x\n2,y\n", {"header": False}, [{"c0": 1, "c1": "x"}, {"c0": 2, "c1": "y"}]),
        ("1,x\n", {"header": ["n", "s"]}, [{"n": 1, "s": "x"}]),
        (
            "a,b\nNA,x\n-,NA\n",
            {"nulls": ["NA", "-"]},
            [{"a": None, "b": "x"}, {"a": None, "b": None}],
        ),
        ('a,b\n1,"NA"\n', {"nulls": ["NA"]}, [{"a": 1, "b": "NA"}]),
        ("# by hand\na,b\n# more\n1,x\n", {"comment": "#"}, [{"a": 1, "b": "x"}]),
        ("made by x\n\na,b\n1,x\n", {"skip_rows": 2}, [{"a": 1, "b": "x"}]),
        ("made by x\n#\na,b\n1,x\n", {"skip_rows": 1, "comment": "#"}, [{"a": 1, "b": "x"}]),
        ('a,b\r\n1,"x\r\ny"\r\n\r\n2,z', {}, [{"a": 1, "b": "x\r\ny"}, {"a": 2, "b": "z"}]),
        ('a,b\n1,"say ""hi"""\n', {}, [{"a": 1, "b": 'say "hi"'}]),
        ('a,b\n1,""\n2,\n', {}, [{"a": 1, "b": ""}, {"a": 2, "b": None}]),
        ("a,b\n", {}, []),
        ("a,b", {}, []),
    ],
)
def test_dialects_of_csv(
    text: str, options: dict[str, Any], expected: list[Any], tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode())
    assert read(Files(path, **options)) == expected


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-8-sig", "utf-16-le", "cp1252"])
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "txt"])
def test_encodings(encoding: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{suffix}"
    if suffix == "csv":
        path.write_bytes("s,n\nélan,1\n".encode(encoding))
        assert read(Files(path, encoding=encoding)) == [{"s": "élan", "n": 1}]
    elif suffix == "jsonl":
        path.write_bytes('{"s": "élan", "n": 1}\r\n\r\n{"s": "b"}'.encode(encoding))
        assert read(Files(path, encoding=encoding)) == [
            {"s": "élan", "n": 1},
            {"s": "b", "n": None},
        ]
    else:
        path.write_bytes("élan\r\n\r\nb".encode(encoding))
        found = read(Files(path, format="text", encoding=encoding))
        assert found == [{"line": "élan"}, {"line": ""}, {"line": "b"}]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "txt"])
def test_bytes_that_are_not_text_are_a_bad_line(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{suffix}"
    match suffix:
        case "csv":
            path.write_bytes(b"s\na\n\xff\nb\n")
            source = Files(path, schema={"s": str})
        case "jsonl":
            path.write_bytes(b'{"s": "a"}\n{"s": "\xff"}\n{"s": "b"}')
            source = Files(path, schema={"s": str})
        case _:
            path.write_bytes(b"a\n\xff\nb\n")
            source = Files(path, format="text")
    good, bad = sorted_out(source)
    assert [next(iter(row.values())) for row in good] == ["a", "b"]
    ((line, text, reason),) = bad
    assert line == (3 if suffix == "csv" else 2)
    assert "\\xff" in text
    assert "not UTF-8" in reason


def test_bad_rows_of_csv_are_named_in_order(tmp_path: Path) -> None:
    """Whatever the column: Arrow alone would name the first column's first."""
    path = tmp_path / "a.csv"
    path.write_text(
        '# made by hand\nn,s,f,ok\n1,"two\nlines",1.5,true\n\n2,x,oops,true\n3,x\n4,x,4,maybe\n'
        "five,x,5,false\n,x,6,false\n7, x ,7,false\n"
    )
    schema = {"n": int, "s": str, "f": float, "ok": bool}
    source = Files(path, schema=schema, comment="#")
    good, bad = sorted_out(source)
    assert [row["n"] for row in good] == [1, 7]
    assert good[0]["s"] == "two\nlines"
    assert good[1]["s"] == " x "
    assert bad == [
        (6, "2,x,oops,true", "column \"f\": expected float64, got 'oops'"),
        (7, "3,x", "expected 4 columns, got 2"),
        (8, "4,x,4,maybe", "column \"ok\": expected bool, got 'maybe'"),
        (9, "five,x,5,false", "column \"n\": expected int64, got 'five'"),
        (10, ",x,6,false", 'column "n" is empty, but is declared as n: int64'),
    ]
    with pytest.raises(SourceError, match=r"a\.csv: line 6: column \"f\": expected float64"):
        read(source)


CELLS = st.sampled_from(
    [
        "",
        '""',
        "1",
        " 2",
        "x",
        "1.5",
        '"3"',
        '"a,b"',
        '"a\nb"',
        '"c""d"',
        "true",
        "\u00e9",
        "a,b",
        '5" x',
    ]
)


CLOSELY = "plait.connectors.formats.csv_reader.CLOSELY"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    rows=st.lists(st.tuples(CELLS, CELLS), max_size=6),
    kind=st.sampled_from(["int64?", "float64", "bool?", "string"]),
    at_a_time=st.sampled_from([1, 2, 10_000]),
)
def test_rows_read_closely_are_those_read_at_once(
    rows: list[tuple[str, str]],
    kind: str,
    at_a_time: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What Arrow takes of a file, the close reading takes too, with the same values."""
    import itertools

    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "".join(",".join(row) + "\n" for row in rows))
    reader = CsvReader(str(path), Schema.of({"a": kind, "b": "string?"}), only_known=False)
    closely = [piece for piece, _ in reader.read_closely(0)]
    monkeypatch.setattr(CLOSELY, at_a_time)
    good = list(itertools.chain(*(piece.good.to_pylist() for piece in closely)))
    one_by_one = []
    for piece in reader.batches(0):
        one_by_one += piece.good.to_pylist()
    assert good == one_by_one
    bad = sum(len(piece.bad) for piece in closely)
    if not bad:
        with reader.stream(reader.read_types) as stream:
            assert good == [row for batch in stream for row in reader.fit_batch(batch).to_pylist()]


def test_after_a_bad_row_the_rest_is_read_by_arrow_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.connectors.formats.text_files.BLOCK_BYTES", 500)
    monkeypatch.setattr(CLOSELY, 10)
    path = tmp_path / "a.csv"
    lines = [f"{n},t{n}" if n not in (3, 700) else f"bad{n},x" for n in range(1000)]
    path.write_text("n,s\n" + "\n".join(lines), encoding="utf-8")
    reader = CsvReader(str(path), Schema.of({"n": "int64", "s": "string"}), only_known=False)
    pieces = list(reader.batches(0))
    read = [row["n"] for piece in pieces for row in piece.good.to_pylist()]
    assert read == [n for n in range(1000) if n not in (3, 700)]
    assert [bad.record.line for piece in pieces for bad in piece.bad] == [5, 702]
    # Blocks of 500 bytes have some 60 rows; all but those around the bad rows came in such.
    assert sum(len(piece) for piece in pieces if len(piece) > 10) > 700


def test_times_with_a_bad_one_among_them(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("ts\n2024-05-01 12:00:00\nn/a\n2024-05-01T12:00:01Z\n2024-05-01\n")
    good, bad = sorted_out(Files(path, schema={"ts": plait.Timestamp}))
    assert [row["ts"].isoformat() for row in good] == [
        "2024-05-01T12:00:00+00:00",
        "2024-05-01T12:00:01+00:00",
        "2024-05-01T00:00:00+00:00",
    ]
    assert bad == [(3, "n/a", "column \"ts\": expected timestamp, got 'n/a'")]


PACKERS: dict[str, Any] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lambda data: lzma.compress(data, preset=0),
    "zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}


@pytest.mark.parametrize("packing", PACKERS)
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "txt"])
def test_archives(
    packing: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.connectors.formats.text_files.BLOCK_BYTES", 1 << 14)
    path = tmp_path / f"a.{suffix}.{packing}"
    format: Any = "text" if suffix == "txt" else None
    schema = Schema.of({"line": str})
    writer = Files(path, format=format).open(schema)
    writer.write(pa.RecordBatch.from_pylist([{"line": "a"}, {"line": "b"}], schema.to_arrow()))
    writer.close()
    assert read(Files(path, format=format)) == [{"line": "a"}, {"line": "b"}]
    plain = b"line\n" if suffix == "csv" else b""
    row = b'{"line": "%d"}\n' if suffix == "jsonl" else b"%d\n"
    whole = PACKERS[packing](plain + b"".join(row % (n * 7919) for n in range(20_000)))
    path.write_bytes(whole[: len(whole) // 2])
    got: list[Any] = []
    source = Files(path, format=format) if format else Files(path, schema={"line": str})
    with pytest.raises(SourceError, match="the archive is damaged or cut off"):
        plait.stream(source).sink(plait.Call(lambda record: got.append(record.line))).run(
            timeout=60
        )
    assert got == [str(n * 7919) for n in range(len(got))]


def test_an_archive_in_two_parts(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"n\n1\n") + gzip.compress(b"2\n"))
    assert read(Files(tmp_path / "a.csv.gz")) == [{"n": 1}, {"n": 2}]


def test_text_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("one\n\ntwo")
    (tmp_path / "b.log").write_text("three\n")
    assert [row["line"] for row in read(Files(tmp_path, format="text"))] == [
        "one",
        "",
        "two",
        "three",
    ]
    found = read(Files(str(tmp_path / "*.log"), format="text", file_and_line=True))
    assert [(os.path.basename(row["file"]), row["line_number"], row["line"]) for row in found] == [
        ("a.log", 1, "one"),
        ("a.log", 2, ""),
        ("a.log", 3, "two"),
        ("b.log", 1, "three"),
    ]
    with pytest.raises(SinkError, match="one column of texts, not: n: int64"):
        Files(tmp_path / "c.txt", format="text").open(Schema.of({"n": int}))
    with pytest.raises(SourceError, match="schema= has no use"):
        Files(tmp_path, format="text", schema={"line": str})


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_empty_files(suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"a.{suffix}").write_text("")
    with pytest.raises(SourceError, match="give schema="):
        read(Files(tmp_path))
    assert read(Files(tmp_path, schema={"n": int})) == []
    (tmp_path / f"b.{suffix}").write_text("n\n1\n" if suffix == "csv" else '{"n": 1}\n')
    assert read(Files(tmp_path)) == [{"n": 1}]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_column_that_is_not_in_every_file(suffix: str, tmp_path: Path) -> None:
    files: dict[str, dict[str, list[Any]]] = {"a": {"n": [1], "s": ["x"]}, "b": {"n": [2]}}
    for name, columns in files.items():
        path = tmp_path / f"{name}.{suffix}"
        if suffix == "parquet":
            pq.write_table(pa.table(columns), path)
        elif suffix == "csv":
            path.write_text(
                ",".join(columns) + "\n" + ",".join(str(c[0]) for c in columns.values())
            )
        else:
            path.write_text(str({name: c[0] for name, c in columns.items()}).replace("'", '"'))
    wanted = [{"n": 1, "s": "x"}, {"n": 2, "s": None}]
    assert read(Files(tmp_path)) == wanted
    assert read(Files(tmp_path, schema={"n": int, "s": str | None})) == wanted
    with pytest.raises(SourceError, match=rf"b\.{suffix}: .*s"):
        read(Files(tmp_path, schema={"n": int, "s": str}))


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_whole_numbers_in_one_file_and_others_in_the_next(suffix: str, tmp_path: Path) -> None:
    for name, value in (("a", 1), ("b", 1.5)):
        path = tmp_path / f"{name}.{suffix}"
        if suffix == "parquet":
            pq.write_table(pa.table({"n": [value]}), path)
        else:
            path.write_text(f"n\n{value}\n" if suffix == "csv" else f'{{"n": {value}}}\n')
    with pytest.raises(SourceError, match=rf"b\.{suffix}: .*(int64|double).*; give schema="):
        read(Files(tmp_path))
    assert read(Files(tmp_path, schema={"n": float})) == [{"n": 1.0}, {"n": 1.5}]
    turned = [tmp_path / f"b.{suffix}", tmp_path / f"a.{suffix}"]
    assert read(Files(turned)) == [{"n": 1.5}, {"n": 1.0}]


def test_one_array_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('\n [{"a": 1},\n {"a": 2}]\n')
    with pytest.raises(SourceError, match=r"is one JSON array, .*plait\.stream\(json\.load"):
        read(Files(path))
    with pytest.raises(SourceError, match="is one JSON array"):
        sorted_out(Files(path, schema={"a": int}))


def test_a_bad_line_does_not_keep_the_schema_from_being_found(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('oops\n{"n": 1}\n')
    good, bad = sorted_out(Files(tmp_path / "a.jsonl"))
    assert good == [{"n": 1}]
    assert bad[0][:2] == (1, "oops")
    (tmp_path / "a.csv").write_text("n,s\n1\n2,x\n")
    good, bad = sorted_out(Files(tmp_path / "a.csv"))
    assert good == [{"n": 2, "s": "x"}]
    assert bad == [(2, "1", "expected 2 columns, got 1")]


def test_nested_json_is_objects(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"tags": ["a"], "at": {"x": 1}}\n{"tags": [], "at": null}\n')
    for schema in (None, {"tags": list, "at": dict | None}):
        first, second = plait.stream(Files(path, schema=schema)).collect()
        assert (first.tags, first.at) == (["a"], {"x": 1})
        assert (second.tags, second.at) == ([], None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"delimiter": ";;"}, "delimiter is ';;'; it must be one ASCII character"),
        ({"quote": ""}, "quote is ''"),
        ({"encoding": "klingon"}, 'the encoding "klingon" is not known'),
        ({"nulls": "NA"}, "take a list of texts"),
        ({"skip_rows": -1}, "skip_rows is -1"),
        ({"comment": ""}, "comment is ''"),
    ],
)
def test_options_that_are_none(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=said):
        Files(tmp_path / "a.csv", **options)


def test_options_of_other_formats(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(SourceError, match=r"a\.jsonl: delimiter= is for csv files"):
        read(Files(tmp_path / "a.jsonl", delimiter=";"))
    (tmp_path / "a.csv").write_text("a\n1\n")
    with pytest.raises(SourceError, match="file_and_line= is for text files"):
        read(Files(tmp_path / "a.csv", file_and_line=True))
    with pytest.raises(SinkError, match="nulls= is for reading"):
        Files(tmp_path / "b.csv", nulls=["NA"]).open(Schema.of({"a": int}))


def test_a_dialect_is_written_too(tmp_path: Path) -> None:
    schema = Schema.of({"n": int, "s": str})
    writer = Files(tmp_path / "b.csv", delimiter="\t", header=False).open(schema)
    writer.write(pa.RecordBatch.from_pylist([{"n": 1, "s": "x"}], schema.to_arrow()))
    writer.close()
    assert (tmp_path / "b.csv").read_text() == '1\t"x"\n'
