"""The table of transitions and the code agree: all that happens is in it, all in it happens.

That what happens is in the table is checked at every step of every simulation. Here every wait is
entered, and everything that can happen to a job happens in it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import get_args

import pytest

from plait.coordinator.machine.invariants import check_transitions
from plait.coordinator.machine.state import Aim, State, with_job
from plait.coordinator.machine.transitions import (
    ENDINGS,
    NEW,
    TABLE,
    TRANSITIONS,
    UNDER_WAY,
    WAITS,
    Transition,
)
from plait.coordinator.messages.events import JobOver
from plait.errors import InternalError
from tests.sim.directed import follow

ANYWHERE = (
    "cancel",
    "stop",
    "abort",
    "break_turn",
    "fail",
    "fail_joining",
    "fail_to_make",
    "lose_home",
    "lose_spare",
    "no_hosts",
    "refuse",
    "satisfy",
)
"""What happens in every wait."""

BEFORE = {
    "start_place": "start_make:lose_made",
    "join_lift": "quiet quiet join_promise:refuse",
    "chunk_lift": "quiet quiet chunk_promise:refuse",
    "leave_lift": "quiet quiet leave_promise:refuse",
    "stop_lift": "stop_promise:refuse",
    "chunk_pace": "quiet quiet ready_wait:pause",
    "drop_drop": "quiet quiet:lose_spare",
}
"""What leads to a wait; to the others the story leads, in its second rescale: then there are nodes
without bins."""


RESCALE = ("measure", "join", "ready", "chunk", "leave")


def steps_to(wait: str) -> str:
    return BEFORE.get(wait, "quiet quiet" if wait.partition("_")[0] in RESCALE else "")


DETOURS = (
    ("start_make:fail_to_make start_make:fail_to_make start_make:fail_to_make", "grow"),
    ("start_make:fail_to_make start_make:fail_to_make start_place:fail_to_make", "grow"),
    ("start_prepare:lose_home start_prepare:lose_home start_prepare:lose_home", "grow"),
    ("over_end:break_turn", "keep"),
    ("", "keep"),
    ("", "shrink"),
    ("", "join"),
    ("join_commit:lose_spare", "join"),
    ("chunk_promise:refuse chunk_promise:refuse chunk_promise:refuse", "join"),
    ("chunk_pass:pause chunk_pace:abort", "join"),
    ("quiet quiet ready_expect:abort", "join"),
    ("quiet quiet ready_wait:abort", "join"),
    ("leave_pass:lose_leaving", "join"),
    ("leave_pass:lose_leaving leave_pass:stop", "join"),
    ("leave_promise:refuse leave_promise:refuse leave_promise:refuse", "join"),
    ("stop_promise:refuse stop_promise:refuse stop_promise:refuse", "join"),
    ("ready_expect:abort_and_stop", "join"),
    ("ready_expect:stop ready_wait:abort", "join"),
    ("join_make:fail_made", "grow"),
    ("start_make:fail_made", "grow"),
    ("quiet quiet chunk_promise:lose_last_spare", "grow"),
    ("quiet quiet join_promise:replace_home", "grow"),
    ("ready_wait:lose_last_spare drop_drop:abort", "grow"),
    ("quiet quiet ready_wait:lose_last_spare drop_drop:abort", "grow"),
    ("quiet quiet join_place:no_hosts", "swap"),
    ("quiet quiet join_place:abort", "swap"),
    ("quiet quiet join_make:abort", "swap"),
    ("quiet quiet join_make:fail_to_make", "swap"),
    ("quiet quiet join_make:fail_made", "swap"),
)
"""What takes more than one thing, or another story."""


SAVING = ("save_", "restore_")
"""How the waits begin that only jobs with checkpoints know."""
KEEPING = "keep_"
"""... and those that jobs with queries that may be shed know; see test_sim_shed.py."""


def is_saved(row: Transition) -> bool:
    """Whether only a job with checkpoints can take this step."""
    new = ("checkpoint due", "slow done", "part failed", "too old", "nodes wanted")
    return row.cause in new or row.before.startswith(SAVING) or row.after.startswith(SAVING)


def is_kept(row: Transition) -> bool:
    return row.before.startswith(KEEPING) or row.after.startswith(KEEPING)


def test_every_row_of_the_table_happens() -> None:
    seen: set[Transition] = set()
    for wait in (name for name in UNDER_WAY if not name.startswith((*SAVING, KEEPING))):
        for action in ANYWHERE:
            seen |= follow(f"{steps_to(wait)} {wait}:{action}").transitions
    for steps, story in DETOURS:
        seen |= follow(steps, story).transitions
    missing = (row for row in TRANSITIONS - seen if not (is_saved(row) or is_kept(row)))
    assert sorted(missing) == []


def test_a_step_that_is_not_in_the_table_is_an_error() -> None:
    """A running job is over at once: its nodes were never told to end."""
    sim = follow("quiet")
    job = sim.job()
    before = with_job(State(), replace(job, phase="running"))
    wait = replace(job.wait, id=job.next_wait)
    after = with_job(State(), replace(job, wait=wait, next_wait=job.next_wait + 1))
    fact = JobOver(at=sim.now, job="job")
    assert check_transitions(before, fact, before) == []
    with pytest.raises(InternalError, match="'quiet', cause='job over', after='over'"):
        check_transitions(before, fact, after)


def test_two_waits_in_one_step_are_an_error() -> None:
    """The first of them would have sent commands, and nothing waits for their answers."""
    sim = follow("quiet")
    before = with_job(State(), replace(sim.job(), phase="running"))
    wait = replace(sim.job().wait, id=sim.job().next_wait + 1)
    after = with_job(State(), replace(sim.job(), wait=wait))
    with pytest.raises(InternalError, match="two waits"):
        check_transitions(before, JobOver(at=sim.now, job="job"), after)


def test_the_table_names_every_wait_and_no_row_twice() -> None:
    rows = Counter((before, cause, a) for before, cause, after in TABLE for a in after.split())
    rows.update((before, cause, "over_end") for cause, waits in ENDINGS.items() for before in waits)
    assert not [row for row, times in rows.items() if times > 1]
    assert {NEW, *WAITS} == {name for row in TRANSITIONS for name in (row.before, row.after)}
    aims = {name.partition("_")[0] for name in WAITS if "_" in name}
    assert aims == {*get_args(Aim)}
