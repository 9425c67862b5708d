"""The preflight: each thing that can be wrong with a cluster is found, named and has an advice."""

from __future__ import annotations

import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from plait.deploy import ray_preflight
from plait.deploy.preflight import (
    GB,
    Finding,
    HostFacts,
    Needs,
    check,
    failed,
    numbers,
    port_range,
    report,
)
from plait.deploy.probe import Probe, listening_on, native_modules, open_folder, try_reach
from plait.deploy.ray_preflight import label_nodes, waiting

GOOD = HostFacts(
    host="a",
    python="3.11.7",
    ray_version="2.60.0",
    plait_version="0.1.0",
    cores=4,
    memory_bytes=8 * GB,
    token_mode="token",
    token_file_mode=0o600,
    dashboard_hosts=("127.0.0.1",),
    clock_offset_ms=3.0,
    clock_error_ms=1.0,
    reach={"b": ""},
)
OTHER = replace(GOOD, host="b", python="3.11.9", dashboard_hosts=(), reach={"a": ""})
HERE = HostFacts(
    host="this machine",
    python="3.11.7",
    ray_version="2.60.0",
    plait_version="0.1.0",
    submits=True,
)


def found(*hosts: HostFacts) -> Finding:
    findings = check(hosts)
    assert len(findings) == 1, findings
    assert findings[0].advice
    return findings[0]


def test_a_good_cluster_is_one_line() -> None:
    hosts = (GOOD, OTHER, HERE)
    findings = check(hosts, Needs(nodes=2))
    assert findings == ()
    assert report(findings, hosts) == (
        "preflight: ok, 2 nodes, 8 cores, plait 0.1.0, Ray 2.60.0, Python 3.11.7"
    )
    assert not failed(findings)


def test_versions_that_differ_say_who_has_what() -> None:
    one = found(GOOD, replace(OTHER, plait_version="0.0.9"), replace(OTHER, host="c"))
    assert (one.severity, one.host) == ("error", "cluster")
    assert one.what == "plait differs between the machines: 0.0.9 on b; 0.1.0 on a, c"
    assert one.advice == "pip install --force-reinstall plait-0.1.0-*.whl on each"


def test_the_submitting_machine_says_which_version_is_wanted() -> None:
    old = replace(GOOD, ray_version="2.58.0")
    one = found(old, replace(OTHER, ray_version="2.58.0"), HERE)
    assert one.what == "Ray differs between the machines: 2.58.0 on a, b; 2.60.0 on this machine"
    assert "ray[default]==2.60.0" in one.advice


def test_python_counts_to_its_second_number() -> None:
    one = found(GOOD, replace(OTHER, python="3.12.1"))
    assert one.what == "Python differs between the machines: 3.11 on a; 3.12 on b"


def test_plait_is_not_on_a_node() -> None:
    one = found(GOOD, replace(OTHER, plait_version=""))
    assert (one.severity, one.host, one.what) == ("error", "b", "plait is not installed")
    assert "pip install plait-0.1.0-*.whl" in one.advice


def test_plait_or_its_native_modules_do_not_load() -> None:
    one = found(replace(GOOD, plait_version="", plait_error="ImportError: no numpy"))
    assert one.what == "import plait fails: ImportError: no numpy"
    one = found(replace(GOOD, native_error="_engine: ImportError: wrong ELF class"))
    assert one.what == "a native module cannot be loaded: _engine: ImportError: wrong ELF class"


def test_an_old_ray_is_an_error() -> None:
    one = found(replace(GOOD, ray_version="2.53.1"))
    assert one.severity == "error"
    assert one.what.startswith("Ray 2.53.1 has known holes (CVE-")
    assert "ray[default]>=2.54.0" in one.advice


@pytest.mark.parametrize(
    ("mode", "said"), [("", "RAY_AUTH_MODE is not set"), ("disabled", "RAY_AUTH_MODE is disabled")]
)
def test_tokens_are_off(mode: str, said: str) -> None:
    one = found(replace(GOOD, token_mode=mode))
    assert (one.severity, one.what) == ("error", f"token authentication is off ({said})")


def test_the_token_can_be_read_by_others() -> None:
    one = found(replace(GOOD, token_file_mode=0o644))
    assert one.severity == "warning"
    assert one.what == "other users may read the token file (mode 644)"


def test_rays_folder_can_be_written_by_others() -> None:
    one = found(replace(GOOD, open_folder="/tmp/ray"))
    assert one.severity == "warning"
    assert one.what == "other users may write to Ray's folder /tmp/ray"
    assert "RAY_TMPDIR" in one.advice


def test_a_folder_is_open_if_others_may_come_to_it_and_write() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        outer, inner = Path(name), Path(name) / "ray"
        inner.mkdir()
        for modes, is_open in (
            ((0o755, 0o777), True),
            ((0o755, 0o755), False),
            ((0o700, 0o777), False),
        ):
            outer.chmod(modes[0])
            inner.chmod(modes[1])
            assert open_folder(inner) == (str(inner) if is_open else "")
    assert open_folder(Path("/there/is/none")) == ""


def test_a_machine_among_several_is_not_known_by_loopback() -> None:
    here = replace(GOOD, machine="a", address="127.0.1.1")
    one = found(here, replace(OTHER, machine="b", address="10.0.0.2"))
    assert (one.severity, one.host) == ("error", "a")
    assert one.what == "Ray calls this node by 127.0.1.1"
    assert "--node-ip-address" in one.advice
    assert check([here, replace(OTHER, machine="a", address="127.0.0.3")]) == ()  # one machine


def test_a_wait_tells_how_far_it_is() -> None:
    assert waiting(1, 3, 20.4, 600.0) == "waiting: 1 of 3 nodes are there, 20 of 600 s passed"


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.0.0.7"])
def test_the_dashboard_is_open(address: str) -> None:
    one = found(replace(GOOD, dashboard_hosts=("127.0.0.1", address)))
    assert one.severity == "error"
    assert one.what == f"the dashboard listens on {address}, open to the network"


def test_a_small_machine_is_a_warning() -> None:
    findings = check([replace(GOOD, cores=1, memory_bytes=GB)])
    assert [one.severity for one in findings] == ["warning", "warning"]
    assert [one.what for one in findings] == [
        "1 core for plait and Ray's own processes",
        "1.00 GB of memory",
    ]
    assert not failed(findings)


def test_clocks_apart_only_beyond_what_the_measurement_can_tell() -> None:
    assert check([replace(GOOD, clock_offset_ms=900.0, clock_error_ms=700.0)]) == ()
    one = found(replace(GOOD, clock_offset_ms=-1900.0))
    assert (one.severity, one.what) == ("warning", "the clock is 1,900 ms behind")


def test_a_closed_way_names_both_ends() -> None:
    one = found(replace(GOOD, reach={"b": "10.0.0.2:4000 refused the connection"}), OTHER)
    assert (one.severity, one.host) == ("error", "b")
    assert one.what == "no connection from a: 10.0.0.2:4000 refused the connection"


def test_a_host_that_nobody_reaches_is_one_finding() -> None:
    hosts = [replace(GOOD, host=f"h{n}", reach={"z": "timed out"}) for n in range(5)]
    one = found(*hosts)
    assert one.what == "no connection from h0, h1, h2 and 2 more: timed out"


def test_missing_and_silent_nodes_come_before_warnings() -> None:
    findings = check([replace(GOOD, cores=1)], Needs(nodes=3), {"b": "nothing within 60 s"})
    assert report(findings).splitlines()[::2] == [
        "error: cluster: 2 of 3 nodes are there",
        "error: b: gave no answer: nothing within 60 s",
        "warning: a: 1 core for plait and Ray's own processes",
    ]
    assert failed(findings)


def test_versions_as_numbers() -> None:
    assert numbers("2.54.0rc1") == (2, 54, 0)
    assert numbers("2.9.3") < numbers("2.54.0")
    assert numbers("unknown") == ()


def test_labels_are_unique() -> None:
    nodes = [("x", "1" * 40, "10.0.0.1"), ("y", "2" * 40, "10.0.0.2"), ("y", "3" * 40, "10.0.0.2")]
    assert [node.label for node in label_nodes(nodes)] == ["x", "y/22222222", "y/33333333"]


def test_port_ranges() -> None:
    assert port_range("20000-20100") == (20000, 20100)
    assert port_range("20000") == (20000, 20000)
    with pytest.raises(ValueError, match="2-1"):
        port_range("2-1")


def test_the_probe_reaches_a_listening_one_and_no_other() -> None:
    listening = Probe()
    port = listening.listen("127.0.0.1", 0, 0)
    try:
        assert listening_on(port) == ["127.0.0.1"]
        peers = {"good": ("127.0.0.1", port), "not there": ("127.0.0.2", port)}
        assert Probe().reach(peers, 30.0) == {
            "good": "",
            "not there": f"127.0.0.2:{port} refused the connection",
        }
        with pytest.raises(OSError, match=f"no free port of {port} to {port}"):
            Probe().listen("127.0.0.1", port, port)
    finally:
        listening.close()
    assert try_reach("127.0.0.1", port, 30.0) == f"127.0.0.1:{port} refused the connection"


def test_something_else_on_the_port_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, ThreadPoolExecutor(1) as pool:
        port = other.getsockname()[1]
        tried = pool.submit(try_reach, "127.0.0.1", port, 30.0)
        accepted, _ = other.accept()
        with accepted:
            accepted.sendall(b"220 mail\r\n")
        assert tried.result() == f"something else answers on 127.0.0.1:{port}"


def test_the_facts_of_this_machine() -> None:
    told = Probe().facts(0)
    assert told["plait_version"]
    assert told["cores"] >= 1
    assert told["memory_bytes"] > 0


def test_every_native_module_is_looked_at() -> None:
    folder = Path(__file__).resolve().parents[3] / "node_runtime" / "native"
    assert set(native_modules()) == {path.stem for path in folder.glob("_*.pyx")}


def test_the_command_reads_its_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[object, ...]] = []

    def gather(*question: object) -> ray_preflight.ClusterFacts:
        asked.append(question)
        return ray_preflight.ClusterFacts(hosts=(), silent={})

    monkeypatch.setattr(ray_preflight, "gather", gather)
    assert ray_preflight.main(["--address", "head:6379", "--nodes", "3", "--wait", "5m"]) == 1
    assert asked == [("head:6379", 3, (0, 0), 300.0)]
    assert "0 of 3 nodes" in capsys.readouterr().out
