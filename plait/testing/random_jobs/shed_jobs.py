"""Random jobs whose sinks have floors, and random plans of what is kept of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from hypothesis import strategies as st

from plait.errors import JobError
from plait.graph.operators import ShedOp, SinkOp
from plait.graph.shedders.insert import with_shedders
from plait.graph.shedders.quality import LOSSLESS, Quality, ShedMode
from plait.protocol.keeps import KEEP_ALL

if TYPE_CHECKING:
    from plait.graph.operators import AnyOp, Graph
    from plait.results.outcomes import Plan

MOST_EPOCHS = 12


@st.composite
def shed_graphs(draw: Any, given: st.SearchStrategy[Graph]) -> Graph:
    """The same jobs; some of their sinks may be shed, in any way that is allowed, and one is."""
    graph: Graph = draw(given)
    operators = graph.operators
    for number in draw(st.permutations(graph.sinks)):
        if any(isinstance(op, ShedOp) for op in with_shedders(operators)) and draw(st.booleans()):
            continue
        for mode in (*draw(st.permutations(get_args(ShedMode))), None):
            quality = LOSSLESS if mode is None else Quality(min_accuracy=0.0, shed=mode)
            floored = with_quality(operators, number, quality)
            try:
                with_shedders(floored)
            except JobError:
                continue  # this query cannot be shed like that
            operators = floored
            break
    return replace(graph, operators=with_shedders(operators))


def with_quality(operators: tuple[AnyOp, ...], sink: int, quality: Quality) -> tuple[AnyOp, ...]:
    return tuple(
        replace(op, quality=quality) if number == sink and isinstance(op, SinkOp) else op
        for number, op in enumerate(operators)
    )


def plans(queries: int) -> st.SearchStrategy[list[Plan]]:
    """Plans at some of the first epochs."""
    threshold = st.one_of(
        st.sampled_from((0, KEEP_ALL, 1 << 63)), st.integers(min_value=0, max_value=KEEP_ALL)
    )
    plan = st.tuples(*([threshold] * queries))
    return st.dictionaries(st.integers(0, MOST_EPOCHS), plan, max_size=4).map(
        lambda found: sorted(found.items())
    )
