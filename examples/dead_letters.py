"""Bad records do not stop a job: they are put aside, with the reason, and the rest goes on.

Without on_error="dead_letter" the run would end at the first bad record with a RecordError, and
everything before it would have been delivered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import plait


@dataclass
class Reading:
    sensor: str
    celsius: float


def parse(line: Any) -> Reading:
    sensor, value = line.value.split(",")
    return Reading(sensor, float(value))


lines = ["roof,21.5", "cellar,n/a", "roof,22.5", "garden", "cellar,11"]
readings = plait.stream(lines).map(parse, on_error="dead_letter")
readings.key_by("sensor").mean("celsius").sink(plait.Print())
result = readings.run()

print(f"\n{result.account}")
for letter in result.dead_letters:
    print(f"  line {letter.row}: {letter.record} {letter.error}")
