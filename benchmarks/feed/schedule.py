"""How many events are due when; pure.

>>> schedule = Schedule.parse("0:100,10:400,20:0", seconds=30)
>>> schedule.due(5.0), schedule.due(12.5), schedule.due(99.0)
(500, 2000, 5000)
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Schedule:
    """Rates from times on, in events a second, up to an end."""

    steps: tuple[tuple[float, float], ...]
    """(from so many seconds on, events a second), ascending, from 0 on."""
    seconds: float

    @classmethod
    def parse(cls, text: str, seconds: float) -> Schedule:
        """Of "100", or of "SECOND:RATE,SECOND:RATE,...". ValueError says what is wrong."""
        parts = [part.partition(":") for part in text.split(",")]
        if len(parts) == 1 and not parts[0][1]:
            parts = [("0", ":", parts[0][0])]
        try:
            steps = tuple((float(at), float(rate)) for at, _, rate in parts)
        except ValueError:
            raise ValueError(
                f'{text!r} is not a schedule; write "1000" or "0:1000,60:5000"'
            ) from None
        times = [at for at, _ in steps]
        if times[0] != 0 or times != sorted(set(times)):
            raise ValueError(f"{text!r}: the seconds must begin with 0 and go up")
        if any(rate < 0 for _, rate in steps) or seconds <= 0:
            raise ValueError(f"{text!r}: rates and seconds must not be below 0")
        return cls(steps, seconds)

    def due(self, at_s: float) -> int:
        """How many events are due so many seconds after the start."""
        at_s = min(at_s, self.seconds)
        ends = (*(at for at, _ in self.steps[1:]), float("inf"))
        passed = (
            rate * (min(end, at_s) - begin)
            for (begin, rate), end in zip(self.steps, ends, strict=True)
            if at_s > begin
        )
        return int(sum(passed) + 1e-9)
