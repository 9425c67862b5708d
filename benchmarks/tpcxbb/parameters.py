"""What the queries of TPCx-BB ask for: the same numbers for plait and for Spark."""

from __future__ import annotations

GIVEN = 1
"""The item that Q2 and Q3 ask about; a popular one."""
LAST_STORE = 10
"""Q1 and Q15 look at the stores up to this one."""
TOP_PAIRS = 100
TOP_ITEMS = 30
VIEWS = 5
"""How many views before an order Q3 takes."""
