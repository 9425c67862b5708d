"""Native programs with faults in the headers: in copies of them, one place each.

All faults that a program must find are built into it; its last argument chooses one by its number,
0 none. A program says `inline int seeded_fault` in front of what it includes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from tests.native.native_build import CASES, OUTPUT, ROOT, SUPPORT, case_file

if TYPE_CHECKING:
    from pathlib import Path

HEADERS = ROOT / "node_runtime" / "include"
Faults = dict[str, tuple[str, str, str, str]]
"""What is broken: the program that must find it, the header, its text, and the text instead, in
which FAULT says whether the fault is chosen."""


def number_of(faults: Faults, name: str) -> int:
    return [*faults].index(name) + 1


def faulty(program: str, faults: Faults) -> Path:
    """The program with all its faults in."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    with (OUTPUT / f"{program}-faults.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return build_faulty(program, faults)


def build_faulty(program: str, faults: Faults) -> Path:
    copies = OUTPUT / f"{program}-faults"
    binary = copies / "program"
    compiler = os.environ.get("CXX", "g++")
    command = [compiler, "-std=c++20", "-O0", "-pthread", f"-I{copies}", f"-I{HEADERS}"]
    command += [f"-I{SUPPORT}", str(case_file(program)), "-o", str(binary)]
    stamp = copies / "made_of"
    made_of = digest(command, faults)
    if binary.exists() and stamp.exists() and stamp.read_text() == made_of:
        return binary
    broken: dict[str, str] = {}
    for name, (found_by, header, text, instead) in faults.items():
        if found_by != program:
            continue
        whole = broken.get(header) or (HEADERS / "plait" / header).read_text()
        assert whole.count(text) == 1, f"{name}: {header} does not have the text to be broken"
        chosen = instead.replace("FAULT", f"(seeded_fault == {number_of(faults, name)})")
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


def digest(command: list[str], faults: Faults) -> str:
    made_of = hashlib.sha256(repr((command, faults)).encode())
    for file in sorted([*HEADERS.rglob("*.hpp"), *CASES.rglob("*.cpp"), *SUPPORT.glob("*.hpp")]):
        made_of.update(file.read_bytes())
    return made_of.hexdigest()
