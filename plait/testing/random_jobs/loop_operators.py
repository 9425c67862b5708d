"""Operators with their own loop for random jobs: what they wait for, pop and emit comes from a
seed, some of them return early, some raise.

What they do depends only on the seed, and on which records have arrived when they look.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from plait.loops.loop_operators import operator
from plait.testing.random_jobs.functions import checksum

if TYPE_CHECKING:
    from plait.loops.loop_operators import Context

COUNTS = (1, 1, 1, 2, 3)


class Wanderer:
    """The loop of all these operators: waits, looks, takes and tells, as the seed has it."""

    def __init__(self, ctx: Context, seed: int, most: int, failing: int) -> None:
        self.ctx = ctx
        self.draw = random.Random(seed)
        self.most = most
        self.failing = failing
        self.told = 0

    async def run(self) -> None:
        if self.draw.random() < 0.2:
            self.tell("begin")
        steps = 0
        while (most := self.most) == 0 or steps < most:
            steps += 1
            if not await self.wait():
                break
            await self.take()
        for port in self.ctx.inputs:
            self.tell(f"{port} {self.ctx.size(port)} {self.ctx.over(port)}")

    async def wait(self) -> bool:
        """Whether something came or may still come."""
        draw, ctx = self.draw, self.ctx
        ports = draw.sample(ctx.inputs, draw.randint(1, len(ctx.inputs)))
        counts = {port: draw.choice(COUNTS) for port in ports}
        if draw.random() < 0.5:
            met = await ctx.wait_all(**counts)
        else:
            met = await ctx.wait_any(**counts)
        if not met:
            self.tell(f"no {sorted(counts.items())}")
        over = all(ctx.over(port) for port in ctx.inputs)
        return met or not over or any(ctx.size(port) for port in ctx.inputs)

    async def take(self) -> None:
        draw, ctx = self.draw, self.ctx
        for port in ctx.inputs:
            if not ctx.size(port) or draw.random() < 0.2:
                continue
            if draw.random() < 0.3:
                self.pass_on(port, ctx.peek(port, ctx.size(port) - 1))
            for record in ctx.pop(port, draw.randint(1, ctx.size(port))):
                if self.failing and checksum(record) % self.failing == 0:
                    raise ValueError(f"{port} has the checksum {checksum(record)}")
                self.pass_on(port, record)
                if draw.random() < 0.1:
                    await asyncio.sleep(0)

    def pass_on(self, port: str, record: Any) -> None:
        raise NotImplementedError

    def tell(self, what: str) -> None:
        raise NotImplementedError


class Mixed(Wanderer):
    """Records of `a` and words, at two ports."""

    def pass_on(self, port: str, record: Any) -> None:
        if port == "a":
            for _ in range(self.draw.choice((0, 1, 1, 2))):
                self.ctx.emit(passed=record)
        else:
            self.tell(f"{checksum(record)}")

    def tell(self, what: str) -> None:
        self.told += 1
        self.ctx.emit(told=(self.told, what))


class Paired(Wanderer):
    """The last record of each input, side by side."""

    def __init__(self, ctx: Context, seed: int, most: int, failing: int) -> None:
        super().__init__(ctx, seed, most, failing)
        self.last: dict[str, Any] = dict.fromkeys(ctx.inputs)

    def pass_on(self, port: str, record: Any) -> None:
        self.last[port] = record
        self.tell("")

    def tell(self, what: str) -> None:
        self.ctx.emit(tuple(self.last.values()))


class Passed(Wanderer):
    """The records of one input, some of them twice or not at all."""

    def pass_on(self, port: str, record: Any) -> None:
        self.last = record
        self.ctx.emit(record)

    def tell(self, what: str) -> None:
        if hasattr(self, "last"):
            self.ctx.emit(self.last)


@operator(inputs=("a", "b"), outputs={"passed": "a", "told": {"n": int, "what": str}})
async def mix(ctx: Context, seed: int, most: int, failing: int) -> None:
    await Mixed(ctx, seed, most, failing).run()


@operator(inputs=("a", "b"))
async def pair(ctx: Context, seed: int, most: int, failing: int) -> None:
    await Paired(ctx, seed, most, failing).run()


@operator
async def pass_some(ctx: Context, seed: int, most: int, failing: int) -> None:
    await Passed(ctx, seed, most, failing).run()
