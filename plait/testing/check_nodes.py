"""A job on several nodes against the sequential run, with changes of the nodes while it runs.

In total order all that both report is equal, as on one node. With order="key" every node has its
own outputs: together they are the right rows, and each is a part of them in the right order.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from plait.errors import RecordError
from plait.results.outcomes import (
    check_conserved,
    first_error,
    merge_keeps,
    merge_outcomes,
    merge_stamps,
)
from plait.testing.changes import Change, Join
from plait.testing.check import (
    capturing,
    compare_accounts,
    compare_closing,
    compare_expected,
    compare_failure,
    compare_letters,
    compare_outputs,
    is_live,
    right_answer,
    rows_of,
)
from plait.testing.nodes import TIMEOUT_S, Nodes
from plait.testing.oracle import sequential

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from plait.graph.operators import Graph
    from plait.results.result import KeepStep, Result
    from plait.testing.check import Row
    from plait.testing.clock import Capture
    from plait.testing.expected import Expected
    from plait.testing.oracle import OracleResult

RESCALED_BIN_BITS = 4
"""Few bins, so that the half that moves has something in it."""


def with_rescale(
    settings: Mapping[str, Any], at: int | None
) -> tuple[dict[str, Any], tuple[Change, ...]]:
    """Settings and changes of a run in which a node joins at an epoch and takes half of the bins.

    Unless the settings say something else an epoch is one record.
    """
    if at is None:
        return dict(settings), ()
    chosen = {"epoch_records": 1, "bin_bits": RESCALED_BIN_BITS, **settings}
    half = range(0, 1 << chosen["bin_bits"], 2)
    return chosen, (Join(bins=tuple(half), at=at),)


def assert_same_on_nodes(
    graph: Graph,
    settings: Mapping[str, Any] | None = None,
    *,
    nodes: int,
    changes: Iterable[Change] = (),
    seed: int | None = None,
    expect: Expected | None = None,
    expect_at: str | None = None,
) -> OracleResult:
    """Runs a graph on nodes of this process and in the oracle, and compares what both report.

    Like `assert_same`; `changes` are made while it runs, or drawn from `seed`.
    """
    given = dict(settings or {})
    shown = ", ".join(f"{name}={value!r}" for name, value in given.items())
    title = f"{nodes} nodes, seed {seed}, {shown}"
    by_key = given.get("order") == "key"
    made: dict[int, tuple[Graph, dict[str, Capture]]] = {}

    def graph_at(rank: int) -> Graph:
        """In total order the sinks are at one node: all nodes may have the same."""
        return made.setdefault(rank if by_key else 0, capturing(graph))[0]

    timeout = given.pop("timeout", TIMEOUT_S)
    run = Nodes(graph_at, nodes, changes, seed, timeout, given)
    outcomes = run.outcomes()
    try:
        error = first_error(outcomes)
        if error is not None and not isinstance(error, RecordError):
            raise error
        result = merge_outcomes(graph.name, outcomes) if error is None else None
        if result is not None:
            check_conserved(result, outcomes)
        stamps, keeps = merge_stamps(outcomes), merge_keeps(outcomes)
        wanted = answer(graph, given, result, stamps, keeps, run.stop_at, title)
        outputs = {
            part.rank: {
                label: rows_of(sink, wanted.schemas[label])
                for label, sink in made[part.rank if by_key else 0][1].items()
            }
            for part in outcomes
            if by_key or part.rank == run.home
        }
        for part in outcomes:
            if by_key or part.rank == run.home:
                compare_closing(title, made[part.rank if by_key else 0][1], error)
        if by_key:
            compare_parts(title, list(outputs.values()), wanted, error is not None)
        else:
            compare_failure(title, error, wanted, nodes=True)
            compare_outputs(title, outputs[run.home], wanted, error)
            if expect is not None:
                compare_expected(title, outputs[run.home], wanted, expect, expect_at)
        if result is not None:
            compare_accounts(title, result, wanted)
            compare_letters(title, result.dead_letters, wanted.dead_letters)
    except BaseException as error:
        error.add_note(run.story_text())
        raise
    return wanted


def answer(
    graph: Graph,
    given: Mapping[str, Any],
    result: Result | None,
    stamps: Mapping[str, Sequence[int]],
    keeps: Sequence[KeepStep],
    stop_at: int | None,
    title: str,
) -> OracleResult:
    """The sequential run; of a job that was stopped, as far as it came."""
    if stop_at is None or (result is None and is_live(graph)):
        return right_answer(graph, given, result, stamps, title, keeps)
    records, limit = given.get("epoch_records", 4096), given.get("limit")
    cuts = None if result is None else result.cuts
    return sequential(
        graph,
        epoch_records=records,
        cuts=cuts,
        stamps=stamps,
        limit=limit,
        stop_at=stop_at,
        order=given.get("order"),
        finish="flush" if result is None else given.get("finish", "leave"),
        stopped=None if result is None else result.stopped,
        keeps=keeps,
    )


def compare_parts(
    title: str,
    outputs: Sequence[Mapping[str, list[Row]]],
    wanted: OracleResult,
    failed: bool,
) -> None:
    """Each node's rows are some of the right ones in their order; without a failure they are all.

    So the rows of a key are in order wherever the key was.
    """
    for label, rows in wanted.beyond.items():
        right = [repr(row) for row in rows]
        parts = [[repr(row) for row in part[label]] for part in outputs]
        got: Counter[str] = sum((Counter(part) for part in parts), Counter())
        if not failed and got != Counter(right):
            lacks, more = Counter(right) - got, got - Counter(right)
            raise AssertionError(f"{title}: sink {label} lacks {lacks}\n  and has too much {more}")
        for part in parts:
            rest = iter(right)
            wrong = next((row for row in part if row not in rest), None)
            if wrong is not None:
                raise AssertionError(f"{title}: sink {label}: {wrong} is not in its place")
