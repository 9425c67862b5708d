"""The hosts of a Ray cluster and how busy each is.

A host is a Ray node; it is called by its address, and where several are on one machine by the
address and a number. Its CPU use is that of the cores its processes may use (Ray nodes of one
machine that were started under `taskset` are hosts of their own), by all processes: read here for
the coordinator's own host, taken from the reports of plait's nodes where there are any, and asked
for by a tiny task elsewhere. What was measured counts for some seconds; a host that does not answer
in time is given as not measured.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import Any

import psutil
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from plait.coordinator.messages.hosts import HostView

FRESH_S = 5.0
PROBE_S = 1.0
"""How long a placement waits for measurements."""
SAMPLE_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A Ray node as a place for nodes of jobs."""

    name: str
    node_id: str
    address: str
    cores: float


def cpu_ratio() -> float:
    """CPU use of the cores that this process may use, over a moment, by all processes, 0..1."""
    own = os.sched_getaffinity(0)
    used = psutil.cpu_percent(interval=SAMPLE_S, percpu=True)
    ours = [percent for core, percent in enumerate(used) if core in own]
    return float(sum(ours)) / (100.0 * max(1, len(ours)))


PROBE = ray.remote(num_cpus=0, max_retries=0)(cpu_ratio)


class RayHosts:
    """Knows the hosts. May be called from any thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.names: dict[str, str] = {}
        """By Ray's id of the node; a name is given once and never to another."""
        self.measured: dict[str, tuple[float, float]] = {}
        """By host: the ratio and when it was taken."""
        self.known: dict[str, Host] = {}
        self.asked: dict[Any, str] = {}
        """By probe that has not answered: the host. Where one is under way no other is sent: on
        a machine too busy to answer each would be one process more."""
        self.here = str(ray.get_runtime_context().get_node_id())

    def find(self, name: str) -> Host | None:
        """The host of this name, looked up anew if it is not known yet."""
        with self.lock:
            found = self.known.get(name)
        if found is None:
            found = {host.name: host for host in self.alive()}.get(name)
        return found

    def alive(self) -> list[Host]:
        """All hosts that are up, in the order of their names."""
        nodes = sorted((n for n in ray.nodes() if n["Alive"]), key=lambda n: str(n["NodeID"]))
        with self.lock:
            hosts = [self.named(node) for node in nodes]
            self.known = {host.name: host for host in hosts}
        return sorted(hosts, key=lambda host: host.name)

    def named(self, node: Any) -> Host:
        node_id, address = str(node["NodeID"]), str(node["NodeManagerAddress"])
        if node_id not in self.names:
            taken = set(self.names.values())
            free = (f"{address}#{n}" if n > 1 else address for n in range(1, len(taken) + 2))
            self.names[node_id] = next(name for name in free if name not in taken)
        cores = float(node.get("Resources", {}).get("CPU", 0.0))
        return Host(
            name=self.names[node_id],
            node_id=node_id,
            address=address,
            cores=cores or float(psutil.cpu_count() or 1),
        )

    def note(self, host: str, ratio: float) -> None:
        """What a node on this host said of its machine."""
        with self.lock:
            if host in self.known:
                self.measured[host] = (ratio, time.monotonic())

    def views(self) -> tuple[HostView, ...]:
        """All hosts with their use. Blocks for at most about PROBE_S."""
        hosts = self.alive()
        self.measure(hosts)
        now = time.monotonic()
        with self.lock:
            fresh = {
                name: ratio for name, (ratio, when) in self.measured.items() if now - when < FRESH_S
            }
        return tuple(
            HostView(
                host=host.name,
                cores=host.cores,
                cpu_ratio=fresh.get(host.name),
                address=host.address,
            )
            for host in hosts
        )

    def measure(self, hosts: list[Host]) -> None:
        now = time.monotonic()
        with self.lock:
            stale = [
                host
                for host in hosts
                if now - self.measured.get(host.name, (0.0, -FRESH_S))[1] >= FRESH_S
            ]
        found = {host.name: cpu_ratio() for host in stale if host.node_id == self.here}
        found |= self.ask([host for host in stale if host.node_id != self.here])
        with self.lock:
            self.measured.update({name: (ratio, time.monotonic()) for name, ratio in found.items()})

    def ask(self, hosts: list[Host]) -> dict[str, float]:
        """What probes on these hosts say within PROBE_S, by name; a later answer counts the next
        time."""
        with self.lock:
            for host in hosts:
                if host.name not in self.asked.values():
                    near = NodeAffinitySchedulingStrategy(host.node_id, soft=False)
                    probe = PROBE.options(scheduling_strategy=near).remote()
                    self.asked[probe] = host.name
            wanted = {host.name for host in hosts}
            asked = {probe: at for probe, at in self.asked.items() if at in wanted}
        if not asked:
            return {}
        ready, _ = ray.wait(list(asked), num_returns=len(asked), timeout=PROBE_S)
        with self.lock:
            for probe in ready:
                self.asked.pop(probe, None)
        found = {}
        for probe in ready:
            try:
                found[asked[probe]] = float(ray.get(probe))
            except ray.exceptions.RayError:
                continue  # the host is on its way out: it stays unmeasured
        return found
