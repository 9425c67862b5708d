"""Machines out of namespaces: each has its own root, processes, network, name and sshd.

A *site* is a switch and the machines at it. It lives in namespaces of one process, and everything
in it, mounts, links and processes, ends with that process; this machine is only read. Needs root on
Linux, and apt-get once, for what a machine needs beyond this one (kept in the user's cache).
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "plait" / "rayup"
NAMESPACES = ("--mount", "--net", "--pid", "--uts", "--ipc")
LEAVE_S = 30.0
USERS = {"root": 0, "plait": 2001, "eve": 2002}


def why_not() -> str:
    """Why no site can be made here; "" if one can."""
    if not sys.platform.startswith("linux"):
        return f"machines are made out of Linux namespaces; this is {sys.platform}"
    if os.geteuid() != 0:
        return "namespaces, overlays and links need root: sudo make test-rayup"
    programs = ("unshare", "nsenter", "setpriv", "ip", "mount", "chroot", "tar", "ssh-keygen")
    missing = [name for name in (*programs, "apt-get") if shutil.which(name) is None]
    return f"these programs are missing: {', '.join(missing)}" if missing else ""


def make_base() -> Path:
    """The packages a machine has beyond this one; installed once into an overlay."""
    base, script = CACHE / "base.tar", HERE / "base.sh"
    if not base.exists() or base.stat().st_mtime < script.stat().st_mtime:
        CACHE.mkdir(parents=True, exist_ok=True)
        call(["unshare", "--mount", "--pid", "--fork", str(script), str(CACHE)])
    return base


def call(command: list[str]) -> str:
    """Runs a program; what it said is in the error if it fails."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{shlex.join(command)}: {done.returncode}\n{done.stdout}"
    return done.stdout


def only_child(parent: int) -> int:
    """What `unshare --fork` has started; waits for it."""
    end = time.monotonic() + LEAVE_S
    while time.monotonic() < end:
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text("ascii").split()
        if children:
            return int(children[0])
        time.sleep(0.02)
    raise AssertionError(f"process {parent} started nothing")


class Site:
    """A switch and its machines. `with Site() as site: site.add("m1", "10.99.0.1")`."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="plait-site-", dir="/tmp"))
        self.srv = self.folder / "srv"
        """/srv on all machines."""
        self.srv.mkdir()
        shared = self.folder / "shared"
        shared.mkdir()
        os.chown(shared, USERS["plait"], USERS["plait"])
        self.machines: dict[str, int] = {}
        """The first process of each, by its number in the site."""
        self.switch: subprocess.Popen[bytes] | None = None
        self.first = 0

    def __enter__(self) -> Self:
        base = make_base()
        call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / "key")])
        with (self.folder / "switch.log").open("wb") as log:
            self.switch = subprocess.Popen(
                [
                    # A test that is ended by force takes its site along.
                    *("setpriv", "--pdeathsig", "KILL"),
                    *("unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc"),
                    *(str(HERE / "switch.sh"), str(self.folder), str(base)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.first = only_child(self.switch.pid)
        end = time.monotonic() + LEAVE_S
        while not (self.folder / "ready").exists():
            said = (self.folder / "switch.log").read_text()
            assert self.switch.poll() is None, said
            assert time.monotonic() < end, said
            time.sleep(0.05)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.first:
            os.kill(self.first, signal.SIGKILL)  # and the kernel ends all others
        if self.switch is not None:
            self.switch.wait(LEAVE_S)
        shutil.rmtree(self.folder)

    def at_switch(self, *command: str) -> list[str]:
        return ["nsenter", "-t", str(self.first), "-m", "-n", "-p", "-u", "-i", "--", *command]

    def add(self, name: str, address: str) -> None:
        """Makes a machine; it is there when its sshd listens."""
        script = " ".join(
            map(shlex.quote, (str(HERE / "machine.sh"), str(self.folder), name, address))
        )
        log = shlex.quote(str(self.folder / f"{name}.log"))
        pid = call(
            self.at_switch(
                "bash",
                "-c",
                f"setsid unshare {' '.join(NAMESPACES)} --fork {script} </dev/null >{log} 2>&1 & "
                'u=$!; until p=$(cat /proc/$u/task/$u/children) && [ -n "$p" ]; do sleep 0.05; '
                f"done; p=${{p// /}}; echo $p; ip link add to-{name} type veth peer name eth0 "
                f"netns $p && ip link set to-{name} master switch up",
            )
        )
        self.machines[name] = int(pid)
        end = time.monotonic() + LEAVE_S
        while self.on(name, "test", "-e", "/run/machine-is-up", check=False).returncode:
            assert time.monotonic() < end, (self.folder / f"{name}.log").read_text()
            time.sleep(0.1)

    def on(
        self, where: str, *command: str, check: bool = True, timeout_s: float = 600.0
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program on a machine, "m1" as root or "m1:plait" as a user, outside of SSH."""
        name, _, user = where.partition(":")
        user = user or "root"
        home = "/root" if user == "root" else f"/home/{user}"
        number = str(USERS[user])
        whole = self.at_switch(
            *("nsenter", "-t", str(self.machines[name]), "-a", "--"),
            *("env", "-i", f"HOME={home}", f"USER={user}", "TERM=xterm", "LANG=C.UTF-8"),
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            *("setsid", "-w", "setpriv", "--reuid", number, "--regid", number, "--clear-groups"),
            *("--", *command),
        )
        # Into a file, not a pipe: what a command leaves in the background may hold it open.
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as file:
            done = subprocess.run(
                whole,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=timeout_s,
            )
            file.seek(0)
            said = subprocess.CompletedProcess(whole, done.returncode, file.read(), "")
        if check and said.returncode:
            raise AssertionError(
                f"{where}: {shlex.join(command)}: {said.returncode}\n{said.stdout}"
            )
        return said

    def cut(self, name: str) -> None:
        call(self.at_switch("ip", "link", "set", f"to-{name}", "down"))

    def mend(self, name: str) -> None:
        call(self.at_switch("ip", "link", "set", f"to-{name}", "up"))

    def off(self, name: str) -> None:
        """Ends a machine as a pulled plug does."""
        call(self.at_switch("kill", "-9", str(self.machines.pop(name))))
