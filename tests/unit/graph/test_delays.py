"""How far watermarks stay behind the sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait.graph.delays import watermark_delays
from plait.graph.operators import TimedOp
from plait.testing import Capture, table

if TYPE_CHECKING:
    from plait.graph.operators import Graph

S = 1_000_000


def delays(graph: Graph) -> list[list[int]]:
    """Of each event-time operator, the delays by source, in seconds."""
    found = watermark_delays(graph.operators)
    return [
        [us // S for _, us in sorted(found[i].items())]
        for i, op in enumerate(graph.operators)
        if isinstance(op, TimedOp)
    ]


@pytest.mark.parametrize(
    ("how", "within", "held"),
    [
        ("semi", {"window": plait.Sliding("10s", every="5s")}, 10),
        ("left", {"window": plait.Tumbling("10s")}, 10),
        ("anti", {"window": plait.Tumbling("10s")}, 10),
        ("inner", {"window": plait.Tumbling("10s")}, 0),
        ("semi", {"between": ("-3s", "7s")}, 7),
        ("semi", {"between": ("-9s", "-7s")}, 0),
        ("left", {"between": ("-3s", "7s")}, 0),
        ("semi", {"ttl": "4s"}, 4),
        ("anti", {"ttl": "4s"}, 0),
    ],
)
def test_joins_hold_back_what_is_behind_them(how: Any, within: Any, held: int) -> None:
    job = plait.Job("test")
    rows = table("k | ts\na | 1s")
    left = job.source(rows, event_time="ts", out_of_order="1s")
    right = job.source(table("k | at\na | 1s"), event_time="at", out_of_order="2s")
    joined = left.join(right, on="k", how=how, **within)
    joined.tumbling("1s").count().tumbling("1s").count().sink(Capture())
    left.tumbling("1s").count().sink(Capture())
    behind = [1 + held, 2 + held]
    assert delays(job.graph()) == [[1, 2], behind, behind, [1]]


def test_a_source_without_event_time_has_none() -> None:
    job = plait.Job("test")
    left = job.source(table("k | ts\na | 1s"), event_time="ts")
    right = job.source(table("k | w\na | 1"))
    left.join(right, on="k").sink(Capture())
    assert delays(job.graph()) == [[0]]
