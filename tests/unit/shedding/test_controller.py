"""One cycle of the controller on the worked case, step by step of the ladder."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from plait.shedding.controller import decide
from plait.shedding.view import Memory
from plait.shedding.words import PAPER, QualityPolicy
from tests.unit.shedding.views import Host, Part, Query, Table, Task, taxi, view_of

if TYPE_CHECKING:
    from plait.shedding.view import Decision

BARE = QualityPolicy(headroom_ratio=0.0)
TEXT = QualityPolicy(headroom_ratio=0.0, order=PAPER)


def cycles(
    table: Table, policy: QualityPolicy = BARE, count: int = 1, memory: Memory | None = None
) -> tuple[list[Decision], Memory]:
    """So many cycles a second apart, with the same measurements."""
    memory = memory or Memory()
    began = 0.0 if memory.at is None else memory.at + 1.0
    found = []
    for at in range(count):
        decision, memory = decide(view_of(table, began + at), policy, memory, began + at)
        found.append(decision)
    return found, memory


def test_all_that_fits_is_kept() -> None:
    [decision], _ = cycles(taxi(cores=3.0))
    assert decision.keep.tolist() == [1.0, 1.0]
    assert not decision.changed
    assert not decision.reasons
    assert not decision.alerts
    assert len(decision.grants.cores) == 0


def test_the_worked_case_with_1_2_cores() -> None:
    found, _ = cycles(taxi(cores=1.2), TEXT, 3)
    wanted = found[-1].wanted.tolist()
    assert wanted[0] == pytest.approx(0.435, abs=0.005)
    assert wanted[1] == pytest.approx(0.648, abs=0.005)
    assert not found[-1].alerts
    said = {reason.subject: str(reason) for reason in found[0].reasons}
    assert "host-1 is short of 0.90 cores" in said["snk1"]


def test_the_worked_case_with_one_core_moves_the_first_sink() -> None:
    """Alg. 1, lines 7 to 14: 0.10 of the floors do not fit."""
    found, _ = cycles(taxi(cores=1.0, more_hosts=1), TEXT, 1)
    [move] = found[0].moves
    assert (move.part, move.to_host) == ("part1", "host-2")
    assert move.share == pytest.approx(0.3125)


def test_slip_a_task_that_left_gets_no_cpu_where_it_was() -> None:
    """It counts at the host it goes to, so two tasks never get the room that one of them took."""
    table = taxi(cores=1.0, more_hosts=1)
    table.hosts[1].others = 0.95
    found, _ = cycles(table, TEXT, 2)
    assert not found[0].moves  # nothing is known of it yet: it may need a whole core
    assert sum(move.share for move in found[1].moves) == pytest.approx(0.05 / 0.32)


def test_a_free_host_is_used_before_anything_is_dropped() -> None:
    found, memory = cycles(taxi(cores=1.8, more_hosts=1, freshness_s=20.0), BARE, 3)
    assert [len(one.moves) for one in found] == [0, 0, 1]
    assert found[-1].keep.tolist() == [1.0, 1.0]
    assert "host-1 is short of" in str(found[-1].reasons[0])
    again, _ = cycles(taxi(cores=1.8, more_hosts=1, freshness_s=20.0), BARE, 1, memory)
    assert not again[0].moves  # 30 s between two moves of a job


def test_what_is_not_fresh_enough_to_wait_is_dropped_at_once() -> None:
    found, _ = cycles(taxi(cores=1.5, more_hosts=1, freshness_s=0.1), BARE, 1)
    assert min(found[0].keep) < 1.0


def test_without_room_elsewhere_it_says_so_and_drops() -> None:
    found, _ = cycles(taxi(cores=1.2, freshness_s=20.0), BARE, 2)
    assert found[0].keep.tolist() == [1.0, 1.0]  # it may be noise
    assert min(found[1].keep) < 1.0
    assert "there is no other host" in str(found[0].infeasible[0])
    assert any("no autoscaler" in str(reason) for reason in found[0].infeasible)


def test_the_better_query_is_served_first() -> None:
    found, _ = cycles(taxi(cores=1.4, priorities=(1, 5), floors=(0.1, 0.1)), TEXT, 3)
    assert found[-1].wanted[1] == pytest.approx(1.0)
    assert 0.1 <= found[-1].wanted[0] < 0.2
    [reason] = found[0].reasons
    assert reason.subject == "snk1"
    assert "higher priorities use" in reason.because


def test_a_floor_that_cannot_be_met_opens_an_alert_and_nothing_is_dropped_below_it() -> None:
    found, memory = cycles(taxi(cores=1.0), BARE, 2)
    assert found[-1].keep.tolist() == pytest.approx([0.4, 0.6])
    assert {alert.query for alert in found[-1].alerts} == {"snk1", "snk2"}
    assert all(alert.since == 0.0 for alert in found[-1].alerts)
    assert any(reason.now == "alert" for reason in found[0].reasons)
    assert not any(reason.now == "alert" for reason in found[1].reasons)
    closed, _ = cycles(taxi(cores=3.0), BARE, 3, memory)
    assert [len(one.alerts) for one in closed] == [2, 2, 0]
    assert sum(reason.was == "alert" for one in closed for reason in one.reasons) == 2


def test_of_unequal_queries_only_the_lower_one_is_in_breach() -> None:
    found, _ = cycles(taxi(cores=1.0, priorities=(0, 3)), BARE, 1)
    [alert] = found[0].alerts
    assert alert.query == "snk1"
    assert alert.attainable == pytest.approx((1.0 - 0.06 - 0.72) / 0.8, abs=0.01)


def test_a_query_may_rather_get_nothing_than_be_late() -> None:
    table = taxi(cores=1.0, priorities=(0, 3))
    table.queries[0].suspends = True
    found, _ = cycles(table, BARE, 2)
    assert found[-1].keep[0] == 0.0
    assert found[-1].keep[1] > 0.7
    assert [alert.query for alert in found[-1].alerts] == ["snk1"]
    assert "it gets nothing" in found[-1].alerts[0].because


def test_a_lossless_query_is_never_dropped() -> None:
    found, _ = cycles(taxi(cores=0.8, floors=(1.0, 0.1), priorities=(0, 5)), BARE, 3)
    assert found[-1].keep[0] == 1.0
    assert found[-1].keep[1] == pytest.approx(0.1)
    assert "snk1" in {alert.query for alert in found[-1].alerts}


def test_a_source_without_a_rate_asks_for_nothing_and_is_not_dropped() -> None:
    table = taxi(cores=1.0, floors=(0.1, 0.1))
    for part in table.parts:
        part.injected = float("nan")
    found, _ = cycles(table, BARE, 3)
    assert found[-1].keep.tolist() == [1.0, 1.0]
    assert not found[-1].alerts
    assert not found[-1].moves


def test_a_bound_by_hand_holds() -> None:
    table = taxi(cores=3.0)
    table.queries[0].bound = 0.5
    [decision], _ = cycles(table)
    assert decision.keep.tolist() == [0.5, 1.0]
    assert "set by hand" in str(decision.reasons[0])


def test_others_on_the_host_leave_less_and_never_less_than_nothing() -> None:
    """Slip: the available CPU of the text may become negative."""
    table = taxi(cores=3.0)
    for task in table.tasks:
        task.cpu, task.taken = 0.5 * task.cpu, 0.5 * task.taken
    table.hosts[0].others = 1.9
    found, _ = cycles(table, TEXT, 1)
    assert min(found[0].wanted) < 0.7
    table.hosts[0].others = 9.0
    found, _ = cycles(table, TEXT, 1)
    assert found[0].wanted.tolist() == pytest.approx([0.4, 0.6])


def test_what_waits_is_worked_off() -> None:
    """At 0.8 of the load nothing is dropped; with 300 rows a source in arrears something is."""
    table = taxi(cores=2.0, load=0.9, floors=(0.1, 0.1))
    assert cycles(table, TEXT)[0][0].keep.tolist() == [1.0, 1.0]
    for part in table.parts[:2]:
        part.backlog = 1000.0
    found, _ = cycles(table, TEXT, 3)
    assert max(found[-1].keep) < 1.0


def test_what_waits_on_the_way_is_lag_and_is_worked_off() -> None:
    """The sources are up to date; 1,000 rows of 200 a second wait before the first sink."""
    table = taxi(cores=2.0, load=0.9, floors=(0.1, 0.1), freshness_s=4.0)
    assert cycles(table, TEXT)[0][0].lag_s.tolist() == [0.0, 0.0]
    table.tasks[2].waiting = 900.0
    found, _ = cycles(table, TEXT, 3)
    assert found[-1].lag_s.tolist() == [5.0, 0.0]
    assert found[-1].keep[0] < 1.0


def test_cores_that_were_got_are_not_lost_to_neighbours() -> None:
    """Two cores, all of them used, half by others; we drop rows, and others take what we leave."""
    table = taxi(cores=2.0, floors=(0.1, 0.1))
    for task in table.tasks:
        task.cpu, task.taken = 0.476 * task.cpu, 0.476 * task.taken
    table.hosts[0].others = 1.0
    first, memory = cycles(table, BARE, 3)
    for task in table.tasks:
        task.cpu = 0.8 * task.cpu
    table.hosts[0].others = 1.2
    then, _ = cycles(table, BARE, 3, memory)
    assert then[-1].wanted.min() > 0.9 * first[-1].wanted.min()


def test_grants_divide_a_host_that_is_short() -> None:
    table = taxi(cores=1.2)
    table.parts[3].job = table.queries[1].job = "other"
    table.parts[0].queries = table.parts[1].queries = ("snk1",)
    table.parts[3].after = ()
    table.parts[3].injected = 200.0
    found, _ = cycles(table, TEXT, 3)
    grants = found[-1].grants
    assert len(grants.cores) == 3
    assert sum(grants.cores) == pytest.approx(1.2)


def test_a_task_that_warms_up_holds_its_host() -> None:
    low, memory = cycles(taxi(cores=1.2), TEXT, 3)
    assert max(low[-1].keep) < 1.0
    table = taxi(cores=3.0)
    table.tasks[2].warm = False
    held, memory = cycles(table, TEXT, 6, memory)
    assert held[-1].keep.tolist() == low[-1].keep.tolist()
    rises, _ = cycles(taxi(cores=3.0), TEXT, 3, memory)
    assert rises[-1].keep.tolist() == [1.0, 1.0]


def test_the_paper_has_the_others_at_their_floors_during_a_warm_up() -> None:
    table = taxi(cores=3.0)
    table.tasks[2].warm = False
    found, memory = cycles(table, replace(TEXT, hold_warm_up=False), 1)
    assert found[0].keep.tolist() == pytest.approx([0.4, 0.6])
    rises, _ = cycles(taxi(cores=3.0), replace(TEXT, hold_warm_up=False), 3, memory)
    assert rises[-1].keep.tolist() == [1.0, 1.0]


def test_hosts_are_asked_for_after_two_cycles() -> None:
    table = taxi(cores=1.2)
    table.limits = (1, 3)
    found, _ = cycles(table, BARE, 2)
    assert [one.hosts_wanted for one in found] == [None, 2]
    assert "all jobs need 2.10 cores" in str(found[1].reasons)


def test_one_host_fewer_after_five_minutes_of_little() -> None:
    table = taxi(cores=4.0, more_hosts=1)
    table.limits = (1, 3)
    for task in table.tasks:
        task.size = 1e6
    memory = Memory()
    for at in (0.0, 299.0, 300.0):
        decision, memory = decide(view_of(table, at), BARE, memory, at)
        assert (decision.hosts_wanted, decision.drain) == (
            (1, "host-2") if at == 300.0 else (None, "")
        )


def test_an_empty_view_decides_nothing() -> None:
    decision, _ = decide(
        view_of(Table(hosts=[], parts=[], queries=[], tasks=[])), BARE, Memory(), 0.0
    )
    assert decision.keep.tolist() == []


def test_what_was_learnt_stays_with_its_part_when_others_come() -> None:
    """A cost is found again by key, whatever the order of the rows."""
    table = taxi(cores=1.2)
    _, memory = cycles(table, TEXT, 3)
    assert memory.learnt is not None
    table.parts.insert(0, Part(name="new", queries=("late",), injected=1.0))
    table.queries.append(Query(name="late"))
    table.tasks.append(Task(part="new", cpu=0.0, taken=1.0, offered=1.0))
    table.hosts.insert(0, Host(name="host-0"))
    found, after = cycles(table, TEXT, 1, memory)
    assert after.learnt is not None
    assert after.learnt.seen.tolist() == [1, 4, 4, 4, 4]
    assert found[0].keep[2] == 1.0
