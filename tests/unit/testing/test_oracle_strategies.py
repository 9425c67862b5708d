"""Random jobs: they can be built, the oracle runs them, and its laws hold on all of them."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from plait.expr.type_checker import bind
from plait.testing import sequential
from plait.testing.difference import first_difference, same_value
from plait.testing.oracle.expressions import compiled
from plait.testing.oracle.values import Fault, to_held
from plait.testing.random_jobs import TYPES, expressions, graphs, rows, schemas
from plait.testing.random_jobs.functions import Changed, Listed, Repeated

if TYPE_CHECKING:
    from plait.graph.operators import Graph


@given(data=st.data())
def test_an_expression_means_the_same_before_and_after_it_is_bound(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    kind = data.draw(st.sampled_from(TYPES))
    expr = data.draw(expressions(schema, kind))
    bound = bind(expr, schema)
    assert bound.type is kind
    before, after = compiled(expr, schema), compiled(bound.expr, schema)
    assert (before.type, after.type) == (kind, kind)
    for row in data.draw(rows(schema, max_size=6)):
        held = tuple(to_held(value, field.type) for value, field in zip(row, schema, strict=True))
        try:
            value = after.run(held)
        except Fault:
            continue
        assert same_value(before.run(held), value)
        assert value is None or type(value) is (int if kind.value == "timestamp" else kind.python)
        assert value is not None or bound.nullable


@settings(max_examples=30)
@given(graph=graphs(max_rows=25), epoch_records=st.sampled_from([1, 3, 16]))
def test_the_laws_of_the_sequential_run(graph: Graph, epoch_records: int) -> None:
    one = sequential(graph, epoch_records=epoch_records)
    if one.failure is None:
        assert one.account.difference == 0
        assert one.outputs == one.beyond or not first_differences(one.outputs, one.beyond)
        assert one.ends == {}
    else:
        assert one.failure in one.ends.values()
    for label, rows_ in one.outputs.items():
        assert first_difference(rows_, one.beyond[label][: len(rows_)]) is None
    again = sequential(graph, epoch_records=4096, cuts=one.cuts)
    assert not first_differences(again.beyond, one.beyond)
    assert again.operators == one.operators
    assert again.cuts == one.cuts


def first_differences(one: object, other: object) -> list[str]:
    assert isinstance(one, dict)
    assert isinstance(other, dict)
    return [label for label in one if first_difference(one[label], other[label]) is not None]


def test_functions_of_random_jobs_can_be_pickled() -> None:
    for function in (Changed("a", 7), Repeated("a"), Listed("b")):
        again = pickle.loads(pickle.dumps(function))
        assert (again.column, again.failing) == (function.column, function.failing)
