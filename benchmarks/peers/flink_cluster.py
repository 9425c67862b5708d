"""A Flink cluster on the loopback for the recovery benchmark: a job manager and task managers, each
a process of its own. A task manager that was killed is replaced at once, as Kubernetes would; each
has slots for the whole job, so that it can go on before that. Heartbeats come
every second, and not every ten as by default, so that a killed process is noticed sooner."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers.programs import Unavailable, flink
from benchmarks.support.outages import is_full, wait_for, wait_outage, wait_steady

if TYPE_CHECKING:
    from benchmarks.support.outages import Load

JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
CONFIG = """
jobmanager.rpc.address: 127.0.0.1
jobmanager.rpc.port: {rpc}
jobmanager.bind-host: 127.0.0.1
rest.address: 127.0.0.1
rest.bind-address: 127.0.0.1
rest.port: {rest}
taskmanager.host: 127.0.0.1
taskmanager.bind-host: 127.0.0.1
taskmanager.numberOfTaskSlots: 2
taskmanager.load-balance.mode: SLOTS
taskmanager.cpu.cores: 1.0
taskmanager.memory.task.heap.size: {heap}m
taskmanager.memory.task.off-heap.size: 64m
taskmanager.memory.network.min: 128m
taskmanager.memory.network.max: 128m
taskmanager.memory.managed.size: 16m
taskmanager.memory.framework.heap.size: 128m
taskmanager.memory.framework.off-heap.size: 128m
taskmanager.memory.jvm-metaspace.size: 256m
taskmanager.memory.jvm-overhead.min: 192m
taskmanager.memory.jvm-overhead.max: 192m
heartbeat.interval: 1 s
heartbeat.timeout: 10 s
state.backend.type: hashmap
execution.checkpointing.storage: filesystem
execution.checkpointing.dir: file://{folder}/checkpoints
restart-strategy.type: fixed-delay
restart-strategy.fixed-delay.attempts: 100
restart-strategy.fixed-delay.delay: 100 ms
io.tmp.dirs: {folder}/tmp
"""


def free_port() -> int:
    with socket.socket() as open_one:
        open_one.bind(("127.0.0.1", 0))
        return int(open_one.getsockname()[1])


@dataclass(slots=True)
class FlinkCluster:
    folder: Path
    heap_mb: int
    command: list[str] = field(default_factory=list)
    rest: int = 0
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    managers: set[int] = field(default_factory=set)
    """The pids of task managers."""

    def start(self) -> None:
        heap = [f"-Xmx{self.heap_mb}m" if flag == "-Xmx2g" else flag for flag in flink()[:-1]]
        self.command = heap
        self.rest = free_port()
        (self.folder / "tmp").mkdir(parents=True)
        config = CONFIG.format(
            rpc=free_port(), rest=self.rest, folder=self.folder, heap=self.heap_mb * 3 // 4
        )
        (self.folder / "config.yaml").write_text(config, encoding="utf-8")
        self.launch(JOB_MANAGER)
        for _ in range(2):
            self.add_manager()

    def launch(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        log = (self.folder / "flink.log").open("ab")
        with log:
            process = subprocess.Popen(
                [*self.command, name, *(arguments or ("--configDir", str(self.folder)))],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=os.environ | {"FLINK_CONF_DIR": str(self.folder)},
            )
        self.processes[process.pid] = process
        return process

    def add_manager(self) -> None:
        self.managers.add(self.launch(TASK_MANAGER).pid)

    def submit(self, load: Load, every_s: float) -> None:
        """Submits the job; the cluster may not be ready at once."""
        jar = self.command[self.command.index("-cp") + 1].split(":")[0]
        given = [str(self.rest), jar, str(load.keys), str(load.rate), str(int(load.start * 1000))]
        for _ in range(20):
            done = self.launch("plait.peers.Recovery", *given, load.log, str(int(every_s * 1000)))
            if done.wait() == 0:
                return
            time.sleep(1.0)
        raise Unavailable(f"the job cannot be submitted; see {self.folder}/flink.log")

    def kill(self, who: str, load: Load) -> None:
        home = int(Path(f"{load.log}.pid").read_text(encoding="utf-8"))
        others = self.managers - {home}
        victims = {"node": others, "home": {home}, "all": set(self.managers)}[who]
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        for pid in victims:
            self.managers.discard(pid)
            self.processes.pop(pid).wait()
            self.add_manager()

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()


def flink_round(load: Load, folder: Path, every_s: float) -> dict[str, dict[str, float]]:
    """Kills a task manager without the sink, the one with it, and both."""
    cluster = FlinkCluster(folder, heap_mb=max(1024, 6 * load.size_mb))
    try:
        cluster.start()
        cluster.submit(load, every_s)
        wait_for("a full state", lambda: is_full(load))
        found = {}
        for who in ("node", "home", "all"):
            time.sleep(3 * every_s)  # some checkpoints, and a task manager that is new
            usual_s = wait_steady(load)
            killed_at = time.time()
            cluster.kill(who, load)
            found[who] = wait_outage(load, killed_at, usual_s)
        return found
    finally:
        cluster.close()
