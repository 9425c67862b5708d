"""The background build of the test programs ends with the tests, however they end; programs that
are compiled as one are still each what they are alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.native.native_build import ROOT, group, parse
from tests.native.native_together import together

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = "endless:plain"
TESTS = f"""
from tests.native.native_build import start_builder, stop_builder
builder = start_builder(["{PROGRAM}"])
input()
stop_builder(builder)
print(builder.returncode)
"""
"""What pytest does, without the tests."""
TIMEOUT_S = 60.0


@pytest.mark.parametrize(("how", "said"), [("finish", f"{-signal.SIGTERM}\n"), ("kill", "")])
def test_the_build_ends_with_the_tests(how: str, said: str, tmp_path: Path) -> None:
    """The builder and the compiler inherit the output: it ends when the last of them has ended."""
    os.mkfifo(tmp_path / "never")
    compiler = tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\necho $PPID\nexec cat '{tmp_path / 'never'}'\n")
    compiler.chmod(0o700)
    tests = subprocess.Popen(
        [sys.executable, "-c", TESTS],
        cwd=ROOT,
        env={**os.environ, "CXX": str(compiler)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert tests.stdout is not None
    builder = int(tests.stdout.readline())
    try:
        if how == "kill":
            tests.kill()
        assert tests.communicate("\n", timeout=TIMEOUT_S)[0] == said
    finally:
        tests.kill()
        with suppress(ProcessLookupError):
            os.killpg(builder, signal.SIGKILL)
        parse(PROGRAM).binary.with_suffix(".lock").unlink()


def test_programs_of_one_row_and_variant_are_compiled_as_one() -> None:
    names = ["state_test:address", "rings_test:thread", "table_test:address", "table_test:plain"]
    faulty = "table_test:address:FLAG"
    first, rings, second, plain, flagged = map(parse, [*names, faulty])
    assert group([*names, faulty]) == [(first, second), (rings,), (plain,), (flagged,)]


CASE = """#include <cstdio>

namespace plait {
inline int seeded_fault = 0;  // see elsewhere
}

namespace {
const char* kName = "NAME";
}

int main(int argc, char** argv) {
  std::printf("%s %s %d\\n", kName, argv[argc - 1], __LINE__ + plait::seeded_fault);
  return 3;
}
"""


def test_one_program_is_each_of_several(tmp_path: Path) -> None:
    cases = [tmp_path / f"{name}_test.cpp" for name in ("pool", "pooled")]
    for case in cases:
        case.write_text(CASE.replace("NAME", case.stem).replace("elsewhere", case.name))
    source, binary = tmp_path / "all.cpp", tmp_path / "all"
    source.write_text(together(cases, tmp_path))
    compiler = os.environ.get("CXX", "g++")
    subprocess.run([compiler, "-std=c++20", source, "-o", binary], check=True)
    for case in cases:
        name = tmp_path / f"{case.stem}-plain"
        name.symlink_to(binary)
        done = subprocess.run([name, "x"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (3, f"{case.stem} x 12\n")
    assert subprocess.run([binary], check=False).returncode == 2
