"""A job on several nodes in this process, with changes while it runs: no Ray, only loopback TCP.

`run_on_nodes` does by hand what the coordinator does: it prepares the nodes, lets them begin, and
agrees with them on the epochs of changes (rounds of Promise and Commit). Changes are given, or
drawn from a seed; all that was done is in the message when something goes wrong. A gate holds the
sources of all nodes at an epoch until the next change is made, so that a change comes where it
should, in the middle of the smallest job. Never hangs: after the timeout it raises TimedOut with
what every node reported.
"""

from __future__ import annotations

import itertools
import pickle
import random
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from plait.connectors.splitting import splitting
from plait.errors import InternalError, JobError, TimedOut
from plait.graph.operators import CallOp, FoldOp, Graph, ShedOp, StatefulOp
from plait.graph.stages import has_loop
from plait.model.settings import Settings
from plait.node_runtime.host.agent import NodeAgent
from plait.protocol.messages import (
    EVERYONE,
    Answer,
    Begin,
    Command,
    Commit,
    Connect,
    Done,
    End,
    Expect,
    Layout,
    Lift,
    Prepare,
    Promise,
    Refused,
)
from plait.results.engine_failures import FailureKind
from plait.results.outcomes import NodeOutcome, check_conserved, first_error, merge_outcomes
from plait.testing.changes import (
    Break,
    Change,
    Crash,
    Join,
    Keep,
    Leave,
    Move,
    Save,
    Stop,
    draw_change,
    moving_layouts,
    owners_without,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from plait.results.result import Result

TOKEN = "nodes of one process"
STILL_S = 0.02
"""Nodes that have not moved for so long are taken to be at the end of their sources."""
SETTLE_S = 1.0
"""How long a failed job waits for the node that has the exception."""
AT_THE_END = 2
"""So many more changes are made when the sources are at their end."""
LOOK_S = 0.0005
"""How long the driver waits between two looks at the nodes."""
RANDOM_CHANGES = 12
TIMEOUT_S = 60.0

handed: dict[int, tuple[Any, ...]] = {}
"""Jobs on their way to a node of this process, which takes bytes."""
tickets = itertools.count()


def take_handed(ticket: int) -> tuple[Any, ...]:
    return handed[ticket]


@dataclass(frozen=True, slots=True)
class Ticket:
    """Pickled it is a number; loaded in this process it is the job itself, nothing copied."""

    number: int

    def __reduce__(self) -> Any:
        return take_handed, (self.number,)


def run_on_nodes(
    job: Any,
    nodes: int = 2,
    *,
    changes: Iterable[Change] = (),
    seed: int | None = None,
    timeout: float = TIMEOUT_S,
    **settings: Any,
) -> Result:
    """Runs a job on nodes in this process and gives the result of all of them together.

    Args:
        nodes: how many there are at the start.
        changes: what to do while it runs, one after the other; when the sources end before, the
            rest is left out.
        seed: draw such changes instead.
        timeout: seconds after which it raises TimedOut.
        settings: as those of `plait.run`; `workers` are those of each node.
    """
    from plait.execution.local_run import graph_of

    graph = graph_of(job)
    return Nodes(lambda _: graph, nodes, changes, seed, timeout, settings).run()


class Nodes:
    """The nodes of one run, and what is told to them."""

    def __init__(
        self,
        graph_at: Callable[[int], Graph],
        nodes: int,
        changes: Iterable[Change],
        seed: int | None,
        timeout: float,
        settings: dict[str, Any],
    ) -> None:
        """`graph_at`: the job as the node of a rank gets it."""
        self.graph_at = graph_at
        self.graph = graph_at(0)
        self.settings = settings_on_nodes(settings)
        self.deadline = time.monotonic() + timeout
        self.chance = random.Random(seed)
        self.story: list[str] = [f"{nodes} nodes, seed {seed}, {settings}"]
        self.agents: dict[int, NodeAgent] = {}
        self.gone: set[int] = set()
        self.round = 0
        self.plans = 0
        self.stop_at: int | None = None
        """The epoch at which a Stop ends all sources."""
        self.gate: int | None = None
        """The epoch that no source passes before the next change."""
        drawing = seed is not None
        self.home = self.chance.randrange(nodes) if drawing else 0
        self.layout = self.first_layout(nodes, drawing)
        self.drawing = drawing
        self.coming: list[Change | None] = [None] * RANDOM_CHANGES if drawing else list(changes)

    def first_layout(self, nodes: int, drawing: bool) -> Layout:
        """Bins in turn, or anyhow; sources that one node reads are read by the home, or any."""
        bins = range(1 << self.settings.bin_bits)
        reader = self.chance.randrange(nodes) if drawing else self.home
        splits = splitting(self.graph, self.settings.order)
        return Layout(
            epoch=0,
            members=tuple(range(nodes)),
            owners=tuple(self.chance.randrange(nodes) if drawing else b % nodes for b in bins),
            readers=tuple(EVERYONE if split else reader for split in splits),
            epoch_records=self.settings.epoch_records,
        )

    def run(self) -> Result:
        """Runs to the end, or raises what ended the run."""
        outcomes = self.outcomes()
        error = first_error(outcomes)
        if error is not None:
            raise error
        result = merge_outcomes(self.graph.name, outcomes)
        check_conserved(result, outcomes)
        return result

    def outcomes(self) -> list[NodeOutcome]:
        """What each node has at the end, failures included."""
        try:
            self.start()
            good = self.watch()
            for agent in self.agents.values():
                self.tell(agent, End(good=good))
            found = [agent.outcome() for agent in self.agents.values()]
            return [outcome for outcome in found if outcome is not None]
        except BaseException as error:
            error.add_note(self.story_text())
            raise
        finally:
            for agent in self.agents.values():
                agent.close()

    def story_text(self) -> str:
        return "\n  ".join(["what was done on the nodes:", *self.story])

    def start(self) -> None:
        for rank in self.layout.members:
            self.make(rank)
        for agent in self.members:
            self.must(agent, self.preparation(agent))
        self.move_gate()
        for agent in self.members:
            self.must(agent, Begin(layout=self.layout))

    def move_gate(self) -> None:
        """To where the next change is due; away, if there is none."""
        past = max(self.taken + 1, self.gate or 1)
        if not self.coming or self.stop_at is not None:
            self.gate = None
        elif self.drawing:
            self.gate = past + self.chance.choice((0, 0, 1, 1, 2, 3, 5, 9))
        else:
            self.gate = max(past, getattr(self.coming[0], "at", None) or 0)
        self.tell_gate()

    def tell_gate(self) -> None:
        """All nodes that have an engine hear of the gate; one that leaves goes past it."""
        for agent in self.agents.values():
            if agent.parts is not None:
                agent.cluster.gate(None if agent.rank in self.gone else self.gate)

    def make(self, rank: int) -> NodeAgent:
        number = next(tickets)
        handed[number] = self.payload_of(rank)
        try:
            agent = NodeAgent(rank, pickle.dumps(Ticket(number)), TOKEN)
        finally:
            del handed[number]
        self.agents[rank] = agent
        return agent

    def payload_of(self, rank: int) -> tuple[Any, ...]:
        return self.graph_at(rank), self.settings

    def preparation(self, agent: NodeAgent) -> Prepare:
        peers = tuple(other.peer() for other in self.members if other is not agent)
        return Prepare(rank=agent.rank, layout=self.layout, peers=peers, home=self.home)

    @property
    def members(self) -> list[NodeAgent]:
        return [self.agents[rank] for rank in self.layout.members]

    def has_loops(self) -> bool:
        """Whether there are operators with their own loop, which stay at home."""
        return any(has_loop(node) for node in self.agents[self.home].graph.operators)

    @property
    def homeless(self) -> list[int]:
        """Members that may leave: no sinks of the whole job, no source of their own, no operator
        with its own loop."""
        kept = set(self.layout.readers)
        if self.settings.order != "key" or self.has_loops():
            kept.add(self.home)
        return [rank for rank in self.layout.members if rank not in kept]

    def tell(self, agent: NodeAgent, command: Command) -> Answer:
        """Tells it twice now and then: a repeated command must change nothing."""
        answer = agent.apply(command)
        if self.chance.randrange(8) == 0:
            again = agent.apply(command)
            if again != answer and not isinstance(command, Promise | End):
                raise InternalError(f"{command} was answered {answer}, then {again}")
        return answer

    def must(self, agent: NodeAgent, command: Command) -> None:
        answer = self.tell(agent, command)
        if isinstance(answer, Refused):
            raise InternalError(f"node {agent.rank} refused {command}: {answer.reason}")

    def watch(self) -> bool:
        """Makes the changes and waits for the end; whether it was a good one."""
        while True:
            if all(agent.engine.wait(0.0) for agent in self.agents.values()):
                return not self.failing()
            if self.failing():
                return self.end_failing()
            if any(agent.report().satisfied for agent in self.members):
                return True
            if not self.coming:
                self.pause()
            elif self.at_the_gate():
                if not self.change(self.coming.pop(0)):
                    self.coming.clear()
                self.move_gate()

    def at_the_gate(self) -> bool:
        """Waits, mostly, until all nodes have come to the gate, or stand still at the end of their
        sources: the next change finds them there or, now and then, on their way."""
        if self.gate is None or self.chance.randrange(4) == 0:
            return True
        places = self.places()
        still = time.monotonic() + STILL_S
        while min(places) < self.gate and not self.failing():
            self.pause()
            if (now := self.places()) != places:
                places, still = now, time.monotonic() + STILL_S
            elif time.monotonic() > still:
                del self.coming[AT_THE_END:]
                break
        return not self.failing()

    def places(self) -> list[int]:
        """The epoch that each member's sources emit next."""
        return [agent.cluster.next_epoch() for agent in self.members]

    def pause(self) -> None:
        """Waits a moment on a node that is not over; reports are taken as a coordinator would."""
        for agent in list(self.agents.values()):
            agent.report()
        busy = next((one for one in self.agents.values() if not one.engine.wait(0.0)), None)
        if busy is not None:
            busy.engine.wait(LOOK_S)
        self.check_time()

    def check_time(self) -> None:
        if time.monotonic() < self.deadline:
            return
        shown = [f"{agent.report()}" for agent in self.agents.values()]
        raise TimedOut("\n  ".join(["the nodes did not come to their end", *shown]))

    def failing(self) -> bool:
        failed = any(agent.engine.error() is not None for agent in self.agents.values())
        return failed or self.state_refused()

    def state_refused(self) -> bool:
        """State was, or the breaker says that there are too many dead letters."""
        return any(agent.cluster.refusal() or agent.broken for agent in self.agents.values())

    def end_failing(self) -> bool:
        """A record failed: its sinks have what comes before it, the others go on to their end. If
        state was refused, nodes wait for bins that never come: all end at once."""
        self.story.append("a node failed")
        self.coming.clear()
        if self.state_refused():
            return False
        self.move_gate()
        watched = self.members if self.settings.order == "key" else [self.agents[self.home]]
        while not all(agent.engine.wait(0.0) for agent in watched):
            if self.state_refused():
                return False
            if self.settings.order == "key" and any(a.engine.wait(0.0) for a in watched):
                break  # the others may wait for its parts
            self.pause()
        self.let_settle()
        return False

    def let_settle(self) -> None:
        """The node where a Python function raised has the exception, and may hear of it last."""
        until = time.monotonic() + SETTLE_S
        while time.monotonic() < until and not any(map(self.knows_why, self.agents.values())):
            self.pause()

    def knows_why(self, agent: NodeAgent) -> bool:
        failure = agent.engine.error()
        if failure is None:
            return bool(agent.cluster.refusal())
        if failure.error is not None or failure.kind is FailureKind.SCHEDULER:
            return True
        return not isinstance(self.graph.operators[failure.op], CallOp | FoldOp | StatefulOp)

    @property
    def taken(self) -> int:
        """The last epoch at which something changes."""
        return self.layout.epoch

    @property
    def next_rank(self) -> int:
        return len(self.agents)

    def agree(self, make_commit: Callable[[int], Commit], begins: Sequence[NodeAgent] = ()) -> bool:
        """One round: False if a node is at its end, and nothing was changed."""
        self.round += 1
        answers = [
            self.tell(agent, Promise(round=self.round, margin_s=0.0)) for agent in self.members
        ]
        fences = [answer.epoch for answer in answers if isinstance(answer, Done)]
        if len(fences) < len(answers):
            for agent in self.members:
                self.must(agent, Lift(round=self.round))
            return False
        command = make_commit(max(*fences, self.taken + 1))
        members = self.members
        if command.layouts:
            self.layout = command.layouts[-1]
        for agent in begins:
            self.must(agent, Begin(layout=command.layouts[-1], joins=True))
        for agent in self.chance.sample(members, len(members)):
            self.must(agent, command)
        return True

    def change(self, given: Change | None) -> bool:
        """Makes a change; False when it was the last one, or the sources are at their end."""
        change = given or self.draw()
        self.story.append(f"gate {self.gate}, nodes at {self.places()}: {change}")
        match change:
            case Move():
                return self.move(change)
            case Join():
                return self.join(change)
            case Leave():
                return self.leave(change)
            case Break(one=one, other=other):
                if one in self.layout.members and other in self.layout.members:
                    self.agents[one].cluster.reconnect(other)
                return True
            case Keep():
                return self.keep(change)
            case Stop():
                self.agree(self.commit_stop)
                return False
            case Save() | Crash():
                raise JobError(f"a job without checkpoints has no {type(change).__name__}")

    def draw(self) -> Change:
        return draw_change(self.chance, self.layout, self.homeless, len(self.agents), self.queries)

    def commit_stop(self, epoch: int) -> Commit:
        self.stop_at = epoch
        return Commit(round=self.round, stop_at=epoch)

    def move(self, change: Move) -> bool:
        def make_commit(epoch: int) -> Commit:
            layouts = moving_layouts(self.layout, epoch, change)
            return Commit(round=self.round, layouts=layouts)

        self.expect(change)
        return self.agree(make_commit)

    def keep(self, change: Keep) -> bool:
        def make_commit(epoch: int) -> Commit:
            plain = replace(self.layout, epoch=epoch, copies=(), epoch_records=0)
            return Commit(round=self.round, layouts=(replace(plain, keep=change.thresholds),))

        return self.agree(make_commit)

    @property
    def queries(self) -> int:
        """How many sinks there are, if some may be shed."""
        shed = any(isinstance(op, ShedOp) for op in self.graph.operators)
        return len(self.graph.sinks) if shed else 0

    def expect(self, change: Move) -> None:
        """All hear of the bins first. Nobody waits until they are ready: the gate may hold them."""
        bins = tuple(change.owners)
        self.plans += 1
        command = Expect(
            number=self.plans,
            bins=bins,
            sources=tuple(self.layout.owners[bin] for bin in bins),
            targets=tuple(change.owners.values()),
        )
        for agent in self.members:
            self.must(agent, command)

    def join(self, change: Join) -> bool:
        agent = self.make(self.next_rank)
        self.must(agent, self.preparation(agent))
        agent.cluster.gate(self.gate)
        for other in self.members:
            self.must(other, Connect(peers=(agent.peer(),)))

        def make_commit(epoch: int) -> Commit:
            members = (*self.layout.members, agent.rank)
            layout = replace(self.layout, epoch=epoch, members=members, copies=(), epoch_records=0)
            return Commit(round=self.round, layouts=(layout,))

        if not self.agree(make_commit, begins=[agent]):
            self.agents.pop(agent.rank).close()
            return False
        owners = dict.fromkeys(change.bins, agent.rank)
        return not owners or self.move(Move(owners=owners, how=change.how, gap=change.gap))

    def leave(self, change: Leave) -> bool:
        if change.rank not in self.homeless:
            raise JobError(f"node {change.rank} cannot leave: it has sinks or reads a source")
        owners = owners_without(self.layout, change.rank)
        if owners and not self.move(Move(owners=owners, how=change.how, gap=change.gap)):
            return False

        def make_commit(epoch: int) -> Commit:
            members = tuple(rank for rank in self.layout.members if rank != change.rank)
            layout = replace(self.layout, epoch=epoch, members=members, copies=(), epoch_records=0)
            return Commit(round=self.round, layouts=(layout,))

        if not self.agree(make_commit):
            return False
        self.gone.add(change.rank)
        return True


def settings_on_nodes(given: dict[str, Any]) -> Settings:
    try:
        chosen = Settings(**given)
    except TypeError as error:
        raise JobError(f"run_on_nodes: {error}") from None
    if chosen.queue != "lanes" or chosen.order == "none":
        raise JobError('on nodes a job runs with queue="lanes" and order="total" or "key"')
    return chosen
