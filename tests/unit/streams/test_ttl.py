"""State that is forgotten: `key_by(..., ttl=...)` before everything that keeps state by key."""

from __future__ import annotations

import datetime
import random
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

import plait
from plait.execution.local_run import start
from plait.testing import Capture, Feed, check, table
from plait.testing.tables import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

START = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
SCHEMA = {"k": str, "n": int, "v": int, "ts": datetime.datetime}


class Session(plait.Process):
    """Counts the records of a key, and tells of them with a timer that may come too late."""

    state: ClassVar[Mapping[str, Any]] = {"seen": int, "all": list[int]}
    out: ClassVar[Any] = {"k": str, "n": int, "sum": int}

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> Iterator[Any]:
        state.seen += 1
        state.all.append(record.v)
        timers.at(record.ts + plait.seconds(record.v))
        if record.v == 3:
            state.clear()
        yield repr(key), state.seen, sum(state.all)

    def on_timer(self, key: Any, at: Any, state: Any, timers: Any) -> Iterator[Any]:
        yield repr(key), -state.seen, sum(state.all)
        if len(state.all) == 2:
            state.all.append(1000)


class Both(plait.Process):
    state: ClassVar[Mapping[str, Any]] = {"left": int, "right": int}
    out: ClassVar[Any] = {"k": str, "left": int, "right": int}

    def on_left(self, key: Any, record: Any, state: Any, timers: Any) -> Iterator[Any]:
        state.left += 1
        yield key, state.left, state.right

    def on_right(self, key: Any, record: Any, state: Any, timers: Any) -> Iterator[Any]:
        state.right += 1
        yield key, state.left, state.right


def summed(state: list[int], record: Any) -> list[int]:
    state.append(record.v)
    return state


VERBS: dict[str, Callable[[Any], Any]] = {
    "count": lambda keyed: keyed.count(),
    "several": lambda keyed: keyed.aggregate(
        count=plait.count(),
        sum=plait.sum("v"),
        mean=plait.mean("v"),
        least=plait.min("k"),
        first=plait.first("k"),
        last=plait.last("v"),
    ),
    "last_n": lambda keyed: keyed.last_n(3).sum("v"),
    "rows": lambda keyed: keyed.rows(3, every=2).sum("v"),
    "fold": lambda keyed: keyed.fold([], summed, type=object),
    "stateful": lambda keyed: keyed.stateful(
        0, lambda seen, record: (seen + 1, (seen, record.v)), schema={"seen": int, "v": int}
    ),
    "process": lambda keyed: keyed.process(Session()),
}


def records(count: int = 150) -> Rows:
    """Keys that fall silent for a while, times out of order, gaps in all."""
    draw = random.Random(11)
    now, rows = 0, []
    for _ in range(count):
        now += draw.choice((0, 1, 1, 2, 3, 3, 30))
        at = START + plait.seconds(now - draw.choice((0, 0, 0, 2, 9)))
        key = draw.choice("abbbccccdef")
        rows.append((key, ord(key), draw.randrange(8), at))
    return Rows(plait.Schema.of(SCHEMA), rows)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("keys", [("k",), ("n",), ("n", "k")])
def test_as_the_plain_loop(verb: str, keys: tuple[str, ...]) -> None:
    build = VERBS[verb]
    check(
        lambda stream: build(stream.key_by(*keys, ttl="8s")),
        records(),
        event_time="ts",
        out_of_order="3s",
        workers=(1, 2),
        nodes=(2,),
        rescale_at=20,
        epoch_records=4,
    )


def test_two_streams_share_what_they_forget() -> None:
    def build(left: plait.Stream, right: plait.Stream) -> plait.Stream:
        keyed = left.key_by("k", ttl="5s"), right.key_by("k", ttl="5s")
        return plait.connect(*keyed).process(Both())

    both = (records(60), records(40))
    check(build, both, event_time="ts", nodes=(2,), workers=(2,), rescale_at=9, epoch_records=3)


def test_a_record_after_the_ttl_begins_anew_wherever_epochs_end() -> None:
    given = table("""
        k | v | ts
        a | 1 | 0s
        a | 2 | 10s
        b | 3 | 10s
        a | 4 | 20.000001s
        a | 5 | 21s
        b | 6 | 25s
    """)
    right = table("""
        k | sum
        a | 1
        a | 3
        b | 3
        a | 4
        a | 9
        b | 6
    """)
    for size in (1, 2, 100):
        check(
            lambda stream: stream.key_by("k", ttl="10s").sum("v"),
            given,
            event_time="ts",
            expect=right,
            workers=(1,),
            epoch_records=size,
        )


@pytest.mark.parametrize("verb", ["count", "last_n", "rows", "fold", "process"])
def test_memory_is_given_back(verb: str) -> None:
    """After many keys that came once the state is that of the last ones."""

    def bytes_of(ttl: Any) -> int:
        feed = Feed(SCHEMA)
        job = plait.Job("ttl")
        keyed = job.source(feed, event_time="ts").key_by("k", ttl=ttl)
        VERBS[verb](keyed).sink(Capture(), name="out")
        running = start(job, workers=1)
        for at in range(60):
            time = START + plait.minutes(at)
            feed.push([(f"{at}-{n}", n, n, time) for n in range(10)])
        state = running.snapshot()
        while list(state.positions.values()) != [[60, 0]]:
            state = running.snapshot()
        feed.close()
        running.wait()
        return sum(len(data) for _, _, data in state.bins)

    assert bytes_of("5m") < bytes_of("5d") / 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda s: s.key_by("k", ttl="0s"), "key_by at .*must be above zero"),
        (lambda s: s.key_by("k", ttl=5), "key_by at .*5 is not a duration"),
        (lambda s: s.drop("ts").key_by("k", ttl="5s"), "key_by at .*needs event time"),
        (lambda s: s.key_by("k", ttl="5s").tumbling("1s"), "tumbling at .*leave out ttl="),
        (lambda s: s.key_by("k", ttl="5s").session(gap="1s"), "session at .*leave out ttl="),
        (
            lambda s: plait.connect(s.key_by("k", ttl="5s"), s.key_by("k")).process(Both()),
            "process at .*give both key_by the same ttl=",
        ),
    ],
)
def test_mistakes(make: Any, message: str) -> None:
    stream = plait.stream(plait.Items([], schema=SCHEMA), event_time="ts")
    with pytest.raises(plait.JobError, match=message):
        make(stream)


def test_explain_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    stream = plait.stream(plait.Items([], schema=SCHEMA), event_time="ts")
    stream.key_by("k", ttl="1h").count().explain()
    shown = capsys.readouterr().out
    assert "running, keys kept for 1h" in shown
    assert "native: typed state by key and time" in shown
