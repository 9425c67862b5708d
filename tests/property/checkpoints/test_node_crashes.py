"""Random jobs on several nodes, of which any are lost at any moment: as if nothing had happened.

Nodes are lost while they hold state, one, several or all; in a checkpoint, while bins move, on the
way back to a checkpoint, and in the last one; nodes join, leave and move their bins between. After
all of them were lost the next ones may have other bins, workers and lanes. Output, dead letters and
the account are those of one sequential run.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plait.graph.operators import CallOp, SourceOp
from plait.testing.check_node_crashes import assert_same_after_node_crashes
from plait.testing.random_jobs import graphs, timed_graphs
from tests.property.live_jobs import row_by_row

if TYPE_CHECKING:
    from plait.graph.operators import Graph

TIMEOUT_S = 120.0
"""A run that takes longer hangs."""

slow = settings(
    max_examples=max(1, settings().max_examples // 2),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
seeds = st.integers(0, 2**32 - 1)
counts = st.sampled_from([2, 3, 1])
deciding = st.integers(0, 2)
committing = st.lists(st.booleans(), max_size=2)


@st.composite
def life(draw: Any) -> dict[str, Any]:
    """Settings that may differ when all nodes are new."""
    return {
        "workers": draw(st.integers(1, 2)),
        "lanes": draw(st.sampled_from([None, 1, 2, 4])),
        "bin_bits": draw(st.sampled_from([3, 0, 1, 4, 6])),
        "epoch_records": draw(st.sampled_from([1, 2, 3, 7, 64])),
        "fuse": draw(st.booleans()),
    }


def surviving(graph: Graph) -> Graph:
    """The graph as a job with checkpoints and several nodes may have it: no record ends it."""
    operators: list[Any] = []
    for op in row_by_row(graph).operators:
        if getattr(op, "on_error", "skip") == "fail" and not isinstance(op, SourceOp):
            op = dataclasses.replace(op, on_error="dead_letter")
        if isinstance(op, CallOp):
            op = dataclasses.replace(op, repeatable=True)
        operators.append(op)
    return dataclasses.replace(graph, operators=tuple(operators))


any_plan = {
    "count": counts,
    "seed": seeds,
    "lives": st.lists(life(), min_size=1, max_size=3),
    "deciders": deciding,
    "commits": committing,
}


@slow
@given(graph=graphs(max_rows=40).map(surviving), **any_plan)
def test_any_job(
    graph: Graph,
    count: int,
    seed: int,
    lives: list[dict[str, Any]],
    deciders: int,
    commits: list[bool],
) -> None:
    crash(graph, count, seed, lives, deciders, commits)


@slow
@given(graph=timed_graphs(max_rows=40).map(surviving), **any_plan)
def test_any_timed_job(
    graph: Graph,
    count: int,
    seed: int,
    lives: list[dict[str, Any]],
    deciders: int,
    commits: list[bool],
) -> None:
    crash(graph, count, seed, lives, deciders, commits)


def crash(
    graph: Graph,
    count: int,
    seed: int,
    lives: list[dict[str, Any]],
    deciders: int,
    commits: list[bool],
) -> None:
    assert_same_after_node_crashes(
        graph,
        {**lives[0], "timeout": TIMEOUT_S},
        nodes=count,
        seed=seed,
        deciders=deciders,
        commits=commits,
        lives=lives[1:],
    )
