"""What `cliffs` measures: natural formulations, each with a loop and a neighbour.

A formulation is a job over one source of rows whose times are 10 us apart, and what its results
are as tuples of some columns. The neighbour is the formulation that a user would expect to cost
about the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

import plait
from benchmarks.support import plain_loops as loops
from plait import col

if TYPE_CHECKING:
    from collections.abc import Callable

STEP_US = 10
KEYS = 10_000
MS, S = 1000, 1_000_000
HALF = plait.seconds(0.05)
WIDE = ("n", "sv", "lv", "hv", "ev", "sw", "lw", "hw", "ew", "fv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Formulation:
    """A job and the loop beside it. `rows` are those of a quick round: about 0.1 s."""

    name: str
    build: Callable[[Any], Any]
    loop: loops.Loop
    columns: tuple[str, ...]
    beside: str = ""
    """The neighbour's name."""
    time: str = "ts"
    rows: int = 1 << 19


def data(rows: int) -> Any:
    """A pyarrow table of all columns that the formulations read."""
    import pyarrow as pa

    random = np.random.default_rng(11)
    number = np.arange(rows)
    key = random.integers(0, KEYS, rows)
    texts = np.array([f"{'a line of a log that says very little ' * 2}"[:71] for _ in range(100)])
    words = np.where(number[:100] == 7, "needle", "nothin")
    text = np.char.add(texts, words)
    codes = np.array([code(k) for k in range(KEYS)], dtype=object)
    longs = np.array([f"{'x' * 48}{k:012}" for k in range(KEYS)], dtype=object)
    nested = [f'{{"id": {i}, "tags": ["a", "b{i}", "c"], "at": {{"x": 1}}}}' for i in range(1000)]
    return pa.table(
        {
            "key": key,
            "group": key % 100,
            "few": key % 10,
            "fresh": number,
            "code": pa.array(codes[key]),
            "long": pa.array(longs[key]),
            "fresh_code": pa.array(number).cast("string"),
            "v": random.integers(-1000, 1000, rows),
            "w": random.integers(-1000, 1000, rows),
            "ts": (number * STEP_US).astype("datetime64[us]"),
            "bursts": (number * STEP_US + number // 5000 * 2 * S).astype("datetime64[us]"),
            "text": pa.array(text[number % 100]),
            "nested": pa.array(np.array(nested, dtype=object)[number % 1000]),
        }
    )


def add_v(total: int, record: Any) -> int:
    made: int = total + record.v
    return made


def sum_state(total: int, record: Any) -> tuple[int, dict[str, int]]:
    total += record.v
    return total, {"key": record.key, "total": total}


class Rises(plait.Process):
    state: ClassVar = {"last": int}
    out: ClassVar = {"key": int, "v": int}

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> Any:
        if record.v > state.last:
            yield key, record.v
        state.last = record.v


class Quiet(plait.Process):
    """The keys without a record for 50 ms."""

    state: ClassVar = {"due": plait.Timestamp}
    out: ClassVar = {"key": int, "at": plait.Timestamp}

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> None:
        state.due = record.ts + HALF
        timers.at(state.due)

    def on_timer(self, key: Any, at: Any, state: Any, timers: Any) -> Any:
        if at == state.due:
            yield key, at


async def odd(v: int) -> int:
    return v * 2 + 1


def odd_plainly(v: int) -> int:
    return v * 2 + 1


def last_sum(stream: Any, n: int) -> Any:
    return stream.key_by("few").last_n(n).sum("v")


def many(stream: Any, names: tuple[str, ...]) -> Any:
    kinds = {"s": plait.sum, "l": plait.min, "h": plait.max, "e": plait.last, "f": plait.first}
    made = {name: kinds[name[0]](name[1]) for name in names if name != "n"}
    return stream.key_by("key").aggregate(n=plait.count(), **made)


def price_list(by: str) -> dict[Any, int]:
    """A price for every second key."""
    names = {"key": lambda k: k, "code": code}
    return {names[by](k): k * 3 for k in range(0, KEYS, 2)}


def code(key: int) -> str:
    return f"item-{key:06}"


def enriched(stream: Any, by: str) -> Any:
    import pyarrow as pa

    prices = price_list(by)
    return stream.enrich(pa.table({by: [*prices], "price": [*prices.values()]}), on=by)


def halves(stream: Any, ttl: str | None) -> Any:
    """Each second record meets the one before it."""
    named = stream.with_columns(pair=col("fresh") // 2, side=col("fresh") % 2)
    left = named.filter(col("side") == 0).select("pair", "ts", left="v")
    right = named.filter(col("side") == 1).select("pair", "ts", right="v")
    return left.join(right, on="pair", **({"ttl": ttl} if ttl else {}))


def counts(stream: Any, keys: tuple[str, ...]) -> Any:
    return stream.key_by(*keys).count()


def sliding(stream: Any, size: str, every: str) -> Any:
    return stream.key_by("group").sliding(size, every=every).count()


def native() -> list[Formulation]:
    """Formulations without Python for a record."""
    f = Formulation
    fours = WIDE[:4]
    return [
        f(
            name="count",
            build=lambda s: s.key_by("key").count(),
            loop=loops.counted("key"),
            columns=("key", "count"),
            rows=1 << 21,
        ),
        f(
            name="count_ttl",
            build=lambda s: s.key_by("key", ttl="100ms").count(),
            loop=partial(loops.counted_ttl, ttl=100 * MS),
            columns=("key", "count"),
            beside="count",
        ),
        *(
            f(
                name=f"count_by_{key}",
                build=partial(counts, keys=(key,)),
                loop=loops.counted(key),
                columns=(key, "count"),
                beside="count",
            )
            for key in ("code", "long", "fresh", "fresh_code")
        ),
        f(
            name="count_by_two",
            build=partial(counts, keys=("key", "group")),
            loop=loops.counted_by_two,
            columns=("key", "group", "count"),
            beside="count",
        ),
        *(
            f(
                name=f"aggregates_{len(names)}",
                build=partial(many, names=names),
                loop=partial(loops.aggregated, names=names),
                columns=("key", *names),
                beside="count",
            )
            for names in (fours, WIDE)
        ),
        f(
            name="sum",
            build=lambda s: s.key_by("group").sum("v"),
            loop=partial(loops.summed, by="group"),
            columns=("group", "sum"),
            rows=1 << 21,
        ),
        *(
            f(
                name=f"last_n_{n}",
                build=partial(last_sum, n=n),
                loop=partial(loops.last_sums, n=n),
                columns=("few", "sum"),
                beside="sum",
                rows=1 << 18,
            )
            for n in (10, 100, 1000, 10_000)
        ),
        f(
            name="last_n_1000_max",
            build=lambda s: s.key_by("few").last_n(1000).max("v"),
            loop=partial(loops.last_highest, n=1000),
            columns=("few", "max"),
            beside="sum",
            rows=1 << 18,
        ),
        f(
            name="rows_1000",
            build=lambda s: s.key_by("few").rows(1000, every=1).sum("v"),
            loop=partial(loops.row_windows, n=1000),
            columns=("few", "sum"),
            beside="sum",
            rows=1 << 18,
        ),
        f(
            name="tumbling_count",
            build=lambda s: s.key_by("key").tumbling("1s").count(),
            loop=partial(loops.tumbling, size=S),
            columns=("key", "window_start", "count"),
            rows=1 << 21,
        ),
        f(
            name="tumbling_top_3",
            build=lambda s: s.tumbling("1s").top(3, by="v"),
            loop=partial(loops.top, size=S, k=3),
            columns=("v", "window_start"),
            beside="tumbling_count",
        ),
        f(
            name="session_few_keys",
            build=lambda s: s.key_by("few").session(gap="1s").count(),
            loop=partial(loops.sessions, gap=S),
            columns=("few", "count"),
            beside="tumbling_count",
            time="bursts",
        ),
        *(
            f(
                name=f"sliding_{every}",
                build=partial(sliding, size="1s", every=every),
                loop=partial(loops.sliding, size=S, every=every_us),
                columns=("group", "window_start", "count"),
                beside="sliding_100ms" if every_us < 100 * MS else "",
                rows=1 << 19,
            )
            for every, every_us in (("100ms", 100 * MS), ("10ms", 10 * MS), ("7ms", 7 * MS))
        ),
        f(
            name="sliding_distinct",
            build=lambda s: s.key_by("group").sliding("1s", every="100ms").distinct("v"),
            loop=partial(loops.sliding_distinct, size=S, every=100 * MS),
            columns=("group", "window_start", "distinct"),
            beside="sliding_100ms",
        ),
        f(
            name="join",
            build=partial(halves, ttl=None),
            loop=partial(loops.joined, ttl=None),
            columns=("pair", "left", "right"),
        ),
        f(
            name="join_ttl",
            build=partial(halves, ttl="1s"),
            loop=partial(loops.joined, ttl=S),
            columns=("pair", "left", "right"),
            beside="join",
        ),
        f(
            name="contains",
            build=lambda s: s.filter(col("text").contains("needle")).select("text"),
            loop=loops.searched,
            columns=("text",),
        ),
        *(
            f(
                name=f"enrich_by_{key}",
                build=partial(enriched, by=key),
                loop=partial(loops.matched, table=price_list(key), by=key),
                columns=("v", "price"),
                beside="enrich_by_key" if key != "key" else "",
            )
            for key in ("key", "code")
        ),
    ]


def python() -> list[Formulation]:
    """Those that call a Python function, or read text, for each record; on one core."""
    f = Formulation
    sums: dict[str, Any] = {"loop": loops.summed, "columns": ("key", "value"), "rows": 1 << 17}
    return [
        f(
            name="fold",
            build=lambda s: s.key_by("key").fold(0, add_v, type=int, route="inline"),
            **sums,
        ),
        f(
            name="fold_ttl",
            build=lambda s: s.key_by("key", ttl="100ms").fold(0, add_v, type=int, route="inline"),
            loop=partial(loops.summed_ttl, ttl=100 * MS),
            columns=("key", "value"),
            beside="fold",
            rows=1 << 16,
        ),
        f(
            name="stateful",
            build=lambda s: s.key_by("key").stateful(
                0, sum_state, schema={"key": int, "total": int}, route="inline"
            ),
            loop=loops.summed,
            columns=("key", "total"),
            beside="fold",
            rows=1 << 17,
        ),
        f(
            name="process",
            build=lambda s: s.key_by("key").process(Rises(), route="inline"),
            loop=loops.rises,
            columns=("key", "v"),
            beside="fold",
            rows=1 << 16,
        ),
        f(
            name="process_timers",
            build=lambda s: s.key_by("key").process(Quiet(), route="inline"),
            loop=partial(loops.quiet, after=50 * MS),
            columns=("key", "at"),
            beside="process",
            rows=1 << 15,
        ),
        f(
            name="map",
            build=lambda s: s.with_columns(v=odd_plainly, route="inline").select("v"),
            loop=loops.doubled,
            columns=("v",),
            rows=1 << 18,
        ),
        f(
            name="async_without_await",
            build=lambda s: s.with_columns_async(v=odd).select("v"),
            loop=loops.doubled,
            columns=("v",),
            beside="map",
            rows=1 << 15,
        ),
    ]
