"""An operator with its own loop: waits for one record of each input, and puts them together.

The pairs come in the same order on any number of cores and nodes: records arrive at the ports in
the order of the input, and after each the loop runs as far as it can.
"""

from __future__ import annotations

import plait


@plait.operator(inputs=("left", "right"), outputs=("out",))
async def barrier(ctx: plait.Context) -> None:
    while await ctx.wait_all(left=1, right=1):  # False when an input is over and empty
        ctx.emit(out=(ctx.pop("left"), ctx.pop("right")))


names = plait.stream([{"name": name} for name in ("ada", "bob", "cyd", "dee")])
scores = plait.stream([{"score": n * n} for n in range(3)])

pairs = barrier(left=names, right=scores).out
pairs.show()
assert pairs.collect(workers=1) == pairs.collect(workers=4)
