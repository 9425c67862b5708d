"""State by key: what a checkpoint shows is what the job would give, in bins of any number."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

import plait
from plait.cli import main
from plait.model.key_hash import bin_of
from plait.model.schema import Type
from plait.testing import Feed

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

UTC = datetime.UTC
COLUMNS = {"user": int | None, "name": str, "x": float | None, "flag": bool, "ts": plait.Timestamp}
ROWS = [
    (
        None if i % 7 == 6 else i % 5,
        f"name {i % 4}",
        None if i % 3 == 1 else i / 2,
        i % 2 == 0,
        datetime.datetime.fromtimestamp(i * 3, UTC),
    )
    for i in range(40)
]
SINKS = ("results", "windows", "sliding", "sessions", "top", "last", "rows", "forgetful")


class Sum(plait.Process):
    """Keeps what it has seen."""

    state: ClassVar[dict[str, Any]] = {"total": float, "names": list[str]}
    out: ClassVar[dict[str, Any]] = {"total": float}

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> Any:
        state.total += record.x or 0.0
        state.names = [*state.names, record.name]
        timers.at(record.ts + plait.minutes(60))

    def on_timer(self, key: Any, at: Any, state: Any, timers: Any) -> Any:
        yield (state.total,)


def job_of(left: Feed, right: Feed) -> plait.Job:
    """State of every kind."""
    job = plait.Job("all")
    rows = job.source(left, name="left", event_time="ts")
    others = job.source(right, name="right", event_time="ts")
    keyed = rows.key_by("user")
    keyed.aggregate(
        n=plait.count(),
        some=plait.count("x"),
        total=plait.sum("x"),
        low=plait.min("name"),
        high=plait.max("x"),
        middle=plait.mean("x"),
        first=plait.first("name"),
        last=plait.last("flag"),
    ).named("results").sink(plait.Collect(), "results")
    rows.key_by("name", "flag").count().named("wide").sink(plait.Discard())
    rows.key_by("name").count().named("text").sink(plait.Discard())
    rows.aggregate(n=plait.count()).named("one").sink(plait.Discard())
    several: dict[str, Any] = {
        "n": plait.count(),
        "names": plait.distinct("name"),
        "first": plait.first("x"),
    }
    keyed.tumbling("30s").aggregate(**several).named("windows").sink(plait.Collect(), "windows")
    keyed.sliding("30s", every="10s").count().named("sliding").sink(plait.Collect(), "sliding")
    keyed.session(gap="15s").aggregate(**several).named("sessions").sink(
        plait.Collect(), "sessions"
    )
    keyed.tumbling("60s").top(2, by="x").named("top").sink(plait.Collect(), "top")
    keyed.last_n(3).sum("x").named("last").sink(plait.Collect(), "last")
    keyed.rows(4, every=2).sum("x").named("rows").sink(plait.Collect(), "rows")
    rows.key_by("user", ttl="1h").sum("x").named("forgetful").sink(plait.Collect(), "forgetful")
    rows.join(others, on="user", between=("0s", "60s"), how="left").named("join").sink(
        plait.Discard()
    )
    rows.join(others, on="user", how="semi").named("semi").sink(plait.Discard())
    keyed.fold(0, lambda n, _: n + 1, type=int).named("fold").sink(plait.Discard())
    keyed.stateful((0, ""), lambda s, row: ((s[0] + 1, row.name), row)).named("machine").sink(
        plait.Discard()
    )
    keyed.process(Sum()).named("process").sink(plait.Discard())
    return job


def run_until(url: str, rows: int, *, more: bool = True, **settings: Any) -> Any:
    """Runs until so many rows of the left are read, and stops (`more`) or ends there."""
    left = Feed(COLUMNS)
    right = Feed({"user": int, "y": int, "ts": plait.Timestamp})
    running = plait.start(job_of(left, right), checkpoint=url, **settings)
    left.push(ROWS[:rows])
    right.push([(i % 3, i, ROWS[rows - 1][-1]) for i in range(4)])
    while running.engine.records_read() < rows + 4:
        running.engine.wait(0.001)
    if more:
        running.stop()
    else:
        left.close()
        right.close()
    return running.wait()


def rows_of(table: pa.Table, *without: str) -> list[tuple[Any, ...]]:
    kept = [name for name in table.column_names if name not in without]
    return sorted((tuple(row.values()) for row in table.select(kept).to_pylist()), key=repr)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: Any) -> tuple[str, Any, Any]:
    """A checkpoint in the middle, what was given until then, and what a run gives that ends
    there."""
    folder: Path = tmp_path_factory.mktemp("state")
    before = run_until(str(folder / "stopped"), 30, bin_bits=6, workers=2)
    whole = run_until(str(folder / "whole"), 30, more=False, bin_bits=6)
    return str(folder / "stopped"), before, whole


def test_windows_show_what_they_would_give(stopped: Any) -> None:
    url, before, whole = stopped
    for name in ("windows", "sliding", "sessions", "top"):
        given = rows_of(before.outputs[name])
        shown = rows_of(plait.read_state(url, operator=name), "bin")
        assert shown, name
        assert sorted([*given, *shown], key=repr) == rows_of(whole.outputs[name]), name


def test_running_results_are_the_last_of_their_key(stopped: Any) -> None:
    url, before, _ = stopped
    for name in ("results", "last", "forgetful"):
        newest = {row["user"]: row for row in before.outputs[name].to_pylist()}
        table = plait.read_state(url, operator=name)
        shown = {row["user"]: row for row in table.drop_columns(["bin"]).to_pylist()}
        assert shown == newest, name
        assert table.schema.field("user").type == before.outputs[name].schema.field("user").type


def test_keys_of_all_kinds_are_in_their_bins(stopped: Any) -> None:
    url, _, _ = stopped
    types = {
        "results": [Type.INT64],
        "wide": [Type.STRING, Type.BOOL],
        "text": [Type.STRING],
        "windows": [Type.INT64],
        "rows": [Type.INT64],
        "join": [Type.INT64],
        "fold": [Type.INT64],
        "process": [Type.INT64],
    }
    for name, kinds in types.items():
        table = plait.read_state(url, operator=name)
        for row in table.to_pylist():
            key = tuple(list(row.values())[1 : 1 + len(kinds)])
            assert row["bin"] == bin_of(key, kinds, 6), (name, row)
    assert rows_of(plait.read_state(url, operator="one")) == [(0, 30)]
    counted = plait.read_state(url, operator="text").drop_columns(["bin"]).to_pylist()
    assert {row["name"]: row["count"] for row in counted} == {
        f"name {i}": 8 if i < 2 else 7 for i in range(4)
    }


def test_joins_show_the_records_that_wait(stopped: Any) -> None:
    url, _, _ = stopped
    found = plait.read_state(url, operator="join").to_pylist()
    left = {row["left_ts"] for row in found if row["side"] == 0}
    assert ROWS[29][-1] in left
    right = sorted(row["right_y"] for row in found if row["side"] == 1)
    assert right == [0, 1, 2, 3]
    semi = plait.read_state(url, operator="semi")
    assert {"key", "side", "left_name"} <= set(semi.column_names)


def test_python_state(stopped: Any) -> None:
    url, _, _ = stopped
    seen = [row[0] for row in ROWS[:30]]
    fold = plait.read_state(url, operator="fold").to_pylist()
    assert {row["user"]: row["value"] for row in fold} == {key: seen.count(key) for key in seen}
    process = plait.read_state(url, operator="process").to_pylist()
    names = {row["user"]: row["names"] for row in process}
    assert names == {key: [row[1] for row in ROWS[:30] if row[0] == key] for key in seen}


def test_all_of_it_as_text_and_by_the_command(stopped: Any, capsys: Any) -> None:
    url, _, _ = stopped
    rows = plait.read_state(url, "all").to_pylist()
    assert all(row["key"] is not None and row["value"] is not None for row in rows)
    assert main(["state", url, "all", "get", "name 2"]) == 0
    assert capsys.readouterr().out == "text  'name 2': {'count': 7}\n"
    assert main(["state", url, "all", "get", "3"]) == 0
    shown = capsys.readouterr().out.splitlines()
    named = {line.split("  ")[0] for line in shown}
    assert {"results", "windows", "sessions", "fold", "process", "join"} <= named
    assert main(["state", url, "all", "get", "99"]) != 0
    with pytest.raises(plait.StateError, match="has no state of 'totals'; it has: "):
        plait.read_state(url, operator="totals")


@pytest.mark.parametrize(("bits", "others"), [(6, 10), (6, 0), (3, 2)])
def test_other_bins_and_back(tmp_path: Path, bits: int, others: int) -> None:
    """Everything is there again, under its key, and a run gives what it would have given."""
    url = str(tmp_path)
    run_until(url, 20, bin_bits=bits)
    kept = {name: plait.read_state(url, operator=name) for name in operators(url)}
    for number in (others, bits):
        go_on(url, 0, bin_bits=number, workers=2)
        for name, table in kept.items():
            again = plait.read_state(url, operator=name)
            without = () if number == bits else ("bin",)
            assert rows_of(again, *without) == rows_of(table, *without), (name, number)
    ended = go_on(url, 20, bin_bits=others)
    whole = go_on(str(tmp_path / "whole"), 40, bin_bits=bits)
    for name in SINKS:
        assert ended.outputs[name].equals(whole.outputs[name]), name


def operators(url: str) -> list[str]:
    return sorted(set(plait.read_state(url)["operator"].to_pylist()))


def go_on(url: str, more: int, **settings: Any) -> Any:
    """Goes on behind 20 rows of the left, or begins; stops at once, or ends with `more`."""
    left = Feed(COLUMNS)
    right = Feed({"user": int, "y": int, "ts": plait.Timestamp})
    left.push(ROWS[:20])
    right.push([(i % 3, i, ROWS[19][-1]) for i in range(4)])
    if more:
        left.push(ROWS[20:])
        left.close()
        right.close()
        return plait.run(job_of(left, right), checkpoint=url, **settings)
    running = plait.start(job_of(left, right), checkpoint=url, **settings)
    running.stop()
    return running.wait()
