"""Throughput as a function of the number of workers, and a machine that follows such a curve."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from plait.node_runtime.elastic.worker_level import (
    LevelDecision,
    LevelMemory,
    LevelPolicy,
    LevelView,
    begin,
    decide,
    period_ratio,
)

Curve = Callable[[int], float]

CURVES: dict[str, Curve] = {
    "linear": lambda level: level,
    "saturating": lambda level: min(level, 9),
    "a serial part of 2 %": lambda level: 1 / (0.02 + 0.98 / level),
    "a serial part of 20 %": lambda level: 1 / (0.2 + 0.8 / level),
    "peaked at 3": lambda level: level / (1 + (level / 3) ** 2),
    "peaked at 11": lambda level: level / (1 + (level / 11) ** 2),
    "a cliff behind 13": lambda level: level if level <= 13 else 13 / (level - 12),
    "flat": lambda level: 1,
    "falling": lambda level: 1 / level,
}
RECORDED = Path(__file__).with_name("recorded_levels.json")


def recorded() -> dict[str, list[float]]:
    """Measured records a second by number of workers, from 1 on."""
    found: dict[str, list[float]] = json.loads(RECORDED.read_text())["curves"]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """One period of a simulated run: what was measured, at which level, and what was decided."""

    level: int
    throughput: float
    decision: LevelDecision
    length_ratio: float
    """Of a full period; a short one has more noise."""


def play(
    curve: Curve,
    policy: LevelPolicy,
    periods: int,
    *,
    later: Curve | None = None,
    change_at: int = 0,
    noise: float = 0.0,
    seed: int = 0,
    memory: LevelMemory | None = None,
    cpu_ratio: float = 0.0,
) -> list[Period]:
    """Lets the policy choose the level of every period; from `change_at` on by curve `later`."""
    draw = Random(seed)
    memory = memory or begin(policy)
    ratio = period_ratio(policy, memory)
    found = []
    for number in range(periods):
        now = later if later is not None and number >= change_at else curve
        level = memory.level
        measured = max(0.0, now(level) * (1 + draw.gauss(0, noise / ratio**0.5)))
        view = LevelView(throughput=measured, active=level, cpu_ratio=cpu_ratio)
        decision, memory = decide(view, policy, memory)
        found.append(
            Period(level=level, throughput=measured, decision=decision, length_ratio=ratio)
        )
        ratio = decision.period_ratio
    return found


def quality(curve: Curve, periods: list[Period], most: int, least: int = 1) -> float:
    """The mean true throughput of these periods over that of the best level."""
    best = max(curve(level) for level in range(least, most + 1))
    whole = sum(one.length_ratio for one in periods)
    return sum(curve(one.level) * one.length_ratio for one in periods) / whole / best
