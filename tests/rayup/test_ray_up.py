"""`ray up` as the page tells it, over real SSH, on machines made out of namespaces.

One story, in the order in which an operator lives it: three machines come up, a job runs, a fourth
machine joins, nodes and links die, a machine is replaced, all goes down. Each command of
`deploy/README.md` is run as it is written there.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.rayup.namespace_site import Site, why_not
from tests.rayup.operator_machine import (
    ADDRESSES,
    DEPLOYING,
    EXAMPLES,
    README,
    Operator,
    build_wheels,
    say,
)
from tests.rayup.readme_blocks import blocks_of

if TYPE_CHECKING:
    from collections.abc import Iterator

slow = [pytest.mark.integration, pytest.mark.slow]
RUN = {
    README: {"Up": 2, "Jobs": 1, "One more machine": 1, "Down": 1},
    DEPLOYING: {
        "Machines without PyPI": 1,
        "A machine that was replaced": 1,
        "Jobs that outlive a machine": 1,
        "To submit": 2,
    },
}
"""The blocks of the pages, by their headings: all of them are run here."""


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_every_block_of_the_pages_is_run_here(page: Path) -> None:
    assert {heading: len(blocks) for heading, blocks in blocks_of(page).items()} == RUN[page]


def test_elsewhere_it_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert why_not() == "namespaces, overlays and links need root: sudo make test-rayup"
    monkeypatch.setattr("sys.platform", "darwin")
    assert why_not().startswith("machines are made out of Linux namespaces")


@pytest.fixture
def operator() -> Iterator[Operator]:
    reason = why_not()
    if reason:
        pytest.fail(f"make test-rayup cannot run here: {reason}", pytrace=False)
    wheels = build_wheels()
    with Site() as site:
        for name in ("op", "m1", "m2", "m3"):
            site.add(name, ADDRESSES.get(name, "10.99.0.9"))
        operator = Operator(site)
        operator.prepare(wheels)
        yield operator
    assert not [mount for mount in mounts() if str(site.folder) in mount]
    assert not processes_in(site.folder)


def mounts() -> list[str]:
    return Path("/proc/mounts").read_text(encoding="utf-8").splitlines()


def processes_in(folder: Path) -> list[str]:
    """Processes on this machine that name the folder of a site."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        found += [line] if str(folder) in line else []
    return found


@pytest.mark.integration
@pytest.mark.slow
def test_the_story_of_a_cluster(operator: Operator) -> None:
    try:
        for part in STORY:
            part(operator)
    except BaseException:
        operator.tell_logs()
        raise


def brings_it_up(operator: Operator) -> None:
    operator.step("up")
    operator.block("Up")
    operator.change("cluster.yaml", EXAMPLES_OF_THE_FILE)
    operator.change("env.sh", {f"# {line}": line for line in WITHOUT_PYPI})
    operator.change("env.sh", {"# export PLAIT_SILENCE": "export PLAIT_SILENCE"})  # a busy machine
    said = operator.block("Up", 1)
    assert "preflight: ok, 3 nodes, " in said, said
    listed = operator.on_head("plait ls")
    assert "error" not in re.sub(r"\berror$", "", listed, flags=re.M).lower(), listed


EXAMPLES_OF_THE_FILE = {old: new for old, new in EXAMPLES.items() if old != "192.0.2.13"}
WITHOUT_PYPI = ("export PIP_NO_INDEX", "export PIP_FIND_LINKS")


def keeps_others_out(operator: Operator) -> None:
    """Another user of the head, and another machine without the token."""
    operator.step("others")
    site = operator.site
    site.on("m1:eve", "python3", "-c", TRAP)
    said = operator.on_head("plait ls")
    assert "phase" in said, said
    heard = site.on("m1:eve", "cat", "/tmp/heard").stdout
    assert heard == "", heard
    assert site.on("m1:eve", "ls", "/home/plait/.plait", check=False).returncode
    for port in (44217, 44227, 8265):
        closed = f"exec 3<>/dev/tcp/{ADDRESSES['m1']}/{port}"
        assert site.on("op:eve", "bash", "-c", closed, check=False).returncode, port
    for name in ("m1", "m2"):
        listening = site.on(name, "ss", "-Hltn").stdout.splitlines()
        wide = [line.split()[3] for line in listening if line.split()[3].startswith("0.0.0.0:")]
        assert wide == ["0.0.0.0:22"], listening  # metrics would be there


TRAP = """
import os, pathlib, socket
folder = pathlib.Path("/tmp/ray")
folder.mkdir(exist_ok=True)
folder.chmod(0o777)
listener = socket.create_server(("127.0.0.1", 0))
(folder / "ray_current_cluster").write_text(f"127.0.0.1:{listener.getsockname()[1]}")
pathlib.Path("/tmp/heard").write_text("")
if os.fork() == 0:
    os.setsid()
    null = os.open("/dev/null", os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    while True:
        line, _ = listener.accept()
        with line, open("/tmp/heard", "ab") as heard:
            heard.write(b"somebody came: " + line.recv(10_000))
"""


def submits_from_elsewhere(operator: Operator) -> None:
    """What the operator's machine can do with the token, and what it is told."""
    operator.step("from the operator's machine")
    with_token = "PLAIT_HOME=$PWD; . ./env.sh; "
    said = operator.sh(f"{with_token}plait submit job.py --nodes 3", 2)
    assert "none was named and none runs on this machine" in said, said
    said = operator.sh(f"{with_token}plait ls --address 192.0.2.10:6379", 2)
    assert "this machine is not one of its machines" in said, said
    tunnel, client = blocks_of(DEPLOYING)["To submit"]
    said = operator.sh(f"{tunnel.strip()} && {client.strip()}")
    assert "phase" in said, said


def runs_a_job_and_adds_a_machine(operator: Operator) -> None:
    operator.step("a job")
    said = operator.block("Jobs")
    assert re.search(r"^job\s", said, re.M), said
    view = operator.wait_for("job", lambda view: view["phase"] == "running")
    assert hosts_of(view) == {ADDRESSES[name] for name in ("m1", "m2", "m3")}, view
    operator.step("a fourth machine, while the job runs")
    operator.site.add("m4", ADDRESSES["m4"])
    operator.block("One more machine")
    view = operator.status("job")
    assert view["phase"] == "running", view
    assert hosts_of(view) == set(ADDRESSES.values()), view
    operator.on_head("plait rescale job --nodes 2 --strategy batched")
    operator.sh("ray rsync-up cluster.yaml check.py '~/check.py'")
    checked(operator, "job")


def checked(operator: Operator, name: str) -> None:
    """Stops a job and compares all of its output with a plain loop."""
    said = operator.on_head(f"python check.py {name}")
    found = re.findall(r".* 0 wrong, whole", said)
    assert found, said
    say(f"{name}: {found[0]}")


def hosts_of(view: dict[str, Any]) -> set[str]:
    return {node["host"] for node in view["nodes"] if node["phase"] == "member"}


def members(view: dict[str, Any]) -> list[dict[str, Any]]:
    return [node for node in view["nodes"] if node["phase"] == "member"]


def started(operator: Operator, name: str) -> dict[str, Any]:
    operator.on_head(f"plait submit job.py --nodes 4 --name {name}")
    return operator.wait_for(name, lambda view: view["phase"] == "running")


def machine_of(host: str) -> str:
    return next(name for name, address in ADDRESSES.items() if address == host.partition("#")[0])


def saves_a_job(operator: Operator) -> None:
    operator.step("a job with checkpoints")
    operator.block("Jobs that outlive a machine", page=DEPLOYING)
    view = operator.wait_for("saved", lambda view: view["phase"] == "running")
    assert view["checkpoint"]["number"] > 0, view


def await_back(operator: Operator, before: dict[str, Any]) -> dict[str, Any]:
    """Until the job has gone back to a checkpoint and has all of its nodes again."""
    attempt = before["checkpoint"]["attempt"]

    def is_back(view: dict[str, Any]) -> bool:
        back = view["checkpoint"]["attempt"] > attempt and view["phase"] == "running"
        return back and len(members(view)) == len(members(before))

    view = operator.wait_for(before["name"], is_back)
    known = view["checkpoint"]
    back = known["recovery"]
    say(
        f"attempt {known['attempt']} went back to checkpoint {back['number']} in "
        f"{back['ended_at'] - back['began_at']:.1f} s: {back['reason']}"
    )
    return view


def kill_one(operator: Operator, view: dict[str, Any]) -> None:
    victim = next(one for one in members(view) if one["rank"] > 0)
    operator.site.on(machine_of(victim["host"]), "kill", "-9", str(victim["pid"]))


def loses_a_process(operator: Operator) -> None:
    operator.step("a process of each job is killed")
    saved = operator.status("saved")
    kill_one(operator, saved)
    kill_one(operator, started(operator, "killed"))
    view = operator.wait_for("killed", lambda view: view["phase"] == "failed")
    assert "was lost (its process has ended)" in view["error"], view["error"]
    say(view["error"])
    operator.on_head("plait forget killed")
    await_back(operator, saved)


def loses_a_link(operator: Operator) -> None:
    operator.step("a link is cut")
    started(operator, "cut")
    saved = operator.status("saved")
    assert ADDRESSES["m2"] in hosts_of(saved), saved
    operator.site.cut("m2")
    view = operator.wait_for("cut", lambda view: view["phase"] == "failed")
    assert f"on {ADDRESSES['m2']} was lost" in view["error"], view["error"]
    say(view["error"])
    operator.on_head("plait forget cut")
    view = await_back(operator, saved)
    assert ADDRESSES["m2"] not in hosts_of(view), view
    operator.step("the link is back")
    operator.site.mend("m2")
    said = operator.on_head("plait preflight --nodes 4 --wait 3m")
    assert "preflight: ok, 4 nodes, " in said, said


def replaces_a_machine(operator: Operator) -> None:
    operator.step("a machine is replaced by a new one at its address")
    saved = operator.status("saved")
    assert ADDRESSES["m3"] in hosts_of(saved), saved
    operator.site.off("m3")
    operator.site.add("m3", ADDRESSES["m3"])
    operator.block("A machine that was replaced", page=DEPLOYING)
    said = operator.on_head("plait preflight --nodes 4 --wait 1m")
    assert "preflight: ok, 4 nodes, " in said, said
    await_back(operator, saved)
    started(operator, "again")
    for name in ("again", "saved"):
        checked(operator, name)


def takes_it_down(operator: Operator) -> None:
    operator.step("down")
    operator.block("Down")
    assert operator.rays_left() == {}


def misses_a_machine(operator: Operator) -> None:
    operator.step("up again, and one machine is off")
    operator.site.off("m3")
    operator.change("cluster.yaml", {"--wait 10m": "--wait 40s"})
    said = operator.sh("ray up -y cluster.yaml", 1)
    assert re.search(r"waiting: [12] of 3 nodes are there", said), said
    assert "2 of 3 nodes are there" in said, said
    found = re.search(r"error: 10\.99\.0\.3: this machine .* has not joined\s+(.*)", said)
    assert found, said
    say(found[0])
    assert "ssh: connect to host 10.99.0.3 port 22" in found[1], said
    operator.sh("./down.sh", None)
    assert operator.rays_left() == {}


STORY = (
    brings_it_up,
    keeps_others_out,
    submits_from_elsewhere,
    runs_a_job_and_adds_a_machine,
    saves_a_job,
    loses_a_process,
    loses_a_link,
    replaces_a_machine,
    takes_it_down,
    misses_a_machine,
)
