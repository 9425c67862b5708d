"""Shedders of the plain loop: which records are kept, from the plans of a run.

A record is kept iff it is in one of the shedder's samples: its hash (of the seed, the source and
the number of its row there, or of the seed and the key) is below the greatest threshold that the
plan of its epoch has for the sample's queries. A NaN is no key, so that record is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.graph.operators import ShedOp, SinkOp
from plait.model.key_hash import key_hash
from plait.protocol.keeps import KEEP_ALL, ratio_of
from plait.shedding.plan import SEED, is_kept, key_sample, most, row_sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from plait.graph.operators import Graph
    from plait.graph.shedders.quality import Sample
    from plait.model.schema import Schema
    from plait.results.result import KeepStep
    from plait.testing.oracle.values import Values


class Shedding:
    """What is kept, epoch by epoch."""

    def __init__(self, graph: Graph, keeps: Iterable[KeepStep]) -> None:
        labels = [op.label for op in graph.operators if isinstance(op, SinkOp)]
        self.steps = sorted(keeps, key=lambda step: step.epoch)
        self.queries = {label: number for number, label in enumerate(labels)}
        self.now = [KEEP_ALL for _ in labels]
        self.sources = {op: number for number, op in enumerate(graph.sources)}

    def begin(self, epoch: int) -> None:
        """Epochs come in their order."""
        while self.steps and self.steps[0].epoch <= epoch:
            step = self.steps.pop(0)
            self.now[self.queries[step.query]] = step.threshold

    def keeps(self, op: ShedOp, schema: Schema, source: int, row: int, values: Values) -> bool:
        """`source`: the operator that read the row."""
        return any(
            self.is_in(sample, schema, self.sources[source], row, values) for sample in op.samples
        )

    def ratio(self, op: ShedOp) -> float:
        """What the greediest of its samples keeps."""
        return ratio_of(max(most(self.now, sample.queries) for sample in op.samples))

    def is_in(self, sample: Sample, schema: Schema, source: int, row: int, values: Values) -> bool:
        below = most(self.now, sample.queries)
        if not sample.columns:
            return is_kept(row_sample(SEED, source, row), below)
        key = [values[schema.index(name)] for name in sample.columns]
        if any(value != value for value in key):
            return True
        return is_kept(key_sample(SEED, hash_of(key, sample.columns, schema)), below)


def hash_of(key: Sequence[object], columns: Sequence[str], schema: Schema) -> int:
    return key_hash(key, [schema[name].type for name in columns])
