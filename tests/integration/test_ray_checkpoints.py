"""Jobs with checkpoints on a real Ray cluster: processes are killed, the output is as if none was.

Every record is there once, in order, in what is collected and in the files, whoever was killed: a
node, the one with the sinks, two, all of them, the manager; while nothing happens, while a
checkpoint is taken, while its output is published, while bins move, and while the job goes back to
a checkpoint. A node that was frozen until it was replaced, and then comes back, changes nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait import col

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.cluster.job_handle import JobHandle
    from plait.coordinator.messages.views import JobView

pytestmark = pytest.mark.integration

PATIENCE_S = 180.0
RATE = 20_000
QUICK = {
    "test_killed[home-saving]",
    "test_killed[all-idle]",
    "test_everything_is_lost[fresh]",
}
"""In make test; the others take a minute each."""


class Gate(plait.Sink):
    """Shows nothing. While there is a file `shut` in its folder, it does not come to the end of
    publishing; `waits` is there while it waits for that."""

    kind = "follower"

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def open(self, schema: Any, resume: Any = None) -> plait.Writer:
        return GateWriter(Path(self.folder))


class GateWriter(plait.Writer):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, batch: Any) -> None:
        pass

    def mark(self, boundary: int) -> None:
        pass

    def prepare(self, boundary: int) -> Any:
        return boundary

    def commit(self, boundary: int, notes: bytes = b"") -> None:
        shut, waits = self.folder / "shut", self.folder / "waits"
        while shut.exists():
            waits.touch()
            time.sleep(0.01)

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


def shut_gate(folder: Path) -> Callable[[], None]:
    """Waits until output is being published, and holds it there; gives what lets it go on."""
    shut, waits = folder / "shut", folder / "waits"
    shut.touch()
    end = time.monotonic() + PATIENCE_S
    while not waits.exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    return shut.unlink


def endless(name: str, folder: Path) -> plait.Job:
    job = plait.Job(name)
    rows = job.source(plait.Rate(RATE), name="rows")
    rows.filter(col("seq") < 0).sink(Gate(folder), name="gate")
    keyed = rows.with_columns(key=col("seq") * 7919 % 101).key_by("key")
    keyed.aggregate(seq=plait.last("seq"), n=plait.count()).sink(plait.Collect(), name="out")
    some = rows.filter(col("seq") % 1000 == 0)
    some.sink(plait.Files(folder / "out", format="jsonl"), name="files")
    return job


def until(true: Callable[[JobView], Any], handle: JobHandle) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true(view := handle.status()):
        assert not view.over, str(view)
        assert time.monotonic() < end, str(view)
        time.sleep(0.02)


def saved(view: JobView) -> int:
    return 0 if view.checkpoint is None else view.checkpoint.number


def has_saved(number: int, view: JobView) -> bool:
    return saved(view) >= number


def pids(view: JobView, *phases: str) -> dict[int, int]:
    return {node.rank: node.pid for node in view.nodes if node.phase in phases}


def victims_of(who: str, view: JobView) -> list[int]:
    members = pids(view, "member", "joining")
    others = [pid for rank, pid in members.items() if rank != view.home]
    return {
        "node": others[:1],
        "home": [members[view.home]],
        "two": [members[view.home], *others[:1]],
        "all": list(members.values()),
        "everything": list(members.values()),
        "manager": [],
    }[who]


def kill(who: str, handle: JobHandle) -> None:
    """Ends live processes, and waits until they are gone."""
    victims = victims_of(who, handle.status())
    if who in ("manager", "everything"):
        link: Any = handle._link
        victims = [link.ask("pid"), *victims]
    assert victims
    for pid in victims:
        os.kill(pid, signal.SIGKILL)  # raises if there is none
    end = time.monotonic() + PATIENCE_S
    while any(map(is_alive, victims)):
        assert time.monotonic() < end, f"{victims} do not end"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """One whose parent has not yet asked for its end does not live."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def has_state(who: str, handle: JobHandle) -> bool:
    """Whether what is to be killed keeps something that is lost then."""
    view = handle.status()
    victims = victims_of(who, view)
    return sum(node.state_bytes for node in view.nodes if node.pid in victims) > 0


def check_whole(handle: JobHandle, folder: Path) -> None:
    result = handle.result(PATIENCE_S)
    table = result.outputs["out"]
    got = list(zip(*(table.column(name).to_pylist() for name in ("key", "seq", "n")), strict=True))
    seen: dict[int, int] = {}
    for number, (key, seq, n) in enumerate(got):
        seen[key] = seen.get(key, 0) + 1
        assert (key, seq, n) == (number * 7919 % 101, number, seen[key])
    rows = [
        json.loads(line)["seq"]
        for path in sorted((folder / "out").iterdir())
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    assert rows == list(range(0, len(got), 1000))
    assert len(got) == result.account.read > 0


@pytest.mark.parametrize("when", ["idle", "saving", "publishing", "migrating", "recovering"])
@pytest.mark.parametrize("who", ["node", "home", "two", "all", "manager"])
def test_killed(cluster: str, tmp_path: Path, who: str, when: str) -> None:
    handle = plait.submit(
        endless(f"{who}-{when}", tmp_path),
        address=cluster,
        nodes=3,
        workers=1,
        bin_bits=6,
        checkpoint=plait.Checkpoint(str(tmp_path / "saved"), every="500ms", max_age="3m"),
    )
    try:
        until(lambda view: saved(view) >= 2, handle)
        match when:
            case "saving":
                until(lambda view: view.checkpoint is not None and view.checkpoint.saving, handle)
            case "migrating":
                handle.rescale(4, strategy="fluid", gap="100ms")
                until(lambda view: len(pids(view, "member")) == 4, handle)
            case "publishing":
                go_on = shut_gate(tmp_path)
            case "recovering":
                kill("node", handle)
                until(lambda view: view.phase != "running", handle)
        if when != "recovering" and who != "manager":
            until(lambda _: has_state(who, handle), handle)
        kill(who, handle)
        if when == "publishing":
            go_on()
        before = saved(handle.status())
        until(lambda view: view.phase == "running" and saved(view) >= before + 2, handle)
        handle.stop()
        check_whole(handle, tmp_path)
    finally:
        discard(handle)


@pytest.mark.parametrize("journal", ["kept", "fresh"])
def test_everything_is_lost(cluster: str, tmp_path: Path, journal: str) -> None:
    """All processes of the job and the manager at once. Where the journal is lost, too, the job is
    submitted anew, and the folder of checkpoints alone says where it goes on."""
    import ray

    config = plait.Checkpoint(str(tmp_path / "saved"), every="500ms", max_age="3m")

    def submit(life: int) -> JobHandle:
        return plait.submit(
            endless("everything", tmp_path),
            address=cluster,
            nodes=2,
            workers=1,
            namespace=f"lost-{journal}-{life}",
            journal_dir=str(tmp_path / f"journal-{life}"),
            silence="60s",
            checkpoint=config,
        )

    handles = [submit(1)]
    try:
        until(lambda view: saved(view) >= 2, handles[0])
        until(lambda _: has_state("everything", handles[0]), handles[0])
        before = saved(handles[0].status())
        if journal == "fresh":
            link: Any = handles[0]._link
            pids_there = [link.ask("pid"), *victims_of("all", handles[0].status())]
            ray.kill(link.manager, no_restart=True)
            for pid in pids_there[1:]:
                os.kill(pid, signal.SIGKILL)
            end = time.monotonic() + PATIENCE_S
            while any(map(is_alive, pids_there)):
                assert time.monotonic() < end
                time.sleep(0.01)
            handles.append(submit(2))
        else:
            kill("everything", handles[0])
        handle = handles[-1]
        until(lambda view: view.phase == "running" and saved(view) >= before + 2, handle)
        handle.stop()
        check_whole(handle, tmp_path)
    finally:
        discard(handles[-1])
        for one in handles:
            last: Any = one._link
            with contextlib.suppress(ray.exceptions.RayError):
                ray.kill(last.manager, no_restart=True)


@pytest.mark.parametrize("when", ["saving", "publishing"])
@pytest.mark.parametrize("who", ["node", "home"])
def test_frozen_until_replaced(cluster: str, tmp_path: Path, who: str, when: str) -> None:
    """What a node was about to do when it was frozen comes to nothing, or has been done."""
    handle = plait.submit(
        endless(f"frozen-{who}-{when}", tmp_path),
        address=cluster,
        nodes=2,
        workers=1,
        silence="5s",
        checkpoint=plait.Checkpoint(str(tmp_path / "saved"), every="500ms", max_age="3m"),
    )
    go_on: Callable[[], object] = bool
    frozen = 0
    try:
        until(lambda view: saved(view) >= 2, handle)
        if when == "publishing":
            go_on = shut_gate(tmp_path)
        else:
            until(lambda view: view.checkpoint is not None and view.checkpoint.saving, handle)
        view = handle.status()
        [frozen] = victims_of(who, view)
        os.kill(frozen, signal.SIGSTOP)
        if who == "node":
            go_on()
        before = view
        until(lambda view: view.phase == "running" and attempt(view) > attempt(before), handle)
        awake = wake(frozen)
        if who == "home":
            go_on()
        number = saved(handle.status())
        until(lambda view: view.phase == "running" and saved(view) >= number + 3, handle)
        assert awake, "it was ended before it could come back"
        handle.stop()
        check_whole(handle, tmp_path)
    finally:
        wake(frozen)
        discard(handle)


def attempt(view: JobView) -> int:
    return 0 if view.checkpoint is None else view.checkpoint.attempt


def wake(pid: int) -> bool:
    """Whether there was somebody to wake."""
    try:
        if pid:
            os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return False
    return True


def discard(handle: JobHandle) -> None:
    """Frees the name, whatever became of the job."""
    if not handle.status().over:
        handle.cancel()
        with contextlib.suppress(plait.PlaitError):
            handle.wait(PATIENCE_S)
    handle.forget()


def test_a_stopped_job_goes_on_where_it_was(cluster: str, tmp_path: Path) -> None:
    """Submitted again under its name, on another number of nodes."""
    config = plait.Checkpoint(str(tmp_path / "saved"), every="500ms", max_age="3m")
    for nodes in (2, 1):
        handle = plait.submit(
            endless("again", tmp_path), address=cluster, nodes=nodes, workers=1, checkpoint=config
        )
        begun = saved(handle.status())
        until(partial(has_saved, begun + 2), handle)
        handle.stop()
        handle.wait(PATIENCE_S)
        if nodes == 2:
            handle.forget()
    check_whole(handle, tmp_path)
    handle.forget()
