"""What runs on a node during the preflight. Needs Python and Ray there, not plait.

The class is sent to the nodes by value, so it must import nothing but the standard library at the
top and know nothing of the rest of plait: a missing plait is one of the things it has to find out.
It returns plain values. Every wait in it has a limit.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import platform
import socket
import stat
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypedDict

HELLO = b"plait preflight\n"
AT_ONCE = 32


class ProbeFacts(TypedDict):
    """What a machine knows about itself."""

    python: str
    ray_version: str
    plait_version: str
    plait_error: str
    native_error: str
    cores: int
    memory_bytes: int
    token_mode: str
    token_file_mode: int | None
    open_folder: str
    dashboard_hosts: list[str]


class Probe:
    """One for each node: gives its facts, listens, and tries to reach the others."""

    def __init__(self) -> None:
        self.listener: socket.socket | None = None

    def facts(self, dashboard_port: int) -> ProbeFacts:
        plait_version, plait_error, native_error = plait_here()
        return {
            "python": platform.python_version(),
            "ray_version": ray_here(),
            "plait_version": plait_version,
            "plait_error": plait_error,
            "native_error": native_error,
            "cores": usable_cores(),
            "memory_bytes": usable_memory(),
            "token_mode": os.environ.get("RAY_AUTH_MODE", "").lower(),
            "token_file_mode": token_file_mode(),
            "open_folder": open_folder(ray_folder()),
            "dashboard_hosts": listening_on(dashboard_port) if dashboard_port else [],
        }

    def clock(self) -> float:
        return time.time()

    def listen(self, address: str, first: int, last: int) -> int:
        """Accepts connections on the first free port of a range; 0: any port. Returns it."""
        problem: OSError | None = None
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        for port in range(first, last + 1):
            listener = socket.socket(family, socket.SOCK_STREAM)
            try:
                listener.bind((address, port))
                listener.listen(AT_ONCE)
            except OSError as error:
                listener.close()
                problem = error
                continue
            self.listener = listener
            threading.Thread(target=greet, args=(listener,), daemon=True).start()
            return int(listener.getsockname()[1])
        raise OSError(f"no free port of {first} to {last} on {address}: {problem}")

    def reach(self, peers: dict[str, tuple[str, int]], timeout_s: float) -> dict[str, str]:
        """For each peer, by name: "" if it was reached, else why not."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            tried = pool.map(lambda peer: try_reach(peer[0], peer[1], timeout_s), peers.values())
            return dict(zip(peers, tried, strict=True))

    def close(self) -> None:
        if self.listener is not None:
            with contextlib.suppress(OSError):
                self.listener.shutdown(socket.SHUT_RDWR)  # wakes the accept
            self.listener.close()


def greet(listener: socket.socket) -> None:
    """Says hello to everyone, until the socket is closed."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection, contextlib.suppress(OSError):
            connection.sendall(HELLO)


def try_reach(address: str, port: int, timeout_s: float) -> str:
    where = f"{address}:{port}"
    try:
        with socket.create_connection((address, port), timeout_s) as connection:
            connection.settimeout(timeout_s)
            got = b""
            while len(got) < len(HELLO) and (part := connection.recv(len(HELLO))):
                got += part
    except TimeoutError:
        return f"{where} did not answer within {timeout_s:g} s (packets are dropped)"
    except ConnectionRefusedError:
        return f"{where} refused the connection"
    except OSError as error:
        return f"{where}: {error.strerror or error}"
    return "" if got == HELLO else f"something else answers on {where}"


def ray_here() -> str:
    try:
        return str(importlib.import_module("ray").__version__)
    except ImportError:
        return ""


def plait_here() -> tuple[str, str, str]:
    """The version, why it cannot be imported, why its native modules cannot."""
    if importlib.util.find_spec("plait") is None:
        return "", "", ""
    try:
        version = str(importlib.import_module("plait").__version__)
    except Exception as error:
        return "", f"{type(error).__name__}: {error}", ""
    name = "node_runtime"
    try:
        for name in native_modules():
            importlib.import_module(f"plait.node_runtime.native.{name}")
    except Exception as error:
        return version, "", f"{name}: {type(error).__name__}: {error}"
    return version, "", ""


def native_modules() -> list[str]:
    """The compiled modules there should be: each has its types in a file beside it."""
    folders = importlib.import_module("plait.node_runtime.native").__path__
    return sorted({path.stem for folder in folders for path in Path(folder).glob("_*.pyi")})


def usable_cores() -> int:
    """The cores this process may run on, and not more than its control group pays for."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota, _, period = first_line("/sys/fs/cgroup/cpu.max").partition(" ")
    if quota.isdigit() and period.isdigit() and int(period):
        return max(1, min(cores or 1, int(quota) // int(period)))
    return cores or 1


def usable_memory() -> int:
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = first_line("/sys/fs/cgroup/memory.max")
    return min(whole, int(limit)) if limit.isdigit() else whole


def token_file_mode() -> int | None:
    """The permissions of the token file; what is in it is not looked at."""
    given = os.environ.get("RAY_AUTH_TOKEN_PATH")
    path = Path(given) if given else Path.home() / ".ray" / "auth_token"
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None


def ray_folder() -> Path:
    """Where Ray on this machine keeps its files, and the address of its cluster."""
    return Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()) / "ray"


def open_folder(folder: Path) -> str:
    """The folder, if all users may come to it and write there; else nothing."""
    try:
        ways = [stat.S_IMODE(one.stat().st_mode) for one in folder.resolve().parents]
        mode = stat.S_IMODE(folder.stat().st_mode)
    except OSError:
        return ""
    reached = all(way & stat.S_IXOTH for way in ways)
    return str(folder) if reached and mode & stat.S_IWOTH else ""


def listening_on(port: int) -> list[str]:
    """The addresses of this machine where a process listens on a port, from the kernel."""
    found: set[str] = set()
    for table, family in (("/proc/net/tcp", socket.AF_INET), ("/proc/net/tcp6", socket.AF_INET6)):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, _, state, *_ = line.split()
            address, _, hex_port = local.partition(":")
            if state == "0A" and int(hex_port, 16) == port:
                found.add(address_of(address, family))
    return sorted(found)


def address_of(text: str, family: socket.AddressFamily) -> str:
    """An address as the kernel writes it: 32-bit words in the machine's own byte order."""
    words = [text[i : i + 8] for i in range(0, len(text), 8)]
    raw = b"".join(int(word, 16).to_bytes(4, sys.byteorder) for word in words)
    return socket.inet_ntop(family, raw)


def first_line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""
