"""A job that has changed goes on with the state of the one before, or is refused in words."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest

import plait
from plait.cli import main
from plait.testing import Feed

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = {"k": int, "x": int, "name": str}
FIRST = [(i % 3, i, f"n{i % 2}") for i in range(9)]
REST = [(i % 3, i, f"n{i % 2}") for i in range(9, 12)]


def run_first(url: str, build: Any, **settings: Any) -> None:
    """The job as it was, stopped in the middle."""
    feed = Feed(COLUMNS)
    running = plait.start(job_of(feed, build), checkpoint=url, **settings)
    feed.push(FIRST)
    while running.engine.records_read() < len(FIRST):
        running.engine.wait(0.001)
    running.stop()
    running.wait()


def go_on(url: str | plait.Checkpoint, build: Any, **settings: Any) -> list[dict[str, Any]]:
    """The job as it is now, to its end: what it gives since."""
    feed = Feed(COLUMNS)
    feed.push(FIRST)
    feed.push(REST)
    feed.close()
    result = plait.run(job_of(feed, build), checkpoint=url, **settings)
    rows: list[dict[str, Any]] = result.outputs["out"].to_pylist()
    return rows[len(FIRST) :]


def job_of(feed: Feed, build: Any) -> plait.Job:
    job = plait.Job("changing")
    build(job.source(feed, name="feed")).sink(plait.Collect(), "out")
    return job


def aggregates(**results: Any) -> Any:
    """The rows pass beside it, so that what comes out has the same columns always."""

    def build(rows: Any) -> Any:
        rows.key_by("k").aggregate(**results).named("totals").sink(plait.Discard(), "totals")
        return rows

    return build


def state(url: str, operator: str) -> dict[Any, dict[str, Any]]:
    table = plait.read_state(url, operator=operator).drop_columns(["bin"])
    return {row.pop(next(iter(row))): row for row in table.to_pylist()}


def taken_over(url: str, build: Any, **settings: Any) -> dict[Any, dict[str, Any]]:
    """The state of "totals" once the new job has taken it over."""
    feed = Feed(COLUMNS)
    feed.push(FIRST)
    running = plait.start(job_of(feed, build), checkpoint=url, **settings)
    running.stop()
    running.wait()
    return state(url, "totals")


def test_aggregates_come_and_go(tmp_path: Path) -> None:
    url = str(tmp_path)
    run_first(url, aggregates(n=plait.count(), total=plait.sum("x"), last=plait.last("name")))
    now = aggregates(
        last=plait.last("name"),
        high=plait.max("x"),
        low=plait.min("name"),
        n=plait.count(),
        more=plait.sum("x"),
    )
    found = taken_over(url, now, bin_bits=3)
    assert {key: (row["n"], row["last"], row["low"]) for key, row in found.items()} == {
        0: (3, "n0", None),
        1: (3, "n1", None),
        2: (3, "n0", None),
    }
    feed = Feed(COLUMNS)
    feed.push(FIRST)
    feed.push(REST)
    feed.close()
    job = plait.Job("changing")
    rows = job.source(feed, name="feed")
    after = rows.key_by("k").aggregate(
        last=plait.last("name"),
        high=plait.max("x"),
        low=plait.min("name"),
        n=plait.count(),
        more=plait.sum("x"),
    )
    after.named("totals").sink(plait.Collect(), "totals")
    rows.sink(plait.Collect(), "out")
    result = plait.run(job, checkpoint=url)
    assert result.outputs["totals"].to_pylist() == [
        {"k": 0, "last": "n1", "high": 9, "low": "n1", "n": 4, "more": 9},
        {"k": 1, "last": "n0", "high": 10, "low": "n0", "n": 4, "more": 10},
        {"k": 2, "last": "n1", "high": 11, "low": "n1", "n": 4, "more": 11},
    ]


def test_a_mean_cannot_begin_in_the_middle(tmp_path: Path) -> None:
    run_first(str(tmp_path), aggregates(n=plait.count()))
    with pytest.raises(plait.StateError, match=r"m is new, and the mean .* take sum and count"):
        go_on(str(tmp_path), aggregates(n=plait.count(), m=plait.mean("x")))


def test_a_key_with_another_name_and_an_operator_with_another_id(tmp_path: Path) -> None:
    url = str(tmp_path)

    def before(rows: Any) -> Any:
        rows.key_by("k").count().sink(plait.Discard(), "n")
        return rows

    def now(rows: Any) -> Any:
        renamed = rows.rename(user="k").key_by("user").count()
        renamed.named("seen", was="count(k) from feed").sink(plait.Discard(), "n")
        return rows

    run_first(url, before)
    with pytest.raises(plait.StateError, match=r'was="count\(k\) from feed"'):
        go_on(url, lambda rows: rows)
    feed = Feed(COLUMNS)
    feed.push(FIRST)
    running = plait.start(job_of(feed, now), checkpoint=url)
    running.stop()
    running.wait()
    assert state(url, "seen") == {key: {"count": 3} for key in range(3)}
    assert len(go_on(url, now)) == len(REST)


def test_what_is_gone_can_be_dropped(tmp_path: Path) -> None:
    url = str(tmp_path)
    run_first(url, aggregates(n=plait.count()))
    saved = plait.Checkpoint(url, drop=("totals",))
    assert len(go_on(saved, lambda rows: rows)) == len(REST)


@dataclasses.dataclass
class Cart:
    items: dict[str, int] = dataclasses.field(default_factory=dict)
    total: int = 0


@dataclasses.dataclass
class WiderCart:
    total: float
    items: dict[str, int]
    visits: int = 7


def cart_step(cart: Cart, row: Any) -> Cart:
    return Cart({**cart.items, row.name: row.x}, cart.total + row.x)


def wider_step(cart: WiderCart, row: Any) -> WiderCart:
    return WiderCart(cart.total + row.x, cart.items, cart.visits + 1)


def folded(init: Any, step: Any, **more: Any) -> Any:
    def build(rows: Any) -> Any:
        rows.key_by("k").fold(init, step, **more).named("carts").sink(plait.Discard(), "carts")
        return rows

    return build


@pytest.mark.parametrize("bits", [10, 4])
def test_a_dataclass_with_more_fields(tmp_path: Path, bits: int) -> None:
    url = str(tmp_path)
    run_first(url, folded(Cart, cart_step))
    shown = plait.read_state(url, operator="carts").to_pylist()
    assert {row["k"]: row["value"]["total"] for row in shown} == {0: 9, 1: 12, 2: 15}
    widened = folded(lambda: WiderCart(0.0, {}), wider_step)
    go_on_state(url, widened, bin_bits=bits)
    shown = plait.read_state(url, operator="carts").to_pylist()
    assert {row["k"]: (row["value"]["total"], row["value"]["visits"]) for row in shown} == {
        0: (9, 7),
        1: (12, 7),
        2: (15, 7),
    }
    assert len(go_on(url, widened)) == len(REST)


def go_on_state(url: str, build: Any, **settings: Any) -> None:
    feed = Feed(COLUMNS)
    feed.push(FIRST)
    running = plait.start(job_of(feed, build), checkpoint=url, **settings)
    running.stop()
    running.wait()


def text_step(text: str, row: Any) -> str:
    return f"{text}+{row.x}"


def test_a_newer_version_goes_through_migrate_once(tmp_path: Path, capsys: Any) -> None:
    url = str(tmp_path)
    run_first(url, folded(Cart, cart_step))
    with pytest.raises(plait.StateError, match="its state was Cart and is str; raise version="):
        go_on(url, folded("", text_step))
    with pytest.raises(plait.StateError, match=r"give it a migrate\(old, version\)"):
        go_on(url, folded("", text_step, version=2))

    def migrate(old: Any, version: int) -> str:
        assert version == 1
        return f"total {old['total']}"

    now = folded("", text_step, version=2, migrate=migrate)
    go_on_state(url, now)
    go_on_state(url, now)
    found = {key: row["value"] for key, row in state(url, "carts").items()}
    assert found == {0: "total 9", 1: "total 12", 2: "total 15"}
    with pytest.raises(plait.StateError, match="has version 2, and the job knows version 1"):
        go_on(url, folded("", text_step))


class Seen(plait.Process):
    state: ClassVar[dict[str, Any]] = {"n": int, "old": str}
    out: ClassVar[dict[str, Any]] = {"k": int}

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> Any:
        state.n += 1
        state.old = record.name


class SeenMore(Seen):
    state: ClassVar[dict[str, Any]] = {"n": float, "names": list[str]}

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> Any:
        state.n += 1


class SeenText(Seen):
    state: ClassVar[dict[str, Any]] = {"n": str}


class SeenAnew(SeenText):
    version = 2

    def migrate(self, old: dict[str, Any], version: int) -> dict[str, Any]:
        return {"n": f"{old['n']} of version {version}"}


def processed(process: plait.Process) -> Any:
    def build(rows: Any) -> Any:
        rows.key_by("k").process(process).named("seen").sink(plait.Discard(), "seen")
        return rows

    return build


def test_the_values_of_a_process(tmp_path: Path) -> None:
    url = str(tmp_path)
    run_first(url, processed(Seen()))
    with pytest.raises(plait.StateError, match="n was int and is str; raise `version`"):
        go_on(url, processed(SeenText()))
    go_on_state(url, processed(SeenMore()), bin_bits=3)
    assert state(url, "seen") == {key: {"n": 3.0, "names": []} for key in range(3)}
    go_on_state(url, processed(SeenAnew()))
    assert state(url, "seen") == {key: {"n": "3.0 of version 1"} for key in range(3)}


SCRIPT = """
import plait
job = plait.Job("clicks")
clicks = job.source([{"k": n % 3, "x": n} for n in range(30)], name="clicks")
totals = clicks.key_by("k").aggregate(RESULTS)
totals.named("totals").sink(plait.Collect(), "totals")
"""


def test_the_dry_run_tells(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "job.py"
    url = str(tmp_path / "ckpt")
    feed = Feed({"k": int, "x": int})
    job = plait.Job("clicks")
    totals = job.source(feed, name="clicks").key_by("k").aggregate(n=plait.count())
    totals.named("totals").sink(plait.Collect(), "totals")
    running = plait.start(job, checkpoint=url)
    feed.push([(1, 2)])
    while running.engine.records_read() < 1:
        running.engine.wait(0.001)
    running.stop()
    running.wait()
    told = ["restore", str(file), "--checkpoint", url, "--dry-run"]
    file.write_text(SCRIPT.replace("RESULTS", 'n=plait.count(), total=plait.sum("x")'))
    assert main(told) == 0
    assert "totals    restored (total is new)" in capsys.readouterr().out
    file.write_text(SCRIPT.replace("RESULTS", 'm=plait.mean("x")').replace('"totals")', '"new")'))
    assert main(told) == 1
    shown = capsys.readouterr().out
    assert "gone: refused" in shown
    assert main([*told, "--drop", "totals"]) == 0
    assert "totals    dropped" in capsys.readouterr().out


def test_words_that_are_refused() -> None:
    numbers = plait.stream([{"k": 1}]).key_by("k")
    with pytest.raises(plait.JobError, match="version is 0"):
        numbers.fold(0, lambda n, _: n, version=0)
    with pytest.raises(plait.JobError, match="say which: version=2"):
        numbers.fold(0, lambda n, _: n, migrate=lambda old, _: old)
    with pytest.raises(plait.JobError, match="drop is 'totals'"):
        plait.Checkpoint("ckpt", drop="totals")  # type: ignore[arg-type]


def test_a_table_that_has_changed_is_refused(tmp_path: Path) -> None:
    """Its rows are counted by the engine, which reads no position."""

    def make_job(rows: int, rate_per_s: float | None = None) -> plait.Job:
        job = plait.Job("table")
        table = plait.Table(pa.table({"n": list(range(rows))}), rate_per_s=rate_per_s)
        job.source(table, "numbers").key_by("n").count().sink(plait.Discard(), "counts")
        return job

    running = plait.start(make_job(100, rate_per_s=1.0), checkpoint=tmp_path)
    running.stop()
    running.wait()
    with pytest.raises(plait.SourceError, match="is not the same: 100 records then, 101 now"):
        plait.run(make_job(101), checkpoint=tmp_path)
    assert plait.run(make_job(100), checkpoint=tmp_path).account.read == 100
