"""What a function returns has the columns of the stream, or its record fails: nothing is lost."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator  # noqa: TC003 - annotations are looked up
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import plait
from plait.testing import sequential
from plait.testing.check import compare_accounts, compare_letters, rows_of_arrow

if TYPE_CHECKING:
    EntryPoint = Callable[..., plait.Result]

SETTINGS: dict[str, Any] = {"epoch_records": 8, "bin_bits": 4}
ROWS = [{"n": n, "note": None if n % 3 else f"note {n}"} for n in range(40)]
EXTRA = '"more" is not a column; the columns are n, note; annotate the return type or give schema='
MISSING = 'column "note": missing; the record has n; annotate the return type or give schema='
WRITTEN: dict[str, Any] = {"n": int, "note": str | None}


@dataclass
class Noted:
    n: int
    note: str | None


@dataclass
class More:
    n: int
    note: str | None
    more: int


class MoreTuple(NamedTuple):
    n: int
    note: str | None
    more: int


def with_more(record: Any) -> Any:
    return {**record, "more": 1} if record["n"] % 7 == 3 else {**record}


def without_note(record: Any) -> Any:
    return {"n": record.n} if record.n % 7 == 3 else {**record}


def without_note_said(record: Any) -> Noted:
    return without_note(record)  # type: ignore[no-any-return]


async def with_more_later(record: Any) -> Any:
    return with_more(record)


async def without_note_later(record: Any) -> Any:
    return without_note(record)


def some_with_more(record: Any) -> Iterator[Any]:
    yield record
    yield with_more(record)


def some_without_note(record: Any) -> Iterator[Any]:
    yield without_note(record)


def step_with_more(state: int, record: Any) -> Any:
    return state + 1, with_more(record)


def step_without_note(state: int, record: Any) -> Any:
    return state + 1, without_note(record)


def other_class(record: Any) -> Any:
    return More(record.n, record.note, 1) if record.n % 7 == 3 else record


def other_tuple(record: Any) -> Any:
    return MoreTuple(record.n, record.note, 1) if record.n % 7 == 3 else record


class Passes(plait.Process):
    state = {"seen": int}  # noqa: RUF012
    out = WRITTEN

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> Iterator[Any]:
        yield with_more(record)


LETTER: dict[str, Any] = {"on_error": "dead_letter"}
LOST: dict[str, Callable[[Any], Any]] = {
    "map, a key more": lambda s: s.map(with_more, **LETTER),
    "map, a key less": lambda s: s.map(without_note, **LETTER),
    "flat_map, a key more": lambda s: s.flat_map(some_with_more, **LETTER),
    "flat_map, a key less": lambda s: s.flat_map(some_without_note, **LETTER),
    "map_async, a key more": lambda s: s.map_async(with_more_later, **LETTER),
    "map_async, a key less": lambda s: s.map_async(without_note_later, **LETTER),
    "stateful, a key more": lambda s: s.key_by("n").stateful(0, step_with_more, **LETTER),
    "stateful, a key less": lambda s: s.key_by("n").stateful(0, step_without_note, **LETTER),
    "map, a field more": lambda s: s.map(other_class, **LETTER),
    "map, a tuple's name more": lambda s: s.map(other_tuple, **LETTER),
}


def job_of(build: Callable[[Any], Any]) -> plait.Job:
    job = plait.Job("keys")
    build(job.source(plait.Items(ROWS), name="given")).sink(plait.Collect(), name="out")
    return job


def assert_right(job: plait.Job, result: plait.Result) -> None:
    wanted = sequential(job.graph(), epoch_records=SETTINGS["epoch_records"])
    rows = rows_of_arrow(result.outputs["out"], wanted.schemas["out"])
    assert rows == wanted.outputs["out"]
    compare_accounts("counts", result, wanted)
    compare_letters("dead letters", result.dead_letters, wanted.dead_letters)
    assert [one.error for one in result.dead_letters] == [one.error for one in wanted.dead_letters]


@pytest.mark.parametrize("name", LOST)
def test_a_record_that_would_lose_something_fails(entry_point: EntryPoint, name: str) -> None:
    job = job_of(LOST[name])
    result = entry_point(job, **SETTINGS)
    assert_right(job, result)
    bad = [n for n in range(40) if n % 7 == 3]
    assert [letter.row for letter in result.dead_letters] == [n + 1 for n in bad]
    words = MISSING if name.endswith("less") else EXTRA
    assert {letter.error for letter in result.dead_letters} == {words}


def test_a_process_that_yields_a_key_more(entry_point: EntryPoint) -> None:
    job = job_of(lambda s: s.key_by("n").process(Passes(), **LETTER))
    result = entry_point(job, **SETTINGS)
    assert_right(job, result)
    first = result.dead_letters[0].error
    assert first.startswith('"more" is not a column; the columns are n, note; leave it out')


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.map(without_note, schema=WRITTEN),
        lambda s: s.map(without_note_said),
        lambda s: s.map_async(without_note_later, schema=WRITTEN),
        lambda s: s.flat_map(some_without_note, schema=WRITTEN),
        lambda s: s.key_by("n").stateful(0, step_without_note, schema=WRITTEN),
    ],
)
def test_a_written_schema_lets_a_key_be_missing_that_may_be_null(
    entry_point: EntryPoint, build: Callable[[Any], Any]
) -> None:
    job = job_of(build)
    result = entry_point(job, **SETTINGS)
    assert_right(job, result)
    assert result.outputs["out"].to_pylist()[3] == {"n": 3, "note": None}


def test_a_new_column_needs_a_schema(entry_point: EntryPoint) -> None:
    job = job_of(
        lambda s: s.map(lambda r: {**r, "twice": 2 * r.n}, schema={**WRITTEN, "twice": int})
    )
    result = entry_point(job, **SETTINGS)
    assert_right(job, result)
    assert result.outputs["out"].to_pylist()[3] == {"n": 3, "note": "note 3", "twice": 6}


class Polled(plait.Source):
    schema = plait.Schema.of({"n": int, "note": str | None})

    def open(self, position: Any = None) -> plait.Reader:
        return PolledReader()


class PolledReader(plait.Reader):
    read = 0

    def poll(self, max_rows: int) -> Any:
        self.read += 1
        return [{"n": self.read, "other": 1} if self.read == 3 else {"n": self.read}]

    def position(self) -> Any:
        return self.read


def test_a_reader_that_gives_a_key_more(entry_point: EntryPoint) -> None:
    job = plait.Job("polled")
    job.source(Polled()).sink(plait.Collect(), name="out")
    with pytest.raises(plait.SourceError, match='record 3: "other" is not a column; the columns'):
        entry_point(job, **SETTINGS)


def test_items_with_a_schema_refuse_a_key_more(entry_point: EntryPoint) -> None:
    job = plait.Job("items")
    rows = [*ROWS, {"n": 1, "note": None, "when": datetime.UTC}]
    job.source(plait.Items(rows, schema=WRITTEN)).sink(plait.Collect(), name="out")
    with pytest.raises(plait.SourceError, match='record 41: "when" is not a column; the columns'):
        entry_point(job, **SETTINGS)
