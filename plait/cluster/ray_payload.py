"""A job as bytes that any node of a cluster can load.

What is installed (plait, the libraries) is sent by name; the user's own functions and classes are
sent by value, so that the file with the job need not be on the nodes. What cannot be sent is said
before anything starts: the operator, its line, and the variable that holds it.
"""

from __future__ import annotations

import functools
import inspect
import io
import sys
from typing import TYPE_CHECKING, Any

from ray import cloudpickle
from ray.cloudpickle import register_pickle_by_value, unregister_pickle_by_value

from plait.errors import JobError
from plait.functions.pickling import is_installed, is_the_users
from plait.model.settings import Settings
from plait.node_runtime.functions.compiled import CompiledFunction
from plait.results.failures import describe_op

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from plait.graph.operators import AnyOp, Graph


class JobPickler(cloudpickle.CloudPickler):
    """Compiled functions go as their Python original: a node compiles for its own machine."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, CompiledFunction) and not is_installed(sys.modules.get(obj.__module__)):
            return CompiledFunction, (obj.function,)
        return super().reducer_override(obj)  # type: ignore[no-untyped-call]


class SettingsThere:
    """Settings that are made where they are loaded: what was not given depends on the machine."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = dict(given)

    def __reduce__(self) -> Any:
        return functools.partial(Settings, **self.given), ()


def payload_of(graph: Graph, given: Mapping[str, Any]) -> bytes:
    """A job as nodes load it with `pickle.loads`: its graph, and the Settings for the node."""
    try:
        return dumped((graph, SettingsThere(given)))
    except Exception as error:
        raise JobError(why_not(graph, error)) from error


def dumped(value: Any) -> bytes:
    """Pickled, with the modules of the user by value."""
    loaded = list(sys.modules.items())
    ours = [module for name, module in loaded if is_the_users(name, module)]
    for module in ours:
        register_pickle_by_value(module)
    try:
        file = io.BytesIO()
        JobPickler(file, protocol=5).dump(value)  # type: ignore[no-untyped-call]
        return file.getvalue()
    finally:
        for module in ours:
            unregister_pickle_by_value(module)


def why_not(graph: Graph, error: BaseException) -> str:
    """Names the operator that cannot be sent and, in a function of it, the variable."""
    for node in graph.operators:
        if failure(node) is not None:
            held = next(holders(node), "")
            said = failure(node) or ""
            return (
                f"{describe_op(node)} cannot be sent to other nodes: {said}{held}\n"
                "  make such things inside the function, or in a source's or sink's open()"
            )
    return f'the job "{graph.name}" cannot be sent to other nodes: {error}'


def failure(value: Any) -> str | None:
    """Why a value cannot be pickled; None if it can."""
    try:
        dumped(value)
    except Exception as error:
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    return None


def holders(node: AnyOp) -> Iterator[str]:
    """The variables of the node's functions that cannot be pickled."""
    for function in functions_of(node):
        try:
            held = inspect.getclosurevars(function)
        except (TypeError, ValueError):
            continue
        for name, value in {**held.globals, **held.nonlocals}.items():
            if failure(value) is not None:
                yield f'; it holds "{name}", a {type(value).__name__}'


def functions_of(node: AnyOp) -> Iterator[Any]:
    for name in ("function", "step", "init"):
        for holder in (node, getattr(node, "spec", None)):
            function = getattr(holder, name, None)
            if inspect.isfunction(function):
                yield function
    for _, function in getattr(node, "columns", ()):
        if inspect.isfunction(function):
            yield function
