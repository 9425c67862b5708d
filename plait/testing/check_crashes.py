"""A job with checkpoints that crashes and goes on, against the sequential run; for `check`."""

from __future__ import annotations

import dataclasses
import tempfile
from typing import TYPE_CHECKING, Any

from plait.checkpoints.config import Checkpoint
from plait.execution.checkpointing import Checkpointing
from plait.execution.local_run import LocalRun
from plait.graph.operators import SourceOp
from plait.model.settings import Settings
from plait.testing.check import compare_accounts, compare_expected, compare_outputs, rows_of
from plait.testing.crashes import Lineage, abandon, open_gates, with_durable_sinks, with_gates
from plait.testing.oracle import sequential

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.graph.operators import Graph
    from plait.results.outcomes import Plan
    from plait.results.result import Result
    from plait.testing.expected import Expected


def assert_same_after_crash(
    graph: Graph,
    settings: Mapping[str, Any],
    *,
    crash_at: int,
    expect: Expected | None = None,
    expect_at: str | None = None,
    keeps: Sequence[Plan] = (),
) -> None:
    """Takes a checkpoint after half of `crash_at` records of each source, crashes after `crash_at`,
    and starts the job again: all that is visible then is what the sequential run gives. `keeps`:
    plans of what is kept, told to the first run alone."""
    from pathlib import Path

    made, sinks, letters = with_durable_sinks(dataclasses.replace(graph, name="check"))
    chosen = Settings(**settings)
    lineage = Lineage()
    result: Result | None = None
    with tempfile.TemporaryDirectory() as folder:
        config = Checkpoint(str(Path(folder)), every="1h")
        for crashes in (True, False):
            gated, gates = with_gates(made)
            saved = Checkpointing(gated, chosen, config)
            lineage.begin(saved.restored.epoch)
            running = LocalRun(gated, chosen, None, saved, keeps=keeps if crashes else ())
            labels = [op.label for op in made.operators if isinstance(op, SourceOp)]
            try:
                if crashes:
                    open_gates(gates, crash_at // 2, running)
                    saved.take()
                    open_gates(gates, crash_at, running)
                    abandon(running)
                else:
                    open_gates(gates, None, running)
                    result = running.wait(progress=False)
            except BaseException:
                abandon(running)
                raise
            finally:
                lineage.note(running, labels)
    assert result is not None
    title = f"after a crash at {crash_at}"
    wanted = sequential(
        graph,
        cuts=lineage.cuts,
        stamps=lineage.stamps_set(),
        order=settings.get("order"),
        keeps=result.keeps,
    )
    outputs = {label: rows_of(sink, wanted.schemas[label]) for label, sink in sinks.items()}
    compare_outputs(title, outputs, wanted, None)
    compare_accounts(title, result, wanted)
    found = sum(batch.num_rows for batch in letters.batches)
    if found != len(wanted.dead_letters):
        raise AssertionError(f"{title}: {found} dead letters, should be {len(wanted.dead_letters)}")
    if expect is not None:
        compare_expected(title, outputs, wanted, expect, expect_at)
