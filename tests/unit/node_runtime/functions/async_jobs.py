"""Jobs for the tests of functions that are awaited: records, and functions that meet or hang."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

import plait


@dataclass
class Order:
    n: int
    price: float = 1.5


def orders(count: int) -> plait.Stream:
    return plait.stream([Order(n) for n in range(count)])


def numbers(records: Any) -> list[int]:
    return [record.n for record in records]


async def same(order: Order) -> Order:
    return order


async def yielding(order: Order) -> Any:
    yield order


class Gate:
    """Opens when so many are inside, and counts the most that ever were."""

    def __init__(self, opens_at: int) -> None:
        self.opens_at = opens_at
        self.inside = self.most = 0
        self.opened = asyncio.Event()

    async def __call__(self, order: Order) -> Order:
        self.inside += 1
        self.most = max(self.most, self.inside)
        if self.inside == self.opens_at:
            self.opened.set()
        await self.opened.wait()
        await asyncio.sleep(0)
        self.inside -= 1
        return order


class Stuck:
    """Never returns; says when a record is there, and which were cancelled."""

    def __init__(self, *, ready_at: int = 1) -> None:
        self.there = threading.Event()
        self.ready_at = ready_at
        self.began: list[int] = []
        self.cancelled: list[int] = []

    async def __call__(self, order: Order) -> Order:
        self.began.append(order.n)
        if len(self.began) == self.ready_at:
            self.there.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.append(order.n)
            raise
        return order
