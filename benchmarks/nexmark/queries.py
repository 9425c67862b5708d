"""NEXMark's eight queries. All are native: no Python runs for a record.

Streams in, stream out; `QUERIES` says which of the three streams each one reads. Windows are of ten
seconds, sliding ones begin every two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import plait
from plait import col

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plait import Stream


def q1(bids: Stream) -> Stream:
    """Prices in euros."""
    return bids.with_columns(price=col("price") * 908 // 1000)


def q2(bids: Stream) -> Stream:
    """The bids for some auctions."""
    return bids.filter(col("auction") % 123 == 0).select("auction", "price")


def q3(auctions: Stream, persons: Stream) -> Stream:
    """Who sells in a category and lives in one of three states. The state grows for ever."""
    near = persons.filter(col("state").is_in(["OR", "ID", "CA"]))
    sold: Stream = auctions.filter(col("category") == 10).join(near, on=("seller", "id"))
    return sold.select("name", "city", "state", auction="id")


def closed(auctions: Stream, bids: Stream) -> Stream:
    """Auctions that are over, with the highest bid; those without a bid are left out."""
    spans = auctions.join(bids, on=("id", "auction"), between=(col("ts"), col("expires")))
    over: Stream = spans.aggregate(price=plait.max(col("price")))
    return over


def q4(auctions: Stream, bids: Stream) -> Stream:
    """The mean closing price of each category so far, for every auction that closes."""
    return closed(auctions, bids).key_by("category").mean("price")


def q5(bids: Stream) -> Stream:
    """The auctions with the most bids of the last ten seconds, every two seconds."""
    counts = bids.key_by("auction").sliding("10s", every="2s").count()
    return counts.by_window().top(1, by="count", ties=True)


def q6(auctions: Stream, bids: Stream) -> Stream:
    """The mean closing price of a seller's last ten auctions, for every auction that closes."""
    return closed(auctions, bids).key_by("seller").last_n(10).mean("price")


def q7(bids: Stream) -> Stream:
    """The highest bids of every ten seconds."""
    return bids.tumbling("10s").top(1, by="price", ties=True)


def q8(persons: Stream, auctions: Stream) -> Stream:
    """New persons who opened an auction in the ten seconds in which they came."""
    window = plait.Tumbling("10s")
    new: Stream = persons.join(auctions, on=("id", "seller"), window=window, how="semi")
    return new.select("id", "name")


@dataclass(frozen=True, slots=True)
class Query:
    """A query and the streams that it reads, in the order of its parameters."""

    streams: tuple[str, ...]
    build: Callable[..., Stream]

    def over(self, given: Mapping[str, Stream]) -> Stream:
        return self.build(*(given[stream] for stream in self.streams))


QUERIES = {
    "q1": Query(("bids",), q1),
    "q2": Query(("bids",), q2),
    "q3": Query(("auctions", "persons"), q3),
    "q4": Query(("auctions", "bids"), q4),
    "q5": Query(("bids",), q5),
    "q6": Query(("auctions", "bids"), q6),
    "q7": Query(("bids",), q7),
    "q8": Query(("persons", "auctions"), q8),
}
