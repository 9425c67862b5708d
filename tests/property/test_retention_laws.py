"""Retention against its laws, on any history of attempts, checkpoints, crashes and savepoints."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from plait.checkpoints.manifests import ManifestId
from plait.checkpoints.paths import (
    Contents,
    chain,
    choice_path,
    chunk_path,
    claim_path,
    manifest_path,
    part_path,
)
from plait.checkpoints.retention import Kept, age, plan_deletions


class History:
    """A folder as runs leave it: every step of an attempt may be its last, and an attempt that was
    fenced may still write."""

    def __init__(self) -> None:
        self.contents = Contents()
        self.needs: dict[ManifestId, frozenset[str]] = {}
        self.savepoints: list[Kept] = []
        self.counter = 0

    def add_chunk(self, attempt: int, number: int) -> str:
        self.counter += 1
        path = chunk_path(attempt, number, 0, 0, f"{self.counter:08x}")
        self.contents.chunks[path] = ManifestId(number, attempt)
        return path

    def add_part(self, attempt: int, number: int) -> str:
        self.counter += 1
        path = part_path(attempt, number, 0, f"{self.counter:08x}")
        self.contents.parts[path] = ManifestId(number, attempt)
        return path


@st.composite
def histories(draw: st.DrawFn) -> History:
    history = History()
    contents = history.contents
    for attempt in range(1, draw(st.integers(1, 4)) + 1):
        contents.claims[claim_path(attempt)] = attempt
        if draw(st.booleans()) and attempt > 1:
            continue  # crashed before it chose
        there = chain(contents)
        start = draw(st.sampled_from(there)) if there else None
        contents.choices[attempt] = start
        number = start.number if start else 0
        chunks = {path for path in history.needs.get(start, ()) if path.startswith("chunks")}  # type: ignore[arg-type]
        for _ in range(draw(st.integers(0, 4))):
            number += 1
            again = {path for path in sorted(chunks) if draw(st.booleans())}
            new = {history.add_chunk(attempt, number) for _ in range(draw(st.integers(0, 2)))}
            step = draw(st.sampled_from(("chunks", "part", "sealed", "sealed", "savepoint")))
            if step == "chunks":
                continue
            part = history.add_part(attempt, number)
            if step == "part":
                continue
            chunks = again | new
            id = ManifestId(number, attempt)
            contents.manifests[id] = manifest_path(id)
            history.needs[id] = frozenset((part, *chunks))
            if step == "savepoint":
                history.savepoints.append(Kept(id=id, files=history.needs[id]))
    return history


def kept_of(history: History, keep: int) -> list[Kept]:
    ids = chain(history.contents)[:keep]
    return [Kept(id=id, files=history.needs[id]) for id in ids]


@given(histories(), st.integers(1, 4))
def test_what_is_needed_stays(history: History, keep: int) -> None:
    contents = history.contents
    kept = kept_of(history, keep)
    doomed = set(plan_deletions(contents, kept, history.savepoints).paths)
    for each in (*kept, *history.savepoints):
        assert not doomed & each.files
    for each in kept:
        assert manifest_path(each.id) not in doomed
    assert not any("savepoints" in path for path in doomed)
    if not kept:
        assert not doomed
        return
    newest = kept[0].id
    for path, id in (*contents.parts.items(), *contents.chunks.items()):
        if age(id) > age(newest):
            assert path not in doomed, "it may be of a checkpoint that is being written"
    assert claim_path(contents.attempt) not in doomed


@given(histories(), st.integers(1, 4))
def test_all_else_goes(history: History, keep: int) -> None:
    """Chunks of abandoned checkpoints and of older attempts too."""
    contents = history.contents
    kept = kept_of(history, keep)
    if not kept:
        return
    doomed = set(plan_deletions(contents, kept, history.savepoints).paths)
    needed = frozenset().union(*(each.files for each in (*kept, *history.savepoints)))
    newest = age(kept[0].id)
    for path, id in (*contents.parts.items(), *contents.chunks.items()):
        if age(id) <= newest and path not in needed:
            assert path in doomed
    for id, path in contents.manifests.items():
        if age(id) < newest and id not in {each.id for each in kept}:
            assert path in doomed


@given(histories(), st.integers(1, 4), st.data())
def test_it_may_stop_anywhere_and_go_on(history: History, keep: int, data: st.DataObject) -> None:
    """After any number of deletions every manifest that is left has all it names, the chain is the
    same as far as it is kept, and the next time deletes what is left over."""
    contents = history.contents
    kept = kept_of(history, keep)
    order = plan_deletions(contents, kept, history.savepoints).paths
    done = frozenset(order[: data.draw(st.integers(0, len(order)))])
    left = without(contents, done)
    for id in left.manifests:
        assert not history.needs[id] & done
    assert chain(left)[: len(kept)] == [each.id for each in kept]
    again = plan_deletions(left, kept, history.savepoints).paths
    assert set(again) == set(order) - done


def without(contents: Contents, done: frozenset[str]) -> Contents:
    return Contents(
        claims={path: at for path, at in contents.claims.items() if path not in done},
        choices={
            at: start
            for at, start in contents.choices.items()
            if choice_path(at, start) not in done
        },
        manifests={id: path for id, path in contents.manifests.items() if path not in done},
        parts={path: id for path, id in contents.parts.items() if path not in done},
        chunks={path: id for path, id in contents.chunks.items() if path not in done},
    )


@given(histories())
def test_the_chain_is_one_history(history: History) -> None:
    """Numbers and attempts fall along it, and each manifest was there when the next attempt
    chose."""
    contents = history.contents
    found = chain(contents)
    for newer, older in itertools.pairwise(found):
        assert newer.number > older.number
        assert newer.attempt >= older.attempt
        if newer.attempt > older.attempt:
            assert contents.choices[newer.attempt] == older
