"""A job as parts that any node of a cluster can load: its bytes, and the buffers of its tables.

Tables are not copied: their buffers go as they are from the memory of this process to Ray's object
store, and nodes use them there.

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

OUTSIDE_BYTES = 1 << 16
"""Smaller buffers stay in the bytes."""

if TYPE_CHECKING:
    import pickle
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


def payload_of(graph: Graph, given: Mapping[str, Any], checkpoint_url: str = "") -> list[Any]:
    """A job as nodes load it, its graph, the Settings for the node and where it is saved: the
    pickled bytes, then buffers that are not in them."""
    buffers: list[pickle.PickleBuffer] = []

    def stays(buffer: pickle.PickleBuffer) -> bool:
        """Only what Arrow holds leaves: it is never written to, and neither is the store."""
        view = buffer.raw()
        ours = type(memoryview(buffer).obj).__module__.partition(".")[0] == "pyarrow"
        if not ours or view.nbytes < OUTSIDE_BYTES:
            return True
        buffers.append(buffer)
        return False

    job = (graph, SettingsOfNode(given), checkpoint_url)
    try:
        return [PayloadPickler().dumps(job, stays), *buffers]
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
