"""The peers: how each is installed, started and asked.

A peer that cannot be installed or started is `Unavailable` with a reason, and the others go on.
Everything lies under `build/benchmarks/peers`.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.peers.data import HOME
from benchmarks.support.common import ROOT, progress

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.peers.serve import Request

HERE = ROOT / "benchmarks" / "peers"
JAVA_FLAGS = ("-Xms512m", "-Xmx2g", "-XX:+UseParallelGC")

LIMIT_S = 180.0
"""A program that has not answered by then is ended."""


class Unavailable(Exception):
    """A peer that is not there, or failed, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """An engine and the program written for it."""

    name: str
    form: str
    """How it reads the data; see `benchmarks.peers.data`."""
    install: Callable[[], list[str]]
    """Gives the command of its program."""
    workers: tuple[int, ...] = (1, 2)
    fresh: bool = False
    """A process for every run: it cannot run twice in one."""
    by_workers: bool = False
    """A process for each number of workers, which cannot be changed later."""
    last_counts: bool = False
    """The keyed count gives the counts of a round of many records, not a row for each record."""
    least_events: int = 100_000
    """With fewer, the fixed cost of a job would be most of the time."""
    warm_runs: int = 0
    """Runs that are not counted, while code is still being compiled."""
    queries: tuple[str, ...] | None = None
    """What its program has; None: all."""
    patience: float = 1.0
    """How many times longer than others' its runs may take: its rate grows with the data."""


@dataclass(slots=True)
class Session:
    """The running processes of a peer."""

    peer: Peer
    command: list[str]
    running: dict[int, subprocess.Popen[str]] = field(default_factory=dict)

    def ask(self, request: Request) -> dict[str, Any]:
        """Runs a query; raises Unavailable when the program fails."""
        key = request.workers if self.peer.by_workers else 0
        if key not in self.running:
            self.running[key] = self.started(request.workers)
        process = self.running[key]
        assert process.stdin is not None
        assert process.stdout is not None
        asked = {
            "query": request.query,
            "workers": request.workers,
            "folder": str(request.folder),
            "check": request.check,
        }
        try:
            process.stdin.write(json.dumps(asked) + "\n")
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], LIMIT_S)
            line = process.stdout.readline() if ready else ""
        except BrokenPipeError:
            line = ""
        if not line or self.peer.fresh:
            self.end(key)
        answer: dict[str, Any] = json.loads(line or '{"error": "the program ended or hung"}')
        if "error" in answer:
            raise Unavailable(f"{request.query}: {answer['error'][:300]}; see {self.log}")
        return answer

    @property
    def log(self) -> Path:
        return HOME / f"{self.peer.name}.log"

    def started(self, workers: int) -> subprocess.Popen[str]:
        with self.log.open("a") as log:
            return subprocess.Popen(
                [*self.command, str(workers)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=HOME,
                env=os.environ | {"PYTHONPATH": str(ROOT), "PATHWAY_THREADS": str(workers)},
            )

    def end(self, key: int) -> None:
        process = self.running.pop(key)
        assert process.stdin is not None
        try:
            process.stdin.close()
            process.wait(20)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            process.kill()
            process.wait()

    def close(self) -> None:
        for key in list(self.running):
            self.end(key)


def here(module: str) -> Callable[[], list[str]]:
    """A program in the environment that the benchmark runs in."""
    return lambda: [sys.executable, "-m", f"benchmarks.peers.{module}"]


def apart(name: str, *packages: str) -> Callable[[], list[str]]:
    """A program in a virtual environment of its own."""

    def install() -> list[str]:
        home = HOME / name
        python = home / "bin" / "python"
        done = home / "packages.txt"
        wanted = "\n".join(packages)
        if not done.exists() or done.read_text() != wanted:
            progress(f"installing {name}")
            shell([sys.executable, "-m", "venv", str(home)])
            shell([str(python), "-m", "pip", "install", "-q", *packages])
            done.write_text(wanted)
        return [str(python), "-m", f"benchmarks.peers.{name}_program"]

    return install


def pyflink() -> list[str]:
    if not shutil.which("java"):
        raise Unavailable("needs java")
    return apart("pyflink", "apache-flink==2.3.*", "numpy")()


def flink() -> list[str]:
    """The Java program, compiled when a source is newer than it."""
    tools = [tool for tool in ("java", "mvn") if not shutil.which(tool)]
    if tools:
        raise Unavailable(f"needs {' and '.join(tools)}")
    source, made = HERE / "flink", HOME / "flink"
    jar = made / "peers.jar"
    newest = max(path.stat().st_mtime for path in source.rglob("*") if path.is_file())
    if not jar.exists() or jar.stat().st_mtime < newest:
        progress("compiling the Flink program")
        shell(
            ["mvn", "-B", "-q", "-ntp", "-f", str(source / "pom.xml"), f"-Dmade={made}", "package"]
        )
    # What Flink's own launcher opens to reflection on Java 17.
    opened = ("java.base/java.lang", "java.base/java.util", "java.base/java.time")
    flags = [f"--add-opens={name}=ALL-UNNAMED" for name in opened]
    return ["java", *JAVA_FLAGS, *flags, "-cp", f"{jar}:{made}/libs/*", "plait.peers.Program"]


def shell(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr + done.stdout).splitlines()
        errors = [line for line in said if "ERROR" in line] or said[-3:]
        raise Unavailable(f"{command[0]}: {' '.join(errors)[:300]}")


PEERS = (
    Peer(name="plait", form="parquet", install=here("plait_program")),
    Peer(name="for_loop", form="parquet", install=here("loop_program"), workers=(1,)),
    Peer(
        name="bytewax",
        form="parquet",
        install=apart("bytewax", "bytewax==0.21.*", "pyarrow", "numpy"),
    ),
    Peer(
        name="flink",
        form="columns",
        install=flink,
        least_events=2_000_000,
        warm_runs=4,
        queries=("count", "q1", "q2", "q3", "q5", "q7", "q8"),
    ),
    Peer(
        name="pyflink",
        form="csv",
        install=pyflink,
        queries=("fee", "score"),
        least_events=500_000,
        warm_runs=1,
        patience=3.0,
    ),
    Peer(
        name="spark",
        form="parts",
        install=here("spark_program"),
        by_workers=True,
        last_counts=True,
        least_events=2_000_000,
        patience=3.0,
    ),
    Peer(
        name="pathway",
        form="csv",
        install=apart("pathway", "pathway==0.33.*"),
        fresh=True,
        last_counts=True,
        least_events=500_000,
    ),
)
"""plait and the loop first: their answers are what the others are held against."""
