"""Dead letters in a job with checkpoints: what the sink gets depends on the boundary alone."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import plait
from plait.connectors.base import Resume
from plait.connectors.columns import to_batch
from plait.errors import InternalError
from plait.node_runtime.native._batch import NativeBatch
from plait.results.engine_failures import EngineFailure, FailureKind
from plait.results.failures import LETTER_SCHEMA, Letters

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = plait.Schema.of({"n": int})
START = Resume(None, 0, "abc-1")


def refuse(record: Any) -> Any:
    raise ValueError("no")


def graph_with(sink: plait.Sink | None) -> Any:
    job = plait.Job("letters", dead_letters=sink)
    failing = job.source(plait.Items([{"n": 1}]), "in").map(refuse, on_error="dead_letter")
    failing.sink(plait.Discard())
    return job.graph()


def letter(epoch: int, row: int) -> EngineFailure:
    record = NativeBatch.from_arrow(to_batch([(row,)], SCHEMA), SCHEMA)
    return EngineFailure(1, 0, epoch, row, FailureKind.RECORD, "no", None, record)


class Kept(plait.Sink):
    """Keeps the calls of its writer."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.calls: list[Any] = []
        self.resumes: list[Any] = []

    def open(self, schema: Any, resume: Any = None) -> KeptWriter:
        assert schema == LETTER_SCHEMA
        self.resumes.append(resume)
        return KeptWriter(self.calls)


class KeptWriter(plait.Writer):
    def __init__(self, calls: list[Any]) -> None:
        self.calls = calls

    def write(self, batch: Any) -> None:
        self.calls.append(batch.column("row").to_pylist())

    def mark(self, boundary: int) -> None:
        self.calls.append(("mark", boundary))

    def prepare(self, boundary: int) -> Any:
        self.calls.append(("prepare", boundary))
        return {"at": boundary}

    def commit(self, boundary: int, notes: bytes = b"") -> None:
        self.calls.append(("commit", boundary))


def test_letters_after_a_boundary_wait_for_the_next() -> None:
    sink = Kept("follower")
    letters = Letters(graph_with(sink), START)
    assert sink.resumes == [START]
    letters.add([letter(3, 31), letter(1, 10), letter(2, 22)])
    letters.add([letter(2, 20)])
    assert sink.calls == []
    letters.mark(3)
    assert letters.prepare(3) == {"at": 3}
    letters.add([letter(3, 30)])
    assert (letters.before, letters.total) == (3, 5)
    letters.commit(3)
    assert sink.calls == [[11, 21, 23], ("mark", 3), ("prepare", 3), ("commit", 3)]
    letters.mark(5)
    assert sink.calls[4:] == [[31, 32], ("mark", 5)]
    assert (letters.before, letters.total) == (5, 5)
    assert [kept.row for kept in letters.kept()] == [11, 21, 23, 31, 32]
    letters.close(good=True)


def test_a_plain_sink_gets_letters_at_boundaries_and_nothing_else() -> None:
    sink = Kept("plain")
    letters = Letters(graph_with(sink), START)
    assert sink.resumes == [None]
    letters.add([letter(1, 12), letter(0, 5)])
    letters.mark(2)
    assert letters.prepare(2) is None
    letters.commit(2)
    letters.add([letter(2, 20)])
    letters.close(good=True)
    assert sink.calls == [[6, 13], [21]]


def test_without_checkpoints_letters_go_on_at_once() -> None:
    sink = Kept("follower")
    letters = Letters(graph_with(sink))
    assert sink.resumes == [None]
    letters.add([letter(3, 31), letter(1, 10)])
    assert sink.calls == [[32, 11]]


def test_without_a_sink_they_are_only_kept() -> None:
    letters = Letters(graph_with(None), START)
    letters.add([letter(1, 10)])
    letters.mark(2)
    assert letters.prepare(2) is None
    letters.commit(2)
    letters.close(good=True)
    assert len(letters.kept()) == 1


def test_a_letter_that_no_boundary_covers_is_not_forgotten() -> None:
    letters = Letters(graph_with(Kept("follower")), START)
    letters.add([letter(1, 10)])
    with pytest.raises(InternalError, match="1 dead letters are after the last mark"):
        letters.close(good=True)


def rows_of(folder: Path) -> list[list[int]]:
    """The rows of the letters in each visible part."""
    parts = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    return [[json.loads(line)["row"] for line in p.read_text().splitlines()] for p in parts]


@given(
    epochs=st.lists(st.integers(0, 9), min_size=1, max_size=40),
    boundaries=st.sets(st.integers(1, 9), max_size=4),
    seed=st.integers(0, 1000),
)
def test_files_of_letters_do_not_depend_on_when_they_came(
    epochs: list[int], boundaries: set[int], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever order they come in, and however early those of later epochs do."""
    made = [letter(epoch, row) for row, epoch in enumerate(sorted(epochs))]
    shuffle = random.Random(seed).shuffle
    folder = tmp_path_factory.mktemp("letters")
    letters = Letters(graph_with(plait.Files(folder, "jsonl")), START)
    due = list(made)
    shuffle(due)
    expected: list[list[int]] = []
    after = 0
    for boundary in sorted(boundaries | {10}):
        early = due[: len(due) // 2]
        needed = [one for one in due if one.epoch < boundary or one in early]
        letters.add(needed)
        due = [one for one in due if one not in needed]
        letters.mark(boundary)
        letters.prepare(boundary)
        letters.commit(boundary)
        rows = [one.row + 1 for one in made if after <= one.epoch < boundary]
        expected += [rows] if rows else []
        after = boundary
        assert rows_of(folder) == expected
    letters.close(good=True)
    assert rows_of(folder) == expected


def test_letters_that_a_deciding_sink_has_are_not_written_again() -> None:
    sink = Kept("decider")
    letters = Letters(graph_with(sink), Resume(None, 4, "abc-2"))
    letters.add([letter(2, 20), letter(3, 30), letter(4, 40)])
    letters.mark(3)
    assert letters.prepare(3) == {"at": 3}
    letters.mark(5)
    assert sink.calls == [("prepare", 3), [41], ("mark", 5)]
    assert (letters.before, letters.total) == (3, 3)  # they are counted all the same
    letters.close(good=True)
