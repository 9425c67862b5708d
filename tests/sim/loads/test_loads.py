"""The controller over whole lives of loaded clusters: what must always hold, what a steady load
leads to, bugs that must be found, and one very large cluster."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.quality.clusters import many
from plait.shedding import controller, hold, moves, share
from plait.shedding.controller import decide
from plait.shedding.release import release
from plait.shedding.share import Needs
from plait.shedding.view import Memory
from plait.shedding.words import PAPER, QualityPolicy
from tests.conftest import LONG
from tests.sim.loads.cluster import Cluster, LoadedHost, LoadedPart, LoadedQuery, LoadedTask
from tests.sim.loads.draw import draw
from tests.sim.loads.laws import Unlawful, live

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.shedding.view import Bools, Decision, Floats, Ints, View

SEEDS = 200 if LONG else 20
BUG_SEEDS = 60


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("order", ["here", "paper"])
def test_what_must_hold_holds(part: int, order: str) -> None:
    policy = QualityPolicy() if order == "here" else QualityPolicy(order=PAPER)
    for seed in range(part, SEEDS, 4):
        live(draw(seed, policy))


def one_job(
    *,
    rate: float,
    need: float,
    floor: float = 0.1,
    hosts: int = 1,
    priorities: tuple[int, ...] = (0,),
) -> Cluster:
    """One source and a branch for each query, on one host."""
    count = len(priorities)
    return Cluster(
        hosts=[LoadedHost(key=at, cores=2.0, others=0.0) for at in range(hosts)],
        parts=[
            LoadedPart(
                job=0,
                queries=list(range(count)),
                before=[],
                each=0.0001,
                base=0.0,
                passes=1.0,
                most=2.0,
                moves=False,
                size=0.0,
                rate=lambda _: rate,
            ),
            *(
                LoadedPart(
                    job=0,
                    queries=[at],
                    before=[0],
                    each=need / rate / count,
                    base=0.0,
                    passes=1.0,
                    most=2.0,
                    moves=True,
                    size=1e6,
                )
                for at in range(count)
            ),
        ],
        queries=[
            LoadedQuery(job=0, priority=priority, floor=floor, freshness_s=5.0)
            for priority in priorities
        ],
        tasks=[LoadedTask(part=at, host=0, share=1.0, rank=at) for at in range(count + 1)],
        jobs=1,
        random=Random(7),
    )


def test_a_steady_overload_settles_and_stays() -> None:
    """Two queries of equal priority that need twice what there is: after a minute at most one
    change a minute in spite of the noise, and what is kept is what fits."""
    cluster = one_job(rate=1000.0, need=3.6, priorities=(0, 0))
    judge = live(cluster, cycles=240)
    for changes in judge.changes.values():
        assert len([at for at in changes if at >= 60]) <= 3
    assert cluster.keep == pytest.approx([0.45, 0.45], abs=0.08)
    assert cluster.lag_s[0] < 1.0


def test_the_higher_priority_is_whole_as_long_as_the_lower_one_can_give() -> None:
    cluster = one_job(rate=1000.0, need=2.4, priorities=(5, 1))
    live(cluster, cycles=60)
    assert cluster.keep[0] == 1.0
    assert cluster.keep[1] == pytest.approx(0.4, abs=0.1)


def test_a_host_that_is_free_takes_the_overload_and_nothing_is_dropped() -> None:
    cluster = one_job(rate=1000.0, need=2.8, hosts=2)
    judge = live(cluster, cycles=22)
    assert {task.host for task in cluster.tasks if task.part == 1} == {0, 1}
    assert not judge.changes[0]
    assert cluster.keep == [1.0]


def test_the_order_of_the_text_drops_and_moves_only_for_floors() -> None:
    cluster = one_job(rate=1000.0, need=2.8, hosts=2)
    cluster.policy = QualityPolicy(order=PAPER)
    live(cluster, cycles=40)
    assert not cluster.moved
    assert cluster.keep[0] < 0.8


def test_hosts_are_asked_for_when_none_is_free() -> None:
    cluster = one_job(rate=1000.0, need=2.8)
    cluster.limits = (1, 3)
    live(cluster, cycles=80)
    assert len(cluster.hosts) == 2
    assert cluster.keep[0] > 0.9


Plant = tuple[str, object, str, object]


def descending(plain: Callable[..., list[tuple[int, float]]]) -> object:
    def wrong(
        amount: float, needs: Floats, priority: Ints, size: Floats
    ) -> list[tuple[int, float]]:
        return plain(amount, needs, -priority, size)

    return wrong


def upside_down(plain: Callable[..., object]) -> object:
    def wrong(
        needs: Needs, part: Ints, host: Ints, behind: object, priority: Ints, *rest: Floats
    ) -> object:
        return plain(needs, part, host, behind, -priority, *rest)

    return wrong


def below_floors(plain: Callable[..., object]) -> object:
    def wrong(*columns: object) -> object:
        given = list(columns)
        given[5] = np.zeros_like(given[5])
        given[2] = 0.5 * given[2]  # type: ignore[operator]
        return plain(*given)

    return wrong


def never_rises(plain: Callable[..., tuple[Floats, Ints]]) -> object:
    def wrong(keep: Floats, rising: Ints, *rest: object) -> tuple[Floats, Ints]:
        found, _ = plain(keep, rising, *rest)
        return np.minimum(found, keep), rising

    return wrong


def many_lives() -> None:
    for seed in range(BUG_SEEDS):
        live(draw(seed, QualityPolicy()))


@pytest.mark.parametrize(
    ("place", "name", "bug"),
    [
        (controller, "share", upside_down(share.share)),
        (controller, "hold", below_floors(hold.hold)),
        (controller, "hold", never_rises(hold.hold)),
        (controller, "alert", lambda *_: ({}, {})),
        (controller, "MOST_BIAS", 0.2),
    ],
    ids=["priorities ascending", "below the floors", "never rises", "no alert", "too optimistic"],
)
def test_a_planted_bug_is_found(
    place: object, name: str, bug: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, bug)
    with pytest.raises(Unlawful):
        many_lives()


def test_a_floor_that_is_capped_silently_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eq. 8 as printed: what a task needs beyond the cores it can use is not seen."""
    monkeypatch.setattr(Needs, "beyond", Needs.cpu)
    monkeypatch.setattr(
        Needs,
        "cpu",
        lambda self, ac: np.minimum(
            np.where(ac > 0.0, self.base + self.slope * ac, 0.0), self.most
        ),
    )
    monkeypatch.setattr(Needs, "beyond", Needs.cpu)
    cluster = one_job(rate=1000.0, need=4.0, floor=0.6)
    cluster.parts[1] = replace(cluster.parts[1], most=1.0)
    with pytest.raises(Unlawful, match="no alert is open"):
        live(cluster, cycles=60)


def test_a_floor_beyond_what_a_task_can_use_opens_an_alert() -> None:
    cluster = one_job(rate=1000.0, need=4.0, floor=0.6)
    cluster.parts[1] = replace(cluster.parts[1], most=1.0)
    live(cluster, cycles=60)
    [alert] = cluster.memory.alerts.values()
    assert alert.floor == 0.6
    # A quarter of what comes in; half of that, since as much again has to be worked off.
    assert alert.attainable == pytest.approx(0.125, abs=0.03)


def test_priorities_descending_in_the_release_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alg. 2 as printed moves the best queries first."""

    def moved(bug: bool) -> set[int]:
        if bug:
            monkeypatch.setattr(moves, "release", descending(release))
        cluster = one_job(rate=1000.0, need=2.6, hosts=2, priorities=(9, 1))
        live(cluster, cycles=30)
        return {task.part for task in cluster.tasks if task.host == 1}

    assert moved(bug=False) == {2}
    assert moved(bug=True) == {1}


def test_one_thousand_hosts_and_100_000_tasks() -> None:
    """A cluster twice too small, with 25,000 queries of five priorities: two cycles, with what
    always holds."""
    view = many(tasks=100_000, hosts=1000)
    memory = Memory()
    policy = QualityPolicy()
    reasons = 0
    for cycle in range(3):
        seen = replace(view, at=float(cycle))
        decision, memory = decide(seen, policy, memory, seen.at)
        reasons += len(decision.reasons)
        floors_hold(view, decision)
    wanted = decision.wanted
    by_priority = [float(wanted[view.queries.priority == level].mean()) for level in range(5)]
    assert by_priority == sorted(by_priority)
    assert by_priority[0] < 0.5 < by_priority[-1]
    assert reasons > 0


def floors_hold(view: View, decision: Decision) -> None:
    alerts: Bools = np.isin(
        np.array(view.queries.label), np.array([one.query for one in decision.alerts])
    )
    assert ((decision.keep >= view.queries.floor - 1e-9) | alerts).all()
