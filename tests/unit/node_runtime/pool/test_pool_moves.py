"""State that cannot move between nodes: the job ends at once, with the error that says why, on
every route. The other nodes wait for bins that never come, so only the failed node can tell."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import plait
from plait.testing.changes import Move
from plait.testing.nodes import Nodes
from tests.unit.node_runtime.pool.pool_runs import no_process_left

__all__ = ["no_process_left"]

PROMPT_S = 15.0
"""Far below the time-out of the runs; starting worker processes anew takes the most of it."""
OLD = 3
"""States that have seen so many records cannot move."""


class Stubborn:
    """A state that goes wrong when it is packed or unpacked, once it is old enough. `how` may be
    the path of a file, which tells the processes that take the place of this one to die, too."""

    def __init__(self, how: str, seen: int = 0) -> None:
        self.how = how
        self.seen = seen

    def __getstate__(self) -> tuple[str, int]:
        if self.seen >= OLD:
            self.goes_wrong()
        return self.how, self.seen

    def __setstate__(self, given: tuple[str, int]) -> None:
        self.how, self.seen = given
        if self.how == "dies there" and self.seen >= OLD:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "raises there" and self.seen >= OLD:
            raise ValueError("not here")

    def goes_wrong(self) -> None:
        if self.how == "raises":
            raise ValueError("not now")
        if os.path.isabs(self.how):
            Path(self.how).write_text(str(os.getppid()))
        if self.how == "dies" or os.path.isabs(self.how):
            os.kill(os.getpid(), signal.SIGKILL)


def job_of(how: str, route: Any) -> plait.Job:
    def step(state: Stubborn, record: Any) -> Any:
        told = os.path.isabs(how) and os.path.exists(how)
        if told and Path(how).read_text() == str(os.getppid()):
            os.kill(os.getpid(), signal.SIGKILL)
        return Stubborn(how, state.seen + 1), {"k": record.k, "n": state.seen}

    rows = {"k": [n * 7919 % 31 for n in range(600)], "v": list(range(600))}
    job = plait.Job("moving")
    given = job.source(plait.Table(pa.table(rows)), name="given")
    made = given.key_by("k").stateful(
        lambda: Stubborn(how), step, schema={"k": int, "n": int}, route=route
    )
    made.sink(plait.Collect(), name="out")
    return job


class Patient(Nodes):
    """Makes no change before its epoch."""

    def at_the_gate(self) -> bool:
        while min(self.places()) < (self.gate or 0) and not self.failing():
            self.pause()
        return not self.failing()


def nodes_of(job: plait.Job, order: str, processes: int = 2) -> Nodes:
    """All bins go to the second node when each key has been there a few times."""
    moves = [Move(owners=dict.fromkeys(range(8), 1), at=25)]
    chosen = {"epoch_records": 8, "bin_bits": 3, "workers": 2, "pool": processes, "order": order}
    return Patient(lambda _: job.graph(), 2, moves, None, 60.0, chosen)


PICKLING = "bin [0-7]: a state cannot be pickled: not now"
LOADING = "bin [0-7]: its states cannot be loaded: not here"
KILLED = "the worker process was killed by SIGKILL on its batch, 3 times"


@pytest.mark.parametrize("order", ["total", "key"])
@pytest.mark.parametrize(
    ("how", "route", "words"),
    [
        ("raises", "inline", PICKLING),
        ("raises", "pool", PICKLING),
        ("raises there", "inline", LOADING),
        ("raises there", "pool", LOADING),
        ("dies", "pool", KILLED),
        ("dies there", "pool", KILLED),
    ],
)
def test_state_that_cannot_move_ends_the_job(how: str, route: str, words: str, order: str) -> None:
    nodes = nodes_of(job_of(how, route), order)
    began = time.monotonic()
    # Where they come, what the pool was given behind the bins may fail as soon as they do.
    with pytest.raises((plait.StateError, plait.RecordError), match=words) as raised:
        nodes.run()
    assert isinstance(raised.value, plait.StateError) or how == "dies there"
    assert time.monotonic() - began < PROMPT_S


@pytest.mark.parametrize("order", ["total", "key"])
def test_a_pool_that_breaks_while_its_bins_go(tmp_path: Path, order: str) -> None:
    """A process dies where its bins are packed, and so does each that is to take its place."""
    nodes = nodes_of(job_of(str(tmp_path / "begun"), "pool"), order, processes=1)
    began = time.monotonic()
    with pytest.raises(plait.StateError, match="cannot be used: a worker process was killed by"):
        nodes.run()
    assert time.monotonic() - began < PROMPT_S
