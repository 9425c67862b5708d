"""Files as a sink of a job with checkpoints: names, what is refused, and what is said when a file
that should be there is not. The property tests crash it anywhere."""

from __future__ import annotations

import gzip
import json
import os
from typing import TYPE_CHECKING, Any

import msgpack
import pyarrow.parquet as pq
import pytest

import plait
from plait.connectors.base import Resume
from plait.connectors.columns import to_batch
from plait.connectors.file_targets import Roll, to_roll
from plait.errors import SinkError

if TYPE_CHECKING:
    from pathlib import Path

    from plait.connectors.files import Files

SCHEMA = plait.Schema.of({"n": int})


def batch(*numbers: int) -> Any:
    return to_batch([(n,) for n in numbers], SCHEMA)


def open_at(files: Files, position: Any = None, boundary: int = 0, attempt: int = 1) -> Any:
    return files.open(SCHEMA, Resume(position, boundary, f"abc-{attempt}"))


def checkpoint(writer: Any, boundary: int, *, commit: bool = True) -> Any:
    writer.mark(boundary)
    position = msgpack.unpackb(msgpack.packb(writer.prepare(boundary)))
    if commit:
        writer.commit(boundary)
    return position


def names(folder: Path, *, hidden: bool = False) -> list[str]:
    found = sorted(path.name for path in folder.iterdir())
    return [name for name in found if name.startswith(".") == hidden]


def numbers(folder: Path) -> list[list[int]]:
    texts = [(folder / name).read_text() for name in names(folder)]
    return [[json.loads(line)["n"] for line in text.splitlines()] for text in texts]


def test_a_folder_gets_a_part_for_each_checkpoint(tmp_path: Path) -> None:
    writer = open_at(plait.Files(tmp_path / "out", "jsonl"))
    out = tmp_path / "out"
    writer.write(batch(1, 2))
    writer.mark(4)
    writer.write(batch(3))
    assert names(out) == []
    writer.prepare(4)
    assert names(out) == []
    assert all(".abc-1." in name for name in names(out, hidden=True))
    writer.commit(4)
    assert names(out) == ["part-00000000.jsonl"]
    checkpoint(writer, 6)
    checkpoint(writer, 8)  # no rows: no part
    writer.write(batch(4))
    checkpoint(writer, 9)
    assert writer.close() == str(out)
    assert numbers(out) == [[1, 2], [3], [4]]
    assert names(out, hidden=True) == []


def test_an_abandoned_checkpoint_comes_with_the_next(tmp_path: Path) -> None:
    writer = open_at(plait.Files(tmp_path, "jsonl"))
    writer.write(batch(1))
    writer.mark(1)
    writer.write(batch(2))
    checkpoint(writer, 2, commit=False)
    writer.write(batch(3))
    checkpoint(writer, 3)
    writer.close()
    assert [n for part in numbers(tmp_path) for n in part] == [1, 2, 3]


def test_roll_joins_checkpoints_by_size(tmp_path: Path) -> None:
    writer = open_at(plait.Files(tmp_path, "jsonl", roll="0.03kB"))
    for n in range(1, 8):
        writer.write(batch(n))
        checkpoint(writer, n)
    assert numbers(tmp_path) == [[1, 2, 3, 4]]
    writer.close()
    assert numbers(tmp_path) == [[1, 2, 3, 4], [5, 6, 7]]


def test_roll_joins_checkpoints_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also over a crash: the time of the first row is in the position."""
    now = 1000.0
    monkeypatch.setattr("time.time", lambda: now)
    files = plait.Files(tmp_path, "jsonl", roll="10m")
    writer = open_at(files)
    writer.write(batch(1))
    position = checkpoint(writer, 1)
    now += 599
    writer = open_at(files, position, 1, attempt=2)
    writer.write(batch(2))
    checkpoint(writer, 2)
    assert names(tmp_path) == []
    now += 1
    writer.write(batch(3))
    checkpoint(writer, 3)
    assert numbers(tmp_path) == [[1, 2, 3]]


def test_a_rolled_parquet_file_has_few_row_groups(tmp_path: Path) -> None:
    writer = open_at(plait.Files(tmp_path, "parquet", roll="10MB", batch_rows=100))
    for n in range(500):
        writer.write(batch(n))
        if n % 50 == 49:
            checkpoint(writer, n)
    writer.close()
    (name,) = names(tmp_path)
    file = pq.ParquetFile(tmp_path / name)
    assert file.num_row_groups == 5
    assert file.read().column("n").to_pylist() == list(range(500))


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet", "jsonl.gz"])
def test_one_file_is_there_when_the_job_ends(suffix: str, tmp_path: Path) -> None:
    files = plait.Files(tmp_path / f"out.{suffix}")
    writer = open_at(files)
    writer.write(batch(1))
    position = checkpoint(writer, 1)
    writer.write(batch(77))  # lost: it comes again
    writer = open_at(files, position, 1, attempt=2)
    writer.write(batch(2))
    position = checkpoint(writer, 2)
    assert names(tmp_path) == []
    assert writer.close() == str(tmp_path / f"out.{suffix}")
    assert names(tmp_path) == [f"out.{suffix}"]
    assert names(tmp_path, hidden=True) == []
    read = plait.Files(tmp_path / f"out.{suffix}", schema=SCHEMA).open()
    found = [n for b in iter(lambda: read.poll(9), None) for n in b.column("n").to_pylist()]
    assert found == [1, 2]


@pytest.mark.parametrize("suffix", ["jsonl.gz", "csv", "parquet"])
def test_one_file_without_rows(suffix: str, tmp_path: Path) -> None:
    writer = open_at(plait.Files(tmp_path / f"out.{suffix}"))
    checkpoint(writer, 1)
    writer.close()
    read = plait.Files(tmp_path / f"out.{suffix}", schema=SCHEMA).open()
    assert read.poll(9) is None
    if suffix == "jsonl.gz":
        assert gzip.decompress((tmp_path / "out.jsonl.gz").read_bytes()) == b""


def test_what_a_crash_left_is_removed_and_other_files_stay(tmp_path: Path) -> None:
    files = plait.Files(tmp_path, "jsonl")
    writer = open_at(files)
    writer.write(batch(1))
    position = checkpoint(writer, 1)
    writer.write(batch(2))
    others = [".part-00000007.jsonl.other-1.log", ".mine", "notes.txt"]
    for name in others:
        (tmp_path / name).write_text("x")
    assert len(names(tmp_path, hidden=True)) == 3
    open_at(files, position, 1, attempt=2)
    assert sorted(names(tmp_path) + names(tmp_path, hidden=True)) == sorted(
        [*others, "part-00000000.jsonl"]
    )


def test_a_run_that_still_lives_cannot_write_into_the_next(tmp_path: Path) -> None:
    files = plait.Files(tmp_path / "out.jsonl")
    zombie = open_at(files)
    zombie.write(batch(1))
    position = checkpoint(zombie, 1)
    writer = open_at(files, position, 1, attempt=2)
    zombie.write(batch(66))
    zombie.mark(2)
    writer.write(batch(2))
    checkpoint(writer, 2)
    zombie.write(batch(67))
    writer.close()
    assert (tmp_path / "out.jsonl").read_text() == '{"n":1}\n{"n":2}\n'


def test_abort_keeps_what_a_checkpoint_may_need(tmp_path: Path) -> None:
    files = plait.Files(tmp_path, "jsonl")
    writer = open_at(files)
    writer.write(batch(1))
    position = checkpoint(writer, 1, commit=False)  # sealed, perhaps
    writer.write(batch(2))
    writer.abort()
    assert len(names(tmp_path, hidden=True)) == 1
    open_at(files, position, 1, attempt=2)
    assert numbers(tmp_path) == [[1]]


@pytest.mark.parametrize("target", ["out", "out.jsonl"])
def test_a_file_that_is_gone_is_an_error(target: str, tmp_path: Path) -> None:
    files = plait.Files(tmp_path / target, None if "." in target else "jsonl")
    writer = open_at(files)
    writer.write(batch(1))
    position = checkpoint(writer, 1, commit=False)
    for path in tmp_path.rglob(".*"):
        path.unlink()
    with pytest.raises(SinkError, match=r"\.abc-1\.log is gone.* does not have"):
        open_at(files, position, 1, attempt=2)


@pytest.mark.parametrize("target", ["out", "out.jsonl"])
def test_a_file_that_is_damaged_is_an_error(target: str, tmp_path: Path) -> None:
    files = plait.Files(tmp_path / target, None if "." in target else "jsonl")
    writer = open_at(files)
    writer.write(batch(1))
    position = checkpoint(writer, 1, commit=False)
    (path,) = (path for path in tmp_path.rglob(".*") if path.is_file())
    path.write_text(path.read_text().replace("1", "7"))
    with pytest.raises(SinkError, match=r"abc-1\.log is damaged: its bytes are not those"):
        open_at(files, position, 1, attempt=2)
    os.truncate(path, 3)
    with pytest.raises(SinkError, match=r"abc-1\.log is damaged"):
        open_at(files, position, 1, attempt=3)


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    (tmp_path / "part-00000.jsonl").write_text("mine\n")
    with pytest.raises(SinkError, match=r"part-00000\.jsonl exists already; remove it or give ov"):
        open_at(plait.Files(tmp_path, "jsonl"))
    (tmp_path / "out.jsonl").write_text("mine\n")
    with pytest.raises(SinkError, match=r"out\.jsonl exists already"):
        open_at(plait.Files(tmp_path / "out.jsonl"))


def test_a_file_that_came_during_the_run_is_refused(tmp_path: Path) -> None:
    writer = open_at(plait.Files(tmp_path, "jsonl"))
    (tmp_path / "part-00000000.jsonl").write_text("mine\n")
    writer.write(batch(1))
    writer.mark(1)
    writer.prepare(1)
    with pytest.raises(SinkError, match="it came during the run"):
        writer.commit(1)
    (tmp_path / "part-00000000.jsonl").unlink()
    writer.commit(1)
    assert numbers(tmp_path) == [[1]]


def test_a_part_that_the_checkpoint_does_not_know(tmp_path: Path) -> None:
    files = plait.Files(tmp_path, "jsonl")
    writer = open_at(files)
    writer.write(batch(1))
    position = checkpoint(writer, 1)
    writer.write(batch(2))
    checkpoint(writer, 2)
    with pytest.raises(SinkError, match=r"part-00000001\.jsonl is not of the checkpoint"):
        open_at(files, position, 1, attempt=2)
    again = open_at(plait.Files(tmp_path, "jsonl", overwrite=True), position, 1, attempt=3)
    assert numbers(tmp_path) == [[1]]
    again.write(batch(3))
    checkpoint(again, 2)
    assert numbers(tmp_path) == [[1], [3]]


def test_overwrite_replaces_all_parts(tmp_path: Path) -> None:
    for n in range(5):
        (tmp_path / f"part-{n:08d}.jsonl").write_text('{"n":9}\n')
    (tmp_path / "part-00000.jsonl").write_text('{"n":9}\n')
    writer = open_at(plait.Files(tmp_path, "jsonl", overwrite=True))
    writer.write(batch(1))
    assert len(names(tmp_path)) == 6
    checkpoint(writer, 1)
    assert numbers(tmp_path) == [[1]]


def test_two_sinks_of_a_job_do_not_share_a_folder(tmp_path: Path) -> None:
    first, second = (open_at(plait.Files(tmp_path, "jsonl")) for _ in range(2))
    first.write(batch(1))
    with pytest.raises(SinkError, match="another sink of the job writes there"):
        second.write(batch(2))


def test_nothing_is_closed_that_was_not_committed(tmp_path: Path) -> None:
    writer = open_at(plait.Files(tmp_path / "out.jsonl"))
    writer.write(batch(1, 2))
    with pytest.raises(SinkError, match="2 rows came after the last checkpoint"):
        writer.close()
    assert names(tmp_path) == []


@pytest.mark.parametrize("step", ["prepare", "commit"])
def test_steps_out_of_order_are_refused(step: str, tmp_path: Path) -> None:
    writer = open_at(plait.Files(tmp_path / "out.jsonl"))
    writer.mark(1)
    with pytest.raises(SinkError, match=rf"{step}\(2\) without its"):
        getattr(writer, step)(2)


def test_a_full_disk_is_said_in_words_and_ends_the_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = open_at(plait.Files(tmp_path, "jsonl"))

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(SinkError, match=r"cannot be written: No space left on device"):
            writer.write(batch(1))
    with pytest.raises(SinkError, match="an earlier write failed"):
        writer.mark(1)


@pytest.mark.parametrize(
    ("given", "roll"),
    [
        (None, Roll()),
        ("128MB", Roll(size_bytes=128e6)),
        ("1.5 GB", Roll(size_bytes=1.5e9)),
        ("10m", Roll(age_s=600.0)),
    ],
)
def test_roll(given: Any, roll: Roll) -> None:
    assert to_roll(given) == roll


@pytest.mark.parametrize("given", ["often", "1.2.3MB", 0 + 1j, "-5s"])
def test_a_roll_that_is_none(given: Any) -> None:
    with pytest.raises(SinkError, match='give a size such as "128MB" or a time such as "10m"'):
        plait.Files("out", "jsonl", roll=given)


def test_where_roll_has_no_use(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="roll= is for jobs with checkpoint="):
        plait.Files(tmp_path, "jsonl", roll="10m").open(SCHEMA)
    with pytest.raises(SinkError, match="is one file; roll= is for a folder"):
        open_at(plait.Files(tmp_path / "out.jsonl", roll="10m"))


def test_a_run_that_opens_late_leaves_the_files_of_a_newer_one(tmp_path: Path) -> None:
    """It was frozen before it opened its sinks, and another has taken over since."""
    files = plait.Files(tmp_path / "out", "jsonl")
    first = open_at(files)
    first.write(batch(1))
    position = checkpoint(first, 4)
    newer = open_at(files, position, 4, attempt=3)
    newer.write(batch(2))
    sealed = checkpoint(newer, 6, commit=False)
    open_at(files, position, 4, attempt=2)
    newer.commit(6)
    assert numbers(tmp_path / "out") == [[1], [2]]
    open_at(files, sealed, 6, attempt=10)
    assert numbers(tmp_path / "out") == [[1], [2]]
