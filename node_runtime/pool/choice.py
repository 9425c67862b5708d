"""When plain Python functions are worth a trip to the pool of worker processes; pure.

A trip there and back costs about as much as 10 us of Python (measured), and starting the pool a
tenth of a second in the background. So functions start in the interpreter, and go to the pool once
they have cost enough to be worth the start, if their batches cost more than twice the trip.

    >>> choose(Spent(batches=3, records=3_000, ns=9_000_000), processes=2)
    >>> choose(Spent(batches=30, records=30_000, ns=90_000_000), processes=2)
    '3.00 us a record, 3.00 ms a batch'
"""

from __future__ import annotations

from dataclasses import dataclass

WORTH_STARTING_NS = 50_000_000
"""The functions of a stage have cost so much: the job is not a small one."""
WORTH_A_TRIP_NS = 20_000
"""What a batch must cost for a second process to be a gain: twice a trip."""
FEWEST = 2
"""One process is no gain: the interpreter here would do as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What the functions of a stage have cost in the interpreter so far."""

    batches: int = 0
    records: int = 0
    ns: int = 0

    def more(self, records: int, ns: int, batches: int = 1) -> Spent:
        return Spent(
            batches=self.batches + batches, records=self.records + records, ns=self.ns + ns
        )


def choose(spent: Spent, processes: int) -> str | None:
    """Why the pool is worth it, in numbers; None: it is not, or not yet."""
    if processes < FEWEST or spent.ns < WORTH_STARTING_NS or not spent.batches:
        return None
    if spent.ns / spent.batches < WORTH_A_TRIP_NS:
        return None
    a_record = spent.ns / max(1, spent.records) / 1e3
    return f"{a_record:.2f} us a record, {spent.ns / spent.batches / 1e6:.2f} ms a batch"
