"""What a change costs: CPU time per row of NEXMark and TPCx-BB in two checkouts, in turns.

    python benchmarks/support/checkouts.py OTHER --queries nexmark.q4,tpcxbb.q1

OTHER is the folder of another checkout with its own `.venv` and native build, an older commit for
instance. A process of each runs the same query on one worker, one after the other, so that both see
the same machine. CPU time per row is that of all rows less that of a few, which is what a run costs
anyway. Other processes on the machine change it by some percent even so: the lowest tenth (p10) is
what to compare. This file runs in both checkouts, so it uses only what all of them have.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
QUERIES = [f"nexmark.q{n}" for n in range(3, 9)] + [f"tpcxbb.q{n}" for n in (1, 2, 3, 4, 15)]
FEW = 1000
"""Events of a run whose cost does not depend on rows."""


def serve(events: int, queries: list[str]) -> None:
    """Runs what it is told to, line by line: a query and how many events; answers with CPU seconds
    and rows."""
    cases = {}
    for suite in sorted({query.split(".")[0] for query in queries}):
        bench = importlib.import_module(f"benchmarks.{suite}.bench")
        for size in (FEW, events):
            for case in bench.cases(size):
                cases[f"{suite}.{case.name} {size}"] = case
    for query in queries:
        cases[f"{query} {events}"].run(1)
    print("ready", flush=True)
    for line in sys.stdin:
        case = cases[line.strip()]
        began = time.process_time()
        case.run(1)
        print(time.process_time() - began, case.rows, flush=True)


class Runner:
    """A process of one checkout."""

    def __init__(self, checkout: Path, events: int, queries: list[str]) -> None:
        self.checkout = checkout
        command = [checkout / ".venv/bin/python", "-P", __file__, "--serve", "--events"]
        self.process = subprocess.Popen(
            [*map(str, command), str(events), "--queries", ",".join(queries)],
            cwd=checkout,
            env=os.environ | {"PYTHONPATH": str(checkout)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def answer(self) -> list[float]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of {self.checkout} ended: is it built?")
        return [] if line.strip() == "ready" else [float(part) for part in line.split()]

    def run(self, query: str, events: int) -> list[float]:
        assert self.process.stdin
        self.process.stdin.write(f"{query} {events}\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def p10(values: list[float]) -> float:
    return sorted(values)[len(values) // 10]


def compare(other: Path, events: int, rounds: int, queries: list[str]) -> dict[str, object]:
    """Nanoseconds of CPU time per row here and there, and how they compare."""
    runners = [Runner(checkout, events, queries) for checkout in (other, HERE)]
    for runner in runners:
        runner.answer()
    figures: dict[str, object] = {}
    for query in queries:
        spent: dict[tuple[int, int], list[float]] = {}
        rows: dict[int, float] = {}
        for turn in range(rounds):
            for size in (FEW, events):
                for r in (0, 1) if turn % 2 else (1, 0):
                    seconds, rows[size] = runners[r].run(query, size)
                    spent.setdefault((r, size), []).append(seconds)
        found: dict[str, float] = {}
        for name, pick in (("p10", p10), ("median", statistics.median)):
            there, here = (
                (pick(spent[r, events]) - pick(spent[r, FEW])) * 1e9 / (rows[events] - rows[FEW])
                for r in (0, 1)
            )
            found |= {f"{name}_other_ns": round(there, 2), f"{name}_here_ns": round(here, 2)}
            found[f"{name}_ratio"] = round(here / there, 3)
        found["run_ms_other"], found["run_ms_here"] = (
            round(p10(spent[r, FEW]) * 1e3, 3) for r in (0, 1)
        )
        figures[query] = found
        print(query, found, file=sys.stderr, flush=True)
    for runner in runners:
        runner.end()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("other", nargs="?", type=Path, help="the folder of the other checkout")
    parser.add_argument("--queries", default=",".join(QUERIES), help="such as nexmark.q4,tpcxbb.q1")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    queries = asked.queries.split(",")
    if asked.serve:
        serve(asked.events, queries)
    elif asked.other is None:
        parser.error("name the folder of the other checkout")
    else:
        figures = compare(asked.other.resolve(), asked.events, asked.rounds, queries)
        print(json.dumps({"benchmark": "checkouts", "figures": figures}))


if __name__ == "__main__":
    main()
