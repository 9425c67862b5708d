"""A join of two streams that are sorted by the same key, without state by key: zip as you go.

Each side is read only as far as the other one needs; equal keys meet, others go to a port of their
own. Sorted files of any size join in a few records of memory.
"""

from __future__ import annotations

import plait

PAIR = {"id": int, "item": str, "cents": int}


@plait.operator(
    inputs=("orders", "payments"), outputs={"paid": PAIR, "unpaid": "orders", "stray": "payments"}
)
async def zip_join(ctx: plait.Context) -> None:
    while await ctx.wait_all(orders=1, payments=1):
        order, payment = ctx.peek("orders"), ctx.peek("payments")
        if order.id == payment.id:
            ctx.emit(paid=(order.id, order.item, payment.cents))
        if order.id <= payment.id:
            ctx.pop("orders")
        if payment.id <= order.id:
            ctx.pop("payments")
        if order.id < payment.id:
            ctx.emit(unpaid=order)
        if payment.id < order.id:
            ctx.emit(stray=payment)
    while await ctx.wait_any(orders=1, payments=1):
        for port, out in (("orders", "unpaid"), ("payments", "stray")):
            for record in ctx.pop(port, ctx.size(port)):
                ctx.emit(**{out: record})


job = plait.Job("books")
orders = job.source([{"id": n, "item": f"item {n}"} for n in range(1, 12)])
payments = job.source([{"id": n, "cents": 100 * n} for n in range(2, 16, 2)])
joined = zip_join(orders=orders, payments=payments)
for name in ("paid", "unpaid", "stray"):
    joined[name].sink(plait.Collect(), name=name)

result = job.run()
for name, table in result.outputs.items():
    print(f"{name}: {[tuple(row.values()) for row in table.to_pylist()]}")
print(result.account)
