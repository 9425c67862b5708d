"""Columns of any name go through every operator, every format of files, explain and show."""

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

SETTINGS: dict[str, Any] = {"epoch_records": 8, "bin_bits": 4}
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
NAMES = ("user-id", "@timestamp", "first name", "class", "on_error", "keys", "schema", "a.b")


def rows() -> list[dict[str, Any]]:
    return [
        dict(
            zip(
                NAMES,
                (
                    n % 5,
                    START + datetime.timedelta(seconds=n),
                    f"name {n}",
                    n * 0.5,
                    n,
                    f"k{n % 3}",
                    n % 2 == 0,
                    n - 1,
                ),
                strict=True,
            )
        )
        for n in range(60)
    ]


def raised(record: Any) -> Any:
    return {**record, "user-id": record["user-id"] + 1, "keys": record["keys"] + "!"}


async def raised_later(record: Any) -> Any:
    return raised(record)


async def wait_for(on_error: int) -> int:
    return on_error + 1


def added(total: float, record: Any) -> float:
    return total + float(record["class"])


def changed(state: int, record: Any) -> Any:
    return state + 1, record if record["on_error"] % 2 else None


class Names(plait.Process):
    state = {"seen": int}  # noqa: RUF012
    out = {"the key": int, "how many": int}  # noqa: RUF012

    def on_record(self, key: int, record: Any, state: Any, timers: Any) -> Any:
        state.seen += 1
        yield {"the key": record["user-id"], "how many": state.seen}


JOBS: dict[str, Callable[[Any], Any]] = {
    "filter": lambda s: s.filter((col("user-id") > 1) & (col("class") < 20)),
    "filter by a function": lambda s: s.filter(lambda r: r["user-id"] > 1),
    "select": lambda s: s.select("first name", {"twice it": col("a.b") * 2}, on_error="fail"),
    "with_columns": lambda s: s.with_columns({"on_error": col("on_error") + 1, "x y": col("keys")}),
    "with_columns of functions": lambda s: s.with_columns(
        {"on_error": lambda keys: 3, "x-y": len_of}
    ),
    "with_columns_async": lambda s: s.with_columns_async({"name": wait_for, "timeout": wait_for}),
    "drop and rename": lambda s: s.drop("class").rename({"user-id": "user", "keys": "a b"}),
    "map": lambda s: s.map(raised),
    "flat_map": lambda s: s.flat_map(lambda r: [r, raised(r)]),
    "map_async": lambda s: s.map_async(raised_later),
    "map_batches": lambda s: s.map_batches(lambda t: t),
    "aggregate": lambda s: s.key_by("user-id").aggregate(
        {"on_error": plait.max("on_error"), "the sum": plait.sum("class")}
    ),
    "a computed key": lambda s: s.key_by({"ttl": col("a.b") % 4}, "class").count(),
    "fold": lambda s: s.key_by("first name", "user-id").fold(0.0, added),
    "stateful": lambda s: s.key_by("user-id").stateful(0, changed),
    "process": lambda s: s.key_by("user-id").process(Names()),
    "tumbling": lambda s: s.key_by("keys").tumbling("7s").aggregate({"a-b": plait.mean("class")}),
    "top": lambda s: s.tumbling("7s").top(2, by="a.b"),
    "last_n": lambda s: s.key_by("user-id").last_n(3).sum("on_error"),
    "join": lambda s: s.join(
        s.select("user-id", "@timestamp", {"r-r": "a.b"}), on="user-id", ttl="9s"
    ),
    "enrich": lambda s: s.enrich(
        pa.table({"user-id": [0, 1], "the name": ["x", "y"]}), on="user-id"
    ),
    "union": lambda s: s.union(s.filter(col("schema"))),
}


def len_of(keys: str) -> int:
    return len(keys)


@pytest.mark.parametrize("name", JOBS)
def test_a_job(entry_point: EntryPoint, name: str) -> None:
    job = plait.Job("names")
    read = job.source(plait.Items(rows()), name="given", event_time="@timestamp")
    JOBS[name](read).sink(plait.Collect(), name="out")
    wanted = sequential(job.graph(), epoch_records=SETTINGS["epoch_records"])
    result = entry_point(job, **SETTINGS)
    assert rows_of_arrow(result.outputs["out"], wanted.schemas["out"]) == wanted.outputs["out"]
    assert result.account.delivered > 0


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_files_in_and_out(entry_point: EntryPoint, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"odd.{suffix}"
    job = plait.Job("files")
    job.source(plait.Items(rows())).sink(plait.Files(path))
    entry_point(job, **SETTINGS)
    again = plait.stream(path).collect()
    assert [dict(record) for record in again] == rows()


def test_explain_and_show(capsys: pytest.CaptureFixture[str]) -> None:
    stream = plait.stream(rows())
    stream.show(1)
    stream.filter(col("user-id") > 1).explain()
    said = capsys.readouterr().out
    assert said.startswith("user-id  @timestamp ")
    assert 'col("user-id") > 1' in said


RENAMES = {"user-id": "user", "@timestamp": "ts"}


@dataclass
class Visit:
    user: int
    ts: plait.Timestamp


def test_a_source_renames_its_columns(entry_point: EntryPoint) -> None:
    job = plait.Job("renamed")
    read = job.source(plait.Items(rows()), name="given", event_time="ts", rename=RENAMES)
    assert read.schema.names[:3] == ("user", "ts", "first name")
    read.key_by("user").tumbling("7s").count().sink(plait.Collect(), name="out")
    wanted = sequential(job.graph(), epoch_records=SETTINGS["epoch_records"])
    result = entry_point(job, **SETTINGS)
    assert rows_of_arrow(result.outputs["out"], wanted.schemas["out"]) == wanted.outputs["out"]
    assert result.account.delivered > 0


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_files_under_other_names(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"odd.{suffix}"
    plait.stream(rows()).sink(plait.Files(path)).run()
    visits = plait.stream(plait.Files(path, schema=Visit, rename=RENAMES), event_time="ts")
    assert visits.collect()[1] == Visit(1, START + datetime.timedelta(seconds=1))
    whole = plait.stream(plait.Files(path, rename=RENAMES))
    assert whole.schema.names == ("user", "ts", *NAMES[2:])
    assert plait.stream(path, rename={"a.b": "ab"}).schema.names == (*NAMES[:-1], "ab")


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda s: s.with_columns({"a": 1}, a=2), 'with_columns at .*column "a" is given twice'),
        (lambda s: s.with_columns({3: 1}), "the dict has the key 3"),
        (lambda s: s.with_columns("x"), "'x' is not a dict of names to columns"),
        (lambda s: s.aggregate({"n": plait.count()}, n=plait.count()), "given twice"),
        (lambda s: s.rename({"user-id": "u"}, v="user-id"), "renamed twice"),
        (lambda s: s.rename({"nobody": "u"}), 'no column "nobody"'),
        (lambda s: s.rename(["user-id"]), "has no new name"),
        (lambda s: s.rename({"user-id": "class"}), '"class" is there twice'),
    ],
)
def test_what_is_wrong_is_said(build: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(plait.JobError, match=words):
        build(plait.stream(rows()))


def test_wrong_names_at_a_source(tmp_path: Path) -> None:
    with pytest.raises(plait.JobError, match='no column "nobody"'):
        plait.stream(rows(), rename={"nobody": "u"})
    with pytest.raises(plait.JobError, match='no column "@timestamp"'):
        plait.stream(rows(), rename=RENAMES, event_time="@timestamp")
    path = tmp_path / "odd.csv"
    plait.stream(rows()).sink(plait.Files(path)).run()
    with pytest.raises(plait.SourceError, match='rename= names "nobody", and the columns are'):
        plait.stream(plait.Files(path, rename={"nobody": "u"}))
