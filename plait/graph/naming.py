"""Gives an operator the name that the user chose for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from plait.errors import JobError
from plait.graph.operator_ids import KEEPS_STATE

if TYPE_CHECKING:
    from plait.graph.operators import AnyOp
    from plait.model.schema import Location

LONGEST = 200


def name_operator(operators: list[AnyOp], number: int, name: Any, was: Any = "") -> None:
    """Names the operator, or the one with state that the same verb put before it."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise JobError(f'{name!r} is not a name; write text such as "spike"')
    if len(name) > LONGEST:
        raise JobError(f"a name of {len(name)} characters is too long; the most is {LONGEST}")
    number = state_of_verb(operators, number)
    op = operators[number]
    if op.named and op.named != name:
        raise JobError(f'{op} is named "{op.named}" already')
    for other, each in enumerate(operators):
        if each.named == name and other != number:
            raise JobError(f'"{name}" is already the name of {each}; give each its own name')
    if not isinstance(was, str):
        raise JobError(f'was is {was!r}; write the id that the operator had: "count(user) from a"')
    operators[number] = replace(op, named=name, was=was)


def state_of_verb(operators: list[AnyOp], number: int) -> int:
    """A verb may add several operators; the one that keeps its state, or else the last."""
    at = number
    while not isinstance(operators[at], KEEPS_STATE):
        op = operators[at]
        if len(op.inputs) != 1 or verb_of(operators[op.inputs[0]]) != verb_of(op):
            return number
        at = op.inputs[0]
    return at


def verb_of(op: AnyOp) -> tuple[str, Location]:
    """The call of the user that made an operator: "top.columns" is a part of "top"."""
    return op.name.partition(".")[0], op.at
