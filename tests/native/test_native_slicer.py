"""The order of time as a native program: the rows of each epoch against a plain loop over slices.

The last tests break the header in one place each (`native_faults.py`) and demand that the fault is
found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.native.native_build import SEED, check, programs, run
from tests.native.native_faults import Faults, faulty, number_of

if TYPE_CHECKING:
    from pathlib import Path

RUNS = {"slicer_test:plain": (20_000, SEED), "slicer_test:address": (2_000, SEED)}
HEADER = "sources/time_slicer.hpp"

FAULTS: Faults = {
    "a slice ends with what is known": (
        "slicer_test",
        HEADER,
        "if (rows <= Sizes::kMost && !complete) return false;",
        "if (!FAULT && rows <= Sizes::kMost && !complete) return false;",
    ),
    "rows of one moment are taken as far as they are known": (
        "slicer_test",
        HEADER,
        "while (!of.ended && in == of.known && in <= most) {",
        "while (!FAULT && !of.ended && in == of.known && in <= most) {",
    ),
    "pieces of times are taken to follow each other": (
        "slicer_test",
        HEADER,
        "(of.there && of.times + of.known == times)",
        "(of.there && (FAULT || of.times + of.known == times))",
    ),
    "rows that fall are said to be in order": (
        "slicer_test",
        HEADER,
        "of.base >= of.rises_from;",
        "of.base >= (FAULT ? 0 : of.rises_from);",
    ),
    "jumps are not cut": (
        "slicer_test",
        HEADER,
        "std::min(times[i], add_times(of.time, of.max_jump))",
        "std::min(times[i], FAULT ? times[i] : add_times(of.time, of.max_jump))",
    ),
    "a later source does not wait for the rows of an earlier one": (
        "slicer_test",
        HEADER,
        "if (rows[s] < in || fails) {",
        "if ((!FAULT && rows[s] < in) || fails) {",
    ),
    "slices follow each other without a gap": (
        "slicer_test",
        HEADER,
        "const int64_t first = std::max(next_, least);",
        "const int64_t first = FAULT && next_ != kNoTime ? next_ : std::max(next_, least);",
    ),
    "a slice of many rows is not cut": (
        "slicer_test",
        HEADER,
        "if (rows > Sizes::kMost && length_ > 1) {",
        "if (!FAULT && rows > Sizes::kMost && length_ > 1) {",
    ),
}


@pytest.mark.parametrize("program", programs(RUNS, "address"))
def test_slicer_program(binaries: dict[str, Path], program: str) -> None:
    check(binaries[program], RUNS[program], f"seed {SEED}")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_seeded_fault_is_found(fault: str) -> None:
    done = run(faulty("slicer_test", FAULTS), 2_000, 1, number_of(FAULTS, fault))
    assert done.returncode != 0, f"{fault}: went unnoticed"


def test_the_same_program_without_a_fault_finds_none() -> None:
    done = run(faulty("slicer_test", FAULTS), 100, 1, 0)
    assert done.returncode == 0, done.stderr
