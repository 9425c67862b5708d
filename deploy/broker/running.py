"""Starts, ends and finds brokers. A broker is a folder with its data, settings, log and process
numbers, and a keeper (`keeper.py`) that runs it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import psutil

from plait.deploy.broker import keeper
from plait.deploy.broker.packages import cache_folder, fetch_jars, find_java, locked
from plait.deploy.broker.properties import (
    HOST,
    BrokerSettings,
    Ports,
    properties_of,
    properties_text,
)
from plait.deploy.broker.ready import is_ready
from plait.errors import EnvironmentFailure

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PORT = 9092
START_S = 120.0
LOOK_S = 0.02
TRIES = 3
JVM = (
    "-Xms64m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xshare:auto",
)
CLUSTER = "cGxhaXQtYnJva2VyLTAwMQ"
LOGGING = """\
status=error
rootLogger.level=warn
rootLogger.appenderRef.stderr.ref=stderr
appender.stderr.type=Console
appender.stderr.name=stderr
appender.stderr.target=SYSTEM_ERR
appender.stderr.layout.type=PatternLayout
appender.stderr.layout.pattern=%d %p %c %m%n
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """What every broker of a user shares."""

    java: Path
    jars: Path
    formatted: Path
    """An empty data folder."""
    archive: Path
    """Java's classes as one file that starts quickly; made when the first broker ends."""
    logging: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A broker as `plait broker status` shows it."""

    folder: Path
    ports: Ports
    pid: int
    """Of its keeper; 0: it does not run."""

    @property
    def servers(self) -> str:
        return f"{HOST}:{self.ports.plain}"


def install(cache: Path | None = None) -> Installed:
    """Fetches and prepares what is missing: seconds the first time."""
    cache = cache_folder() if cache is None else cache
    with locked(cache):
        java, jars = find_java(), fetch_jars(cache)
        # A data folder belongs to the version of Kafka, an archive to that of Java as well.
        build = java.stat()
        mark = f"{jars.name}-{build.st_size:x}-{int(build.st_mtime):x}"
        installed = Installed(
            java=java,
            jars=jars,
            formatted=cache / f"empty-{jars.name}",
            archive=cache / f"classes-{mark}.jsa",
            logging=cache / "log4j2.properties",
        )
        installed.logging.write_text(LOGGING, encoding="ascii")
        if not installed.formatted.is_dir():
            format_data(installed, cache)
    return installed


def format_data(installed: Installed, cache: Path) -> None:
    """Makes an empty data folder, which each new broker gets a copy of."""
    target = installed.formatted
    fresh = target.with_name(f"{target.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    settings = BrokerSettings(ports=Ports(plain=1, controller=2), data=str(fresh))
    described = cache / "format.properties"
    described.write_text(properties_text(properties_of(settings)), encoding="utf-8")
    command = ("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(described))
    done = subprocess.run(
        [*java_command(installed), *command], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise EnvironmentFailure(f"Kafka could not make a data folder:\n{done.stdout}{done.stderr}")
    fresh.rename(target)


def java_command(installed: Installed) -> list[str]:
    logging = f"-Dlog4j2.configurationFile={installed.logging}"
    return [str(installed.java), *JVM, logging, "-cp", f"{installed.jars}/*"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


class Broker:
    """A broker that this process owns, or that runs by itself (`owned=False`).

    `port` 0 takes a free one. Without `folder` the data is the caller's to place: give one.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        users: Mapping[str, str] | None = None,
        certificate: Path | None = None,
        owned: bool = True,
    ) -> None:
        self.folder = folder
        self.port = port
        self.users = dict(users or {})
        self.certificate = certificate
        self.owned = owned
        self.ports: Ports | None = None
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def servers(self) -> str:
        """What clients connect to."""
        if self.ports is None:
            raise EnvironmentFailure("the broker was not started")
        return f"{HOST}:{self.ports.plain}"

    @property
    def secure_servers(self) -> str:
        """What clients with a user and a password connect to."""
        if self.ports is None or not self.ports.secure:
            raise EnvironmentFailure(
                "the broker has no users; start it with users={name: password}"
            )
        return f"{HOST}:{self.ports.secure}"

    @property
    def tls_servers(self) -> str:
        """What clients connect to that encrypt."""
        if self.ports is None or not self.ports.tls:
            raise EnvironmentFailure(
                "the broker has no certificate; start it with certificate= a PEM file"
            )
        return f"{HOST}:{self.ports.tls}"

    def start(self) -> None:
        """Starts it and waits until it answers; after `stop` or `kill` on the same data and
        ports."""
        installed = install()
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder):
            if (running := status_of(self.folder)) is not None and running.pid:
                raise EnvironmentFailure(
                    f"a broker runs in {self.folder} at {running.servers}; stop it first"
                )
            data = self.folder / "data"
            if not data.is_dir():
                shutil.copytree(installed.formatted, data)
            for attempt in range(TRIES):
                chosen = self.ports is not None
                self.ports = self.ports or self.choose_ports()
                self.launch(installed, data)
                if self.await_ready():
                    break
                # Another program may have taken a free port before Java did.
                log = read_end(self.folder / "broker.log")
                if chosen or "Address already in use" not in log or attempt + 1 == TRIES:
                    raise EnvironmentFailure(self.failure(log))
                self.ports = None
            self.note_running()

    def choose_ports(self) -> Ports:
        if self.port and is_taken(self.port):
            raise EnvironmentFailure(
                f"port {self.port} is in use; choose another, such as --port {free_port()}"
            )
        return Ports(
            plain=self.port or free_port(),
            controller=free_port(),
            secure=free_port() if self.users else 0,
            tls=free_port() if self.certificate else 0,
        )

    def launch(self, installed: Installed, data: Path) -> None:
        assert self.ports is not None
        settings = BrokerSettings(
            ports=self.ports,
            data=str(data),
            users=self.users,
            certificate=str(self.certificate or ""),
        )
        described = self.folder / "server.properties"
        described.touch(mode=0o600)
        described.write_text(properties_text(properties_of(settings)), encoding="utf-8")
        java = java_command(installed)
        made = ""
        if installed.archive.exists():
            java[1:1] = [f"-XX:SharedArchiveFile={installed.archive}"]
        else:
            made = str(self.folder / "classes.jsa")
            java[1:1] = [f"-XX:ArchiveClassesAtExit={made}"]
        command = {
            "arguments": [*java, "kafka.Kafka", str(described)],
            "archive": [made, str(installed.archive)],
        }
        (self.folder / "command.json").write_text(json.dumps(command), encoding="utf-8")
        (self.folder / "broker.log").unlink(missing_ok=True)
        (self.folder / "java.pid").unlink(missing_ok=True)
        mode = "owned" if self.owned else "detached"
        self.process = subprocess.Popen(
            [sys.executable, "-P", keeper.__file__, str(self.folder), mode],
            stdin=subprocess.PIPE if self.owned else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def await_ready(self) -> bool:
        """Whether the broker answers; False: it ended."""
        assert self.ports is not None
        assert self.process is not None
        until = time.monotonic() + START_S
        while not is_ready(HOST, self.ports.plain):
            if self.process.poll() is not None:
                return False
            if time.monotonic() > until:
                self.stop()
                return False
            time.sleep(LOOK_S)
        return True

    def failure(self, log: str) -> str:
        return f"the broker did not start; its log is {self.folder / 'broker.log'}:\n{log}"

    def note_running(self) -> None:
        assert self.ports is not None
        assert self.process is not None
        began = psutil.Process(self.process.pid).create_time()
        noted = {"pid": self.process.pid, "began": began, "ports": asdict(self.ports)}
        (self.folder / "running.json").write_text(json.dumps(noted), encoding="utf-8")

    def stop(self) -> None:
        """Ends it and waits; the data stays."""
        if self.process is None:
            return
        if self.process.stdin is not None:
            self.process.stdin.close()
        else:
            self.process.terminate()
        self.process.wait()
        self.process = None

    def kill(self) -> None:
        """Ends it at once, as a crash would; `start` brings it back with its data."""
        if self.process is None:
            return
        pid = int((self.folder / "java.pid").read_text(encoding="ascii"))
        os.kill(pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process = None


def is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return True
    return False


def read_end(path: Path, length: int = 2000) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")[-length:]
    return ""


def status_of(folder: Path) -> Status | None:
    """The broker of a folder; None: there never was one."""
    try:
        noted = json.loads((folder / "running.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    alive = False
    with contextlib.suppress(psutil.Error):
        # The number may belong to another program by now; the time it began tells.
        keeping = psutil.Process(noted["pid"])
        alive = keeping.create_time() == noted["began"] and keeping.status() != "zombie"
    return Status(folder=folder, ports=Ports(**noted["ports"]), pid=noted["pid"] if alive else 0)


def stop_detached(folder: Path) -> bool:
    """Ends the broker of a folder and waits; False: none runs."""
    found = status_of(folder)
    if found is None or not found.pid:
        return False
    with contextlib.suppress(psutil.NoSuchProcess):
        keeping = psutil.Process(found.pid)
        keeping.terminate()
        keeping.wait(START_S)
    return True
