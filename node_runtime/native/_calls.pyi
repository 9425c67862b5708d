from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from plait.model.schema import Field
from plait.node_runtime.native._batch import NativeBatch
from plait.node_runtime.native._records import Shape

Failures: TypeAlias = list[tuple[int, BaseException]]

ADVICE: str

WHOLE_BATCH: int

def beat_at(address: int) -> None: ...
def at_step(number: int, poison: dict[int, str]) -> None: ...
def reached(row: int) -> int: ...
def beat() -> None: ...
def misfit_of(error: Exception) -> ValueError: ...
def map_rows(
    function: Callable[[Any], Any],
    batch: NativeBatch,
    given: Shape,
    out: Shape,
    stop_at_first: bool,
    again: Callable[[int], bool] | None = None,
) -> tuple[NativeBatch, array[int] | None, Failures]: ...
def flat_map_rows(
    function: Callable[[Any], Any],
    batch: NativeBatch,
    given: Shape,
    out: Shape,
    stop_at_first: bool,
    again: Callable[[int], bool] | None = None,
) -> tuple[NativeBatch, array[int], Failures]: ...
def filter_rows(
    function: Callable[[Any], Any],
    batch: NativeBatch,
    given: Shape,
    stop_at_first: bool,
    again: Callable[[int], bool] | None = None,
) -> tuple[array[int], Failures]: ...

class ColumnCall:
    def __init__(
        self,
        function: Callable[..., Any],
        field: Field,
        columns: Sequence[int],
        names: Sequence[str] = (),
    ) -> None: ...
    @property
    def field(self) -> Field: ...

def call_columns(
    calls: list[ColumnCall],
    order: Iterable[int],
    batch: NativeBatch,
    stop_at_first: bool,
    again: Callable[[int], bool] | None = None,
) -> tuple[NativeBatch, array[int] | None, Failures]: ...
def select_rows(batch: NativeBatch, rows: array[int]) -> NativeBatch: ...
def assemble(sources: Iterable[int], base: NativeBatch, fresh: NativeBatch) -> NativeBatch: ...

class Records:
    def __init__(self, shape: Shape, room: int) -> None: ...
    def add(self, row: int, record: Any) -> None: ...
    def finish(self, given: NativeBatch) -> tuple[NativeBatch, array[int]]: ...
