"""Event time as a native program: reach and clocks of units, against a plain loop over rows.

`clock_test` checks how far time is at every row; `timed_windows_test` and `timed_joins_test` what
lanes make of it, `merge_parts_test` the order of rows at marks and at records. The last tests break
the headers in one place each (`native_faults.py`) and demand that the fault is found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.native.native_build import SEED, check, programs, run
from tests.native.native_faults import Faults, faulty, number_of

if TYPE_CHECKING:
    from pathlib import Path

RUNS = {"clock_test:plain": (20_000, SEED), "clock_test:address": (2_000, SEED)}

FAULTS: Faults = {
    "time moved after the record": (
        "clock_test",
        "time/unit_clock.hpp",
        "std::min((position - 1) >> 1, reach_rows_ - 1)",
        "std::min((position - 1 - FAULT) >> 1, reach_rows_ - 1)",
    ),
    "due when the watermark is above, not when it is there": (
        "clock_test",
        "time/unit_clock.hpp",
        "const int64_t time = add_times(t, out_of_order_);",
        "const int64_t time = add_times(t, out_of_order_ + FAULT);",
    ),
    "time of earlier units forgotten": (
        "clock_test",
        "time/unit_clock.hpp",
        "least_(std::clamp(add_times(since, -out_of_order), before, most_))",
        "least_(FAULT ? before : std::clamp(add_times(since, -out_of_order), before, most_))",
    ),
    "max_jump once a unit": (
        "clock_test",
        "time/watermarks.hpp",
        "time = moved(time, high[i], jump);",
        "static int64_t since;\n"
        "      if (i == 0) since = time;\n"
        "      const int64_t most = add_times(since, jump);\n"
        "      const bool bound = FAULT && since != kNoTime;\n"
        "      const int64_t free = moved(time, high[i], jump);\n"
        "      time = bound ? std::max(time, std::min(high[i], most)) : free;",
    ),
    "slices joined by arrival": (
        "clock_test",
        "columns/reach.hpp",
        "part->first == rows;",
        "(FAULT || part->first == rows);",
    ),
    "parts of a unit joined without their places": (
        "clock_test",
        "columns/reach.hpp",
        "const int64_t row = part.first + i;",
        "const int64_t row = FAULT ? i : part.first + i;",
    ),
    "what is behind the end of another part counts": (
        "clock_test",
        "columns/reach.hpp",
        "ended = std::min(ended, part->ended);",
        "if (!FAULT) ended = std::min(ended, part->ended);",
    ),
    "pieces of a record move each other": (
        "clock_test",
        "columns/reach.hpp",
        "to[i] = std::max(time, reach.row_times[i]);",
        "to[i] = std::max(time, (FAULT && reach.high_times ? reach.high_times :"
        " reach.row_times)[i]);",
    ),
    "what was given at a mark counts before it is taken": (
        "clock_test",
        "columns/reach.hpp",
        "raise(given_, row, time);",
        "raise(given_, row - (FAULT && row), time);",
    ),
    "what passed last counts behind its unit": (
        "clock_test",
        "time/watermarks.hpp",
        "of.time = std::max(m.since, m.times[m.rows - 1]);",
        "of.time = FAULT ? last : std::max(m.since, m.times[m.rows - 1]);",
    ),
    "what passed last is lost": (
        "clock_test",
        "time/watermarks.hpp",
        "of.next = last;",
        "of.next = FAULT ? of.time : last;",
    ),
    "an idle operator counts before a row passes": (
        "clock_test",
        "time/watermarks.hpp",
        "if (row < m.counts_at) continue;",
        "if (row < m.counts_at && !FAULT) continue;",
    ),
    "one of two origins that move is left out": (
        "clock_test",
        "time/watermarks.hpp",
        "if (more.empty()) more.push_back(only);",
        "if (more.empty() && !FAULT) more.push_back(only);",
    ),
    "a stamp that goes back takes time by arrival back": (
        "clock_test",
        "time/watermarks.hpp",
        "of_[o].time = std::max({of_[o].time, unit.stamp, int64_t(0)});",
        "of_[o].time = std::max({FAULT ? 0 : of_[o].time, unit.stamp, int64_t(0)});",
    ),
    "time by arrival stands still without rows": (
        "clock_test",
        "time/watermarks.hpp",
        "if (origin.arrival) of_[o].time",
        "if (origin.arrival && (unit.rows || !FAULT)) of_[o].time",
    ),
    "time by arrival goes on behind the rows of a unit": (
        "clock_test",
        "time/watermarks.hpp",
        "if (!unit.rows) continue;",
        "if (!unit.rows || (FAULT && origin.arrival)) continue;",
    ),
    "rows arrive by the stamp of their unit alone": (
        "timed_windows_test",
        "time/watermarks.hpp",
        "return std::max(clock_, unit.stamp);",
        "return FAULT ? unit.stamp : std::max(clock_, unit.stamp);",
    ),
    "rows arrive when the unit before theirs did": (
        "timed_windows_test",
        "time/timed_lane.hpp",
        "const int64_t arrival = time.watermarks.arrival(unit);",
        "const int64_t arrival = FAULT ? time.watermarks.clock() : time.watermarks.arrival(unit);",
    ),
    "late by the watermark behind the unit": (
        "timed_windows_test",
        "time/lane_operator.hpp",
        "return clock.at(position(i));",
        "return FAULT ? clock.end() : clock.at(position(i));",
    ),
    "late by the watermark before the unit": (
        "timed_windows_test",
        "time/lane_operator.hpp",
        "clock.at(position(i));",
        "FAULT ? clock.before() : clock.at(position(i));",
    ),
    "a row in a pane before its ended windows were given": (
        "timed_windows_test",
        "windows/window_lane.hpp",
        "lane.catch_up(rows, rows.at(i), out);",
        "if (!FAULT) lane.catch_up(rows, rows.at(i), out);",
    ),
    "a session not settled before the next row of its key": (
        "timed_windows_test",
        "windows/session_lane.hpp",
        "if (behind) settle(",
        "if (behind && !FAULT) settle(",
    ),
    "as-of sees right records behind the mark": (
        "timed_joins_test",
        "joins/as_of_lane.hpp",
        "if (r->place < end) found = r;",
        "if (FAULT || r->place < end) found = r;",
    ),
    "a key without records stays": (
        "timed_joins_test",
        "joins/join_lane.hpp",
        "if (key) settle(key);",
        "if (key && !FAULT) settle(key);",
    ),
    "a left record in time is late because its interval is over": (
        "timed_joins_test",
        "joins/join_times.hpp",
        "return std::max(time, last_of(side, time));",
        "return FAULT ? last_of(side, time) : std::max(time, last_of(side, time));",
    ),
    "a union without halves": (
        "merge_parts_test",
        "columns/batch.hpp",
        "if (any) p.split_halves();",
        "if (any && !FAULT) p.split_halves();",
    ),
}
SLOW = {
    "clock_test": (),
    "merge_parts_test": (),
    "timed_windows_test": (pytest.mark.slow,),
    "timed_joins_test": (pytest.mark.slow,),
}
"""These take long to compile."""


@pytest.mark.parametrize("program", programs(RUNS, "address"))
def test_clock_program(binaries: dict[str, Path], program: str) -> None:
    check(binaries[program], RUNS[program], f"seed {SEED}")


@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=SLOW[program]) for name, (program, *_) in FAULTS.items()]
)
def test_a_seeded_fault_is_found(fault: str) -> None:
    program = FAULTS[fault][0]
    done = run(faulty(program, FAULTS), 2_000, 1, number_of(FAULTS, fault))
    assert done.returncode != 0, f"{fault}: went unnoticed"


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks) for name, marks in SLOW.items()])
def test_the_same_program_without_a_fault_finds_none(name: str) -> None:
    done = run(faulty(name, FAULTS), 100, 1, 0)
    assert done.returncode == 0, done.stderr
