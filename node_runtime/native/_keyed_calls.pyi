from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from plait.model.schema import Field
from plait.node_runtime.native._batch import NativeBatch
from plait.node_runtime.native._calls import Failures
from plait.node_runtime.native._records import Shape

Key: TypeAlias = tuple[Any, ...]

class KeyedCall:
    def __init__(
        self,
        step: Callable[[Any, Any], Any],
        first: Callable[[], Any],
        add_key: Callable[[Key], dict[Key, Any]],
        canonical: Callable[[Key], Key] | None,
        home: dict[Key, dict[Key, Any]],
        given: Shape,
        places: Iterable[int],
        stop_at_first: bool,
    ) -> None: ...
    def fold(
        self,
        batch: NativeBatch,
        rows: Sequence[int] | None,
        field: Field,
        before: Callable[[Key], None] | None,
        beat: Callable[[], None] | None,
    ) -> tuple[NativeBatch, array[int] | None, Failures]: ...
    def run(
        self,
        batch: NativeBatch,
        rows: Sequence[int] | None,
        out: Shape,
        before: Callable[[Key], None] | None,
        beat: Callable[[], None] | None,
    ) -> tuple[NativeBatch, array[int], Failures]: ...
