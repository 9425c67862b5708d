"""Several nodes as native programs: the exchange, the epochs, bins that move while records flow.

`cluster_test` runs whole engines linked over loopback while layouts change at random;
`epochs_test` simulates the agreement on epochs one step at a time; `merge_parts_test` puts parts
together. Plain, and under the thread and address sanitizers, no report suppressed; seeds are
printed. The last tests break the headers in one place each, in copies of them, and demand that the
fault is found: a test that cannot fail proves nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.native.native_build import CASES, OUTPUT, ROOT, SEED, SUPPORT, check, programs, run

if TYPE_CHECKING:
    from pathlib import Path

HEADERS = ROOT / "node_runtime" / "include"
RUNS = {
    "cluster_test:plain": (50, SEED, 4_000),
    "cluster_test:thread": (10, SEED, 1_000),
    "cluster_test:address": (15, SEED, 1_000),
    "epochs_test:plain": (4_000, SEED),
    "epochs_test:address": (800, SEED),
    "merge_parts_test:plain": (20_000, SEED),
    "merge_parts_test:address": (1_500, SEED),
}

FAULTS = {
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
"""What is broken: the program that must find it, the header, its text, and the text instead."""

NUMBERS = {name: number for number, name in enumerate(FAULTS, start=1)}
SLOW = {"cluster_test": (pytest.mark.slow,), "epochs_test": ()}
"""The first one takes long to compile."""


def faulty(program: str) -> Path:
    """The program with all faults in, of which an argument chooses one."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    with (OUTPUT / f"{program}-faults.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return build_faulty(program)


def build_faulty(program: str) -> Path:
    copies = OUTPUT / f"{program}-faults"
    binary = copies / "program"
    compiler = os.environ.get("CXX", "g++")
    command = [compiler, "-std=c++20", "-O0", "-pthread", f"-I{copies}", f"-I{HEADERS}"]
    command += [f"-I{SUPPORT}", str(CASES / f"{program}.cpp"), "-o", str(binary)]
    stamp = copies / "made_of"
    made_of = digest(command)
    if binary.exists() and stamp.exists() and stamp.read_text() == made_of:
        return binary
    broken: dict[str, str] = {}
    for name, (found_by, header, text, instead) in FAULTS.items():
        if found_by != program:
            continue
        whole = broken.get(header) or (HEADERS / "plait" / header).read_text()
        assert whole.count(text) == 1, f"{name}: {header} does not have the text to be broken"
        chosen = instead.replace("FAULT", f"(seeded_fault == {NUMBERS[name]})")
        broken[header] = whole.replace(text, chosen)
    # The headers there may be copies of some that have no fault any more.
    shutil.rmtree(copies, ignore_errors=True)
    for header, whole in broken.items():
        copy = copies / "plait" / header
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(whole)
    subprocess.run(command, check=True)
    stamp.write_text(made_of)
    return binary


def digest(command: list[str]) -> str:
    made_of = hashlib.sha256(repr((command, FAULTS)).encode())
    for file in sorted([*HEADERS.rglob("*.hpp"), *CASES.glob("*.cpp"), *SUPPORT.glob("*.hpp")]):
        made_of.update(file.read_bytes())
    return made_of.hexdigest()


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
    done = run(faulty(program), "2000", "1", *rest, str(NUMBERS[fault]))
    assert done.returncode != 0, f"{fault}: went unnoticed"


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks) for name, marks in SLOW.items()])
def test_the_same_program_without_a_fault_finds_none(name: str) -> None:
    rest = ("1000",) if name == "cluster_test" else ()
    done = run(faulty(name), "20", "1", *rest, "0")
    assert done.returncode == 0, done.stderr
