"""Plain Python functions of a record with a known amount of work, the same in every program.

`fee` is about a microsecond on a machine of 2026, `score` about ten. Imports nothing of plait:
peers run it in environments of their own.
"""

from __future__ import annotations


def fee(auction: int, price: int) -> int:
    """What a seller pays: a few steps of arithmetic."""
    total = 0
    for share in (50, 30, 10, 7, 3):
        total += price * share // 100
        if auction % share == 0:
            total -= price // 200
    return total


def score(auction: int, price: int) -> int:
    """A mixed number that takes many steps to find."""
    found = auction ^ price
    for step in range(100):
        found = (found * 31 + price + step) & 0xFFFFFFFF
    return found
