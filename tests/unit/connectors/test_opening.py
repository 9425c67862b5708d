"""What `open` of a user's source or sink may return, and what its readers may answer."""

from __future__ import annotations

from typing import Any

import pytest

import plait
from plait.testing import check

GIVEN: dict[str, Any] = {"workers": 2, "timeout": 30.0}


class Given(plait.Source):
    """A source whose `open` returns what it was given."""

    schema = plait.Schema.of({"n": int})

    def __init__(self, opened: Any) -> None:
        self.opened = opened

    def open(self, position: Any = None) -> Any:
        return self.opened


class Answers(plait.Reader):
    """A reader that always gives the same answer."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def poll(self, max_rows: int) -> Any:
        return self.answer

    def position(self) -> int:
        return 0


class To(plait.Sink):
    """A sink whose `open` returns what it was given."""

    def __init__(self, opened: Any) -> None:
        self.opened = opened

    def open(self, schema: plait.Schema) -> Any:
        return self.opened


class OnlyPoll:
    def poll(self, max_rows: int) -> Any:
        return None


class OnlyWrite:
    def write(self, batch: Any) -> None:
        """Forgets it."""


class Numbers(plait.Source):
    """A source that yields its records."""

    schema = plait.Schema.of({"n": int})

    def open(self, position: Any = None) -> Any:
        for n in range(position or 0, 10):
            yield {"n": n}


class NullTimes(plait.Source):
    schema = plait.Schema.of({"ts": "timestamp?"})

    def open(self, position: Any = None) -> Any:
        yield {"ts": None}


@pytest.mark.parametrize("opened", [None, 5, [{"n": 1}], {"n": 1}], ids=str)
def test_open_of_a_source_must_return_a_reader(opened: Any) -> None:
    with pytest.raises(
        plait.JobError,
        match=r"source at test_opening.py:\d+: Given.open returned .*, which has no poll, position,"
        r" close; return an object of a subclass of plait.Reader, or yield the records",
    ):
        plait.stream(Given(opened)).collect(**GIVEN)


def test_a_reader_without_some_methods_is_named() -> None:
    with pytest.raises(plait.JobError, match=r"\(OnlyPoll\), which has no position, close;"):
        plait.stream(Given(OnlyPoll())).collect(**GIVEN)


@pytest.mark.parametrize("opened", [None, 5, []], ids=str)
def test_open_of_a_sink_must_return_a_writer(opened: Any) -> None:
    with pytest.raises(
        plait.JobError,
        match=r"sink at test_opening.py:\d+: To.open returned .*, which has no write, close, abort;"
        r" return an object of a subclass of plait.Writer$",
    ):
        plait.stream([1]).sink(To(opened)).run(**GIVEN)


def test_a_writer_without_some_methods_is_named() -> None:
    with pytest.raises(plait.JobError, match=r"\(OnlyWrite\), which has no close, abort;"):
        plait.stream([1]).sink(To(OnlyWrite())).run(**GIVEN)


def test_a_function_as_a_writer_is_told_of_call() -> None:
    with pytest.raises(plait.JobError, match=r"for a function use plait.Call\(function\)"):
        plait.stream([1]).sink(To(print)).run(**GIVEN)


def test_a_sink_for_dead_letters_must_return_a_writer() -> None:
    job = plait.Job("letters", dead_letters=To(None))
    job.source([1]).sink(plait.Discard())
    with pytest.raises(plait.JobError, match=r"dead letters: To.open returned None; return an obj"):
        job.run(**GIVEN)


def test_open_may_yield_the_records() -> None:
    assert [record.n for record in plait.stream(Numbers()).collect(**GIVEN)] == list(range(10))
    check(lambda numbers: numbers.sum("n"), Numbers(), workers=(1, 2), nodes=(2,), epoch_records=3)


def test_the_position_of_a_generator_is_the_number_of_its_records() -> None:
    from plait.connectors.opening import open_reader

    reader = open_reader(Numbers(), Numbers.schema, None, "source")
    reader.poll(4)
    assert reader.position() == 4
    reader.close()
    again = open_reader(Numbers(), Numbers.schema, 4, "source")
    assert again.poll(3).column("n").to_pylist() == [4, 5, 6]
    assert again.position() == 7
    again.close()


def test_a_null_in_the_event_time_of_a_generator_is_refused() -> None:
    with pytest.raises(plait.SourceError, match='NullTimes: record 1, column "ts"'):
        plait.stream(NullTimes(), event_time="ts").collect(**GIVEN)


def test_a_bad_record_of_a_generator_is_named() -> None:
    with pytest.raises(plait.SourceError, match="Given: record 2, column"):
        plait.stream(Given(iter([{"n": 1}, {"n": "two"}]))).collect(**GIVEN)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("abc", r"'abc' \(str\)"),
        ({"n": 1}, r"\{'n': 1\} \(dict\)"),
        (5, r"5 \(int\)"),
        (True, r"True \(bool\)"),
    ],
)
def test_a_wrong_answer_of_poll_is_shown(answer: Any, words: str) -> None:
    with pytest.raises(
        plait.SourceError,
        match=rf"source source-1 at test_opening.py:\d+: Answers: poll returned {words}; it"
        " must return a list of records",
    ):
        plait.stream(Given(Answers(answer))).collect(**GIVEN)


def test_a_wrong_record_of_poll_names_the_source() -> None:
    with pytest.raises(
        plait.SourceError, match=r"source source-1 at .*: Answers: record 1: expected a record"
    ):
        plait.stream(Given(Answers([1]))).collect(**GIVEN)


@pytest.mark.parametrize("seconds", ["x", -1, None, float("nan")])
def test_a_wrong_wait_is_shown(seconds: Any) -> None:
    with pytest.raises(plait.SourceError, match=r"poll returned Wait.*; give a number of seconds"):
        plait.stream(Given(Answers(plait.Wait(seconds)))).collect(**GIVEN)


def test_a_source_without_a_schema_is_refused_when_the_job_is_built() -> None:
    class Bare(plait.Source):
        pass

    with pytest.raises(plait.JobError, match=r"source at .*: Bare has no schema; write in the cl"):
        plait.stream(Bare())
