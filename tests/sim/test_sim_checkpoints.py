"""Checkpoints and the way back to them, broken at every fact; and what nodes do wrong is found.

The model store judges every step: what is visible ends at a boundary that can be gone back to, an
attempt begins exactly where the output ended, and nobody who was given up changes anything.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache, partial
from random import Random
from typing import TYPE_CHECKING

import pytest

from plait.coordinator.machine.checkpoints import records, recovery, saving
from plait.coordinator.messages.requests import Drain, Request, Rescale, Save, Stop, Submit
from plait.errors import InternalError
from plait.protocol.checkpoint_messages import Publish, Retire, Seal
from tests.sim.nodes import Violation
from tests.sim.saving import SavingSimulator, saved_spec
from tests.sim.saving_nodes import Bugs
from tests.sim.simulator import SIM_POLICY, Faults, When

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.coordinator.machine.checkpoints.records import Saving
    from plait.coordinator.machine.state import JobState
    from plait.protocol.checkpoint_messages import SlowCommand

LONG = os.environ.get("PLAIT_LONG", "") not in ("", "0")
STRIDE = 1 if LONG else 5
WHENS: tuple[When, ...] = ("before journal", "after journal")
POLICY = replace(SIM_POLICY, chunk_layouts=2)


def kill_all(sim: SavingSimulator) -> None:
    for _, rank in list(sim.nodes):
        sim.kill(rank)


def kill_two(sim: SavingSimulator) -> None:
    sim.kill(0)
    sim.kill(1)


def kill_home(sim: SavingSimulator) -> None:
    if "job" in sim.state.jobs:
        sim.kill(sim.job().home)


def freeze_home(sim: SavingSimulator) -> None:
    if "job" in sim.state.jobs:
        sim.freeze(sim.job().home, 4.0)


HARMS: dict[str, Callable[[SavingSimulator], None]] = {
    "kill a node": lambda sim: sim.kill(1),
    "kill home": kill_home,
    "kill two": kill_two,
    "kill all": kill_all,
    "freeze home": freeze_home,
    "freeze a node": lambda sim: sim.freeze(2, 4.0),
}


def script(sim: SavingSimulator, loss: bool) -> JobState:
    """Three nodes; a fourth joins while checkpoints are made, one leaves again. With `loss` the
    home is lost on the way, so that there is a recovery to disturb."""

    def when_running(number: int, ask: Request, do: Callable[[], None] | None = None) -> None:
        job = sim.state.jobs.get("job") if sim.up else None
        if job is not None and (job.over or job.phase == "ending"):
            return
        if job is None or job.phase != "running":
            sim.after(0.05, lambda: when_running(number, ask, do))
            return
        sim.ask(ask, f"wish {number}")
        if do is not None:
            sim.after(0.4, do)

    def later() -> None:
        if loss:
            sim.kill(sim.job().home if sim.up and "job" in sim.state.jobs else 0)
        sim.after(1.0, lambda: when_running(2, Drain(job="job", rank=2)))

    sim.ask(Submit(spec=saved_spec(nodes=3)), "submit")
    when_running(1, Rescale(job="job", nodes=4), later)
    sim.run(sim.over, 300.0)
    sim.judge()
    return sim.job()


def fresh(decides: bool) -> SavingSimulator:
    return SavingSimulator(seed=int(decides), policy=POLICY, epochs=150, decides=decides)


@cache
def facts_of(loss: bool, decides: bool) -> int:
    """How many facts the undisturbed script has."""
    sim = fresh(decides)
    job = script(sim, loss)
    assert job.phase == "ended", job.error
    known = job.checkpoints
    assert known is not None
    assert known.last is not None
    assert known.last.number >= 3
    assert known.attempt == 1 + loss
    return sim.facts


@pytest.mark.parametrize("decides", [False, True])
@pytest.mark.parametrize("loss", [False, True])
def test_the_coordinator_crashes_at_every_fact(seed: int, loss: bool, decides: bool) -> None:
    for k in range(1 + seed % STRIDE, facts_of(loss, decides) + 1, STRIDE):
        for when in WHENS:
            sim = fresh(decides)
            sim.crash_at[k] = when
            job = script(sim, loss)
            assert job.phase == "ended", f"{when} {k}: {job.error}"


@pytest.mark.parametrize("decides", [False, True])
@pytest.mark.parametrize("loss", [False, True])
@pytest.mark.parametrize("harm", HARMS)
def test_nodes_are_lost_at_every_fact(seed: int, harm: str, loss: bool, decides: bool) -> None:
    for k in range(1 + seed % STRIDE, facts_of(loss, decides) + 1, STRIDE):
        sim = fresh(decides)
        sim.on_fact[k] = partial(HARMS[harm], sim)
        job = script(sim, loss)
        assert job.phase == "ended", f"{harm} {k}: {job.error}"


def history(seed: int, *, bugs: Bugs | None = None, worst: bool = False) -> SavingSimulator:
    """One whole life of one job, drawn from a seed. `worst`: with all that can happen."""
    draw = Random(f"saving {seed}")
    sim = SavingSimulator(
        seed=seed,
        epochs=draw.randint(80, 200),
        decides=worst or draw.random() < 0.6,
        error_ratio=draw.choice((0.0, 0.0, 0.02)),
        stale_ratio=0.3 if worst else draw.choice((0.0, 0.1)),
        bugs=bugs or Bugs(),
        faults=Faults(
            loss=draw.choice((0.0, 0.03)),
            twice=draw.choice((0.0, 0.1)),
            slow=draw.choice((0.0, 0.03)),
        ),
    )
    sim.ask(Submit(spec=saved_spec(nodes=draw.randint(1, 4), keep=draw.randint(1, 3))))
    for _ in range(draw.randint(0, 4) + 2 * worst):
        what, at, rank = draw.random(), draw.uniform(0.0, 6.0), draw.randint(0, 6)
        if what < 0.3:
            sim.after(at, partial(sim.kill, rank))
        elif what < 0.5:
            sim.after(at, partial(sim.freeze, rank, draw.uniform(1.0, 6.0)))
        elif what < 0.6:
            sim.after(at, partial(freeze_home, sim))
        elif what < 0.7:
            sim.after(at, partial(kill_all, sim))
        else:
            sim.after(at, partial(sim.crash, draw.uniform(0.05, 3.0)))
    wishes: tuple[Request, ...] = (
        Rescale(job="job", nodes=draw.randint(1, 4)),
        Save(job="job"),
        Save(job="job", name="x"),
        Drain(job="job", rank=draw.randint(0, 3)),
        Stop(job="job"),
        Stop(job="job", finish="flush"),
    )
    for _ in range(draw.randint(0, 3)):
        sim.after(draw.uniform(0.0, 5.0), partial(sim.ask, draw.choice(wishes)))
    sim.run(sim.over, 300.0)
    sim.judge()
    return sim


def test_random_histories(seed: int) -> None:
    phases = set()
    for number in range(2000 if LONG else 150):
        job = history(seed * 10_000 + number).job()
        phases.add(job.phase)
        if job.phase == "failed":
            assert "could not be started" in job.error
    assert "ended" in phases


# The judge is judged: what is wrong on purpose is found.

FOUND = (Violation, InternalError)


def found(bugs: Bugs | None = None) -> bool:
    for seed in range(60):
        try:
            history(seed, bugs=bugs, worst=True)
        except FOUND:
            return True
    return False


def test_the_right_logic_passes_the_worst() -> None:
    for seed in range(30):
        history(seed, worst=True)


def zombie_comes_back(after_s: float, bugs: Bugs) -> None:
    """The home stops when it is told to publish, and goes on with that when it is given up."""
    sim = SavingSimulator(seed=4, epochs=200, decides=True, bugs=bugs)
    sim.ask(Submit(spec=saved_spec(nodes=3)))

    def publishes() -> bool:
        job = sim.state.jobs.get("job")
        known = job.checkpoints.saving if job is not None and job.checkpoints is not None else None
        if job is None or known is None or (known.step, known.mark.number) != ("publish", 2):
            return False
        return job.watch.slow_told >= known.command_id

    sim.run(publishes)
    sim.freeze(sim.job().home, after_s)
    sim.run(sim.over, 300.0)
    sim.judge()
    assert sim.job().phase == "ended"


def test_a_zombie_that_publishes_late_changes_nothing() -> None:
    for step in range(25):
        zombie_comes_back(2.0 + 0.02 * step, Bugs())


def test_a_survey_before_the_fence_is_found() -> None:
    """What the zombie delivers between the look and the fence is not known to the survey."""
    wrong = 0
    for step in range(25):
        try:
            zombie_comes_back(2.0 + 0.02 * step, Bugs(survey_first=True))
        except AssertionError as error:
            wrong += isinstance(error, Violation)
    assert wrong


@pytest.mark.parametrize("bug", ["follower_first", "absence_is_zero"])
def test_a_node_that_does_it_wrong_is_found(bug: str) -> None:
    assert found(Bugs(**{bug: True}))


def test_publish_before_seal_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = saving.slow_command

    def hasty(job: JobState, known: Saving) -> SlowCommand:
        command = right(job, known)
        return Publish(number=command.number) if isinstance(command, Seal) else command

    monkeypatch.setattr(saving, "slow_command", hasty)
    assert found()


def test_retire_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is sealed, and what is visible still ends at the one before."""
    right = saving.slow_command

    def hasty(job: JobState, known: Saving) -> SlowCommand:
        command = right(job, known)
        if isinstance(command, Publish):
            return Retire(number=command.number, keep=1)
        return command

    monkeypatch.setattr(saving, "slow_command", hasty)
    assert found()


def test_a_seal_without_all_parts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = records.set_mark

    def forgetful(job: JobState, epoch: int, ranks: tuple[int, ...], at: float, **how: bool):  # type: ignore[no-untyped-def]
        return right(job, epoch, ranks[:1], at, **how)

    monkeypatch.setattr("plait.coordinator.machine.epoch_agreement.set_mark", forgetful)
    assert found()


def test_an_old_token_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes of all attempts know each other: one that comes back mixes in."""
    monkeypatch.setattr(recovery, "token_of", lambda job: job.spec.token)
    monkeypatch.setattr(
        "plait.coordinator.machine.start_nodes.token_of", lambda job: job.spec.token
    )
    assert found()
