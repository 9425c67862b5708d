"""Runs the native structures' own tests: plain, and under the thread and address sanitizers.

The stress tests use real threads; `explore_test` runs the same headers under a seeded scheduler
that may switch at each atomic operation and, without ThreadSanitizer, lets loads return old values
as a weaker processor may. The last tests build deliberate faults in and demand that they are
found: a test that cannot fail proves nothing. Two writes of one location changing places is not
modelled, so the order of `next` and a slot in the reorder buffer rests on its comment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.native.native_build import VARIANTS, parse, programs, run

if TYPE_CHECKING:
    from pathlib import Path

ITERATIONS = {"rings_test": 20_000, "reorder_test": 8_000, "queues_test": 15_000}
SEEDS = {"plain": 4_000, "thread": 150, "address": 300}
FAULT_SEEDS = 150  # Each fault is found within the first twenty.
FAULT_ITERATIONS = 1_000_000  # On real threads it is found at the first overlap, which may take.
STRESS = [(name, variant) for name in (*ITERATIONS, "histogram_test") for variant in VARIANTS]
FAULTS = (
    # The sanitizer must see each of these, on real threads and along explored interleavings.
    ("reorder_test", "thread", "PLAIT_BUG_RELAXED_PUBLISH", "data race"),
    ("explore_test", "thread", "PLAIT_BUG_RELAXED_PUBLISH", "data race"),
    # The explorer must see these without any sanitizer, and name the seed.
    ("explore_test", "plain", "PLAIT_BUG_SILENT_FLAG", "reorder, seed"),
    ("explore_test", "plain", "PLAIT_BUG_NO_RECHECK", "reorder, seed"),
    ("explore_test", "plain", "PLAIT_BUG_COUNT_BEFORE_OPERATE", "hybrid, seed"),
    ("explore_test", "plain", "PLAIT_BUG_SILENT_MARK", "free list, seed"),
    ("explore_test", "plain", "PLAIT_BUG_UNLIST_LATE", "free list, seed"),
)
QUICK_FAULT = "explore_test:thread:PLAIT_BUG_RELAXED_PUBLISH"
STRESS_RUNS = [f"{name}:{variant}" for name, variant in STRESS]
EXPLORED = [f"explore_test:{variant}" for variant in VARIANTS]
SYMPTOMS = {f"{name}:{variant}:{flag}": symptom for name, variant, flag, symptom in FAULTS}


@pytest.mark.parametrize("program", programs(STRESS_RUNS, "thread"))
def test_stress(binaries: dict[str, Path], program: str) -> None:
    done = run(binaries[program], ITERATIONS.get(parse(program).name, 20_000))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("program", programs(EXPLORED, "plain"))
def test_explored_interleavings(binaries: dict[str, Path], seed: int, program: str) -> None:
    count = SEEDS[parse(program).variant]
    done = run(binaries[program], count, seed)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"{count} seeds") == 9


@pytest.mark.parametrize("program", programs(SYMPTOMS, "plain", QUICK_FAULT))
def test_a_seeded_fault_is_found(binaries: dict[str, Path], program: str) -> None:
    name = parse(program).name
    done = run(binaries[program], FAULT_SEEDS if name == "explore_test" else FAULT_ITERATIONS)
    assert done.returncode != 0, f"{program} went unnoticed"
    assert SYMPTOMS[program] in done.stderr


@pytest.mark.parametrize("program", ["explore_test:plain:PLAIT_BUG_NO_RECHECK"])
def test_a_reported_seed_repeats_the_failure(binaries: dict[str, Path], program: str) -> None:
    first = run(binaries[program], FAULT_SEEDS)
    seed = int(first.stderr.split("seed ")[1].split(":")[0])
    again = run(binaries[program], 1, seed)
    assert again.returncode == first.returncode
    assert again.stderr == first.stderr
