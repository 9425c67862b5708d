"""Algorithm 1 and the ladder of relief: one cycle of the controller, pure.

`decide(view, policy, memory, now)` learns what rows cost, shares the CPU of the hosts among the
queries of all jobs (floors first, then by priority), and looks for relief in the order of the
policy: the elastic threads act by themselves on the CPU that is left to them; then tasks move, then
hosts are asked for, then rows are dropped down to the floors. A step is waited for only as long as
the queries stay fresh; until then, what does not fit is dropped. Below a floor nothing is dropped:
an alert is open as long as a floor cannot be met, and sources are held back. The text drops first,
because a move restarts its job; `PAPER` is that order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from plait.protocol.quality import Alert
from plait.shedding import tell
from plait.shedding.costs import learn, price, with_queues
from plait.shedding.hold import hold
from plait.shedding.moves import Relief, Short, plan_moves
from plait.shedding.quality import (
    d,
    depths,
    desired,
    diff_req,
    least,
    m_obt_cpu,
    max_ac,
    min_ac,
    most,
    p,
    slack,
    total,
)
from plait.shedding.scaling import Scale, scale
from plait.shedding.share import Shares, share
from plait.shedding.view import Decision, Grants, Memory, carry

if TYPE_CHECKING:
    from plait.shedding.costs import Prices
    from plait.shedding.view import Bools, Floats, Ints, View
    from plait.shedding.words import QualityPolicy, Step

EPSILON = 1e-6
BEHIND_CYCLES = 3
"""A job must have fallen behind in so many cycles before it is taken to need more."""
LEAST_LAG_S = 1.0
SMALL_OVERLOAD = 0.02
GETS_AGAIN = 0.98
"""How much of what was got once is taken to be had in the next cycle."""
MOST_BIAS = 4.0
SATURATED = 0.85
"""Of the cores a task can use: what explains by itself why its job falls behind."""
FORGIVES = 0.003
"""How much of what a job was seen to need more is forgotten in a cycle."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Room:
    """What hosts have for our tasks."""

    available: Floats
    """aCpu of Alg. 1, line 2: with headroom, never below 0."""
    whole: Floats
    """The same without headroom: what a floor must fit into before an alert opens."""
    others: Floats
    got: Floats
    """What our tasks got there, in the best of the last cycles."""
    warming: Bools


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Goals:
    """What queries may get, and what they did get."""

    floor: Floats
    bound: Floats
    shares: Shares
    broken: Bools
    """Queries whose floor cannot be met."""
    attainable: Floats
    """Of these: the accuracy there is CPU for."""
    fallback: Shares | None
    """The floors alone, by priority, if not all of them fit."""


def decide(
    view: View, policy: QualityPolicy, memory: Memory, now: float
) -> tuple[Decision, Memory]:
    """What changes now, why, and what to remember."""
    count = len(view.parts.key)
    depth = depths(view.edges, count)
    seconds = 1.0 if memory.at is None else max(now - memory.at, 0.0)
    learnt = learn(memory.learnt, view, policy, seconds)
    view = with_queues(view, learnt, depth)
    tasks, queries = view.tasks, view.queries
    room = measure_room(view, policy, memory)
    behind, bias = measure_bias(view, memory, room)
    prices = price(learnt, view, depth, policy, bias)
    priority = p(queries.priority, view.behind, count)
    warm_up = reaches(room.warming[tasks.host], view)
    goals = aim(view, prices, room, warm_up & (not policy.hold_warm_up))
    top = max_ac(goals.bound, view.behind, count)
    full = prices.needs.cpu(top[tasks.part])
    asked = prices.steady.beyond(top[tasks.part])
    live = np.where(prices.greedy[tasks.part], 0.0, asked)
    over, relief = relieve(view, policy, memory, room, goals, prices, priority, live, now)
    keep_before = carry(memory.query_key, queries.key, memory.keep, 1.0)
    rising = carry(memory.query_key, queries.key, memory.rising, 0)
    wanted = goals.shares.accuracy
    scaled = scale_hosts(view, policy, memory, room, live, now)
    waits = stay_fresh(view, policy, room, goals, relief, live, wanted)
    spare = wanted
    if ((keep_before < goals.bound) & (wanted > keep_before)).any():
        less = room.available * (1.0 - policy.raise_spare_ratio)
        spare = shares_of(view, prices, goals.floor, goals.bound, less).accuracy
    keep, rising = hold(
        keep_before,
        rising,
        wanted,
        carry(memory.query_key, queries.key, memory.wanted, 1.0),
        spare,
        goals.floor,
        goals.bound,
        waits,
        queries.lag_s + (1.0 - wanted) * seconds > queries.freshness_s,
        warm_up & policy.hold_warm_up,
        policy,
    )
    sheds = queries.sheds & ~greedy_queries(view, prices)
    keep = np.where(sheds, keep, np.minimum(queries.bound, 1.0))
    changed = np.flatnonzero(np.abs(keep - keep_before) > EPSILON)
    alerts, met = alert(view, memory, goals, policy, now)
    said, denied = tell.changes(
        view, keep_before, keep, changed, room, goals, priority, full, relief.infeasible
    )
    opened, closed = tell.alerts(view, memory.alerts, alerts)
    scale_said = () if scaled.reason is None else (scaled.reason,)
    scale_denied = () if scaled.infeasible is None else (scaled.infeasible,)
    moved = {**memory.moved_at, **{move.job: now for move in relief.moves}}
    decision = Decision(
        keep=keep,
        changed=tuple(changed.tolist()),
        lag_s=queries.lag_s,
        wanted=wanted,
        moves=relief.moves,
        grants=grant(view, room, goals, full),
        hosts_wanted=scaled.wanted,
        drain=scaled.drain,
        alerts=tuple(alerts.values()),
        reasons=(*relief.reasons, *scale_said, *said, *opened, *closed),
        infeasible=(*denied, *scale_denied),
        shares=d(desired(keep, view.behind, view.edges, depth), view.edges),
    )
    return decision, Memory(
        at=now,
        learnt=learnt,
        query_key=queries.key,
        keep=keep,
        wanted=wanted,
        lag_s=queries.lag_s,
        rising=rising,
        host_key=view.hosts.key,
        others=room.others,
        others_before=carry(memory.host_key, view.hosts.key, memory.others, np.nan),
        got=room.got,
        bias=bias,
        behind=behind,
        over=over,
        moved_at={job: at for job, at in moved.items() if now - at < policy.move_gap_s},
        alerts=alerts,
        met=met,
        short=scaled.short,
        idle_since=scaled.idle_since,
    )


def measure_room(view: View, policy: QualityPolicy, memory: Memory) -> Room:
    """Alg. 1, lines 1 to 3. What others use is the median of three cycles. What our tasks got on a
    host they can get again, also if others took it when less was needed: without that, whoever
    drops rows on a full machine loses the cores to neighbours, and must drop more."""
    hosts, tasks = view.hosts, view.tasks
    old, new = memory.host_key, hosts.key
    others = np.clip(hosts.used - hosts.ours, 0.0, hosts.cores)
    one = carry(old, new, memory.others, np.nan)
    two = carry(old, new, memory.others_before, np.nan)
    one = np.where(np.isnan(one), others, one)
    two = np.where(np.isnan(two), one, two)
    middle = np.maximum(np.minimum(others, one), np.minimum(np.maximum(others, one), two))
    lag = carry(memory.query_key, view.queries.key, memory.lag_s, np.inf)
    late = (view.queries.lag_s > lag) & (view.queries.lag_s > LEAST_LAG_S)
    before = np.where(reaches_hosts(late, view), 0.0, carry(old, new, memory.got, 0.0))
    got = np.maximum(hosts.ours, before * GETS_AGAIN)
    most = hosts.cores * (1.0 - policy.headroom_ratio)
    return Room(
        available=np.maximum(most - middle, np.minimum(got, most)),
        whole=np.maximum(hosts.cores - middle, np.minimum(got, hosts.cores)),
        others=others,
        got=got,
        warming=total(~tasks.warm, tasks.host, len(hosts.name)) > 0.0,
    )


def measure_bias(view: View, memory: Memory, room: Room) -> tuple[dict[str, int], dict[str, float]]:
    """Of jobs that fall behind although they should fit: for how many cycles, and by what factor
    they need more than was measured (one interpreter for several stages, a slow disk, a neighbour
    on the same machine). A job that falls behind on a host uses all that it gets there."""
    queries, tasks = view.queries, view.tasks
    lag = carry(memory.query_key, queries.key, memory.lag_s, np.inf)
    falling = (queries.lag_s > lag) & (queries.lag_s > LEAST_LAG_S)
    bias = {
        job: factor / (1.0 + FORGIVES)
        for job, factor in memory.bias.items()
        if factor > 1.0 + FORGIVES
    }
    if not falling.any():
        return {}, bias
    behind: dict[str, int] = {}
    job_of = view.parts.job[tasks.part]
    ours = view.hosts.ours
    room_ratio = np.where(ours > 0.0, room.available / np.where(ours > 0.0, ours, 1.0), np.inf)
    for at in np.unique(queries.job[falling]).tolist():
        job = view.jobs[at]
        behind[job] = memory.behind.get(job, 0) + 1
        ours = job_of == at
        hosts = tasks.host[ours]
        full = tasks.cpu[ours] > SATURATED * tasks.most[ours]
        if behind[job] >= BEHIND_CYCLES and len(hosts) and not full.any():
            factor = float(room_ratio[hosts].min())
            bias[job] = min(max(factor, bias.get(job, 1.0)), MOST_BIAS)
    return behind, bias


def greedy_queries(view: View, prices: Prices) -> Bools:
    """Queries that only sources feed which are read as fast as their rows are taken."""
    greedy = prices.greedy[view.behind.left].astype(float)
    return least(greedy, view.behind.right, len(view.queries.key), 0.0) > 0.0


def shares_of(
    view: View, prices: Prices, floor: Floats, bound: Floats, available: Floats
) -> Shares:
    return share(
        prices.needs,
        view.tasks.part,
        view.tasks.host,
        view.behind,
        view.queries.priority,
        floor,
        bound,
        available,
    )


def aim(view: View, prices: Prices, room: Room, lowered: Bools) -> Goals:
    """Alg. 1, lines 4 to 19, and whether the floors can be met at all. `lowered`: queries that are
    to be at their floors now."""
    queries = view.queries
    bound = np.where(
        lowered & queries.sheds, np.minimum(queries.floor, queries.bound), queries.bound
    )
    floor = np.where(greedy_queries(view, prices), 0.0, np.minimum(queries.floor, bound))
    shares = shares_of(view, prices, floor, bound, room.available)
    lowest = min_ac(floor, view.behind, len(view.parts.key))[view.tasks.part]
    needs = prices.needs
    load = total(needs.cpu(lowest), view.tasks.host, len(room.whole))
    beyond = needs.beyond(lowest) > needs.most + EPSILON
    if not beyond.any() and (load <= room.whole + EPSILON).all():
        nothing = np.zeros(len(bound), dtype=bool)
        return Goals(
            floor=floor,
            bound=bound,
            shares=shares,
            broken=nothing,
            attainable=floor,
            fallback=None,
        )
    fallback = shares_of(view, prices, np.zeros(len(floor)), floor, room.whole)
    broken = fallback.accuracy < floor - EPSILON
    given_up = broken & queries.suspends & queries.sheds
    if given_up.any():
        bound = np.where(given_up, 0.0, bound)
        floor = np.where(given_up, 0.0, floor)
        shares = shares_of(view, prices, floor, bound, room.available)
    return Goals(
        floor=floor,
        bound=bound,
        shares=shares,
        broken=broken,
        attainable=fallback.accuracy,
        fallback=fallback,
    )


def relieve(
    view: View,
    policy: QualityPolicy,
    memory: Memory,
    room: Room,
    goals: Goals,
    prices: Prices,
    priority: Ints,
    live: Floats,
    now: float,
) -> tuple[Ints, Relief]:
    """Moves off the hosts that are short; those for which it is too early are only foreseen.

    Where the floors do not fit, tasks move at once (Alg. 1, lines 7 to 14); where only the full
    accuracy does not, after some cycles, and not in the order of the text.
    """
    tasks, hosts = view.tasks, view.hosts
    count = len(hosts.name)
    capped = np.minimum(live, tasks.most)
    beyond = live - capped
    load = total(capped, tasks.host, count)
    lowest = min_ac(goals.floor, view.behind, len(view.parts.key))
    floors = prices.needs.cpu(lowest[tasks.part])
    low = total(floors, tasks.host, count)
    stuck = total(beyond, tasks.host, count)
    short = load > room.available * (1.0 + policy.overload_ratio) + EPSILON
    short |= stuck > policy.overload_ratio * room.available + EPSILON
    # Where rows are dropped, less is enough to move something.
    held = carry(memory.query_key, view.queries.key, memory.keep, 1.0) < goals.bound
    drops = reaches_hosts(held, view) & (load > room.available * (1.0 + SMALL_OVERLOAD))
    short |= drops
    over = np.where(short, carry(memory.host_key, hosts.key, memory.over, 0) + 1, 0)
    urgent = low > room.available + EPSILON
    first = before_shedding("move", policy)
    wants = urgent | (short if first else np.zeros(count, dtype=bool))
    if not wants.any() or "move" not in policy.order:
        return over, Relief()
    differs = diff_req(capped, np.minimum(floors, capped))
    obtained = m_obt_cpu(room.available - low, tasks.host, priority[tasks.part])
    by_slack = np.argsort(-slack(differs, obtained, tasks.host, count), kind="stable")
    shorts: list[Short] = []
    for host in by_slack[wants[by_slack]].tolist():
        early = 0 if urgent[host] else max(policy.overload_cycles - int(over[host]), 0)
        enough = first and bool(short[host])
        if enough and stuck[host] > EPSILON:
            # More than its tasks can use here: only these tasks can be cut.
            over_full = np.where(beyond > EPSILON, live, 0.0)
            shorts.append(
                Short(host=host, cores=float(stuck[host]), needs=over_full, in_s=float(early))
            )
        cores = float((load if enough else low)[host] - room.available[host])
        if cores > EPSILON:
            if enough:
                cores += policy.raise_spare_ratio * float(room.available[host])
            needs = capped if enough else floors
            shorts.append(Short(host=host, cores=cores, needs=needs, in_s=float(early)))
    resting = frozenset(
        at
        for at, job in enumerate(view.jobs)
        if at in view.changing or now - memory.moved_at.get(job, -np.inf) < policy.move_gap_s
    )
    plans = plan_moves(
        shorts,
        load if first else low,
        room.available,
        priority,
        prices.known,
        room.warming,
        resting,
        view,
        policy,
    )
    names = {hosts.name[one.host] for one in shorts if one.in_s == 0.0}
    moves = tuple(move for move in plans.moves if move.from_host in names)
    reasons = tuple(
        reason
        for move, reason in zip(plans.moves, plans.reasons, strict=True)
        if move.from_host in names
    )
    return over, Relief(
        moves=moves,
        relieved=plans.relieved,
        seconds=plans.seconds,
        reasons=reasons,
        infeasible=plans.infeasible,
    )


def scale_hosts(
    view: View, policy: QualityPolicy, memory: Memory, room: Room, live: Floats, now: float
) -> Scale:
    if "nodes" not in policy.order:
        return Scale()
    return scale(
        view,
        live,
        room.available,
        room.warming,
        memory.short,
        memory.idle_since,
        policy.headroom_ratio,
        now,
    )


def before_shedding(step: Step, policy: QualityPolicy) -> bool:
    """Whether a step of the ladder comes before anything is dropped."""
    return step in policy.order and policy.order.index(step) < policy.order.index("shed")


def reaches(tasks: Bools, view: View) -> Bools:
    """Queries with a task for which something holds."""
    by_part = most(tasks.astype(float), view.tasks.part, len(view.parts.key), 0.0)
    by_query = most(by_part[view.behind.left], view.behind.right, len(view.queries.key), 0.0)
    return by_query > 0.0


def reaches_hosts(queries: Bools, view: View) -> Bools:
    """Hosts with a task of such a query."""
    by_part = most(
        queries[view.behind.right].astype(float), view.behind.left, len(view.parts.key), 0.0
    )
    by_host = most(by_part[view.tasks.part], view.tasks.host, len(view.hosts.name), 0.0)
    return by_host > 0.0


def stay_fresh(
    view: View,
    policy: QualityPolicy,
    room: Room,
    goals: Goals,
    relief: Relief,
    live: Floats,
    wanted: Floats,
) -> Bools:
    """Queries that stay fresh until a step relieves them: nothing of them is dropped before. In
    each second until then a query falls behind by what there is no CPU for."""
    tasks, queries = view.tasks, view.queries
    count = len(view.hosts.name)
    if not before_shedding("move", policy) or not count:
        return np.zeros(len(queries.key), dtype=bool)
    load = total(np.minimum(live, tasks.most), tasks.host, count)
    stuck = total(np.maximum(live - tasks.most, 0.0), tasks.host, count)
    until = np.where((load > room.available + EPSILON) | (stuck > EPSILON), np.inf, 0.0)
    for host, seconds in relief.relieved.items():
        until[host] = seconds
    if view.coming:
        until = np.minimum(until, policy.host_s)
    by_task = until[tasks.host]
    if view.changing:
        moving = np.isin(view.parts.job[tasks.part], list(view.changing))
        by_task = np.where(moving, np.minimum(by_task, policy.move_s), by_task)
    by_part = most(by_task, tasks.part, len(view.parts.key), 0.0)
    by_query = most(by_part[view.behind.left], view.behind.right, len(queries.key), 0.0)
    # What no host limits is limited by the task itself, and no move helps.
    alone = (by_query == 0.0) & (wanted < goals.bound)
    some = np.isfinite(by_query)
    missing = np.where(some, (1.0 - wanted) * np.where(some, by_query, 0.0), np.inf)
    fresh: Bools = queries.lag_s + missing <= queries.freshness_s
    waits: Bools = fresh & ~alone & (by_query > 0.0)
    return waits


def alert(
    view: View, memory: Memory, goals: Goals, policy: QualityPolicy, now: float
) -> tuple[dict[int, Alert], dict[int, int]]:
    """An alert for each query whose floor cannot be met, open since it began. It closes when the
    floor could be met in some cycles in a row: for how many it could be, by query."""
    queries = view.queries
    found: dict[int, Alert] = {}
    met: dict[int, int] = {}
    broken = set(queries.key[goals.broken].tolist())
    known = set(queries.key.tolist()) if memory.alerts else set()
    rows = {int(queries.key[at]): at for at in np.flatnonzero(goals.broken).tolist()}
    for key, before in memory.alerts.items():
        if key not in broken and key in known:
            met[key] = memory.met.get(key, 0) + 1
            if met[key] < policy.raise_cycles:
                found[key] = before
    for key, at in rows.items():
        old = memory.alerts.get(key)
        attainable = round(float(goals.attainable[at]), 3)
        floor = float(min(queries.floor[at], queries.bound[at]))
        gives_up = bool(queries.suspends[at] and queries.sheds[at])
        then = "it gets nothing until there is" if gives_up else "its sources are held back"
        found[key] = Alert(
            job=view.jobs[int(queries.job[at])],
            query=queries.label[at],
            since=now if old is None else old.since,
            floor=floor,
            attainable=attainable,
            because=f"it needs {floor:.2f} and there is CPU for {attainable:.2f}; {then}",
        )
    return found, {key: count for key, count in met.items() if key in found}


def grant(view: View, room: Room, goals: Goals, full: Floats) -> Grants:
    """The cores each node may use, on hosts that are short and have nodes of several jobs: what its
    tasks were given, and an even part of the rest."""
    tasks = view.tasks
    count = len(view.hosts.name)
    load = total(full, tasks.host, count)
    short = load > room.available + EPSILON
    if not short.any():
        return Grants()
    paid = goals.shares.paid
    if goals.fallback is not None:
        unfit = goals.shares.left < 0.0
        paid = np.where(unfit[tasks.host], goals.fallback.paid, paid)
    given = total(paid, tasks.host, count)
    rows = np.flatnonzero(short[tasks.host])
    job = view.parts.job[tasks.part[rows]]
    order = np.lexsort((tasks.rank[rows], job, tasks.host[rows]))
    rows, job = rows[order], job[order]
    host, rank = tasks.host[rows], tasks.rank[rows]
    new = np.ones(len(rows), dtype=bool)
    new[1:] = (np.diff(host) != 0) | (np.diff(job) != 0) | (np.diff(rank) != 0)
    first = np.flatnonzero(new)
    cores = np.add.reduceat(paid[rows], first)
    nodes = np.bincount(host[first], minlength=count)
    rest = np.maximum(room.available - given, 0.0) / np.maximum(nodes, 1)
    several = nodes[host[first]] > 1
    return Grants(
        job=job[first][several],
        rank=rank[first][several],
        cores=(cores + rest[host[first]])[several],
    )
