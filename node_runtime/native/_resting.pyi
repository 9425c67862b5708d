from typing import TypeAlias

from plait.model.schema import Type
from plait.node_runtime.native._batch import NativeBatch
from plait.node_runtime.native._timed import NativeTimedPlan

Aggregates: TypeAlias = list[tuple[str, int, Type, bool]]
Keys: TypeAlias = list[tuple[int, Type]]

def convert_aggregate(
    keys: Keys,
    before: Aggregates,
    now: Aggregates,
    source: list[int],
    *,
    bin_bits: int,
    data: bytes,
) -> bytes: ...

class RestingState:
    @staticmethod
    def aggregate(
        keys: Keys,
        aggregates: Aggregates,
        *,
        put_bits: int,
        bin_bits: int,
    ) -> RestingState: ...
    @staticmethod
    def timed(plan: NativeTimedPlan, *, put_bits: int) -> RestingState: ...
    def put(self, bin: int, data: bytes) -> None: ...
    def take(self, bins: list[int]) -> list[bytes]: ...
    def rows(self, types: list[Type], now: int) -> NativeBatch: ...
