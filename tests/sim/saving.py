"""The simulator with checkpoints: a model store, nodes that save, zombies that come back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plait.coordinator.messages.spec import CheckpointSpec, JobSpec, QuerySpec, SourceSpec
from tests.sim.model_store import ModelStore
from tests.sim.nodes import Ledger, SimNode, Violation
from tests.sim.saving_nodes import Bugs, SavingNode
from tests.sim.simulator import Simulator

if TYPE_CHECKING:
    from plait.coordinator.messages.commands import StartNode


def saved_spec(
    *, nodes: int = 2, bin_bits: int = 3, every_s: float = 0.5, keep: int = 2, restarts: int = 50
) -> JobSpec:
    return JobSpec(
        name="job",
        payload="",
        token="secret",
        bin_bits=bin_bits,
        sources=(SourceSpec(label="in", splits=True),),
        nodes=nodes,
        queries=(QuerySpec(label="out", min_accuracy=0.1),),
        checkpoint=CheckpointSpec(
            url="model", every_s=every_s, keep=keep, max_age_s=60.0, restarts=restarts
        ),
    )


@dataclass(slots=True)
class SavingSimulator(Simulator):
    """A node that is frozen is out of reach: it cannot be stopped before it comes back."""

    store: ModelStore | None = None
    decides: bool = True
    bugs: Bugs = field(default_factory=Bugs)
    error_ratio: float = 0.0
    stale_ratio: float = 0.0
    attempts: dict[str, Ledger] = field(default_factory=dict)
    """By token."""

    def make(self, command: StartNode) -> SimNode:
        if self.store is None:
            self.store = ModelStore(bins=command.spec.bins, decides=self.decides)
        return SavingNode(
            rank=command.rank,
            ledger=Ledger(bins=command.spec.bins, last_epoch=self.epochs),
            ship=lambda s, t, b, e: self.ship(command.job, s, t, b, e),
            margin=lambda: self.random.randint(1, 6),
            store=self.store,
            ledger_of=self.ledger_of,
            later=self.after,
            random=self.random,
            bugs=self.bugs,
            errors=lambda: self.random.random() < self.error_ratio,
            stale=lambda: self.random.random() < self.stale_ratio,
        )

    def ledger_of(self, token: str) -> Ledger:
        bins = self.job().spec.bins if "job" in self.state.jobs else 8
        found = self.attempts.setdefault(token, Ledger(bins=bins, last_epoch=self.epochs))
        self.ledgers["job"] = found
        return found

    def ship(self, job: str, source: int, target: int, bin: int, epoch: int) -> None:
        """Bins travel within their attempt."""
        sender, taker = self.nodes[job, source], self.nodes[job, target]
        ledger = sender.ledger

        def arrive() -> None:
            if not sender.stopped and not taker.stopped and taker.ledger is ledger:
                ledger.arrive(target, bin, epoch)

        self.after(self.random.uniform(0.001, 0.05), arrive)

    def stop(self, job: str, rank: int) -> None:
        node = self.nodes.get((job, rank))
        if node is not None and not node.frozen:
            node.stopped = True

    def judge(self, name: str = "job") -> None:
        """A job that is over well has delivered all, once."""
        job, store = self.job(name), self.store
        if job.phase == "failed" and not self.lost and not self.error_ratio:
            raise Violation(f"seed {self.seed}: failed without a fault: {job.error}\n{self}")
        if job.phase == "ended" and store is not None:
            newest = store.chain()[0]
            if not newest.last:
                raise store.wrong(f"seed {self.seed}: ended, and the newest is {newest}")
            if self.decides and store.delivered != newest.epoch:
                raise store.wrong(f"seed {self.seed}: ended, and not all is delivered: {newest}")
            if store.followed != newest.epoch:
                raise store.wrong(f"seed {self.seed}: ended, and not all is shown: {newest}")
            if not job.stop_asked and newest.epoch < self.epochs:
                raise store.wrong(f"seed {self.seed}: ended early, at {newest}")
        self.run(lambda: all(node.stopped for node in self.nodes.values()), 60.0)
