"""The zygote: a small process with one thread that forks the worker processes of a pool.

The engine's process has threads and may not be forked: a child would inherit locks that nobody
opens. So it starts this program, which loads what workers need and forks one whenever it is asked
to. It tells of every worker that ends, and ends itself with all of them when the other end of its
control socket is closed, whatever happened there.

    engine -> zygote:  {"do": "fork", "worker": 0}  {"do": "kill", "worker": 0}
                       with fork a descriptor may come: what the new worker does first
    zygote -> engine:  {"kind": "born" | "died", "worker": 0, "pid": ..., "status": ...}
    worker -> engine:  {"kind": "ready" | "broken", "worker": 0, ...}
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
from contextlib import suppress

from plait.node_runtime.pool.worker import tell, work

LOOK_S = 1.0
"""How often it looks whether its parent is still there, should the socket not say so."""


def main(control_fd: int, ring_fd: int, functions_fd: int, tables: int) -> None:
    """`tables`: a function gets Arrow tables, so pyarrow is loaded once for all workers."""
    # What asks a program to end is the engine's business: it may come to the whole process group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_over)  # not ignored: programs that a function starts would be so
    if tables:
        import pyarrow  # noqa: F401
    control = socket.socket(fileno=control_fd)
    try:
        Zygote(control, ring_fd, functions_fd).serve()
    finally:
        os._exit(0)


def pass_over(*_: object) -> None:
    """A signal that means nothing here."""


class Zygote:
    """Its children by worker number."""

    def __init__(self, control: socket.socket, ring_fd: int, functions_fd: int) -> None:
        self.control = control
        self.ring_fd = ring_fd
        self.functions_fd = functions_fd
        self.parent = os.getppid()
        self.children: dict[int, int] = {}
        """Process id -> worker."""

    def serve(self) -> None:
        bell, ringer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(ringer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(bell, select.POLLIN)
        try:
            while os.getppid() == self.parent:
                ready = dict(poll.poll(LOOK_S * 1000))
                if bell in ready:
                    with suppress(BlockingIOError):
                        os.read(bell, 4096)
                self.reap()
                if self.control.fileno() in ready and not self.obey():
                    break
        except OSError:
            pass  # the other end is gone
        self.end()

    def obey(self) -> bool:
        """Does what one message asks for; False: there will be no more."""
        message, given, _, _ = socket.recv_fds(self.control, 65_536, 1)
        if not message:
            return False
        asked = json.loads(message)
        worker = asked["worker"]
        if asked["do"] == "fork":
            self.fork(worker, given[0] if given else -1)
            for fd in given:
                os.close(fd)
        else:
            for pid, number in self.children.items():
                if number == worker:
                    os.kill(pid, signal.SIGKILL)
        return True

    def fork(self, worker: int, restore_fd: int) -> None:
        zygote = os.getpid()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            work(worker, self.ring_fd, self.functions_fd, restore_fd, self.control, zygote)
        self.children[pid] = worker
        tell(self.control, kind="born", worker=worker, pid=pid)

    def reap(self) -> None:
        while self.children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            worker = self.children.pop(pid, None)
            if worker is not None:
                code = os.waitstatus_to_exitcode(status)
                tell(self.control, kind="died", worker=worker, status=code)

    def end(self) -> None:
        for pid in self.children:
            os.kill(pid, signal.SIGKILL)
        for pid in self.children:
            os.waitpid(pid, 0)
