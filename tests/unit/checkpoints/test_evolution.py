"""Another version of a job on an old checkpoint: what is restored, begins empty, or is refused."""

from __future__ import annotations

import pytest

from plait.checkpoints.evolution import compare_operators
from plait.checkpoints.manifests import OperatorEntry
from plait.errors import StateError

COUNT = OperatorEntry(id="count(user)", kind="aggregate", fingerprint="user: int64; count")
FOLD = OperatorEntry(id="spike", kind="fold", fingerprint="user: int64", functions=("step:aa",))
OTHER = OperatorEntry(id="sum(item)", kind="aggregate", fingerprint="item: string; sum")


def test_the_same_job_restores_everything() -> None:
    compared = compare_operators((COUNT, FOLD), (FOLD, COUNT))
    compared.check()
    assert set(compared.sources) == {"count(user)", "spike"}
    assert compared.told == ()


def test_a_new_operator_begins_empty() -> None:
    compared = compare_operators((COUNT,), (COUNT, OTHER))
    compared.check()
    assert compared.sources == {"count(user)": "count(user)"}
    assert compared.table() == (
        "operator     state\ncount(user)  restored\nsum(item)    new: begins empty"
    )


def test_one_that_is_gone_is_refused_unless_it_is_dropped() -> None:
    compared = compare_operators((COUNT, FOLD), (COUNT,))
    with pytest.raises(StateError, match=r'spike: the job has no such .* drop=\("spike",\)'):
        compared.check()
    compare_operators((COUNT, FOLD), (COUNT,), drop=("spike",)).check()
    told = compare_operators((COUNT,), (COUNT,), drop=("spice", COUNT.id))
    told.check()
    assert told.sources == {COUNT.id: COUNT.id}  # a job that is started again keeps its state
    assert told.told == (
        "drop: the state of count(user) is kept, since the job goes on with it",
        "drop: the checkpoint has no state of spice",
    )


@pytest.mark.parametrize(
    ("kind", "fingerprint", "words"),
    [
        ("fold", COUNT.fingerprint, "its kind was aggregate and is fold"),
        ("aggregate", "user: string; count", r"was \[user: int64; count\] and is \[user: string"),
    ],
)
def test_other_state_is_refused_in_words(kind: str, fingerprint: str, words: str) -> None:
    changed = OperatorEntry(id=COUNT.id, kind=kind, fingerprint=fingerprint)
    compared = compare_operators((COUNT,), (changed,))
    with pytest.raises(StateError, match=words):
        compared.check()
    assert "changed: refused" in compared.table()
    dropped = compare_operators((COUNT,), (changed,), drop=(COUNT.id,))
    dropped.check()
    assert dropped.sources == {}


def test_functions_that_changed_are_told_and_not_refused() -> None:
    changed = OperatorEntry(
        id="spike", kind="fold", fingerprint=FOLD.fingerprint, functions=("step:bb",)
    )
    compared = compare_operators((FOLD,), (changed,))
    compared.check()
    assert compared.told == (
        "the functions of spike have changed since the checkpoint; its state is kept",
    )
    assert "restored (functions changed)" in compared.table()


def test_all_that_is_refused_is_named_at_once() -> None:
    with pytest.raises(StateError) as caught:
        compare_operators((COUNT, FOLD, OTHER), ()).check()
    for each in (COUNT, FOLD, OTHER):
        assert f"\n  {each.id}: " in str(caught.value)
