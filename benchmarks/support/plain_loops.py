"""The formulations of `cliffs` as plain Python loops: what one writes without an engine.

A loop takes the columns as lists and gives its results as tuples, in the order of the job that does
the same. Times are microseconds and in order. The loops are also what is compared with: results
that differ end the benchmark.
"""

from __future__ import annotations

import heapq
import json
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Given = Mapping[str, list[Any]]
    Results = list[tuple[Any, ...]]
    Loop = Callable[[Given], Results]

SECOND = 1_000_000


def counted(name: str) -> Loop:
    """A running count by a column."""

    def loop(given: Given) -> Results:
        counts: dict[Any, int] = {}
        results = []
        for key in given[name]:
            seen = counts.get(key, 0) + 1
            counts[key] = seen
            results.append((key, seen))
        return results

    return loop


def counted_by_two(given: Given) -> Results:
    counts: dict[tuple[int, int], int] = {}
    results = []
    for key, group in zip(given["key"], given["group"], strict=True):
        both = key, group
        seen = counts.get(both, 0) + 1
        counts[both] = seen
        results.append((key, group, seen))
    return results


def counted_ttl(given: Given, ttl: int) -> Results:
    states: dict[int, tuple[int, int]] = {}
    results = []
    for key, ts in zip(given["key"], given["ts"], strict=True):
        seen, last = states.get(key, (0, ts))
        seen = 1 if ts - last > ttl else seen + 1
        states[key] = seen, ts
        results.append((key, seen))
    return results


def summed(given: Given, by: str = "key") -> Results:
    """A running sum by key: also what `fold` and `stateful` are given to do."""
    sums: dict[int, int] = {}
    results = []
    for key, v in zip(given[by], given["v"], strict=True):
        total = sums.get(key, 0) + v
        sums[key] = total
        results.append((key, total))
    return results


def summed_ttl(given: Given, ttl: int) -> Results:
    states: dict[int, tuple[int, int]] = {}
    results = []
    for key, v, ts in zip(given["key"], given["v"], given["ts"], strict=True):
        total, last = states.get(key, (0, ts))
        total = v if ts - last > ttl else total + v
        states[key] = total, ts
        results.append((key, total))
    return results


def aggregated(given: Given, names: Iterable[str]) -> Results:
    """Several running aggregates: the kinds that `cliffs` asks for, over `v` and `w`."""
    wanted = [*names]
    states: dict[int, dict[str, Any]] = {}
    results = []
    for key, v, w in zip(given["key"], given["v"], given["w"], strict=True):
        state = states.get(key)
        if state is None:
            state = states[key] = {"lv": v, "lw": w, "hv": v, "hw": w, "fv": v, "fw": w}
            state["n"] = state["sv"] = state["sw"] = 0
        state["n"] += 1
        state["sv"] += v
        state["sw"] += w
        state["lv"] = min(state["lv"], v)
        state["hv"] = max(state["hv"], v)
        if len(wanted) > 4:
            state["lw"] = min(state["lw"], w)
            state["hw"] = max(state["hw"], w)
        state["ev"], state["ew"] = v, w
        results.append((key, *(state[name] for name in wanted)))
    return results


def last_sums(given: Given, n: int) -> Results:
    """Sums of the last n values of a key, kept up while values come and go."""
    rows: dict[int, deque[int]] = {}
    sums: dict[int, int] = {}
    results = []
    for key, v in zip(given["few"], given["v"], strict=True):
        ring = rows.get(key)
        if ring is None:
            ring = rows[key] = deque()
        total = sums.get(key, 0) + v
        ring.append(v)
        if len(ring) > n:
            total -= ring.popleft()
        sums[key] = total
        results.append((key, total))
    return results


def row_windows(given: Given, n: int) -> Results:
    """The same, once a key has n values."""
    seen: dict[int, int] = {}
    results = []
    for key, total in last_sums(given, n):
        seen[key] = seen.get(key, 0) + 1
        if seen[key] >= n:
            results.append((key, total))
    return results


def last_highest(given: Given, n: int) -> Results:
    """The greatest of the last n values of a key, by a queue of falling values."""
    queues: dict[int, deque[tuple[int, int]]] = {}
    seen: dict[int, int] = {}
    results = []
    for key, v in zip(given["few"], given["v"], strict=True):
        queue = queues.get(key)
        if queue is None:
            queue = queues[key] = deque()
        number = seen.get(key, 0)
        seen[key] = number + 1
        while queue and queue[-1][1] <= v:
            queue.pop()
        queue.append((number, v))
        if queue[0][0] <= number - n:
            queue.popleft()
        results.append((key, queue[0][1]))
    return results


def tumbling(given: Given, size: int) -> Results:
    counts: dict[int, int] = {}
    results: Results = []
    start = 0
    for key, ts in zip(given["key"], given["ts"], strict=True):
        if ts >= start + size:
            results += [(k, start, n) for k, n in counts.items()]
            counts.clear()
            start = ts - ts % size
        counts[key] = counts.get(key, 0) + 1
    return results + [(k, start, n) for k, n in counts.items()]


def top(given: Given, size: int, k: int) -> Results:
    """The k rows with the greatest values of each window; of equal ones those that came first."""
    rows: list[tuple[int, int, int]] = []
    results: Results = []
    start = 0

    def over() -> None:
        results.extend((v, start) for v, _, _ in sorted(rows, reverse=True))
        rows.clear()

    for number, (v, ts) in enumerate(zip(given["v"], given["ts"], strict=True)):
        if ts >= start + size:
            over()
            start = ts - ts % size
        if len(rows) < k:
            heapq.heappush(rows, (v, -number, ts))
        elif v > rows[0][0]:
            heapq.heapreplace(rows, (v, -number, ts))
    over()
    return results


def first_end(time: int, size: int, every: int) -> int:
    """Where the first of the windows of a time ends."""
    return ((time - size) // every + 1) * every + size


def sliding(given: Given, size: int, every: int) -> Results:
    """Counts that are kept up while panes come and go, in the order of each key's first record."""
    width = every if size % every == 0 else SECOND // 1000
    panes: deque[tuple[int, dict[int, int]]] = deque()
    totals: dict[int, int] = {}
    results: Results = []
    end = 0

    def close() -> None:
        while panes and panes[0][0] < end - size:
            for key, n in panes.popleft()[1].items():
                totals[key] -= n
                if not totals[key]:
                    del totals[key]
        live = {key: None for _, pane in panes for key in pane} if panes else {}
        results.extend((key, end - size, totals[key]) for key in live)

    first = True
    for key, ts in zip(given["group"], given["ts"], strict=True):
        if first:
            first, end = False, first_end(ts, size, every)
        while ts >= end:
            close()
            end += every
        pane = ts - ts % width
        if not panes or panes[-1][0] != pane:
            panes.append((pane, {}))
        counts = panes[-1][1]
        counts[key] = counts.get(key, 0) + 1
        totals[key] = totals.get(key, 0) + 1
    while panes:
        close()
        end += every
        while panes and panes[0][0] < end - size:
            for key, n in panes.popleft()[1].items():
                totals[key] -= n
                if not totals[key]:
                    del totals[key]
    return results


def sliding_distinct(given: Given, size: int, every: int) -> Results:
    panes: deque[tuple[int, dict[int, set[int]]]] = deque()
    results: Results = []
    end = 0

    def close() -> None:
        while panes and panes[0][0] < end - size:
            panes.popleft()
        sets: dict[int, set[int]] = {}
        for _, pane in panes:
            for key, values in pane.items():
                sets.setdefault(key, set()).update(values)
        results.extend((key, end - size, len(values)) for key, values in sets.items())

    for number, (key, v, ts) in enumerate(
        zip(given["group"], given["v"], given["ts"], strict=True)
    ):
        if number == 0:
            end = first_end(ts, size, every)
        while ts >= end:
            close()
            end += every
        pane = ts - ts % every
        if not panes or panes[-1][0] != pane:
            panes.append((pane, {}))
        panes[-1][1].setdefault(key, set()).add(v)
    last = panes[-1][0]
    while end - size <= last:
        close()
        end += every
    return results


def sessions(given: Given, gap: int) -> Results:
    """Counts of sessions of bursts: they end together, in the order of their ends."""
    opened: dict[int, list[int]] = {}
    results: Results = []

    def over(before: int) -> None:
        gone = [(last, number, key) for key, (last, number, _) in opened.items() if last < before]
        for _, _, key in sorted(gone):
            results.append((key, opened.pop(key)[2]))

    least = 0
    for number, (key, ts) in enumerate(zip(given["few"], given["bursts"], strict=True)):
        if ts - least > gap:
            over(ts - gap + 1)
            least = min((one[0] for one in opened.values()), default=ts)
        one = opened.get(key)
        if one is None:
            opened[key] = [ts, number, 1]
        else:
            one[0] = ts
            one[2] += 1
    over(1 << 62)
    return results


def matched(given: Given, table: Mapping[Any, Any], by: str) -> Results:
    return [(v, table.get(key)) for key, v in zip(given[by], given["v"], strict=True)]


def searched(given: Given) -> Results:
    return [(text,) for text in given["text"] if "needle" in text]


def rises(given: Given) -> Results:
    """What the process of `cliffs` does: a record where a value is above the last one's."""
    lasts: dict[int, int] = {}
    results = []
    for key, v in zip(given["key"], given["v"], strict=True):
        if v > lasts.get(key, 0):
            results.append((key, v))
        lasts[key] = v
    return results


def quiet(given: Given, after: int) -> Results:
    """Timers by a heap: the keys that had no record for so long."""
    due: list[tuple[int, int, int]] = []
    lasts: dict[int, int] = {}
    results = []
    for number, (key, ts) in enumerate(zip(given["key"], given["ts"], strict=True)):
        while due and due[0][0] <= ts:
            at, _, silent = heapq.heappop(due)
            if lasts[silent] + after == at:
                results.append((silent, at))
        lasts[key] = ts
        heapq.heappush(due, (ts + after, number, key))
    while due:
        at, _, silent = heapq.heappop(due)
        if lasts[silent] + after == at:
            results.append((silent, at))
    return results


def parsed(given: Given) -> Results:
    return [(json.loads(line)["id"],) for line in given["nested"]]


def doubled(given: Given) -> Results:
    return [(v * 2 + 1,) for v in given["v"]]


def joined(given: Given, ttl: int | None) -> Results:
    """Every record beside those of the other half with its key that came before it."""
    kept: dict[int, deque[tuple[int, int]]] = {}
    results = []
    for key, v, ts in zip(given["fresh"], given["v"], given["ts"], strict=True):
        left = key >> 1
        if key & 1:
            for number, at in kept.get(left, ()):
                if ttl is None or ts - at <= ttl:
                    results.append((left, number, v))
        else:
            kept.setdefault(left, deque()).append((v, ts))
    return results
