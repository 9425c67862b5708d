"""The ports of an operator with its own loop, as its coroutine sees them: `plait.Context`.

Records wait here in the order in which they came. A wait that is not met yet lets the next record
of the unit arrive by itself, so that between two records nothing but the coroutine runs; only when
the unit has no more does it give the loop up. What fits no schema is refused where it is emitted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from plait.model.records import Misfit, raw_values, values_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator

    from plait.graph.temporal import OperatorSpec, OutputPort

REFUSED = 10_000
"""An operator that is told so often in a row that its ports are over will never end."""


class Done:
    """What awaits nothing."""

    __slots__ = ()

    def __await__(self) -> Iterator[None]:
        return iter(())


DONE = Done()


class PortContext:
    """The ports of one operator. The driver's: `arrived` lets the next record come, if there is
    one, `pause` waits until there may be, `add` takes what is emitted."""

    def __init__(
        self,
        spec: OperatorSpec,
        arrived: Callable[[], bool],
        pause: Callable[[], Awaitable[None]],
        add: Callable[[Any], None],
    ) -> None:
        self.inputs = tuple(port.name for port in spec.inputs)
        self.outputs = tuple(port.name for port in spec.outputs)
        self.bound = spec.bound
        self.waiting: dict[str, deque[Any]] = {name: deque() for name in self.inputs}
        self.closed: set[str] = set()
        self.wanted: tuple[str, dict[str, int]] = ("", {})
        """What the coroutine waits for, or waited for last."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self.task: asyncio.Task[Any] | None = None
        self.refusals = 0
        self._arrived = arrived
        self._pause = pause
        self._add = add
        self._rows = {port.name: row_maker(i, spec) for i, port in enumerate(spec.outputs)}

    def wait_all(self, /, **counts: int) -> Coroutine[Any, Any, bool]:
        """Until so many records are at each of these ports; False: that cannot be any more."""
        return self._wait("wait_all", counts, self._all_there)

    def wait_any(self, /, **counts: int) -> Coroutine[Any, Any, bool]:
        """Until so many records are at one of these ports; False: that cannot be any more."""
        return self._wait("wait_any", counts, self._any_there)

    async def _wait(
        self, what: str, counts: dict[str, int], look: Callable[[dict[str, int]], bool | None]
    ) -> bool:
        self._own()
        if (what, counts) != self.wanted:
            self._check(what, counts)
            self.wanted = what, counts
        while (found := look(counts)) is None:
            if not self._arrived():
                await self._pause()
        if not found:
            self.refusals += 1
            if self.refusals > REFUSED:
                raise RuntimeError(
                    f"{what} was False {REFUSED:,} times in a row; end the loop then"
                )
        return found

    def _all_there(self, counts: dict[str, int]) -> bool | None:
        """None: not yet."""
        found: bool | None = True
        for port, n in counts.items():
            if len(self.waiting[port]) < n:
                if port in self.closed:
                    return False
                found = None
        return found

    def _any_there(self, counts: dict[str, int]) -> bool | None:
        found: bool | None = False
        for port, n in counts.items():
            if len(self.waiting[port]) >= n:
                return True
            if port not in self.closed:
                found = None
        return found

    def pop(self, port: str, n: int | None = None) -> Any:
        """The first record of a port, or a list of the first n."""
        found = self._at(port)
        wanted = 1 if n is None else n
        if type(wanted) is not int or wanted < 0:
            raise ValueError(f"pop({port!r}, {n!r}): a whole number is wanted")
        if len(found) < wanted:
            raise LookupError(
                f'port "{port}" has {len(found)} records, not {wanted}; wait for them'
            )
        self.refusals = 0
        return found.popleft() if n is None else [found.popleft() for _ in range(wanted)]

    def peek(self, port: str, i: int = 0) -> Any:
        """A record that waits at a port, which stays there."""
        found = self._at(port)
        if not 0 <= i < len(found):
            raise LookupError(f'port "{port}" has {len(found)} records, and none at {i}')
        return found[i]

    def size(self, port: str) -> int:
        """How many records wait at a port."""
        return len(self._at(port))

    def over(self, port: str) -> bool:
        """Whether no more records will come to a port."""
        self._at(port)
        return port in self.closed

    def emit(self, /, *record: Any, **records: Any) -> Done:
        """Emits a record at each of these ports; without a name at the only one."""
        self._own()
        if record:
            if len(record) > 1 or records or len(self.outputs) > 1:
                raise ValueError(f"emit: name the port of each record: {', '.join(self.outputs)}")
            records = {self.outputs[0]: record[0]}
        for port, given in records.items():
            make = self._rows.get(port)
            if make is None:
                raise ValueError(
                    f'emit: there is no output "{port}"; there is {", ".join(self.outputs)}'
                )
            try:
                self._add(make(given))
            except ValueError as error:
                raise Misfit(f'emit at "{port}": {error}') from error
        self.refusals = 0
        return DONE

    def _at(self, port: str) -> deque[Any]:
        try:
            return self.waiting[port]
        except KeyError:
            known = ", ".join(self.inputs)
            raise ValueError(f'there is no input "{port}"; there is {known}') from None

    def _own(self) -> None:
        if asyncio.current_task(self.loop) is not self.task:
            raise RuntimeError(
                "only the operator's own coroutine may wait and emit; what it starts beside itself"
                " (gather, create_task) must leave that to it"
            )

    def _check(self, what: str, counts: dict[str, int]) -> None:
        if not counts:
            raise ValueError(f"{what}() waits for nothing; name ports: {what}({self.inputs[0]}=1)")
        for port, n in counts.items():
            self._at(port)
            if type(n) is not int or n < 1:
                raise ValueError(f"{what}({port}={n!r}): a whole number above 0 is wanted")
            if self.bound is not None and n > self.bound:
                raise ValueError(f"{what}({port}={n}): at most bound={self.bound} can wait there")

    def describe_wait(self) -> str:
        """What the coroutine waits for, in words."""
        what, counts = self.wanted
        return f"{what}({', '.join(f'{port}={n}' for port, n in counts.items())})"


def row_maker(number: int, spec: OperatorSpec) -> Callable[[Any], Any]:
    """From what is emitted at a port to a row of the operator."""
    port = spec.outputs[number]
    if len(spec.outputs) == 1:
        return side_by_side(spec, port) if port.tuples else lambda record: record
    before = sum(len(other.columns) for other in spec.outputs[:number])
    after = sum(len(other.columns) for other in spec.outputs[number + 1 :])
    head, tail = (number, *(None,) * before), (None,) * after
    flat = side_by_side(spec, port) if port.tuples else None

    def make_row(record: Any) -> tuple[Any, ...]:
        values = record if flat is None else flat(record)
        return (*head, *values_of(values, port.schema), *tail)

    return make_row


def side_by_side(spec: OperatorSpec, port: OutputPort) -> Callable[[Any], tuple[Any, ...]]:
    """From a tuple with a record of each input to the values of all."""
    names = ", ".join(one.name for one in spec.inputs)

    def make_row(records: Any) -> tuple[Any, ...]:
        if not isinstance(records, tuple | list) or len(records) != len(spec.inputs):
            raise ValueError(
                f"expected a tuple with a record of each of {names}, got {records!r}; or say what"
                f' is emitted: outputs={{"{port.name}": a dataclass or a dict of types}}'
            )
        values: list[Any] = []
        for record, one in zip(records, spec.inputs, strict=True):
            empty = (None,) * len(one.columns)
            values += empty if record is None else raw_values(record, one.schema)
        return tuple(values)

    return make_row
