"""Comparing a job's rows with Spark's answers, and with the plain loop's wherever it runs."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import plait
from plait.graph.operators import SourceOp
from plait.testing.changes import Join
from plait.testing.check import assert_same
from plait.testing.check_nodes import assert_same_on_nodes
from tests.seeds import SEED

if TYPE_CHECKING:
    from plait import Stream
    from plait.graph.operators import Graph

BIN_BITS = 4
HALF = tuple(range(0, 1 << BIN_BITS, 2))
EPOCHS = 12
"""Of the longest source: enough for a change in the middle."""


def bag(table: Any) -> Counter[tuple[Any, ...]]:
    """Rows with how often they are there; times are microseconds."""
    columns = [c.cast("int64") if str(c.type).startswith("time") else c for c in table.columns]
    return Counter(zip(*(column.to_pylist() for column in columns), strict=True))


def same_rows(got: Any, wanted: Any) -> None:
    assert got.schema.names == wanted.schema.names
    ours, theirs = bag(got), bag(wanted)
    assert ours, "no rows at all"
    assert not ours - theirs, "rows that Spark does not have"
    assert not theirs - ours, "rows of Spark's are missing"


def graph_of(stream: Stream) -> Graph:
    stream.sink(plait.Collect(), name="out")
    return stream.job.graph()


def epoch_of(query: str) -> int:
    """Another size of epochs for each query and seed: no answer depends on it."""
    return random.Random(f"{SEED} {query}").randrange(50, 5000)


def in_order_everywhere(graph: Graph) -> None:
    """As the plain loop has it: on one node, and on one and two that become more on the way."""
    sources = [node.source for node in graph.operators if isinstance(node, SourceOp)]
    rows = max(source.arrow().num_rows for source in sources)
    settings = {"workers": 2, "epoch_records": rows // EPOCHS}
    assert_same(graph, settings)
    for nodes in (1, 2):
        changes = (Join(bins=HALF, how="fluid", at=EPOCHS // 3),)
        assert_same_on_nodes(
            graph, {**settings, "bin_bits": BIN_BITS}, nodes=nodes, changes=changes
        )
