"""Schedulers of a user, in Python and in C: right answers, clear errors, and the way to nodes."""

from __future__ import annotations

import ctypes
import os
import pickle
import random
import subprocess
import threading
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import plait
from plait import col, node_runtime
from plait.testing import assert_same
from plait.testing.nodes import run_on_nodes

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [{"k": i * 7 % 5, "v": i} for i in range(400)]
SMALL: dict[str, Any] = {"epoch_records": 16, "slice_us": 5}


def job() -> plait.Job:
    """Native and Python stages, state, a fan-out and a union."""
    rows = plait.stream(ROWS)
    odd = rows.filter(col("v") % 2 == 1).map(lambda row: {"k": row.k, "v": row.v * 2})
    counts = plait.union(rows, odd).key_by("k").count()
    counts.sink(plait.Collect(), "counts")
    return counts.job


class Dice(plait.Scheduler):
    """Any ready stage; remembers who asked, and what it saw."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.asked = 0
        self.inside = 0
        self.most_inside = 0
        self.seen: tuple[plait.StageView, ...] = ()

    def pick(self, stages: tuple[plait.StageView, ...]) -> int | None:
        self.asked += 1
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        self.seen = stages
        ready = [stage.number for stage in stages if stage.ready]
        self.inside -= 1
        return self.random.choice(ready) if ready else None


@pytest.mark.parametrize("workers", [1, 3])
def test_a_scheduler_in_python_gives_the_same_answer(workers: int) -> None:
    dice = Dice(workers)
    assert_same(job().graph(), {**SMALL, "workers": workers, "scheduler": dice})
    assert dice.asked > 0
    assert dice.most_inside == 1


def test_what_a_scheduler_sees() -> None:
    dice = Dice(1)
    job().run(workers=1, scheduler=dice, **SMALL)
    assert [view.number for view in dice.seen] == list(range(len(dice.seen)))
    assert [view.source for view in dice.seen].count(True) == 1
    assert any("map" in view.name and view.python for view in dice.seen)
    assert all(view.running_s >= 0 and view.cost_ns > 0 for view in dice.seen)
    with pytest.raises(AttributeError):
        dice.seen[0].ready = True  # type: ignore[misc]


def test_a_slow_scheduler_does_not_stop_the_others() -> None:
    """The first question is answered only when the whole job, all native, has been delivered."""
    rows = plait.stream(pa.table({"v": list(range(len(ROWS)))}))
    rows.filter(col("v") >= 0).sink(plait.Discard(), "gone")
    last: dict[str, Any] = {}

    class Stuck(plait.Scheduler):
        def pick(self, stages: tuple[plait.StageView, ...]) -> int | None:
            done = threading.Event()
            while not done.wait(0.01):
                running = last.get("running")
                if running is not None and running.engine.records_delivered() == len(ROWS):
                    done.set()
            return None

    from plait.execution.local_run import start

    last["running"] = start(rows.job, workers=2, scheduler=Stuck(), timeout_s=30.0, **SMALL)
    assert last["running"].wait().account.delivered == len(ROWS)


def test_a_stage_is_left_at_the_end_of_the_batch_in_which_its_slice_ends() -> None:
    """Each batch takes longer than a slice: between two questions there is one batch, though the
    stage was thought to be so fast that thousands would fit."""
    done = 0

    def slow(row: Any) -> Any:
        nonlocal done
        done += 1
        time.sleep(0.002)
        return row

    class Watches(plait.Scheduler):
        def __init__(self) -> None:
            self.seen = [0]

        def pick(self, stages: tuple[plait.StageView, ...]) -> int | None:
            self.seen.append(done)
            # The source fills the worklist first.
            return next(stage.number for stage in stages if stage.ready)

    watches = Watches()
    rows = plait.stream(pa.table({"v": list(range(40))})).map(slow)
    rows.sink(plait.Discard(), "gone")
    rows.job.run(workers=1, scheduler=watches, epoch_records=1, slice_us=1000)
    assert done == 40
    assert max(b - a for a, b in pairwise(watches.seen)) == 1


class Says(plait.Scheduler):
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def pick(self, stages: tuple[plait.StageView, ...]) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (99, "scheduler Says: pick gave 99; it must give the number of a stage, 0 to "),
        (-1, "scheduler Says: pick gave -1;"),
        (True, "scheduler Says: pick gave True;"),
        ("first", "scheduler Says: pick gave 'first';"),
        (ValueError("no idea"), "scheduler Says: pick raised ValueError: no idea"),
    ],
)
def test_a_nonsense_answer_ends_the_run(answer: Any, said: str) -> None:
    with pytest.raises(plait.SchedulerError, match=said) as caught:
        job().run(scheduler=Says(answer), timeout=30)
    cause = caught.value.__cause__
    assert cause is (answer if isinstance(answer, Exception) else None)


def test_a_scheduler_without_pick() -> None:
    class Empty(plait.Scheduler):
        pass

    with pytest.raises(plait.SchedulerError, match=r"Empty has no pick\(self, stages\)"):
        job().run(scheduler=Empty(), timeout=30)
    with pytest.raises(plait.JobError, match=r"give an object of it: Empty\(\)"):
        job().run(scheduler=Empty)


def test_on_nodes_each_has_its_own_copy() -> None:
    want = job().run(workers=1).outputs["counts"]
    assert pickle.loads(pickle.dumps(Says(None))).answer is None
    got = run_on_nodes(job(), nodes=2, scheduler=Says(None), **SMALL).outputs["counts"]
    assert got == want
    with pytest.raises(Exception, match="scheduler Says: pick raised ValueError: no idea"):
        run_on_nodes(job(), nodes=2, scheduler=Says(ValueError("no idea")))


NATIVE = r"""
#include "plait/scheduler_abi.h"
static int64_t last(void* context, const plait_stage* stages, size_t count, double slice_ns) {
  __atomic_fetch_add((int64_t*)context, 1, __ATOMIC_RELAXED);
  (void)slice_ns;
  for (size_t i = count; i-- > 0;)
    if (stages[i].ready) return (int64_t)i;
  return -1;
}
static int64_t wrong(void* context, const plait_stage* stages, size_t count, double slice_ns) {
  (void)context; (void)stages; (void)slice_ns;
  return (int64_t)count;
}
int64_t asked = 0;
plait_scheduler plait_scheduler_last = {PLAIT_SCHEDULER_ABI, 0, "last", last, &asked};
plait_scheduler plait_scheduler_wrong = {PLAIT_SCHEDULER_ABI, 0, "wrong", wrong, 0};
plait_scheduler plait_scheduler_old = {99, 0, "old", last, &asked};
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scheduler in C, compiled against the header that plait ships."""
    folder = tmp_path_factory.mktemp("native")
    source, made = folder / "scheduler.c", folder / "scheduler.so"
    source.write_text(NATIVE)
    include = os.path.join(os.path.dirname(node_runtime.__file__), "include")
    command = ["cc", "-std=c11", "-Wall", "-Werror", "-shared", "-fPIC", f"-I{include}"]
    subprocess.run([*command, "-o", str(made), str(source)], check=True)
    return made


def test_a_scheduler_in_c(library: Path) -> None:
    last = plait.NativeScheduler.load(library, "plait_scheduler_last")
    asked = ctypes.c_int64.in_dll(ctypes.CDLL(str(library)), "asked")
    before = asked.value
    assert_same(job().graph(), {**SMALL, "workers": 3, "scheduler": last})
    assert asked.value > before
    again = pickle.loads(pickle.dumps(last))
    assert (again.name, again.address) == ("last", last.address)
    got = run_on_nodes(job(), nodes=2, scheduler=last).outputs["counts"]
    assert got == job().run(workers=1).outputs["counts"]


def test_a_scheduler_in_a_capsule(library: Path) -> None:
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    loaded = ctypes.CDLL(str(library))
    address = ctypes.addressof(ctypes.c_uint32.in_dll(loaded, "plait_scheduler_last"))
    scheduler = plait.NativeScheduler(make(address, b"plait.scheduler", None))
    assert_same(job().graph(), {**SMALL, "workers": 2, "scheduler": scheduler})
    with pytest.raises(TypeError, match="load it from a library"):
        pickle.dumps(scheduler)
    with pytest.raises(plait.JobError, match="not the capsule of a scheduler"):
        plait.NativeScheduler(make(address, b"something else", None))
    with pytest.raises(plait.JobError, match="not the capsule of a scheduler"):
        plait.NativeScheduler("last")


def test_a_scheduler_in_c_that_is_wrong(library: Path) -> None:
    wrong = plait.NativeScheduler.load(library, "plait_scheduler_wrong")
    with pytest.raises(plait.SchedulerError, match="scheduler wrong: picked stage"):
        job().run(scheduler=wrong, timeout=30)
    with pytest.raises(plait.JobError, match="interface 99; this plait has 1"):
        plait.NativeScheduler.load(library, "plait_scheduler_old")
    with pytest.raises(plait.JobError, match="no scheduler nothing in"):
        plait.NativeScheduler.load(library, "nothing")
    with pytest.raises(plait.JobError, match="no scheduler plait_scheduler in"):
        plait.NativeScheduler.load(library.with_name("missing.so"))
