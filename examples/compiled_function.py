"""A function that is compiled: it runs on columns at native speed, on every core, without the GIL.

`explain` shows the route that each function took. The first run compiles; the function is plain
Python with numbers in and a number out.
"""

from __future__ import annotations

import plait
from plait import col


@plait.compiled
def steps(n: int) -> int:
    """How many steps the Collatz sequence takes from n to 1."""
    count = 0
    while n > 1:
        n = 3 * n + 1 if n % 2 else n // 2
        count += 1
    return count


numbers = plait.stream(plait.Rate(1_000_000, total=50_000)).filter(col("seq") > 0)
longest = (
    numbers.with_columns(steps=steps(col("seq")))
    .aggregate(longest=plait.max("steps"), mean=plait.mean("steps"))
)  # fmt: skip
longest.explain()
table = longest.to_arrow()
print(f"\nof {table.num_rows:,} numbers: {table.slice(table.num_rows - 1).to_pylist()[0]}")
