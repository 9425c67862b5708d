"""A pool of worker processes for the plain Python functions of one engine.

The records go through shared memory without the interpreter (`pool.hpp`); here is what happens
around them: a thread starts the zygote, has it fork the workers, and watches them. A worker that
dies is replaced and its batch is done again; a record on which three died, or hung for too long,
fails by the policy of its operator. One that had state is replaced by one that is given the state
back first. `close` leaves no process, thread or memory behind; if this
process dies without it, the zygote notices and goes with its workers.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from plait.errors import JobError
from plait.functions.open_close import hooks_of
from plait.functions.pickling import dumps
from plait.graph.user_functions import functions_of
from plait.node_runtime.native._pool import NativePool
from plait.node_runtime.pool.errors import unpack

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.graph.operators import CallOp
    from plait.model.schema import Schema
    from plait.node_runtime.native._pool import NativeLanes, NativeUser, NativeWay
    from plait.node_runtime.pool.lanes import LaneSpec

    Calls = Sequence[tuple[CallOp, Schema]]

SLOT_BYTES = 1 << 21
"""A batch with its outcome; larger ones get memory of their own."""
TRIES = 3
RESTORE_S = 60.0
"""How long a process that is given state back may be at one record of it, at least."""
GRACE_S = 1.0
"""How long worker processes may take to end when the pool closes, before they are killed ..."""
CLOSE_S = 5.0
"""... and if they have functions to close."""
LAUNCH = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from plait.node_runtime.pool.zygote import main; main(*map(int, sys.argv[2:]))"
)


@dataclass(slots=True)
class Child:
    """A worker process as the engine knows it."""

    pid: int = 0
    pidfd: int = -1
    ready: bool = False
    at: tuple[int, int] | None = None
    """The batch it is at, and the records it has done ..."""
    since: float = 0.0
    """... since when that is so."""
    hung: bool = False

    def born(self, pid: int) -> None:
        self.pid = pid
        with suppress(ProcessLookupError):  # it is gone already
            self.pidfd = os.pidfd_open(pid)

    def kill(self) -> None:
        """Makes sure that it is dead, and lets go of it."""
        if self.pidfd < 0:
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        wait_readable(self.pidfd)
        os.close(self.pidfd)
        self.pidfd = -1


class Pool:
    """The worker processes of one engine."""

    def __init__(
        self, processes: int, hang_s: float, raised: list[Any], replay_bytes: int = 1 << 25
    ) -> None:
        """`raised`: where the engine keeps what functions raised. `replay_bytes`: how much is kept
        to be done again for each lane of a stage with state, before a copy of it is made."""
        self.processes = processes
        self.hang_s = hang_s
        self.raised = raised
        self.replay_bytes = replay_bytes
        self.native = NativePool(max(16, 8 * processes), SLOT_BYTES, processes, self.keep)
        self.programs: list[Calls | LaneSpec] = []
        self.outsides: list[NativeUser] = []
        self.children = [Child() for _ in range(processes)]
        self.broken: JobError | None = None
        """Why no worker process can run the functions."""
        self.zygote = 0
        """The process that forks the workers; 0: none runs."""
        self.used_s = 0.0
        """Processor time of all its processes, as it was last seen ..."""
        self.gone_s = 0.0
        """... and of those of zygotes that have ended."""
        self.deaths = 0
        self.stillborn = 0
        """Worker processes in a row that died before they had begun."""
        self.closing = False
        self.lock = threading.Lock()
        self.thread: threading.Thread | None = None
        self.ready = threading.Event()
        """Every worker process has run, or none ever will."""
        self.bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.on_ready: list[Callable[[], None]] = []

    def keep(self, packed: bytes) -> int:
        self.raised.append(unpack(packed))
        return len(self.raised) - 1

    def add(self, calls: Sequence[tuple[CallOp, Schema]], here: bool) -> NativeWay:
        """The way of a stage to its functions, each with the schema of its input. Before `start`;
        `here`: the stage runs them itself until it is told to go."""
        self.programs.append(tuple(calls))
        outside = self.native.outside(len(self.programs) - 1, here)
        self.outsides.append(outside)
        return outside

    def add_lanes(self, spec: LaneSpec, here: bool, keyless: bool, timers: bool) -> NativeLanes:
        """The lanes of a stage with state. Before `start`; `here`: the state stays with the stage
        until it is told to go; `timers`: it changes without records, too."""
        self.programs.append(spec)
        lanes = 1 if keyless else min(self.processes, 1 << spec.bin_bits)
        number, most = len(self.programs) - 1, self.replay_bytes
        made = self.native.lanes(number, lanes, spec.bin_bits, here, timers, most)
        self.outsides.append(made)
        return made

    def start(self) -> None:
        """Starts the worker processes in the background, once."""
        with self.lock:
            if self.thread is not None or self.closing:
                return
            self.native.start()
            self.thread = threading.Thread(target=self.manage, name="plait-pool", daemon=True)
            self.thread.start()

    def when_ready(self, tell: Callable[[], None]) -> None:
        """Starts the pool if need be, and calls this as soon as the worker processes are ready."""
        with self.lock:
            waiting = not self.ready.is_set()
            if waiting:
                self.on_ready.append(tell)
        if waiting:
            self.start()
        else:
            tell()

    def close(self) -> None:
        """Ends all processes. What they were at is let go."""
        with self.lock:
            if self.closing:
                return
            self.closing = True
        os.eventfd_write(self.bell, 1)
        self.native.close()
        if self.thread is not None:
            self.thread.join()
        os.close(self.bell)

    def pids(self) -> list[int]:
        """The worker processes that are ready."""
        return [child.pid for child in self.children if child.ready]

    def cpu_s(self) -> float:
        """Processor time of its processes so far, also of those that are gone."""
        used, zygote = self.gone_s, self.zygote
        with suppress(psutil.Error):
            if zygote:
                times = psutil.Process(zygote).cpu_times()
                # What has died is counted by who forked it.
                used += times.user + times.system + times.children_user + times.children_system
        for pid in [child.pid for child in self.children if child.pid]:
            with suppress(psutil.Error):
                times = psutil.Process(pid).cpu_times()
                used += times.user + times.system
        self.used_s = max(self.used_s, used)
        return self.used_s

    def is_busy(self) -> bool:
        """Whether a worker process is at a batch."""
        return any(self.native.at(worker)[0] for worker in range(self.processes))

    def manage(self) -> None:
        """The thread: starts the processes, then answers what they tell until the pool closes."""
        functions = -1
        try:
            functions = self.functions_fd()
            for _ in range(TRIES):
                if self.run_zygote(functions):
                    return
            self.gave_up(f"the process that starts them died {TRIES} times")
        except Exception as error:
            self.gave_up(f"{type(error).__name__}: {error}")
        finally:
            self.ready.set()
            if functions >= 0:
                os.close(functions)

    def run_zygote(self, functions: int) -> bool:
        """Runs a zygote until the pool closes or breaks; False: it died, and its workers too."""
        zygote = Zygote(self.native.fd, functions, self.has_tables())
        self.zygote = zygote.process.pid
        try:
            for worker in range(self.processes):
                self.fork(zygote, worker)
            if self.watch(zygote):
                self.let_go(zygote)
                return True
        except ConnectionError:
            pass  # it died while it was asked
        finally:
            self.gone_s, self.zygote = self.cpu_s(), 0
            zygote.end()
            for child in self.children:
                child.kill()
        for worker in range(self.processes):
            self.native.note_death(worker, "was killed")
            self.children[worker] = Child()
        return self.closing or self.broken is not None

    def fork(self, zygote: Zygote, worker: int) -> None:
        """Has a worker process started, with the state of the one before it."""
        restore_fd = self.native.restore_fd(worker)
        try:
            zygote.ask("fork", worker, restore_fd)
        finally:
            if restore_fd >= 0:
                os.close(restore_fd)

    def has_tables(self) -> bool:
        stateless = [calls for calls in self.programs if isinstance(calls, tuple)]
        return any(op.mode == "batches" for calls in stateless for op, _ in calls)

    def closes(self) -> bool:
        """Whether a function has something to close."""
        with_state = [program.op for program in self.programs if not isinstance(program, Sequence)]
        called = [op for calls in self.programs if isinstance(calls, Sequence) for op, _ in calls]
        return any(
            hooks_of(function) for op in (*with_state, *called) for function in functions_of(op)
        )

    def functions_fd(self) -> int:
        """The functions, pickled, in a file in memory."""
        data = dumps(self.programs)
        fd = os.memfd_create("plait-functions", os.MFD_CLOEXEC)
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        return fd

    def watch(self, zygote: Zygote) -> bool:
        """Until the pool closes or breaks; False: the zygote died."""
        poll = select.poll()
        poll.register(self.bell, select.POLLIN)
        poll.register(zygote.control, select.POLLIN)
        tick_s = min(1.0, self.hang_s / 4)
        while not self.closing and self.broken is None:
            ready = dict(poll.poll(tick_s * 1000))
            if zygote.control.fileno() in ready:
                told = zygote.receive()
                if told is None:
                    return False
                self.take(told, zygote)
            self.look_for_hangs(zygote)
        return True

    def take(self, told: dict[str, Any], zygote: Zygote) -> None:
        """One message of the zygote or of a worker."""
        child = self.children[told["worker"]]
        match told["kind"]:
            case "born":
                child.born(told["pid"])
            case "ready":
                child.ready = True
                self.stillborn = 0
                if all(one.ready for one in self.children):
                    self.all_ready()
            case "broken":
                self.gave_up(told["text"])
            case "died":
                self.bury(told["worker"], told["status"], zygote)

    def all_ready(self) -> None:
        with self.lock:
            self.ready.set()
            told, self.on_ready = self.on_ready, []
        for tell in told:
            tell()

    def bury(self, worker: int, status: int, zygote: Zygote) -> None:
        """A worker process is gone: its batch is done again, by others or by a new one."""
        child = self.children[worker]
        began = child.ready
        how = (
            f"did nothing for {self.hang_s:g} s and was killed" if child.hung else exit_text(status)
        )
        child.kill()
        self.children[worker] = Child()
        self.deaths += 1
        self.native.note_death(worker, how)
        self.stillborn = 0 if began else self.stillborn + 1
        if self.stillborn >= TRIES * self.processes:
            self.gave_up(f"a worker process {how} before it had begun")
        elif not self.closing:
            self.fork(zygote, worker)

    def look_for_hangs(self, zygote: Zygote) -> None:
        now = time.monotonic()
        for worker, child in enumerate(self.children):
            at = self.native.at(worker)
            idle = at[0] == 0 and (child.ready or not child.pid)
            limit_s = self.hang_s if at[0] else max(self.hang_s, RESTORE_S)
            if idle or at != child.at:
                child.at, child.since = at, now
            elif now - child.since >= limit_s and not child.hung:
                child.hung = True
                zygote.ask("kill", worker)

    def gave_up(self, why: str) -> None:
        """No worker process will ever answer."""
        self.broken = JobError(
            f"the pool of worker processes cannot be used: {why}\n"
            '  route="inline" (or pool=0) runs the functions in this process'
        )
        self.native.broke(str(self.broken))
        self.all_ready()

    def let_go(self, zygote: Zygote) -> None:
        """Waits a little for the workers to end by themselves."""
        until = time.monotonic() + (CLOSE_S if self.closes() else GRACE_S)
        left = {worker for worker, child in enumerate(self.children) if child.pid}
        while left and (rest_s := until - time.monotonic()) > 0:
            if not wait_readable(zygote.control, rest_s):
                break
            told = zygote.receive()
            if told is None:
                break
            if told["kind"] == "died":
                left.discard(told["worker"])


def wait_readable(of: int | socket.socket, rest_s: float | None = None) -> bool:
    """Whether there is something to read. By `poll`: `select` takes no descriptor above 1,023."""
    poll = select.poll()
    poll.register(of, select.POLLIN)
    return bool(poll.poll(None if rest_s is None else rest_s * 1000))


def exit_text(status: int) -> str:
    """How a process ended, from its exit status; negative: the signal that killed it."""
    if status >= 0:
        return f"ended with status {status}"
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-status).name}"
    return f"was killed by signal {-status}"


class Zygote:
    """The process that forks the workers, and the socket to it."""

    def __init__(self, ring_fd: int, functions_fd: int, tables: bool) -> None:
        self.control, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            numbers = (there.fileno(), ring_fd, functions_fd, int(tables))
            flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
            self.process = subprocess.Popen(
                [sys.executable, *flags, "-c", LAUNCH, json.dumps(sys.path), *map(str, numbers)],
                pass_fds=numbers[:3],
                stdin=subprocess.DEVNULL,
            )
        except BaseException:
            self.control.close()
            raise
        finally:
            there.close()

    def ask(self, do: str, worker: int, fd: int = -1) -> None:
        """`fd`: a descriptor that goes with it."""
        message = json.dumps({"do": do, "worker": worker}).encode()
        if fd < 0:
            self.control.send(message)
        else:
            socket.send_fds(self.control, [message], [fd])

    def receive(self) -> dict[str, Any] | None:
        """The next message; None: there will be none."""
        message = self.control.recv(65_536)
        return json.loads(message) if message else None

    def end(self) -> None:
        """Ends the zygote, which kills what is left of its workers."""
        self.control.close()
        try:
            self.process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()  # its workers go with it
            self.process.wait()
