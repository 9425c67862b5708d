"""The retailer of TPCx-BB: clicks in its online shop, lines of sales in its stores, its items.

Few items and users are popular. A sale has one to eight lines with one time; a user clicks for
about twenty minutes and then goes, so that a gap of an hour ends a session. Some clicks are of
nobody that is known (no user). Prices are in cents.
"""

from dataclasses import dataclass

import plait

CATEGORIES = 10
"""Of items: 1, 2, ..."""
MOST_LINES = 8
"""Of a sale."""


@dataclass
class Click:
    user: int | None
    item: int
    page: str
    """view, review, cart (the item goes into the cart) or order (it is bought)."""
    ts: plait.Timestamp


@dataclass
class Sale:
    ticket: int
    store: int
    customer: int
    item: int
    quantity: int
    price: int
    ts: plait.Timestamp


@dataclass
class Item:
    item: int
    name: str
    category: int
    price: int


SCHEMAS = {"clicks": Click, "sales": Sale, "items": Item}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Everything that a data set follows from."""

    clicks: int = 1_000_000
    tickets: int = 200_000
    seed: int = 7
    clicks_per_s: int = 100
    """Of event time."""
    tickets_per_s: int = 20
    start_us: int = 1_767_225_600_000_000
    """2026-01-01."""
    items: int = 1000
    stores: int = 20
    customers: int = 10_000
    visit_s: int = 1200
    """How long a user clicks."""
    visit_clicks: int = 16
    """How often, on average."""

    @property
    def visitors(self) -> int:
        """How many users click at the same time."""
        return max(1, self.clicks_per_s * self.visit_s // self.visit_clicks)

    @property
    def users(self) -> int:
        return 100 * self.visitors
