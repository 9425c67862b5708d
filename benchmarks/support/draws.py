"""Random columns that follow from a seed and a row number alone, the same in numpy and in Spark.

A data set is written once, as a function from row numbers to columns over the few operations of
`Draws`; `NumpyDraws` computes it here at full speed, `spark_draws` in a Spark job of any size.
Both give the same rows to the last bit, however the rows are cut into parts: a draw is the 64-bit
xxHash of (seed, what is drawn, row), as Spark's `xxhash64` has it, modulo the range.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
SPARK_SEED = 42
"""What Spark's hash functions begin with."""
PRICES = 1 << 20
"""How many different prices there are."""


class Draws(Protocol):
    """The operations on columns that `+`, `-`, `*`, `%` and comparisons do not give. Whole numbers
    are never negative."""

    def draw(self, what: int, at: Any, below: Any) -> Any:
        """A whole number in [0, below), uniform, for each row number in `at`."""

    def div(self, a: Any, b: Any) -> Any: ...

    def least(self, a: Any, b: Any) -> Any: ...

    def choose(self, condition: Any, yes: Any, no: Any) -> Any: ...

    def price(self, drawn: Any) -> Any:
        """A price in cents, from one to a million dollars, each power of ten as likely as the next;
        `drawn` is below PRICES."""

    def pick(self, index: Any, words: Sequence[str]) -> Any: ...

    def text(self, *parts: Any) -> Any:
        """Texts and columns of texts or whole numbers, one behind the other."""

    def moment(self, microseconds: Any) -> Any:
        """A timestamp column from microseconds since 1970."""

    def null_where(self, condition: Any, value: Any) -> Any: ...


class NumpyDraws:
    """Columns are numpy arrays; texts, timestamps and columns with nulls are Arrow arrays."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def draw(self, what: int, at: Any, below: Any) -> Any:
        begun = hashed(np.uint64(what), hashed(np.uint64(self.seed), np.uint64(SPARK_SEED)))
        return hashed(np.asarray(at).view(np.uint64), begun).view(np.int64) % below

    def div(self, a: Any, b: Any) -> Any:
        return a // b

    def least(self, a: Any, b: Any) -> Any:
        return np.minimum(a, b)

    def choose(self, condition: Any, yes: Any, no: Any) -> Any:
        return np.where(condition, yes, no)

    def price(self, drawn: Any) -> Any:
        return prices()[drawn]

    def pick(self, index: Any, words: Sequence[str]) -> Any:
        import pyarrow as pa

        return pa.array(words).take(pa.array(index))

    def text(self, *parts: Any) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = [
            pa.array(part).cast(pa.string()) if isinstance(part, np.ndarray) else part
            for part in parts
        ]
        return pc.binary_join_element_wise(*texts, "")

    def moment(self, microseconds: Any) -> Any:
        import pyarrow as pa

        return pa.array(microseconds, pa.int64()).cast(pa.timestamp("us", "UTC"))

    def null_where(self, condition: Any, value: Any) -> Any:
        import pyarrow as pa

        return pa.array(value, mask=condition)


@functools.cache
def prices() -> Any:
    """All prices: looking one up takes a tenth of the time of its power."""
    powers = np.power(10.0, np.arange(PRICES) / PRICES * 6.0)
    return np.floor(powers * 100.0 + 0.5).astype(np.int64)


def hashed(value: Any, begun: Any) -> Any:
    """The xxHash of 64-bit words, begun with a hash."""
    with np.errstate(over="ignore"):
        found = begun + np.uint64(P5 + 8) ^ rotated(value * np.uint64(P2), 31) * np.uint64(P1)
        found = rotated(found, 27) * np.uint64(P1) + np.uint64(P4)
        found = (found ^ found >> np.uint64(33)) * np.uint64(P2)
        found = (found ^ found >> np.uint64(29)) * np.uint64(P3)
        return found ^ found >> np.uint64(32)


def rotated(value: Any, bits: int) -> Any:
    return value << np.uint64(bits) | value >> np.uint64(64 - bits)
