"""The auction site of NEXMark: its three streams, and the shape of a data set.

Of every 50 events one is a new person, three are new auctions and 46 are bids. Bids favour the
newest auction of a hundred, and a few bidders and sellers; the defaults are those of the reference
generator. Prices are in cents. Descriptions and padding are left out: no query reads them.
"""

from dataclasses import dataclass

import plait

PERSONS, AUCTIONS, BIDS = 1, 3, 46
"""Out of EVENTS."""
EVENTS = PERSONS + AUCTIONS + BIDS


@dataclass
class Person:
    id: int
    name: str
    email: str
    credit_card: str
    city: str
    state: str
    ts: plait.Timestamp


@dataclass
class Auction:
    id: int
    item: str
    initial_bid: int
    reserve: int
    ts: plait.Timestamp
    expires: plait.Timestamp
    seller: int
    category: int


@dataclass
class Bid:
    auction: int
    bidder: int
    price: int
    ts: plait.Timestamp


SCHEMAS = {"persons": Person, "auctions": Auction, "bids": Bid}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Everything that a data set follows from."""

    events: int = 1_000_000
    seed: int = 7
    events_per_s: int = 10_000
    """Of event time."""
    start_us: int = 1_767_225_600_000_000
    """2026-01-01, the start of a window of any usual size."""
    out_of_order_us: int = 0
    """Up to so much an event time lies before that of an event that came earlier; 0: in order."""
    hot_auction_ratio: int = 2
    """One bid of so many is for any auction that is open, the others for a hot one."""
    hot_bidder_ratio: int = 4
    hot_seller_ratio: int = 4
    open_auctions: int = 100
    """How many auctions are open at a time, about."""
    active_persons: int = 1000
    """Bidders and sellers that are not hot are among so many that came last."""

    def rows(self, stream: str) -> int:
        """How many records of a stream are among the first `events` events."""
        whole, rest = divmod(self.events, EVENTS)
        first = {"persons": 0, "auctions": PERSONS, "bids": PERSONS + AUCTIONS}[stream]
        each = {"persons": PERSONS, "auctions": AUCTIONS, "bids": BIDS}[stream]
        return whole * each + min(max(rest - first, 0), each)
