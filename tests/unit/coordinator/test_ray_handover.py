"""A node that has left counts as such when its outcome is stored; without Ray, with actors that
answer when they are told to."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest
from ray.exceptions import ActorDiedError

from plait.coordinator.messages.commands import AskReport
from plait.coordinator.messages.events import NodeLost, Reported
from plait.coordinator.shell.ray_gateway import RayGateway
from plait.protocol.messages import NodeReport

if TYPE_CHECKING:
    from pathlib import Path

KEY = ("job", 2)
ASK = AskReport(job="job", rank=2, loads=False, cause="clock")
LEFT = NodeReport(rank=2, phase="left")


class Call:
    """A call of an actor: `remote` gives a reference, whose answer comes later."""

    def __init__(self) -> None:
        self.asked: list[Future[Any]] = []

    def remote(self, *given: Any) -> Any:
        answer: Future[Any] = Future()
        self.asked.append(answer)
        return type("Reference", (), {"future": lambda _: answer})()


class Actor:
    def __init__(self) -> None:
        self.remains = Call()


class AtOnce:
    """A pool of one thread: this one."""

    def submit(self, work: Any, *given: Any) -> None:
        work(*given)


class Nothing:
    """What is not asked for here."""

    def __getattr__(self, name: str) -> Any:
        return lambda *given: None


@pytest.fixture
def gateway(tmp_path: Path) -> Any:
    made: Any = RayGateway.__new__(RayGateway)
    made.outcomes = tmp_path
    made.actors, made.ending, made.wanted = {KEY: Actor()}, set(), None
    made.asking, made.lock, made.closed = {}, threading.Lock(), False
    made.pool, made.hosts, made.beats = AtOnce(), Nothing(), Nothing()
    made.heard = []
    made.open(made.heard.append, lambda: 7.0)
    return made


def report(gateway: Any, found: NodeReport) -> None:
    done: Future[Any] = Future()
    done.set_result(found)
    gateway.reported(ASK, done)


def test_what_a_node_has_is_stored_before_it_has_left(gateway: Any) -> None:
    report(gateway, LEFT)
    report(gateway, LEFT)
    (asked,) = gateway.actors[KEY].remains.asked
    assert gateway.heard == []
    asked.set_result((b"outcome", "explained", ["printed"]))
    (event,) = gateway.heard
    assert (type(event), event.report) == (Reported, LEFT)
    assert gateway.kept(*KEY, "outcome") == b"outcome"
    report(gateway, LEFT)
    assert len(gateway.actors[KEY].remains.asked) == 1
    assert len(gateway.heard) == 2


def test_one_that_dies_before_that_was_lost(gateway: Any) -> None:
    report(gateway, LEFT)
    gateway.actors[KEY].remains.asked[0].set_exception(ActorDiedError())
    (event,) = gateway.heard
    assert isinstance(event, NodeLost)
    assert gateway.kept(*KEY, "outcome") is None


def test_a_full_disk_has_it_asked_again(gateway: Any, tmp_path: Path) -> None:
    gateway.outcomes = tmp_path / "file"
    gateway.outcomes.write_text("in the place of the folder")
    report(gateway, LEFT)
    actor = gateway.actors[KEY]
    actor.remains.asked[0].set_result((b"outcome", "", []))
    assert gateway.heard == []
    gateway.outcomes.unlink()
    report(gateway, LEFT)
    actor.remains.asked[1].set_result((b"outcome", "", []))
    assert len(gateway.heard) == 1


@pytest.mark.parametrize(
    "other", [NodeReport(rank=2, phase="running"), NodeReport(rank=2, phase="left", attempt=1)]
)
def test_others_are_not_asked(gateway: Any, other: NodeReport) -> None:
    """With checkpoints a node may still have to write its part of one."""
    report(gateway, other)
    assert gateway.actors[KEY].remains.asked == []
    assert len(gateway.heard) == 1
