"""Plain Python functions in worker processes: the same answer, the same errors, whatever dies."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait.testing import sequential
from plait.testing.check import compare_accounts, compare_letters, rows_of_arrow
from tests.unit.node_runtime.pool.pool_jobs import (
    CHAINS,
    DEADLY,
    ENDINGS,
    deadly_table,
    endless,
    job_of,
    leaves,
    odd,
    often_deadly,
    same,
    very_picky,
)
from tests.unit.node_runtime.pool.pool_runs import (
    kill_and_go_on,
    leaves_nothing_when_killed,
    no_process_left,
    start_gated,
    wait_for,
)

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["no_process_left"]

SETTINGS: dict[str, Any] = {"epoch_records": 32, "workers": 2, "pool": 2, "timeout": 60}


@pytest.mark.parametrize("chain", CHAINS)
def test_the_pool_gives_what_the_plain_loop_gives(chain: str) -> None:
    job = job_of(CHAINS[chain], "pool")
    result = plait.run(job, **SETTINGS)
    wanted = sequential(job.graph(), epoch_records=SETTINGS["epoch_records"])
    assert rows_of_arrow(result.outputs["out"], wanted.schemas["out"]) == wanted.outputs["out"]
    compare_accounts(chain, result, wanted)
    compare_letters(chain, result.dead_letters, wanted.dead_letters)
    assert all(words.startswith("pool of 2") for words in result.routes.values())


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_error_reads_as_it_does_inline(ending: str) -> None:
    told: dict[str, BaseException] = {}
    for route in ("inline", "pool"):
        with pytest.raises(plait.RecordError) as raised:
            plait.run(job_of(ENDINGS[ending], route), **SETTINGS)
        told[route] = raised.value
    inline, pool = told["inline"], told["pool"]
    assert str(pool) == str(inline)
    fields = ("operator", "at", "source", "row", "record")
    for name in fields:
        assert getattr(pool, name) == getattr(inline, name)
    assert type(pool.__cause__).__name__ in (type(inline.__cause__).__name__, "WorkerError")
    assert "raised in a worker process" in pool.__cause__.__notes__[-1]  # type: ignore[union-attr]


@pytest.mark.usefixtures("many_descriptors")
def test_many_files_may_be_open() -> None:
    result = plait.run(job_of(lambda s, _: DEADLY["map"](s, "skip"), "pool"), **SETTINGS)
    assert result.account.skipped == 2


def test_what_leaves_the_interpreter_ends_the_run() -> None:
    for route in ("inline", "pool"):
        with pytest.raises(SystemExit):
            plait.run(job_of(lambda s, r: s.map(leaves, route=r), route), **SETTINGS)


KILLED = "the worker process was killed by SIGKILL on this record, 3 times"


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
@pytest.mark.parametrize("chain", DEADLY)
def test_records_that_kill_their_process(chain: str, policy: Any) -> None:
    """They fail alone, as if the function had raised."""
    job = job_of(lambda s, _: DEADLY[chain](s, policy), "pool")
    harmless = job_of(
        lambda s, _: DEADLY[chain](s.filter(~plait.col("n").is_in([300, 310])), policy), "pool"
    )
    result = plait.run(job, **SETTINGS)
    wanted = sequential(harmless.graph(), epoch_records=SETTINGS["epoch_records"])
    assert rows_of_arrow(result.outputs["out"], wanted.schemas["out"]) == wanted.outputs["out"]
    failed = [300, 300, 310, 310] if chain == "behind others" else [300, 310]
    account = result.account
    assert account.skipped + account.dead_lettered == len(failed)
    if policy == "dead_letter":
        assert [letter.row - 1 for letter in result.dead_letters] == failed
        assert [letter.record.n for letter in result.dead_letters] == failed
        assert {letter.error for letter in result.dead_letters} == {KILLED}


@pytest.mark.parametrize("chain", DEADLY)
def test_a_record_that_kills_its_process_ends_the_run(chain: str) -> None:
    job = job_of(lambda s, _: DEADLY[chain](s, "fail"), "pool")
    with pytest.raises(plait.RecordError, match=KILLED) as raised:
        plait.run(job, **SETTINGS)
    assert raised.value.row == 301
    assert raised.value.record.n == 300


def test_a_table_that_kills_its_process() -> None:
    job = job_of(lambda s, r: s.map_batches(deadly_table, on_error="dead_letter", route=r), "pool")
    result = plait.run(job, **SETTINGS)
    assert result.outputs["out"]["n"].to_pylist() == [*range(288), *range(320, 500)]
    words = "the worker process was killed by SIGKILL on its batch, 3 times"
    assert [letter.row for letter in result.dead_letters] == list(range(289, 321))
    assert {letter.error for letter in result.dead_letters} == {words}


def test_more_deadly_records_than_are_named() -> None:
    """The rest of the batch goes with them."""
    job = job_of(lambda s, r: s.map(often_deadly, on_error="skip", route=r), "pool")
    result = plait.run(job, **SETTINGS)
    assert result.outputs["out"]["n"].to_pylist() == [*range(288), *range(320, 500)]
    assert result.account.skipped == 32


def test_a_function_that_hangs() -> None:
    job = job_of(lambda s, r: s.map(endless, on_error="skip", schema=s.schema, route=r), "pool")
    result = plait.run(job, **SETTINGS, pool_hang_s=0.2)
    assert result.outputs["out"]["n"].to_pylist() == [*range(300), *range(301, 500)]


def running(function: Any, route: Any, **settings: Any) -> tuple[Any, threading.Event]:
    return start_gated(lambda stream: stream.map(function, route=route), **settings)


@pytest.mark.parametrize("victim", ["worker", "zygote"])
def test_processes_that_are_killed_are_replaced(victim: str) -> None:
    run, enough = running(same, "pool", pool=2)
    kill_and_go_on(run.parts.pools.pool, victim)
    enough.set()
    result = run.wait()
    assert result.outputs["out"]["n"].to_pylist() == list(range(result.account.read))


def test_a_function_that_costs_enough_moves_to_the_pool_in_the_middle() -> None:
    run, enough = running(slow, "auto")
    (way,) = run.parts.pools.ways
    assert way.outside.here
    wait_for(lambda: not way.outside.here)
    wait_for(lambda: run.parts.pools.pool.native.batches > 5)
    enough.set()
    result = run.wait()
    assert result.outputs["out"]["n"].to_pylist() == list(range(result.account.read))
    (words,) = result.routes.values()
    assert words.startswith("pool of 2 worker processes after ")
    assert " us a record" in words


def slow(record: Any) -> Any:
    for _ in range(200):
        pass
    return record


def test_a_function_that_costs_little_stays() -> None:
    result = plait.run(job_of(lambda s, r: s.map(same, route=r), "auto"), workers=2)
    (words,) = result.routes.values()
    assert words.startswith("inline: 500 records in ")


def test_an_abort_does_not_wait_for_a_function() -> None:
    run, enough = running(endless, "pool", pool=2)
    wait_for(lambda: run.engine.records_read() > 300)
    run.abort()
    enough.set()
    with pytest.raises(plait.Interrupted):
        run.wait()


def test_what_cannot_be_sent_is_told_when_the_job_is_built() -> None:
    lock = threading.Lock()

    def held(record: Any) -> Any:
        with lock:
            return record

    stream = plait.stream([{"n": 1}])
    with pytest.raises(plait.JobError) as raised:
        stream.map(held, route="pool")
    words = str(raised.value)
    assert words.startswith("map at test_pool.py:")
    assert 'it holds "lock"' in words
    assert 'use route="inline"' in words
    with pytest.raises(plait.JobError, match="route is 'fast'"):
        stream.map(same, route="fast")  # type: ignore[arg-type]
    with pytest.raises(plait.JobError, match="route= is for Python functions"):
        stream.filter(plait.col("n") > 1, route="pool")
    with pytest.raises(plait.JobError, match="route= is for Python functions"):
        stream.with_columns(m=plait.col("n"), route="pool")


def test_a_function_that_does_not_load_there() -> None:
    class Fragile:
        """Pickles here, and refuses to load."""

        def __reduce__(self) -> Any:
            return refuse, ()

    fragile = Fragile()
    job = job_of(lambda s, r: s.map(lambda record: (fragile, record)[1], route=r), "pool")
    with pytest.raises(plait.JobError, match="cannot be loaded there: OSError: not here"):
        plait.run(job, **SETTINGS)


def refuse() -> Any:
    raise OSError("not here")


def test_nothing_is_left_when_the_parent_is_killed(tmp_path: Path) -> None:
    leaves_nothing_when_killed(tmp_path, "test_pool", "slow", batches=0)


def test_functions_on_both_routes_in_one_stage() -> None:
    def job(s: Any, route: str) -> Any:
        return (
            s.map(same, schema=s.schema, route=route)
            .filter(odd, route="inline")
            .map(very_picky, schema=s.schema, on_error="skip", route=route)
        )

    made = job_of(job, "pool")
    result = plait.run(made, **SETTINGS)
    wanted = sequential(made.graph(), epoch_records=SETTINGS["epoch_records"])
    assert rows_of_arrow(result.outputs["out"], wanted.schemas["out"]) == wanted.outputs["out"]
    assert len(result.routes) == 2
