"""What is known of a machine that can take tasks."""

from __future__ import annotations

from dataclasses import dataclass

ASSUMED_CORES = 1.0
"""What a task uses until it was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    """A machine that can take tasks."""

    host: str
    cores: float
    cpu_ratio: float | None
    """Use of all its cores by all processes, 0..1; None: not measured yet."""
    tasks: int = 0
    """Tasks of ours on it."""
    unmeasured_tasks: int = 0
    """Those of them that were placed after `cpu_ratio` was taken."""
    address: str = ""

    @property
    def used_cores(self) -> float:
        if self.cpu_ratio is None:
            return self.tasks * ASSUMED_CORES
        return self.cpu_ratio * self.cores + self.unmeasured_tasks * ASSUMED_CORES
