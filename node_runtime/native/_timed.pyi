from typing import Any

from plait.model.schema import Type

class NativeTimedPlan:
    def __init__(
        self,
        *,
        types: list[Type],
        out_types: list[Type],
        keys: list[tuple[int, Type]],
        aggregates: list[tuple[str, int, Type, bool]],
        origins: list[tuple[bool, bool, int, int, list[int], int, bool]],
        numbers: dict[str, Any],
        bin_bits: int,
        lane_bits: int,
        sub_bits: int,
    ) -> None: ...
