"""Is this cluster fit for plait? Pure checks of what its machines report about themselves.

Facts come in as `HostFacts`, one for each Ray node and one for the machine that submits; findings
go out, each with what is wrong, on which host, and what to do. Nothing here touches a machine:
`ray_preflight.py` gathers the facts, `probe.py` is the part of it that runs on the nodes. The rule:
every finding names a host and carries an advice that can be followed as it stands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from plait.deploy.absent import Absent
from plait.text.units import bytes_text, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Severity = Literal["error", "warning"]

GB = 10**9
CLUSTER = "cluster"
"""The host of a finding about the cluster as a whole."""
LOOPBACK = ("127.", "::1", "localhost")
MOST_PAIRS = 3
"""Up to this many closed connections to one host are listed one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What a machine is, as seen by a process that Ray started on it."""

    host: str
    """Unique: the host name, with a part of the Ray node id if several nodes share it."""
    machine: str = ""
    """The host name; nodes that share it are on one machine."""
    address: str = ""
    """By which Ray calls the node."""
    python: str = ""
    ray_version: str = ""
    plait_version: str = ""
    """Empty: not installed."""
    plait_error: str = ""
    """Why `import plait` failed, if it did for another reason than being absent."""
    native_error: str = ""
    """Why a compiled module of plait could not be loaded; empty: all of them were."""
    cores: int = 0
    """That the process may use: affinity and control groups counted in."""
    memory_bytes: int = 0
    token_mode: str = ""
    """RAY_AUTH_MODE as the process sees it."""
    token_file_mode: int | None = None
    """Permission bits of the token file, None if there is none."""
    open_folder: str = ""
    """Ray's folder, if other users of the machine can write there."""
    dashboard_hosts: tuple[str, ...] = ()
    """Addresses on which Ray's dashboard listens on this machine."""
    clock_offset_ms: float = 0.0
    """How far its clock is ahead of the clock of the machine that asks."""
    clock_error_ms: float = 0.0
    """The offset is known to this precision: half of the time of the call."""
    reach: Mapping[str, str] = field(default_factory=dict)
    """For each other host whether a connection to its data port worked: "" or why not."""
    submits: bool = False
    """The machine that asks, not a node: only its versions count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a cluster must have."""

    nodes: int = 1
    oldest_ray: tuple[int, int, int] = (2, 54, 0)
    cores: int = 2
    memory_bytes: int = 2 * GB
    clock_ms: float = 250.0
    """Rates and delays that are compared between nodes are wrong by as much as clocks differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it should be. An error: a job would fail or be open to others."""

    severity: Severity
    host: str
    what: str
    advice: str


def check(
    hosts: Sequence[HostFacts],
    needs: Needs | None = None,
    silent: Mapping[str, str] | None = None,
    absent: Absent | None = None,
) -> tuple[Finding, ...]:
    """All findings, errors first. `silent`: nodes that gave no facts, and why; `absent`: machines
    that are not even listed."""
    needs = needs or Needs()
    silent = silent or {}
    nodes = [facts for facts in hosts if not facts.submits]
    findings = missing_nodes(len(nodes) + len(silent), needs, absent or Absent())
    findings += silent_nodes(silent) + loopback(nodes)
    findings += versions(hosts)
    for facts in nodes:
        findings += (
            installation(facts, wheel(hosts))
            + security(facts, needs)
            + size(facts, needs)
            + clock(facts, needs)
        )
    findings += connections(nodes)
    return tuple(sorted(findings, key=lambda finding: finding.severity != "error"))


def missing_nodes(count: int, needs: Needs, absent: Absent) -> list[Finding]:
    """One finding, and one for each machine of which something is known."""
    if count >= needs.nodes:
        return []
    where = absent.logs or "~/.plait/tmp/ray/session_latest/logs"
    advice = (
        "start Ray on the missing machines (ray up, deploy/join.sh, or ray start "
        f"--address=HEAD:6379); what the head tried is in {where}/monitor.out on the head, what "
        "Ray on a machine did not like in raylet.out there"
    )
    findings = [error(CLUSTER, f"{count} of {needs.nodes} nodes are there", advice)]
    for host, said in absent.said.items():
        told = "; ".join(said) or "nothing yet"
        findings.append(
            error(
                host,
                "this machine of the cluster file has not joined",
                f"the head's log says: {told}",
            )
        )
    return findings


def loopback(nodes: Sequence[HostFacts]) -> list[Finding]:
    """Several machines: none of them may be known by an address that means another one there."""
    if len({facts.machine for facts in nodes}) < 2:
        return []
    advice = (
        "other machines cannot reach it there: ray start --node-ip-address=ADDRESS with the "
        "address they use (without a default route Ray takes that of the host name)"
    )
    return [
        error(facts.host, f"Ray calls this node by {facts.address}", advice)
        for facts in nodes
        if facts.address.startswith(LOOPBACK)
    ]


def silent_nodes(silent: Mapping[str, str]) -> list[Finding]:
    advice = (
        "if a port is the trouble, choose another range; else run there python -c 'import "
        "plait.node_runtime.native._engine': if that dies, the wheel is not for this processor"
    )
    return [error(host, f"gave no answer: {why}", advice) for host, why in sorted(silent.items())]


def versions(hosts: Sequence[HostFacts]) -> list[Finding]:
    """Everyone must have the same Python (but for its last number), Ray and plait."""
    here = next((facts for facts in hosts if facts.submits), None)
    findings: list[Finding] = []
    kinds: tuple[tuple[str, Callable[[HostFacts], str], str], ...] = (
        (
            "Python",
            lambda facts: ".".join(facts.python.split(".")[:2]),
            "functions are sent as byte code: make the environments with the same Python, {}",
        ),
        (
            "Ray",
            lambda facts: facts.ray_version,
            'pip install "ray[default]=={}" on each, then restart',
        ),
        (
            "plait",
            lambda facts: facts.plait_version,
            "pip install --force-reinstall plait-{}-*.whl on each",
        ),
    )
    for name, version, advice in kinds:
        groups: dict[str, list[str]] = {}
        for facts in hosts:
            if version(facts):
                groups.setdefault(version(facts), []).append(facts.host)
        if len(groups) > 1:
            wanted = (version(here) if here else "") or max(groups, key=lambda v: len(groups[v]))
            has = "; ".join(f"{v} on {some(groups[v])}" for v in sorted(groups, key=numbers))
            what = f"{name} differs between the machines: {has}"
            findings.append(error(CLUSTER, what, advice.format(wanted)))
    return findings


def wheel(hosts: Sequence[HostFacts]) -> str:
    """The file to install: of the version that the submitting machine has, or most have."""
    here = [facts.plait_version for facts in hosts if facts.submits and facts.plait_version]
    known = here or sorted(facts.plait_version for facts in hosts if facts.plait_version)
    return f"plait-{max(known, key=known.count)}-*.whl" if known else "plait-*.whl"


def installation(facts: HostFacts, wheel: str) -> list[Finding]:
    if facts.plait_error:
        advice = f"run there, in the environment of Ray: pip install --force-reinstall {wheel}"
        return [error(facts.host, f"import plait fails: {facts.plait_error}", advice)]
    if not facts.plait_version:
        advice = (
            f"run there, in the environment of Ray: pip install {wheel}; or put the wheel into the "
            "folder wheels beside the cluster file and run ray up again"
        )
        return [error(facts.host, "plait is not installed", advice)]
    if facts.native_error:
        advice = (
            "install the wheel for this machine's processor and Python; from a checkout, run "
            "make build there"
        )
        return [
            error(facts.host, f"a native module cannot be loaded: {facts.native_error}", advice)
        ]
    return []


def security(facts: HostFacts, needs: Needs) -> list[Finding]:
    findings: list[Finding] = []
    if facts.ray_version and numbers(facts.ray_version) < needs.oldest_ray:
        oldest = ".".join(map(str, needs.oldest_ray))
        what = (
            f"Ray {facts.ray_version} has known holes (CVE-2025-62593 before 2.52.0, "
            "CVE-2026-27482 before 2.54.0)"
        )
        findings.append(
            error(facts.host, what, f'pip install "ray[default]>={oldest}" on every machine')
        )
    if facts.token_mode != "token":
        mode = (
            f"RAY_AUTH_MODE is {facts.token_mode}"
            if facts.token_mode
            else "RAY_AUTH_MODE is not set"
        )
        advice = (
            "anyone who reaches this machine can run code on it: set RAY_AUTH_MODE=token and "
            "RAY_AUTH_TOKEN_PATH before ray start, on every machine and where you submit"
        )
        findings.append(error(facts.host, f"token authentication is off ({mode})", advice))
    if facts.token_file_mode is not None and facts.token_file_mode & 0o077:
        what = f"other users may read the token file (mode {facts.token_file_mode:o})"
        findings.append(
            warning(facts.host, what, "chmod 600 the file that RAY_AUTH_TOKEN_PATH names")
        )
    if facts.open_folder:
        what = f"other users may write to Ray's folder {facts.open_folder}"
        advice = (
            "who puts another address there is sent the token: before ray start, set RAY_TMPDIR "
            "to a folder of mode 700 (deploy/env.sh does)"
        )
        findings.append(warning(facts.host, what, advice))
    wide = [host for host in facts.dashboard_hosts if not host.startswith(LOOPBACK)]
    if wide:
        advice = (
            "ray start --dashboard-host=127.0.0.1, and reach it with ray dashboard cluster.yaml "
            "or an SSH tunnel"
        )
        what = f"the dashboard listens on {', '.join(wide)}, open to the network"
        findings.append(error(facts.host, what, advice))
    return findings


def size(facts: HostFacts, needs: Needs) -> list[Finding]:
    findings: list[Finding] = []
    if facts.cores < needs.cores:
        what = f"{plural(facts.cores, 'core')} for plait and Ray's own processes"
        advice = f"give it {needs.cores} or more; look at CPU limits of a container as well"
        findings.append(warning(facts.host, what, advice))
    if facts.memory_bytes < needs.memory_bytes:
        what = f"{bytes_text(facts.memory_bytes)} of memory"
        advice = f"give it {bytes_text(needs.memory_bytes)} or more: Ray alone takes about one"
        findings.append(warning(facts.host, what, advice))
    return findings


def clock(facts: HostFacts, needs: Needs) -> list[Finding]:
    if abs(facts.clock_offset_ms) - facts.clock_error_ms <= needs.clock_ms:
        return []
    side = "ahead" if facts.clock_offset_ms > 0 else "behind"
    what = f"the clock is {abs(facts.clock_offset_ms):,.0f} ms {side}"
    advice = "run a time service there (chrony, systemd-timesyncd); the order of records is safe"
    return [warning(facts.host, what, advice)]


def connections(nodes: Sequence[HostFacts]) -> list[Finding]:
    """Closed ways, gathered by the host they lead to: there the firewall has to be opened."""
    closed: dict[str, list[tuple[str, str]]] = {}
    for facts in nodes:
        for peer, why in facts.reach.items():
            if why:
                closed.setdefault(peer, []).append((facts.host, why))
    findings: list[Finding] = []
    for peer, ways in sorted(closed.items()):
        advice = (
            f"let TCP from the other nodes in at {peer}, on the data ports (ip_local_port_range "
            "unless you set a range), and check that its host name leads to that address"
        )
        if len(ways) > MOST_PAIRS:
            what = f"no connection from {some([source for source, _ in ways])}: {ways[0][1]}"
            findings.append(error(peer, what, advice))
        else:
            findings += [error(peer, f"no connection from {a}: {why}", advice) for a, why in ways]
    return findings


def report(findings: Iterable[Finding], hosts: Sequence[HostFacts] = ()) -> str:
    """The findings for people; one line if there are none."""
    lines: list[str] = []
    for finding in findings:
        lines += [f"{finding.severity}: {finding.host}: {finding.what}", f"  {finding.advice}"]
    if lines:
        return "\n".join(lines)
    nodes = [facts for facts in hosts if not facts.submits]
    if not nodes:
        return "preflight: ok"
    first = nodes[0]
    return (
        f"preflight: ok, {plural(len(nodes), 'node')}, "
        f"{plural(sum(facts.cores for facts in nodes), 'core')}, plait {first.plait_version}, "
        f"Ray {first.ray_version}, Python {first.python}"
    )


def failed(findings: Iterable[Finding]) -> bool:
    return any(finding.severity == "error" for finding in findings)


def error(host: str, what: str, advice: str) -> Finding:
    return Finding(severity="error", host=host, what=what, advice=advice)


def warning(host: str, what: str, advice: str) -> Finding:
    return Finding(severity="warning", host=host, what=what, advice=advice)


def numbers(version: str) -> tuple[int, ...]:
    """The numbers a version begins with: 2.54.0rc1 is (2, 54, 0)."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def port_range(text: str) -> tuple[int, int]:
    """20000-20100, or one port."""
    first, _, last = text.partition("-")
    ports = int(first), int(last or first)
    if not 0 <= ports[0] <= ports[1] <= 65535:
        raise ValueError(text)
    return ports


def some(names: Sequence[str], most: int = 3) -> str:
    """Names in a row, not all of a thousand."""
    shown = ", ".join(sorted(names)[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
