"""Builds the native test programs, each as often as it has variants: plain, thread, address.

A program is named `program:variant` or `program:variant:FLAG`. A binary is built again only when
its command or one of the files it includes has changed, so the second run costs nothing. Programs
that include much of the same and are wanted in one run are compiled as one (`native_together.py`).
Binaries live in `build/native-tests`; a lock for each keeps two runs from building it at once.
Another checkout finds them in the user's cache, under what they were made of. `check` runs one: no
report of a sanitizer is suppressed. As a program it builds those it is given, at a low priority:
the tests start it at once (`start_builder`), so that compilers work while tests wait. It ends with
the process that started it, and its compilers with it, however that process ends.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.native.native_together import together
from tests.seeds import SEED as RUN_SEED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from _pytest.mark import ParameterSet

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CASES, SUPPORT = HERE / "cases", HERE / "support"
OUTPUT = ROOT / "build" / "native-tests"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "plait" / "native-tests"
KEPT = 120
"""So many binaries stay in the cache."""
COMMON = ["-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"]
VARIANTS = {
    "plain": ["-O2"],
    "thread": ["-Og", "-g1", "-fsanitize=thread"],
    "address": ["-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
}
TOGETHER = (
    (
        "engine_test",
        "deferred_test",
        "pooled_stage_test",
        "pool_test",
        "cluster_test",
        "idle_test",
        "links_test",
    ),
    (
        "state_test",
        "saved_bins_test",
        "table_test",
        "timed_joins_test",
        "frame_test",
        "fuzz_frames",
    ),
    ("clock_test", "timed_windows_test", "merge_parts_test", "epochs_test", "slicer_test"),
)
"""Programs that are compiled as one: half of the time, for they share most of their headers."""
ENVIRONMENT = {
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=66",
    "ASAN_OPTIONS": "detect_stack_use_after_return=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
TIMEOUT_S = 300.0
WITH_PARENT = "--with-parent"
"""The program ends, with its process group, when its input does: when its parent has ended."""
SEED = "SEED"
"""In the arguments of a program and its words: the seed of the run."""


def case_file(program: str) -> Path:
    """The source of a program, in `cases` or a folder of it."""
    return next(CASES.rglob(f"{program}.cpp"), CASES / f"{program}.cpp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    name: str
    variant: str
    flag: str = ""

    @property
    def binary(self) -> Path:
        return OUTPUT / "-".join(part for part in (self.name, self.variant, self.flag) if part)

    def options(self) -> list[str]:
        """The compiler and its options."""
        # A build with a fault in it runs only until the fault is found: compile fast, run slowly.
        flag = [f"-D{self.flag}", "-O0"] if self.flag else []
        includes = [f"-I{ROOT / 'node_runtime' / 'include'}", f"-I{SUPPORT}"]
        compiler = os.environ.get("CXX", "g++")
        return [compiler, *COMMON, *VARIANTS[self.variant], *flag, *includes]


def parse(text: str) -> Program:
    name, variant, *flag = text.split(":")
    return Program(name=name, variant=variant, flag=flag[0] if flag else "")


def programs(names: Iterable[str], *quick: str) -> list[ParameterSet]:
    """Parameters of a test: make test takes the `quick` ones or variants, test-long all."""

    def marks(name: str) -> tuple[pytest.MarkDecorator, ...]:
        return () if {name, parse(name).variant} & {*quick} else (pytest.mark.slow,)

    return [pytest.param(name, marks=marks(name)) for name in names]


def group(names: Iterable[str]) -> list[tuple[Program, ...]]:
    """The programs, those that are compiled as one together."""
    groups: defaultdict[tuple[object, str], list[Program]] = defaultdict(list)
    for program in map(parse, dict.fromkeys(names)):
        row = next((row for row in TOGETHER if program.name in row and not program.flag), program)
        groups[row, program.variant].append(program)
    return [tuple(members) for members in groups.values()]


def fresh(program: Program) -> bool:
    """Whether the binary is newer than all it was made of, and was made with the same options."""
    binary = program.binary
    stamp, inputs = binary.with_suffix(".cmd"), binary.with_suffix(".d")
    if not (binary.exists() and stamp.exists() and inputs.exists()):
        return False
    if stamp.read_text() != "\n".join(program.options()):
        return False
    built = binary.stat().st_mtime
    return all(f.exists() and f.stat().st_mtime <= built for f in included(inputs))


def build(programs: Sequence[Program]) -> list[Path]:
    """Builds those that are not fresh, as one; one who builds the same is waited for."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        for program in sorted(programs, key=lambda program: program.binary):
            lock = stack.enter_context(program.binary.with_suffix(".lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        stale = [program for program in programs if not fresh(program)]
        if stale:
            compile_programs(stale)
    return [program.binary for program in programs]


def compile_programs(programs: Sequence[Program]) -> None:
    """Several become one binary, with the name of each as a link to it."""
    binary = programs[0].binary
    source = case_file(programs[0].name)
    cases = [source]
    if len(programs) > 1:
        binary = OUTPUT / "+".join((*(one.name for one in programs), programs[0].variant))
        cases = [case_file(one.name) for one in programs]
        source = binary.with_suffix(".cpp")
        source.write_text(together(cases, ROOT))
    options, partial, inputs = programs[0].options(), *beside(binary, ".partial", ".d")
    subprocess.run([*options, str(source), "-MM", "-MF", str(inputs)], check=True)
    files = included(inputs)
    kept = CACHE / made_of([*options, source.name], files)
    if kept.exists():
        shutil.copy2(kept, partial)
        os.utime(kept)
    else:
        subprocess.run([*options, str(source), "-o", str(partial)], check=True)
        keep(partial, kept)
    partial.touch()
    partial.rename(binary)
    read = " ".join(map(str, {*files, *cases} - ({source} - {*cases})))
    for program in programs:
        link, stamp, inputs = beside(program.binary, ".link", ".cmd", ".d")
        stamp.write_text("\n".join(options))
        inputs.write_text(f"{program.name}: {read}")
        if program.binary != binary:
            link.symlink_to(binary.name)
            link.rename(program.binary)


def beside(binary: Path, *endings: str) -> list[Path]:
    return [binary.with_suffix(ending) for ending in endings]


def included(inputs: Path) -> list[Path]:
    """The files that a program is made of, as the compiler listed them."""
    return [Path(f) for f in inputs.read_text().replace("\\\n", " ").split(":", 1)[1].split()]


def made_of(command: list[str], files: list[Path]) -> str:
    """A name for what the compiler would make: its version, the options, the text of all files."""
    version = subprocess.run([command[0], "--version"], capture_output=True, check=True).stdout
    told = "\n".join(command).replace(str(ROOT), "")
    found = hashlib.sha256(version + told.encode())
    for file in files:
        found.update(hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()


def keep(binary: Path, kept: Path) -> None:
    """Puts a binary into the cache and lets the ones go that were used longest ago."""
    CACHE.mkdir(parents=True, exist_ok=True)
    partial = CACHE / f"{kept.name}.{os.getpid()}"
    shutil.copy2(binary, partial)
    partial.rename(kept)
    for old in sorted(CACHE.iterdir(), key=lambda f: f.stat().st_mtime)[:-KEPT]:
        old.unlink(missing_ok=True)


def build_all(names: Iterable[str]) -> dict[str, Path]:
    """The binaries by name, built together so that the compilers run side by side."""
    programs = {name: parse(name) for name in names}
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        list(pool.map(build, group(programs)))
    return {name: program.binary for name, program in programs.items()}


def run(binary: Path, *arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
    """`more`: of the environment."""
    return subprocess.run(
        [binary, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**ENVIRONMENT, **more},
    )


def check(binary: Path, arguments: Iterable[object], *words: str, **more: str) -> None:
    """The program must find nothing, and print these words."""
    seed = str(RUN_SEED)
    done = run(binary, *(str(one).replace(SEED, seed) for one in arguments), **more)
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    for one in words:
        assert one.replace(SEED, seed) in done.stdout


def start_builder(names: Iterable[str]) -> subprocess.Popen[bytes]:
    """Builds programs in the background, in a process group of its own.

    Nobody else has the other end of its input, and nothing is written to it.
    """
    command = [sys.executable, "-m", "tests.native.native_build", WITH_PARENT, *names]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, start_new_session=True)


def stop_builder(builder: subprocess.Popen[bytes]) -> None:
    """Ends it and its compilers, if it is not done."""
    if builder.poll() is None:
        os.killpg(builder.pid, signal.SIGTERM)
        builder.wait()
    if builder.stdin is not None:
        builder.stdin.close()


def end_with_input() -> None:
    """Waits for the end of the input, and ends the process group: this process and compilers."""
    os.read(0, 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    os.nice(10)
    wanted = sys.argv[1:]
    if wanted[:1] == [WITH_PARENT]:
        threading.Thread(target=end_with_input, daemon=True).start()
        wanted = wanted[1:]
    build_all(wanted)
