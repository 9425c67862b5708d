"""Operators that run a user's Python function on one batch at a time.

`compile_call` makes a callable from an operator once; calling it with a batch gives the rows that
came out, the input row each came from, and the rows that failed. It holds nothing that changes, so
worker threads may share it. A row that fails leaves no trace in the output; with `stop_at_first`
(the policy "fail") nothing after the first failing row is computed. What is not an Exception
(SystemExit) fails no row: it ends the run. `node_runtime.state` has the functions with state."""

from __future__ import annotations

import inspect
import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, assert_never

from plait.errors import JobError
from plait.model.records import Misfit, TooMuchText
from plait.model.schema import Type
from plait.node_runtime.functions.retries import again_of
from plait.node_runtime.native._batch import NativeBatch
from plait.node_runtime.native._calls import (
    WHOLE_BATCH,
    ColumnCall,
    assemble,
    call_columns,
    filter_rows,
    flat_map_rows,
    map_rows,
    misfit_of,
    reached,
    select_rows,
)
from plait.node_runtime.native._records import Shape, place

if TYPE_CHECKING:
    from plait.graph.operators import CallOp
    from plait.model.schema import Schema

Failures = list[tuple[int, BaseException]]
MOST_TEXT = 2**31 - 1
"""Bytes that a column of texts may take in a batch."""
TEXTS = (Type.STRING, Type.BYTES, Type.OBJECT)
RECORDS_AT_ONCE = 256
"""So many records are made at a time: if those of a large batch were, all would still be there when
the garbage collector looks, which then goes through all state again and again (1.6 times the time
of a fold in batches of 4,096)."""
NONE_WRONG = itertools.repeat(None)

T = TypeVar("T")


class CallResult(NamedTuple):
    """What became of a batch. `out` has the place in the order of the batch it was made from."""

    out: NativeBatch
    kept: array[int] | None
    """The input row of each output row, ascending; None: output row i is input row i, for all."""
    failures: Failures
    """(input row, error), ascending. `plait.model.records.error_text` gives the error's words."""


Operator = Callable[[NativeBatch], CallResult]


def compile_call(op: CallOp, in_schema: Schema, stop_at_first: bool | None = None) -> Operator:
    """What runs an operator; it stops at the first failure if the operator's policy does."""
    stop = op.on_error == "fail" if stop_at_first is None else stop_at_first
    match op.mode:
        case "map":
            return MapCall(op, in_schema, stop)
        case "filter":
            return FilterCall(op, in_schema, stop)
        case "flat_map":
            return FlatMapCall(op, in_schema, stop)
        case "columns":
            return ColumnsCall(op, in_schema, stop)
        case "batches":
            return BatchesCall(op, in_schema, stop)
        case "async":
            raise AssertionError(f"{op} is awaited: see async_call")
        case _:
            assert_never(op.mode)


class RowCall:
    """A function that is called with one record after the other."""

    def __init__(self, op: CallOp, schema: Schema, stop_at_first: bool) -> None:
        self.function = op.function
        self.given, self.out = Shape(schema), Shape(op.schema)
        self.stop_at_first = stop_at_first
        self.again = again_of(op.retrying)


class MapCall(RowCall):
    """record -> record."""

    def __call__(self, batch: NativeBatch) -> CallResult:
        given, out, stop = self.given, self.out, self.stop_at_first
        return CallResult(*map_rows(self.function, batch, given, out, stop, self.again))


class FlatMapCall(RowCall):
    """record -> iterable of records, all with the place of the record they came from."""

    def __call__(self, batch: NativeBatch) -> CallResult:
        given, out, stop = self.given, self.out, self.stop_at_first
        return CallResult(*flat_map_rows(self.function, batch, given, out, stop, self.again))


class FilterCall(RowCall):
    """record -> truth."""

    def __call__(self, batch: NativeBatch) -> CallResult:
        given, stop = self.given, self.stop_at_first
        kept, failures = filter_rows(self.function, batch, given, stop, self.again)
        if len(kept) == len(batch):
            return CallResult(batch, None, failures)
        return CallResult(select_rows(batch, kept), kept, failures)


class ColumnsCall:
    """Functions of columns: each adds a column or takes the place of one."""

    def __init__(self, op: CallOp, schema: Schema, stop_at_first: bool) -> None:
        self.stop_at_first = stop_at_first
        self.again = again_of(op.retrying)
        new = {name: i for i, (name, _) in enumerate(op.columns)}
        self.calls = [
            column_call(function, name, schema, op.schema) for name, function in op.columns
        ]
        self.sources = [
            -new[name] - 1 if name in new else schema.index(name) for name in op.schema.names
        ]
        self.order = [-source - 1 for source in self.sources if source < 0]

    def __call__(self, batch: NativeBatch) -> CallResult:
        stop = self.stop_at_first
        fresh, kept, failures = call_columns(self.calls, self.order, batch, stop, self.again)
        base = batch if kept is None else select_rows(batch, kept)
        return CallResult(assemble(self.sources, base, fresh), kept, failures)


def column_call(function: Callable[..., Any], name: str, schema: Schema, out: Schema) -> ColumnCall:
    """A function with the columns that its parameters name."""
    places: list[int] = []
    by_name: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        several = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if several or parameter.name not in schema:
            raise JobError(
                f'column "{name}": parameter "{parameter}" of its function names no column'
                f"\n  the stream has: {', '.join(schema.names)}"
            )
        places.append(schema.index(parameter.name))
        if parameter.kind is parameter.KEYWORD_ONLY:
            by_name.append(parameter.name)
    return ColumnCall(function, out[name], places, by_name)


class BatchesCall:
    """pyarrow.Table -> pyarrow.Table or RecordBatch. All rows of a batch share its fate.

    Output row n has the place of input row n, those beyond the last input row the place of that.
    """

    def __init__(self, op: CallOp, schema: Schema, stop_at_first: bool) -> None:
        self.function = op.function
        self.given, self.out = schema, op.schema
        self.nothing = Shape(op.schema)
        self.stop_at_first = stop_at_first
        self.again = again_of(op.retrying)

    def __call__(self, batch: NativeBatch) -> CallResult:
        import pyarrow as pa

        rows = len(batch)
        if not rows:
            return self.all_failed(batch, [])
        for tried in itertools.count():
            try:
                reached(WHOLE_BATCH)
                result = self.function(pa.Table.from_batches([batch.to_arrow(self.given)]))
                break
            except Exception as error:
                if self.again is None or isinstance(error, Misfit) or not self.again(tried):
                    return self.all_failed(batch, self.failures(rows, error))
        try:
            out = NativeBatch.from_arrow(fit(result, self.out), self.out)
        except Exception as error:  # what came may be anything
            return self.all_failed(batch, self.failures(rows, misfit_of(error)))
        if len(out) == rows:
            place(out, batch, None)
            return CallResult(out, None, [])
        kept = array("I", (min(n, rows - 1) for n in range(len(out))))
        place(out, batch, kept)
        return CallResult(out, kept, [])

    def failures(self, rows: int, error: BaseException) -> Failures:
        return [(row, error) for row in range(1 if self.stop_at_first else rows)]

    def all_failed(self, batch: NativeBatch, failures: Failures) -> CallResult:
        out, kept, _ = self.nothing.from_records(())
        place(out, batch, kept)
        return CallResult(out, kept, failures)


def fit(given: Any, schema: Schema) -> Any:
    """What a batch function returned, as one RecordBatch of the schema; any error is a misfit."""
    import pyarrow as pa

    table = given if isinstance(given, pa.Table) else pa.Table.from_batches([given])
    wanted = schema.to_arrow()
    if set(table.column_names) != set(wanted.names):
        raise ValueError(
            f"expected the columns {', '.join(wanted.names)}, got {table.column_names}"
        )
    columns = []
    for field, arrow in zip(schema.fields, wanted, strict=True):
        column = table.column(field.name)
        if field.type in TEXTS and column.nbytes > MOST_TEXT:
            raise TooMuchText(
                f'column "{field.name}": more than 2 GiB in one unit; give the source a smaller'
                " epoch_records=, or make fewer or shorter texts of a record"
            )
        if column.type != arrow.type:
            column = column.cast(arrow.type)
        if column.null_count and not field.nullable:
            raise ValueError(f'column "{field.name}": expected {field.type.value}, got None')
        columns.append(column.combine_chunks())
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def in_parts(
    rows: Sequence[int],
    made: Callable[[Sequence[int]], Iterable[T]],
    failed: Callable[[int, Exception], T],
) -> Iterator[T]:
    """What is made of each row, of some of them at once; where that fails one by one, and of a row
    of which nothing can be made what `failed` says."""
    for start in range(0, len(rows), RECORDS_AT_ONCE):
        part = rows[start : start + RECORDS_AT_ONCE]
        try:
            found = made(part)
        except Exception:  # one of the rows
            for row in part:
                try:
                    (one,) = made((row,))
                except Exception as error:
                    one = failed(row, error)
                yield one
        else:
            yield from found


def ends_run(error: BaseException) -> bool:
    """Whether it is no matter of one record."""
    return not isinstance(error, Exception)
