"""The state of a process by itself: its bins come and go with their timers, and what it forgets."""

from __future__ import annotations

import datetime
import random
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from plait.errors import JobError, StateError
from plait.functions.process import Process
from plait.graph.operators import TimedOp
from plait.model.key_hash import bin_of
from plait.model.schema import Schema
from plait.node_runtime.native._batch import NativeBatch
from plait.node_runtime.state.processes import ProcessPython
from plait.node_runtime.state.timers import ALL_TIME, AT_ONCE, EVENT
from plait.testing.check import graph_of
from tests.unit.node_runtime.state.process_jobs import (
    BEGIN,
    CLOCK,
    OUT,
    SECOND,
    Restless,
    Seen,
    given,
    rows,
    watched,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


def state_of(process: Process, keys: tuple[str, ...] = ("k",)) -> ProcessPython:
    graph, _ = graph_of(lambda stream: stream.key_by(*keys).process(process), given(1, 1), CLOCK)
    node = next(node for node in graph.operators if isinstance(node, TimedOp))
    return ProcessPython(node, graph.operators[node.inputs[0]].schema, bin_bits=4)


def unit(records: list[dict[str, Any]]) -> NativeBatch:
    import pyarrow as pa

    schema = Schema.of({"k": str, "v": int, "ts": datetime.datetime})
    return NativeBatch.from_arrow(
        pa.RecordBatch.from_pylist(records, schema=schema.to_arrow()), schema
    )


def micros(time: datetime.datetime) -> int:
    return (time - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // (SECOND / 1_000_000)


@pytest.mark.parametrize("process", [watched(), Restless()])
def test_bins_that_come_and_go_take_their_timers_along(process: Process) -> None:
    """Rows of all units in their order, whoever had the bins."""
    draw = random.Random(5)
    alone, states = state_of(process), [state_of(process), state_of(process)]
    records = rows(200, 12, keys=20)
    parts = [records[i : i + 10] for i in range(0, len(records), 10)]
    owners = dict.fromkeys(range(16), 0)
    reached = AT_ONCE
    for number, part in enumerate([*parts, []]):
        late = ALL_TIME if not part else micros(part[0]["ts"] - 5 * SECOND)
        right = alone(unit(part), number << 26, None, [reached] * len(part), late)
        made: list[Any] = []
        for mine, state in enumerate(states):
            bins = [owners[bin_of((record["k"],), alone.types, 4)] for record in part]
            chosen = [row for row, owner in enumerate(bins) if owner == mine]
            batch = unit([part[row] for row in chosen])
            result = state(batch, number << 26, chosen, [reached] * len(chosen), late)
            orders = result.rows.orders()
            made += zip(orders, table_of(result.rows, process), strict=True)
        made.sort(key=lambda pair: pair[0])  # stable: rows of equal order are of one state
        orders = right.rows.orders()
        assert orders == sorted(orders)
        assert made == list(zip(orders, table_of(right.rows, process), strict=True))
        for bin in draw.sample(range(16), 3):
            source, target = states[owners[bin]], states[1 - owners[bin]]
            assert target.put_bin(source.take_bin(bin)) == bin
            owners[bin] = 1 - owners[bin]
        assert alone.heaps[EVENT].next() == min(state.heaps[EVENT].next() for state in states)
    assert alone.key_count() == sum(state.key_count() for state in states)


def table_of(made: Any, process: Process) -> list[Any]:
    rows: list[Any] = made.finish().to_arrow(Schema.of(process.out)).to_pylist()
    return rows


class Forgetful(Process):
    """Forgets a key when its timer fires."""

    state: ClassVar[Mapping[str, Any]] = {"last": float, "names": list[str]}
    out: ClassVar[Any] = OUT

    def on_record(self, key: Any, record: Any, state: Any, timers: Any) -> None:
        state.last = -0.0 if record.v == 0 else 1.0
        timers.at(record.ts)

    def on_timer(self, key: Any, time: Any, state: Any, timers: Any) -> None:
        if state.last == 1.0:
            state.clear()


def test_a_key_that_is_as_if_it_had_never_been_takes_no_memory() -> None:
    state = state_of(Forgetful())
    records = [{"k": str(i), "v": i % 5, "ts": BEGIN} for i in range(100)]
    state(unit(records), 0, None, [AT_ONCE] * len(records), AT_ONCE)
    assert (state.key_count(), state.heaps[EVENT].next()) == (100, micros(BEGIN))
    state(unit([]), 1 << 26, None, [], micros(BEGIN))
    assert (state.key_count(), state.heaps[EVENT].next()) == (20, ALL_TIME)  # -0.0 is not as before
    assert len(state.copy_bin(state.bins()[0])) < 600


def test_timers_of_bins_that_went_are_forgotten() -> None:
    state = state_of(Forgetful())
    records = [{"k": str(i), "v": 1, "ts": BEGIN} for i in range(5000)]
    state(unit(records), 0, None, [AT_ONCE] * len(records), AT_ONCE)
    for bin in range(1, 16):
        state.take_bin(bin)
    assert len(state.heaps[EVENT].heap) < 2000
    assert state.heaps[EVENT].pending == state.key_count() == state.bin_keys(0) > 0


def test_state_of_another_process_is_refused() -> None:
    state = state_of(Forgetful())
    state(unit(rows(5, 1)), 0, None, [AT_ONCE] * 5, AT_ONCE)
    data = state.copy_bin(state.bins()[0])
    with pytest.raises(StateError, match="another operator"):
        state_of(Restless()).put_bin(data)
    with pytest.raises(StateError, match="another operator"):
        state_of(Forgetful(), ("k", "v")).put_bin(data)
    with pytest.raises(StateError, match="has state here already"):
        state.put_bin(data)


def test_objects_are_no_keys() -> None:
    graph, _ = graph_of(lambda stream: stream.key_by("k").process(Seen()), given(1, 1), CLOCK)
    node = next(node for node in graph.operators if isinstance(node, TimedOp))
    schema = Schema.of({"k": Any, "v": int, "ts": datetime.datetime})
    with pytest.raises(JobError, match="cannot be keys"):
        ProcessPython(node, schema, bin_bits=4)
