"""Jobs for the tests of worker processes: functions of every kind, and what can go wrong."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator  # noqa: TC003 (an annotation that is read)
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import plait

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = 500


def given(rows: int = ROWS) -> pa.Table:
    numbers = range(rows)
    return pa.table(
        {
            "n": list(numbers),
            "f": [n / 4 for n in numbers],
            "b": [n % 3 == 0 for n in numbers],
            "s": [None if n % 7 == 0 else "é" * (n % 5) for n in numbers],
            "y": [bytes([n % 256]) * (n % 4) for n in numbers],
            "t": pa.array([n * 1_000_003 for n in numbers], pa.timestamp("us", "UTC")),
        }
    )


@dataclass(slots=True)
class Item:
    n: int
    s: str | None


class Bad(Exception):
    """An exception of the user's, with an __init__ that pickle cannot repeat."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(f"{number}: {why}")


def same(record: Any) -> Any:
    return record


def itemised(record: Any) -> Item:
    return Item(record.n * 2, record.s)


def odd(record: Any) -> bool:
    return bool(record.n % 2)


def odd_or_round(record: Any) -> bool:
    return bool(record.n % 2 or record.n % 10 == 0)


def twice(record: Any) -> list[Any]:
    return [record, record]


def several(record: Any) -> Iterator[Item]:
    for i in range(record.n % 4):
        yield Item(i, f"{record.n}")


def doubled(n: int, f: float) -> float:
    return 2 * f + n


def length(s: str | None) -> int | None:
    return None if s is None else len(s)


def picky(record: Any) -> Any:
    if record.n % 100 == 99:
        raise ValueError(f"{record.n} is refused")
    return record


def very_picky(record: Any) -> Any:
    if record.n % 50 == 7:
        raise Bad(record.n, "no")
    return record


def wrong(record: Any) -> Any:
    return {"n": "text"} if record.n == 123 else {"n": record.n}


def half_of(table: Any) -> Any:
    return table.slice(0, table.num_rows // 2)


def refused_table(table: Any) -> Any:
    if 321 in table["n"].to_pylist():
        raise RuntimeError("321 is in it")
    return table


def dies_at(n: int) -> None:
    if n in (300, 310):
        os.kill(os.getpid(), signal.SIGKILL)


def often_deadly(record: Any) -> Item:
    if record.n in range(295, 300):
        os.kill(os.getpid(), signal.SIGKILL)
    return Item(record.n, None)


def deadly_rest(n: int) -> int:
    dies_at(n)
    return n % 3


def deadly_pair(record: Any) -> Iterator[Item]:
    yield Item(record.n, "first")
    dies_at(record.n)
    yield Item(record.n, "second")


def deadly_kept(record: Any) -> bool:
    dies_at(record.n)
    return bool(record.n % 5)


def deadly_item(record: Any) -> Item:
    dies_at(record.n)
    return Item(record.n, record.s)


def deadly_table(table: Any) -> Any:
    for n in table["n"].to_pylist():
        dies_at(n)
    return table


def endless(record: Any) -> Any:
    while record.n == 300:
        time.sleep(0.01)
    return record


def leaves(record: Any) -> Any:
    if record.n == 300:
        raise SystemExit(3)
    return record


def large(record: Any) -> Any:
    return {"n": record.n, "s": "x" * 3_000_000 if record.n % 100 == 50 else None}


CHAINS: dict[str, Callable[[Any, str], Any]] = {
    "map": lambda s, route: s.map(itemised, route=route),
    "map of all types": lambda s, route: s.map(same, schema=s.schema, route=route),
    "filter": lambda s, route: s.filter(odd, route=route),
    "flat_map": lambda s, route: s.flat_map(several, route=route),
    "columns": lambda s, route: s.with_columns(d=doubled, l=length, route=route),
    "columns in place": lambda s, route: s.with_columns(f=doubled, route=route),
    "batches": lambda s, route: s.map_batches(half_of, route=route),
    "three in a row": lambda s, route: (
        s.filter(odd, route=route).flat_map(several, route=route).map(itemised, route=route)
    ),
    "skip": lambda s, route: s.map(picky, on_error="skip", schema=s.schema, route=route),
    "dead letters in a row": lambda s, route: (
        s.map(picky, on_error="dead_letter", schema=s.schema, route=route)
        .filter(odd, route=route)
        .map(very_picky, on_error="dead_letter", schema=s.schema, route=route)
        .map_batches(refused_table, on_error="dead_letter", route=route)
    ),
    "a result that does not fit": lambda s, route: s.map(
        wrong, schema={"n": int}, on_error="dead_letter", route=route
    ),
    "larger than its slot": lambda s, route: s.map(
        large, schema={"n": int, "s": str | None}, route=route
    ).map(itemised, route=route),
}

DEADLY: dict[str, Callable[[Any, str], Any]] = {
    "map": lambda s, policy: s.map(deadly_item, on_error=policy, route="pool"),
    "filter": lambda s, policy: s.filter(deadly_kept, on_error=policy, route="pool"),
    "flat_map": lambda s, policy: s.flat_map(deadly_pair, on_error=policy, route="pool"),
    "columns": lambda s, policy: s.with_columns(r=deadly_rest, on_error=policy, route="pool"),
    "behind others": lambda s, policy: (
        s.filter(odd_or_round, route="pool")
        .flat_map(twice, schema=s.schema, route="pool")
        .map(deadly_item, on_error=policy, route="pool")
    ),
}
"""Each kills its process at the records 300 and 310."""

ENDINGS: dict[str, Callable[[Any, str], Any]] = {
    "raises": lambda s, route: s.map(picky, schema=s.schema, route=route),
    "raises behind another": lambda s, route: s.filter(odd, route=route).map(
        very_picky, schema=s.schema, route=route
    ),
    "does not fit": lambda s, route: s.map(wrong, schema={"n": int}, route=route),
    "a batch fails": lambda s, route: s.map_batches(refused_table, route=route),
    "a later one fails earlier": lambda s, route: s.map(picky, schema=s.schema, route=route).map(
        very_picky, schema=s.schema, route=route
    ),
}


def job_of(chain: Callable[[Any, str], Any], route: str, rows: int = ROWS) -> plait.Job:
    job = plait.Job("pooled")
    chain(job.source(plait.Table(given(rows)), name="given"), route).sink(
        plait.Collect(), name="out"
    )
    return job
