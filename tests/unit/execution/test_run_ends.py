"""Ends of a run that fail: the error names the end, and each end is closed once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait import col

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TIMEOUT_S = 30.0
GIVEN: dict[str, Any] = {"workers": 2, "timeout": TIMEOUT_S}


class Scripted(plait.Source):
    """A source whose polls answer from a list; a callable is called with the rows asked for."""

    def __init__(self, *answers: Any, label: str = "scripted", bounded: bool = True) -> None:
        self.schema = plait.Schema.of({"n": int})
        self.answers = answers
        self.label = label
        self.bounded = bounded
        self.closed = 0

    def open(self, position: Any = None) -> plait.Reader:
        return ScriptedReader(self, position or 0)


class ScriptedReader(plait.Reader):
    def __init__(self, source: Scripted, at: int) -> None:
        self.source = source
        self.at = at

    def poll(self, max_rows: int) -> Any:
        if self.at == len(self.source.answers):
            return None
        answer = self.source.answers[self.at]
        self.at += 1
        return answer(max_rows) if callable(answer) else answer

    def position(self) -> int:
        return self.at

    def close(self) -> None:
        self.source.closed += 1


def raising(error: BaseException) -> Callable[[int], Any]:
    def poll(max_rows: int) -> Any:
        raise error

    return poll


class Watched(plait.Sink):
    """A sink that fails where it is told to, and remembers how it ended."""

    def __init__(self, fail_in: str = "", label: str = "watched") -> None:
        self.fail_in = fail_in
        self.label = label
        self.rows: list[int] = []
        self.ends: list[str] = []

    def open(self, schema: plait.Schema) -> plait.Writer:
        self.at("open")
        return WatchedWriter(self)

    def at(self, place: str) -> None:
        if place == self.fail_in:
            raise OSError(28, f"no space left in {place}")


class WatchedWriter(plait.Writer):
    def __init__(self, sink: Watched) -> None:
        self.sink = sink

    def write(self, batch: Any) -> None:
        self.sink.at("write")
        self.sink.rows += batch.column(0).to_pylist()

    def close(self) -> Any:
        self.sink.ends.append("close")
        self.sink.at("close")

    def abort(self) -> Any:
        self.sink.ends.append("abort")
        self.sink.at("abort")


def through(source: Any, sink: Any) -> plait.Job:
    job = plait.Job("through")
    job.source(source).sink(sink)
    return job


ONE = [{"n": 1}]
SOURCE_FAULTS = [
    (raising(ValueError("boom")), r"source scripted at .*:\d+: ValueError: boom"),
    (raising(plait.SourceError("of its own")), "of its own"),
    (42, r"source scripted at .*: ScriptedReader: poll returned 42 \(int\); it must return"),
    ("text", r"poll returned 'text' \(str\)"),
    (lambda most: ONE * (most + 1), r"source scripted at .*: poll\(4096\) returned 4097 rows"),
    ([{"m": 1}], 'record 3: "m" is not a column; the columns are n'),
    ([{}], 'record 3, column "n": missing'),
    ([{"n": "one"}], "column \"n\": expected int64, got 'one'"),
    ([{"n": None}], 'column "n"'),
    (plait.Wait("soon"), "soon"),  # type: ignore[arg-type]
    (plait.Wait(float("nan")), "nan"),
]


@pytest.mark.parametrize(("answer", "said"), SOURCE_FAULTS, ids=range(len(SOURCE_FAULTS)))
def test_a_source_that_fails_midway(answer: Any, said: str) -> None:
    source, sink = Scripted(ONE, [], ONE, answer, ONE), Watched()
    with pytest.raises(plait.SourceError, match=said):
        plait.run(through(source, sink), **GIVEN)
    assert sink.rows == [1, 1]
    assert sink.ends == ["abort"]
    assert source.closed == 1


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_a_source_that_leaves(error: BaseException) -> None:
    source = Scripted(ONE, raising(error))
    with pytest.raises(type(error)):
        plait.run(through(source, Watched()), **GIVEN)
    assert source.closed == 1


def test_a_source_that_cannot_be_opened() -> None:
    class Closed(Scripted):
        def open(self, position: Any = None) -> plait.Reader:
            raise ConnectionError("nobody there")

    sink = Watched()
    with pytest.raises(plait.SourceError, match=r"scripted .*ConnectionError: nobody there"):
        plait.run(through(Closed(), sink), **GIVEN)
    assert sink.ends in ([], ["abort"])


def test_a_source_that_fails_lets_the_others_deliver_what_was_read() -> None:
    job = plait.Job("two")
    good, bad = Watched(), Watched()
    job.source(Scripted(ONE, raising(ValueError("boom")))).sink(bad)
    job.source([{"n": n} for n in range(5000)]).sink(good)
    with pytest.raises(plait.SourceError, match="boom"):
        plait.run(job, epoch_records=10, **GIVEN)
    assert bad.rows == [1]
    assert good.rows == list(range(len(good.rows)))


def test_a_failed_source_ends_its_union() -> None:
    job = plait.Job("united")
    sink = Watched()
    bad = job.source(Scripted(ONE, raising(ValueError("boom"))))
    good = job.source([{"n": n} for n in range(1000)])
    plait.union(good, bad).sink(sink)
    with pytest.raises(plait.SourceError, match="boom"):
        plait.run(job, epoch_records=2, **GIVEN)
    assert sink.rows == [1, 0, 1]  # the first epoch of both, in the order of the sources


def test_a_source_that_waits_for_long_does_not_hold_up_others() -> None:
    """Empty epochs are sent for a source that said when to ask again."""
    job = plait.Job("waiting")
    sink = Watched()
    slow = job.source(Scripted(plait.Wait(0.3), ONE), name="slow")
    plait.union(job.source([{"n": n} for n in range(300)]), slow).sink(sink)
    result = plait.run(job, epoch_records=1, **GIVEN)
    assert sorted(sink.rows) == sorted([*range(300), 1])
    assert sum(result.cuts["slow"]) == 1


@pytest.mark.parametrize("place", ["open", "write", "close"])
def test_a_sink_that_fails(place: str) -> None:
    job = plait.Job("sinks")
    source, sink, other = Scripted(ONE, ONE), Watched(place), Watched(label="other")
    rows = job.source(source)
    rows.sink(other)
    rows.sink(sink)
    with pytest.raises(plait.SinkError, match=rf"watched .*no space left in {place}") as caught:
        plait.run(job, **GIVEN)
    assert isinstance(caught.value.__cause__, OSError)
    assert sink.ends == {"open": [], "write": ["abort"], "close": ["close"]}[place]
    assert len(other.ends) == 1
    assert source.closed == 1


def test_a_sink_that_fails_to_give_up_does_not_hide_why() -> None:
    sink = Watched("abort")
    with pytest.raises(plait.SourceError, match="boom"):
        plait.run(through(Scripted(raising(ValueError("boom"))), sink), **GIVEN)
    assert sink.ends == ["abort"]


@pytest.mark.parametrize("place", ["open", "write", "close"])
def test_a_sink_for_dead_letters_that_fails(place: str) -> None:
    letters, sink = Watched(place), Watched()
    job = plait.Job("letters", dead_letters=letters)
    job.source(Scripted(ONE, ONE)).with_columns(x=1 // (col("n") - 1), on_error="dead_letter").sink(
        sink
    )
    with pytest.raises(plait.SinkError, match=f"the sink for dead letters: .* in {place}"):
        plait.run(job, **GIVEN)
    assert len(sink.ends) == 1
    assert len(letters.ends) == (place != "open")


class TestFiles:
    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(plait.PlaitError, match=r"nowhere\.csv"):
            plait.stream(str(tmp_path / "nowhere.csv")).collect(timeout=TIMEOUT_S)

    def test_gone_between_building_and_running(self, tmp_path: Path) -> None:
        path = tmp_path / "here.csv"
        path.write_text("n\n1\n")
        stream = plait.stream(str(path))
        path.unlink()
        with pytest.raises(plait.SourceError, match=r"here\.csv"):
            stream.collect(timeout=TIMEOUT_S)

    def test_malformed_csv(self, tmp_path: Path) -> None:
        path = tmp_path / "bad.csv"
        path.write_text("n,m\n" + "1,2\n" * 5 + "x,2\n" + "1,2\n" * 3)
        stream = plait.stream(plait.Files(str(path), schema={"n": int, "m": int}))
        with pytest.raises(plait.SourceError, match=r"bad\.csv(.|\n)*7"):
            stream.collect(timeout=TIMEOUT_S)

    def test_malformed_json_lines(self, tmp_path: Path) -> None:
        path = tmp_path / "bad.jsonl"
        path.write_text('{"n": 1}\n{"n": 2}\n{"n": \n{"n": 4}\n')
        stream = plait.stream(plait.Files(str(path), schema={"n": int}))
        with pytest.raises(plait.SourceError, match=r"bad\.jsonl(.|\n)*3"):
            stream.collect(timeout=TIMEOUT_S)

    def test_not_parquet(self, tmp_path: Path) -> None:
        path = tmp_path / "bad.parquet"
        path.write_bytes(b"PAR1 but no more")
        with pytest.raises(plait.PlaitError, match=r"bad\.parquet"):
            plait.stream(str(path)).collect(timeout=TIMEOUT_S)
