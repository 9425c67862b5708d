"""Sums of ints near the ends of int64: the engine against the oracle.

Which records fail, what the others give and what is delivered by then is that of the plain loop,
for each way to add, each policy, any size of epochs and any number of workers and nodes. Where sums
that are added to each other do not fit, both end the job.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import plait
from plait import col
from plait.execution.local_run import start
from plait.testing import assert_same, sequential
from plait.testing.check import capturing, graph_of
from plait.testing.check_nodes import assert_same_on_nodes

if TYPE_CHECKING:
    from plait.graph.operators import Graph

START = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
HALF = 2**62
VALUES = st.sampled_from([1, -1, 5, HALF, -HALF, HALF - 1, 2 * HALF - 1, -2 * HALF, HALF // 3])
RECORDS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 40), st.none() | VALUES), min_size=1, max_size=40
)
KINDS: dict[str, Any] = {
    "running": lambda s: s.key_by("k"),
    "of all": lambda s: s,
    "ttl": lambda s: s.key_by("k", ttl="9s"),
    "tumbling": lambda s: s.key_by("k").tumbling("7s", lateness="3s", early="4s"),
    "sliding": lambda s: s.key_by("k").sliding("9s", every="3s", lateness="3s"),
    "sliding, many panes": lambda s: s.key_by("k").sliding("9s", every="1s", lateness="3s"),
    "sliding, uneven": lambda s: s.key_by("k").sliding("9s", every="2s"),
    "session": lambda s: s.key_by("k").session(gap="4s", lateness="2s", early="5s"),
    "rows": lambda s: s.key_by("k").rows(4, every=2),
    "last_n": lambda s: s.key_by("k").last_n(3),
    "last_n, many": lambda s: s.key_by("k").last_n(11),
    "spans": lambda s: s.select("k", "ts", until=col("ts") + plait.seconds(6)).join(
        s.select("k", "v", "w", "ts"), on="k", between=(col("ts"), col("until")), wait="5s"
    ),
}
RESULTS: dict[str, Any] = {
    "one": {"a": plait.sum("v")},
    "two": {"a": plait.sum("v"), "b": plait.sum(col("w") * 2), "n": plait.count()},
    "others": {"low": plait.min("v"), "a": plait.sum("v"), "m": plait.mean("w")},
}

slow = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@st.composite
def jobs(draw: Any) -> Graph:
    rows = [
        {"k": k, "ts": START + plait.seconds(at), "v": v, "w": at - 20}
        for k, at, v in draw(RECORDS)
    ]
    schema = {"k": int, "ts": plait.Timestamp, "v": int | None, "w": int}
    kind = draw(st.sampled_from(sorted(KINDS)))
    over = KINDS[kind]
    results = RESULTS[draw(st.sampled_from(sorted(RESULTS)))]
    # Of a record and of sums that fail in the same unit the engine does not know which was first.
    joined = kind.startswith(("sliding", "session"))
    policy = draw(st.sampled_from(["skip", "dead_letter", *([] if joined else ["fail"])]))
    clock = {"event_time": "ts", "out_of_order": draw(st.sampled_from(["0s", "5s", "1m"]))}
    items = plait.Items(rows, schema=schema)
    return graph_of(lambda s: over(s).aggregate(**results, on_error=policy), items, clock)[0]


def ends_the_job(graph: Graph, epoch_records: int) -> bool:
    """Whether sums that are added to each other do not fit."""
    try:
        sequential(graph, epoch_records=epoch_records)
    except plait.RecordError:
        return True
    return False


@slow
@given(
    graph=jobs(),
    epoch_records=st.sampled_from([1, 3, 4096]),
    workers=st.sampled_from([1, 2, 4]),
    nodes=st.sampled_from([0, 0, 1, 2]),
)
def test_sums_near_the_ends(graph: Graph, epoch_records: int, workers: int, nodes: int) -> None:
    chosen = {"epoch_records": epoch_records, "workers": workers, "bin_bits": 4, "timeout": 60.0}
    if ends_the_job(graph, epoch_records):
        with pytest.raises(plait.RecordError, match="a sum does not fit int64"):
            start(capturing(graph)[0], epoch_records=epoch_records, workers=workers).wait()
        return
    if nodes:
        assert_same_on_nodes(graph, chosen, nodes=nodes)
    else:
        assert_same(graph, chosen)
