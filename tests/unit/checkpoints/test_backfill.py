"""A job that begins with a backfill gives, live, what streaming it all would have given."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest

import plait
from plait import col
from plait.graph import horizon
from plait.testing import Feed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
COLUMNS = {"user": int, "n": int, "ts": plait.Timestamp}
ROWS = 4_000
CUT = 2_777


def clicks(rows: int = ROWS, step_s: float = 1.0) -> pa.Table:
    """Users come and go; times are out of order by less than five seconds."""
    micros = [round(n * step_s * 1e6) - n * 7919 % 4_999_999 for n in range(rows)]
    base = round(START.timestamp() * 1e6)
    return pa.table(
        {
            "user": pa.array([n * n % 17 for n in range(rows)], pa.int64()),
            "n": pa.array(range(rows), pa.int64()),
            "ts": pa.array([base + at for at in micros], pa.timestamp("us", "UTC")),
        }
    )


def build(over: Callable[[plait.Stream], plait.Stream], table: pa.Table) -> plait.Job:
    job = plait.Job("clicks")
    source = plait.Table(table)
    stream = job.source(source, "clicks", event_time="ts", out_of_order="5s")
    over(stream).sink(plait.Collect(), "out")
    return job


def keyed(stream: plait.Stream) -> plait.KeyedStream:
    return stream.key_by("user")


class Visits(plait.Process):
    state: ClassVar = {"seen": int}
    out: ClassVar = {"user": int, "seen": int}

    def on_record(self, key: int, record: Any, state: Any, timers: Any) -> Any:
        state.seen += 1
        timers.at(record.ts + datetime.timedelta(seconds=40))
        yield key, state.seen

    def on_timer(self, key: int, at: Any, state: Any, timers: Any) -> Any:
        yield key, -state.seen


class Patient(Visits):
    def on_timeout(self, key: int, at: Any, state: Any, timers: Any) -> Any:
        yield key, 0


def again(stream: plait.Stream) -> plait.Stream:
    """Windows of the results of windows."""
    first = keyed(stream).tumbling("10s").aggregate(total=plait.sum("n"))
    return first.key_by("user").sliding("1m", every="20s").aggregate(most=plait.max("total"))


def joined(stream: plait.Stream) -> plait.Stream:
    odd, even = stream.filter(col("n") % 2 == 1), stream.filter(col("n") % 2 == 0)
    both = odd.join(even, on="user", window=plait.Tumbling("20s"), how="left")
    return both.select("user", "n", "n_right")


def seen_soon(stream: plait.Stream) -> plait.Stream:
    odd, even = stream.filter(col("n") % 2 == 1), stream.filter(col("n") % 2 == 0)
    return odd.join(even, on="user", between=("-15s", "15s"), how="semi")


def top(stream: plait.Stream) -> plait.Stream:
    counts = keyed(stream).sliding("30s", every="10s", lateness="7s").count()
    return counts.by_window().top(2, by="count", ties=True)


FORGETFUL = {
    "tumbling": lambda s: keyed(s).tumbling("1m").aggregate(n=plait.count(), m=plait.max("n")),
    "sliding": lambda s: keyed(s).sliding("1m", every="7s", lateness="3s").count(),
    "again": again,
    "top": top,
    "join": joined,
    "semi": seen_soon,
}
KEEPING = {
    "running": lambda s: keyed(s).aggregate(total=plait.sum("n"), last=plait.last("n")),
    "session": lambda s: keyed(s).session(gap="20s").count(),
    "last_n": lambda s: keyed(s).last_n(5).sum("n"),
    "fold": lambda s: keyed(s).fold(0, lambda n, _: n + 1, type=int),
    "process": lambda s: keyed(s).process(Visits()),
    "ttl": lambda s: s.key_by("user", ttl="30s").aggregate(total=plait.sum("n")),
}


def go_live(job: plait.Job, folder: Path, **given: Any) -> tuple[plait.Backfill, list[Any]]:
    """Backfills up to the cut, then runs the rest; what that gave."""
    history = {"clicks": plait.Table(clicks().slice(0, CUT))}
    done = plait.backfill(
        job, history=history, until={"clicks": CUT}, checkpoint=folder, workers=2, **given
    )
    result = plait.run(job, checkpoint=folder, start=done.savepoint, workers=2)
    return done, result.outputs["out"].to_pylist()


@pytest.mark.parametrize("name", [*FORGETFUL, *KEEPING])
def test_live_output_is_that_of_streaming_it_all(name: str, tmp_path: Path) -> None:
    over = {**FORGETFUL, **KEEPING}[name]
    whole = plait.run(build(over, clicks())).outputs["out"].to_pylist()
    done, live = go_live(build(over, clicks()), tmp_path / "all", cut=False)
    assert done.rows == CUT
    assert done.skipped == 0
    assert live
    assert len(live) == len(whole) - done.dropped
    assert live == whole[done.dropped :]
    cut, after_cut = go_live(build(over, clicks()), tmp_path / "cut")
    assert after_cut == live
    assert cut.rows + cut.skipped == CUT
    assert (cut.skipped > CUT // 2) == (name in FORGETFUL), cut


def test_a_horizon_that_is_too_short_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = horizon.timed_horizon

    def short(*given: Any) -> horizon.Horizon:
        found = real(*given)
        assert found.us is not None
        return horizon.Horizon(found.us - 55_000_000)

    whole = plait.run(build(FORGETFUL["tumbling"], clicks())).outputs["out"].to_pylist()
    monkeypatch.setattr(horizon, "timed_horizon", short)
    done, live = go_live(build(FORGETFUL["tumbling"], clicks()), tmp_path)
    assert live != whole[-len(live) :]
    assert done.skipped


@pytest.mark.parametrize(
    ("over", "seconds"),
    [
        (lambda s: s.filter(col("n") > 3), 0),
        (lambda s: keyed(s).tumbling("1m", lateness="5s").count(), 65),
        (again, 70),
        (joined, 40),
        (seen_soon, 60),
        (top, 37),
    ],
)
def test_horizons_add_up(over: Callable[[plait.Stream], plait.Stream], seconds: int) -> None:
    [found] = horizon.source_horizons(build(over, clicks(10)).graph()).values()
    assert found.us == seconds * 1_000_000, found.why


@pytest.mark.parametrize(
    ("over", "why"),
    [
        (KEEPING["running"], "needs all records of a key"),
        (KEEPING["session"], "may have begun at any time"),
        (KEEPING["process"], "needs all records of a key"),
        (
            lambda s: (
                s.with_columns(at=col("ts") + plait.hours(3))
                .with_event_time("at")
                .key_by("user")
                .tumbling("1m")
                .count()
            ),
            "makes an event time of its own",
        ),
        (
            lambda s: s.join(s.select("user", m="n"), on="user").select("user", "m"),
            "keeps every record",
        ),
    ],
)
def test_what_needs_everything_says_why(
    over: Callable[[plait.Stream], plait.Stream], why: str
) -> None:
    [found] = horizon.source_horizons(build(over, clicks(10)).graph()).values()
    assert found.us is None
    assert why in found.why


def test_a_dry_run_tells_and_leaves_nothing(tmp_path: Path) -> None:
    job = build(FORGETFUL["tumbling"], clicks())
    told = plait.backfill(
        job,
        history={"clicks": clicks().slice(0, CUT)},
        until={"clicks": CUT},
        checkpoint=tmp_path / "saved",
        dry_run=True,
    )
    assert str(told) == "clicks: 60 s before the watermark are read"
    assert not (tmp_path / "saved").exists()
    job = build(KEEPING["session"], clicks())
    told = plait.backfill(
        job,
        history={"clicks": clicks().slice(0, CUT)},
        until={"clicks": CUT},
        checkpoint=tmp_path / "saved",
        dry_run=True,
    )
    assert str(told).startswith("clicks: all is read: a session of count at ")


USERS = [{"user": n, "name": f"u{n}"} for n in range(17)]


def two_sources(names: Mapping[str, pa.Table], users: Any) -> plait.Job:
    """Two live sources and one with an end that is read as it is."""
    job = plait.Job("pair")
    left, right = (
        job.source(plait.Table(names[n]), n, event_time="ts", out_of_order="5s")
        for n in ("left", "right")
    )
    names_of = job.source(users, "users")
    both = left.join(right, on="user", between=("-30s", "30s")).select("user", "n", "n_right")
    both.join(names_of, on="user").sink(plait.Collect(), "out")
    return job


@pytest.mark.parametrize("users", [USERS, pa.Table.from_pylist(USERS)], ids=["list", "table"])
def test_several_sources_go_on_together(users: Any, tmp_path: Path) -> None:
    """One history has a tenth of the rows of the other, over the same time."""
    tables = {"left": clicks(), "right": clicks(ROWS // 10, step_s=10.0)}
    cuts = {"left": CUT, "right": CUT // 10}
    whole = plait.run(two_sources(tables, users)).outputs["out"].to_pylist()
    done = plait.backfill(
        two_sources(tables, users),
        history={name: tables[name].slice(0, at) for name, at in cuts.items()},
        until=cuts,
        checkpoint=tmp_path,
    )
    live = plait.run(
        two_sources(tables, users), checkpoint=tmp_path, start=done.savepoint, order="total"
    ).outputs["out"]
    assert done.rows == sum(cuts.values()) + 17
    rows = [tuple(row.values()) for row in live.to_pylist()]
    all_rows = [tuple(row.values()) for row in whole]
    assert len(rows) == len(all_rows) - done.dropped
    assert not set(rows) - set(all_rows)


def test_the_state_is_that_of_a_live_run(tmp_path: Path) -> None:
    feed = Feed(COLUMNS)
    live = plait.Job("states")
    keyed(live.source(feed, name="clicks", event_time="ts", out_of_order="5s")).tumbling(
        "1m"
    ).count().named("windows").sink(plait.Discard(), "out")
    rows = [tuple(row.values()) for row in clicks(500).to_pylist()]
    running = plait.start(live, checkpoint=tmp_path / "live")
    feed.push(rows)
    while running.engine.records_read() < len(rows):
        pass
    running.savepoint("here")
    feed.close()
    running.wait()
    done = plait.backfill(
        live, history={"clicks": clicks(500)}, until={"clicks": 0}, checkpoint=tmp_path / "saved"
    )
    states = [
        sorted(
            (row["user"], row["window_start"], row["count"])
            for row in plait.read_state(
                tmp_path / folder, "states", operator="windows", start=name
            ).to_pylist()
        )
        for folder, name in (("live", "here"), ("saved", "backfill"))
    ]
    assert done.skipped > 300
    assert states[0]
    assert states[0] == states[1]


def test_dead_letters_of_the_history_go_nowhere(tmp_path: Path) -> None:
    job = plait.Job("letters", dead_letters=plait.Files(tmp_path / "letters", "jsonl"))
    rows = [{"user": n % 3, "n": n} for n in range(40)]
    numbers = job.source(rows, "numbers")
    checked = numbers.with_columns(m=100 // (col("n") % 10), on_error="dead_letter")
    checked.key_by("user").sum("m").sink(plait.Collect(), "out")
    done = plait.backfill(
        job, history={"numbers": rows[:20]}, until={"numbers": 20}, checkpoint=tmp_path / "saved"
    )
    assert done.dropped == 18
    live = plait.run(job, checkpoint=tmp_path / "saved", start=done.savepoint)
    assert live.outputs["out"].num_rows == 18
    lines = [p.read_text().splitlines() for p in (tmp_path / "letters").glob("*.jsonl")]
    assert sum(map(len, lines)) == 2


class Broken(plait.Source):
    schema = plait.Schema.of(COLUMNS)

    def open(self, position: Any = None) -> Any:
        yield {"user": 1, "n": 1, "ts": START}
        raise RuntimeError("the disk is away")


def test_a_backfill_that_failed_is_worth_nothing(tmp_path: Path) -> None:
    job = build(KEEPING["running"], clicks(50))
    with pytest.raises(plait.PlaitError, match="the disk is away"):
        plait.backfill(job, history={"clicks": Broken()}, until={"clicks": 20}, checkpoint=tmp_path)
    history = {"clicks": clicks(50).slice(0, 20)}
    done = plait.backfill(job, history=history, until={"clicks": 20}, checkpoint=tmp_path)
    assert done.rows == 20
    result = plait.run(job, checkpoint=tmp_path)
    assert result.account.read == 50
    assert result.outputs["out"].num_rows == 30
    with pytest.raises(plait.StateError, match="there are checkpoints of clicks"):
        plait.backfill(job, history=history, until={"clicks": 20}, checkpoint=tmp_path)


def arrivals(stream: plait.Stream) -> plait.Stream:
    return keyed(stream).tumbling("1m", by="arrival").count()


@pytest.mark.parametrize(
    ("over", "given", "words"),
    [
        (arrivals, {}, "those of a history arrived long ago"),
        (lambda s: keyed(s).process(Patient()), {}, "timers by the wall clock"),
        (FORGETFUL["tumbling"], {"history": {}}, "until= names clicks"),
        (FORGETFUL["tumbling"], {"history": {}, "until": {}}, "history= is empty"),
        (FORGETFUL["tumbling"], {"until": {}}, "does not say where clicks goes on live"),
        (FORGETFUL["tumbling"], {"history": {"klicks": []}}, 'no source "klicks"'),
        (
            FORGETFUL["tumbling"],
            {"history": {"clicks": plait.Rate(1000)}},
            "which has no end",
        ),
        (
            FORGETFUL["tumbling"],
            {"history": {"clicks": clicks(5).drop_columns(["ts"])}},
            'has no column "ts"; it has: user, n',
        ),
        (
            FORGETFUL["tumbling"],
            {"history": {"clicks": clicks(5).set_column(1, "n", pa.array(list("abcde")))}},
            'column "n" of clicks is int64, and string in its history',
        ),
        (FORGETFUL["tumbling"], {"wrokers": 2}, "workers"),
    ],
)
def test_what_cannot_be_is_refused_in_words(
    over: Callable[[plait.Stream], plait.Stream],
    given: dict[str, Any],
    words: str,
    tmp_path: Path,
) -> None:
    usual: dict[str, Any] = {"history": {"clicks": clicks(5)}, "until": {"clicks": 5}}
    with pytest.raises(plait.JobError, match=words):
        plait.backfill(build(over, clicks()), checkpoint=tmp_path, **{**usual, **given})


def test_a_live_source_without_history_is_refused(tmp_path: Path) -> None:
    job = plait.Job("two")
    one = job.source(clicks(5), "one")
    two = job.source(Feed(COLUMNS), "two")
    plait.union(one, two).sink(plait.Discard(), "out")
    with pytest.raises(plait.JobError, match="two has no end and no history"):
        plait.backfill(job, history={"one": clicks(5)}, until={"one": 5}, checkpoint=tmp_path)


def test_a_log_goes_on_at_a_batch(tmp_path: Path) -> None:
    log = plait.BatchLog(tmp_path / "log")
    table = clicks(60)
    for number in range(6):
        log.append(number, table.slice(number * 10, 10), writer="me")
    log.end()
    job = plait.Job("logged")
    job.source(log, "clicks").key_by("user").count().sink(plait.Collect(), "out")
    history = {"clicks": table.slice(0, 40)}
    done = plait.backfill(job, history=history, until={"clicks": 4}, checkpoint=tmp_path / "saved")
    live = plait.run(job, checkpoint=tmp_path / "saved", start=done.savepoint).outputs["out"]
    counts: dict[int, int] = {}
    wanted = []
    for user in table["user"].to_pylist():
        counts[user] = counts.get(user, 0) + 1
        wanted.append({"user": user, "count": counts[user]})
    assert live.to_pylist() == wanted[40:]
