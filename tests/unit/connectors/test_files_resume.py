"""Files as a source that goes on: at a byte, by name, and what is said when files have changed."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plait.connectors.files import Files
from plait.errors import SourceError

if TYPE_CHECKING:
    from pathlib import Path

BLOCK = "plait.connectors.formats.text_files.BLOCK_BYTES"


def read_rest(source: Files, position: Any, *, bad: bool = False) -> list[Any]:
    reader = source.open(position)
    found: list[Any] = []
    try:
        while True:
            polled = reader.poll_with_bad(50) if bad else reader.poll(50)
            if polled is None:
                return found
            if bad:
                found += [(one.row, one.reason, one.record) for one in polled.bad]
                polled = polled.good
            found += polled.to_pylist()
    finally:
        reader.close()


def check_every_position(source: Files, at_once: int) -> list[dict[str, Any]]:
    """Reads all; at every position another reader goes on with the rest. Gives the positions."""
    whole = read_rest(source, None)
    reader = source.open()
    read: list[Any] = []
    positions = []
    while True:
        position = msgpack.unpackb(msgpack.packb(reader.position()))
        positions.append(position)
        assert read + read_rest(source, position) == whole
        rows = reader.poll(at_once)
        if rows is None:
            break
        read += rows.to_pylist()
    assert read == whole
    return positions


CELL = st.text(st.sampled_from('ab",\n\r é'), max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cells=st.lists(CELL, min_size=1, max_size=60), at_once=st.integers(1, 9), mark=st.booleans())
@pytest.mark.parametrize("quoted", ["all", "needed", "none"])
def test_csv(
    cells: list[str],
    at_once: int,
    mark: bool,
    quoted: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also with line ends in quotes, and quotes where none should be."""
    monkeypatch.setattr(BLOCK, 64)

    def field(cell: str) -> str:
        if quoted == "none":
            return "x" + cell.replace(",", "").replace("\n", "").replace("\r", "")
        if quoted == "needed" and not set(cell) & set('",\n\r'):
            return cell
        return '"' + cell.replace('"', '""') + '"'

    path = tmp_path / "a.csv"
    text = "n,s\n" + "".join(f"{n},{field(cell)}\n" for n, cell in enumerate(cells))
    path.write_text("\ufeff" * mark + text, encoding="utf-8", newline="")
    check_every_position(Files(path, schema={"n": int, "s": str | None}), at_once)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cells=st.lists(st.none() | CELL, min_size=1, max_size=60),
    at_once=st.integers(1, 9),
    mark=st.booleans(),
)
@pytest.mark.parametrize("format", ["jsonl", "text"])
def test_lines(
    cells: list[str | None],
    at_once: int,
    mark: bool,
    format: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None is a blank line."""
    monkeypatch.setattr(BLOCK, 64)
    path = tmp_path / "a.lines"
    lines = ["" if cell is None else json.dumps({"s": cell}) for cell in cells]
    path.write_text("\ufeff" * mark + "\n".join(lines), encoding="utf-8", newline="")
    schema = {"s": str} if format == "jsonl" else None
    source = Files(path, format, schema, file_and_line=format == "text")
    check_every_position(source, at_once)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_bad_rows_keep_their_line_numbers(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BLOCK, 200)
    monkeypatch.setattr("plait.connectors.formats.csv_reader.CLOSELY", 10)
    path = tmp_path / f"a.{suffix}"
    if suffix == "csv":
        lines = ["n,s"] + [f"{n},t{n}" if n % 13 else f"bad{n},\u00e9" for n in range(1, 100)]
    else:
        lines = [f'{{"n": {n if n % 13 else "null"}}}' for n in range(1, 100)]
    path.write_text("\n".join(lines), encoding="utf-8")
    source = Files(path, schema={"n": int})
    numbers = {i for i, line in enumerate(lines, 1) if "bad" in line or "null" in line}
    reader = source.open()
    seen = 0
    anchors = set()
    while True:
        position = reader.position()
        anchors.add(position["byte"])
        rest = read_rest(source, position, bad=True)
        found = {one[2].line for one in rest if isinstance(one, tuple)}
        assert found == {n for n in numbers if n > seen + (suffix == "csv")}
        rows = reader.poll_with_bad(7)
        if rows is None:
            break
        seen += len(rows)
    assert len(anchors) > 4


def bytes_read() -> int:
    """By this process, as the system counts them."""
    with open("/proc/self/io") as file:
        return int(file.readline().split()[1])


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "txt"])
def test_reading_goes_on_at_a_byte(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 9 MB, a run that goes on near the end reads the last blocks, and what says the columns."""
    monkeypatch.setattr(BLOCK, 1 << 18)
    path = tmp_path / f"a.{suffix}"
    rows = 100_000
    filler = "x" * 80
    with path.open("w") as file:
        if suffix == "csv":
            file.write("n,s\n")
        line = '{{"n": {}, "s": "{}"}}\n' if suffix == "jsonl" else '{},"{}"\n'
        file.writelines(line.format(n, filler) for n in range(rows))
    options: dict[str, Any] = {"schema": {"n": int, "s": str}}
    source = Files(path, **({"format": "text"} if suffix == "txt" else options))
    reader = source.open()
    read = 0
    while read < rows - 1000:
        read += reader.poll(min(65536, rows - 1000 - read)).num_rows
    position = reader.position()
    reader.close()
    assert position["row"] == read == rows - 1000
    before = bytes_read()
    rest = read_rest(source, position)
    used = bytes_read() - before
    assert len(rest) == 1000
    assert all(str(n) in str(row) for n, row in zip(range(read, rows), rest, strict=True))
    assert path.stat().st_size > 8_000_000
    assert used < 1_600_000


def two_files(folder: Path) -> tuple[Files, Any, list[dict[str, Any]]]:
    """A position in the second of three files, and the rows after it."""
    for name, first in (("a", 0), ("b", 10), ("c", 20)):
        lines = (json.dumps({"n": n}) + "\n" for n in range(first, first + 10))
        (folder / f"{name}.jsonl").write_text("".join(lines))
    source = Files(folder / "*.jsonl", schema={"n": int})
    reader = source.open()
    for _ in range(2):
        assert reader.poll(10).num_rows == 10
    assert reader.poll(3) is not None
    position = reader.position()
    reader.close()
    return source, position, [{"n": n} for n in range(23, 30)]


def test_new_files_are_not_seen(tmp_path: Path) -> None:
    source, position, rest = two_files(tmp_path)
    for name in ("0", "bb", "d"):
        (tmp_path / f"{name}.jsonl").write_text('{"n": 99}\n')
    assert read_rest(source, position) == rest


def test_a_file_that_is_moved_in_is_new(tmp_path: Path) -> None:
    """Its own time is old; that of its name is not."""
    (tmp_path / "elsewhere").mkdir()
    old = tmp_path / "elsewhere" / "d.jsonl"
    old.write_text('{"n": 99}\n')
    os.utime(old, (1, 1))
    (tmp_path / "in").mkdir()
    source, position, rest = two_files(tmp_path / "in")
    old.rename(tmp_path / "in" / "d.jsonl")
    assert read_rest(source, position) == rest


def test_files_that_are_done_may_be_gone(tmp_path: Path) -> None:
    source, position, rest = two_files(tmp_path)
    (tmp_path / "a.jsonl").unlink()
    assert read_rest(source, position) == rest


def test_a_copy_is_the_same_file(tmp_path: Path) -> None:
    source, position, rest = two_files(tmp_path)
    path = tmp_path / "c.jsonl"
    text = path.read_text()
    path.unlink()
    path.write_text(text)
    assert read_rest(source, position) == rest


def test_the_present_file_is_gone(tmp_path: Path) -> None:
    source, position, _ = two_files(tmp_path)
    (tmp_path / "c.jsonl").unlink()
    with pytest.raises(SourceError, match=r"c\.jsonl is gone; the job was to go on at row 4"):
        source.open(position)


def test_a_later_file_is_gone(tmp_path: Path) -> None:
    source, _, _ = two_files(tmp_path)
    reader = source.open()
    assert reader.poll(5) is not None
    position = reader.position()
    (tmp_path / "b.jsonl").unlink()
    with pytest.raises(SourceError, match=r"are not those of the run before: 3 then, 2 now"):
        source.open(position)


@pytest.mark.parametrize(
    ("text", "said"), [("{}\n", "bytes when it was read, 3 bytes now"), (None, "not the same")]
)
def test_the_present_file_has_changed(text: str | None, said: str, tmp_path: Path) -> None:
    source, position, _ = two_files(tmp_path)
    path = tmp_path / "c.jsonl"
    path.write_text(path.read_text().replace("29", "30") if text is None else text)
    with pytest.raises(SourceError, match=rf"c\.jsonl has changed.*{said}"):
        source.open(position)


def test_the_end_stays_the_end(tmp_path: Path) -> None:
    source, _, _ = two_files(tmp_path)
    reader = source.open()
    while reader.poll(100) is not None:
        pass
    for path in tmp_path.iterdir():
        path.unlink()
    assert read_rest(source, reader.position()) == []


def test_one_file_given_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"n": {n}}}\n' for n in range(5)))
    check_every_position(Files([path, path], schema={"n": int}), 2)


def test_a_position_of_something_else(tmp_path: Path) -> None:
    source, _, _ = two_files(tmp_path)
    with pytest.raises(SourceError, match=r"\[1, 3\] is not a position of files"):
        source.open([1, 3])
