"""Random histories of a job: 200 of them, others with another seed. One that fails is named."""

from __future__ import annotations

import os

import pytest

from tests.sim.histories import history

SEEDS = 2000 if os.environ.get("PLAIT_LONG", "") not in ("", "0") else 200
PARTS = 10


@pytest.mark.parametrize("part", range(PARTS))
def test_no_history_breaks_a_rule(seed: int, part: int) -> None:
    for one in range(SEEDS // PARTS):
        number = (seed + part) * 100_000 + one
        try:
            history(number)
        except Exception as error:
            error.add_note(f"repeat with: history({number})")
            raise


def test_a_seed_is_a_history(seed: int) -> None:
    first, second = history(seed), history(seed)
    assert (first.now, first.facts, first.turns) == (second.now, second.facts, second.turns)
    assert bytes(first.journal.facts) == bytes(second.journal.facts)
