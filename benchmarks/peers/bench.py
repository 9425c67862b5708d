"""plait beside the engines that one would install instead, on the keyed count and on NEXMark.

Every engine has a program of its own, written as its documentation recommends (`README.md`), and
runs on the same first events of one data set: as many of them as it can do in a few seconds, which
stands beside its rate. The rate is in records that the query reads, over the time of the run
without starting up. Before anything is timed, the rows of every program are compared with those of
a plain loop by a digest; wrong ones are `ok: false`, and if plait's are wrong the benchmark fails.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.nexmark.schema import Shape
from benchmarks.peers.data import folder
from benchmarks.peers.programs import PEERS, Peer, Session, Unavailable
from benchmarks.peers.serve import Request
from benchmarks.support.common import (
    Budget,
    CheckFailed,
    Options,
    Sample,
    interleave,
    millions,
    progress,
    ratio,
)

if TYPE_CHECKING:
    from collections.abc import Callable

QUERIES = {
    "count": ("bids",),
    "q1": ("bids",),
    "q2": ("bids",),
    "q3": ("auctions", "persons"),
    "q5": ("bids",),
    "q7": ("bids",),
    "q8": ("persons", "auctions"),
    "fee": ("bids",),
    "score": ("bids",),
}
SIZES = (100_000, 500_000, 2_000_000, 10_000_000)
QUICK_EVENTS = 2_000_000
CHECKED_EVENTS = 2_000_000
"""More are not checked, but for plait's: the rows of all programs would not fit into memory."""
RUN_S = 8.0
"""No run should take longer: a slow program gets fewer of the events."""
QUICK_RUN_S = 2.0
SHORT_S = 0.25
REPEATS = 3
"""How often a run that is short is done for one value."""


@dataclass(slots=True)
class Case:
    """A query on a peer with a number of workers."""

    session: Session
    query: str
    workers: int
    events: int = 0
    ok: bool = True

    @property
    def peer(self) -> Peer:
        return self.session.peer

    @property
    def name(self) -> str:
        return f"{self.peer.name} {self.workers}"

    @property
    def records(self) -> int:
        return sum(Shape(events=self.events).rows(stream) for stream in QUERIES[self.query])

    def ask(self, events: int, check: bool) -> dict[str, Any]:
        request = Request(
            query=self.query,
            workers=self.workers,
            folder=folder(events, self.peer.form),
            check=check,
        )
        return self.session.ask(request)

    def rate(self) -> float:
        """Records a second; of several runs where one is short."""
        try:
            seconds = [float(self.ask(self.events, check=False)["seconds"])]
            while len(seconds) < REPEATS and seconds[0] < SHORT_S:
                seconds.append(float(self.ask(self.events, check=False)["seconds"]))
        except Unavailable as reason:
            self.ok = False
            progress(f"{self.name}: {reason}")
            return 0.0
        return self.records / median(seconds)


class Reference:
    """The right digests: those of the loop, which plait is held against as well."""

    def __init__(self, loop: Session) -> None:
        self.loop = loop
        self.known: dict[tuple[str, int], str] = {}

    def digest(self, query: str, events: int) -> str:
        if (query, events) not in self.known:
            request = Request(
                query=query, workers=1, folder=folder(events, self.loop.peer.form), check=True
            )
            self.known[query, events] = str(self.loop.ask(request)["digest"])
        return self.known[query, events]

    def of(self, case: Case, events: int) -> str:
        last = case.query == "count" and case.peer.last_counts
        return self.digest("last_count" if last else case.query, events)


def climb(case: Case, most: int, run_s: float, reference: Reference) -> None:
    """Finds how many events the program can do in the time, and checks its rows on the way.

    A first run is slow where code is compiled while it runs, and the rows of a check cost time: the
    size goes by a second run.
    """
    least = min(case.peer.least_events, most)
    sizes = [size for size in SIZES if least <= size <= most]
    for i, size in enumerate(sizes):
        progress(f"{case.query} {case.name}: {size:,} events")
        case.events = size
        if size <= CHECKED_EVENTS or case.peer.name == "plait":
            check(case, reference)
        if i + 1 < len(sizes):
            seconds = float(case.ask(size, check=False)["seconds"])
            if seconds * sizes[i + 1] / size > run_s * case.peer.patience:
                break


def check(case: Case, reference: Reference) -> None:
    if case.ask(case.events, check=True)["digest"] == reference.of(case, case.events):
        return
    if case.peer.name == "plait":
        raise CheckFailed(f"{case.query}: plait differs from the loop")
    case.ok = False


def measure(
    query: str,
    sessions: list[Session],
    reference: Reference,
    options: Options,
    missing: dict[str, str],
) -> dict[str, dict[str, Any]]:
    """The figures of each peer for a query."""
    most = options.pick(QUICK_EVENTS, SIZES[-1])
    run_s = QUICK_RUN_S if options.quick else RUN_S
    cases: list[Case] = []
    for session in sessions:
        if session.peer.queries is not None and query not in session.peer.queries:
            continue
        for workers in session.peer.workers:
            case = Case(session, query, workers)
            try:
                climb(case, most, run_s, reference)
                for _ in range(session.peer.warm_runs):
                    case.ask(case.events, check=False)
                cases.append(case)
            except Unavailable as reason:
                missing[f"{case.name} {query}"] = str(reason)
                progress(f"{case.name}: {reason}")
    made: dict[str, Callable[[], float]] = {case.name: case.rate for case in cases}
    found = interleave(made, options.repeat(1, 3), Budget(3600.0), query)
    if not any(case.peer.name == "plait" for case in cases):
        raise CheckFailed(f"{query}: plait failed; {missing}")
    return figures_of(cases, found)


def figures_of(cases: list[Case], found: dict[str, Sample]) -> dict[str, dict[str, Any]]:
    figures: dict[str, dict[str, Any]] = {}
    for case in cases:
        sample = found[case.name]
        given = figures.setdefault(case.peer.name, {"ok": True})
        given["ok"] = given["ok"] and case.ok
        given[f"rate_{case.workers}"] = millions(sample.median)
        given[f"spread_{case.workers}"] = round(sample.spread, 3)
        given[f"events_{case.workers}"] = case.events
    return figures


def best(given: dict[str, Any]) -> float:
    return max(0.0, *(float(given[name]) for name in ("rate_1", "rate_2") if name in given))


def versus(figures: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """plait at its best over the best of the engines whose rows were right, and over the loop."""
    plait = best(figures["plait"])
    right = {
        name: best(given)
        for name, given in figures.items()
        if name not in ("plait", "for_loop") and given["ok"]
    }
    made: dict[str, Any] = {"for_loop": ratio(plait, best(figures["for_loop"]))}
    if right:
        winner = max(right, key=lambda name: right[name])
        made |= {"best_peer": winner, "ratio": ratio(plait, right[winner])}
    return made


def run(options: Options) -> dict[str, Any]:
    missing: dict[str, str] = {}
    by_query: dict[str, dict[str, dict[str, Any]]] = {}
    with ExitStack() as stack:
        sessions: list[Session] = []
        for peer in PEERS:
            try:
                session = Session(peer, peer.install())
            except Unavailable as reason:
                missing[peer.name] = str(reason)
                progress(f"{peer.name}: {reason}")
                continue
            session.log.unlink(missing_ok=True)
            stack.callback(session.close)
            sessions.append(session)
        loop = next(session for session in sessions if session.peer.name == "for_loop")
        reference = Reference(loop)
        for query in QUERIES:
            by_query[query] = measure(query, sessions, reference, options, missing)
            for name, given in by_query[query].items():
                progress(f"{query} {name}: {given}")
    names = list(dict.fromkeys(name for given in by_query.values() for name in given))
    compared = {query: versus(given) for query, given in by_query.items()}
    return {
        "plait_vs_best_peer": {query: given.get("ratio") for query, given in compared.items()},
        "plait_vs_for_loop": {query: given["for_loop"] for query, given in compared.items()},
        "best_peer": {query: given.get("best_peer") for query, given in compared.items()},
        "peers": {
            name: {query: given[name] for query, given in by_query.items() if name in given}
            for name in names
        },
        "missing": missing,
        "unit": "million records read by the query a second, start-up left out",
    }


def plot(figures: dict[str, Any], file: str) -> None:
    from benchmarks.support.charts import bars

    groups = {
        query: {
            name: best(given[query]) for name, given in figures["peers"].items() if query in given
        }
        for query in QUERIES
    }
    bars(file, [("One program for each engine", "million records a second", groups)])
