"""A gate with two outputs, composed by connections: tickets let records pass, the rest is told.

The operator has a parameter and two output ports; `flow` connects ports with `>>`.
"""

from __future__ import annotations

import plait
from plait import col


@plait.operator(
    inputs=("people", "tickets"), outputs={"admitted": "people", "waiting": {"people": int}}
)
async def gate(ctx: plait.Context, group: int) -> None:
    """Admits a group for every ticket, as soon as it is complete."""
    while await ctx.wait_all(people=group, tickets=1):
        ctx.pop("tickets")
        for person in ctx.pop("people", group):
            ctx.emit(admitted=person)
        ctx.emit(waiting=(ctx.size("people"),))


flow = plait.Flow("fair")
people = flow.source([{"name": f"visitor {n}", "age": n * 7 % 60} for n in range(14)])
tickets = flow.source([{"ticket": n} for n in range(4)])
entrance = flow.operator(gate, name="entrance", group=3)

people >> (lambda stream: stream.filter(col("age") >= 6)) >> entrance.people
tickets >> entrance.tickets
flow.sink(entrance.admitted, plait.Collect(), name="admitted")
entrance.waiting >> plait.Print()

result = flow.run()
print(f"admitted: {result.outputs['admitted'].column('name').to_pylist()}")
print(result.account)
