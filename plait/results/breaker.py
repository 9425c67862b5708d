"""Stops a job that has too many dead letters: most often it is the job that is wrong then, or
what is upstream of it, and not some records. Counts and times come in.
"""

from __future__ import annotations

import re
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plait.model.breaker import LEAST_RECORDS, parse_breaker

if TYPE_CHECKING:
    from plait.model.breaker import BreakerRule
    from plait.model.settings import Settings

DIFFERS = re.compile(r"""'[^']*'|"[^"]*"|\d[\d,.]*""")
"""What differs between reasons of one kind: quoted values and numbers."""
SHOWN = 3
MOST_KINDS = 1_000

Kind = tuple[str, str, str]
"""Operator, line, and reason without what differs."""


@dataclass(slots=True)
class Sample:
    """What came since the sample before."""

    at_s: float
    records: int = 0
    letters: int = 0
    kinds: Counter[Kind] = field(default_factory=Counter)


def make_breaker(settings: Settings) -> Breaker | None:
    """The breaker of a run that begins now, if it has one."""
    if settings.breaker is None:
        return None
    return Breaker(parse_breaker(settings.breaker), time.monotonic())


class Breaker:
    """The records and dead letters of the last stretch of time.

    >>> from plait.model.breaker import parse_breaker
    >>> breaker = Breaker(parse_breaker("1% of 10s"), 0.0)
    >>> breaker.look(1.0, 5_000)
    ''
    """

    def __init__(self, rule: BreakerRule, now_s: float) -> None:
        self.rule = rule
        self.read = 0
        """How many records the job had read at the last look."""
        self.samples = deque([Sample(now_s)])
        self.next = Sample(now_s)
        """What is noted since the last look."""
        self.examples: dict[Kind, str] = {}
        """A reason of each kind as it was."""

    def note(self, operator: str, at: str, error: str) -> None:
        """A record failed. Its letter need not be made for that, which takes longer."""
        line = error.split("\n")[0]
        kind = (operator, at, DIFFERS.sub("?", line))
        self.next.letters += 1
        if kind in self.examples or len(self.examples) < MOST_KINDS:
            self.examples.setdefault(kind, line)
            self.next.kinds[kind] += 1

    def look(self, now_s: float, read: int) -> str:
        """Judges what came since the last look; `read`: all records read so far. Says what is wrong
        if too many failed, else nothing."""
        sample, self.next = self.next, Sample(now_s)
        sample.at_s, sample.records = now_s, read - self.read
        self.read = read
        self.samples.append(sample)
        while self.samples[0].at_s < now_s - self.rule.window_s:
            self.samples.popleft()
        return self.verdict()

    def verdict(self) -> str:
        records = sum(sample.records for sample in self.samples)
        letters = sum(sample.letters for sample in self.samples)
        if records < LEAST_RECORDS or letters <= self.rule.ratio * records:
            return ""
        kinds: Counter[Kind] = Counter()
        for sample in self.samples:
            kinds.update(sample.kinds)
        lines = [
            f"{letters:,} of the last {records:,} records became dead letters"
            f' ({100 * letters / records:.3g}%), and breaker="{self.rule.text}" stops the job then;'
            " the commonest reasons:"
        ]
        for kind, count in kinds.most_common(SHOWN):
            operator, at, _ = kind
            lines.append(f"  {count:,} at {operator} at {at}: {self.examples[kind]}")
        others = letters - sum(count for _, count in kinds.most_common(SHOWN))
        if others:
            lines.append(f"  {others:,} with other reasons")
        return "\n".join(lines)
