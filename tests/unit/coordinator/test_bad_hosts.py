"""Which hosts a job avoids, and for how long."""

from __future__ import annotations

from plait.coordinator.machine.start_nodes import bad_hosts
from plait.coordinator.machine.state import JobState, JobWait, NodeState, Quiet
from plait.coordinator.machine.turn import Turn
from plait.coordinator.messages.spec import JobSpec, Policy
from plait.protocol.messages import Peer

POLICY = Policy(avoid_s=100.0)


def node(rank: int, host: str, lost_at: float | None, *, made: bool = True) -> NodeState:
    peer = Peer(rank=rank, host=host, port=1) if made else None
    return NodeState(
        rank=rank,
        host=host,
        phase="member" if lost_at is None else "lost",
        peer=peer,
        lost_at=lost_at,
    )


def avoided(at: float, *nodes: NodeState) -> set[str]:
    job = JobState(
        spec=JobSpec(name="job", payload="", token="", bin_bits=3, sources=(), nodes=2),
        phase="running",
        wait=JobWait(id=1, kind=Quiet(), since=0.0, cause=""),
        next_wait=2,
        next_rank=len(nodes),
        nodes={one.rank: one for one in nodes},
    )
    return bad_hosts(job, Turn(policy=POLICY, at=at, cause=""))


def test_one_process_that_ended_says_nothing_of_its_host() -> None:
    """Its replacement may go back there: otherwise that host is idle and another has two."""
    assert avoided(11.0, node(0, "a", None), node(1, "b", 10.0)) == set()


def test_where_two_were_lost_the_next_one_does_not_go() -> None:
    assert avoided(30.0, node(0, "b", 10.0), node(1, "b", 20.0), node(2, "a", 20.0)) == {"b"}


def test_where_a_node_could_not_be_made_the_next_one_does_not_go() -> None:
    assert avoided(11.0, node(0, "a", None), node(1, "b", 10.0, made=False)) == {"b"}


def test_a_host_is_not_avoided_for_ever() -> None:
    lost = node(0, "b", 10.0), node(1, "b", 20.0), node(2, "c", 20.0, made=False)
    assert avoided(119.0, *lost) == {"c"}
    assert avoided(121.0, *lost) == set()
