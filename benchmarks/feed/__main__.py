"""`python -m benchmarks.feed nexmark --servers HOST:PORT --rate 1000 --seconds 60`: a data set into
Kafka by Spark, at a rate or a schedule of rates.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys

from benchmarks.feed.data_sets import DATA_SETS
from benchmarks.feed.feeder import Feeder
from benchmarks.feed.schedule import Schedule
from benchmarks.support.spark_session import spark_session


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.feed")
    kinds = parser.add_subparsers(dest="name", required=True)
    for name, data_set in DATA_SETS.items():
        one = kinds.add_parser(name, help=f"topics: {', '.join(data_set.keys)}")
        one.add_argument("--servers", default="localhost:9092", help="of Kafka")
        one.add_argument("--rate", default="1000", help='events a second, or "0:1000,60:5000"')
        one.add_argument("--seconds", type=float, default=60.0, help="how long")
        one.add_argument("--tick", type=float, default=1.0, help="seconds between two writes")
        one.add_argument("--most", type=int, default=1 << 62, help="events, at the most")
        one.add_argument("--partitions", type=int, default=1, help="of topics that are made")
        one.add_argument("--prefix", default="", help="in front of the names of the topics")
        one.add_argument("--cores", default="2", help="threads of Spark")
        for field in dataclasses.fields(data_set.shape):
            option = f"--{field.name.replace('_', '-')}"
            one.add_argument(option, type=int, default=field.default, metavar="N")
    asked = parser.parse_args(given)
    try:
        schedule = Schedule.parse(asked.rate, asked.seconds)
    except ValueError as error:
        parser.error(f"--rate: {error}")
    data_set = DATA_SETS[asked.name]
    fields = {field.name for field in dataclasses.fields(data_set.shape)}
    shape = data_set.shape(**{name: getattr(asked, name) for name in fields})
    with spark_session(asked.cores) as spark:
        feeder = Feeder(
            spark,
            data_set,
            shape,
            asked.servers,
            events=asked.most,
            prefix=asked.prefix,
            partitions=asked.partitions,
        )
        late_s = feeder.run(schedule, tick_s=asked.tick)
    print(json.dumps({"written": feeder.written, "late_s": round(late_s, 3)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
