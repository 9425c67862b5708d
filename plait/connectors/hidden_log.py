"""A hidden file that grows over several checkpoints: rows are appended, and at every boundary it
has a length up to which it is whole.

CSV, JSONL and text are the bytes of the file to be, so it only needs its name in the end. Rows for
Parquet, which has its directory at the end, are kept as an Arrow stream and encoded then. Each
interval is encoded by itself (an archive is a series of archives), so the file can be cut at any
boundary and go on from there.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import time
from typing import TYPE_CHECKING, Any, Self

from plait.connectors.durable import add_to_digest, copy_start, write_all
from plait.connectors.formats.encoders import (
    CODECS,
    CsvEncoder,
    JsonlEncoder,
    ParquetEncoder,
    TextEncoder,
)
from plait.connectors.formats.file_readers import ParquetReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from hashlib import _Hash
    from pathlib import Path

    from plait.connectors.formats.encoders import Encoder
    from plait.connectors.formats.text_files import FileOptions
    from plait.model.schema import Schema

LOG_DIGEST = "plait.log"
"""The key in the directory of a Parquet file: of which log it was made."""


class Tail:
    """The end of an open file as a stream of its own: closing it leaves the file open."""

    closed = False

    def __init__(self, file: int) -> None:
        self.file = file
        self.size = 0

    def write(self, data: Any) -> int:
        write_all(self.file, data)
        self.size += len(data)
        return len(data)

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        self.closed = True


class HiddenLog:
    """The file. `write` and `end_interval` are called by one thread, `digest_at` and `sync` by
    another meanwhile."""

    def __init__(
        self,
        path: Path,
        number: int,
        format: str,
        schema: Schema,
        *,
        compression: str,
        options: FileOptions,
    ) -> None:
        self.path = path
        self.number = number
        self.format = format
        self.schema = schema
        self.compression = compression
        self.options = options
        self.since = time.time()
        self.rows = 0
        self.size = 0
        """Up to where it is whole."""
        self.encoder: Encoder | None = None
        self.tail: Tail | None = None
        self.digest: _Hash = hashlib.sha256()
        self.digest_size = 0
        """How many of its bytes are in the digest."""
        # Exclusive: two sinks that write to one place would mix their rows.
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)

    def begin(self) -> Self:
        """Writes what every file of the format starts with."""
        if self.format == "parquet":
            self.append(self.schema.to_arrow().serialize())
        elif self.format == "csv" or self.compression:
            self.open_encoder()
            self.end_interval()
        return self

    def copy(self, source: Path, size: int) -> str:
        """Begins with the first bytes of another log; their digest."""
        self.digest = copy_start(source, self.file, size)
        self.size = self.digest_size = size
        return self.digest.hexdigest()

    def copy_rows(self, source: Path) -> None:
        """Begins with the rows of a Parquet file."""
        self.begin()
        with ParquetReader(str(source), self.schema, only_known=False) as reader:
            for rows in reader.batches(0):
                self.append(rows.good.serialize())
                self.rows += len(rows)

    def append(self, data: Any) -> None:
        write_all(self.file, data)
        self.size += len(data)

    def write(self, batch: Any) -> None:
        import pyarrow as pa

        if self.format == "parquet":
            self.append(batch.serialize())
        else:
            encoder = self.encoder or self.open_encoder()
            encoder.write(pa.Table.from_batches([batch]))
        self.rows += int(batch.num_rows)

    def open_encoder(self) -> Encoder:
        self.tail = Tail(self.file)
        self.encoder = self.encoder_into(self.stream_into(self.tail))
        return self.encoder

    def stream_into(self, tail: Tail) -> Any:
        import pyarrow as pa

        if self.compression == ".xz":
            return lzma.LZMAFile(tail, "wb")  # type: ignore[arg-type]
        codec = CODECS[self.compression]
        plain = pa.PythonFile(tail, "w")
        return plain if codec is None else pa.CompressedOutputStream(plain, codec)

    def encoder_into(self, stream: Any) -> Encoder:
        match self.format:
            case "csv":
                return CsvEncoder(stream, self.schema, self.options, header=self.size == 0)
            case "text":
                return TextEncoder(stream)
            case _:
                return JsonlEncoder(stream, self.schema)

    def end_interval(self) -> None:
        """All that was written is in the file."""
        if self.encoder is None or self.tail is None:
            return
        self.encoder.close()
        self.size += self.tail.size
        self.encoder = self.tail = None

    def written(self) -> int:
        """How long it is by now, about."""
        return self.size + (self.tail.size if self.tail is not None else 0)

    def sync(self) -> None:
        os.fsync(self.file)

    def digest_at(self, size: int) -> str:
        """The digest of the first bytes: as many as the last time, or more."""
        add_to_digest(self.digest, self.file, self.digest_size, size)
        self.digest_size = size
        return self.digest.hexdigest()

    def close(self) -> None:
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    def encode_parquet(self, target: Path) -> None:
        """Writes the rows as a Parquet file that says of which log it was made."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        encoder = ParquetEncoder(pq.ParquetWriter, target, self.schema)
        try:
            with pa.OSFile(str(self.path)) as file, pa.ipc.open_stream(file) as stream:
                for table in gather(stream, self.options.batch_rows, stream.schema):
                    encoder.write(table)
            encoder.writer.add_key_value_metadata({LOG_DIGEST: self.digest_at(self.size)})
        finally:
            encoder.close()


def gather(batches: Any, rows: int, schema: Any) -> Iterator[Any]:
    """Batches joined to tables of at least so many rows, but for the last."""
    import pyarrow as pa

    held: list[Any] = []
    held_rows = 0
    for batch in batches:
        held.append(batch)
        held_rows += batch.num_rows
        if held_rows >= rows:
            yield pa.Table.from_batches(held, schema)
            held, held_rows = [], 0
    if held:
        yield pa.Table.from_batches(held, schema)


def log_digest_of(path: Path) -> str:
    """The digest of the log that a Parquet file was made of; "" if it was not, or is damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(str(path)).metadata or {}
    except (OSError, pa.ArrowException):
        return ""
    return str(metadata.get(LOG_DIGEST.encode(), b"").decode())
