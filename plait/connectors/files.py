"""`Files`: Parquet, CSV, JSONL and text files, as a source and as a sink.

As a source: a path, a glob, a folder, or a list of these; files are read one after the other, each
glob in sorted order, streamed, and never held whole. The position is a file by its name, and a
place in it (`file_positions`). Times without a zone are UTC. The schema is the given one, or that
of the first file: Parquet says it, of CSV and JSONL the first rows are looked at (and every column
may be null). The other files must have the same columns, which is checked when each is opened; one
that may be null may be missing. A row that cannot be read is an error of `poll`, or comes beside
the others in `poll_with_bad`.

As a sink: a path with a suffix is the file, one without is a folder that gets part-00000. Rows go
to a hidden file beside the target, which gets its name when the run is over, however it ended:
each row that was delivered is in it. An existing file is refused unless overwrite=True. In a job
with `checkpoint=` it is a follower (`file_follower`): a folder gets a part for each checkpoint.
"""

from __future__ import annotations

import glob
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from plait.checkpoints.config import shown_url
from plait.connectors.base import Reader, Resume, Sink, Source, Writer
from plait.connectors.columns import Rounding, check_rounding
from plait.connectors.file_follower import FileFollower, Shape
from plait.connectors.file_targets import Targets, to_roll
from plait.connectors.file_writers import FileWriter
from plait.connectors.files_reader import FilesReader
from plait.connectors.formats.encoders import check_format
from plait.connectors.formats.file_reader import EmptyFile, FileReader
from plait.connectors.formats.file_readers import READERS
from plait.connectors.formats.text_files import COMPRESSED, FileOptions
from plait.connectors.objects.bucket import Bucket
from plait.connectors.objects.object_follower import ObjectFollower
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
    part-00000. The file gets its name when the run ends, with every row that was delivered. In a
    job with `checkpoint=` each row is in the files exactly once, also after a crash: a folder gets
    part-00000000, part-00000001, ..., one for each checkpoint, and a file is there when the job
    ends.

    Args:
        path: what to read or write; .gz, .bz2, .zst and .xz are compressed. In a job with
            `checkpoint=` a sink may be a URL: s3://bucket/out/, gs://..., what fsspec knows.
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
        roll: in a folder, in a job with `checkpoint=`: write a new file after this much
            ("128MB") or this long ("10m") instead of at every checkpoint.
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
    kind = "follower"

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
        roll: str | None = None,
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
        to_roll(roll)
        self.roll = roll
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

    def open(self, given: Any = None, resume: Resume | None = None) -> Any:
        """A Reader at a position or the start; a Writer when given the Schema of the rows."""
        if isinstance(given, Schema):
            return self.open_writer(given, resume)
        return self.open_reader(given)

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
        """A reader at the start, or at a position (`file_positions`)."""
        return FilesReader(self, self.schema, position)

    def open_writer(self, schema: Schema, resume: Resume | None = None) -> Writer:
        """A writer of one file, or in a job with checkpoints (`resume`) of one that goes on;
        SinkError if a file is there and may not be overwritten."""
        if len(self.given) > 1:
            raise SinkError("Files: a sink writes one file; give one path")
        if "://" in self.given[0]:
            return self.open_objects(schema, resume)
        path = Path(self.given[0])
        if path.suffix and not path.is_dir():
            format, compression = self.format or format_of(str(path)), path.suffix
        elif self.format is None:
            raise SinkError(f"Files: {path} is a folder; say which format= to write: {KNOWN}")
        else:
            format, compression = self.format, ""
            path = path / f"part-00000.{'txt' if format == 'text' else format}"
        compression = compression if compression in COMPRESSED else ""
        if self.roll is not None and resume is None:
            raise SinkError(f"Files: {self.given[0]}: roll= is for jobs with checkpoint=")
        if resume is not None:
            return self.open_follower(path, format, schema, compression, resume)
        return FileWriter(
            path,
            format,
            schema,
            compression=compression,
            options=self.options,
            overwrite=self.overwrite,
        )

    def open_objects(self, schema: Schema, resume: Resume | None) -> Writer:
        """A writer on an object store; only with checkpoints is there a place for rows until they
        are shown."""
        url, query = self.given[0].partition("?")[::2]
        shown = shown_url(url)
        if resume is None:
            raise SinkError(f"Files: {shown} is an object store: run the job with checkpoint=")
        name = url.rstrip("/").rpartition("/")[2]
        single = bool(Path(name).suffix) and not url.endswith("/")
        if single and self.roll is not None:
            raise SinkError(f"Files: {shown} is one file; roll= is for a folder")
        if not single and self.format is None:
            raise SinkError(f"Files: {shown} is a folder; say which format= to write: {KNOWN}")
        format = self.format or format_of(name)
        compression = Path(name).suffix if single and Path(name).suffix in COMPRESSED else ""
        check_format(shown, format, schema, self.options)
        folder = url.rpartition("/")[0] if single else url.rstrip("/")
        targets = Targets(
            folder=Path(),
            file=name if single else "",
            suffix="txt" if format == "text" else format,
            run=resume.run,
        )
        shape = Shape(
            format=format,
            schema=schema,
            compression=compression,
            options=self.options,
            roll=to_roll(self.roll),
            overwrite=self.overwrite,
        )
        bucket = Bucket(f"{folder}?{query}" if query else folder)
        return ObjectFollower(bucket, targets, shape, resume)

    def open_follower(
        self, path: Path, format: str, schema: Schema, compression: str, resume: Resume
    ) -> Writer:
        """A writer in a job with checkpoints, of `path` or of the parts beside it."""
        check_format(path, format, schema, self.options)
        single = path == Path(self.given[0])
        if single and self.roll is not None:
            raise SinkError(f"Files: {path} is one file; roll= is for a folder")
        targets = Targets(
            folder=path.parent,
            file=path.name if single else "",
            suffix=path.suffix[1:],
            run=resume.run,
        )
        shape = Shape(
            format=format,
            schema=schema,
            compression=compression,
            options=self.options,
            roll=to_roll(self.roll),
            overwrite=self.overwrite,
        )
        return FileFollower(targets, shape, resume)


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
    if "://" in given:
        raise SourceError(
            f"Files: {shown_url(given)} is an object store; Files reads local paths, or folders"
            " that all hosts see"
        )
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
