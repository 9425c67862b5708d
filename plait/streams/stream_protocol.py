"""What the builders of windows, joins and processes need to know of a stream.

They make operators and know nothing of jobs: a stream says what it is, and takes an operator that
reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from plait.graph.operators import AnyOp, OnError, ProjectOp
from plait.streams.projections import projection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.expr.tree import Expr
    from plait.model.call_site import CallSite
    from plait.model.schema import Schema
    from plait.streams.event_time import Time


class Streaming(Protocol):
    """A stream, to those who add operators behind it."""

    @property
    def schema(self) -> Schema:
        """The columns."""

    @property
    def _number(self) -> int:
        """The operator that makes it."""

    @property
    def _time(self) -> Time:
        """Its event time, over its columns."""

    def _made(self, op: AnyOp, time: Time | None = None) -> Self:
        """The stream of an operator that reads this one; `time`: its event time, if it has
        another."""

    def _united(self, place: CallSite, others: Sequence[Self], name: str) -> Self:
        """This stream and others as one."""


S = TypeVar("S", bound=Streaming)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site(Generic[S]):
    """The records that an operator is over: a stream, its keys, what happens to those that fail."""

    stream: S
    keys: tuple[str, ...] = ()
    on_error: OnError = "fail"
    ttl_us: int = 0
    """So long behind its last record the state of a key is kept; 0: for ever."""


def projected(
    stream: S,
    place: CallSite,
    columns: Sequence[tuple[str, Expr]],
    on_error: OnError,
    part: str,
) -> S:
    """A projection that belongs to an operator of the user's: its name says which part it is."""
    made = projection(columns, stream.schema)
    op = ProjectOp(
        name=f"{place.name}.{part}",
        at=place.at,
        inputs=(stream._number,),
        schema=made.schema,
        on_error=on_error,
        columns=made.columns,
    )
    return stream._made(op)


def free(name: str, taken: Sequence[str]) -> str:
    """A name for a column that no other has."""
    while name in taken:
        name += "_"
    return name
