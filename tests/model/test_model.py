"""Everything that can happen to a small job with checkpoints: all is well in every world, and
whoever makes one of the known mistakes is found out."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tests.model.search import search
from tests.model.world import Bounds, Bugs, Left

KILL, FREEZE = Left(kills=1), Left(freezes=1)

SMALL = {
    "no fault": Bounds(attempts=1, left=Left()),
    "a kill": Bounds(attempts=2, left=KILL),
    "a kill, no decider": Bounds(attempts=2, deciders=0, left=KILL),
    "a kill, no follower": Bounds(attempts=2, follower=False, left=KILL),
    "a kill, two deciders": Bounds(attempts=2, deciders=2, left=KILL),
    "a kill, two kept": Bounds(attempts=2, keep=2, left=KILL),
    "a zombie": Bounds(attempts=2, left=FREEZE),
    "a zombie, no decider": Bounds(attempts=2, deciders=0, left=FREEZE),
    "the store is away": Bounds(attempts=2, left=Left(errors=1)),
    "the decider cannot tell": Bounds(attempts=3, left=Left(kills=1, stale=1)),
    "the coordinator restarts": Bounds(attempts=1, left=Left(restarts=2)),
}
LARGE = {
    "three checkpoints": Bounds(checkpoints=3, attempts=2, left=Left(kills=1, restarts=1)),
    "three checkpoints, a zombie": Bounds(checkpoints=3, attempts=2, left=FREEZE),
    "two kills": Bounds(attempts=3, left=Left(kills=2)),
    "a kill and a zombie": Bounds(attempts=3, left=Left(kills=1, freezes=1)),
    "a kill and a zombie, no decider": Bounds(
        attempts=3, deciders=0, left=Left(kills=1, freezes=1)
    ),
    "two zombies, no decider": Bounds(checkpoints=1, attempts=3, deciders=0, left=Left(freezes=2)),
    "two deciders, a zombie": Bounds(attempts=2, deciders=2, left=FREEZE),
    "two deciders, two kills": Bounds(attempts=3, deciders=2, follower=False, left=Left(kills=2)),
    "two deciders, a kill, the store is away": Bounds(
        checkpoints=3, attempts=3, deciders=2, follower=False, left=Left(kills=1, errors=1)
    ),
    "a kill, a zombie, the store is away": Bounds(
        checkpoints=1, attempts=3, left=Left(kills=1, freezes=1, errors=1)
    ),
    "a kill, the store is away twice": Bounds(
        checkpoints=3, attempts=3, left=Left(kills=1, errors=2)
    ),
}
MISTAKES = {
    "commit_before_seal": (SMALL["a kill"], "I2: no checkpoint has the cuts"),
    "survey_before_fence": (SMALL["a zombie"], "I3: nothing to go on from"),
    "claim_after_survey": (SMALL["a zombie, no decider"], "I1: 'a' is shown"),
    "retire_too_early": (SMALL["a kill"], "I3: nothing to go on from"),
    "retire_by_number": (SMALL["a kill"], "I3: .* counts, and .* is gone"),
    "progress_apart": (SMALL["a kill"], "I1: decider 0 shows 'a' and says 0"),
    "suppress_by_rows": (SMALL["a kill"], "I[13]: "),
    "script_too_short": (SMALL["a kill, two deciders"], "I1: sinks show different runs"),
    "absence_is_zero": (SMALL["the decider cannot tell"], "I[13]: "),
    "follower_first": (SMALL["a kill"], "I1: the follower shows 'a', the deciders"),
    "blind_publish": (SMALL["a zombie, no decider"], "I1: it would go on from ''"),
    "fence_nobody": (SMALL["a zombie"], "I3: nothing to go on from"),
    "same_hidden_names": (SMALL["a zombie, no decider"], "I7: .* counts on .* which is gone"),
    "remove_newer": (SMALL["a zombie, no decider"], "I7: .* counts on .* which is gone"),
    "go_on_after_doubt": (SMALL["the store is away"], "I3: nothing to go on from"),
}


@pytest.mark.parametrize("name", SMALL)
def test_all_is_well(name: str) -> None:
    found = search(SMALL[name])
    print(found)
    assert not found.wrong, str(found)
    assert found.shown, "no history shows all output"


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_all_is_well_in_large(name: str) -> None:
    found = search(LARGE[name])
    print(found)
    assert not found.wrong, str(found)
    assert found.shown > 0


@pytest.mark.parametrize("mistake", [field.name for field in fields(Bugs)])
def test_a_mistake_is_found(mistake: str) -> None:
    bounds, words = MISTAKES[mistake]
    found = search(bounds, Bugs(**{mistake: True}))
    assert found.story, f"{mistake} is not found in {found}"
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(found.wrong)
