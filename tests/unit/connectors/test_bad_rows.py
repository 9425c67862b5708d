"""on_error= of a source: rows that cannot be read, on every entry point and against the oracle."""

from __future__ import annotations

import datetime
import enum
import gzip
import json
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait import col
from plait.results.result import BadLine
from plait.testing import sequential
from plait.testing.check import compare_accounts, compare_letters, rows_of_arrow

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    EntryPoint = Callable[..., plait.Result]

SCHEMA = {"n": int, "s": str | None, "ts": plait.Timestamp | None}
SETTINGS = {"epoch_records": 16, "bin_bits": 4}
ROWS = 120
BAD = {0, 1, 17, 63, 64, 65, 118, 119}
"""The rows that cannot be read: the first and last ones, and a run in the middle."""
WRONG = ("text", "missing", "null time", "no time")


def moment(n: int) -> datetime.datetime:
    return datetime.datetime(2024, 5, 1, 12, n // 60, n % 60, tzinfo=datetime.UTC)


def record(n: int) -> dict[str, Any]:
    """Row n; bad ones are wrong in different ways."""
    found: dict[str, Any] = {"n": n, "s": f"t{n}", "ts": moment(n)}
    match WRONG[n % 4] if n in BAD else "":
        case "text":
            found["n"] = "x"
        case "missing":
            del found["n"]
        case "null time":
            found["ts"] = None
        case "no time":
            found["ts"] = "soon"
    return found


def jsonl(n: int) -> str:
    if n == 64 and n in BAD:
        return '{"n": 64, "s": '
    return json.dumps(record(n), default=lambda value: value.isoformat())


def csv(n: int) -> str:
    if n == 64 and n in BAD:
        return "64,ragged,2024-05-01T12:00:00Z,more"
    found = record(n)
    time = found["ts"]
    text = time.isoformat() if isinstance(time, datetime.datetime) else time or ""
    return f'{found.get("n", "")},"{found["s"]}\n",{text}'


class Few(plait.Source):
    """A source of the user's whose records are not checked."""

    schema = plait.Schema.of(SCHEMA)

    def open(self, position: Any = None) -> plait.Reader:
        return FewReader(position or 0)


class FewReader(plait.Reader):
    def __init__(self, at: int) -> None:
        self.at = at

    def poll(self, max_rows: int) -> Any:
        found = [record(n) for n in range(self.at, min(self.at + min(max_rows, 7), ROWS))]
        self.at += len(found)
        return found or None

    def position(self) -> int:
        return self.at


def source_of(kind: str, folder: Path) -> Any:
    match kind:
        case "jsonl":
            (folder / "in.jsonl").write_text("".join(jsonl(n) + "\n" for n in range(ROWS)))
            return plait.Files(folder / "in.jsonl", schema=SCHEMA)
        case "csv.gz":
            text = "n,s,ts\n" + "".join(csv(n) + "\n" for n in range(ROWS))
            (folder / "in.csv.gz").write_bytes(gzip.compress(text.encode()))
            return plait.Files(folder / "in.csv.gz", schema=SCHEMA)
        case "items":
            return plait.Items([record(n) for n in range(ROWS)], schema=SCHEMA)
        case "reader":
            return Few()
        case _:
            return no_times(folder) if kind == "parquet" else plait.Table(with_null_times())


def with_null_times() -> pa.Table:
    times = [None if n in BAD else moment(n) for n in range(ROWS)]
    return pa.table({"n": list(range(ROWS)), "s": [f"t{n}" for n in range(ROWS)], "ts": times})


def no_times(folder: Path) -> plait.Files:
    pq.write_table(with_null_times(), folder / "in.parquet", row_group_size=30)
    return plait.Files(folder / "in.parquet")


SOURCES = ("jsonl", "csv.gz", "items", "reader", "parquet", "table")


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("on_error", ["skip", "dead_letter"])
def test_the_other_rows_go_on(
    entry_point: EntryPoint, kind: str, on_error: Any, tmp_path: Path
) -> None:
    job = plait.Job("entry")
    read = job.source(source_of(kind, tmp_path), "in", event_time="ts", on_error=on_error)
    read.key_by("s").tumbling("10s").aggregate(n=plait.max("n")).sink(plait.Collect(), name="keys")
    read.filter(col("n") % 2 == 0).select("n").sink(plait.Collect(), name="even")
    result = entry_point(job, **SETTINGS)
    wanted = sequential(job.graph(), epoch_records=16, cuts=result.cuts)
    for label, schema in wanted.schemas.items():
        assert rows_of_arrow(result.outputs[label], schema) == wanted.outputs[label]
    compare_accounts("bad rows", result, wanted)
    compare_letters("bad rows", result.dead_letters, wanted.dead_letters)
    good = [n for n in range(ROWS) if n not in BAD]
    assert result.outputs["even"].column("n").to_pylist() == [n for n in good if n % 2 == 0]
    assert result.account.read == ROWS
    assert result.account.difference == 0
    set_aside = result.account.skipped + result.account.dead_lettered
    assert set_aside == len(BAD)
    if on_error == "dead_letter":
        assert [letter.row for letter in result.dead_letters] == [n + 1 for n in sorted(BAD)]


def test_letters_have_the_line(entry_point: EntryPoint, tmp_path: Path) -> None:
    """What is in the letters can be mended and fed back."""
    letters = tmp_path / "letters.jsonl"
    job = plait.Job("entry", dead_letters=plait.Files(letters))
    read = job.source(source_of("jsonl", tmp_path), "in", event_time="ts", on_error="dead_letter")
    read.sink(plait.Collect(), name="out")
    result = entry_point(job, **SETTINGS)
    assert [letter.record for letter in result.dead_letters] == [
        BadLine(file=str(tmp_path / "in.jsonl"), line=n + 1, text=jsonl(n)) for n in sorted(BAD)
    ]
    assert "no JSON" in result.dead_letters[4].error
    again = sorted(plait.stream(letters).collect(), key=lambda letter: letter.row)
    assert [(letter.line, letter.text) for letter in again] == [
        (n + 1, jsonl(n)) for n in sorted(BAD)
    ]
    assert {letter.file for letter in again} == {str(tmp_path / "in.jsonl")}


@pytest.mark.parametrize("kind", ["jsonl", "csv.gz", "items", "reader"])
def test_by_default_a_bad_row_ends_the_run(
    entry_point: EntryPoint, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.BAD", {73, 90})
    job = plait.Job("entry")
    got: list[int] = []
    source = source_of(kind, tmp_path)
    if kind == "items":  # a list whose times may be null has no event time
        source = plait.Items(
            [record(n) for n in range(ROWS)], schema=SCHEMA | {"ts": plait.Timestamp}
        )
    read = job.source(source, "in", event_time="ts")
    read.sink(plait.Call(lambda row: got.append(row.n)))
    with pytest.raises(plait.SourceError) as caught:
        entry_point(job, epoch_records=7)
    assert got == list(range(73))
    if kind == "jsonl":
        assert "in.jsonl: line 74: " in str(caught.value)
        assert 'on_error="skip"' in str(caught.value)


def test_a_paced_table_keeps_its_pace_and_so_its_rows(tmp_path: Path) -> None:
    with pytest.raises(plait.JobError, match="8 of its values are null"):
        plait.stream(
            plait.Table(with_null_times(), rate_per_s=1000), event_time="ts", on_error="skip"
        )
    with pytest.raises(plait.JobError, match='on_error="skip" or "dead_letter"'):
        plait.stream(plait.Table(with_null_times()), event_time="ts")


def test_a_policy_that_is_none() -> None:
    wrong: Any = "ignore"
    with pytest.raises(plait.JobError, match=r"source at .*on_error is 'ignore'"):
        plait.stream([1], on_error=wrong)


def test_a_record_that_cannot_be_pickled_is_kept_as_its_text() -> None:
    rows: list[Any] = [{"n": 1}, {"n": lambda: 1}]
    read = plait.stream(plait.Items(rows, schema={"n": int}), on_error="dead_letter")
    result = read.sink(plait.Discard(), name="out").run()
    (letter,) = result.dead_letters
    assert letter.record.startswith("{'n': <function")
    assert str(result.account) == "2 read, 1 delivered, 1 dead-lettered"


@pytest.mark.parametrize("kind", SOURCES)
def test_every_position_is_one_to_go_on_from(kind: str, tmp_path: Path) -> None:
    from plait.connectors.bad_rows import poll_rows
    from plait.connectors.opening import open_reader

    source = source_of(kind, tmp_path)
    job = plait.Job("positions")
    job.source(source, "in", event_time="ts", on_error="skip")
    schema = job._operators[0].schema

    def rows_from(position: Any, most: int) -> list[int]:
        reader = open_reader(source, schema, position, "in")
        found: list[int] = []
        while (rows := poll_rows(reader, schema, most, 0)) is not None:
            found += rows.good.column("n").to_pylist()  # type: ignore[union-attr]
        reader.close()
        return found

    good = [n for n in range(ROWS) if n not in BAD]
    reader = open_reader(source, schema, None, "in")
    read = 0
    while True:
        assert rows_from(reader.position(), 50) == [n for n in good if n >= read]
        rows = poll_rows(reader, schema, 7, read)
        if rows is None:
            break
        read += len(rows)  # type: ignore[arg-type]
    reader.close()
    assert read == ROWS


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass
class Cup:
    n: int
    size: Size
    price: Decimal | None


CUPS: list[tuple[int, str | None, str | None]] = [
    (1, "small", "1.50"),
    (2, "huge", "2"),
    (3, "large", None),
    (4, "large", "cheap"),
    (5, None, "2"),
    (6, "small", "3"),
]
SAID = (
    "expected Size, got 'huge' (str); its values are 'small', 'large'",
    "expected Decimal, got 'cheap' (str)",
    'column "size"',
)


def cups(suffix: str, folder: Path) -> plait.Files:
    path = folder / f"cups.{suffix}"
    rows = [{"n": n, "size": size, "price": price} for n, size, price in CUPS]
    match suffix:
        case "csv":
            cells = [",".join(str(c) if c else "" for c in cup) for cup in CUPS]
            path.write_text("\n".join(["n,size,price", *cells]))
        case "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        case _:
            pq.write_table(pa.Table.from_pylist(rows), path)
    return plait.Files(path, schema=Cup)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_value_that_is_not_what_was_declared(
    entry_point: EntryPoint, suffix: str, tmp_path: Path
) -> None:
    job = plait.Job("entry")
    read = job.source(cups(suffix, tmp_path), "in", on_error="dead_letter")
    read.sink(plait.Collect(), name="out")
    result = entry_point(job, **SETTINGS)
    wanted = sequential(job.graph(), epoch_records=16, cuts=result.cuts)
    compare_letters("declared", result.dead_letters, wanted.dead_letters)
    assert rows_of_arrow(result.outputs["out"], wanted.schemas["out"]) == wanted.outputs["out"]
    assert [letter.row for letter in result.dead_letters] == [2, 4, 5]
    for letter, said in zip(result.dead_letters, SAID, strict=True):
        assert said in letter.error
        if suffix == "parquet":
            assert f"cups.parquet: row {letter.row}: " in letter.error
            assert letter.record["n"] == letter.row
        else:
            header = suffix == "csv"
            assert (letter.record.file, letter.record.line) == (
                str(tmp_path / f"cups.{suffix}"),
                letter.row + header,
            )
    good = plait.stream(cups(suffix, tmp_path), on_error="skip").collect()
    assert good == [
        Cup(1, Size.SMALL, Decimal("1.50")),
        Cup(3, Size.LARGE, None),
        Cup(6, Size.SMALL, Decimal(3)),
    ]
    where = {"csv": "line 3", "jsonl": "line 2", "parquet": "row 2"}[suffix]
    with pytest.raises(plait.SourceError, match=rf"cups\.{suffix}: {where}: .*'huge'"):
        plait.stream(cups(suffix, tmp_path)).collect()


def test_a_number_that_no_decimal_has(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"d": 1.10}\n{"d": 1e99999999999999999999}\n{"d": NaN}\n')
    read = plait.stream(plait.Files(path, schema={"d": Decimal}), on_error="dead_letter")
    result = read.sink(plait.Collect(), name="out").run()
    assert [letter.row for letter in result.dead_letters] == [2, 3]
    assert plait.stream(path.as_posix(), on_error="skip").schema.names == ("d",)


def test_times_of_parquet_that_are_too_fine(tmp_path: Path) -> None:
    path = tmp_path / "fine.parquet"
    pq.write_table(pa.table({"ts": pa.array([1000, 1001, None], pa.timestamp("ns"))}), path)
    read = plait.stream(plait.Files(path), on_error="dead_letter")
    result = read.sink(plait.Collect(), name="out").run()
    (letter,) = result.dead_letters
    assert "fine.parquet: row 2: " in letter.error
    assert "1001 ns since 1970" in letter.error
    cut = plait.Files(path, rounding="down", rename={"ts": "at"})
    times = [record.at for record in plait.stream(cut).collect()]
    assert times == [moment_of(1), moment_of(1), None]


def moment_of(microseconds: int) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1, microsecond=microseconds, tzinfo=datetime.UTC)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_bad_rows_under_other_names(suffix: str, tmp_path: Path) -> None:
    files = cups(suffix, tmp_path)
    schema = {"number": int, "size": Size, "price": Decimal | None}
    named = plait.Files(files.given[0], schema=schema, rename={"n": "number"})
    read = plait.stream(named, on_error="skip", rename={"number": "which"})
    assert [record.which for record in read.collect()] == [1, 3, 6]


def test_objects_of_a_table_without_its_null_times() -> None:
    times = [None if n % 2 else moment(n) for n in range(4)]
    table = pa.table({"tags": [[n] for n in range(4)], "ts": times})
    read = plait.stream(plait.Table(table), event_time="ts", on_error="dead_letter")
    result = read.sink(plait.Collect(), name="out").run()
    assert [letter.record["tags"] for letter in result.dead_letters] == [[1], [3]]
    assert [letter.row for letter in result.dead_letters] == [2, 4]
    skipping = plait.stream(plait.Table(table), event_time="ts", on_error="skip")
    assert [record.tags for record in skipping.collect()] == [[0], [2]]
