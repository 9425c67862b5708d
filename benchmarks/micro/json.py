"""Values of JSON as columns: plait's reader beside Python's `json` and other parsers.

All start from a list of bytes, as a Kafka client gives them. plait, the Python path and pyarrow end
with columns; msgspec makes checked objects, orjson dicts, pysimdjson reads every field once. One
thread; nanoseconds of processor time a record. Parsers that are not installed are left out.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import io
import json
import random
from functools import partial
from time import process_time
from typing import TYPE_CHECKING, Any

from benchmarks.support.common import Budget, CheckFailed, Options, budget_of, interleave
from plait.connectors.kafka.formats import (
    decode_rows,
    decoder_of,
    encode_json,
    encoder_of,
    json_decoder,
)
from plait.model.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDS = 20_000
SEED = 7
FIVE = {"user": str, "id": int, "price": float, "ok": bool, "page": str}
KINDS = (str, int, float, bool, int)
TWENTY = {f"field_{i}": KINDS[i % 5] for i in range(20)}
TEXT = {"id": int, "text": str, "city": str}


def five(chance: random.Random, i: int) -> dict[str, Any]:
    return {
        "user": f"user-{chance.randrange(100_000):05}",
        "id": 1_000_000_000 + i,
        "price": chance.randrange(100_000) / 100,
        "ok": chance.random() < 0.5,
        "page": f"/shop/item/{chance.randrange(100_000)}?from=mail",
    }


def twenty(chance: random.Random, i: int) -> dict[str, Any]:
    made: dict[type, Callable[[], Any]] = {
        str: lambda: f"text {chance.randrange(10_000)}",
        int: lambda: chance.randrange(10 ** chance.randrange(1, 13)),
        float: lambda: chance.random() * i,
        bool: lambda: chance.random() < 0.5,
    }
    return {name: made[kind]() for name, kind in TWENTY.items()}


def escapes(chance: random.Random, i: int) -> dict[str, Any]:
    words = ["plain", 'a "quote"', "C:\\path", "line\nbreak", "Grüße", "日本"]
    return {"id": i, "text": " ".join(chance.choices(words, k=6)), "city": "Zürich"}


def compact(record: dict[str, Any], chance: random.Random) -> bytes:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()


def spaced(record: dict[str, Any], chance: random.Random) -> bytes:
    return json.dumps(record).encode()


def shuffled(record: dict[str, Any], chance: random.Random) -> bytes:
    return compact(dict(chance.sample([*record.items()], len(record))), chance)


CASES: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "five": (FIVE, five, compact),
    "five_spaced": (FIVE, five, spaced),
    "five_shuffled": (FIVE, five, shuffled),
    "twenty": (TWENTY, twenty, compact),
    "twenty_shuffled": (TWENTY, twenty, shuffled),
    "escapes": (TEXT, escapes, spaced),
    "not_ascii": (TEXT, escapes, compact),
}


def parsers(fields: dict[str, type]) -> dict[str, Callable[[list[bytes | None]], Any]]:
    """What reads a list of values, by name."""
    import pyarrow as pa
    import pyarrow.json

    schema = Schema.of(fields)
    plait_reads = decoder_of("json", schema, None)
    options = pa.json.ParseOptions(explicit_schema=schema.to_arrow())
    one_thread = pa.json.ReadOptions(use_threads=False)

    def by_arrow(values: list[bytes | None]) -> Any:
        joined = io.BytesIO(b"\n".join(value or b"" for value in values))
        return pa.json.read_json(joined, parse_options=options, read_options=one_thread)

    found: dict[str, Callable[[list[bytes | None]], Any]] = {
        "plait": plait_reads,
        "python": lambda values: decode_rows(values, schema, json_decoder(schema)),
        "json_loads": lambda values: [json.loads(value or b"") for value in values],
        "pyarrow": by_arrow,
    }
    if importlib.util.find_spec("orjson"):
        loads = importlib.import_module("orjson").loads
        found["orjson"] = lambda values: [loads(value) for value in values]
    if importlib.util.find_spec("msgspec"):
        msgspec = importlib.import_module("msgspec")
        decode = msgspec.json.Decoder(dataclasses.make_dataclass("Row", fields.items())).decode
        found["msgspec"] = lambda values: [decode(value) for value in values]
    if importlib.util.find_spec("simdjson"):
        parse = importlib.import_module("simdjson").Parser().parse
        names = tuple(fields)

        def by_simdjson(values: list[bytes | None]) -> Any:
            rows = []
            for value in values:
                record = parse(value)
                rows.append([record[name] for name in names])
                del record  # the parser is used again
            return rows

        found["simdjson"] = by_simdjson
    return found


def values_of(case: str, count: int) -> list[bytes | None]:
    _, record, written = CASES[case]
    chance = random.Random(SEED)
    return [written(record(chance, i), chance) for i in range(count)]


def check(case: str) -> None:
    """The columns must hold what `json` reads."""
    fields = CASES[case][0]
    values = values_of(case, 500)
    wanted = [json.loads(value or b"") for value in values]
    reads = parsers(fields)
    rows = [{name: record[name] for name in fields} for record in wanted]
    for name in ("plait", "python"):
        if reads[name](values).batch.to_pylist() != rows:
            raise CheckFailed(f"{case}: the rows of {name} are wrong")


def ns_of_record(function: Callable[[Any], Any], given: Any, count: int) -> float:
    began = process_time()
    function(given)
    return (process_time() - began) * 1e9 / count


def run(options: Options) -> dict[str, Any]:
    budget = budget_of(options)
    found: dict[str, Any] = {}
    for done, (case, (fields, _, _)) in enumerate(CASES.items()):
        check(case)
        values = values_of(case, RECORDS)
        variants = {
            name: partial(ns_of_record, reads, values, RECORDS)
            for name, reads in parsers(fields).items()
        }
        part = budget.part(len(CASES) + 1 - done)
        samples = interleave(variants, options.repeat(9, 51), part, case)
        size = sum(len(value or b"") for value in values) / len(values)
        found[case] = {
            "bytes": round(size, 1),
            **{f"{name}_ns": round(sample.median, 1) for name, sample in samples.items()},
            "plait_spread": round(samples["plait"].spread, 3),
        }
    found["write_five"] = write_figures(options, budget)
    return found


def write_figures(options: Options, budget: Budget) -> dict[str, Any]:
    """The other way round: a batch as a list of bytes."""
    schema = Schema.of(FIVE)
    batch = decoder_of("json", schema, None)(values_of("five", RECORDS)).batch
    writes: dict[str, Callable[[Any], Any]] = {
        "plait": encoder_of("json", schema),
        "python": lambda rows: encode_json(rows, schema),
    }
    if writes["plait"](batch) != writes["python"](batch):
        raise CheckFailed("write_five: the two write something else")
    variants = {
        name: partial(ns_of_record, write, batch, RECORDS) for name, write in writes.items()
    }
    samples = interleave(variants, options.repeat(9, 51), budget, "write_five")
    return {f"{name}_ns": round(sample.median, 1) for name, sample in samples.items()}


def plot(figures: dict[str, Any], file: str) -> None:
    from benchmarks.support.charts import bars

    groups = {
        case.replace("_", " "): {
            name.removesuffix("_ns"): value for name, value in given.items() if name.endswith("_ns")
        }
        for case, given in figures.items()
    }
    bars(file, [("A record of JSON", "nanoseconds", groups)])
