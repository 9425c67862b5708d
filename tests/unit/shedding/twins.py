"""The equations and algorithms once more, row by row in plain Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Edges = Sequence[tuple[int, int]]


def queries_of(part: int, behind: Edges) -> list[int]:
    return [query for at, query in behind if at == part]


def p(part: int, priority: Sequence[int], behind: Edges) -> int:
    return max(priority[query] for query in queries_of(part, behind))


def min_ac(part: int, floor: Sequence[float], behind: Edges) -> float:
    return max(floor[query] for query in queries_of(part, behind))


def max_ac(part: int, desired: Sequence[float], behind: Edges) -> float:
    return max(desired[query] for query in queries_of(part, behind))


def ratio(taken: float, offered: float) -> float:
    return min(taken / offered, 1.0) if offered > 0.0 else 1.0


def l_ac(rows: Sequence[tuple[float, float]]) -> float:
    return min((ratio(taken, offered) for taken, offered in rows), default=1.0)


def c_ac(part: int, local: Sequence[float], edges: Edges) -> float:
    upstream = [before for before, after in edges if after == part]
    if not upstream:
        return local[part]
    return local[part] * min(c_ac(before, local, edges) for before in upstream)


def uncapped(ac: float, used: float, now: float, full: float) -> float:
    if now == 0.0:
        return 0.0 if ac == 0.0 else full
    return ac * used / now


def r_cpu(ac: float, used: float, now: float, full: float) -> float:
    return min(uncapped(ac, used, now, full), full)


def obt_ac(given: float, used: float, now: float) -> float:
    if now == 0.0:
        return 0.0 if given == 0.0 else 1.0
    if used == 0.0:
        return now if given == 0.0 else 1.0
    return min(now * given / used, 1.0)


def m_obt_cpu(at: int, available: Sequence[float], host: Sequence[int], pr: Sequence[int]) -> float:
    mates = sum(1 for h, q in zip(host, pr, strict=True) if (h, q) == (host[at], pr[at]))
    return max(available[host[at]], 0.0) / mates


def desired(part: int, query: Sequence[float], behind: Edges, edges: Edges) -> float:
    after = [to for before, to in edges if before == part]
    if not after:
        return max(query[at] for at in queries_of(part, behind))
    return max(desired(to, query, behind, edges) for to in after)


def fill(want: Sequence[float], host: Sequence[int], left: Sequence[float]) -> list[float]:
    """Alg. 3, host by host and task by task."""
    given = [0.0] * len(want)
    for at, available in enumerate(left):
        rows = sorted((row for row, h in enumerate(host) if h == at), key=lambda row: want[row])
        cores = max(available, 0.0)
        for done, row in enumerate(rows):
            given[row] = min(want[row], cores / (len(rows) - done))
            cores -= given[row]
    return given


class Needs:
    def __init__(self, rows: Sequence[tuple[float, float, float]]) -> None:
        self.rows = rows

    def cpu(self, row: int, accuracy: float) -> float:
        base, slope, most = self.rows[row]
        return min(base + slope * accuracy, most) if accuracy > 0.0 else 0.0

    def accuracy(self, row: int, cores: float) -> float:
        base, slope, most = self.rows[row]
        paid = min(cores, most) - base
        if slope > 0.0:
            return min(max(paid / slope, 0.0), 1.0)
        return 1.0 if paid >= 0.0 else 0.0


def share(
    needs: Needs,
    part: Sequence[int],
    host: Sequence[int],
    behind: Edges,
    priority: Sequence[int],
    floor: Sequence[float],
    bound: Sequence[float],
    available: Sequence[float],
    rounds: int,
    least_gain: float,
) -> list[float]:
    """What `plait.shedding.share.share` gives."""
    tasks, queries, parts = range(len(part)), range(len(floor)), sorted({at for at, _ in behind})
    accuracy = [min(floor[q], bound[q]) for q in queries]
    passes = {at: max_ac(at, accuracy, behind) for at in parts}
    paid = [needs.cpu(row, passes[part[row]]) for row in tasks]
    left = list(available)
    for row in tasks:
        left[host[row]] -= paid[row]
    reach = {
        at: min((needs.accuracy(r, needs.rows[r][2]) for r in tasks if part[r] == at), default=1.0)
        for at in parts
    }
    cap = [
        max(min(bound[q], *(reach[at] for at, to in behind if to == q)), accuracy[q])
        for q in queries
    ]
    for level in sorted(set(priority), reverse=True):
        active = [q for q in queries if priority[q] == level and cap[q] > accuracy[q]]
        for _ in range(rounds):
            if not active:
                break
            goal: Mapping[int, float] = {
                at: max([passes[at], *(cap[q] for q in queries_of(at, behind) if q in active)])
                for at in parts
            }
            mine = [row for row in tasks if goal[part[row]] > passes[part[row]]]
            want = [needs.cpu(row, goal[part[row]]) - paid[row] for row in mine]
            given = fill(want, [host[row] for row in mine], left)
            reached = dict(goal)
            for row, wish, got in zip(mine, want, given, strict=True):
                if got < wish:
                    to = needs.accuracy(row, paid[row] + got)
                    reached[part[row]] = min(reached[part[row]], to)
            better = {
                q: min(max(min(reached[at] for at, to in behind if to == q), accuracy[q]), cap[q])
                for q in active
            }
            still = [
                q for q in active if better[q] - accuracy[q] >= least_gain and better[q] < cap[q]
            ]
            for q, value in better.items():
                accuracy[q] = value
            for q in active:
                for at, to in behind:
                    if to == q:
                        passes[at] = max(passes[at], accuracy[q])
            for row in mine:
                now = needs.cpu(row, passes[part[row]])
                left[host[row]] -= now - paid[row]
                paid[row] = now
            active = still
    return accuracy


def release(
    amount: float, needs: Sequence[float], priority: Sequence[int], size: Sequence[float]
) -> list[tuple[int, float]]:
    """Alg. 2, mended."""
    candidates: list[int] = []
    released = 0.0
    for level in sorted(set(priority)):
        if amount - released > 0.0:
            rows = [row for row in range(len(needs)) if priority[row] == level and needs[row] > 0]
            candidates += rows
            released += sum(needs[row] for row in rows)
    chosen: list[int] = []
    for row in sorted(candidates, key=lambda row: (-priority[row], -needs[row], -size[row], row)):
        if released - needs[row] >= amount - 1e-9:
            released -= needs[row]
        else:
            chosen.append(row)
    found = [(row, 1.0) for row in chosen]
    if chosen and released > amount:
        last = needs[chosen[-1]]
        found[-1] = (chosen[-1], max(last - (released - amount), 0.0) / last)
    return found


def release_as_printed(
    amount: float,
    needs: Sequence[float],
    priority: Sequence[int],
    *,
    ascending: bool,
    line_14: bool,
) -> list[int]:
    """Alg. 2 with its slips, each of which can be put right by itself."""
    candidates: list[int] = []
    released = 0.0
    for level in sorted(set(priority), reverse=not ascending):
        if amount - released > 0.0:
            rows = [row for row in range(len(needs)) if priority[row] == level]
            candidates += rows
            released += sum(needs[row] for row in rows)
    failed: list[int] = []
    for row in sorted(candidates, key=lambda row: (-priority[row], -needs[row])):
        if released - needs[row] >= amount:
            released -= needs[row]
        else:
            failed.append(row)
            if line_14:
                amount -= needs[row]
    return failed
