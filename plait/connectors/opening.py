"""Opens sources and sinks and checks what their `open` returned, which is code of the user's.

A generator of records in place of a reader is read as one whose position is the number of records
so far; `open` gets that number back when the source is to go on.

    >>> import plait
    >>> class Words(plait.Source):
    ...     schema = plait.Schema.of({"word": str})
    ...     def open(self, position=None):
    ...         for word in ["one", "order"][position or 0 :]:
    ...             yield {"word": word}
    >>> open_reader(Words(), Words.schema, None, "source").poll(9).column("word").to_pylist()
    ['one', 'order']
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import signature
from typing import TYPE_CHECKING, Any, get_args

from plait.connectors.base import Kind, Reader, Sink, Writer
from plait.connectors.memory_sources import Items, ItemsReader
from plait.errors import JobError, SourceError
from plait.model.records import describe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.connectors.base import Resume, Source, Wait
    from plait.model.schema import Schema


def open_reader(source: Source, schema: Schema, position: Any, where: str) -> Reader:
    """The reader of a source, told what its rows must fit: `schema` is the source's, but its event
    time is never null. `where`: the operator and its line, for the error."""
    opened: Any = source.open(position)
    name = type(source).__name__
    if isinstance(opened, Iterator) and not hasattr(opened, "poll"):
        return ItemsReader(Items(opened, schema, name), schema, opened, int(position or 0))
    missing = missing_methods(opened, ("poll", "position", "close"))
    if missing:
        raise JobError(
            f"{where}: {name}.open returned {describe(opened)}, which has no {missing};"
            " return an object of a subclass of plait.Reader, or yield the records"
        )
    reader: Reader = opened
    if isinstance(opened, Reader):
        reader.require(schema)
    return reader


def open_writer(sink: Sink, schema: Schema, where: str, resume: Resume | None = None) -> Writer:
    """The writer of a sink. `where`: the operator and its line, for the error. `resume`: in a job
    with `checkpoint=`; a plain sink is not given it."""
    name, kind = type(sink).__name__, kind_of_sink(sink, where)
    exact = resume is not None and kind != "plain"
    if exact and not takes_resume(sink):
        raise JobError(
            f'{where}: {name} is a "{kind}", so its open must take what it goes on from:'
            " def open(self, schema, resume=None)"
        )
    opened: Any = sink.open(schema, resume) if exact else sink.open(schema)
    ports = ("mark", "prepare", "commit") if exact else ()
    missing = missing_methods(opened, ("write", "close", "abort", *ports))
    if missing:
        advice = "; for a function use plait.Call(function)" if callable(opened) else ""
        raise JobError(
            f"{where}: {name}.open returned {describe(opened)}, which has no"
            f" {missing}; return an object of a subclass of plait.Writer{advice}"
        )
    if exact and getattr(type(opened), "commit", None) is Writer.commit:
        raise JobError(
            f'{where}: {name} is a "{kind}", but its writer has no commit(boundary, notes), which'
            " makes rows visible"
        )
    writer: Writer = opened
    return writer


def kind_of_sink(sink: Sink, where: str) -> Kind:
    """How a sink delivers in a job with `checkpoint=`, checked."""
    kind = sink.kind
    if kind not in get_args(Kind):
        raise JobError(
            f"{where}: {type(sink).__name__}.kind is {kind!r};"
            ' it must be "plain", "follower" or "decider"'
        )
    if kind == "decider" and type(sink).survey is Sink.survey:
        raise JobError(
            f'{where}: {type(sink).__name__} is a "decider", but has no survey(seen), which says'
            " what it has delivered"
        )
    return kind


def takes_resume(sink: Sink) -> bool:
    """Whether `open` has a second argument."""
    try:
        signature(sink.open).bind(None, None)
    except TypeError:
        return False
    return True


def missing_methods(opened: Any, names: Sequence[str]) -> str:
    return ", ".join(name for name in names if not callable(getattr(opened, name, None)))


def wait_seconds(wait: Wait, where: str) -> float:
    """How long a reader asks to wait."""
    seconds: Any = wait.seconds
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise SourceError(f"{where}: poll returned {wait!r}; give a number of seconds, 0 or more")
    return float(seconds)
