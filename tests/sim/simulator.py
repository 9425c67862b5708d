"""The whole control plane in one thread: virtual time, a faulty network, crashes, one seed.

The real logic, the real journal bytes and model nodes. Every delay, loss and choice is drawn from
one seeded source, so a seed is a history. `check` runs after every event, and every step from wait
to wait must be in the table; the nodes' ledger judges what the commands did.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Literal, assert_never

from plait.coordinator.journal.store import MemoryJournal
from plait.coordinator.machine.invariants import check, check_transitions
from plait.coordinator.machine.isolation import Turned, follow_unwritten, try_advance
from plait.coordinator.machine.state import JobState, State
from plait.coordinator.machine.step import step
from plait.coordinator.messages.commands import (
    AskHosts,
    AskReport,
    Outgoing,
    ReplyTo,
    StartNode,
    StopNode,
    Tell,
)
from plait.coordinator.messages.events import (
    Answered,
    Asked,
    Event,
    Fact,
    Heard,
    HostsSeen,
    NodeLost,
    NodeMade,
    NodeNotMade,
    Reported,
    Restarted,
    Tick,
)
from plait.coordinator.messages.hosts import HostView
from plait.coordinator.messages.spec import JobSpec, Policy, QuerySpec, SourceSpec
from plait.coordinator.shell.manager import recover
from plait.node_runtime.host.once import Once
from tests.sim.nodes import Ledger, SimNode, Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.coordinator.machine.transitions import Transition
    from plait.coordinator.messages.requests import Reply, Request

SIM_POLICY = Policy(tick_s=0.1, silence_s=2.0, resend_s=0.5, start_s=20.0, chunk_s=0.2)
When = Literal["before journal", "after journal"]


class Broken(Exception):
    """A bug that was put into the coordinator on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How bad the world is."""

    loss: float = 0.0
    twice: float = 0.0
    slow: float = 0.0
    """The part of messages that take a hundred times as long."""
    not_made: float = 0.0
    unwritten: float = 0.0
    """The part of writes to the journal that fail: the disk is full for a moment."""


def spec_of(
    name: str = "job",
    *,
    nodes: int = 2,
    bin_bits: int = 4,
    splits: bool = False,
    seed: int = 0,
    queries: tuple[QuerySpec, ...] = (),
) -> JobSpec:
    return JobSpec(
        name=name,
        payload="",
        token="secret",
        bin_bits=bin_bits,
        sources=(SourceSpec(label="in", splits=splits),),
        nodes=nodes,
        queries=queries,
        seed=seed,
    )


@dataclass(slots=True)
class Simulator:
    """A cluster that exists only here."""

    seed: int
    faults: Faults = field(default_factory=Faults)
    policy: Policy = SIM_POLICY
    epochs: int = 400
    epoch_s: float = 0.02
    hosts: int = 4
    checked: bool = True
    snapshot_ratio: float = 0.001
    once: bool = True
    """False: nodes carry out a repeated command again. Wrong on purpose."""
    now: float = 0.0
    state: State = field(default_factory=State)
    up: bool = True
    facts: int = 0
    turns: int = 0
    crash_at: dict[int, When] = field(default_factory=dict)
    """After which fact the coordinator crashes, and whether that fact was journalled."""
    breaks: set[str] = field(default_factory=set)
    """Jobs whose next turn fails, by a bug of the coordinator's."""
    on_fact: dict[int, Callable[[], None]] = field(default_factory=dict)
    nodes: dict[tuple[str, int], SimNode] = field(default_factory=dict)
    ledgers: dict[str, Ledger] = field(default_factory=dict)
    replies: dict[str, Reply] = field(default_factory=dict)
    lost: set[tuple[str, int]] = field(default_factory=set)
    """Nodes that were killed or frozen by the test."""
    queue: list[tuple[float, int, Callable[[], object]]] = field(default_factory=list)
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    random: Random = field(init=False)
    counter: count[int] = field(default_factory=count)
    told: dict[tuple[str, int], Once] = field(default_factory=dict)
    transitions: set[Transition] = field(default_factory=set)
    """The steps from wait to wait that were seen."""

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.restart()
        self.every_tick()

    def after(self, delay_s: float, do: Callable[[], object]) -> None:
        heapq.heappush(self.queue, (self.now + delay_s, next(self.counter), do))

    def run(self, until: Callable[[], bool], limit_s: float = 120.0) -> None:
        """Let time pass until something holds."""
        end = self.now + limit_s
        while not until():
            if not self.queue or self.queue[0][0] > end:
                raise Violation(f"seed {self.seed}: it did not come within {limit_s} s\n{self}")
            self.now, _, do = heapq.heappop(self.queue)
            do()

    def __str__(self) -> str:
        lines = [f"t={self.now:.3f}, facts {self.facts}, up {self.up}"]
        for name, job in self.state.jobs.items():
            lines.append(f"job {name}: {job.phase} {job.error} {str(job.wait)[:400]}")
            lines.append(f"  misses {sorted(job.watch.missing)[:10]}")
            lines += [f"  layout {layout}"[:300] for layout in job.layouts[:4]]
        lines += [
            f"  node {key}: {node.phase} epoch {node.epoch} done {node.done} fences {node.fences} "
            f"stopped {node.stopped} frozen {node.frozen} gone {node.gone}"
            for key, node in list(self.nodes.items())[:12]
        ]
        return "\n".join(lines)

    # The coordinator.

    def every_tick(self) -> None:
        for name in list(self.state.jobs) or [""]:
            self.coordinate(Tick(at=self.now, job=name))
        self.after(self.policy.tick_s, self.every_tick)

    def restart(self) -> None:
        self.state, _ = recover(self.journal, self.policy)
        self.up = True
        self.coordinate(Restarted(at=self.now))

    def crash(self, back_after_s: float = 0.5) -> None:
        self.up = False
        self.after(back_after_s, self.restart)

    def coordinate(self, event: Event) -> None:
        """An event reaches the coordinator, if there is one."""
        if not self.up:
            return
        turn = try_advance(self.state, event, self.step)
        if turn.error is not None and not isinstance(turn.error, Broken):
            raise turn.error
        unwritten = self.faults.unwritten
        if unwritten and turn.facts and self.random.random() < unwritten:
            turn = follow_unwritten(self.state, event, OSError("no space left on device"))
        self.follow(turn)

    def follow(self, turn: Turned) -> None:
        """What came of an event is written down, then done."""
        state, facts, out = turn.state, turn.facts, turn.commands
        self.turns += 1
        for fact in facts:
            self.facts += 1
            when = self.crash_at.pop(self.facts, None)
            if when == "after journal":
                self.journal.append([fact])
            if when is not None:
                self.crash()
                return
            self.journal.append([fact])
            if (act := self.on_fact.pop(self.facts, None)) is not None:
                self.after(0.0, act)
        if self.random.random() < self.snapshot_ratio:
            self.journal.snapshot(state)
        self.state = state
        if self.checked and (facts or self.turns % 16 == 0):
            check(state)
        for command in out:
            self.send(command)

    def step(self, state: State, fact: Fact) -> tuple[State, list[Outgoing]]:
        """One step, which has to be in the table of transitions."""
        name = getattr(fact, "job", "")
        if name in self.breaks:
            self.breaks.remove(name)
            raise Broken(f"the turn of {name} is broken on purpose")
        after, out = step(state, fact)
        self.transitions.update(check_transitions(state, fact, after))
        return after, out

    def send(self, command: Outgoing) -> None:
        match command:
            case StartNode():
                self.message(lambda: self.start(command))
            case Tell():
                self.message(lambda: self.tell(command))
            case AskReport():
                self.message(lambda: self.report(command))
            case StopNode():
                self.message(lambda: self.stop(command.job, command.rank))
            case AskHosts():
                self.message(lambda: self.answer(self.hosts_seen()))
            case ReplyTo(request_id=key, reply=reply):
                self.replies[key] = reply
            case _:
                assert_never(command)

    # The network.

    def message(self, do: Callable[[], None]) -> None:
        """Something on its way: late, twice or never."""
        times = 2 if self.random.random() < self.faults.twice else 1
        for _ in range(times):
            if self.random.random() < self.faults.loss:
                continue
            delay = self.random.uniform(0.0005, 0.005)
            if self.random.random() < self.faults.slow:
                delay *= 100
            self.after(delay, do)

    def answer(self, event: Event) -> None:
        self.message(lambda: self.coordinate(event))

    # The cluster.

    def hosts_seen(self) -> HostsSeen:
        return HostsSeen(
            at=self.now,
            hosts=tuple(
                HostView(host=f"host{i}", cores=4.0, cpu_ratio=0.1) for i in range(self.hosts)
            ),
        )

    def start(self, command: StartNode) -> None:
        key = (command.job, command.rank)
        if key not in self.nodes:
            if self.random.random() < self.faults.not_made:
                reason = "no room"
                self.answer(
                    NodeNotMade(at=self.now, job=command.job, rank=command.rank, reason=reason)
                )
                return
            node = self.make(command)
            self.nodes[key] = node
            self.told[key] = Once(node.apply)
            self.live(node)
        node = self.nodes[key]
        if not node.stopped:
            self.answer(
                NodeMade(
                    at=self.now,
                    job=command.job,
                    rank=command.rank,
                    host=command.host,
                    peer=node.peer(),
                )
            )

    def make(self, command: StartNode) -> SimNode:
        ledger = self.ledgers.setdefault(
            command.job, Ledger(bins=command.spec.bins, last_epoch=self.epochs)
        )
        return SimNode(
            rank=command.rank,
            ledger=ledger,
            ship=lambda s, t, b, e: self.ship(command.job, s, t, b, e),
            margin=lambda: self.random.randint(1, 6),
        )

    def live(self, node: SimNode) -> None:
        if node.stopped:
            return
        node.turn()
        self.after(self.epoch_s * self.random.uniform(0.5, 1.5), lambda: self.live(node))

    def tell(self, command: Tell) -> None:
        key = (command.job, command.rank)
        node = self.there(key)
        if node is None:
            return
        if node.frozen or node.busy:
            self.after(0.5, lambda: self.tell(command))
            return
        once = self.told[key]
        if self.once:
            answer = once.tell(command.command_id, command.command)
        else:
            answer = node.apply(command.command)
        self.answer(
            Answered(
                at=self.now,
                job=command.job,
                rank=command.rank,
                command_id=command.command_id,
                answer=answer,
            )
        )

    def there(self, key: tuple[str, int]) -> SimNode | None:
        """The node, if its process is there; else its absence is noticed now and then."""
        node = self.nodes.get(key)
        if node is not None and not node.stopped:
            return node
        if self.random.random() < 0.1:
            self.answer(NodeLost(at=self.now, job=key[0], rank=key[1], reason="no such process"))
        return None

    def report(self, command: AskReport) -> None:
        node = self.there((command.job, command.rank))
        if node is None:
            return
        if node.frozen or node.busy:
            if node.busy:
                self.answer(Heard(at=self.now, job=command.job, rank=command.rank))
            self.after(0.5, lambda: self.report(command))
            return
        self.answer(
            Reported(
                at=self.now,
                job=command.job,
                rank=command.rank,
                report=node.report(command.loads),
                loads=command.loads,
            )
        )

    def stop(self, job: str, rank: int) -> None:
        node = self.nodes.get((job, rank))
        if node is not None:
            node.stopped = True

    def ship(self, job: str, source: int, target: int, bin: int, epoch: int) -> None:
        """The bin is on the way, on the nodes' own links; it is lost with either of them."""

        def arrive() -> None:
            sender, taker = self.nodes[job, source], self.nodes[job, target]
            if not sender.stopped and not taker.stopped:
                taker.ledger.arrive(target, bin, epoch)

        self.after(self.random.uniform(0.001, 0.05), arrive)

    # What a test does.

    def ask(self, request: Request, key: str | None = None) -> str:
        """A client asks until it is answered."""
        name = key or f"r{next(self.counter)}"

        def again() -> None:
            if name not in self.replies:
                self.answer(Asked(at=self.now, request_id=name, request=request))
                self.after(1.0, again)

        again()
        return name

    def asked(self, request: Request) -> Reply:
        name = self.ask(request)
        self.run(lambda: name in self.replies)
        return self.replies[name]

    def job(self, name: str = "job") -> JobState:
        return self.state.jobs[name]

    def kill(self, rank: int, job: str = "job") -> None:
        node = self.nodes.get((job, rank))
        if node is not None and not node.stopped:
            node.stopped = True
            self.lost.add((job, rank))

    def fail(self, rank: int, job: str = "job") -> None:
        """The job fails on a node: a record, or the node itself."""
        node = self.nodes.get((job, rank))
        if node is not None and not node.stopped and node.phase != "ended":
            node.phase = "failed"
            self.lost.add((job, rank))

    def freeze(self, rank: int, seconds: float, job: str = "job") -> None:
        node = self.nodes.get((job, rank))
        if node is None or node.stopped:
            return
        node.frozen = True

        def thaw() -> None:
            node.frozen = False

        self.lost.add((job, rank))
        self.after(seconds, thaw)

    def occupy(self, rank: int, seconds: float, job: str = "job") -> None:
        """A call holds the node's interpreter: no answers and no reports, but its heart beats."""
        node = self.nodes.get((job, rank))
        if node is None or node.stopped:
            return
        node.busy = True

        def done() -> None:
            node.busy = False

        self.after(seconds, done)

    def over(self, name: str = "job") -> bool:
        return self.up and name in self.state.jobs and self.job(name).over

    def judge(self, name: str = "job") -> None:
        """What must be true when a job is over."""
        job = self.job(name)
        ledger = self.ledgers.get(name)
        if job.phase == "ended" and ledger is not None:
            end = {node.end for key, node in self.nodes.items() if key[0] == name and node.layouts}
            if end and set(ledger.next) != {min(end)}:
                raise Violation(f"seed {self.seed}: bins are processed up to {ledger.next}, {end}")
        if job.phase == "failed" and not self.lost and not self.faults.not_made:
            raise Violation(f"seed {self.seed}: failed without a fault: {job.error}\n{self}")

        def settled() -> bool:
            nodes = {key[1]: node for key, node in self.nodes.items() if key[0] == name}
            return all(node.stopped for rank, node in nodes.items())

        # Nodes that were given up or came back are stopped; nothing goes on working.
        self.run(settled, 30.0)
