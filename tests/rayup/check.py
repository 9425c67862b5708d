"""Stops a job of job.py on the cluster and compares its output with a plain loop, row by row."""

import sys

import plait

handle = plait.attach(sys.argv[1])
handle.stop()
result = handle.result(timeout="2m")
table = result.outputs["out"]
seen: dict[int, int] = {}
wrong = 0
columns = (table.column(name).to_pylist() for name in ("key", "seq", "n"))
for number, row in enumerate(zip(*columns, strict=True)):
    key = number * 7919 % 1009
    seen[key] = seen.get(key, 0) + 1
    wrong += row != (key, number, seen[key])
whole = table.num_rows == result.account.read > 0
handle.forget()
print(f"{table.num_rows:,} rows, {wrong} wrong, {'whole' if whole else 'not whole'}")
sys.exit(bool(wrong) or not whole)
