"""Puts shedders into a graph: behind every source whose readers may all be shed, and at the head of
each branch whose queries want less than its neighbours; pure.

A shedder before a fork lets through what any branch wants, those of the branches what their own
queries want. By row a shedder stands only where a row stands for one of the source: a finished
window is no share of the input. So behind a window, and behind an operator that needs whole keys,
all queries get what the greediest of them gets. Numbers of operators change here; the ids of their
state do not (`graph.operator_ids`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from plait.errors import JobError
from plait.graph.operators import (
    EventTimeOp,
    FilterOp,
    ProjectOp,
    ShedOp,
    SinkOp,
    SourceOp,
    TimedOp,
    upstream,
)
from plait.graph.shedders.modes import STATE
from plait.graph.shedders.quality import Sample
from plait.graph.shedders.tracing import Demands, queries_of, samples_of, trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.graph.operators import AnyOp
    from plait.graph.shedders.tracing import Demand, Query

NATIVE = (FilterOp, ProjectOp, EventTimeOp)


def with_shedders(operators: Sequence[AnyOp]) -> tuple[AnyOp, ...]:
    """The operators with the shedders that their sinks ask for; the same if all are lossless.

    Raises:
        JobError: a query cannot be shed as it asks to be.
    """
    sinks = [number for number, op in enumerate(operators) if isinstance(op, SinkOp)]
    queries = queries_of(operators, sinks)
    asked = any(isinstance(op, ShedOp) for op in operators)
    if all(query.by == "all" for query in queries) and not asked:
        return tuple(operators)
    return Insertion(operators, queries).result()


class Insertion:
    """Where shedders come, and the new operators."""

    def __init__(self, operators: Sequence[AnyOp], queries: Sequence[Query]) -> None:
        self.operators = operators
        self.queries = queries
        self.demands: Demands = trace(operators, queries)
        self.readers: list[list[int]] = [[] for _ in operators]
        for number, op in enumerate(operators):
            for given in dict.fromkeys(op.inputs):
                self.readers[given].append(number)
        self.behind: dict[int, tuple[Sample, ...]] = {}
        """Behind an operator, for all its readers."""
        self.between: dict[tuple[int, int], tuple[Sample, ...]] = {}
        """Between an operator and one of its readers."""

    def result(self) -> tuple[AnyOp, ...]:
        for number, op in enumerate(self.operators):
            if isinstance(op, SourceOp) or number in self.demands.settled:
                self.place_behind(number)
        for number, readers in enumerate(self.readers):
            if len(readers) > 1:
                self.place_between(number, readers)
        return self.rebuilt()

    def place_behind(self, number: int) -> None:
        number = self.after_time(number)
        samples = samples_of(self.demands.of.get(number, ()))
        if samples:
            self.behind[number] = samples

    def after_time(self, number: int) -> int:
        """An operator, or the last one that names the event time on the native way that leads on
        from it: time goes on the same way whatever is shed behind it."""
        last = at = number
        while len(self.readers[at]) == 1:
            at = self.readers[at][0]
            if not isinstance(self.operators[at], NATIVE):
                break
            if isinstance(self.operators[at], EventTimeOp):
                last = at
        return last

    def place_between(self, number: int, readers: list[int]) -> None:
        common = samples_of(self.demands.of[number])
        before = upstream(self.operators, number)
        by_row = not any(isinstance(self.operators[i], TimedOp) for i in before)
        for reader in readers:
            demands = self.demands.at[reader]
            samples = samples_of(demands)
            if not samples or samples == common or self.are_met(demands, before):
                continue
            if by_row or all(sample.columns for sample in samples):
                self.between[number, reader] = samples

    def are_met(self, demands: set[Demand], before: tuple[int, ...]) -> bool:
        """Whether one of them is met before, where whole keys were needed."""
        return any(
            demand.is_unbound and not {*self.queries[demand.query].needy}.isdisjoint(before)
            for demand in demands
        )

    def rebuilt(self) -> tuple[AnyOp, ...]:
        done: list[AnyOp] = []
        now: dict[int, int] = {}
        """Where the output of an operator is now."""
        for number, op in enumerate(self.operators):
            inputs = []
            for given in op.inputs:
                samples = self.between.get((given, number))
                if samples:
                    done.append(self.shedder(now[given], given, number, samples))
                    inputs.append(len(done) - 1)
                else:
                    inputs.append(now[given])
            if isinstance(op, ShedOp):
                op = replace(op, samples=(self.sample_here(number, op),))
            done.append(replace(op, inputs=tuple(inputs)))
            now[number] = len(done) - 1
            if number in self.behind:
                first = self.readers[number][0]
                done.append(self.shedder(now[number], number, first, self.behind[number]))
                now[number] = len(done) - 1
        return tuple(done)

    def sample_here(self, number: int, op: ShedOp) -> Sample:
        """What is kept where a user asks for it. JobError if one share does not tell it."""
        demands = sorted(self.demands.of.get(number, ()), key=lambda demand: demand.query)
        asking = f'{op}: with_keep_ratio("{op.ratio}")'
        stateful = [i for i in upstream(self.operators, number) if self.has_state(i)]
        if stateful:
            raise JobError(
                f"{asking} comes after {self.operators[stateful[0]]}, whose results are no share"
                " of the input; write it before that"
            )
        lossless = tuple(d.query for d in demands if self.queries[d.query].by == "all")
        if lossless:
            return Sample(columns=(), queries=lossless)
        if any(demand.by == "all" or demand.is_unbound for demand in demands):
            raise JobError(
                f"{asking} comes before records are shed: that is by a key which is computed after"
                " it; write it after the key"
            )
        samples = samples_of(demands)
        if samples is None or len(samples) != 1:
            raise JobError(
                f"{asking} is read by queries that are shed in different ways, so no share tells"
                " what is kept; write it on the branch of each query"
            )
        return samples[0]

    def has_state(self, number: int) -> bool:
        return isinstance(self.operators[number], (*STATE, TimedOp))

    def shedder(self, given: int, old: int, reader: int, samples: tuple[Sample, ...]) -> ShedOp:
        before, after = self.operators[old], self.operators[reader]
        whys = {self.queries[query].why: None for sample in samples for query in sample.queries}
        return ShedOp(
            name="shed",
            at=before.at,
            inputs=(given,),
            schema=before.schema,
            region=after.region,
            samples=samples,
            why="; ".join(whys),
        )
