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
from typing import TYPE_CHECKING, Any

from plait.connectors.base import Reader
from plait.connectors.memory_sources import Items, ItemsReader
from plait.errors import JobError, SourceError
from plait.model.records import describe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.connectors.base import Sink, Source, Wait, Writer
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


def open_writer(sink: Sink, schema: Schema, where: str) -> Writer:
    """The writer of a sink. `where`: the operator and its line, for the error."""
    opened: Any = sink.open(schema)
    missing = missing_methods(opened, ("write", "close", "abort"))
    if missing:
        advice = "; for a function use plait.Call(function)" if callable(opened) else ""
        raise JobError(
            f"{where}: {type(sink).__name__}.open returned {describe(opened)}, which has no"
            f" {missing}; return an object of a subclass of plait.Writer{advice}"
        )
    writer: Writer = opened
    return writer


def missing_methods(opened: Any, names: Sequence[str]) -> str:
    return ", ".join(name for name in names if not callable(getattr(opened, name, None)))


def wait_seconds(wait: Wait, where: str) -> float:
    """How long a reader asks to wait."""
    seconds: Any = wait.seconds
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise SourceError(f"{where}: poll returned {wait!r}; give a number of seconds, 0 or more")
    return float(seconds)
