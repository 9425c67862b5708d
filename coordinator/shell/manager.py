"""The shell around the logic: one thread, an inbox, a clock, the journal and the gateway.

Events come in from any thread; the manager's thread takes them one by one through the machine,
writes the facts of a batch to the journal at once, and only then sends the commands. What goes
wrong with one request or one job stays with it (`machine/isolation.py`), also what cannot be
written. Anything else ends the thread, and by `fail` the process: nothing may be done that is not
on record, and whoever comes next reads the journal.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import traceback
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, assert_never

from plait.coordinator.journal.store import JournalBroken
from plait.coordinator.machine.isolation import (
    Turned,
    follow_unwritten,
    isolate,
    text_of,
    try_advance,
)
from plait.coordinator.machine.job_view import quality_of, view_of
from plait.coordinator.machine.state import State
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
from plait.coordinator.messages.events import Asked, Restarted, Tick
from plait.coordinator.messages.request_checks import objection_to
from plait.coordinator.messages.requests import Rejected
from plait.coordinator.messages.spec import Policy
from plait.coordinator.messages.views import JobQuality
from plait.errors import InternalError, TimedOut

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.coordinator.journal.store import Journal
    from plait.coordinator.messages.events import Event, Fact
    from plait.coordinator.messages.requests import Reply, Request
    from plait.coordinator.messages.views import JobView
    from plait.coordinator.shell.gateway import Gateway

BATCH = 1000
"""Events taken before the journal is written: one flush for all of them."""
STALE_S = 5.0
"""A coordinator that has not looked at its inbox for so long says so."""
LOG = logging.getLogger("plait.coordinator")


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerStats:
    """What the manager itself has done."""

    events: int = 0
    facts: int = 0
    commands: int = 0
    failures: int = 0
    last_failure: str = ""
    cpu_s: float = 0.0
    """CPU time of its thread."""


def recover(journal: Journal, policy: Policy) -> tuple[State, float]:
    """The state that the journal tells, and the time of its last fact."""
    saved, facts = journal.load()
    state = replace(saved if saved is not None else State(), policy=policy)
    latest = max(
        (time for job in state.jobs.values() for time in (job.wait.since, job.submitted_at)),
        default=0.0,
    )
    for fact in facts:
        state, _ = step(state, fact)
        latest = max(latest, fact.at)
    return state, latest


def calm(state: State) -> bool:
    """No job has layouts under way: they are the bulk of a state."""
    return all(len(job.layouts) <= 1 for job in state.jobs.values())


class JobManager:
    """The coordinator of a cluster. Begins to work when made; `close` ends it and leaves the jobs
    as they are."""

    def __init__(
        self,
        journal: Journal,
        gateway: Gateway,
        clock: Callable[[], float] = time.monotonic,
        policy: Policy | None = None,
        fail: Callable[[str], None] | None = None,
    ) -> None:
        """`fail` is called, in the manager's thread, when that cannot go on: it should end the
        process. Without it requests are answered with the reason."""
        self.fail = fail
        self.journal = journal
        self.gateway = gateway
        self.policy = policy or Policy()
        self.state, latest = recover(journal, self.policy)
        # Times go on from where they were, whatever the clock of this process says.
        ahead = latest - clock()
        self.clock: Callable[[], float] = (lambda: clock() + ahead) if ahead > 0 else clock
        self.stats = ManagerStats()
        self.inbox: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self.replies: dict[str, Reply] = {}
        self.asking: dict[str, int] = {}
        self.changed = threading.Condition()
        self.broken = ""
        self.warning = ""
        """What keeps the manager from its work for now, for all who look."""
        self.turned_at = self.clock()
        self.retained: tuple[frozenset[str], frozenset[tuple[str, int]]] | None = None
        gateway.open(self.deliver, self.clock)
        self.deliver(Restarted(at=self.clock(), cause="the coordinator started"))
        self.thread = threading.Thread(target=self.work, name="plait-manager", daemon=True)
        self.thread.start()

    def deliver(self, event: Event) -> None:
        """Something happened. From any thread; never waits."""
        self.inbox.put(event)

    def request(
        self, request: Request, timeout: float | None = 30.0, request_id: str | None = None
    ) -> Reply:
        """Ask for something and wait for the reply. With the same id it is asked once, however
        often this is called."""
        key = request_id or uuid.uuid4().hex
        if wrong := objection_to(request):
            return Rejected(reason=wrong)
        with self.changed:
            self.asking[key] = self.asking.get(key, 0) + 1
        try:
            self.deliver(Asked(at=self.clock(), cause="client", request_id=key, request=request))
            with self.changed:
                self.changed.wait_for(lambda: key in self.replies or self.broken, timeout)
                if key in self.replies:
                    return self.replies[key]
            if self.broken:
                raise InternalError(f"the coordinator has stopped: {self.broken}")
            raise TimedOut(
                f"no reply to {type(request).__name__} within {timeout} s; ask again with the same "
                "request id"
            )
        finally:
            with self.changed:
                self.asking[key] -= 1
                if not self.asking[key]:
                    del self.asking[key]
                    self.replies.pop(key, None)

    def view(self, job: str) -> JobView | None:
        """A job as it is now; None if there is none of this name."""
        found = self.state.jobs.get(job)
        return self.with_warning(view_of(found, self.clock())) if found is not None else None

    def quality(self, job: str) -> JobQuality:
        """What was decided about a job's queries under overload, and what they got over time."""
        found = self.state.jobs.get(job)
        return JobQuality() if found is None else quality_of(found)

    def with_warning(self, view: JobView) -> JobView:
        """With what is wrong with the manager itself."""
        stale_s = max(view.now - self.turned_at, 0.0)
        warning = self.broken or self.warning
        if stale_s > STALE_S:
            warning = (
                warning or f"the coordinator has not looked after its jobs for {stale_s:.0f} s"
            )
            return replace(view, warning=warning, stale_s=stale_s)
        return replace(view, warning=warning) if warning else view

    def wait(
        self, job: str, holds: Callable[[JobView | None], bool], timeout: float | None = None
    ) -> JobView | None:
        """Until something holds of the job's view, or the time is over; then the view as it is."""
        with self.changed:
            self.changed.wait_for(lambda: self.broken or holds(self.view(job)), timeout)
        return self.view(job)

    def views(self) -> tuple[JobView, ...]:
        now = self.clock()
        return tuple(self.with_warning(view_of(job, now)) for job in self.state.jobs.values())

    def close(self) -> None:
        """End the manager. Jobs and nodes go on; a manager with the same journal takes over."""
        self.inbox.put(None)
        self.thread.join()
        self.gateway.close()
        self.journal.close()

    def work(self) -> None:
        """The manager's thread."""
        due = self.clock()
        try:
            while True:
                batch, closing = self.take(max(due - self.clock(), 0.0))
                now = self.turned_at = self.clock()
                if now >= due:
                    names = list(self.state.jobs) or [""]
                    batch += [Tick(at=now, cause="clock", job=name) for name in names]
                    due = now + self.policy.tick_s
                self.handle(batch)
                if closing:
                    return
        except Exception as error:
            self.stop_working(error)

    def stop_working(self, error: Exception) -> None:
        LOG.critical("the coordinator cannot go on", exc_info=error)
        with self.changed:
            self.broken = text_of(error)
            self.changed.notify_all()
        if self.fail is not None:
            self.fail(self.broken)

    def take(self, wait_s: float) -> tuple[list[Event], bool]:
        """What is in the inbox; waits for the first, at most until the next tick."""
        batch: list[Event] = []
        try:
            event = self.inbox.get(timeout=wait_s) if wait_s else self.inbox.get_nowait()
            while event is not None:
                batch.append(event)
                if len(batch) == BATCH:
                    break
                event = self.inbox.get_nowait()
            return batch, event is None
        except queue.Empty:
            return batch, False

    def handle(self, batch: list[Event]) -> None:
        """A batch of events: decide, write down, act."""
        state = self.state
        turns: list[Turned] = []
        for event in batch:
            turns.append(self.follow(state, event))
            state = turns[-1].state
        facts = [fact for turn in turns for fact in turn.facts]
        try:
            self.write(facts)
        except JournalBroken:
            raise
        except Exception:
            # Which of them cannot be written, and why, is found one by one.
            turns = [self.handle_alone(event) for event in batch]
            facts = [fact for turn in turns for fact in turn.facts]
        else:
            self.state = state
        commands = [command for turn in turns for command in turn.commands]
        if facts:
            self.compact()
            self.retain()
        self.act(commands)
        stats = self.stats
        self.stats = replace(
            stats,
            events=stats.events + len(batch),
            facts=stats.facts + len(facts),
            commands=stats.commands + len(commands),
            cpu_s=time.thread_time(),
        )
        with self.changed:
            self.changed.notify_all()

    def follow(self, state: State, event: Event) -> Turned:
        """What follows from an event; a failure is noted."""
        turn = try_advance(state, event)
        if turn.error is not None:
            self.note_failure(f"{type(event).__name__} {getattr(event, 'job', '')}", turn.error)
        return turn

    def write(self, facts: list[Fact]) -> None:
        if facts:
            self.journal.append(facts)
            self.warning = ""

    def handle_alone(self, event: Event) -> Turned:
        """One event of a batch that could not be written as a whole."""
        turn = self.follow(self.state, event)
        try:
            self.write(turn.facts)
        except JournalBroken:
            raise
        except Exception as error:
            self.note_failure("journal", error)
            turn = self.follow_otherwise(event, error)
        self.state = turn.state
        return turn

    def follow_otherwise(self, event: Event, error: Exception) -> Turned:
        """The facts of this event could not be written: the disk is full, or they are nonsense."""
        if isinstance(error, OSError):
            self.warning = f"the coordinator cannot write its journal: {text_of(error)}"
            return follow_unwritten(self.state, event, error)
        turn = isolate(self.state, event, error)
        try:
            self.write(turn.facts)
        except JournalBroken:
            raise
        except Exception:
            return follow_unwritten(self.state, event, error)
        return turn

    def compact(self) -> None:
        """A snapshot instead of the facts, when there are enough of them."""
        if not self.journal.wants_snapshot(calm(self.state)):
            return
        try:
            self.journal.snapshot(self.state)
        except OSError as error:  # the facts are still there
            self.note_failure("snapshot", error)

    def retain(self) -> None:
        """Tells the gateway what is still needed, if that has changed."""
        jobs = self.state.jobs.values()
        needed = (
            frozenset(job.spec.payload for job in jobs if not job.over),
            frozenset((job.name, rank) for job in jobs if job.kept for rank in job.all_ranks),
        )
        if needed != self.retained:
            self.retained = needed
            self.gateway.retain(*needed)

    def act(self, commands: list[Outgoing]) -> None:
        for command in commands:
            try:
                self.send(command)
            except Exception as error:
                self.note_failure(f"{type(command).__name__}", error)

    def note_failure(self, what: str, error: Exception) -> None:
        """Counts a failure, and logs it unless it is the one that was logged last."""
        lines = "".join(traceback.format_exception(error))
        text = f"{what}\n{lines}"
        if text != self.stats.last_failure:
            LOG.error("%s", text)
        self.stats = replace(self.stats, failures=self.stats.failures + 1, last_failure=text)

    def send(self, command: Outgoing) -> None:
        match command:
            case StartNode():
                self.gateway.start_node(command)
            case Tell():
                self.gateway.tell(command)
            case AskReport():
                self.gateway.ask_report(command)
            case StopNode():
                self.gateway.stop_node(command)
            case AskHosts():
                self.gateway.ask_hosts(command)
            case ReplyTo(request_id=key, reply=reply):
                with self.changed:
                    if key in self.asking:
                        self.replies[key] = reply
                        self.changed.notify_all()
            case _:
                assert_never(command)
