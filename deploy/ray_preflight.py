"""Gathers the facts of a running Ray cluster and checks them.

On every node that is alive one small actor is started (`probe.Probe`, sent by value: a node without
plait can still say so). It gives its facts, opens a port, and tries the ports of all others. Every
wait has a limit, a node that does not answer becomes a finding, and the actors are ended in any
case. The rule: the check changes nothing on the cluster.

    python -m plait.deploy.ray_preflight --nodes 3 --wait 5m
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray.cloudpickle import register_pickle_by_value, unregister_pickle_by_value
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from plait.deploy import probe
from plait.deploy.absent import Absent, absent_machines
from plait.deploy.preflight import Finding, HostFacts, Needs, check, failed, port_range, report
from plait.errors import JobError
from plait.model.durations import microseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ANSWER_S = 60.0
"""For a node to start a process and answer; a busy or cold machine takes some seconds."""
CONNECT_S = 3.0
CLOCK_TRIES = 3
POLL_S = 1.0
SAY_S = 10.0
"""How often a wait is told."""
LOGS = Path("session_latest") / "logs"
NAMESPACE = "plait-preflight"
HERE = "this machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedNode:
    """A node of the cluster as Ray lists it."""

    label: str
    id: str
    address: str
    machine: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """What is known of the machines, and which nodes gave no answer."""

    hosts: tuple[HostFacts, ...]
    silent: Mapping[str, str]
    absent: Absent = field(default_factory=Absent)


def preflight(
    address: str = "auto",
    *,
    needs: Needs | None = None,
    ports: tuple[int, int] = (0, 0),
    wait_s: float = 0.0,
) -> list[Finding]:
    """What is wrong with the cluster at an address; empty if nothing is.

    `ports`: the range nodes listen on for data, 0 for any. `wait_s`: how long to wait for as many
    nodes as `needs` asks for.
    """
    needs = needs or Needs()
    return list(findings_of(gather(address, needs.nodes, ports, wait_s), needs))


def findings_of(gathered: ClusterFacts, needs: Needs) -> tuple[Finding, ...]:
    return check(gathered.hosts, needs, gathered.silent, gathered.absent)


def gather(address: str, nodes: int, ports: tuple[int, int], wait_s: float) -> ClusterFacts:
    """Uses the connection to Ray that this process has, or makes one for the time."""
    with connect(address) as dashboard_port:
        alive = alive_nodes(nodes, wait_s)
        there = {node.address for node in alive}
        absent = absent_machines(there, Path.home(), probe.ray_folder() / LOGS)
        register_pickle_by_value(probe)
        try:
            return replace(ask_all(alive, dashboard_port, ports), absent=absent)
        finally:
            unregister_pickle_by_value(probe)


@contextlib.contextmanager
def connect(address: str) -> Iterator[int]:
    """Gives the port of the dashboard, 0 if there is none."""
    ours = not ray.is_initialized()
    if ours:
        ray.init(
            address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR
        )
    try:
        yield dashboard_port()
    finally:
        if ours:
            ray.shutdown()


def dashboard_port() -> int:
    context: Any = ray.init(ignore_reinit_error=True, logging_level=logging.ERROR)
    _, _, port = (context.dashboard_url or "").rpartition(":")
    return int(port) if port.isdigit() else 0


def alive_nodes(wanted: int, wait_s: float) -> tuple[ListedNode, ...]:
    """The nodes that are alive, once there are as many as wanted or the time is over."""
    began = said = time.monotonic()
    while True:
        listed: list[dict[str, Any]] = ray.nodes()
        alive = [one for one in listed if one["Alive"]]
        now = time.monotonic()
        if len(alive) >= wanted or now - began >= wait_s:
            return label_nodes(
                [(o["NodeManagerHostname"], o["NodeID"], o["NodeManagerAddress"]) for o in alive]
            )
        if now - said >= SAY_S:
            said = now
            print(waiting(len(alive), wanted, now - began, wait_s), file=sys.stderr, flush=True)
        time.sleep(POLL_S)


def waiting(count: int, wanted: int, passed_s: float, wait_s: float) -> str:
    return f"waiting: {count} of {wanted} nodes are there, {passed_s:.0f} of {wait_s:.0f} s passed"


def wait_for_address(address: str, wait_s: float) -> bool:
    """Whether the cluster of this machine has a node there within a time."""
    end = time.monotonic() + wait_s
    with connect("auto"):
        while not any(one["Alive"] and one["NodeManagerAddress"] == address for one in ray.nodes()):
            if time.monotonic() >= end:
                return False
            time.sleep(POLL_S)
    return True


def label_nodes(nodes: Sequence[tuple[str, str, str]]) -> tuple[ListedNode, ...]:
    """Labels for (host name, node id, address): the host name where it is unique."""
    hosts = [host for host, _, _ in nodes]
    return tuple(
        ListedNode(
            label=host if hosts.count(host) == 1 else f"{host}/{id[:8]}",
            id=id,
            address=address,
            machine=host,
        )
        for host, id, address in sorted(nodes)
    )


class ProbeActors:
    """The probes of a preflight. A node that fails once is silent from then on."""

    def __init__(self, nodes: Sequence[ListedNode]) -> None:
        self.nodes = {node.label: node for node in nodes}
        self.silent: dict[str, str] = {}
        make = ray.remote(probe.Probe)
        self.probes: dict[str, Any] = {
            node.label: make.options(
                num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False)
            ).remote()
            for node in nodes
        }

    def each(
        self, call: Callable[[ListedNode, Any], Any], limit_s: float = ANSWER_S
    ) -> dict[str, Any]:
        """Asks all that still answer, at once; the limit is for all together."""
        labels = {
            call(self.nodes[label], actor): label
            for label, actor in self.probes.items()
            if label not in self.silent
        }
        ready, late = (
            ray.wait(list(labels), num_returns=len(labels), timeout=limit_s) if labels else ([], [])
        )
        answers: dict[str, Any] = {}
        for reference in ready:
            try:
                answers[labels[reference]] = ray.get(reference)
            except ray.exceptions.RayError as error:
                self.silent[labels[reference]] = why(error)
        for reference in late:
            self.silent[labels[reference]] = f"nothing within {limit_s:g} s"
        return answers

    def clock(self, label: str) -> tuple[float, float]:
        """How far a clock is ahead in ms, and how well that is known: the best of some calls."""
        best = (0.0, float("inf"))
        for _ in range(CLOCK_TRIES):
            before, began = time.time(), time.monotonic()
            there = ray.get(self.probes[label].clock.remote(), timeout=ANSWER_S)
            half_s = (time.monotonic() - began) / 2
            if half_s * 1000 < best[1]:
                best = ((there - before - half_s) * 1000, half_s * 1000)
        return best

    def end(self) -> None:
        for actor in self.probes.values():
            ray.kill(actor)


def ask_all(
    nodes: Sequence[ListedNode], dashboard_port: int, ports: tuple[int, int]
) -> ClusterFacts:
    here = facts_of(HERE, probe.Probe().facts(0))
    actors = ProbeActors(nodes)
    try:
        raw_facts = actors.each(lambda _, actor: actor.facts.remote(dashboard_port))
        facts = {label: node_facts(actors.nodes[label], raw) for label, raw in raw_facts.items()}
        for label in facts:
            try:
                offset_ms, error_ms = actors.clock(label)
            except ray.exceptions.RayError as error:
                actors.silent[label] = why(error)
                continue
            facts[label] = replace(facts[label], clock_offset_ms=offset_ms, clock_error_ms=error_ms)
        open_ports = actors.each(lambda node, actor: actor.listen.remote(node.address, *ports))
        peers = {label: (actors.nodes[label].address, port) for label, port in open_ports.items()}

        def reach(node: ListedNode, actor: Any) -> Any:
            others = {label: peer for label, peer in peers.items() if label != node.label}
            return actor.reach.remote(others, CONNECT_S)

        # Only AT_ONCE connections are tried at a time; the limit grows with the cluster.
        limit_s = ANSWER_S + CONNECT_S * len(peers) / probe.AT_ONCE
        for label, reached in actors.each(reach, limit_s).items():
            facts[label] = replace(facts[label], reach=reached)
        actors.each(lambda _, actor: actor.close.remote())
    finally:
        actors.end()
    answered = tuple(one for label, one in facts.items() if label not in actors.silent)
    return ClusterFacts(hosts=(*answered, replace(here, submits=True)), silent=actors.silent)


def node_facts(node: ListedNode, raw: probe.ProbeFacts) -> HostFacts:
    return replace(facts_of(node.label, raw), machine=node.machine, address=node.address)


def facts_of(label: str, raw: probe.ProbeFacts) -> HostFacts:
    hosts = tuple(raw["dashboard_hosts"])
    return HostFacts(host=label, **{**raw, "dashboard_hosts": hosts})  # type: ignore[arg-type]


def why(error: Exception) -> str:
    """An error of Ray in one line: the cause, not Ray's account of it."""
    cause = getattr(error, "cause", None)
    first = str(cause if cause is not None else error).strip().splitlines()
    return f"{type(cause or error).__name__}: {first[0] if first else ''}".rstrip(": ")


def seconds(text: str) -> float:
    try:
        return microseconds(text) / 1_000_000
    except JobError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints what is wrong; the exit status is 1 if there is an error, 0 if there is none."""
    parser = argparse.ArgumentParser(
        prog="plait preflight", description="Checks whether a Ray cluster is fit for plait."
    )
    parser.add_argument("--address", default="auto", help="address of the cluster (default: auto)")
    parser.add_argument(
        "--nodes",
        type=int,
        default=1,
        metavar="N",
        help="number of nodes it must have (default: 1)",
    )
    parser.add_argument(
        "--wait",
        type=seconds,
        default=0.0,
        metavar="TIME",
        help="how long to wait for them, e.g. 30s or 5m",
    )
    parser.add_argument(
        "--ports",
        type=port_range,
        default=(0, 0),
        metavar="A-B",
        help="ports for data (default: any free port)",
    )
    options = parser.parse_args(arguments)
    needs = Needs(nodes=options.nodes)
    try:
        gathered = gather(options.address, options.nodes, options.ports, options.wait)
    except (ConnectionError, RuntimeError, ray.exceptions.RayError) as error:
        print(
            f"error: cluster: no connection to Ray at {options.address}: {why(error)}",
            file=sys.stderr,
        )
        print(
            "  start Ray there; set RAY_AUTH_MODE and RAY_AUTH_TOKEN_PATH as it has them",
            file=sys.stderr,
        )
        return 1
    findings = findings_of(gathered, needs)
    print(report(findings, gathered.hosts))
    return int(failed(findings))


if __name__ == "__main__":
    sys.exit(main())
