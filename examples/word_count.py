"""Counts the words of a file of JSON lines, and keeps the last count of each word.

The file is written first, so that the example needs nothing. `flat_map` makes many records of one;
the count is running: one output for each word read, in the order of the text.
"""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plait

TEXT = """many threads one order
one thread many orders
plait many threads into one"""


@dataclass
class Word:
    word: str


def words(line: Any) -> Iterator[Word]:
    for word in line.text.split():
        yield Word(word)


with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "lines.jsonl"
    path.write_text("".join(json.dumps({"text": line}) + "\n" for line in TEXT.splitlines()))
    counts = plait.stream(path).flat_map(words).key_by("word").count().collect()

last = {record.word: record.count for record in counts}
for word, count in sorted(last.items(), key=lambda item: (-item[1], item[0])):
    print(f"{count:3} {word}")
