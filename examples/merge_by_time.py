"""Two logs, each in the order of its times, as one in the order of all times.

The loop holds a record back until the other log has one to compare it with, or is over. That is a
union by a column, where `union` itself goes by the order in which records are read.
"""

from __future__ import annotations

import plait


@plait.operator(inputs=("left", "right"), outputs={"out": "left"})
async def merge(ctx: plait.Context, by: str) -> None:
    while await ctx.wait_all(left=1, right=1):
        left, right = (getattr(ctx.peek(port), by) for port in ctx.inputs)
        ctx.emit(ctx.pop("left" if left <= right else "right"))
    for port in ctx.inputs:  # one is over: the rest of the other, as it comes
        while await ctx.wait_all(**{port: 1}):
            ctx.emit(ctx.pop(port))


web = plait.stream([{"at": 3 * n, "log": "web"} for n in range(8)])
db = plait.stream([{"at": 5 * n + 1, "log": "db"} for n in range(6)])

merged = merge(left=web, right=db, by="at").out
merged.show(14)
times = [record.at for record in merged.collect()]
assert times == sorted(times)
