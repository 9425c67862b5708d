"""`python -m benchmarks NAME [--quick]`: runs one benchmark and ends with one line of JSON.

The line is `{"benchmark": NAME, "figures": {...}, "machine": {...}}` on stdout; progress goes to
stderr. A benchmark is a module (of `benchmarks/micro`, if `MODULES` says nothing else) with
`run(options)`, which gives the figures, and `plot(figures, file)`. Wrong results end the program
with status 1: they are no benchmark.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from typing import Any

from benchmarks.support.common import CheckFailed, Options, clear_progress, compiler
from benchmarks.support.machine import Usage, facts, load_average, others_cpu_ratio

NAMES = {
    "keyed_count": "a running count by key, in order, beside unordered C++ and a for loop",
    "checkpoint": "what checkpoints cost: rate, pause, size, restore",
    "sums": "sums that are checked to fit int64, beside sums that wrap around",
    "json": "values of JSON as columns, beside Python and other parsers",
    "cliffs": "natural formulations beside a for loop and their neighbours, on one core",
    "skew": "hybrid, partitioned and shared queue under skew: rate and latency",
    "reorder": "non-blocking and lock-based reorder buffer",
    "heuristics": "the four schedulers on a five-stage pipeline: rate and latency",
    "threading": "1,000 operators under each threading model, at three costs",
    "topologies": "all schedulers on a chain, a fan, a tree and a reverse tree: rate and latency",
    "elastic": "elastic workers beside every fixed number of them; level over time",
    "bottleneck": "elastic degrees of stages in a chain with expensive ones",
    "functions": "one map as expression, compiled, batch function and plain Python, beside C++",
    "python_functions": "a plain Python function in worker processes, beside this process",
    "import_time": "what `import plait` and a first job cost",
    "exchange": "a keyed count over two nodes, beside one process with as many workers",
    "migration": "state that moves between nodes: worst latency and duration by strategy",
    "rate_error": "estimated rates of topics beside what an injector counted, by schedule",
    "qod_cycle": "one cycle of the quality controller, for 10 to 100,000 tasks",
    "qod_overload": "lag at 2 and 4 times the capacity, with shedding by priority and without",
    "shed_cost": "what dropping records costs, by record and by key, by the share that is kept",
    "idle": "processor time and latency of a job with little to do, by rate and nodes",
    "bins_overhead": "what it costs to cut state into bins that can move",
    "nexmark": "NEXMark's eight queries: rate and latency",
    "nexmark_migration": "NEXMark's Q3 to Q8 over two nodes while state moves: latency over time",
    "tpcxbb": "TPCx-BB's five queries: rate and latency",
    "tpcxbb_heuristics": "the four schedulers on TPCx-BB",
    "tpcxbb_queues": "the ways parts reach workers, on TPCx-BB",
    "tpcxbb_reorder": "the two reorder buffers on TPCx-BB",
    "peers": "the keyed count and NEXMark beside Flink, Spark, Bytewax, Pathway and a for loop",
    "spark_in": "rows a second from a Spark stream through a batch log, beside Spark's noop sink",
    "spark_out": "rows a second from plait through a batch log into a Spark stream",
    "backfill": "a job over its history, beside Spark's own aggregation of the same files",
    "control": "commands a second, and how long submit, rescale and a lost node take",
    "kafka_in": "reading a Kafka topic of JSON, beside the client alone and decoding alone",
    "kafka_out": "records a second into a topic by delivery, beside the client alone",
    "kafka_latency": "through two topics and a job at half load: latency by delivery",
    "recovery": "seconds without output after a kill -9: a node, the home, all; beside Flink",
}

MODULES = {
    "kafka_in": "benchmarks.kafka.kafka_in",
    "nexmark": "benchmarks.nexmark.bench",
    "nexmark_migration": "benchmarks.nexmark.bench_migration",
    "kafka_out": "benchmarks.kafka.bench_out",
    "kafka_latency": "benchmarks.kafka.bench_latency",
    "rate_error": "benchmarks.kafka.rate_error",
    "threading": "benchmarks.support.threading_models",
    "tpcxbb": "benchmarks.tpcxbb.bench",
    "tpcxbb_heuristics": "benchmarks.tpcxbb.bench_heuristics",
    "tpcxbb_queues": "benchmarks.tpcxbb.bench_queues",
    "tpcxbb_reorder": "benchmarks.tpcxbb.bench_reorder",
    "peers": "benchmarks.peers.bench",
    "qod_cycle": "benchmarks.quality.qod_cycle",
    "qod_overload": "benchmarks.quality.qod_overload",
    "shed_cost": "benchmarks.quality.shed_cost",
    "spark_in": "benchmarks.spark.spark_in",
    "spark_out": "benchmarks.spark.spark_out",
    "backfill": "benchmarks.spark.backfill",
}
"""Where a benchmark is, if it is not in `benchmarks/micro`."""


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=listing())
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("name", nargs="?", choices=[*NAMES], help="which benchmark")
    parser.add_argument("--quick", action="store_true", help="under 45 seconds on 2 cores")
    parser.add_argument("--rounds", type=int, help="repetitions of each variant")
    parser.add_argument("--plot", metavar="FILE", help="draw the figures into a PNG or SVG file")
    parser.add_argument("--json-only", action="store_true", help="print nothing but the JSON line")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    asked = parser.parse_args(given)
    if asked.rounds is not None and asked.rounds < 1:
        parser.error("--rounds must be 1 or more")
    if asked.list or asked.name is None:
        print("\n".join(NAMES) if asked.list else listing())
        return 0
    machine = facts(compiler())
    before = Usage.now()
    module = importlib.import_module(MODULES.get(asked.name, f"benchmarks.micro.{asked.name}"))
    try:
        figures = module.run(Options(quick=asked.quick, rounds=asked.rounds))
    except CheckFailed as error:
        clear_progress()
        print(f"{asked.name}: {error}", file=sys.stderr)
        return 1
    clear_progress()
    machine["others_cpu_ratio"] = others_cpu_ratio(before, Usage.now())
    machine["load_after"] = load_average()
    if asked.plot:
        module.plot(figures, asked.plot)
    if not asked.json_only:
        for line in lines(figures):
            print(line)
    print(json.dumps({"benchmark": asked.name, "figures": figures, "machine": machine}))
    return 0


def listing() -> str:
    width = max(map(len, NAMES))
    return "\n".join(f"{name:{width}}  {what}" for name, what in NAMES.items())


def lines(figures: dict[str, Any], depth: int = 0) -> list[str]:
    """The figures as indented text."""
    made: list[str] = []
    for name, value in figures.items():
        if isinstance(value, dict):
            made.append(f"{'  ' * depth}{name}")
            made += lines(value, depth + 1)
        else:
            made.append(f"{'  ' * depth}{name:<{30 - 2 * depth}} {value}")
    return made


if __name__ == "__main__":
    sys.exit(main())
