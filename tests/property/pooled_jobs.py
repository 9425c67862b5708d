"""Random jobs whose Python functions and states are in worker processes, and processes that die."""

from __future__ import annotations

import dataclasses
import random
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psutil
from hypothesis import assume
from hypothesis import strategies as st

from plait.graph.operators import CallOp, FoldOp, StatefulOp, TimedOp
from plait.graph.temporal import ProcessSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plait.graph.operators import AnyOp, Graph


def holds_state(node: AnyOp) -> bool:
    """Whether it is Python with keyed state."""
    if isinstance(node, TimedOp):
        return isinstance(node.spec, ProcessSpec)
    return isinstance(node, FoldOp | StatefulOp)


def has_state(graph: Graph) -> bool:
    return any(holds_state(node) for node in graph.operators)


def pooled(graph: Graph) -> Graph:
    """The job with every function on its way to the pool, if it has any."""
    nodes: list[Any] = []
    for node in graph.operators:
        one: Any = node
        goes = isinstance(node, CallOp) or holds_state(node)
        nodes.append(dataclasses.replace(one, route="pool") if goes else node)
    assume(any(made is not node for made, node in zip(nodes, graph.operators, strict=True)))
    return dataclasses.replace(graph, operators=tuple(nodes))


@st.composite
def run_settings(draw: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "workers": draw(st.integers(1, 3)),
        "pool": draw(st.integers(1, 3)),
        "epoch_records": draw(st.sampled_from([1, 3, 7, 64])),
        "bin_bits": draw(st.sampled_from([10, 0, 1, 4])),
        "pool_replay_bytes": draw(st.sampled_from([1 << 25, 1, 2_000])),
        "timeout": 60.0,
    }
    if draw(st.booleans()):
        found |= {"queue_batches": 2, "queue_records": 1, "queue_bytes": 1}
    if draw(st.booleans()):
        found |= {"reorder": "locked"}
    return found


def zygotes() -> list[psutil.Process]:
    """Those of the pools: a Ray or a Java process of other tests may be there, too."""
    children = psutil.Process().children()
    return [child for child in children if any("pool_zygote" in word for word in child.cmdline())]


@contextmanager
def killing(seed: int, most: int = 2) -> Iterator[None]:
    """Kills up to `most` worker processes (a third death could be a batch's end) meanwhile."""
    over = threading.Event()
    dice = random.Random(seed)

    def kill() -> None:
        left = most
        while left and not over.wait(dice.random() * 0.01):
            with suppress(psutil.Error):
                workers = [worker for zygote in zygotes() for worker in zygote.children()]
                if workers and dice.random() < 0.3:
                    dice.choice(workers).kill()
                    left -= 1

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
