"""A job as bytes that any node of a cluster can load.

What cannot be sent is an error before anything starts, with the operator, its line, and the
variable that holds it. The rules of what is sent by value are those of `plait.functions.pickling`.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from ray import cloudpickle

from plait.errors import JobError
from plait.functions.pickling import CodePickler
from plait.model.settings import Settings
from plait.results.failures import describe_op

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from plait.graph.operators import AnyOp, Graph


class PayloadPickler(CodePickler):
    """Pickles with Ray's copy of cloudpickle, which every node has."""

    def library(self) -> Any:
        return cloudpickle


class SettingsOfNode:
    """Settings that are made where they are loaded: what was not given depends on the machine."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = dict(given)

    def __reduce__(self) -> Any:
        return functools.partial(Settings, **self.given), ()


def payload_of(graph: Graph, given: Mapping[str, Any]) -> bytes:
    """A job as nodes load it with `pickle.loads`: its graph, and the Settings for the node."""
    try:
        return PayloadPickler().dumps((graph, SettingsOfNode(given)))
    except Exception as error:
        raise JobError(unsendable_text(graph, error)) from error


def unsendable_text(graph: Graph, error: BaseException) -> str:
    """Names the operator that cannot be sent and, in a function of it, the variable."""
    pickler = PayloadPickler()
    for op in graph.operators:
        reason = pickler.error_of(op)
        if reason is not None:
            held = next(filter(None, map(pickler.holder_text, functions_of(op))), "")
            return (
                f"{describe_op(op)} cannot be sent to other nodes: {reason}{held}\n"
                "  make such things inside the function, or in a source's or sink's open()"
            )
    return f'the job "{graph.name}" cannot be sent to other nodes: {error}'


def functions_of(op: AnyOp) -> Iterator[Any]:
    """The plain Python functions of an operator."""
    for name in ("function", "step", "init"):
        for holder in (op, getattr(op, "spec", None)):
            function = getattr(holder, name, None)
            if inspect.isfunction(function):
                yield function
    for _, function in getattr(op, "columns", ()):
        if inspect.isfunction(function):
            yield function
