"""The writer of one file: rows go to a hidden file, which gets its name at the end.

The end may be a good one or not (`close` or `abort`): every row that was delivered is kept under
the final name, and a file of that name never ends in half a row. Rows for Parquet are gathered
before they are encoded, so that many small batches make few row groups.
"""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Any

from plait.connectors.base import Writer
from plait.connectors.formats.encoders import check_format, encoder_of
from plait.connectors.formats.text_files import FileOptions
from plait.errors import SinkError

if TYPE_CHECKING:
    from pathlib import Path

    from plait.model.schema import Schema


class FileWriter(Writer):
    """Writes one file. `close` and `abort` return its path."""

    def __init__(
        self,
        path: Path,
        format: str,
        schema: Schema,
        *,
        compression: str = "",
        options: FileOptions | None = None,
        overwrite: bool = False,
    ) -> None:
        options = options or FileOptions()
        check_format(path, format, schema, options)
        self.path = path
        self.schema = schema
        self.gather_rows = options.batch_rows if format == "parquet" else 1
        self.overwrite = overwrite
        self.gathered: list[Any] = []
        self.gathered_rows = 0
        self.open = True
        self.refuse_existing()
        self.hidden = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.encoder = encoder_of(format, self.hidden, schema, compression, options)
        except OSError as error:
            raise SinkError(f"{path}: cannot be written: {error.strerror or error}") from None

    def refuse_existing(self) -> None:
        if self.path.is_dir():
            raise SinkError(f"{self.path} is a folder")
        if not self.overwrite and self.path.exists():
            raise SinkError(f"{self.path} exists already; remove it or give overwrite=True")

    def write(self, batch: Any) -> None:
        self.gathered.append(batch)
        self.gathered_rows += batch.num_rows
        if self.gathered_rows >= self.gather_rows:
            self.encode()

    def encode(self) -> None:
        import pyarrow as pa

        if not self.gathered:
            return
        # Forgotten first: rows that could not be encoded are not tried again at the close.
        table = pa.Table.from_batches(self.gathered, self.schema.to_arrow())
        self.gathered, self.gathered_rows = [], 0
        try:
            self.encoder.write(table)
        except (OSError, pa.ArrowException) as error:
            raise SinkError(f"{self.path}: {error}") from None
        except SinkError as error:
            raise SinkError(f"{self.path}: {error}") from None

    def close(self) -> str:
        if self.open:
            self.open = False
            try:
                self.encode()
            finally:
                self.finish()
        return str(self.path)

    def finish(self) -> None:
        """Ends the hidden file and gives it its name."""
        import pyarrow as pa

        try:
            self.encoder.close()
            self.refuse_existing()
            os.replace(self.hidden, self.path)
        except (OSError, pa.ArrowException) as error:
            raise SinkError(f"{self.path}: {error}; the rows are in {self.hidden}") from None
        except SinkError as error:
            raise SinkError(f"{error} (it came during the run; rows: {self.hidden})") from None
