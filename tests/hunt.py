"""Runs the random part of the tests with new seeds, for as long as asked: `make hunt MINUTES=60`.

One step is one file of tests with one seed; as many steps run at a time as there are cores. Each
failure is told with the command that repeats it. Ends with 1 if there was one.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import re
import subprocess
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILES = ("tests/property/test_*.py", "tests/native/test_native_*.py", "tests/sim/test_sim_*.py")
HANG_S = 1800.0
SHOWN = 60
"""So many last lines are shown of a step that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    file: str
    seed: int
    cases: int
    failures: tuple[str, ...]
    """The tests that failed."""
    output: str

    def repeat(self, test: str) -> str:
        return f"PLAIT_SEED={self.seed} make test ARGS=\"'{test}'\""


def run(file: str, seed: int) -> Step:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-m", "not slow", "-n", "0", "--hypothesis-show-statistics", file]
    given = {**os.environ, "PLAIT_SEED": str(seed), "PYTHONHASHSEED": "0"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=HANG_S
        )
    except subprocess.TimeoutExpired as error:
        told = (error.stdout or b"").decode(errors="replace")
        output = f"{told}\n{file} did not end within {HANG_S:g} s"
        return Step(file=file, seed=seed, cases=0, failures=(file,), output=output)
    output = done.stdout + done.stderr
    cases = sum(map(int, re.findall(r"- (\d+) passing", output)))
    failures: list[str] = []
    if done.returncode:
        failures = re.findall(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", output, re.MULTILINE)
    lost = [file] if done.returncode and not failures else []
    if lost:
        output += f"\npytest ended with {done.returncode}"
    return Step(file=file, seed=seed, cases=cases, failures=(*failures, *lost), output=output)


def told(step: Step) -> None:
    print(f"\n{step.file} failed with seed {step.seed}:")
    print(*step.output.splitlines()[-SHOWN:], sep="\n")
    for test in step.failures:
        print(f"repeat with: {step.repeat(test)}", flush=True)


def hunt(minutes: float, seed: int) -> list[Step]:
    """All steps until the time is over; those that run then come to their end."""
    chance = random.Random(seed)
    files = sorted(str(f.relative_to(ROOT)) for glob in FILES for f in ROOT.glob(glob))
    until = time.monotonic() + minutes * 60
    steps: list[Step] = []
    running: set[Future[Step]] = set()
    rounds = (chance.sample(files, len(files)) for _ in itertools.count())
    coming = itertools.chain.from_iterable(rounds)
    cores = os.cpu_count() or 1
    with ThreadPoolExecutor(max_workers=cores) as pool:
        while running or time.monotonic() < until:
            while len(running) < cores and time.monotonic() < until:
                running.add(pool.submit(run, next(coming), chance.randrange(2**32)))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for one in done:
                steps.append(one.result())
                if steps[-1].failures:
                    told(steps[-1])
    return steps


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="repeats a whole hunt")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    print(f"hunting for {given.minutes:g} minutes, SEED={seed}", flush=True)
    steps = hunt(given.minutes, seed)
    failed = [step for step in steps if step.failures]
    files = len({step.file for step in steps})
    print(
        f"{len(steps)} runs of {files} files of tests, each with a seed of its own;"
        f" {sum(step.cases for step in steps):,} generated cases beside those of the native"
        f" programs and the simulator; SEED={seed}; {len(failed)} failed"
    )
    for step in failed:
        for test in step.failures:
            print(f"  {step.repeat(test)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
