"""Cells of a notebook: run again, in any order, with streams that are only looked at."""

from __future__ import annotations

from typing import Any

import pytest

import plait
from plait import col

BIDS = [{"auction": 1, "price": 30}, {"auction": 2, "price": 12}, {"auction": 1, "price": 45}]
NAMES = ["<stdin>", "<ipython-input-7-0a1b2c>", "/tmp/ipykernel_4711/1234567.py"]


class Notebook:
    """Runs cells in one namespace, as a notebook does."""

    def __init__(self, file: str = NAMES[0]) -> None:
        self.file = file
        self.names: dict[str, Any] = {"__name__": "__main__", "plait": plait, "col": col}
        self.run("job = plait.Job('notes')")
        self.names["bids"] = self.names["job"].source(BIDS, "bids")

    def run(self, cell: str) -> None:
        exec(compile(cell, self.file, "exec"), self.names)

    def __getitem__(self, name: str) -> Any:
        return self.names[name]


SINK = (
    'dear = bids.filter(col("price") > 20)\ndear.sink(plait.Collect(), "dear")\nresult = job.run()'
)


@pytest.mark.parametrize("file", NAMES)
def test_a_cell_with_a_named_sink_can_be_run_again(file: str) -> None:
    book = Notebook(file)
    for limit, rows in ((20, 2), (20, 2), (40, 1)):
        book.run(SINK.replace("20", str(limit)))
        outputs = book["result"].outputs
        assert {name: table.num_rows for name, table in outputs.items()} == {"dear": rows}
    assert [op.name for op in book["job"].graph().operators] == ["source", "filter", "sink"]


def test_a_cell_with_a_named_source_can_be_run_again() -> None:
    book = Notebook()
    for _ in range(2):
        book.run('more = job.source([1, 2], "more")\nmore.sink(plait.Collect(), "all")')
    book.run("bids.sink(plait.Discard())\nresult = job.run()")
    assert list(book["result"].cuts) == ["bids", "more"]


def test_streams_without_a_sink_are_left_out_of_a_notebooks_run() -> None:
    book = Notebook()
    book.run('bids.key_by("auction").count()')
    book.run(SINK)
    assert list(book["result"].outputs) == ["dear"]


def test_a_notebook_without_a_sink_is_told_so() -> None:
    book = Notebook()
    with pytest.raises(plait.JobError, match='the job "notes" has no sink'):
        book.run("dear = bids.filter(col('price') > 20)\njob.run()")


def test_in_a_file_names_are_unique() -> None:
    bids = plait.stream(BIDS)
    bids.sink(plait.Collect(), "all")
    with pytest.raises(plait.JobError, match='the name "all" is taken; names are unique in a job'):
        bids.sink(plait.Collect(), "all")
    assert list(bids.run().outputs) == ["all"]


@pytest.mark.parametrize("look", [plait.Stream.show, plait.Stream.collect, plait.Stream.to_arrow])
def test_a_stream_that_was_looked_at_needs_no_sink(look: Any) -> None:
    job = plait.Job("looked")
    bids = job.source(BIDS)
    counts = bids.key_by("auction").count()
    bids.sink(plait.Collect(), "all")
    with pytest.raises(plait.JobError, match="nothing reads the stream made by count"):
        job.run()
    look(counts)
    assert list(job.run().outputs) == ["all"]
    further = counts.filter(col("count") > 1)
    with pytest.raises(plait.JobError, match="nothing reads the stream made by filter"):
        job.run()
    look(further)
    look(counts)
    assert job.run().outputs["all"].num_rows == 3


def test_looking_at_a_join_of_two_jobs_spoils_neither() -> None:
    left, right = plait.stream(BIDS), plait.stream([{"auction": 1, "item": "tea"}])
    left.sink(plait.Collect(), "bids")
    right.show()
    assert len(left.join(right, on="auction").collect()) == 2
    assert {name: out.num_rows for name, out in left.run().outputs.items()} == {"bids": 3}


def test_the_text_of_a_result_is_short() -> None:
    job = plait.Job("short")
    bids = job.source(BIDS)
    bids.sink(plait.Collect(), "all").filter(col("price") > 40).sink(plait.Discard(), "dear")
    first, *rest = repr(job.run()).split("\n")
    assert first.startswith('Result of job "short": 3 read, 3 copied, 4 delivered, 2 filtered, in ')
    assert rest == ["  all: 3 rows", "  dear: 1"]
