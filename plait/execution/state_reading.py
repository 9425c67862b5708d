"""Reads the state in a checkpoint: what is kept under which key, without running the job.

State of the engine (aggregates, windows, joins) is read by the operator that wrote it, made anew
from what the manifest says of it. State of Python functions is unpickled, which runs code: read
only folders that you trust, or sign them with PLAIT_CHECKPOINT_KEY.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from plait.checkpoints.folder_reader import FolderReader
from plait.checkpoints.manifests import StateShape
from plait.checkpoints.paths import job_of
from plait.checkpoints.store import LocalStore, open_store
from plait.errors import StateError
from plait.node_runtime.state.bin_bytes import MAGIC
from plait.node_runtime.state.saved_bins import NATIVE, native_rows, python_states, split_time
from plait.node_runtime.state.timers import Kept

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plait.checkpoints.manifests import Manifest

VALUE = "value"
"""The column of a state that is one value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BinState:
    """What one bin of an operator holds: rows of keys and values. `unread`: its bytes are of a
    checkpoint that does not say how they are read."""

    operator: str
    bin: int
    size_bytes: int
    keys: Sequence[str] = ()
    """The names of the key columns."""
    rows: list[tuple[tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)
    """Key and values, by name."""
    unread: bool = False
    types: dict[str, Any] = field(default_factory=dict)
    """The Arrow types of the columns, where they are known."""


def read_state(
    url: str | os.PathLike[str],
    job: str | None = None,
    *,
    start: int | str | None = None,
    operator: str | None = None,
) -> Any:
    """The state in a checkpoint as a pyarrow Table, a row for each key: operator, bin, key and
    value (as Python shows them), and size_bytes, that of the bin.

    Given an `operator` it is the state of that one, with a column for each key and each value: of
    an aggregate its results, of windows and sessions what they would give now, of a join the
    records that wait, with their side (0 is the left one) and time.

    >>> job = plait.Job("totals")
    >>> source = plait.testing.Feed({"user": str})
    >>> _ = job.source(source).key_by("user").count().named("seen").sink(plait.Discard())
    >>> running = plait.start(job, checkpoint="ckpt")
    >>> source.push([("ann",), ("bob",), ("ann",)])
    >>> while running.engine.records_read() < 3:
    ...     pass
    >>> running.stop()
    >>> _ = running.wait()
    >>> plait.read_state("ckpt", operator="seen").sort_by("user").to_pydict()
    {'bin': [428, 611], 'user': ['ann', 'bob'], 'count': [2, 1]}

    Args:
        url: what `checkpoint=` was given.
        job: the name of the job; it can be left out if the folder has one.
        start: the number of a checkpoint, or the name of a savepoint; by default the newest.
        operator: the id of an operator: its name, or as in the column `operator`.
    """
    import pyarrow as pa

    folder = open_folder(url, job)
    manifest = choose(folder, start)
    if operator is not None:
        return table_of(folder, manifest, operator)
    rows = [
        {"operator": each.operator, "bin": each.bin, "size_bytes": each.size_bytes}
        | {"key": key, "value": value}
        for each in states_of(folder, manifest)
        for key, value in shown(each)
    ]
    types = {"operator": "string", "bin": "int64", "key": "string", "value": "string"}
    fields = [(name, pa.type_for_alias(kind)) for name, kind in types.items()]
    return pa.Table.from_pylist(rows, schema=pa.schema([*fields, ("size_bytes", pa.int64())]))


def table_of(folder: FolderReader, manifest: Manifest, operator: str) -> Any:
    """The state of one operator, in typed columns."""
    import pyarrow as pa

    known = [entry.id for entry in manifest.operators]
    if operator not in known:
        there = ", ".join(known) or "none"
        raise StateError(f"the checkpoint has no state of {operator!r}; it has: {there}")
    columns: dict[str, list[Any]] = {"bin": []}
    types: dict[str, Any] = {"bin": pa.int64()}
    for each in states_of(folder, manifest, operator):
        if each.unread:
            raise StateError(NOT_SAID.format(operator=operator))
        types |= each.types
        for key, values in each.rows:
            row = {"bin": each.bin} | dict(zip(each.keys, key, strict=True))
            for name, value in (row | values).items():
                columns.setdefault(name, []).append(value)
    made = {name: array_of(values, types.get(name)) for name, values in columns.items()}
    return pa.table(made)


NOT_SAID = (
    "{operator}: the checkpoint does not say how its state is read; it is of an older plait. Let"
    " the job go on and take a checkpoint"
)


def array_of(values: list[Any], kind: Any) -> Any:
    """A column; what Arrow has no type for is shown as Python shows it."""
    import pyarrow as pa

    if kind is not None:
        return pa.array(values, type=kind)
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return pa.array([repr(value) for value in values])


def open_folder(url: str | os.PathLike[str], job: str | None) -> FolderReader:
    """The folder of a job; without a name that of the only one."""
    store = open_store(os.fspath(url))
    if job is not None:
        return FolderReader(store, job)
    jobs = jobs_in(url)
    if len(jobs) != 1:
        there = ", ".join(jobs) or "none"
        raise StateError(f"{url} has checkpoints of these jobs: {there}; say which")
    return FolderReader(store, jobs[0])


def jobs_in(url: str | os.PathLike[str]) -> list[str]:
    """The names of the jobs that have checkpoints there."""
    store = open_store(os.fspath(url))
    if isinstance(store, LocalStore):
        root = store.root
        names = [path.name for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
    else:
        from pyarrow import fs

        top = fs.FileSelector(store.root, allow_not_found=True)  # type: ignore[attr-defined]
        found = store.system.get_file_info(top)  # type: ignore[attr-defined]
        names = [each.base_name for each in found if each.type == fs.FileType.Directory]
    return sorted(job_of(name) for name in names if not name.startswith("."))


def choose(folder: FolderReader, start: int | str | None) -> Manifest:
    if start is not None:
        return folder.read(start)
    found = folder.manifests()
    if not found:
        raise StateError(f"there is no checkpoint of job {folder.job!r} in {folder.store!r}")
    return folder.read(found[0].id)


def states_of(
    folder: FolderReader, manifest: Manifest, operator: str | None = None
) -> Iterator[BinState]:
    """What the bins of a checkpoint hold, of all operators or of one."""
    shapes = {entry.id: entry.shape for entry in manifest.operators}

    def is_wanted(id: str, _: int) -> bool:
        return operator is None or id == operator

    for id, bin, data in folder.read_bins(manifest, is_wanted):
        yield bin_state(id, bin, data, shapes.get(id), manifest.bin_bits)


def bin_state(id: str, bin: int, data: bytes, shape: StateShape | None, bits: int) -> BinState:
    if shape is None:
        shape = guessed(data)
    if shape is None:
        return BinState(operator=id, bin=bin, size_bytes=len(data), unread=True)
    if shape.holder in NATIVE:
        return native_state(id, bin, data, shape, bits)
    _, body = split_time(shape, data)
    states = python_states(body) if body else {}
    keys = shape.keys or tuple(f"key_{i}" for i in range(len(next(iter(states), ()))))
    rows = [(key, values_of(state)) for key, state in states.items()]
    return BinState(operator=id, bin=bin, size_bytes=len(data), keys=keys, rows=rows)


def native_state(id: str, bin: int, data: bytes, shape: StateShape, bits: int) -> BinState:
    batch = native_rows(shape, bits, bin, data)
    # The first column of a name is the key: the record of a join may have it again.
    first = {name: batch.schema.names.index(name) for name in batch.schema.names}
    columns = {name: batch.column(at).to_pylist() for name, at in first.items()}
    values = [name for name in first if name not in shape.keys]
    keys = list(zip(*(columns[name] for name in shape.keys), strict=True))
    return BinState(
        operator=id,
        bin=bin,
        size_bytes=len(data),
        keys=shape.keys,
        rows=[
            (key, {name: columns[name][row] for name in values})
            for row, key in enumerate(keys or [()] * batch.num_rows)
        ],
        types={name: batch.schema.field(at).type for name, at in first.items()},
    )


def guessed(data: bytes) -> StateShape | None:
    """Of a checkpoint that says nothing of its state: that of Python functions is known by its
    first bytes, that of a process by those behind what is known of time."""
    if data[:4] == MAGIC["whole"]:
        return StateShape(holder="keyed")
    at = 16 + int.from_bytes(data[8:16], "little")
    return StateShape(holder="process") if data[at : at + 4] == MAGIC["whole"] else None


def values_of(state: Any) -> dict[str, Any]:
    """A state by names: that of a process has them, another one is a value."""
    return dict(state.values) if isinstance(state, Kept) else {VALUE: state}


def shown(state: BinState) -> list[tuple[str | None, str | None]]:
    """Key and value of each row, as Python shows them."""
    if state.unread:
        return [(None, None)]
    return [(repr(user_key(key)), repr(user_value(values))) for key, values in state.rows]


def user_key(key: tuple[Any, ...]) -> Any:
    return key[0] if len(key) == 1 else key


def user_value(values: dict[str, Any]) -> Any:
    if list(values) == [VALUE]:
        return values[VALUE]
    return {name: str(v) if isinstance(v, datetime) else v for name, v in values.items()}
