"""schema="infer": a function's results for the first records say the columns, or it is refused."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import plait
from plait import col
from plait.testing import sequential
from plait.testing.check import rows_of_arrow

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    EntryPoint = Callable[..., plait.Result]

SETTINGS: dict[str, Any] = {"epoch_records": 16, "bin_bits": 4}
ROWS = [{"n": n, "s": f"{n}"} for n in range(100)]


@dataclass
class Pair:
    n: int
    half: float


async def with_half(record: Any) -> Any:
    return {**record, "half": record.n / 2}


JOBS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "map": (
        lambda s: s.map(lambda r: {**r, "half": r.n / 2}, schema="infer"),
        "n: int64, s: string, half: float64",
    ),
    "map to a dataclass": (
        lambda s: s.map(lambda r: Pair(r.n, r.n / 2), schema="infer"),
        "n: int64, half: float64",
    ),
    "map to a value": (lambda s: s.map(lambda r: r.n, schema="infer"), "value: int64"),
    "int and float, and a key that is not always there": (
        lambda s: s.map(
            lambda r: {"x": r.n / 2 if r.n % 2 else r.n // 2, **({"y": 1} if r.n % 3 else {})},
            schema="infer",
        ),
        "x: float64, y: int64?",
    ),
    "flat_map": (
        lambda s: s.flat_map(lambda r: [{"i": i} for i in range(r.n % 3)], schema="infer"),
        "i: int64",
    ),
    "map_async": (
        lambda s: s.map_async(with_half, schema="infer"),
        "n: int64, s: string, half: float64",
    ),
    "behind other operators": (
        lambda s: (
            s.filter(col("n") % 2 == 0)
            .key_by("n")
            .count()
            .map(
                lambda r: {**r, "at": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)},
                schema="infer",
            )
        ),
        "n: int64, count: int64, at: timestamp",
    ),
}


@pytest.mark.parametrize("name", JOBS)
def test_a_job(entry_point: EntryPoint, name: str) -> None:
    build, columns = JOBS[name]
    job = plait.Job("inferred")
    stream = build(job.source(plait.Items(ROWS), name="given"))
    assert str(stream.schema) == columns
    stream.sink(plait.Collect(), name="out")
    wanted = sequential(job.graph(), epoch_records=SETTINGS["epoch_records"])
    result = entry_point(job, **SETTINGS)
    assert rows_of_arrow(result.outputs["out"], wanted.schemas["out"]) == wanted.outputs["out"]
    assert result.account.delivered > 0


def test_only_the_first_records_are_tried() -> None:
    seen: list[int] = []

    def look(record: Any) -> Any:
        seen.append(record.n)
        return {"twice": 2 * record.n}

    stream = plait.stream([{"n": n} for n in range(5000)]).map(look, schema="infer")
    assert seen == list(range(1000))
    assert len(stream.collect()) == 5000


def test_a_record_that_raises_is_left_to_the_run() -> None:
    stream = plait.stream(ROWS).map(
        lambda r: {"x": 1 // (r.n - 3)}, schema="infer", on_error="dead_letter"
    )
    assert str(stream.schema) == "x: int64"
    result = stream.sink(plait.Collect()).run()
    assert [letter.row for letter in result.dead_letters] == [4]


def test_a_later_record_that_does_not_fit_fails() -> None:
    rows = [{"n": n} for n in range(1500)]
    stream = plait.stream(rows).map(lambda r: {"x": r.n if r.n < 1200 else "late"}, schema="infer")
    with pytest.raises(
        plait.RecordError, match=r'column "x": expected int64, got .late.'
    ) as raised:
        stream.collect()
    assert raised.value.row == 1201


def test_files_and_tables_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    plait.stream(ROWS).sink(plait.Files(path)).run()
    for source in (path, pa.table({"n": [1, 2]}), lambda: iter(ROWS)):
        stream = plait.stream(source).map(lambda r: {"m": (r.n or 0) + 1}, schema="infer")
        assert str(stream.schema) == "m: int64"


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (
            lambda: plait.stream(iter(ROWS)).map(lambda r: r, schema="infer"),
            r"map at .*source source-1 \(Items\) cannot be read while the job is built and again",
        ),
        (
            lambda: plait.stream(plait.Rate(10.0)).map(lambda r: r, schema="infer"),
            r"\(Rate\) cannot be read while the job is built",
        ),
        (
            lambda: plait.stream(ROWS).map(lambda r: r.n / 0, schema="infer"),
            "none of them gave a result; the first raised ZeroDivisionError",
        ),
        (
            lambda: plait.stream(ROWS).filter(col("n") < 0).map(lambda r: r, schema="infer"),
            "no record reached the function; give the schema",
        ),
        (
            lambda: plait.stream(ROWS).map(lambda r: {3: 1}, schema="infer"),
            "has the key 3; keys must be column names",
        ),
        (
            lambda: plait.stream(ROWS).key_by("n").stateful(0, lambda s, r: (s, r), schema="infer"),
            "schema is 'infer'; give a dataclass or a dict of types; only map, flat_map and",
        ),
    ],
)
def test_what_cannot_be_inferred_is_refused(build: Callable[[], Any], words: str) -> None:
    with pytest.raises(plait.JobError, match=words):
        build()
