"""The first events of one NEXMark data set, in the forms that the programs read.

A folder for each size; a form is written when it is first asked for:

- `parquet`: a file a stream, for programs that hold the records in memory.
- `columns`: 64-bit integers, column behind column, and the persons' texts, for Java.
- `csv`: a file a stream.
- `parts`: folders of Parquet files, two for every million events, in the order of their times of
  change; the folders `*_closed` have one more record an hour later, which closes all windows.
"""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from benchmarks.nexmark.native import tables
from benchmarks.nexmark.schema import Shape
from benchmarks.support.common import BUILD, progress

if TYPE_CHECKING:
    from pathlib import Path

HOME = BUILD / "peers"
PART_EVENTS = 1_000_000
FILES_OF_A_PART = 2
COLUMNS = {
    "persons": ("id", "ts"),
    "auctions": ("id", "ts", "seller", "category"),
    "bids": ("auction", "bidder", "price", "ts"),
}
TEXTS = ("name", "city", "state")
CSV_COLUMNS = {**COLUMNS, "persons": ("id", *TEXTS, "ts")}


def folder(events: int, form: str) -> Path:
    """The folder with the first `events` events in a form."""
    home = HOME / "data" / str(events)
    done = home / f"{form}.done"
    if not done.exists():
        progress(f"{events:,} events as {form}")
        home.mkdir(parents=True, exist_ok=True)
        WRITERS[form](home, events)
        done.touch()
    return home


def write_parquet(home: Path, events: int) -> None:
    for stream, table in tables(Shape(events=events)).items():
        pa.parquet.write_table(table, home / f"{stream}.parquet")


def read(home: Path, stream: str) -> Any:
    return pa.parquet.read_table(home / f"{stream}.parquet")


def write_columns(home: Path, events: int) -> None:
    folder(events, "parquet")
    for stream, names in COLUMNS.items():
        table = read(home, stream)
        with (home / f"{stream}.bin").open("wb") as file:
            for name in names:
                table[name].cast("int64").to_numpy().tofile(file)
    texts = zip(*(read(home, "persons")[name].to_pylist() for name in TEXTS), strict=True)
    (home / "persons.txt").write_text("".join("\t".join(row) + "\n" for row in texts))


def write_csv(home: Path, events: int) -> None:
    folder(events, "parquet")
    for stream, names in CSV_COLUMNS.items():
        table = read(home, stream)
        table = table.set_column(
            table.schema.get_field_index("ts"), "ts", table["ts"].cast("int64")
        )
        # `id` is a word of Pathway's own.
        renamed = ["number" if name == "id" else name for name in names]
        pa.csv.write_csv(table.select(names).rename_columns(renamed), home / f"{stream}.csv")


def write_parts(home: Path, events: int) -> None:
    folder(events, "parquet")
    for stream in COLUMNS:
        table = read(home, stream)
        plain, closed = home / stream, home / f"{stream}_closed"
        for made in (plain, closed):
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir()
        files = FILES_OF_A_PART * max(1, events // PART_EVENTS)
        for number in range(files):
            first, end = (table.num_rows * n // files for n in (number, number + 1))
            path = plain / f"{number:05}.parquet"
            pa.parquet.write_table(table.slice(first, end - first), path)
            os.utime(path, (number + 1, number + 1))
            os.link(path, closed / path.name)
        path = closed / f"{files:05}.parquet"
        last = table.slice(table.num_rows - 1)
        later = pc.add(last["ts"], pa.scalar(timedelta(hours=1)))
        last = last.set_column(last.schema.get_field_index("ts"), last.schema.field("ts"), later)
        pa.parquet.write_table(last, path)
        os.utime(path, (files + 1, files + 1))


WRITERS = {
    "parquet": write_parquet,
    "columns": write_columns,
    "csv": write_csv,
    "parts": write_parts,
}
