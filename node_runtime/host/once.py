"""The node's side of commands that may be told twice, late, or out of order.

A command that was carried out is answered as the first time; one that is older than the last and
was never carried out is refused, because the coordinator has gone on without it. Every edge that
hosts a node puts this between the wire and the node. Slow commands have ids of their own, and an
order of their own: neither kind makes the other one old.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from plait.protocol.checkpoint_messages import SLOW_IDS
from plait.protocol.messages import Answer, Command, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

KEPT = 64


class Answers:
    """To the commands of one sequence."""

    def __init__(self) -> None:
        self.kept: dict[int, Answer] = {}
        self.last = 0


class Once:
    """Carries out each command once. May be called from any thread; commands go one by one."""

    def __init__(self, apply: Callable[[Command], Answer]) -> None:
        self.apply = apply
        self.quick = Answers()
        self.slow = Answers()
        self.lock = threading.Lock()

    def tell(self, command_id: int, command: Command) -> Answer:
        with self.lock:
            told = self.slow if command_id >= SLOW_IDS else self.quick
            known = told.kept.get(command_id)
            if known is not None:
                return known
            if command_id <= told.last:
                return Refused(reason=f"command {command_id} is older than {told.last}")
            told.last = command_id
            try:
                answer = self.apply(command)
            except Exception as error:
                answer = Refused(reason=f"{type(error).__name__}: {error}")
            told.kept[command_id] = answer
            while len(told.kept) > KEPT:
                del told.kept[next(iter(told.kept))]
            return answer
