"""Batches for users: a schema and its columns in Arrow memory, given and taken without copying.

A `Batch` never changes. Anything that speaks the Arrow PyCapsule protocol can be made into one and
made from one: pyarrow, pandas, polars. Columns that are already in plait's layout (int64, float64,
bool, string, binary, timestamp[us, UTC]) are shared; others are converted where nothing is lost,
and refused otherwise.

    >>> import pyarrow as pa
    >>> batch = Batch.from_arrow(pa.table({"n": [1, 2], "name": ["a", "b"]}))
    >>> len(batch), batch.rows()[1]
    (2, Record(n=2, name='b'))
"""

from __future__ import annotations

from typing import Any

from plait.errors import SchemaError
from plait.model.records import pack_object, records_of, value_of
from plait.model.schema import Field, Schema, Type, arrow_type


class Batch:
    """Rows of one schema, as columns in Arrow memory. Made by `Batch.from_arrow`.

    >>> import pyarrow
    >>> batch = plait.Batch.from_arrow(pyarrow.table({"n": [1, 2]}))
    >>> len(batch), batch.rows()
    (2, [Record(n=1), Record(n=2)])

    A batch never changes. It has the Arrow PyCapsule protocol: `pyarrow.record_batch(batch)` and
    `polars.from_arrow(batch)` share its memory.
    """

    __slots__ = ("arrow", "schema")

    schema: Schema
    arrow: Any
    """A pyarrow RecordBatch with the types of `schema.to_arrow()`."""

    def __init__(self, schema: Schema, arrow: Any) -> None:
        object.__setattr__(self, "schema", schema)
        object.__setattr__(self, "arrow", arrow)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a batch never changes; {name!r} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a batch never changes; {name!r} cannot be deleted")

    @classmethod
    def from_arrow(cls, given: Any, schema: Any = None) -> Batch:
        """A batch of anything with Arrow data, such as a pyarrow, pandas or polars table.

        Memory is shared where the types allow it, so do not change `given` afterwards.

        Args:
            given: a table, or an object with the Arrow PyCapsule protocol.
            schema: a `plait.Schema` or what `Schema.of` takes; by default the types of the columns.

        Raises:
            SchemaError: a column is missing, or cannot be converted without loss.
        """
        import pyarrow as pa

        table = to_table(given)
        wanted = Schema.of(table.schema if schema is None else schema)
        if set(wanted.names) != set(table.column_names):
            raise SchemaError(
                f"expected the columns {', '.join(wanted.names)},"
                f" got {', '.join(table.column_names)}"
            )
        columns = [convert(table.column(field.name), field) for field in wanted.fields]
        return cls(wanted, pa.RecordBatch.from_arrays(columns, schema=wanted.to_arrow()))

    def __len__(self) -> int:
        return int(self.arrow.num_rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Batch):
            return NotImplemented
        return self.schema == other.schema and bool(self.arrow.equals(other.arrow))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Batch({len(self)} rows: {self.schema})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Batch, (self.schema, self.arrow)

    def __arrow_c_schema__(self) -> Any:
        return self.arrow.schema.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self.arrow.__arrow_c_array__(requested_schema)

    def column(self, name: str) -> Any:
        """One column as a pyarrow array; objects are pickled."""
        if name not in self.schema:
            raise KeyError(f'no column "{name}"; the batch has {", ".join(self.schema.names)}')
        return self.arrow.column(self.schema.index(name))

    def rows(self) -> list[Any]:
        """The records: objects of the schema's dataclass, or with the columns as attributes."""
        return records_of(self.arrow, self.schema)

    def to_arrow(self) -> Any:
        """The pyarrow RecordBatch itself."""
        return self.arrow

    def to_pandas(self) -> Any:
        """A pandas DataFrame. It copies the memory, since a DataFrame can be changed in place."""
        return self.arrow.to_pandas()

    def to_polars(self) -> Any:
        """A polars DataFrame."""
        import polars

        return polars.from_arrow(self.arrow)


def to_table(given: Any) -> Any:
    """Anything with Arrow data as a pyarrow Table; memory is shared where the giver can."""
    import pyarrow as pa

    if isinstance(given, pa.Table):
        return given
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    if type(given).__module__.split(".")[0] == "pandas":
        return pa.Table.from_pandas(given, preserve_index=False)
    if hasattr(given, "__arrow_c_stream__") or hasattr(given, "__arrow_c_array__"):
        return pa.table(given)
    raise SchemaError(
        f"cannot make a batch of {type(given).__name__}; give a pyarrow, pandas or polars table, "
        "or anything with __arrow_c_stream__ or __arrow_c_array__"
    )


def convert(column: Any, field: Field) -> Any:
    """A chunked column as one array of the field's Arrow type; the same memory if it has it."""
    import pyarrow as pa

    wanted = arrow_type(field.type)
    whole = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        raise SchemaError(f'column "{field.name}": more than 2 GiB; make several batches of it')
    if whole.null_count and not field.nullable:
        raise SchemaError(
            f'column "{field.name}": {whole.null_count} nulls, but the column is not nullable'
        )
    if pa.types.is_dictionary(whole.type):
        whole = whole.dictionary_decode()
    if whole.type == wanted:
        return whole
    if field.type is Type.OBJECT:
        try:
            values = [None if v is None else value_of(v, field) for v in whole.to_pylist()]
        except ValueError as error:
            raise SchemaError(str(error)) from None
        return pa.array([None if v is None else pack_object(v) for v in values], wanted)
    if field.type is Type.TIMESTAMP and pa.types.is_date(whole.type):
        whole = whole.cast(pa.timestamp("us"))
    try:
        return whole.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f'column "{field.name}": {whole.type} does not become {field.type.value}: {error}'
        ) from None
