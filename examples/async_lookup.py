"""Lookups at a service, a hundred at a time, and the records still come in their order.

The service is a small server on this machine that takes 20 ms for an answer, and now and then
breaks the connection: then the record is tried again. Accounts that it does not know become dead
letters.
"""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass

import plait

PLACES = {1: "Bergen", 2: "Porto", 3: "Turku", 4: "Gdynia"}
ready = threading.Event()
port = 0


@dataclass
class Payment:
    account: int
    amount: float
    place: str = ""


async def lookup(payment: Payment) -> Payment:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"{payment.account}\n".encode())
        place = (await reader.readline()).decode().strip()
    finally:
        writer.close()
    if not place:
        raise ConnectionError("no answer")
    if place == "?":
        raise LookupError(f"account {payment.account} is unknown")
    return Payment(payment.account, payment.amount, place)


async def serve(over: asyncio.Event) -> None:
    """The service: one line in, one line out; each 50th connection is broken."""
    asked = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        broken = asked % 50 == 0
        account = int(await reader.readline())
        await asyncio.sleep(0.02)
        if not broken:
            writer.write(f"{PLACES.get(account, '?')}\n".encode())
        writer.close()

    global port
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    ready.set()
    async with server:
        await over.wait()


service = asyncio.new_event_loop()
over = asyncio.Event()
thread = threading.Thread(target=service.run_until_complete, args=(serve(over),))
thread.start()
ready.wait()

payments = [Payment(i * 31 % 100 and i % 4 + 1, 10.0 + i) for i in range(1000)]
stream = plait.stream(payments).map_async(
    lookup, concurrency=100, timeout="2s", retries=3, on_error="dead_letter"
)
stream.sink(plait.Collect(), name="placed")
stream.job.explain()
began = time.perf_counter()
result = stream.run()
seconds = time.perf_counter() - began
service.call_soon_threadsafe(over.set)
thread.join()
service.close()

placed = result.outputs["placed"].to_pylist()
assert [row["amount"] for row in placed] == [p.amount for p in payments if p.account]
print(f"\n{len(payments):,} lookups of 20 ms in {seconds:.1f} s, in order; one by one: 20 s")
print(result.account)
for row in placed[:3]:
    print(f"  {row}")
for letter in result.dead_letters[:2]:
    print(f"  dead letter, record {letter.row}: {letter.error}")
