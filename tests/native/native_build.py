"""Builds the native test programs, each as often as it has variants: plain, thread, address.

Run as a script: each argument is `program:variant` or `program:variant:FLAG`, and the paths of
the binaries are printed in that order. A binary is built again only when its command or one of the
files it includes has changed, so the second run costs nothing. Binaries live in
`build/native-tests`; a lock keeps two runs from building into it at once.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
OUTPUT = ROOT / "build" / "native-tests"
COMMON = ["-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"]
VARIANTS = {
    "plain": ["-O2"],
    "thread": ["-O1", "-g1", "-fsanitize=thread"],
    "address": ["-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    name: str
    variant: str
    flag: str = ""

    @property
    def binary(self) -> Path:
        return OUTPUT / "-".join(part for part in (self.name, self.variant, self.flag) if part)

    def command(self) -> list[str]:
        # A build with a fault in it runs only until the fault is found: compile fast, run slowly.
        flag = [f"-D{self.flag}", "-O0"] if self.flag else []
        includes = [f"-I{ROOT / 'node_runtime' / 'include'}", f"-I{HERE}"]
        source = str(HERE / f"{self.name}.cpp")
        compiler = os.environ.get("CXX", "g++")
        return [compiler, *COMMON, *VARIANTS[self.variant], *flag, *includes, source]


def parse(text: str) -> Program:
    name, variant, *flag = text.split(":")
    return Program(name=name, variant=variant, flag=flag[0] if flag else "")


def fresh(program: Program) -> bool:
    """Whether the binary is newer than all it was made of, and was made by the same command."""
    binary = program.binary
    stamp, inputs = binary.with_suffix(".cmd"), binary.with_suffix(".d")
    if not (binary.exists() and stamp.exists() and inputs.exists()):
        return False
    if stamp.read_text() != "\n".join(program.command()):
        return False
    built = binary.stat().st_mtime
    files = inputs.read_text().replace("\\\n", " ").split(":", 1)[1].split()
    return all(Path(f).exists() and Path(f).stat().st_mtime <= built for f in files)


def build(program: Program) -> None:
    if fresh(program):
        return
    binary, command = program.binary, program.command()
    partial = binary.with_suffix(".partial")
    inputs = str(binary.with_suffix(".d"))
    subprocess.run([*command, "-MMD", "-MF", inputs, "-o", str(partial)], check=True)
    binary.with_suffix(".cmd").write_text("\n".join(command))
    partial.rename(binary)


def main(arguments: list[str]) -> int:
    programs = [parse(argument) for argument in arguments]
    OUTPUT.mkdir(parents=True, exist_ok=True)
    with (
        (OUTPUT / ".lock").open("w") as lock,
        ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        list(pool.map(build, programs))
    for program in programs:
        print(program.binary)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
