"""Ports of operators with their own loop: several streams as one input, one output as several.

An operator of the graph has one input and one schema, so the streams at the input ports become one:
`side` is the number of the port, and each stream has its columns (`i0_...`, `i1_...`), null in the
rows of the others; streams with the same columns share them (`i_...`). What is emitted at several
output ports is one stream in the same way (`port`, `o0_...`), and after it each port is a filter
and a projection. Pure: schemas in, columns out.
"""

from __future__ import annotations

import keyword
from typing import TYPE_CHECKING, Any

from plait.errors import JobError
from plait.expr.tree import Expr, col, lit
from plait.graph.temporal import SIDE, InputPort, OutputPort
from plait.model.schema import FROM_PYTHON, Field, Schema, Type
from plait.streams.output_schemas import differences

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PORT = "port"
"""The column that says at which port a row was emitted, where there are several."""


def port_names(given: Any, what: str) -> tuple[str, ...]:
    """The names of ports: one, or several in a tuple, a list or the keys of a dict."""
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names:
        raise JobError(f"an operator needs at least one {what[:-1]}; {what}= names none")
    for name in names:
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
            raise JobError(f"{what}=: {name!r} cannot name a port; write one such as left")
        if name.startswith("_"):
            raise JobError(f'{what}=: "{name}" begins with an underscore; choose another name')
        if names.count(name) > 1:
            raise JobError(f'{what}=: "{name}" is named twice')
    return names


def input_ports(names: Sequence[str], schemas: Sequence[Schema]) -> tuple[InputPort, ...]:
    """The ports, each with the columns of the common stream that hold its records."""
    if len(names) == 1:
        return (InputPort(name=names[0], schema=schemas[0], columns=schemas[0].names),)
    shared = all(not differences(schemas[0], schema) for schema in schemas[1:])
    ports: list[InputPort] = []
    for number, (name, schema) in enumerate(zip(names, schemas, strict=True)):
        head = "i_" if shared else f"i{number}_"
        columns = tuple(f"{head}{column}" for column in schema.names)
        ports.append(InputPort(name=name, schema=schema, columns=columns))
    return tuple(ports)


def common_port_columns(ports: Sequence[InputPort]) -> list[list[tuple[str, Expr]]]:
    """The projections of the streams at several ports to the same columns."""
    projections: list[list[tuple[str, Expr]]] = []
    for number, own in enumerate(ports):
        columns: list[tuple[str, Expr]] = [(SIDE, lit(number))]
        done: set[str] = set()
        for port in (own, *ports):
            for name, field in zip(port.columns, port.schema, strict=True):
                if name not in done:
                    columns.append((name, col(field.name) if port is own else empty(port, field)))
                    done.add(name)
        order = [SIDE, *dict.fromkeys(name for port in ports for name in port.columns)]
        projections.append(sorted(columns, key=lambda column: order.index(column[0])))
    return projections


def empty(port: InputPort, field: Field) -> Expr:
    """The null of a column in the rows of another port."""
    if field.type is Type.OBJECT:
        raise JobError(
            f'column "{field.name}" of {port.name} is object, which needs streams of the same'
            " columns at all ports; drop it first, or give it a type"
        )
    return lit(None).cast(field.type)


def output_ports(outputs: Mapping[str, Any], inputs: Sequence[InputPort]) -> tuple[OutputPort, ...]:
    """The ports with the schema of each. `outputs`: the schemas as the user gave them, or None."""
    ports: list[OutputPort] = []
    several = len(outputs) > 1
    for number, (name, given) in enumerate(outputs.items()):
        tuples = given is None and len(inputs) > 1
        schema = side_by_side(inputs) if tuples else output_schema(name, given, inputs)
        columns = tuple(f"o{number}_{n}" if several else n for n in schema.names)
        ports.append(OutputPort(name=name, schema=schema, columns=columns, tuples=tuples))
    return tuple(ports)


def output_schema(name: str, given: Any, inputs: Sequence[InputPort]) -> Schema:
    """None: the schema of the one input. The name of an input: the schema of that."""
    if given is None:
        return inputs[0].schema
    if isinstance(given, str):
        for port in inputs:
            if port.name == given:
                return port.schema
        known = ", ".join(port.name for port in inputs)
        raise JobError(f'output "{name}": no input "{given}"; the inputs are {known}')
    bare = isinstance(given, type) and given in FROM_PYTHON
    try:
        return Schema.of({"value": given} if bare else given)
    except JobError as error:
        raise JobError(f'output "{name}": {error}') from None


def side_by_side(inputs: Sequence[InputPort]) -> Schema:
    """A record of each input side by side: `left_user`, `right_user`; any of them may be None."""
    fields = [
        Field(f"{port.name}_{field.name}", field.type, True)
        for port in inputs
        for field in port.schema
    ]
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise JobError(
                f'two columns would have the name "{name}"; give the schema of the output: '
                'outputs={"out": a dataclass or a dict of types}'
            )
    return Schema(tuple(fields))


def operator_schema(outputs: Sequence[OutputPort]) -> Schema:
    """The schema of the operator in the graph."""
    if len(outputs) == 1:
        return outputs[0].schema
    fields = [Field(PORT, Type.INT64, False)]
    for port in outputs:
        fields += [
            Field(name, field.type, True)
            for name, field in zip(port.columns, port.schema, strict=True)
        ]
    return Schema(tuple(fields))
