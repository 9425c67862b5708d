"""The batch log: batches come in once and without holes, are read in order from any position, and
stay as long as a kept checkpoint may go back to them."""

from __future__ import annotations

import datetime
import os
import pickle
import threading
from typing import TYPE_CHECKING, Any

import msgpack
import pyarrow as pa
import pytest

import plait
from plait.connectors.base import Resume
from plait.connectors.batch_log import read as reading
from plait.connectors.batch_log.append import accept, make_log
from plait.connectors.batch_log.layout import reader_name
from plait.connectors.batch_log.retire import (
    SWEEP_AGE_S,
    forget,
    measure_unread,
    retire,
    sweep,
    tell_read,
)
from plait.connectors.batch_log.storage import LogFolder
from plait.errors import SinkError, SourceError, StateError
from plait.testing import check

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = plait.Schema.of({"n": int})


def rows(*numbers: int) -> Any:
    return pa.table({"n": pa.array(numbers, pa.int64())}, schema=SCHEMA.to_arrow())


def filled(path: Path, batches: int = 4, size: int = 3) -> plait.BatchLog:
    log = plait.BatchLog(path)
    for n in range(batches):
        assert log.append(n, rows(*range(n * size, (n + 1) * size)), writer="me")
    return log


def drain(reader: Any, max_rows: int = 100) -> list[int]:
    found: list[int] = []
    while isinstance(answer := reader.poll(max_rows), pa.RecordBatch):
        found += answer.column("n").to_pylist()
    return found


def test_batches_come_in_once(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", 2)
    assert not log.append(1, rows(3, 4, 5), writer="me")
    assert len(os.listdir(tmp_path / "log" / "segments")) == 2
    assert log.end() == 1
    assert [row.n for row in plait.stream(log).collect()] == [0, 1, 2, 3, 4, 5]


def test_a_hole_another_writer_and_other_columns_are_refused(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", 2)
    with pytest.raises(SinkError, match="batch 3 comes after batch 1, so there would be a hole"):
        log.append(3, rows(1), writer="me")
    with pytest.raises(SinkError, match="belongs to writer me, not to you; take a new log"):
        log.append(2, rows(1), writer="you")
    with pytest.raises(SinkError, match="the columns of a log stay as they are"):
        log.append(2, pa.table({"m": [1]}), writer="me")
    with pytest.raises(SinkError, match='column "n" is object'):
        plait.BatchLog(tmp_path / "b").append(0, pa.table({"n": [[1]]}), writer="me")
    assert log.end() == 1
    with pytest.raises(SinkError, match="has ended with batch 1; batch 2 is after it"):
        log.append(2, rows(1), writer="me")


def test_the_first_number_need_not_be_0(tmp_path: Path) -> None:
    log = plait.BatchLog(tmp_path / "log")
    assert log.append(17, rows(1), writer="me")
    assert log.append(18, rows(2), writer="me")
    assert log.end() == 18
    assert [row.n for row in plait.stream(log).collect()] == [1, 2]


def test_a_batch_without_rows_keeps_its_number(tmp_path: Path) -> None:
    log = plait.BatchLog(tmp_path / "log")
    for n, numbers in enumerate(([1], [], [2])):
        assert log.append(n, rows(*numbers), writer="me")
    log.end()
    assert [row.n for row in plait.stream(log).collect()] == [1, 2]
    assert [row.n for row in plait.stream(plait.BatchLog(log.folder.root, order_by="n")).collect()]


def test_of_many_writers_of_a_number_one_wins(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path / "log")
    log = make_log(folder, SCHEMA, writer="me", kind="other")
    won: list[int] = []
    ready = threading.Barrier(4)

    def write(writer: int) -> None:
        ready.wait()
        for number in range(20):
            if accept(folder, log, number, (), run=str(writer)).created:
                won.append(number)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == list(range(20))
    assert not [name for name in os.listdir(folder.batches) if name.startswith(".")]


def test_a_repeated_batch_of_other_length_is_told(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", 1)
    found = log.folder.read_log()
    assert found is not None
    assert "came again with 0 rows, and has 3" in accept(log.folder, found, 0, (), run="2").told


@pytest.mark.parametrize("size", [1, 2, 5])
def test_every_position_goes_on_with_the_next_row(tmp_path: Path, size: int) -> None:
    log = filled(tmp_path / "log")
    log.end()
    for order_by in ("", "n"):
        source = pickle.loads(pickle.dumps(plait.BatchLog(tmp_path / "log", order_by=order_by)))
        reader = source.open()
        before: list[int] = []
        while True:
            position = msgpack.unpackb(msgpack.packb(reader.position()))
            assert before + drain(source.open(position)) == list(range(12))
            answer = reader.poll(size)
            if answer is None:
                break
            before += answer.column("n").to_pylist()
        assert before == list(range(12))


def test_a_reader_waits_for_the_log_and_for_its_end(tmp_path: Path) -> None:
    source = plait.BatchLog(tmp_path / "log", {"n": int})
    reader = source.open()
    assert isinstance(reader.poll(9), plait.Wait)
    again = source.open(reader.position())
    filled(tmp_path / "log", 1)
    assert drain(reader) == drain(again) == [0, 1, 2]
    assert isinstance(reader.poll(9), plait.Wait)
    plait.BatchLog(tmp_path / "log").end()
    reader.looked_at = 0.0
    assert reader.poll(9) is None


def test_what_cannot_be_read_is_said_when_the_job_is_built(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no batch log yet; start its writer first"):
        plait.stream(plait.BatchLog(tmp_path / "log"))
    filled(tmp_path / "log", 1)
    with pytest.raises(SourceError, match='has no column "m"; it has: n'):
        plait.stream(plait.BatchLog(tmp_path / "log", {"m": int}))
    with pytest.raises(SourceError, match='column "n" is int64 in the log, not string'):
        plait.stream(plait.BatchLog(tmp_path / "log", {"n": str}))
    with pytest.raises(SourceError, match='required= names no column "m"'):
        plait.stream(plait.BatchLog(tmp_path / "log", required=["m"]))
    with pytest.raises(SourceError, match='order_by="m" is no column'):
        plait.stream(plait.BatchLog(tmp_path / "log", order_by="m"))
    with pytest.raises(SourceError, match="use a shared folder, or Kafka"):
        plait.BatchLog("s3://bucket/log")
    with pytest.raises(SinkError, match="order_by= is for reading"):
        plait.stream([1]).sink(plait.BatchLog(tmp_path / "other", order_by="n"))


def test_event_time_of_a_foreign_log_needs_an_order(tmp_path: Path) -> None:
    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    times = [at + datetime.timedelta(seconds=s) for s in (0, 2, 1, 3)]
    table = pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC"))})
    log = plait.BatchLog(tmp_path / "log")
    log.append(0, table, writer="me")
    log.end()
    with pytest.raises(SourceError, match=r"order_by=\"ts\""):
        plait.stream(plait.BatchLog(tmp_path / "log", required=["ts"]), event_time="ts")
    sorted_log = plait.BatchLog(tmp_path / "log", required=["ts"], order_by="ts")
    stream = plait.stream(sorted_log, event_time="ts")
    assert [row.ts for row in stream.collect()] == sorted(times)
    counted = stream.tumbling("1s").count()
    assert [row.count for row in counted.collect()] == [1, 1, 1, 1]
    check(lambda rows: rows.tumbling("1s").count(), sorted_log, event_time="ts", workers=(1, 2))


def test_sorting_keeps_the_order_of_equal_rows(tmp_path: Path) -> None:
    log = plait.BatchLog(tmp_path / "log")
    table = pa.table({"k": [2, 1, 2, 1, 2], "row": [0, 1, 2, 3, 4]})
    log.append(0, table, writer="me")
    log.append(1, table, writer="me")
    log.end()
    found = plait.stream(plait.BatchLog(tmp_path / "log", order_by="k")).collect()
    assert [row.row for row in found] == [1, 3, 0, 2, 4] * 2


def test_a_batch_too_large_to_sort_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path / "log", 1)
    monkeypatch.setattr(reading, "MOST_SORTED_BYTES", 10)
    with pytest.raises(SourceError, match=r"too many to\s+sort"):
        plait.BatchLog(tmp_path / "log", order_by="n").open().poll(9)


def test_damage_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", 2)
    reader = log.open()
    reader.poll(1)
    position = reader.position()
    segments = sorted((tmp_path / "log" / "segments").iterdir())
    good = segments[0].read_bytes()
    segments[0].write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(SourceError, match=r"batch 0, .*0-.*arrow is damaged: its bytes"):
        log.open().poll(9)
    segments[0].write_bytes(good[:-1])
    with pytest.raises(SourceError, match=r"it has .* bytes, and .* were written"):
        log.open().poll(9)
    segments[0].unlink()
    with pytest.raises(SourceError, match=r"batch 0, .* is gone, with 3 rows"):
        log.open().poll(9)
    batch = tmp_path / "log" / "batches" / "000000000.json"
    batch.write_bytes(batch.read_bytes() + b" ")
    with pytest.raises(SourceError, match="the input has changed since the checkpoint"):
        log.open(position)
    batch.write_text("{")
    with pytest.raises(SourceError, match=r"000000000\.json is damaged"):
        log.open().poll(9)
    batch.write_text('{"number":0,"writer":"a","run":"","parts":[["../x",0,0,0]],"rows":0}')
    with pytest.raises(SourceError, match="not the name of a segment"):
        log.open().poll(9)


def test_a_log_that_is_another_or_a_batch_that_is_gone_is_an_error(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", 3)
    reader = log.open()
    drain(reader, 3)
    (tmp_path / "log" / "batches" / "000000001.json").rename(tmp_path / "moved")
    middle = [1, 0, 0, log.folder.read_log().crc]  # type: ignore[union-attr]
    with pytest.raises(SourceError, match=r"batch 1, which the job reads next, is gone"):
        log.open(middle).poll(9)
    position = reader.position()
    (tmp_path / "log").rename(tmp_path / "old")
    with pytest.raises(SourceError, match="the log is gone"):
        plait.BatchLog(tmp_path / "log", {"n": int}).open(position)
    filled(tmp_path / "log", 5)
    with pytest.raises(SourceError, match="it is another log"):
        plait.BatchLog(tmp_path / "log").open(position)


# Readers, and what is removed


def test_batches_stay_until_no_reader_needs_them(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", 6)
    folder = log.folder
    assert retire(folder) == 0
    tell_read(folder, "a", read=4, needed=3)
    assert folder.range() == (3, 5)
    tell_read(folder, "b", read=3, needed=3)
    tell_read(folder, "a", read=6, needed=6)
    assert folder.range() == (3, 5)
    assert measure_unread(folder).rows == 9
    tell_read(folder, "b", read=9, needed=9)
    assert folder.range() == (5, 5)
    assert len(os.listdir(folder.segments)) == 1
    assert log.append(6, rows(18), writer="me")
    assert not log.append(2, rows(6), writer="me")
    assert folder.range() == (5, 6)


def test_a_reader_that_is_forgotten_holds_nothing_back(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", 6)
    tell_read(log.folder, "gone", read=1, needed=1)
    tell_read(log.folder, "there", read=5, needed=5)
    assert log.folder.range() == (1, 5)
    with pytest.raises(StateError, match="has no reader 'other'; its readers: gone, there"):
        forget(log.folder, "other")
    forget(log.folder, "gone")
    assert log.folder.range() == (5, 5)


def test_orphans_are_swept_when_nobody_can_be_writing_them(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", 5)
    folder = log.folder
    names = set(os.listdir(folder.segments))
    for number in (1, 2, 3, 4, 5):
        (folder.segments / f"{number:09d}-00000-7-x.arrow").touch()
    later = os.stat(folder.root).st_mtime + SWEEP_AGE_S + 60
    sweep(folder)
    assert len(os.listdir(folder.segments)) == 10
    sweep(folder, lambda: later)
    left = set(os.listdir(folder.segments)) - names
    assert left == {f"{number:09d}-00000-7-x.arrow" for number in (3, 4, 5)}


def test_names_of_readers_stay_apart() -> None:
    assert reader_name("carts.clicks") == "carts.clicks"
    assert reader_name("a/b") != reader_name("a_b")


def test_a_log_read_once_is_empty_afterwards(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", 5)
    log.end()
    source = plait.BatchLog(tmp_path / "log", once=True)
    assert [row.n for row in plait.stream(source).collect()] == list(range(15))
    assert log.folder.range() == (4, 4)
    job = plait.Job("once")
    job.source(source).sink(plait.Discard())
    with pytest.raises(plait.PlaitError, match="read"):
        plait.run(job, checkpoint=tmp_path / "saved")


def test_the_backlog_is_what_is_not_read(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", 3)
    for order_by in ("", "n"):
        reader = plait.BatchLog(tmp_path / "log", order_by=order_by).open()
        left = []
        while isinstance(reader.poll(2), pa.RecordBatch):
            left.append(reader.backlog().rows)
        assert left == [7, 6, 4, 3, 1, 0]
        assert reader.backlog().oldest_s == 0.0
    assert log.open().backlog().oldest_s >= 0.0


# As a sink


def open_at(log: plait.BatchLog, position: Any = None, boundary: int = 0, attempt: int = 1) -> Any:
    return log.open(SCHEMA, Resume(position, boundary, f"abc-{attempt}"))


def batch(*numbers: int) -> Any:
    return rows(*numbers).to_batches()[0]


def checkpoint(writer: Any, boundary: int, *, commit: bool = True) -> Any:
    writer.mark(boundary)
    position = msgpack.unpackb(msgpack.packb(writer.prepare(boundary)))
    if commit:
        writer.commit(boundary)
    return position


def visible(log: plait.BatchLog) -> list[int]:
    return drain(plait.BatchLog(log.folder.root).open())


def test_a_checkpoint_is_a_batch_and_a_crash_repeats_none(tmp_path: Path) -> None:
    log = plait.BatchLog(tmp_path / "log")
    writer = open_at(log)
    writer.write(batch(1))
    writer.mark(4)
    writer.write(batch(2))
    assert visible(log) == []
    first = msgpack.unpackb(msgpack.packb(writer.prepare(4)))
    writer.commit(4)
    writer.commit(4)
    assert visible(log) == [1]
    checkpoint(writer, 6)
    nothing = checkpoint(writer, 7)
    assert visible(log) == [1, 2]
    # It crashes after batch 2 was prepared, before and after it was committed.
    writer.write(batch(3))
    prepared = checkpoint(writer, 9, commit=False)
    writer.write(batch(99))
    again = open_at(log, prepared, 9, 2)
    assert visible(log) == [1, 2, 3]
    again = open_at(log, prepared, 9, 3)
    again.write(batch(4))
    checkpoint(again, 12)
    assert visible(log) == [1, 2, 3, 4]
    writer.abort()
    assert again.close() == str(tmp_path / "log")
    for position, boundary in ((first, 4), (nothing, 7), (None, 0)):
        with pytest.raises(SinkError, match="the log has batches up to 3"):
            open_at(log, position, boundary, 4)


def test_a_checkpoint_that_is_given_up_belongs_to_the_next(tmp_path: Path) -> None:
    log = plait.BatchLog(tmp_path / "log")
    writer = open_at(log)
    writer.write(batch(1))
    checkpoint(writer, 2, commit=False)
    writer.write(batch(2))
    checkpoint(writer, 3)
    assert visible(log) == [1, 2]
    assert log.folder.range() == (0, 0)


def test_a_segment_that_a_checkpoint_counts_on_must_be_there(tmp_path: Path) -> None:
    log = plait.BatchLog(tmp_path / "log")
    writer = open_at(log)
    writer.write(batch(1))
    position = checkpoint(writer, 2, commit=False)
    next((tmp_path / "log" / "segments").iterdir()).unlink()
    with pytest.raises(SinkError, match="gone or damaged, with 1 rows"):
        open_at(log, position, 2, 2)


def test_another_job_may_not_write_to_the_log(tmp_path: Path) -> None:
    log = plait.BatchLog(tmp_path / "log")
    open_at(log)
    with pytest.raises(SinkError, match="belongs to writer abc, not to xyz"):
        log.open(SCHEMA, Resume(None, 0, "xyz-1"))
    with pytest.raises(SinkError, match="belongs to writer abc"):
        plait.stream([{"n": 1}]).sink(log).run()


# Jobs


def test_a_job_releases_what_its_kept_checkpoints_do_not_need(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", 3, size=2)
    job = plait.Job("copy")
    job.source(log, "clicks").sink(plait.BatchLog(tmp_path / "out"), "out")
    saved = plait.Checkpoint(str(tmp_path / "saved"), every="1h", keep=2)
    running = plait.start(job, checkpoint=saved, workers=1, epoch_records=2)
    for number in range(3, 9):
        while running.engine.records_read() < number * 2:
            pass
        assert running.saved is not None
        running.saved.take("before-upgrade" if number == 4 else "")
        log.append(number, rows(number * 2, number * 2 + 1), writer="me")
    readers = log.folder.read_readers()
    assert [(reader.name, reader.needed) for reader in readers] == [("copy.clicks", 4)]
    log.end()
    running.wait()
    assert log.folder.range() == (4, 8)
    assert visible(plait.BatchLog(tmp_path / "out")) == list(range(18))


def test_two_jobs_are_joined_by_a_log(tmp_path: Path) -> None:
    log = plait.BatchLog(tmp_path / "log")
    first = plait.stream([{"n": n} for n in range(100)]).filter(plait.col("n") % 3 == 0)
    first.sink(log).run()
    log.end()
    second = plait.stream(plait.BatchLog(tmp_path / "log")).key_by("n").count()
    assert [row.n for row in second.collect()] == list(range(0, 100, 3))
    check(lambda rows: rows.key_by("n").count(), log, workers=(1, 2), nodes=(2,))
