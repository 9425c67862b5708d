"""Bad days of a job with checkpoints: stores that are slow, full or away, surveys without an
answer, and too many ways back. Each ends in words, with what was shown still there."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import pytest

from plait.coordinator.messages.requests import Submit
from plait.protocol.checkpoint_messages import Publish, Retire, Seal, Survey
from plait.protocol.messages import Done
from tests.sim.model_store import Manifest, ModelStore
from tests.sim.saving import SavingSimulator, saved_spec
from tests.sim.saving_nodes import SavingNode
from tests.sim.simulator import SIM_POLICY

if TYPE_CHECKING:
    from plait.coordinator.machine.state import JobState
    from plait.coordinator.messages.commands import StartNode
    from plait.coordinator.messages.spec import JobSpec
    from plait.protocol.messages import Answer, Command
    from tests.sim.nodes import SimNode
    from tests.sim.simulator import When

STRIDE = 1 if os.environ.get("PLAIT_LONG", "") not in ("", "0") else 7
POLICY = replace(SIM_POLICY, chunk_layouts=2, survey_s=5.0)


@dataclass(slots=True, kw_only=True)
class DeafNode(SavingNode):
    """Says that it has begun what is slow, and that is the last that is heard of it."""

    deaf: set[type]

    def apply(self, command: Command) -> Answer:
        if type(command) in self.deaf:
            return Done()
        return SavingNode.apply(self, command)


@dataclass(slots=True)
class BadDays(SavingSimulator):
    slow: dict[int, float] = field(default_factory=dict)
    """Nodes whose store is slow, and by how many seconds."""
    failing: set[int] = field(default_factory=set)
    """Nodes for which it is full."""
    deaf: set[type] = field(default_factory=set)
    """What nodes never answer."""

    def make(self, command: StartNode) -> SimNode:
        node = SavingSimulator.make(self, command)
        assert isinstance(node, SavingNode)
        names = SavingNode.__dataclass_fields__
        node = DeafNode(
            **{name: getattr(node, name) for name in names if names[name].init}, deaf=self.deaf
        )
        rank, plain = command.rank, node.errors
        node.later = lambda s, do: self.after(s + self.slow.get(rank, 0.0), do)
        node.errors = lambda: rank in self.failing or plain()
        return node

    def submit(self, spec: JobSpec | None = None) -> None:
        self.ask(Submit(spec=spec or saved_spec(nodes=2)), "submit")
        self.run(lambda: "job" in self.state.jobs and self.job().phase == "running")

    def number(self) -> int:
        known = self.job().checkpoints
        assert known is not None
        return known.last.number if known.last is not None else 0

    def end(self) -> JobState:
        self.run(self.over, 600.0)
        self.judge()
        return self.job()


def test_all_parts_are_waited_for_when_one_fails() -> None:
    """The next mark comes only when the one before is through on every node."""
    sim = BadDays(seed=1, policy=POLICY, epochs=600)
    sim.submit()
    sim.slow[0] = 4.0
    sim.failing.add(1)
    sim.run(lambda: len(sim.job().checkpoints.unsaved) >= 3)  # type: ignore[union-attr]
    assert "node-1: the store is away" in sim.job().checkpoints.unsaved[0].reason  # type: ignore[union-attr]
    sim.slow.clear()
    sim.failing.clear()
    sim.error_ratio = 1e-9  # it was bad: judged as such
    assert sim.end().phase == "ended"


@pytest.mark.parametrize("decides", [False, True])
def test_a_store_that_stays_away_ends_the_job(decides: bool) -> None:
    sim = BadDays(seed=2, policy=POLICY, epochs=10_000, decides=decides, error_ratio=1e-9)
    sim.submit()
    sim.run(lambda: sim.number() >= 2)
    number = sim.number()
    sim.failing |= {0, 1}
    job = sim.end()
    assert job.phase == "failed"
    assert "no checkpoint was made for 60 s" in job.error
    assert "the store is away" in job.error
    assert sim.store is not None
    assert sim.store.chain()[0].number >= number


def test_a_store_that_comes_back_in_time_changes_nothing() -> None:
    sim = BadDays(seed=3, policy=POLICY, epochs=2000, error_ratio=1e-9)
    sim.submit()
    sim.run(lambda: sim.number() >= 2)
    sim.failing |= {0, 1}
    sim.after(30.0, sim.failing.clear)
    assert sim.end().phase == "ended"


@pytest.mark.parametrize("what", [Seal, Publish, Retire])
def test_a_node_that_never_does_what_is_slow(what: type) -> None:
    """Nothing newer is safe then: after `max_age` the job ends."""
    sim = BadDays(seed=4, policy=POLICY, epochs=10_000, error_ratio=1e-9)
    sim.submit()
    sim.run(lambda: sim.number() >= 1)
    sim.deaf.add(what)
    job = sim.end()
    assert job.phase == "failed"
    assert "no checkpoint was made for 60 s" in job.error


def test_a_survey_without_an_answer_is_asked_for_again() -> None:
    sim = BadDays(seed=5, policy=POLICY, epochs=400, error_ratio=1e-9)
    sim.deaf.add(Survey)
    sim.ask(Submit(spec=saved_spec(nodes=2)), "submit")
    sim.after(12.0, sim.deaf.clear)
    job = sim.end()
    assert job.phase == "ended"
    assert job.checkpoints is not None
    assert job.checkpoints.attempt >= 2


def test_a_survey_that_is_never_answered_ends_the_job() -> None:
    sim = BadDays(seed=6, policy=POLICY, epochs=400, error_ratio=1e-9)
    sim.deaf.add(Survey)
    sim.ask(Submit(spec=saved_spec(nodes=2, restarts=3)), "submit")
    job = sim.end()
    assert job.phase == "failed"
    assert "it went back to a checkpoint 3 times in 600 s" in job.error
    assert "the survey took longer than 5 s" in job.error


def test_too_many_ways_back_end_the_job_with_reasons() -> None:
    sim = BadDays(seed=7, policy=POLICY, epochs=100_000, error_ratio=1e-9)
    sim.submit(saved_spec(nodes=2, restarts=5))

    def kill() -> None:
        job = sim.job()
        if job.phase == "running" and job.live:
            sim.kill(job.live[0])
        if not job.over:
            sim.after(8.0, kill)

    kill()
    job = sim.end()
    assert job.phase == "failed"
    assert "it went back to a checkpoint 5 times in 600 s" in job.error
    assert "was lost" in job.error
    assert job.checkpoints is not None
    assert job.checkpoints.attempt == 6
    assert sim.store is not None
    assert sim.store.chain()  # the next job of the name goes on from there


def test_ways_back_that_are_far_apart_do_not_end_it() -> None:
    sim = BadDays(seed=8, policy=POLICY, epochs=100_000, error_ratio=1e-9)
    spec = saved_spec(nodes=2, restarts=2)
    assert spec.checkpoint is not None
    sim.submit(replace(spec, checkpoint=replace(spec.checkpoint, restarts_s=60.0)))
    for attempt in range(2, 7):
        sim.run(lambda: sim.job().phase == "running" and bool(sim.job().live))
        sim.kill(sim.job().live[0])
        sim.run(lambda: sim.job().attempt == attempt)  # noqa: B023
        since = sim.now
        sim.run(lambda: sim.now - since > 40.0, 60.0)  # noqa: B023
        assert sim.job().phase in ("running", "rescaling"), sim.job().error


def with_savepoint() -> ModelStore:
    """A savepoint, and a newer checkpoint of the same run."""
    store = ModelStore(bins=8, decides=False, claims=1, newest=2, followed=60)
    store.chosen[1] = 0
    for number, epoch in ((0, 0), (1, 30), (2, 60)):
        store.manifests[number] = Manifest(
            number=number, parent=max(0, number - 1), epoch=epoch, claim=1, bins=frozenset(range(8))
        )
    store.savepoints["a"] = 1
    return store


@pytest.mark.parametrize("when", ["before journal", "after journal", "kill"])
def test_a_start_is_told_until_the_job_has_begun(when: When | Literal["kill"]) -> None:
    """Whatever breaks on the way: the job begins at the savepoint, and never goes back to it once
    there is something newer."""
    spec = saved_spec(nodes=2)
    assert spec.checkpoint is not None
    spec = replace(spec, checkpoint=replace(spec.checkpoint, start="savepoint:a"))
    facts = 1
    k = 1 - STRIDE
    while k < facts:
        k += STRIDE
        sim = BadDays(seed=k, policy=POLICY, epochs=200, decides=False, store=with_savepoint())
        sim.error_ratio = 1e-9
        if when == "kill":
            sim.on_fact[k] = lambda sim=sim: sim.kill(0)  # type: ignore[misc]
        else:
            sim.crash_at[k] = when
        sim.ask(Submit(spec=spec), "submit")
        job = sim.end()
        assert job.phase == "ended", (k, job.error)
        assert job.checkpoints is not None
        store = sim.store
        assert store is not None
        assert store.starts
        told = [claim for claim, start in store.starts if start == "savepoint:a"]
        assert told == [claim for claim in sorted(store.chosen) if claim in told]
        assert all(store.chosen[claim] == 1 for claim in told)
        later = [claim for claim in store.chosen if claim > max(told)]
        assert all(store.chosen[claim] >= 1 for claim in later)
        assert store.chain()[0].epoch >= 200
        facts = max(facts, sim.facts)
