"""The events of NEXMark, written once for numpy and for Spark (see `benchmarks.support.draws`).

A function for each stream gives the columns of its records from their numbers 0, 1, ... in the
stream. The number of an event in the whole of the three streams follows from that, and its time
from the number.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from benchmarks.nexmark.schema import AUCTIONS, BIDS, EVENTS, PERSONS
from benchmarks.support.draws import PRICES

if TYPE_CHECKING:
    from benchmarks.nexmark.schema import Shape
    from benchmarks.support.draws import Draws

FIRST_ID = 1000
FIRST_CATEGORY, CATEGORIES = 10, 5
AHEAD = 10
"""Ids that are a little ahead of what is there: bids for auctions and by persons yet to come."""
HOT_STEP = 100
"""One id of so many is a hot one, until the next."""

FIRST_NAMES = ("Ada", "Bo", "Cleo", "Dan", "Eve", "Finn", "Gia", "Hugo", "Ida", "Jon", "Kim")
LAST_NAMES = ("Abel", "Brook", "Carr", "Dale", "Esch", "Ford", "Gold", "Hale", "Irons")
CITIES = (
    "Bend",
    "Boise",
    "Cheyenne",
    "Kent",
    "Los Angeles",
    "Phoenix",
    "Portland",
    "Redmond",
    "San Francisco",
    "Seattle",
)
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
THINGS = ("bicycle", "camera", "clock", "guitar", "lamp", "map", "radio", "ring", "stamp", "vase")


class What(enum.IntEnum):
    """What is drawn; every draw of an event has a number of its own."""

    DELAY = 1
    FIRST_NAME = 2
    LAST_NAME = 3
    CARD = 4
    CITY = 5
    STATE = 6
    THING = 10
    INITIAL_BID = 11
    RESERVE = 12
    LENGTH = 13
    SELLER_HOT = 14
    SELLER = 15
    CATEGORY = 16
    AUCTION_HOT = 20
    AUCTION = 21
    BIDDER_HOT = 22
    BIDDER = 23
    PRICE = 24


def persons(draws: Draws, shape: Shape, number: Any) -> dict[str, Any]:
    event = number * EVENTS
    first = draws.pick(draws.draw(What.FIRST_NAME, event, len(FIRST_NAMES)), FIRST_NAMES)
    last = draws.pick(draws.draw(What.LAST_NAME, event, len(LAST_NAMES)), LAST_NAMES)
    card = draws.draw(What.CARD, event, 9_000_000_000_000_000) + 1_000_000_000_000_000
    return {
        "id": number + FIRST_ID,
        "name": draws.text(first, " ", last),
        "email": draws.text(first, ".", last, "@example.org"),
        "credit_card": draws.text(card),
        "city": draws.pick(draws.draw(What.CITY, event, len(CITIES)), CITIES),
        "state": draws.pick(draws.draw(What.STATE, event, len(STATES)), STATES),
        "ts": draws.moment(time_of(draws, shape, event)),
    }


def auctions(draws: Draws, shape: Shape, number: Any) -> dict[str, Any]:
    round = draws.div(number, AUCTIONS)
    event = round * EVENTS + PERSONS + number % AUCTIONS
    begins = time_of(draws, shape, event)
    # An auction is open while about `open_auctions` others begin; lengths are uniform around that.
    mean_ms = shape.open_auctions * EVENTS * 1000 // (AUCTIONS * shape.events_per_s)
    length_ms = draws.draw(What.LENGTH, event, max(2 * mean_ms, 1)) + 1
    first_bid = draws.price(draws.draw(What.INITIAL_BID, event, PRICES))
    hot = draws.draw(What.SELLER_HOT, event, shape.hot_seller_ratio) > 0
    seller = draws.choose(
        hot,
        draws.div(round, HOT_STEP) * HOT_STEP,
        any_person(draws, shape, What.SELLER, event, round),
    )
    return {
        "id": number + FIRST_ID,
        "item": draws.pick(draws.draw(What.THING, event, len(THINGS)), THINGS),
        "initial_bid": first_bid,
        "reserve": first_bid + draws.price(draws.draw(What.RESERVE, event, PRICES)),
        "ts": draws.moment(begins),
        "expires": draws.moment(begins + length_ms * 1000),
        "seller": seller + FIRST_ID,
        "category": draws.draw(What.CATEGORY, event, CATEGORIES) + FIRST_CATEGORY,
    }


def bids(draws: Draws, shape: Shape, number: Any) -> dict[str, Any]:
    round = draws.div(number, BIDS)
    event = round * EVENTS + PERSONS + AUCTIONS + number % BIDS
    newest = round * AUCTIONS + AUCTIONS - 1
    open = draws.least(newest, shape.open_auctions)
    auction = draws.choose(
        draws.draw(What.AUCTION_HOT, event, shape.hot_auction_ratio) > 0,
        draws.div(newest, HOT_STEP) * HOT_STEP,
        newest - open + draws.draw(What.AUCTION, event, open + 1 + AHEAD),
    )
    bidder = draws.choose(
        draws.draw(What.BIDDER_HOT, event, shape.hot_bidder_ratio) > 0,
        draws.div(round, HOT_STEP) * HOT_STEP + 1,
        any_person(draws, shape, What.BIDDER, event, round),
    )
    return {
        "auction": auction + FIRST_ID,
        "bidder": bidder + FIRST_ID,
        "price": draws.price(draws.draw(What.PRICE, event, PRICES)),
        "ts": draws.moment(time_of(draws, shape, event)),
    }


STREAMS = {"persons": persons, "auctions": auctions, "bids": bids}


def time_of(draws: Draws, shape: Shape, event: Any) -> Any:
    at = draws.div(event * 1_000_000, shape.events_per_s) + shape.start_us
    if shape.out_of_order_us == 0:
        return at
    return at - draws.draw(What.DELAY, event, shape.out_of_order_us + 1)


def any_person(draws: Draws, shape: Shape, what: What, event: Any, newest: Any) -> Any:
    """One of the active persons, or one that is about to come."""
    active = draws.least(newest + 1, shape.active_persons)
    return newest + 1 - active + draws.draw(what, event, active + AHEAD)
