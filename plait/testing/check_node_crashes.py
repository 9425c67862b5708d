"""A job with checkpoints on several nodes, some of which are lost, against the sequential run."""

from __future__ import annotations

import dataclasses
import tempfile
from typing import TYPE_CHECKING, Any

from plait.graph.operators import SinkOp, SourceOp
from plait.results.outcomes import check_conserved, first_error, merge_outcomes
from plait.testing.changes import Crash, Save
from plait.testing.check import compare_accounts, compare_expected, compare_outputs, rows_of
from plait.testing.check_nodes import RESCALED_BIN_BITS
from plait.testing.crashes import Lineage, rows_in, with_durable_sinks
from plait.testing.crashing_nodes import CrashingNodes
from plait.testing.nodes import TIMEOUT_S
from plait.testing.oracle import sequential

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from plait.graph.operators import Graph
    from plait.results.result import Result
    from plait.testing.changes import Change, SaveStep
    from plait.testing.crashes import Durable
    from plait.testing.expected import Expected
    from plait.testing.oracle import OracleResult


def assert_same_after_lost_node(
    graph: Graph,
    settings: Mapping[str, Any],
    *,
    nodes: int,
    crash_at: int,
    expect: Expected | None = None,
    expect_at: str | None = None,
) -> None:
    """A checkpoint after half of `crash_at` epochs, then the first node is lost, with the sinks and
    its part of the state, and another one comes. Unless the settings say something else an epoch is
    one record of each source."""
    chosen = {"epoch_records": 1, "bin_bits": RESCALED_BIN_BITS, **settings}
    changes = (Save(at=max(1, crash_at // 2)), Crash(ranks=(0,), at=max(2, crash_at)))
    assert_same_after_node_crashes(
        graph, chosen, nodes=nodes, changes=changes, expect=expect, expect_at=expect_at
    )


def assert_same_after_node_crashes(
    graph: Graph,
    settings: Mapping[str, Any] | None = None,
    *,
    nodes: int,
    changes: Iterable[Change] = (),
    seed: int | None = None,
    deciders: int = 0,
    commits: Sequence[bool] = (),
    lives: Sequence[Mapping[str, Any]] = (),
    crash_at_end: SaveStep | None = None,
    expect: Expected | None = None,
    expect_at: str | None = None,
) -> CrashingNodes:
    """Runs a job on nodes of this process, of which some are lost, and compares all that is visible
    in the end with the sequential run: outputs, dead letters and the account.

    `changes`: what happens, crashes and checkpoints among it, or drawn from `seed`. `deciders`: so
    many of the sinks decide, `commits`: which of them commit between checkpoints. `lives`: other
    settings, for the nodes that come when all were lost. `crash_at_end`: all are lost when the last
    checkpoint is so far.
    """
    given = dict(settings or {})
    shown = ", ".join(f"{name}={value!r}" for name, value in given.items())
    title = f"{nodes} nodes with crashes, seed {seed}, {shown}"
    labels = [op.label for op in graph.operators if isinstance(op, SinkOp)][:deciders]
    often = {label: "1h" for label, does in zip(labels, commits, strict=False) if does}
    named = dataclasses.replace(graph, name="check")
    made, sinks, letters = with_durable_sinks(named, labels, often)
    lineage = Lineage()
    timeout = given.pop("timeout", TIMEOUT_S)
    with tempfile.TemporaryDirectory() as folder:
        run = CrashingNodes(
            lambda _: made,
            nodes,
            changes,
            seed,
            timeout,
            given,
            url=folder,
            lineage=lineage,
            lives=lives,
            crash_at_end=crash_at_end,
        )
        outcomes = run.outcomes()
    try:
        error = first_error(outcomes)
        if error is not None:
            raise error
        result = merge_outcomes(graph.name, outcomes)
        check_conserved(result, outcomes)
        compare_read(title, made, lineage)
        wanted = sequential(
            made, cuts=lineage.cuts, stamps=lineage.stamps_set(), order=given.get("order")
        )
        outputs = {label: rows_of(sink, wanted.schemas[label]) for label, sink in sinks.items()}
        compare_outputs(title, outputs, wanted, None)
        compare_accounts(title, result, wanted)
        compare_all_letters(title, letters, result, wanted)
        if expect is not None:
            compare_expected(title, outputs, wanted, expect, expect_at)
    except BaseException as error:
        error.add_note(run.story_text())
        raise
    return run


def compare_read(title: str, graph: Graph, lineage: Lineage) -> None:
    """All rows of all sources were read."""
    for op in graph.operators:
        if isinstance(op, SourceOp) and hasattr(op.source, "__len__"):
            read, there = sum(lineage.cuts[op.label]), rows_in(op.source)
            if read != there:
                raise AssertionError(f"{title}: {op.label}: {read} rows were read of {there}")


def compare_all_letters(title: str, letters: Durable, result: Result, wanted: OracleResult) -> None:
    """All letters are in the sink, in order; the result has the last of them, those since the job
    went back to a checkpoint."""
    rows = [row for batch in letters.batches for row in batch.to_pylist()]
    places = [(row["operator"], row["at"], row["source"], row["row"]) for row in rows]
    right = [(one.operator, one.at, one.source, one.row) for one in wanted.dead_letters]
    if places != right:
        raise AssertionError(f"{title}: dead letters {places}\n  should be {right}")
    last = [(one.operator, one.at, one.source, one.row) for one in result.dead_letters]
    if last != right[len(right) - len(last) :]:
        raise AssertionError(f"{title}: the result has the dead letters {last}")
