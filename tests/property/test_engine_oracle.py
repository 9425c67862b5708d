"""The whole engine against the oracle: random jobs on random data, with any settings of a run.

Whatever the workers, the threading model, the scheduler, the queues, the reorder buffer, the lanes,
what is fused, the size of epochs and the limits of the worklists: the outputs, the counts, the dead
letters and the failure are those of the plain loop, bit for bit. With order="none" the rows are the
same, in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import plait
from plait.graph.operators import UnionOp
from plait.model.settings import SCHEDULERS
from plait.testing import assert_same
from plait.testing.random_jobs import graphs

if TYPE_CHECKING:
    from plait.graph.operators import Graph

QUEUES = ("lanes", "hybrid", "partitioned", "shared")
REORDERS = ("nonblocking", "locked")
TIMEOUT_S = 60.0
"""A run that takes longer hangs: TimedOut fails the test and shows the settings."""


class AnyStage(plait.Scheduler):
    """A scheduler in Python that answers with any stage, ready or not, and at times with none."""

    def __init__(self) -> None:
        self.asked = 0

    def pick(self, stages: tuple[plait.StageView, ...]) -> int | None:
        self.asked += 1
        picked = self.asked * 7 % (len(stages) + 1)
        return picked if picked < len(stages) else None


@st.composite
def run_settings(draw: Any) -> dict[str, Any]:
    """Settings of a run, all of which must give the same answer."""
    found = {
        "workers": draw(st.integers(1, 4)),
        "threading": draw(st.sampled_from(["dynamic", "dynamic", "dedicated", "manual"])),
        # The free list as often as all the others.
        "scheduler": draw(st.sampled_from(SCHEDULERS) | st.just("lru") | st.builds(AnyStage)),
        "fuse": draw(st.booleans()),
        "queue": draw(st.sampled_from(QUEUES)),
        "reorder": draw(st.sampled_from(REORDERS)),
        "lanes": draw(st.sampled_from([None, 1, 2, 4, 8])),
        "bin_bits": draw(st.sampled_from([10, 0, 1, 3, 12])),
        "epoch_records": draw(st.sampled_from([1, 2, 3, 7, 64, 4096])),
        "slice_us": draw(st.sampled_from([1, 200])),
        "timeout": TIMEOUT_S,
    }
    if draw(st.booleans()):
        found |= {"queue_batches": 2, "queue_records": 1, "queue_bytes": 1}
    if draw(st.integers(0, 4)) == 0:
        found["limit"] = draw(st.integers(0, 20))
    return found


MORE = 2
"""How many times the examples of other properties: this is the test that everything is under."""

slow = settings(
    max_examples=MORE * settings().max_examples,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@slow
@given(graph=graphs(max_rows=40), chosen=run_settings())
def test_any_job_with_any_settings(graph: Graph, chosen: dict[str, Any]) -> None:
    assert_same(graph, chosen)


@slow
@given(graph=graphs(max_rows=150, max_steps=4), chosen=run_settings())
def test_many_small_epochs(graph: Graph, chosen: dict[str, Any]) -> None:
    """More epochs than any ring has slots, at the most workers."""
    assert_same(graph, {**chosen, "epoch_records": 1, "workers": 4})


@slow
@given(
    graph=graphs(max_rows=60).filter(
        lambda graph: not any(isinstance(node, UnionOp) for node in graph.operators)
    ),
    chosen=run_settings(),
)
def test_without_order_the_rows_are_the_same(graph: Graph, chosen: dict[str, Any]) -> None:
    assert_same(graph, {**chosen, "order": "none"})
