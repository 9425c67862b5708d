"""Files as a sink on object stores, in a job with checkpoints: crashes at every step."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgpack
import pyarrow.parquet as pq
import pytest

import plait
from plait.connectors.base import Resume
from plait.connectors.columns import to_batch
from plait.connectors.objects.bucket import Bucket
from plait.errors import SinkError, SourceError
from plait.testing.crashes import abandon

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


def within(url: str, name: str) -> str:
    folder, mark, query = url.partition("?")
    return f"{folder}/{name}{mark}{query}"


def visible(url: str) -> list[str]:
    return [name for name in Bucket(url).names() if not name.startswith("_")]


def hidden(url: str) -> list[str]:
    return [name for name in Bucket(url).names() if name.startswith("_")]


def numbers(url: str, tmp_path: Path) -> list[list[int]]:
    found = []
    for name in visible(url):
        data = b"".join(Bucket(url).read(name))
        if name.endswith(".parquet"):
            path = tmp_path / "read.parquet"
            path.write_bytes(data)
            found.append(pq.read_table(path).column("n").to_pylist())
        elif name.endswith(".csv"):
            lines = data.decode().splitlines()
            assert lines[0] == '"n"'
            found.append([int(line) for line in lines[1:]])
        else:
            found.append([json.loads(line)["n"] for line in data.splitlines()])
    return found


@pytest.mark.parametrize("format", ["parquet", "jsonl", "csv"])
def test_a_folder_gets_a_part_for_each_checkpoint(
    format: Any, objects_url: str, tmp_path: Path
) -> None:
    writer = open_at(plait.Files(objects_url, format))
    writer.write(batch(1, 2))
    writer.mark(4)
    writer.write(batch(3))
    writer.prepare(4)
    assert visible(objects_url) == []
    assert hidden(objects_url) == [f"_plait/abc-1/part-00000000.{format}.ready"]
    writer.commit(4)
    assert visible(objects_url) == [f"part-00000000.{format}"]
    checkpoint(writer, 6)
    checkpoint(writer, 8)  # no rows: no part
    assert "test" not in writer.close().rpartition("/")[0]
    assert numbers(objects_url, tmp_path) == [[1, 2], [3]]
    assert hidden(objects_url) == []
    assert not writer.here.exists()


@pytest.mark.parametrize("format", ["parquet", "jsonl", "csv"])
@pytest.mark.parametrize("roll", [None, "10m"])
@pytest.mark.parametrize("committed", [True, False])
def test_a_run_goes_on_after_a_crash(
    format: Any, roll: Any, committed: bool, objects_url: str, tmp_path: Path
) -> None:
    """Before and after the output of its last checkpoint was shown."""
    files = plait.Files(objects_url, format, roll=roll)
    writer = open_at(files)
    writer.write(batch(1))
    checkpoint(writer, 1)
    writer.write(batch(2))
    position = checkpoint(writer, 2, commit=committed)
    writer.write(batch(77))  # lost: it comes again
    writer.mark(3)
    writer.prepare(3)
    writer.abort()
    for attempt in (2, 3):
        writer = open_at(files, position, 2, attempt)
        assert all(name in str(position) for name in hidden(objects_url))
        if attempt == 2:
            writer.abort()  # a crash right after the start
    writer.write(batch(3))
    checkpoint(writer, 3)
    writer.close()
    assert [n for part in numbers(objects_url, tmp_path) for n in part] == [1, 2, 3]
    assert hidden(objects_url) == []


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_one_file_is_there_when_the_job_ends(suffix: str, objects_url: str, tmp_path: Path) -> None:
    files = plait.Files(within(objects_url, f"out.{suffix}"))
    writer = open_at(files)
    writer.write(batch(1))
    position = checkpoint(writer, 1)
    writer.abort()
    writer = open_at(files, position, 1, attempt=2)
    writer.write(batch(2))
    position = checkpoint(writer, 2)
    assert visible(objects_url) == []
    writer.close()
    assert numbers(objects_url, tmp_path) == [[1, 2]]
    assert hidden(objects_url) == []
    open_at(files, position, 2, attempt=3).close()  # it was finished: the same again
    assert numbers(objects_url, tmp_path) == [[1, 2]]
    writer = open_at(files, position, 2, attempt=4)  # or it was stopped, and goes on
    writer.write(batch(3))
    checkpoint(writer, 3)
    writer.close()
    assert numbers(objects_url, tmp_path) == [[1, 2, 3]]
    assert hidden(objects_url) == []


def test_a_rolled_part_that_was_closed_stays(objects_url: str, tmp_path: Path) -> None:
    files = plait.Files(objects_url, "jsonl", roll="10m")
    writer = open_at(files)
    writer.write(batch(1))
    position = checkpoint(writer, 1)
    writer.close()
    writer = open_at(files, position, 1, attempt=2)
    writer.write(batch(2))
    checkpoint(writer, 2)
    writer.close()
    assert numbers(objects_url, tmp_path) == [[1], [2]]


def test_parts_of_others_and_second_sinks_are_refused(objects_url: str) -> None:
    files = plait.Files(objects_url, "jsonl")
    first = open_at(files)
    first.write(batch(1))
    position = checkpoint(first, 1, commit=False)
    with pytest.raises(SinkError, match="another sink of the job writes there"):
        open_at(files)
    first.commit(1)
    first.write(batch(2))
    checkpoint(first, 2)
    first.abort()
    with pytest.raises(SinkError, match="exists already; remove it or give overwrite=True"):
        open_at(files, attempt=2)
    with pytest.raises(SinkError, match=r"part-00000001.jsonl is not of the checkpoint"):
        open_at(files, position, 1, attempt=2)


def test_what_is_gone_or_damaged_is_named(objects_url: str, tmp_path: Path) -> None:
    files = plait.Files(objects_url, "jsonl", roll="10m")
    writer = open_at(files)
    writer.write(batch(1))
    position = checkpoint(writer, 1)
    writer.abort()
    (piece,) = hidden(objects_url)
    other = tmp_path / "other"
    other.write_bytes(b"{}")
    Bucket(objects_url).put(piece, other)
    with pytest.raises(SinkError, match=r"log-0 is gone or damaged, with rows") as refused:
        open_at(files, position, 1, attempt=2)
    assert "endpoint" not in str(refused.value)


def test_without_checkpoints_and_as_a_source_it_is_refused_in_words(tmp_path: Path) -> None:
    secret = "s3://user:secret@bucket/out?endpoint_override=x"
    with pytest.raises(SinkError, match="run the job with checkpoint=") as refused:
        plait.Files(secret, "jsonl").open(SCHEMA)
    assert "secret" not in str(refused.value)
    with pytest.raises(SourceError, match="Files reads local paths") as unread:
        plait.Files(secret, "jsonl").paths()
    assert "secret" not in str(unread.value)


def test_a_job_that_crashes(objects_url: str, tmp_path: Path) -> None:
    def job() -> plait.Job:
        made = plait.Job("objects")
        rows = made.source(plait.Rate(20_000, total=10_000), name="in").select(n="seq")
        rows.sink(plait.Files(objects_url, "parquet"), "out")
        return made

    saved = plait.Checkpoint(str(tmp_path / "ckpt"), every="50ms")
    for _ in range(2):
        running = plait.start(job(), checkpoint=saved)
        assert running.saved is not None
        while running.saved.stats.taken < 2 and not running.engine.wait(0.01):
            pass
        abandon(running)
        seen = [n for part in numbers(objects_url, tmp_path) for n in part]
        assert seen == list(range(len(seen)))
    plait.run(job(), checkpoint=saved)
    found = [n for part in numbers(objects_url, tmp_path) for n in part]
    assert found == list(range(10_000))


def test_a_run_that_opens_late_leaves_the_objects_of_a_newer_one(
    objects_url: str, tmp_path: Path
) -> None:
    files = plait.Files(objects_url, "jsonl")
    first = open_at(files)
    first.write(batch(1))
    position = checkpoint(first, 4)
    newer = open_at(files, position, 4, attempt=3)
    newer.write(batch(2))
    checkpoint(newer, 6, commit=False)
    open_at(files, position, 4, attempt=2)
    newer.commit(6)
    assert numbers(objects_url, tmp_path) == [[1], [2]]
