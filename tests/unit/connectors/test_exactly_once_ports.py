"""The ports of sinks in a job with checkpoints: what is opened how, what is refused in words, and
which thread calls a user's writer."""

from __future__ import annotations

import sqlite3
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import plait
from examples.exactly_once_sqlite import Numbers
from plait.connectors.base import Delivered, Kind, Resume, Sink, Writer
from plait.connectors.columns import to_batch
from plait.connectors.opening import open_writer
from plait.node_runtime.host.end_thread import ThreadWriter, open_end

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = plait.Schema.of({"n": int, "square": int})
RESUME = Resume(position={"at": 3}, boundary=7, run="abc-2")


def batch(*numbers: int) -> Any:
    return to_batch([(n, n * n) for n in numbers], SCHEMA)


class Old(Sink):
    """As connectors were before there were checkpoints; its writer is a class of its own."""

    def open(self, schema: Any) -> Any:
        return OldWriter()


class OldWriter:
    rows = 0

    def write(self, batch: Any) -> None:
        self.rows += batch.num_rows

    def close(self) -> int:
        return self.rows

    abort = close


class Follower(Sink):
    kind: Kind = "follower"

    def __init__(self, opened: Any = None) -> None:
        self.opened = opened
        self.resumes: list[Any] = []

    def open(self, schema: Any, resume: Any = None) -> Any:
        self.resumes.append(resume)
        return self.opened


class Committing(Writer):
    def commit(self, boundary: int, notes: bytes = b"") -> None:
        """Publishes nothing."""


def test_a_connector_without_the_ports_is_opened_as_before() -> None:
    writer = open_writer(Old(), SCHEMA, "sink", RESUME)
    writer.write(batch(1, 2))
    assert writer.close() == 2


def test_its_thread_passes_no_boundary_on() -> None:
    opening = partial(open_writer, Old(), SCHEMA, "sink", RESUME)
    writer = open_end("old", Old(), opening, ThreadWriter)
    writer.write(batch(1, 2))
    writer.mark(1)
    assert writer.prepare(1) is None
    writer.commit(1)
    assert writer.close() == 2


def test_only_a_job_with_checkpoints_gives_a_resume() -> None:
    sink = Follower(Committing())
    open_writer(sink, SCHEMA, "sink")
    open_writer(sink, SCHEMA, "sink", RESUME)
    assert sink.resumes == [None, RESUME]


class NoResume(Sink):
    kind = "follower"

    def open(self, schema: Any) -> Any:
        return Committing()


class NoSurvey(Follower):
    kind = "decider"


class Misspelt(Follower):
    kind: Any = "folower"


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        (NoResume(), r'NoResume is a "follower".*def open\(self, schema, resume=None\)'),
        (NoSurvey(Committing()), r'NoSurvey is a "decider", but has no survey\(seen\)'),
        (Misspelt(Committing()), r"Misspelt.kind is 'folower'; it must be \"plain\""),
        (Follower(OldWriter()), r"which has no mark, prepare, commit"),
        (Follower(Writer()), r"its writer has no commit\(boundary, notes\)"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_what_is_refused(sink: Sink, said: str) -> None:
    with pytest.raises(plait.JobError, match=f"sink at a.py:3: .*{said}"):
        open_writer(sink, SCHEMA, "sink at a.py:3", RESUME)


def test_a_connection_stays_in_its_thread(tmp_path: Path) -> None:
    """Calls come from workers and from the saver; sqlite3 refuses any but one."""
    sink = Numbers(str(tmp_path / "numbers.db"))
    assert sink.survey(None) is None
    resume = Resume(None, 0, "abc-1")
    opening = partial(open_writer, sink, SCHEMA, "sink", resume)
    writer = open_end("numbers", sink, opening, ThreadWriter)

    def elsewhere(function: Any, *given: Any) -> None:
        thread = threading.Thread(target=function, args=given)
        thread.start()
        thread.join()

    elsewhere(writer.write, batch(1, 2))
    elsewhere(writer.mark, 5)
    elsewhere(writer.write, batch(3))
    assert writer.prepare(5) == 0
    elsewhere(writer.commit, 5)
    assert writer.abort() == 5
    assert sink.survey(0) == Delivered(5)
    with sqlite3.connect(sink.path) as database:
        assert database.execute("SELECT n FROM numbers").fetchall() == [(1,), (2,)]
    database.close()


def open_numbers(sink: Numbers, boundary: int = 0) -> Any:
    return open_writer(sink, SCHEMA, "sink", Resume(None, boundary, "abc-1"))


def test_an_earlier_run_that_still_lives_is_fenced(tmp_path: Path) -> None:
    sink = Numbers(str(tmp_path / "numbers.db"))
    sink.survey(None)
    zombie = open_numbers(sink)
    zombie.write(batch(1))
    zombie.mark(1)
    assert sink.survey(None) is None
    with pytest.raises(plait.SinkError, match="another run of the job writes there now"):
        zombie.commit(1)
    assert sink.survey(None) is None
    zombie.close()


def test_a_database_that_has_less_than_the_checkpoint_says(tmp_path: Path) -> None:
    sink = Numbers(str(tmp_path / "numbers.db"))
    sink.survey(None)
    with pytest.raises(plait.SinkError, match="has lost rows"):
        sink.survey(5)


def test_explain_says_how_ends_deliver(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = plait.Job("ends")
    numbers = job.source(iter([{"n": 1}]), "once").union(job.source([{"n": 2}], "again"))
    numbers.sink(plait.Files(tmp_path / "out.jsonl"), "files")
    numbers.sink(Numbers(str(tmp_path / "numbers.db")), "numbers")
    numbers.sink(plait.Call(print), "call")
    job.explain()
    assert "delivery:" not in capsys.readouterr().out
    job.explain(checkpoint="ckpt/")
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line.startswith(("delivery:", "after a crash:"))] == [
        "after a crash: cannot be read again, so checkpoint= is refused",
        "after a crash: read again from the last checkpoint",
        "delivery: exactly once, visible when the checkpoint is safe",
        "delivery: exactly once, the sink decides which checkpoint counts",
        "delivery: at least once, records since the last checkpoint may come again",
    ]
