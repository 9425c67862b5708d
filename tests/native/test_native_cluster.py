"""Several nodes as native programs: the exchange, the epochs, bins that move while records flow.

`cluster_test` runs whole engines linked over loopback while layouts change at random;
`epochs_test` simulates the agreement on epochs one step at a time; `merge_parts_test` puts parts
together. Plain, and under the thread and address sanitizers, no report suppressed; seeds are
printed. The last tests break the headers in one place each (`native_faults.py`) and demand that the
fault is found: a test that cannot fail proves nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.native.native_build import SEED, check, programs, run
from tests.native.native_faults import Faults, faulty, number_of

if TYPE_CHECKING:
    from pathlib import Path

RUNS = {
    "cluster_test:plain": (50, SEED, 4_000),
    "cluster_test:thread": (10, SEED, 1_000),
    "cluster_test:address": (15, SEED, 1_000),
    "epochs_test:plain": (4_000, SEED),
    "epochs_test:address": (800, SEED),
    "merge_parts_test:plain": (20_000, SEED),
    "merge_parts_test:address": (1_500, SEED),
}

FAULTS: Faults = {
    "routed by the newest layout": (
        "cluster_test",
        "exchange/route_stage.hpp",
        "const Layouts::Ref layout = wire_.layouts().at(batch.epoch);\n    guarded",
        "const Layouts::Ref layout =\n"
        "        FAULT ? wire_.layouts().last() : wire_.layouts().at(batch.epoch);\n    guarded",
    ),
    "a layout passed before its bins are in": (
        "cluster_test",
        "moves/lane_moves.hpp",
        "if (!missing_.empty()) return false;",
        "if (!FAULT && !missing_.empty()) return false;",
    ),
    "no fence": (
        "epochs_test",
        "sources/epochs.hpp",
        "} else if (of.next >= ",
        "} else if (!(FAULT && fence_ != 0) && of.next >= ",
    ),
    "a source that ends is no news": (
        "epochs_test",
        "sources/epochs.hpp",
        ".over = true;\n    sources_[s].asked = false;\n    add_news();",
        ".over = true;\n    sources_[s].asked = false;\n    if (!FAULT) add_news();",
    ),
    "empty parts ignored": (
        "cluster_test",
        "exchange/gather_stage.hpp",
        "void take_part(uint32_t from, Batch&& part) override {",
        "void take_part(uint32_t from, Batch&& part) override {\n"
        "    if (FAULT && from != wire_.here() && part.length == 0 && !is_marker(part)) return;",
    ),
    "credit never asked for": (
        "cluster_test",
        "exchange/route_stage.hpp",
        "return w.second.open();",
        "return FAULT || w.second.open();",
    ),
    "word from a node not known yet is lost": (
        "epochs_test",
        "sources/epochs.hpp",
        "Progress& heard = heard_[peer];",
        "const bool known = std::find(peers_.begin(), peers_.end(), peer) != peers_.end();\n"
        "    if (FAULT && !known) return false;\n"
        "    Progress& heard = heard_[peer];",
    ),
}
SLOW = {"cluster_test": (pytest.mark.slow,), "epochs_test": ()}
"""The first one takes long to compile."""


@pytest.mark.parametrize(
    "program",
    programs(RUNS, "cluster_test:thread", "epochs_test:address", "merge_parts_test:address"),
)
def test_cluster_program(binaries: dict[str, Path], program: str) -> None:
    check(binaries[program], RUNS[program], f"seed {SEED}")


@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=SLOW[program]) for name, (program, *_) in FAULTS.items()]
)
def test_a_seeded_fault_is_found(fault: str) -> None:
    program = FAULTS[fault][0]
    rest = ("1000",) if program == "cluster_test" else ()
    done = run(faulty(program, FAULTS), "2000", "1", *rest, number_of(FAULTS, fault))
    assert done.returncode != 0, f"{fault}: went unnoticed"


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks) for name, marks in SLOW.items()])
def test_the_same_program_without_a_fault_finds_none(name: str) -> None:
    rest = ("1000",) if name == "cluster_test" else ()
    done = run(faulty(name, FAULTS), "20", "1", *rest, "0")
    assert done.returncode == 0, done.stderr
