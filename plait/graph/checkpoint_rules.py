"""Which jobs can have checkpoints; pure. Those that cannot are refused in words when they start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait.errors import JobError
from plait.graph.operators import CallOp, ShedOp, SinkOp, SourceOp
from plait.graph.stages import has_loop
from plait.model.durations import to_seconds

if TYPE_CHECKING:
    from plait.graph.operators import Graph
    from plait.model.settings import Settings


NAMELESS = "job"
"""The name of a job that `plait.stream` made."""


def refuse_unsaveable(graph: Graph, settings: Settings, *, on_nodes: bool = False) -> None:
    """Raises a JobError if the job cannot have checkpoints, with what to do instead."""
    if graph.name == NAMELESS:
        raise JobError(
            'a job with checkpoint= needs a name under which it is found again: plait.Job("carts")'
            " and job.source(...) in place of plait.stream(...)"
        )
    for op in graph.operators:
        if isinstance(op, SourceOp) and not op.source.replayable:
            raise JobError(
                f"{op}: {type(op.source).__name__} can be read only once, so a job with checkpoint="
                " could not go on from it; give a list, a table or files"
            )
        if has_loop(op):
            raise JobError(
                f"{op}: an operator with its own loop cannot be saved; checkpoint= needs"
                " process(...) or stateful(...) in its place"
            )
        if isinstance(op, SinkOp) and getattr(op.sink, "limit", None) is not None:
            raise JobError(
                f"{op}: {type(op.sink).__name__}(limit=) cannot be combined with checkpoint="
            )
    if getattr(graph.dead_letters, "commit", None) is not None:
        raise JobError(
            f"dead_letters={graph.dead_letters!r}: dead letters become visible at checkpoints;"
            " leave out commit="
        )
    sheds = any(isinstance(op, ShedOp) and not op.ratio for op in graph.operators)
    if sheds and repeats(graph):
        raise JobError(
            "min_accuracy= cannot be combined with checkpoint= where output is made visible by"
            " several sinks, or between checkpoints: after a crash epochs would be repeated, and it"
            " is not known what was kept of them; give one such sink, or leave out min_accuracy="
        )
    for number in graph.sinks:
        refuse_commit(graph, number, settings, on_nodes)
    if settings.order == "none":
        raise JobError('order="none" cannot be combined with checkpoint=')
    if settings.limit is not None:
        raise JobError("limit= cannot be combined with checkpoint=; it would end the job for good")


def refuse_commit(graph: Graph, number: int, settings: Settings, on_nodes: bool) -> None:
    """Raises a JobError if a sink is to commit between checkpoints and cannot."""
    op = graph.operators[number]
    assert isinstance(op, SinkOp)
    if op.sink.commit is None:
        return
    if op.sink.kind != "decider":
        raise JobError(
            f"{op}: commit= is for sinks that keep the boundary with their rows"
            f' (kind = "decider"), and {type(op.sink).__name__} is a {op.sink.kind} sink'
        )
    commit_seconds(op.sink)
    if settings.order == "key":
        raise JobError(f'{op}: commit= cannot be combined with order="key"')
    for before in operators_before(graph, number):
        function = graph.operators[before]
        if may_differ(function, on_nodes) and not getattr(function, "repeatable", False):
            raise JobError(
                f"{function}: its results may differ when it is called again, and the sink"
                f" {op.label} commits between checkpoints, so epochs of which the output is"
                " delivered are repeated after a crash; write repeatable=True if it gives the same"
                " for the same records, or leave out commit="
            )


def may_differ(op: object, on_nodes: bool) -> bool:
    """Whether an operator may give something else for the same epochs: a function that waits for
    something outside, or one that sees whole batches, which are others on other nodes."""
    return isinstance(op, CallOp) and (op.mode == "async" or (on_nodes and op.mode == "batches"))


def commit_seconds(sink: Any) -> float:
    """How often a sink commits between checkpoints."""
    assert sink.commit is not None
    seconds = to_seconds(sink.commit)
    if seconds <= 0:
        raise JobError(f'{type(sink).__name__}: commit={sink.commit!r} must be more, as "100ms"')
    return seconds


def committers(graph: Graph) -> list[int]:
    """The sinks that commit between checkpoints, too."""
    return [number for number in deciders(graph) if sink_of(graph, number).commit is not None]


def repeats(graph: Graph) -> bool:
    """Whether a job may have to repeat epochs of which output is delivered."""
    return several_decide(graph) or bool(committers(graph))


def several_decide(graph: Graph) -> bool:
    """Whether a crash may come between the commits of two sinks."""
    return len(deciders(graph)) + letters_decide(graph) > 1


def sink_of(graph: Graph, number: int) -> Any:
    op = graph.operators[number]
    assert isinstance(op, SinkOp)
    return op.sink


def operators_before(graph: Graph, number: int) -> list[int]:
    """All operators whose output reaches one, ascending."""
    found: set[int] = set()
    todo = [number]
    while todo:
        for before in graph.operators[todo.pop()].inputs:
            if before not in found:
                found.add(before)
                todo.append(before)
    return sorted(found)


def sources_before(graph: Graph, number: int) -> list[int]:
    """The sources that reach an operator."""
    before = operators_before(graph, number)
    return [op for op in before if isinstance(graph.operators[op], SourceOp)]


def deciders(graph: Graph) -> list[int]:
    """The sinks that keep, with their rows, how far they are."""
    return [
        number
        for number in graph.sinks
        if isinstance(op := graph.operators[number], SinkOp) and op.sink.kind == "decider"
    ]


LETTERS = -1
"""Where sinks are known by the numbers of their operators: the sink for dead letters."""


def letters_decide(graph: Graph) -> bool:
    """Whether the sink for dead letters keeps, with them, how far it is."""
    return graph.dead_letters is not None and graph.dead_letters.kind == "decider"
