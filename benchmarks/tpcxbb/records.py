"""The records of TPCx-BB's streams, written once for numpy and for Spark
(`benchmarks.support.draws`).

A click is one of a visitor's place; every place is taken by another user after a while, and the
places change at different times. A sale is given by its ticket, and each of its lines by the ticket
and the line's number in it.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from benchmarks.support.draws import PRICES
from benchmarks.tpcxbb.schema import CATEGORIES, MOST_LINES

if TYPE_CHECKING:
    from benchmarks.support.draws import Draws
    from benchmarks.tpcxbb.schema import Shape

PAGES = ("view",) * 36 + ("review",) * 5 + ("cart",) * 6 + ("order",) * 3
NOBODY = 20
"""One click of so many is of no known user."""
POPULAR = 100
"""One item of so many is popular."""
VISITS = 1 << 32


class What(enum.IntEnum):
    """What is drawn."""

    PLACE = 1
    NOBODY = 2
    PAGE = 3
    CLICKED = 4
    USER = 6
    LINES = 10
    STORE = 11
    CUSTOMER = 12
    SOLD = 14
    QUANTITY = 16
    CATEGORY = 20
    PRICE = 21


def clicks(draws: Draws, shape: Shape, number: Any) -> dict[str, Any]:
    place = draws.draw(What.PLACE, number, shape.visitors)
    length = shape.clicks_per_s * shape.visit_s
    visit = draws.div(number + place * shape.visit_clicks, length)
    user = popular(draws, What.USER, place * VISITS + visit, shape.users)
    return {
        "user": draws.null_where(draws.draw(What.NOBODY, number, NOBODY) == 0, user + 1),
        "item": item_of(draws, shape, What.CLICKED, number),
        "page": draws.pick(draws.draw(What.PAGE, number, len(PAGES)), PAGES),
        "ts": draws.moment(draws.div(number * 1_000_000, shape.clicks_per_s) + shape.start_us),
    }


def lines_of(draws: Draws, ticket: Any) -> Any:
    """How many lines a sale has."""
    return draws.draw(What.LINES, ticket, MOST_LINES) + 1


def sales(draws: Draws, shape: Shape, ticket: Any, line: Any) -> dict[str, Any]:
    number = ticket * MOST_LINES + line
    item = item_of(draws, shape, What.SOLD, number)
    return {
        "ticket": ticket,
        "store": popular(draws, What.STORE, ticket, shape.stores) + 1,
        "customer": popular(draws, What.CUSTOMER, ticket, shape.customers) + 1,
        "item": item,
        "quantity": draws.draw(What.QUANTITY, number, 10) + 1,
        "price": price_of(draws, item),
        "ts": draws.moment(draws.div(ticket * 1_000_000, shape.tickets_per_s) + shape.start_us),
    }


def items(draws: Draws, shape: Shape, number: Any) -> dict[str, Any]:
    item = number + 1
    return {
        "item": item,
        "name": draws.text("item ", item),
        "category": draws.draw(What.CATEGORY, item, CATEGORIES) + 1,
        "price": price_of(draws, item),
    }


def item_of(draws: Draws, shape: Shape, what: What, number: Any) -> Any:
    """Every second one is popular."""
    any_item = draws.draw(what, number, 2 * shape.items)
    popular_ones = max(1, shape.items // POPULAR)
    return (
        draws.choose(
            any_item % 2 == 0, draws.div(any_item, 2) % popular_ones, draws.div(any_item, 2)
        )
        + 1
    )


def popular(draws: Draws, what: What, number: Any, count: int) -> Any:
    """The least of two draws: low numbers are more likely."""
    return draws.least(
        draws.draw(what, number * 2, count),
        draws.draw(what, number * 2 + 1, count),
    )


def price_of(draws: Draws, item: Any) -> Any:
    """Of an item in cents, always the same one."""
    return draws.price(draws.div(draws.draw(What.PRICE, item, PRICES), 3))
