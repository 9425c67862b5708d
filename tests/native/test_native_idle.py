"""A slow job over several nodes as a native program: workers sleep between two records, and all
nodes agree on when a record is due.

What is counted is how often workers look for work for each sleep, so a slow machine changes
nothing.
The last tests break the headers in one place each and demand that the fault is found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.native.native_build import check, programs, run
from tests.native.native_faults import Faults, faulty, number_of

if TYPE_CHECKING:
    from pathlib import Path

RUNS = {
    "idle_test:plain": (60,),
    "idle_test:thread": (60,),
    "idle_test:address": (60,),
}

FAULTS: Faults = {
    "a worker stays awake until the next record": (
        "idle_test",
        "scheduling/crew.hpp",
        "bool soon() const { return ",
        "bool soon() const { return FAULT || ",
    ),
    "each node has a start of its own": (
        "idle_test",
        "sources/source_stage.hpp",
        "if (origin_->paced()) {",
        "if (!FAULT && origin_->paced()) {",
    ),
}


@pytest.mark.parametrize("program", programs(RUNS, "idle_test:plain"))
def test_idle_program(binaries: dict[str, Path], program: str) -> None:
    check(binaries[program], RUNS[program], "ok: 60 rows")


@pytest.mark.slow
@pytest.mark.parametrize("fault", [*FAULTS])
def test_a_seeded_fault_is_found(fault: str) -> None:
    done = run(faulty("idle_test", FAULTS), "60", number_of(FAULTS, fault))
    assert done.returncode != 0, f"{fault}: went unnoticed"


@pytest.mark.slow
def test_the_same_program_without_a_fault_finds_none() -> None:
    done = run(faulty("idle_test", FAULTS), "60", "0")
    assert done.returncode == 0, done.stderr
