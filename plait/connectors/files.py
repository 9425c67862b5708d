"""`Files`: Parquet, CSV, JSONL and text files, as a source and as a sink.

As a source: a path, a glob, a folder, or a list of these; files are read one after the other, each
glob in sorted order, streamed, and never held whole. The position is [file, row in it]. Times
without a zone are UTC. The schema is the given one, or that of the first file: Parquet says it, of
CSV and JSONL the first rows are looked at (and every column may be null). The other files must
have the same columns, which is checked when each is opened; one that may be null may be missing.
A row that cannot be read is an error of `poll`, or comes beside the others in `poll_with_bad`.

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

from plait.connectors.bad_rows import PolledRows
from plait.connectors.base import Reader, Sink, Source, Writer
from plait.connectors.columns import Rounding, check_rounding
from plait.connectors.file_reader import UNIT_BYTES, EmptyFile, FileReader, rows_within
from plait.connectors.file_readers import READERS
from plait.connectors.file_writers import FileWriter, check_format
from plait.connectors.text_files import COMPRESSED, FileOptions
from plait.errors import SinkError, SourceError
from plait.model.declared_json import is_written_as_text
from plait.model.schema import Schema, Type

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Format = Literal["parquet", "csv", "jsonl", "text"]
AnyPath = str | os.PathLike[str]

SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
KNOWN = "parquet, csv, jsonl or text"


class Files(Source, Sink):
    """Parquet, CSV, JSONL and text files, as a source or as a sink.

    As a source: `path` is a file, a glob, a folder, or a list of these. Files are streamed one
    after the other, each glob in sorted order, and must have the same columns. Times without a
    zone are UTC. As a sink: a path with a suffix is the file, one without is a folder that gets
    part-00000. The file gets its name when the run ends, with every row that was delivered.

    Args:
        path: what to read or write; .gz, .bz2, .zst and .xz are compressed.
        format: "parquet", "csv", "jsonl" or "text" (one column, line), where the suffix does not
            say it.
        schema: the columns to read, as a dataclass or a dict. Without it, those of the first file
            that is not empty; the types of CSV (from the first 4 MB) and JSONL (from the first
            1,000 lines) are found, and every column may be null.
        encoding: of CSV, JSONL and text files; any that Python knows.
        file_and_line: of text files: add the columns file and line_number.
        delimiter: of CSV: what separates fields.
        quote: of CSV: what fields with delimiters or line ends are in; None: nothing.
        escape: of CSV: what stands before a character that is to be taken as it is.
        header: of CSV: False if the file has no line with the names (they are then c0, c1, ...), or
            the names.
        nulls: of CSV: the fields without quotes that are null.
        comment: of CSV: lines that start with this are passed over.
        skip_rows: of CSV: the number of lines before the header.
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
        encoding: str = "utf-8",
        file_and_line: bool = False,
        delimiter: str = ",",
        quote: str | None = '"',
        escape: str | None = None,
        header: bool | Sequence[str] = True,
        nulls: Sequence[str] = ("",),
        comment: str | None = None,
        skip_rows: int = 0,
        batch_rows: int = 65536,
        rounding: Rounding = "error",
        overwrite: bool = False,
        label: str = "",
        rename: Mapping[str, str] | None = None,
    ) -> None:
        if format is not None and format not in READERS:
            raise SourceError(f'Files: the format "{format}" is not known; use {KNOWN}')
        if format == "text" and schema is not None:
            raise SourceError("Files: text files have the column line, and schema= has no use")
        if isinstance(nulls, str) or isinstance(header, str):
            raise SourceError('Files: nulls= and header= take a list of texts, such as ["", "NA"]')
        given = [path] if isinstance(path, str | os.PathLike) else list(path)
        self.given = tuple(os.fspath(one) for one in given)
        if not self.given:
            raise SourceError("Files: the list of paths is empty")
        self.format = format
        self.options = FileOptions(
            batch_rows=batch_rows,
            encoding=encoding,
            file_and_line=file_and_line,
            delimiter=delimiter,
            quote=quote,
            escape=escape,
            header=header if isinstance(header, bool) else tuple(header),
            nulls=tuple(nulls),
            comment=comment,
            skip_rows=skip_rows,
            rounding=check_rounding("Files", rounding),
        )
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
        paths = self.paths()
        for path in paths:
            try:
                with self.reader(path, None) as file:
                    self.schema = rename_schema(file.schema, self.rename)
                return self.schema
            except EmptyFile:
                if path == paths[-1]:
                    raise
        raise AttributeError(name)

    def paths(self) -> list[str]:
        """The files that are there, in the order they are read."""
        return [path for given in self.given for path in find_files(given, self.format)]

    def reader(self, path: str, schema: Schema | None) -> FileReader:
        """A reader of one file; without `schema` it finds the columns."""
        format = self.format or format_of(path)
        refuse_options(self.options, format, path)
        if schema is not None and self.rename:
            schema = rename_schema(schema, {new: old for old, new in self.rename.items()})
        return READERS[format](path, schema, only_known=self.inferred, options=self.options)

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
                check_format(path, format, given, self.options)
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
            path = path / f"part-00000.{'txt' if format == 'text' else format}"
        return FileWriter(
            path,
            format,
            schema,
            compression=compression if compression in COMPRESSED else "",
            options=self.options,
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
        self.batches: Iterator[PolledRows] = iter(())
        self.rest: PolledRows | None = None
        """Rows that were decoded and not yet handed out, or None."""

    def require(self, schema: Schema) -> None:
        self.schema = schema

    def poll(self, max_rows: int) -> Any:
        rest = self.find_rows()
        if rest is None:
            return None
        if rest.bad:
            if rest.bad[0].row == 0:
                raise rest.bad[0].error()
            max_rows = min(max_rows, rest.bad[0].row)
        return self.take(rest, max_rows).good

    def poll_with_bad(self, max_rows: int) -> Any:
        rest = self.find_rows()
        return None if rest is None else self.take(rest, max_rows)

    def take(self, rest: PolledRows, max_rows: int) -> PolledRows:
        if rest.good.nbytes > UNIT_BYTES:
            max_rows = min(max_rows, rows_within(rest.good, max_rows, UNIT_BYTES))
        rows, others = rest.split(max_rows)
        self.row += len(rows)
        self.rest = others if len(others) else None
        if not self.source.rename:
            return rows
        return PolledRows(with_names(rows.good, self.schema), rows.bad)

    def find_rows(self) -> PolledRows | None:
        """The rows at hand, or the next ones; None at the end of all files."""
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
            elif len(self.rest) == 0:
                self.rest = None
        return self.rest

    def position(self) -> list[int]:
        return [self.file, self.row]

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()
        self.reader, self.batches, self.rest = None, iter(()), None


def refuse_options(options: FileOptions, format: str, path: str) -> None:
    """Raises for options that the format does not have."""
    given = [] if format == "csv" else options.for_csv()
    wanted = "csv"
    if options.file_and_line and format != "text":
        given, wanted = ["file_and_line"], "text"
    if format == "parquet" and options.encoding != "utf-8":
        given, wanted = ["encoding"], "csv, jsonl and text"
    if given:
        raise SourceError(
            f"{path}: {given[0]}= is for {wanted} files; this one is read as {format}"
        )


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
    if format == "text":
        return True
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
