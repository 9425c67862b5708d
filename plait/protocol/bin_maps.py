"""Maps of bins that know in what they differ from the one before: who owns them, where copies go.

The layouts of a chunk differ in a few bins of perhaps a hundred thousand. So a map is made in whole
only when somebody looks at it, and travels as what changed since the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Change = tuple[int, int | None]
"""A bin and its node; None: it has none any more."""
Changes = tuple[Change, ...]

MOST_BEHIND = 1024
"""So many maps may stand behind one that nobody has looked at."""

T = TypeVar("T")


class Chained(Sequence[T], Generic[T]):
    """A tuple that is made of the one before it and what changed, when somebody looks."""

    __slots__ = ("before", "behind", "changes", "found", "mark", "origin")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self.found: tuple[T, ...] | None = tuple(items)
        self.mark = object()
        """Its own, not the map itself: a map that was looked at keeps none alive."""
        self.origin: object = None
        self.changes: Changes = ()
        self.before: Self | None = None
        self.behind = 0

    @staticmethod
    def applied(items: tuple[T, ...], changes: Iterable[Changes]) -> Iterable[T]:
        """The items after all of these changes, one after the other."""
        raise NotImplementedError

    def changed(self, changes: Iterable[Change]) -> Self:
        made = type(self)()
        made.origin, made.changes = self.mark, tuple(changes)
        made.found, made.before = None, self
        made.behind = 0 if self.found is not None else self.behind + 1
        if made.behind > MOST_BEHIND:
            made.whole()
        return made

    def whole(self) -> tuple[T, ...]:
        """All of it; the maps before it are not needed any more."""
        if self.found is None:
            chain = [self]
            while (before := chain[-1].before) is not None and before.found is None:
                chain.append(before)
            assert before is not None
            assert before.found is not None
            changes = (one.changes for one in reversed(chain))
            self.found = tuple(self.applied(before.found, changes))
            self.before, self.behind = None, 0
        return self.found

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[T, ...]: ...
    def __getitem__(self, at: int | slice) -> T | tuple[T, ...]:
        return self.whole()[at]

    def __len__(self) -> int:
        return len(self.whole())

    def __iter__(self) -> Iterator[T]:
        return iter(self.whole())

    def count(self, item: object) -> int:
        return self.whole().count(item)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Chained):
            return other is self or self.whole() == other.whole()
        return self.whole() == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.whole())

    def __repr__(self) -> str:
        return repr(self.whole())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.whole(),)


class Owners(Chained[int]):
    """The owner of each bin.

    >>> first = Owners((0, 0, 1))
    >>> second = first.changed([(1, 1)])
    >>> second, changes_between(first, second)
    ((0, 1, 1), ((1, 1),))
    """

    __slots__ = ()

    @staticmethod
    def applied(items: tuple[int, ...], changes: Iterable[Changes]) -> Iterable[int]:
        owners = list(items)
        for some in changes:
            for bin, owner in some:
                assert owner is not None
                owners[bin] = owner
        return owners


class Copies(Chained[tuple[int, int]]):
    """Bins that are copied and where they go, by bin.

    >>> Copies([(1, 0), (5, 2)]).changed([(3, 1), (5, None)])
    ((1, 0), (3, 1))
    """

    __slots__ = ()

    @staticmethod
    def applied(
        items: tuple[tuple[int, int], ...], changes: Iterable[Changes]
    ) -> Iterable[tuple[int, int]]:
        copies = dict(items)
        for some in changes:
            for bin, target in some:
                if target is None:
                    copies.pop(bin, None)
                else:
                    copies[bin] = target
        return sorted(copies.items())


def changes_between(before: Sequence[Any], after: Sequence[Any]) -> Changes | None:
    """What makes the second of the first, if that is known without a comparison."""
    if after is before:
        return ()
    if isinstance(before, Chained) and isinstance(after, Chained) and after.origin is before.mark:
        return after.changes
    return None
