"""What `plait.stream(x)` takes: paths and globs, tables, sources, and any other iterable.

The rule: a thing is read in one way only, and what is not clear is refused with what to write
instead. A text is always a path, never a sequence of characters.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import AsyncIterable, Iterable, Mapping
from typing import Any

from plait.connectors.base import Source
from plait.connectors.files import Files
from plait.connectors.memory_sources import Items, Table, is_column, is_table
from plait.errors import SourceError
from plait.model.records import describe


def to_source(given: Any) -> Source:
    """The source that `given` stands for."""
    if isinstance(given, Source):
        return given
    if isinstance(given, str | os.PathLike):
        return files(given)
    if is_table(given) or is_column(given):
        return Table(given)
    refuse_others(given)
    if callable(given) or isinstance(given, Iterable):
        return Items(given)
    raise SourceError(
        f"{describe(given)} cannot be read as records; give a path or glob, an iterable of dicts, "
        "dataclasses or tuples, an Arrow, pandas or polars table, or a source such as plait.Rate"
    )


def refuse_others(given: Any) -> None:
    """Raises for what is nearly a stream of records, with what to write instead."""
    if isinstance(given, Mapping):
        raise SourceError(
            "a dict is one record; give a list of them, or a table of columns: "
            "plait.stream([record]) or plait.stream(pyarrow.table(columns))"
        )
    if isinstance(given, bytes | bytearray | memoryview):
        raise SourceError("bytes are no stream of records; give a path, a table or an iterable")
    if isinstance(given, type):
        raise SourceError(f"{given.__name__} is a class; give an object of it")
    if isinstance(given, set | frozenset):
        raise SourceError("a set has no order, and a stream does; give a list: sorted(...)")
    if dataclasses.is_dataclass(given) and not isinstance(given, Iterable):
        raise SourceError(f"{describe(given)} is one record; give a list of them")
    if isinstance(given, AsyncIterable):
        raise SourceError(
            f"{describe(given)} is asynchronous; read it into a list first, or write a plait.Source"
            " whose reader returns what has come so far"
        )
    if getattr(given, "ndim", 1) != 1:
        raise SourceError(
            f"an array of {given.ndim} dimensions has no names for its columns; give"
            ' pandas.DataFrame(array, columns=["a", ...])'
        )
    if type(given).__name__ == "LazyFrame":
        raise SourceError("a lazy frame is not computed yet; give frame.collect()")


def files(path: str | os.PathLike[str]) -> Files:
    """The files of a path or glob, which must be there: a text here is always a path."""
    source = Files(path)
    try:
        source.paths()
    except SourceError as error:
        raise SourceError(
            f"{error}\n  a text given to stream() is a path or a glob of Parquet, CSV or JSONL "
            "files; for a stream of texts give a list of them"
        ) from None
    return source
