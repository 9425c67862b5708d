"""Random jobs that crash at random moments and go on: as if nothing had happened.

Whatever the state, the sinks, the moment of the crash, and the workers, lanes, queues and epochs of
the next attempt: output, dead letters and counts are those of one sequential run.
"""

from __future__ import annotations

import dataclasses
import datetime
import itertools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import plait
from plait.checkpoints.cuts import Script
from plait.errors import PlaitError
from plait.execution import checkpointing
from plait.execution.checkpointing import Checkpointing
from plait.graph import checkpoint_rules as rules
from plait.node_runtime.host import choosing, endpoints
from plait.node_runtime.host.committing import Committer, commit_sinks
from plait.node_runtime.host.saving import Saver, add
from plait.node_runtime.state.late_saves import LateSaves
from plait.results.failures import Letters
from plait.testing import Capture, Rows
from plait.testing.random_jobs import graphs, timed_graphs
from tests.property.checkpoints.crashing import BIN_BITS, Attempt, attempts, survive, survive_with
from tests.property.pooled_jobs import has_state, pooled
from tests.property.pooled_jobs import run_settings as pool_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.checkpoints.manifests import Manifest, SourceEntry
    from plait.graph.operators import Graph

START = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)

slow = settings(
    max_examples=2 * settings().max_examples,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


few = settings(slow, max_examples=max(1, settings().max_examples // 4))
in_total_order = graphs(max_rows=40).filter(lambda graph: len(graph.sources) == 1)


deciding = st.integers(0, 3)
committing = st.lists(st.booleans(), max_size=3)


@slow
@given(graph=graphs(max_rows=40), plan=attempts(), deciders=deciding, commits=committing)
def test_any_job(graph: Graph, plan: list[Attempt], deciders: int, commits: list[bool]) -> None:
    survive(graph, plan, deciders=deciders, commits=commits)


@slow
@given(graph=timed_graphs(max_rows=40), plan=attempts(), deciders=deciding, commits=committing)
def test_any_timed_job(
    graph: Graph, plan: list[Attempt], deciders: int, commits: list[bool]
) -> None:
    survive(graph, plan, deciders=deciders, commits=commits)


def in_pool() -> Any:
    return st.tuples(pool_settings(), st.sampled_from(BIN_BITS)).map(
        lambda found: {**without_timeout(found[0]), "bin_bits": found[1]}
    )


def without_timeout(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name != "timeout"}


@few
@given(
    graph=st.one_of(
        graphs(max_rows=40).filter(has_state), timed_graphs(max_rows=40).filter(has_state)
    ),
    plan=attempts(in_pool, most=2),
)
def test_state_in_worker_processes(graph: Graph, plan: list[Attempt]) -> None:
    survive(pooled(graph), plan)


@few
@given(graph=in_total_order, plan=attempts(), kind=st.sampled_from(["parquet", "collect"]))
def test_real_sinks(graph: Graph, plan: list[Attempt], kind: str) -> None:
    """Files, and rows that are kept in memory: those of all attempts are in the last result."""
    survive_with(graph, plan, kind)


def small_job() -> Graph:
    """Two sinks, state of three kinds, and dead letters all along."""
    job = plait.Job("small")
    rows = [(i % 3, i, START + datetime.timedelta(seconds=i)) for i in range(24)]
    source = Rows({"k": int, "v": int, "ts": datetime.datetime}, rows)
    events = job.source(source, event_time="ts").filter(
        lambda row: 1 // (row.v % 5) >= 0, on_error="dead_letter"
    )
    events.key_by("k").aggregate(n=plait.count(), total=plait.sum("v")).sink(Capture(), "totals")
    windows = events.key_by("k").window(plait.Tumbling("5s")).aggregate(n=plait.count())
    windows.key_by("k").fold(0, lambda state, row: state + row.n, type=int).sink(
        Capture(), "folded"
    )
    return job.graph()


def crash_everywhere(*, deciders: int = 0, commits: tuple[bool, ...] = ()) -> int:
    """A crash at each event there is, and a second attempt with other settings; how many."""
    first = {"workers": 2, "epoch_records": 2, "bin_bits": 3}
    second = {"workers": 1, "epoch_records": 3, "bin_bits": 5, "lanes": 2}
    for event in itertools.count():
        crashing = Attempt(settings=first, gates=(7, 12, 19), crash_at=event, busy=True, ticks=2)
        ending = Attempt(settings=second, gates=(15,))
        world = survive(small_job(), [crashing, ending], deciders=deciders, commits=commits)
        if not any("crashed at" in told for told in world.story):
            return event
    raise AssertionError


@pytest.mark.parametrize(
    ("deciders", "commits"),
    [(0, ()), (1, ()), (2, ()), (1, (True,)), (2, (True, True)), (2, (False, True))],
)
def test_a_crash_at_every_event(deciders: int, commits: tuple[bool, ...]) -> None:
    assert crash_everywhere(deciders=deciders, commits=commits) > 40


def commit_before_seal(patch: pytest.MonkeyPatch) -> None:
    make_safe = Checkpointing.make_safe

    def too_early(self: Checkpointing, manifest: Manifest, seconds: float) -> None:
        self.commit(manifest.epoch)
        make_safe(self, manifest, seconds)

    patch.setattr(Checkpointing, "make_safe", too_early)


def positions_too_early(patch: pytest.MonkeyPatch) -> None:
    sources_at = Saver.sources_at

    def one_row_less(self: Saver, item: Any) -> tuple[SourceEntry, ...]:
        return tuple(
            dataclasses.replace(one, position=[one.position[0] - 1, one.position[1]])
            if one.position and one.position[0]
            else one
            for one in sources_at(self, item)
        )

    patch.setattr(Saver, "sources_at", one_row_less)


def counts_of_both_sets(patch: pytest.MonkeyPatch) -> None:
    def all_counts(self: Saver) -> dict[str, tuple[int, ...]]:
        return {id: self.total(op) for op, id in enumerate(self.ids)}

    patch.setattr(Saver, "counts_at_mark", all_counts)


def counts_of_the_last_interval(patch: pytest.MonkeyPatch) -> None:
    def closed(self: Saver) -> dict[str, tuple[int, ...]]:
        now = {id: tuple(self.parts.engine.closed_counts(op)) for op, id in enumerate(self.ids)}
        return {id: add(now[id], self.base.get(id, ())) for id in self.ids}

    patch.setattr(Saver, "counts_at_mark", closed)


def letters_too_early(patch: pytest.MonkeyPatch) -> None:
    mark = Letters.mark

    def all_letters(self: Letters, boundary: int) -> None:
        self.pending = [((-1, *place[1:]), letter) for place, letter in self.pending]
        mark(self, boundary)

    patch.setattr(Letters, "mark", all_letters)


def state_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("plait.execution.checkpointing.put_bins", lambda *given: 0)


def python_state_of_later(patch: pytest.MonkeyPatch) -> None:
    def not_put_by(self: LateSaves, key: Any, part: Any) -> None:
        self.changed.add(id(part))

    patch.setattr(LateSaves, "touch", not_put_by)


def script_of_the_interval_before(patch: pytest.MonkeyPatch) -> None:
    def too_early(self: Script, ids: list[str]) -> list[list[int]]:
        moved = {
            id: dataclasses.replace(cuts, rows=(*cuts.rows[1:], *cuts.rows[:1]))
            for id, cuts in self.cuts.items()
        }
        return [moved[id].as_log() if id in moved else [0] for id in ids]

    patch.setattr(Script, "logs", too_early)


def no_script(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Script, "logs", lambda self, ids: [[0] for _ in ids])


def suppress_by_rows(patch: pytest.MonkeyPatch) -> None:
    """Nothing is left out by boundary."""
    open_sink = endpoints.open_sink

    def opened(*given: Any) -> Any:
        return dataclasses.replace(open_sink(*given), delivered_before=0)

    patch.setattr(endpoints, "open_sink", opened)


def notes_outside_the_transaction(patch: pytest.MonkeyPatch) -> None:
    """They come to the sink with the commit after."""
    notes = Committer.notes
    late = [b""]

    def of_the_commit_before(self: Committer, boundary: int) -> bytes:
        late.append(notes(self, boundary))
        return late[-2]

    patch.setattr(Committer, "notes", of_the_commit_before)


def followers_first(patch: pytest.MonkeyPatch) -> None:
    def in_turn(committer: Any, graph: Graph, writers: dict[int, Any], boundary: int) -> None:
        first = rules.deciders(graph)
        for op in (op for op in writers if op not in first):
            writers[op].commit(boundary)
        commit_sinks(committer, graph, {op: writers[op] for op in first}, boundary)

    patch.setattr("plait.node_runtime.host.saving.commit_sinks", in_turn)


def newest_checkpoint_whatever_the_sinks_say(patch: pytest.MonkeyPatch) -> None:
    choose = choosing.choose_manifest

    def newest(graph: Graph, ids: Any, folder: Any, start: str = "") -> Any:
        found = choose(graph, ids, folder, start)
        there = folder.manifests()
        if not there:
            return found
        return dataclasses.replace(found, manifest=folder.read(there[0].id), script=None)

    patch.setattr(checkpointing, "choose_manifest", newest)


BUGS = [
    commit_before_seal,
    positions_too_early,
    counts_of_both_sets,
    counts_of_the_last_interval,
    letters_too_early,
    state_forgotten,
    python_state_of_later,
]


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_found(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    with pytest.raises((AssertionError, PlaitError)):
        crash_everywhere()


@pytest.mark.parametrize(
    ("bug", "deciders", "commits"),
    [
        (commit_before_seal, 2, ()),
        (script_of_the_interval_before, 2, ()),
        (no_script, 1, (True,)),
        (suppress_by_rows, 1, (True,)),
        (notes_outside_the_transaction, 1, (True,)),
        (followers_first, 1, ()),
        (newest_checkpoint_whatever_the_sinks_say, 2, ()),
    ],
)
def test_planted_bugs_in_what_is_repeated_are_found(
    bug: Callable[[pytest.MonkeyPatch], None],
    deciders: int,
    commits: tuple[bool, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bug(monkeypatch)
    with pytest.raises((AssertionError, PlaitError)):
        crash_everywhere(deciders=deciders, commits=commits)
