"""Laws of event time, on the plain loop alone: what must hold whatever the job and its records.

The engine is compared with the loop elsewhere; here the loop is compared with itself. Time goes on
with every record, so with one source nothing depends on where its epochs are cut.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from plait.graph.operators import CallOp, SourceOp
from plait.testing import sequential
from plait.testing.random_jobs import timed_graphs

if TYPE_CHECKING:
    from plait.graph.operators import Graph
    from plait.testing.oracle import OracleResult

slow = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
seeds = st.integers(0, 2**32 - 1)


def sees_batches(graph: Graph) -> bool:
    """Whether a function of the job sees where epochs are cut."""
    return any(isinstance(op, CallOp) and op.mode == "batches" for op in graph.operators)


def cut_at_random(graph: Graph, seed: int) -> dict[str, list[int]]:
    """Epochs of any size, none too, for the sources of a graph."""
    chance = random.Random(seed)
    found = {}
    for op in graph.operators:
        if isinstance(op, SourceOp):
            left = sequential_rows(op)
            found[op.label] = cuts = []
            while left:
                cuts.append(min(left, chance.choice((0, 1, 1, 2, 3, 7, 30))))
                left -= cuts[-1]
    return found


def sequential_rows(op: SourceOp) -> int:
    reader = op.source.open()
    rows = 0
    while (polled := reader.poll(4096)) is not None:
        rows += len(polled)
    reader.close()
    return rows


def told(result: OracleResult) -> dict[str, Any]:
    """All that a run gives, without where it was cut; text, for which NaN is NaN."""
    ends = {label: str(failure) for label, failure in result.ends.items()}
    return {
        "outputs": repr(result.outputs),
        "beyond": repr(result.beyond),
        "counts": repr(result.operators),
        "account": repr(result.account),
        "letters": repr(result.dead_letters),
        "failure": str(result.failure),
        "ends": repr(ends),
    }


@slow
@given(graph=timed_graphs(sources=(1,)), seed=seeds)
def test_with_one_source_cuts_do_not_matter(graph: Graph, seed: int) -> None:
    assume(not sees_batches(graph))
    whole = told(sequential(graph, epoch_records=4096))
    assert told(sequential(graph, epoch_records=1)) == whole
    assert told(sequential(graph, cuts=cut_at_random(graph, seed))) == whole
