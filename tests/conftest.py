"""What every test shares: generated cases, one seed, and a check that nothing is left behind.

Two hypothesis profiles: "ci" (the default, bounded) and "long" (PLAIT_LONG=1). Both draw the same
cases in every run and on every machine; PLAIT_SEED draws others. After each test no thread that the
test started may be alive: not a Python one, and not a native one, which is found in /proc. Nor may
an event loop be open: the garbage collector would find it much later, in some other test.
"""

from __future__ import annotations

import dataclasses
import os
import resource
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

import plait
from tests.open_loops import note_loops, open_loops
from tests.seeds import SEED

# Ray reads it when it is first imported, whichever test that is.
os.environ.setdefault("RAY_AUTH_MODE", "token")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LONG = os.environ.get("PLAIT_LONG", "") not in ("", "0")

TOGETHER = (
    "tests/integration/test_ray",
    "tests/integration/test_spark",
    "tests/integration/kafka/",
)
ORDER = {"integration": 0, "property": 1, "unit": 2, "sim": 3, "architecture": 4, "native": 5}

# No deadlines and no complaint about slow generation: a loaded machine must not fail a test. No
# database: cases that failed here before would make this machine's cases differ from others'.
settings.register_profile(
    "ci",
    max_examples=20,
    derandomize=False,
    database=None,
    print_blob=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", settings.get_profile("ci"), max_examples=2000)
settings.load_profile("long" if LONG else "ci")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = str(SEED)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Several processes share the tests file by file; those of one Ray cluster or
    one Kafka broker go together."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::", 1)[0]
            return next((start for start in TOGETHER if file.startswith(start)), file)

    return ByFile(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ray first, which takes longest; the native programs last, when they are compiled. Of a job
    that can read several sources on every entry point, make test takes every other combination."""
    for item in items:
        indices = getattr(getattr(item, "callspec", None), "indices", {})
        if {"entry_point", "source"} <= indices.keys() and sum(indices.values()) % 2:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: ORDER.get(item.nodeid.split("/")[1], len(ORDER) // 2))


def pytest_report_header(config: pytest.Config) -> str:
    return f"plait: {story(config)}"


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    if exitstatus == pytest.ExitCode.TESTS_FAILED:
        terminalreporter.write_line(f"plait: {story(config)}")


def story(config: pytest.Config) -> str:
    profile = "long" if LONG else "ci"
    used = config.getoption("hypothesis_seed", None)
    return f"profile {profile}, seed {used} (repeat with PLAIT_SEED={used})"


@pytest.fixture(scope="session")
def seed() -> int:
    """The seed of this run, for tests that draw by themselves."""
    return SEED


def one_thread(job: Any, **settings: Any) -> Any:
    return plait.run(job, workers=1, **settings)


def all_cores(job: Any, **settings: Any) -> Any:
    return plait.run(job, workers=4, **settings)


def two_nodes(job: Any, **settings: Any) -> Any:
    from plait.testing.nodes import run_on_nodes

    return run_on_nodes(job, 2, workers=1, **settings)


def changing_nodes(job: Any, **settings: Any) -> Any:
    """From two nodes to three and back, while the job runs."""
    from plait.testing.changes import Join, Leave
    from plait.testing.nodes import run_on_nodes

    changes = (Join(bins=range(0, 16, 2), how="fluid", at=2), Leave(rank=1, how="optimised", at=8))
    return run_on_nodes(job, 2, changes=changes, workers=2, **settings)


def pool(job: Any, **settings: Any) -> Any:
    """Plain Python functions in worker processes, wherever they can be sent there."""
    return plait.run(pooled(job), workers=2, pool=2, **settings)


def pooled(job: Any) -> Any:
    from plait.functions.pickling import why_not
    from plait.graph.operators import CallOp, Graph

    graph: Graph = job if isinstance(job, Graph) else job.graph()
    nodes = tuple(
        dataclasses.replace(node, route="pool")
        if isinstance(node, CallOp) and why_not(node.functions) is None
        else node
        for node in graph.operators
    )
    return dataclasses.replace(graph, operators=nodes)


def checkpoints(job: Any, **settings: Any) -> Any:
    """With checkpoints all the time. A job that cannot have them is refused, and runs without."""
    from plait.graph.checkpoint_rules import refuse_unsaveable
    from plait.graph.operators import Graph
    from plait.model.settings import Settings

    graph: Graph = job if isinstance(job, Graph) else job.graph()
    graph = dataclasses.replace(graph, name="entry-point")
    try:
        refuse_unsaveable(graph, Settings(**{k: v for k, v in settings.items() if k != "timeout"}))
    except plait.JobError:
        return plait.run(job, workers=2, **settings)
    with tempfile.TemporaryDirectory() as folder:
        saved = plait.Checkpoint(folder, every="2ms", max_age="1h")
        result = plait.run(graph, workers=2, checkpoint=saved, **settings)
        again = plait.run(graph, workers=2, checkpoint=saved, **settings)
    assert again.account == result.account
    return result


ENTRY_POINTS = {
    "one thread": one_thread,
    "all cores": all_cores,
    "pool": pool,
    "checkpoints": checkpoints,
    "two nodes": two_nodes,
    "changing nodes": changing_nodes,
}
"""How a job can be run: a function of a job and settings that gives its result. A mark may be given
with `pytest.param` in the fixture below."""


@pytest.fixture(params=ENTRY_POINTS)
def entry_point(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Each way to run a job, one after the other."""
    found: Callable[..., Any] = ENTRY_POINTS[request.param]
    return found


TASKS = Path("/proc/self/task")
GRACE_S = 2.0
"""How long threads that are on their way out may take."""

LIBRARY_THREADS = ("polars", "jemalloc", "rayon", "tokio", "arrow", "numba", "omp")
"""Names of threads of libraries, which stay for the life of the process."""

kept: set[int] = set()
"""Nameless native threads that outlived their test; library pools account for a bounded number."""


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    """Fails a test that leaves a thread behind, Python's or the engine's."""
    python_before = set(threading.enumerate())
    native_before = native_threads()
    yield
    until = time.monotonic() + GRACE_S
    while (left := leaked(python_before, native_before)) and time.monotonic() < until:
        time.sleep(0.01)
    if left:
        pytest.fail(f"threads left behind: {', '.join(left)}")


def leaked(python_before: set[threading.Thread], native_before: dict[int, str]) -> list[str]:
    """Threads that should be gone. A thread named plait-... counts even if it is a daemon."""
    alive = [thread for thread in threading.enumerate() if thread.is_alive()]
    left = [
        thread.name
        for thread in alive
        if thread not in python_before and (not thread.daemon or thread.name.startswith("plait"))
    ]
    known = {thread.native_id for thread in alive}
    nameless: set[int] = set()
    for task, name in native_threads().items():
        if task in native_before or task in known or name.startswith(LIBRARY_THREADS):
            continue
        if name.startswith("plait"):
            left.append(f"{name} (native {task})")
        else:
            nameless.add(task)
    kept.intersection_update(native_threads())
    if len(kept | nameless) > library_budget():
        left += [f"native {task}" for task in sorted(nameless)]
    else:
        kept.update(nameless)
    return left


note_loops()


@pytest.fixture(autouse=True)
def no_loop_left() -> Iterator[None]:
    """Fails a test that leaves an event loop open."""
    before = open_loops()
    yield
    if left := open_loops() - before:
        pytest.fail(f"event loops left open: {', '.join(map(repr, left))}")


def native_threads() -> dict[int, str]:
    """The threads of this process by kernel id, with their names; empty where there is no /proc."""
    found: dict[int, str] = {}
    for task in TASKS.iterdir() if TASKS.is_dir() else ():
        try:
            found[int(task.name)] = (task / "comm").read_text().strip()
        except OSError:
            continue  # ended while we looked
    return found


def library_budget() -> int:
    """How many nameless threads the loaded libraries may keep in pools that they never end."""
    cores = os.cpu_count() or 1
    budget = 0
    if "pyarrow" in sys.modules:
        import pyarrow as pa

        budget += pa.cpu_count() + pa.io_thread_count()
    for library in ("numpy", "numba"):
        if library in sys.modules:
            budget += cores
    return budget


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """More files are open than `select` can take."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, limits[1]), limits[1]))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    yield
    for one in opened:
        os.close(one)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
