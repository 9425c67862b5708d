"""Which host gets a task."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from plait.coordinator.machine.placement import Placement, TaskAsk, place
from plait.coordinator.messages.hosts import HostView


def host(name: str, cpu_ratio: float | None = 0.0, cores: float = 4, tasks: int = 0) -> HostView:
    return HostView(host=name, cores=cores, cpu_ratio=cpu_ratio, tasks=tasks, address=f"{name}:1")


def asks(count: int, cores_needed: float | None = None, *prefer: str) -> list[TaskAsk]:
    return [
        TaskAsk(task=f"t{i}", cores_needed=cores_needed, prefer=tuple(prefer)) for i in range(count)
    ]


def hosts_of(placement: Placement) -> list[str]:
    return [one.host for one in placement.assignments]


def test_the_least_used_host_gets_the_task() -> None:
    found = place(asks(1), [host("a", 0.9), host("b", 0.1), host("c", 0.5)], 1)
    (one,) = found.assignments
    assert (one.host, one.address, one.fits) == ("b", "b:1", True)
    assert one.reason == "lowest CPU use (10%); one core assumed"
    assert found.infeasible == ()


def test_use_is_a_share_of_the_host() -> None:
    assert hosts_of(place(asks(1), [host("a", 0.5, cores=64), host("b", 0.4, cores=2)], 1)) == ["b"]


def test_tasks_of_this_decision_count_as_one_core_each() -> None:
    found = place(asks(8), [host("a"), host("b")], 1)
    assert Counter(hosts_of(found)) == {"a": 4, "b": 4}
    assert all(one.fits for one in found.assignments)


def test_measured_needs_count_as_measured() -> None:
    found = place(asks(4, 0.25), [host("a", 0.0), host("b", 0.2)], 1)
    assert hosts_of(found) == ["a", "b", "a", "a"]


def test_a_job_is_on_every_host_before_it_is_twice_on_one() -> None:
    """Whatever the measured use: it is that of one moment."""
    hosts = [host("a", 0.0), host("b", 0.95, cores=2), host("c", 0.6)]
    found = place(asks(4), hosts, 1)
    assert hosts_of(found) == ["a", "c", "b", "a"]
    assert "every host has one of the job" in found.assignments[3].reason
    assert "every host" not in found.assignments[2].reason


def test_a_new_node_goes_to_a_host_without_one() -> None:
    hosts = [host("a", 0.0), host("b", 0.9), host("c", 0.1)]
    assert hosts_of(place(asks(1), hosts, 1, taken={"a", "c"})) == ["b"]
    assert hosts_of(place(asks(1), hosts, 1, taken={"a", "b", "c"})) == ["a"]


def test_a_small_host_gets_no_second_one_while_a_large_one_has_room() -> None:
    hosts = [host("large", 0.0, cores=64), host("small", 0.0, cores=2)]
    assert Counter(hosts_of(place(asks(8), hosts, 1))) == {"large": 7, "small": 1}


def test_an_unmeasured_host_counts_its_tasks() -> None:
    assert hosts_of(place(asks(1), [host("a", None, tasks=2), host("b", 0.4)], 1)) == ["b"]
    assert hosts_of(place(asks(1), [host("a", None, tasks=1), host("b", 0.4)], 1)) == ["a"]


def test_a_task_that_is_too_young_to_be_seen_counts() -> None:
    young = HostView(host="a", cores=4, cpu_ratio=0.0, tasks=2, unmeasured_tasks=2)
    assert hosts_of(place(asks(1), [young, host("b", 0.3)], 1)) == ["b"]


def test_a_preferred_host_is_taken_while_it_has_room() -> None:
    found = place(asks(3, None, "a"), [host("a", 0.5), host("b", 0.0)], 1)
    assert hosts_of(found) == ["a", "a", "b"]
    assert "of the preferred hosts" in found.assignments[0].reason
    assert "no room on a" in found.assignments[2].reason


def test_the_best_of_the_preferred_hosts_is_taken() -> None:
    found = place(asks(1, None, "a", "b"), [host("a", 0.5), host("b", 0.3), host("c", 0.0)], 1)
    assert hosts_of(found) == ["b"]


def test_a_full_cluster_still_takes_tasks() -> None:
    (one,) = place(asks(1), [host("a", 1.0), host("b", 0.9)], 1).assignments
    assert (one.host, one.fits) == ("b", False)
    assert "the host is full" in one.reason


def test_without_hosts_there_is_no_place() -> None:
    assert place(asks(1), [], 1).infeasible[0].reason == "there is no host"
    found = place(asks(2), [host("a", cores=0)], 1)
    assert [one.reason for one in found.infeasible] == ["none of 1 hosts has a core"] * 2
    assert found.assignments == ()


def test_equal_hosts_are_drawn_by_the_seed() -> None:
    hosts = [host(name) for name in "abcdefgh"]
    first = {hosts_of(place(asks(1), hosts, seed))[0] for seed in range(100)}
    assert len(first) == 8
    assert "drawn from 8 equal hosts" in place(asks(1), hosts, 1).assignments[0].reason


@given(
    ratios=st.lists(st.floats(0, 1), min_size=1, max_size=8),
    needs=st.lists(st.one_of(st.none(), st.floats(0, 3)), max_size=8),
    seed=st.integers(0, 2**32),
)
def test_the_same_facts_give_the_same_placement(
    ratios: list[float], needs: list[float | None], seed: int
) -> None:
    hosts = [host(f"h{i}", ratio) for i, ratio in enumerate(ratios)]
    tasks = [TaskAsk(task=str(i), cores_needed=need) for i, need in enumerate(needs)]
    found = place(tasks, hosts, seed)
    assert place(tasks, hosts[::-1], seed) == found
    assert [one.task for one in found.assignments] == [one.task for one in tasks]
    assert len(set(hosts_of(found))) == min(len(tasks), len(hosts))
