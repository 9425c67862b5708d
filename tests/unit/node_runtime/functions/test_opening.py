"""Functions with something to open: opened once in each process of a run, closed at its end."""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest

import plait
from plait.testing import Capture
from plait.testing.check import assert_same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    EntryPoint = Callable[..., plait.Result]

ROWS = 60


class Log:
    """Lines of a file, from several processes."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def add(self, word: str) -> None:
        with open(self.path, "a") as file:
            file.write(f"{word} {os.getpid()}\n")

    def pids(self, word: str) -> list[int]:
        lines = [line.split() for line in Path(self.path).read_text().splitlines()]
        return [int(pid) for one, pid in lines if one == word]


class Adder:
    """Adds what it has only while it is open."""

    def __init__(self, log: Log, fails: bool = False) -> None:
        self.log = log
        self.fails = fails
        self.more: int | None = None

    def open(self) -> None:
        assert self.more is None
        self.log.add("open")
        self.more = 1000

    def close(self) -> None:
        self.log.add("close")
        self.more = None

    def __call__(self, record: Any) -> dict[str, int]:
        if self.fails and record.n == 40:
            raise ValueError("refused")
        assert self.more is not None
        return {"n": record.n + self.more}


class AsyncAdder:
    """Its clients belong to the event loops in which they were opened."""

    def __init__(self, log: Log, fails: bool = False) -> None:
        self.log = log
        self.fails = fails
        self.clients: dict[asyncio.AbstractEventLoop, int] = {}

    async def open(self) -> None:
        await asyncio.sleep(0)
        self.log.add("open")
        self.clients[asyncio.get_running_loop()] = 1000

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.log.add("close")
        del self.clients[asyncio.get_running_loop()]

    async def __call__(self, record: Any) -> dict[str, int]:
        await asyncio.sleep(0)
        if self.fails and record.n == 40:
            raise ValueError("refused")
        return {"n": record.n + self.clients[asyncio.get_running_loop()]}


class Remembers(plait.Process):
    state: ClassVar = {"seen": int}
    out: ClassVar = {"n": int}

    def __init__(self, log: Log) -> None:
        self.adder = Adder(log)

    def open(self) -> None:
        self.adder.open()

    def close(self) -> None:
        self.adder.close()

    def on_record(self, key: int, record: Any, state: Any, timers: Any) -> Iterator[Any]:
        state.seen += 1
        yield (self.adder(record)["n"] + state.seen,)


class Step(Adder):
    def __call__(self, state: int, record: Any = None) -> int:  # type: ignore[override]
        assert self.more is not None
        return int(state) + self.more


def numbers() -> plait.Stream:
    return plait.stream(plait.Table(pa.table({"n": list(range(ROWS))})))


SCHEMA = {"n": int}
JOBS: dict[str, Callable[[Log], plait.Stream]] = {
    "map": lambda log: numbers().map(Adder(log), schema=SCHEMA),
    "partial": lambda log: numbers().map(functools.partial(Adder(log)), schema=SCHEMA),
    "async": lambda log: numbers().map_async(AsyncAdder(log), schema=SCHEMA, concurrency=4),
    "process": lambda log: numbers().key_by("n").process(Remembers(log)),
    "fold": lambda log: numbers().key_by("n").fold(0, Step(log)),
}


@pytest.mark.parametrize("kind", JOBS)
def test_every_process_opens_once_and_closes(
    kind: str, entry_point: EntryPoint, tmp_path: Path
) -> None:
    """Twice: what was closed is opened again by the next run of the same job."""
    log = Log(tmp_path / "log")
    job = JOBS[kind](log).sink(plait.Collect(), name="out").job
    for run in (1, 2):
        result = entry_point(job, epoch_records=4, bin_bits=4)
        assert result.outputs["out"].num_rows == ROWS
        opened, closed = log.pids("open"), log.pids("close")
        assert sorted(opened) == sorted(closed)
        assert len(opened) >= run
        if kind != "async":  # nodes of this process have a loop each
            assert all(opened.count(pid) == (run if pid == os.getpid() else 1) for pid in opened)


@pytest.mark.parametrize("kind", JOBS)
def test_the_plain_loop_opens_as_well(kind: str, tmp_path: Path) -> None:
    job = JOBS[kind](Log(tmp_path / "log"))
    job.sink(Capture(), name="out")
    assert_same(job.job.graph(), {"workers": 2, "epoch_records": 8})


@pytest.mark.parametrize("kind", ["called", "awaited"])
def test_a_run_that_fails_closes(kind: str, entry_point: EntryPoint, tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    if kind == "awaited":
        made = numbers().map_async(AsyncAdder(log, fails=True), schema=SCHEMA)
    else:
        made = numbers().map(Adder(log, fails=True), schema=SCHEMA)
    with pytest.raises(plait.RecordError, match="refused"):
        entry_point(made.sink(plait.Discard()).job, epoch_records=4, bin_bits=4)
    assert sorted(log.pids("open")) == sorted(log.pids("close")) != []


def test_an_object_of_two_operators_is_opened_once(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    adder = Adder(log)
    twice = numbers().map(adder, schema=SCHEMA).map(adder, schema=SCHEMA)
    assert [record.n for record in twice.collect()][:2] == [2000, 2001]
    assert len(log.pids("open")) == len(log.pids("close")) == 1


def test_a_function_with_hooks() -> None:
    calls: list[str] = []

    def same(record: Any) -> Any:
        calls.append("call")
        return record

    def opened() -> None:
        calls.append("open")

    def closed() -> None:
        calls.append("close")

    given = plait.function(same, open=opened, close=closed)
    assert [record.n for record in plait.stream([{"n": 1}]).map(given).collect()] == [1]
    assert calls == ["open", "call", "close"]
    assert given.__name__ == "same"


def test_hooks_that_raise_name_the_operator() -> None:
    def refuses() -> None:
        raise OSError("no such host")

    def same(record: Any) -> Any:
        return record

    one = plait.stream([{"n": 1}])
    with pytest.raises(plait.JobError, match=r"map at .*: open\(\) raised OSError: no such host"):
        one.map(plait.function(same, open=refuses)).collect()
    with pytest.raises(plait.JobError, match=r"map at .*: close\(\) raised OSError: no such host"):
        one.map(plait.function(same, close=refuses)).collect()

    async def awaits(record: Any) -> Any:
        return record

    with pytest.raises(plait.JobError, match=r"map_async at .*: open\(\) raised OSError"):
        one.map_async(plait.function(awaits, open=refuses)).collect()


def test_what_cannot_be_is_refused_when_the_job_is_built() -> None:
    async def opens() -> None:
        pass

    def same(record: Any) -> Any:
        return record

    with pytest.raises(plait.JobError, match=r"map at .*: open is async"):
        plait.stream([{"n": 1}]).map(plait.function(same, open=opens)).collect()
    with pytest.raises(plait.JobError, match="close is 3; it must be a function"):
        plait.function(same, close=3)  # type: ignore[arg-type]
    with pytest.raises(plait.JobError, match="give open=, close= or both"):
        plait.function(same)


def test_cached_functions_of_main_go_to_worker_processes() -> None:
    body = """
        import functools
        import plait

        @functools.cache
        def square(n):
            return n * n

        @functools.lru_cache(maxsize=10)
        def fibonacci(n):
            return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

        def both(record):
            return {"n": square(record.n) + fibonacci(record.n)}

        numbers = plait.stream([{"n": n} for n in range(5)])
        made = numbers.map(both, route="pool", schema={"n": int})
        made = made.with_columns(m=plait.col("n"))
        print([record.n for record in made.collect()])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(body)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("[0, 2, 5, 11, 19]\n", "")
