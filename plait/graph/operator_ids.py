"""Names of operators that stay the same from one version of a job to the next; pure.

State is kept under these ids. `.named("spike")` gives one; else it is made of what the operator is
and what reaches it: the verb and its keys, the operators with state right before it, and the labels
of its sources. Numbers of the graph are never in it, and operators without state do not count, so
they can be added, moved and taken away freely.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from plait.errors import JobError
from plait.graph.operators import AggregateOp, FoldOp, SinkOp, SourceOp, StatefulOp, TimedOp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.graph.operators import AnyOp, Graph

KEEPS_STATE = (AggregateOp, FoldOp, StatefulOp, TimedOp)
ANCHORS = (SourceOp, *KEEPS_STATE)


def operator_ids(graph: Graph) -> tuple[str, ...]:
    """The id of every operator, by its number. Equal ones get "#2", "#3" in their order; those
    with state first, so that others do not change them.

    >>> import plait
    >>> bids = plait.stream([{"item": 1, "price": 5}], name="bids")
    >>> counts = bids.filter(plait.col("price") > 1).key_by("item").count()
    >>> operator_ids(counts.sink(plait.Discard(), name="out").job.graph())
    ('source:bids', 'filter from bids', 'count(item) from bids', 'sink:out')
    """
    operators = graph.operators
    check_names(operators)
    stems = [op.named or stem(operators, number) for number, op in enumerate(operators)]
    order = sorted(range(len(operators)), key=lambda number: rank(operators[number]))
    taken: set[str] = set()
    ids = list(stems)
    for number in order:
        count = 1
        while ids[number] in taken:
            count += 1
            ids[number] = f"{stems[number]}#{count}"
        taken.add(ids[number])
    return tuple(ids)


def check_names(operators: Sequence[AnyOp]) -> None:
    """Raises a JobError if two operators have one name."""
    counts = Counter(op.named for op in operators if op.named)
    for name, count in counts.items():
        if count > 1:
            places = " and ".join(str(op) for op in operators if op.named == name)
            raise JobError(f'two operators are named "{name}": {places}; give each its own name')


def rank(op: AnyOp) -> int:
    """Who gets an id first if several have the same."""
    if op.named:
        return 0
    return 1 if isinstance(op, (*ANCHORS, SinkOp)) else 2


def stem(operators: Sequence[AnyOp], number: int) -> str:
    op = operators[number]
    match op:
        case SourceOp(label=label):
            return f"source:{label}"
        case SinkOp(label=label):
            return f"sink:{label}"
        case _:
            return " ".join((short_form(op), *origin(operators, number)))


def short_form(op: AnyOp) -> str:
    """The verb and its keys, or the name."""
    if op.named:
        return op.named
    if isinstance(op, KEEPS_STATE):
        return f"{op.name}({','.join(op.keys)})"
    return op.name


def origin(operators: Sequence[AnyOp], number: int) -> tuple[str, ...]:
    """What reaches an operator: the operators with state right before it, then all sources."""
    before = [
        short_form(operators[found])
        for found in anchors(operators, number)
        if not isinstance(operators[found], SourceOp)
    ]
    labels = source_labels(operators, number)
    after = (f"after {'+'.join(before)}",) if before else ()
    return (*after, *((f"from {'+'.join(labels)}",) if labels else ()))


def anchors(operators: Sequence[AnyOp], number: int) -> list[int]:
    """The sources and operators with state from which records come without passing another."""
    found: set[int] = set()
    seen: set[int] = set()
    todo = list(operators[number].inputs)
    while todo:
        given = todo.pop()
        if given in seen:
            continue
        seen.add(given)
        if isinstance(operators[given], ANCHORS):
            found.add(given)
        else:
            todo.extend(operators[given].inputs)
    return sorted(found)


def source_labels(operators: Sequence[AnyOp], number: int) -> list[str]:
    """The labels of all sources that reach an operator, in the order of the sources."""
    found = {number}
    labels: list[str] = []
    for each in range(number, -1, -1):
        if each in found:
            op = operators[each]
            found.update(op.inputs)
            if isinstance(op, SourceOp):
                labels.append(op.label)
    return labels[::-1]
