"""`Files`: Parquet, CSV and JSONL files, as a source and as a sink.

As a source: a path, a glob, a folder, or a list of these; files are read one after the other, each
glob in sorted order, streamed, and never held whole. The position is [file, row in it]. Times
without a zone are UTC. The schema is the given one, or that of the first file: Parquet says it, of
CSV and JSONL the first rows are looked at (and every column may be null). The other files must
have the same columns, which is checked when each is opened.

As a sink: a path with a suffix is the file, one without is a folder that gets part-00000. Rows go
to a hidden file beside the target, which gets its name when the run is over, however it ended:
each row that was delivered is in it. An existing file is refused unless overwrite=True.
"""

from __future__ import annotations

import glob
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from plait.connectors.base import Reader, Sink, Source, Writer
from plait.connectors.columns import Rounding, check_rounding
from plait.connectors.file_readers import READERS, FileReader
from plait.connectors.file_writers import FileWriter, check_format
from plait.errors import SinkError, SourceError
from plait.model.declared_json import is_written_as_text
from plait.model.schema import Schema, Type

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Format = Literal["parquet", "csv", "jsonl"]
AnyPath = str | os.PathLike[str]

SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
COMPRESSED = (".gz", ".bz2", ".zst")
KNOWN = "parquet, csv or jsonl"


class Files(Source, Sink):
    """Parquet, CSV and JSONL files, as a source or as a sink.

    As a source: `path` is a file, a glob, a folder, or a list of these. Files are streamed one
    after the other, each glob in sorted order, and must have the same columns. Times without a
    zone are UTC. As a sink: a path with a suffix is the file, one without is a folder that gets
    part-00000. The file gets its name when the run ends, with every row that was delivered.

    Args:
        path: what to read or write; .gz, .bz2 and .zst are compressed.
        format: "parquet", "csv" or "jsonl", where the suffix does not say it.
        schema: the columns to read, as a dataclass or a dict. Without it, those of the first file;
            CSV and JSONL columns are then taken from the first rows and may be null.
        batch_rows: how many rows of a Parquet file are decoded, or encoded, at a time.
        rounding: "down" cuts times in Parquet files that are finer than a microsecond; otherwise
            they are an error.
        overwrite: replace an existing file instead of refusing to write.
        label: its name in results and errors.
        rename: the names in `schema` and in the stream, by those in the files:
            `{"user-id": "user"}`. For reading only.

    >>> import pathlib, plait
    >>> _ = pathlib.Path("bids.csv").write_text("item,price\\ntea,3\\ncup,5\\n")
    >>> dear = plait.stream("bids.csv").filter(plait.col("price") > 4)
    >>> _ = dear.sink(Files("dear.jsonl", overwrite=True)).run()
    >>> pathlib.Path("dear.jsonl").read_text()
    '{"item":"cup","price":5}\\n'
    """

    repeatable = True

    def __init__(
        self,
        path: AnyPath | Sequence[AnyPath],
        format: Format | None = None,
        schema: Any = None,
        *,
        batch_rows: int = 65536,
        rounding: Rounding = "error",
        overwrite: bool = False,
        label: str = "",
        rename: Mapping[str, str] | None = None,
    ) -> None:
        if format is not None and format not in READERS:
            raise SourceError(f'Files: the format "{format}" is not known; use {KNOWN}')
        if batch_rows < 1:
            raise SourceError(f"Files: batch_rows is {batch_rows}; it must be 1 or more")
        given = [path] if isinstance(path, str | os.PathLike) else list(path)
        self.given = tuple(os.fspath(one) for one in given)
        if not self.given:
            raise SourceError("Files: the list of paths is empty")
        self.format = format
        self.batch_rows = batch_rows
        self.rounding = check_rounding("Files", rounding)
        self.overwrite = overwrite
        self.label = label
        self.rename = dict(rename or {})
        self.inferred = schema is None
        if schema is not None:
            self.schema = Schema.of(schema)

    def __getattr__(self, name: str) -> Any:
        # Reached only while the schema is not known yet: a sink's file need not be there.
        if name != "schema" or "given" not in self.__dict__:
            raise AttributeError(name)
        with self.reader(self.paths()[0], None) as file:
            self.schema = rename_schema(file.schema, self.rename)
        return self.schema

    def paths(self) -> list[str]:
        """The files that are there, in the order they are read."""
        return [path for given in self.given for path in find_files(given, self.format)]

    def reader(self, path: str, schema: Schema | None) -> FileReader:
        """A reader of one file; without `schema` it finds the columns."""
        kind = READERS[self.format or format_of(path)]
        if schema is not None and self.rename:
            schema = rename_schema(schema, {new: old for old, new in self.rename.items()})
        return kind(
            path,
            schema,
            only_known=self.inferred,
            batch_rows=self.batch_rows,
            rounding=self.rounding,
        )

    def open(self, given: Any = None) -> Any:
        """A Reader at a position or the start; a Writer when given the Schema of the rows."""
        return self.open_writer(given) if isinstance(given, Schema) else self.open_reader(given)

    def check(self, given: Any = None) -> None:
        """Raises if the columns cannot be read from files of the format, or written to one."""
        path = self.given[0]
        if given is not None:
            with_suffix = Path(path).suffix and not Path(path).is_dir()
            format = self.format or (format_of(path) if with_suffix else None)
            if format is not None:
                check_format(path, format, given)
        elif not self.inferred and (self.format or SUFFIXES.get(Path(path).suffix)) == "csv":
            for field in self.schema:
                if field.type is Type.OBJECT and not is_written_as_text(field.declared):
                    raise SourceError(
                        f'{path}: column "{field.name}": a CSV file has no objects; choose a type'
                    )

    def open_reader(self, position: Any) -> Reader:
        """A reader at the start, or at a position: [file, row in it]."""
        file, row = (0, 0) if position is None else position
        return FilesReader(self, self.schema, int(file), int(row))

    def open_writer(self, schema: Schema) -> Writer:
        """A writer of one file; SinkError if the file is there and may not be overwritten."""
        if len(self.given) > 1:
            raise SinkError("Files: a sink writes one file; give one path")
        path = Path(self.given[0])
        if path.suffix and not path.is_dir():
            format, compression = self.format or format_of(str(path)), path.suffix
        elif self.format is None:
            raise SinkError(f"Files: {path} is a folder; say which format= to write: {KNOWN}")
        else:
            format, compression = self.format, ""
            path = path / f"part-00000.{format}"
        return FileWriter(
            path,
            format,
            schema,
            compression=compression if compression in COMPRESSED else "",
            batch_rows=self.batch_rows,
            overwrite=self.overwrite,
        )


class FilesReader(Reader):
    """Reads the files one after the other; batches are cut to what is asked for."""

    def __init__(self, source: Files, schema: Schema, file: int, row: int) -> None:
        self.source = source
        self.schema = schema
        self.paths = source.paths()
        self.file = file
        self.row = row
        self.reader: FileReader | None = None
        self.batches: Iterator[Any] = iter(())
        self.rest: Any = None
        """Rows that were decoded and not yet handed out, or None."""

    def poll(self, max_rows: int) -> Any:
        while self.rest is None:
            if self.file >= len(self.paths):
                return None
            if self.reader is None:
                self.reader = self.source.reader(self.paths[self.file], self.schema)
                self.batches = self.reader.batches(self.row)
            self.rest = next(self.batches, None)
            if self.rest is None:
                self.close()
                self.file, self.row = self.file + 1, 0
            elif self.rest.num_rows == 0:
                self.rest = None
        rows = self.rest.slice(0, max_rows)
        self.row += rows.num_rows
        self.rest = self.rest.slice(max_rows) if self.rest.num_rows > max_rows else None
        return rows if not self.source.rename else with_names(rows, self.schema)

    def position(self) -> list[int]:
        return [self.file, self.row]

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()
        self.reader, self.batches, self.rest = None, iter(()), None


def rename_schema(schema: Schema, names: Mapping[str, str]) -> Schema:
    """The schema with new names of columns, by the ones that they have."""
    unknown = [name for name in names if name not in schema]
    if unknown:
        have = ", ".join(schema.names)
        raise SourceError(f'Files: rename= names "{unknown[0]}", and the columns are: {have}')
    fields = (replace(field, name=names.get(field.name, field.name)) for field in schema)
    return Schema(tuple(fields))


def with_names(rows: Any, schema: Schema) -> Any:
    """Rows of a file under the names of the schema."""
    import pyarrow as pa

    return pa.RecordBatch.from_arrays(rows.columns, schema=schema.to_arrow())


def format_of(path: str) -> Format:
    """The format that a file's name says."""
    name = path
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    suffix = os.path.splitext(name)[1].lower()
    if suffix not in SUFFIXES:
        raise SourceError(
            f'{path}: the suffix "{suffix}" says no format; give format=: {KNOWN}'
            if suffix
            else f"{path} has no suffix; give format=: {KNOWN}"
        )
    return SUFFIXES[suffix]


def find_files(given: str, format: Format | None) -> list[str]:
    """The files of a path, a folder or a glob; there is at least one."""
    if os.path.isdir(given):
        inside = sorted(path for path in walk(given) if fits(path, format))
        if not inside:
            raise SourceError(f"{given}: the folder has no {format or KNOWN} file{beside(given)}")
        return inside
    if os.path.exists(given):
        return [given]
    if not glob.has_magic(given):
        raise SourceError(f"no file {given}{beside(os.path.dirname(given) or '.')}")
    matched = sorted(path for path in glob.glob(given, recursive=True) if os.path.isfile(path))
    if not matched:
        raise SourceError(
            f"the glob {given} matched no file{beside(os.path.dirname(given) or '.')}"
        )
    return matched


def walk(folder: str) -> Iterator[str]:
    """All files under a folder but hidden ones and marks beside the data such as _SUCCESS."""
    for base, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        yield from (os.path.join(base, name) for name in names if not name.startswith((".", "_")))


def fits(path: str, format: Format | None) -> bool:
    try:
        return format_of(path) == format if format else bool(format_of(path))
    except SourceError:
        return False


def beside(folder: str) -> str:
    """For a message: what is there instead."""
    if glob.has_magic(folder) or not os.path.isdir(folder):
        return "" if glob.has_magic(folder) else f": there is no folder {folder}"
    names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    if not names:
        return f": the folder {folder} is empty"
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    return f"; the folder {folder} has: {', '.join(names[:5])}{more}"
