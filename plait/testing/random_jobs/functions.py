"""Plain functions for random jobs: deterministic, picklable, some of them failing on some records.

What they do to a record depends only on its values, by a checksum of their `repr`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import zlib
from contextvars import ContextVar
from dataclasses import dataclass
from types import GeneratorType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterator


def checksum(value: Any) -> int:
    return zlib.crc32(repr(value).encode("utf-8", "backslashreplace"))


@dataclass(frozen=True, slots=True)
class OfColumn:
    """A function of a record that looks at one column. One in `failing` values raises; 0: none."""

    column: str
    failing: int = 0

    def number(self, record: Any) -> int:
        found = checksum(getattr(record, self.column))
        if self.failing and found % self.failing == 0:
            raise ValueError(f"{self.column} has the checksum {found}")
        return found


class Changed(OfColumn):
    """map: the column with another value of its type."""

    def __call__(self, record: Any) -> Any:
        self.number(record)
        value = getattr(record, self.column)
        return dataclasses.replace(record, **{self.column: change_value(value)})


attempts: ContextVar[int] = ContextVar("attempts", default=0)
"""The tries of a record share a context, and no other has it."""


class Looked(OfColumn):
    """map_async: as Changed, after a few turns of the loop; some values come at the second try."""

    async def __call__(self, record: Any) -> Any:
        found = checksum(getattr(record, self.column))
        for _ in range(found % 4):
            await asyncio.sleep(0)
        attempts.set(attempts.get() + 1)
        if found % 5 == 0 and attempts.get() < 2:
            raise ConnectionError("the first try")
        return Changed(self.column, self.failing)(record)


class Tries(threading.local):
    """The tries of a record follow each other in one thread."""

    raised = 0


tries = Tries()


@dataclass(frozen=True, slots=True)
class Flaky:
    """Another function, whose result comes only at a later try for some values, and for some later
    than the last."""

    function: Any
    retries: int

    def __call__(self, record: Any) -> Any:
        result = self.function(record)
        if isinstance(result, GeneratorType):
            result = list(result)
        late = checksum(dataclasses.astuple(record)) % (self.retries + 3)
        if tries.raised < late:
            tries.raised = (tries.raised + 1) % (self.retries + 1)
            raise ConnectionError(f"at most {self.retries + 1} tries, and it takes {late + 1}")
        tries.raised = 0
        return result


class Kept(OfColumn):
    """filter: two of three values."""

    def __call__(self, record: Any) -> Any:
        return self.number(record) % 3


class Repeated(OfColumn):
    """flat_map: the record none to three times, the last one changed."""

    def __call__(self, record: Any) -> Iterator[Any]:
        number = self.number(record)
        for i in range(number % 4):
            value = getattr(record, self.column)
            yield dataclasses.replace(record, **{self.column: change_value(value)}) if i else record
        if self.failing and number % self.failing == 1:
            raise ValueError("failed after the last")


@dataclass(frozen=True, slots=True)
class Pieces:
    """flat_map: none to three records of times around that of the record."""

    column: str
    length: datetime.timedelta

    def __call__(self, record: Any) -> Iterator[Any]:
        time = getattr(record, self.column)
        number = checksum(time)
        for i in range(number % 4):
            steps = (number >> 4 * i) % 5 - 2
            moved = time and time + steps * self.length
            yield dataclasses.replace(record, **{self.column: moved})


class Numbered(OfColumn):
    """fold: a checksum of all that was seen, as an int."""

    def __call__(self, state: Any, record: Any) -> Any:
        return (state * 31 + self.number(record)) % 1_000_003


class Listed(OfColumn):
    """fold: the last three checksums, a value that changes in place; nothing fails."""

    def __call__(self, state: Any, record: Any) -> Any:
        state.append(checksum(getattr(record, self.column)))
        del state[:-3]
        return state


class Alternating(OfColumn):
    """stateful: every second record of a key, and every third value."""

    def __call__(self, state: Any, record: Any) -> Any:
        number = self.number(record)
        return state + 1, record if state % 2 == 0 or number % 3 == 0 else None


@dataclass(frozen=True, slots=True)
class Halved:
    """map_batches: the first half of the batch."""

    def __call__(self, table: Any) -> Any:
        return table.slice(0, (table.num_rows + 1) // 2)


def change_value(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value // 2 + 1
        case float():
            return value * 0.5
        case str():
            return value[:100] + "é"
        case bytes():
            return value[::-1]
    return value
