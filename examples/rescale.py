"""A job on two nodes that becomes a job on three while its records flow, and the proof.

A running count of made-up keys, at a steady rate, on two nodes of a local Ray cluster; in the
middle of the run a third node joins and a third of the state moves to it. The latency of the
records is drawn over time, and the output is compared with what a `for` loop over the same records
gives: the same rows, in the same order.
"""

from __future__ import annotations

import os
import time

import plait
from plait import col
from plait.text.latency_chart import latency_chart

QUICK = "PLAIT_QUICK" in os.environ
RATE = 200_000
TOTAL = RATE * (6 if QUICK else 12)
KEYS = 50_021


def main() -> None:
    job = plait.Job("rescale")
    numbers = job.source(plait.Rate(RATE, total=TOTAL), name="numbers")
    counts = numbers.select(key=col("seq") * 7919 % KEYS).key_by("key").count()
    counts.sink(plait.Collect(), name="counts")

    print("starting a local Ray cluster and a job on 2 nodes ...")
    handle = plait.submit(job, nodes=2, workers=1)
    samples = []
    marked = None
    move = None
    began = 0.0
    while not (view := handle.status()).over:
        now = time.monotonic()
        home = next((node for node in view.nodes if node.rank == 0), None)
        if home is not None and home.delivered and not began:
            began = now
        if began and home is not None and home.max_ms:
            samples.append((now - began, home.p50_ms, home.max_ms))
        if move is None and home is not None and home.delivered > TOTAL * 0.4:
            move = handle.rescale(nodes=3, strategy="fluid")
            print(move)
            marked = (now - began, now - began)
        if marked is not None and view.migration is not None and view.migration.phase != "done":
            marked = (marked[0], now - began)
        time.sleep(0.1)
    print(handle.status())
    print()
    print(latency_chart(samples, 78, 14, marked=marked))

    result = handle.result()
    made = result.outputs["counts"].column("count").to_pylist()
    seen: dict[int, int] = {}
    for seq, count in enumerate(made):
        key = seq * 7919 % KEYS
        seen[key] = seen.get(key, 0) + 1
        assert count == seen[key], f"row {seq}: {count} instead of {seen[key]}"
    assert len(made) == TOTAL
    print(f"\n{len(made):,} rows, the same as a plain loop's, in the same order")
    print(f"account: {result.account}")
    handle.forget()


if __name__ == "__main__":
    main()
