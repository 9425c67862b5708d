"""The quality controller in the coordinator: overloads that come and go, crashes at any fact.

After every fact the usual rules hold; here also: floors are kept or an alert is open, the lower
priority gives way first, a steady load changes nothing, and a load that is gone is forgotten.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from plait.coordinator.machine.quality import cycle
from plait.coordinator.messages.requests import Shed, Stop, Submit
from plait.protocol.keeps import ratio_of
from tests.sim.loads.overloads import CORES, POLICY, BusySimulator, Overload, job_of
from tests.sim.simulator import Faults

SEEDS = 200 if os.environ.get("PLAIT_LONG", "") not in ("", "0") else 20
PARTS = 5
CALM_S, OVER_S, END_S = 12.0, 40.0, 75.0
"""When the overload begins and ends, and the last look."""
SETTLED_S = 15.0
"""After the load has changed."""


def begun(load: Overload, nodes: int = 1, seed: int = 1, **given: object) -> BusySimulator:
    sim = BusySimulator(
        seed=seed,
        load=load,
        policy=POLICY,
        epochs=100_000,
        epoch_s=0.2,
        **given,  # type: ignore[arg-type]
    )
    sim.ask(Submit(spec=job_of(load, nodes, seed)))
    return sim


def overload(
    times: float, *, nodes: int = 1, high: float = 0.3, floors: tuple[float, float] = (0.5, 0.05)
) -> Overload:
    """A load of half of all cores, then so many times all of them, then half again. `high` is the
    part of the query of the higher priority in what a row costs."""
    cores, cost = float(CORES * nodes), 1e-3
    return Overload(
        phases=(
            (0.0, 0.5 * cores / cost),
            (CALM_S, times * cores / cost),
            (OVER_S, 0.5 * cores / cost),
        ),
        costs=(high * cost, (1.0 - high) * cost),
        floors=floors,
    )


def pass_until(sim: BusySimulator, at: float) -> None:
    sim.run(lambda: sim.now >= at and sim.up, at + 10.0)


def history(seed: int) -> None:
    """A whole overload."""
    draw = Random(f"overload {seed}")
    nodes, times = draw.randint(1, 3), draw.uniform(1.3, 4.0)
    high = draw.uniform(0.1, 0.6)
    floors = (draw.uniform(0.1, 0.6), draw.uniform(0.0, 0.1))
    load = overload(times, nodes=nodes, high=high, floors=floors)
    bad = draw.random()
    faults = Faults(loss=0.05 * bad, twice=0.2 * bad, slow=0.03 * bad)
    sim = begun(load, nodes, seed, faults=faults)
    for _ in range(draw.choice((0, 1, 2))):
        sim.after(draw.uniform(2.0, 24.0), partial(sim.crash, draw.uniform(0.05, 2.0)))
    sim.run(lambda: sim.now >= CALM_S - 1.0)
    assert sim.keep() == (1.0, 1.0), "nothing is dropped while all fits"
    pass_until(sim, OVER_S)
    check_overload(sim, load, nodes)
    pass_until(sim, END_S)
    assert sim.keep() == (1.0, 1.0), "the load is gone"
    assert sim.job().alerts == ()
    sim.asked(Stop(job="job"))
    sim.run(sim.over)
    sim.judge()


def check_overload(sim: BusySimulator, load: Overload, nodes: int) -> None:
    """At the end of the overload."""
    job = sim.job()
    for _, *kept in sim.shown:
        assert all(k >= floor - 1e-9 for k, floor in zip(kept, load.floors, strict=True))
    high, low = sim.keep()
    cores, needed = CORES * nodes, load.demand(OVER_S - 1.0, load.floors)
    if needed <= 0.6 * cores:
        assert job.alerts == ()
    if needed <= 0.85 * cores:
        assert high == 1.0 or low <= load.floors[1] + 0.05, "the lower priority gives way first"
    elif needed > 1.1 * cores:
        assert {one.query for one in job.alerts} & {"high", "low"}
    assert low < 1.0
    assert job.steps
    if needed <= 0.8 * cores:
        late = sim.work.waiting / load.rate(OVER_S - 1.0)
        assert late < 15.0, f"it is {late:.1f} s behind"


@pytest.mark.parametrize("part", range(PARTS))
def test_no_overload_breaks_a_promise(seed: int, part: int) -> None:
    for one in range(SEEDS // PARTS):
        number = (seed + part) * 100_000 + one
        try:
            history(number)
        except Exception as error:
            error.add_note(f"repeat with: history({number})")
            raise


def test_a_steady_overload_changes_little() -> None:
    sim = begun(replace(overload(2.0), phases=((0.0, 0.0), (2.0, 4000.0))))
    pass_until(sim, 2.0 + SETTLED_S)
    before = len(sim.job().steps)
    pass_until(sim, 2.0 + SETTLED_S + 60.0)
    changes = [step for step in sim.job().steps[before:] if step.reason.query]
    assert len(changes) <= 6, [str(step) for step in changes]
    assert sim.work.waiting / sim.rate() < 5.0


def test_what_is_decided_survives_a_restart() -> None:
    sim = begun(overload(2.0))
    pass_until(sim, CALM_S + SETTLED_S)
    kept, decided = sim.keep(), sim.job().decided
    assert kept[1] < 1.0
    sim.crash(0.2)
    pass_until(sim, sim.now + 1.0)
    assert sim.job().decided == decided
    assert sim.keep() == kept
    assert sim.job().steps


def test_a_bound_by_hand_and_what_is_decided_go_together() -> None:
    sim = begun(overload(2.0, high=0.1))
    sim.run(lambda: "job" in sim.state.jobs and sim.job().phase == "running")
    sim.asked(Shed(job="job", query="high", ratio=0.6))
    pass_until(sim, CALM_S + SETTLED_S)
    high, low = sim.keep()
    assert high == 0.6
    assert low < 1.0
    sim.asked(Shed(job="job", query="high", ratio=None))
    pass_until(sim, END_S)
    assert sim.keep() == (1.0, 1.0)


def test_a_floor_that_cannot_be_met_is_an_alert_and_not_broken() -> None:
    sim = begun(overload(2.0, high=0.3, floors=(0.9, 0.5)))
    pass_until(sim, CALM_S)
    sim.run(lambda: bool(sim.job().alerts))
    assert {one.query for one in sim.job().alerts} == {"low"}
    pass_until(sim, OVER_S)
    assert sim.keep() == (0.9, 0.5)
    words = [str(step) for step in sim.job().steps if step.reason.now == "alert"]
    assert "its sources are held back" in words[0]
    pass_until(sim, OVER_S + 80.0)
    assert sim.job().alerts == ()


def test_a_controller_that_fails_leaves_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = begun(overload(2.0))
    pass_until(sim, CALM_S + SETTLED_S)
    kept = sim.keep()

    def broken(*_: object) -> None:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(cycle, "seen_hosts", broken)
    pass_until(sim, CALM_S + SETTLED_S + 5.0)
    assert sim.keep() == kept
    assert sim.job().phase == "running"
    failures = [step for step in sim.job().steps if step.reason.now == "failed"]
    assert len(failures) == 1
    assert "on purpose" in failures[0].reason.because


def test_thresholds_are_those_that_were_decided() -> None:
    sim = begun(overload(2.0), nodes=2)
    pass_until(sim, CALM_S + SETTLED_S)
    job = sim.job()
    assert {
        n: round(ratio_of(one), 9) for n, one in enumerate(job.keep) if ratio_of(one) < 1.0
    } == {n: round(ratio, 9) for n, ratio in job.decided}
