"""A sink for dead letters that decides: a crash may come between its commit and that of another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait.connectors.base import Delivered, Resume
from plait.graph.checkpoint_rules import repeats
from plait.graph.explain import explain
from plait.testing.crashes import Durable

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 300


class Failing(Durable):
    """Its commits fail for a while."""

    fails = False

    def open(self, schema: plait.Schema, resume: Resume | None = None) -> plait.Writer:
        writer = super().open(schema, resume)
        commit = writer.commit

        def try_to_commit(boundary: int, notes: bytes = b"") -> None:
            if self.fails:
                raise plait.SinkError("it is away")
            commit(boundary, notes)

        writer.commit = try_to_commit  # type: ignore[method-assign]
        return writer


def odd(row: Any) -> Any:
    if row.n % 2 == 0:
        raise ValueError("even")
    return row


def job_with(out: Durable, letters: Durable) -> plait.Job:
    job = plait.Job("letters", dead_letters=letters)
    numbers = job.source([{"n": n} for n in range(ROWS)], "in")
    numbers.map(odd, on_error="dead_letter").sink(out, "out")
    return job


def numbers_in(sink: Durable) -> list[int]:
    return [n for batch in sink.batches for n in batch.column("n").to_pylist()]


def rows_in(letters: Durable) -> list[int]:
    return [row for batch in letters.batches for row in batch.column("row").to_pylist()]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("commit", [None, "1ms"])
def test_a_crash_between_rows_and_letters(tmp_path: Path, workers: int, commit: str | None) -> None:
    out, letters = Durable("out", "decider", commit), Failing("letters", "decider")
    job = job_with(out, letters)
    letters.fails = True
    with pytest.raises(plait.CheckpointError, match="it is away"):
        job.run(workers=workers, checkpoint=tmp_path, epoch_records=7)
    assert numbers_in(out) == list(range(1, ROWS, 2))  # the rows were first
    assert rows_in(letters) == []
    letters.fails = False
    result = job.run(workers=workers, checkpoint=tmp_path, epoch_records=7)
    assert numbers_in(out) == list(range(1, ROWS, 2))
    assert rows_in(letters) == list(range(1, ROWS + 1, 2))
    assert result.account.dead_lettered == ROWS // 2


def test_letters_alone_may_decide(tmp_path: Path) -> None:
    out, letters = Durable("out"), Failing("letters", "decider")
    job = job_with(out, letters)
    assert not repeats(job.graph())
    letters.fails = True
    with pytest.raises(plait.CheckpointError, match="it is away"):
        job.run(checkpoint=tmp_path)
    assert numbers_in(out) == []  # followers come after all that decide
    letters.fails = False
    job.run(checkpoint=tmp_path)
    assert numbers_in(out) == list(range(1, ROWS, 2))
    assert rows_in(letters) == list(range(1, ROWS + 1, 2))


def test_letters_of_another_run_are_refused(tmp_path: Path) -> None:
    letters = Durable("letters", "decider")
    letters.boundary = 40
    with pytest.raises(plait.StateError, match="the sink for dead letters: its output ends at"):
        job_with(Durable("out"), letters).run(checkpoint=tmp_path)
    assert letters.survey(None) == Delivered(40)


def test_explain_says_it() -> None:
    job = job_with(Durable("out", "decider"), Durable("letters", "decider"))
    text = explain(job.graph(), checkpoint=True)
    assert text.count("the sinks commit one after the other") == 2
