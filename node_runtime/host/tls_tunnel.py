"""TLS between nodes: the links talk to a tunnel on their own machine, tunnels talk TLS.

The native links know nothing of TLS. Where it is wanted, each node has a `TlsTunnel`: `serve` takes
TLS connections from other nodes and hands them to the links' port on loopback; `dial` gives a port
on loopback that leads to another node's tunnel. Both sides show a certificate of the same authority
and refuse a peer without one; host names are not compared, because nodes come and go and the
authority is the job's own. One thread for each connection relays both ways, since an SSL connection
may be used by one thread at a time; an end on one side ends the other once all was passed on.
Those that have shown no certificate yet take no room from the others (`strangers`).
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from plait.node_runtime.host.strangers import Refusals, Strangers

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_HANDSHAKE_S = 5.0
_MOST_CONNECTIONS = 1024
_READ_BYTES = 1 << 16
_HELD_BYTES = 1 << 20
"""Of one direction of one connection: more is not read before this is written."""


class TlsTunnel:
    """Carries connections between nodes over TLS with certificates on both sides."""

    def __init__(self, cert: str | Path, key: str | Path, ca: str | Path) -> None:
        """Read certificate, private key and authority, all PEM files.

        Raises:
            OSError, ssl.SSLError: a file cannot be read, or does not fit the others.
        """
        self._server = _context(ssl.PROTOCOL_TLS_SERVER, cert, key, ca)
        self._client = _context(ssl.PROTOCOL_TLS_CLIENT, cert, key, ca)
        self._room = threading.Semaphore(_MOST_CONNECTIONS)
        self._strangers = Strangers()
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        # Nothing is ever written to it: closing one end makes the other readable for all threads.
        self._stopped, self._stop = socket.socketpair()
        self._closed = False

    def serve(self, public_host: str, port: int, local_port: int) -> int:
        """Take TLS connections here and pass them on to a port of this machine's loopback.

        Returns the port that it listens on; with `port` 0 that is any free one.
        """

        def connect(accepted: socket.socket) -> tuple[ssl.SSLSocket, socket.socket]:
            tls = self._greet(accepted)
            try:
                return tls, socket.create_connection(("127.0.0.1", local_port), _HANDSHAKE_S)
            except BaseException:
                tls.close()
                raise

        return self._listen(public_host, port, connect, strangers=True)

    def _greet(self, accepted: socket.socket) -> ssl.SSLSocket:
        """The handshake with who may be a stranger."""
        # Wrapping takes the socket's file away from `accepted`: a second hold on it may be shut.
        with accepted.dup() as line:
            self._strangers.enter(line, _named(accepted))
            failed: OSError | None = None
            try:
                return self._server.wrap_socket(accepted, server_side=True)
            except OSError as error:
                failed = error
                raise
            finally:
                self._strangers.leave(line, failed)

    def refusals(self) -> Refusals:
        """The connections that showed no certificate of the authority."""
        return self._strangers.refusals

    def dial(self, host: str, port: int) -> int:
        """Give a port of this machine's loopback that leads to another node's tunnel."""

        def connect(accepted: socket.socket) -> tuple[ssl.SSLSocket, socket.socket]:
            outer = socket.create_connection((host, port), _HANDSHAKE_S)
            try:
                return self._client.wrap_socket(outer), accepted
            except BaseException:
                outer.close()
                raise

        return self._listen("127.0.0.1", 0, connect)

    def close(self) -> None:
        """End all connections and listeners. Waits for the threads; again is allowed."""
        with self._lock:
            self._closed = True
            threads = list(self._threads)
        self._stop.close()
        for thread in threads:
            thread.join()
        self._stopped.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _listen(self, host: str, port: int, connect: _Connect, *, strangers: bool = False) -> int:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=128)
        listener.setblocking(False)
        found = int(listener.getsockname()[1])
        try:
            self._start(lambda: self._accept(listener, connect, strangers))
        except RuntimeError:
            listener.close()
            raise
        return found

    def _start(self, run: Callable[[], None]) -> None:
        def body() -> None:
            try:
                run()
            finally:
                with self._lock:
                    self._threads.discard(threading.current_thread())

        thread = threading.Thread(target=body, name="plait-tls", daemon=True)
        with self._lock:
            if self._closed:
                raise RuntimeError("the tunnel is closed")
            self._threads.add(thread)
            thread.start()

    def _accept(self, listener: socket.socket, connect: _Connect, strangers: bool) -> None:
        with listener:
            while True:
                if self._stopped.fileno() in _wait_readable(None, listener, self._stopped):
                    return
                pause_s = self._strangers.pause_s(time.monotonic()) if strangers else 0.0
                if pause_s:
                    _wait_readable(pause_s, self._stopped)
                    continue
                with contextlib.suppress(OSError):
                    accepted, _ = listener.accept()
                    self._carry(accepted, connect)

    def _carry(self, accepted: socket.socket, connect: _Connect) -> None:
        def run() -> None:
            # A connection that fails is simply closed: the links see it and dial again.
            with accepted, contextlib.suppress(OSError):
                accepted.settimeout(_HANDSHAKE_S)
                tls, plain = connect(accepted)
                with tls, plain:
                    self._pass_on(tls, plain)

        try:
            self._start(run)
        except RuntimeError:
            accepted.close()

    def _pass_on(self, tls: ssl.SSLSocket, plain: socket.socket) -> None:
        if self._room.acquire(blocking=False):
            try:
                _relay(tls, plain, self._stopped)
            finally:
                self._room.release()


_Connect = Callable[[socket.socket], tuple[ssl.SSLSocket, socket.socket]]


def _wait_readable(most_s: float | None, *sockets: socket.socket) -> set[int]:
    """The descriptors that can be read. By `poll`: `select` takes none above 1,023."""
    poll = select.poll()
    for one in sockets:
        poll.register(one, select.POLLIN)
    return {number for number, _ in poll.poll(None if most_s is None else most_s * 1000)}


def _named(line: socket.socket) -> str:
    """Who is at the other end."""
    try:
        return str(line.getpeername()[0])
    except OSError:
        return "an address that is gone"


def _context(kind: int, cert: str | Path, key: str | Path, ca: str | Path) -> ssl.SSLContext:
    context = ssl.SSLContext(kind)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(cert, key)
    context.load_verify_locations(ca)
    return context


class _Way:
    """One direction: what was read on one side and not yet written on the other."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source, self.target = source, target
        self.held = bytearray()
        self.ended = False

    @property
    def wants_more(self) -> bool:
        return not self.ended and len(self.held) < _HELD_BYTES

    def read(self) -> None:
        while self.wants_more:
            try:
                data = self.source.recv(_READ_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except OSError:
                data = b""
            if not data:
                self.ended = True
            self.held += data

    def write(self) -> None:
        while self.held:
            try:
                with memoryview(self.held) as held:
                    sent = self.target.send(held[:_READ_BYTES])
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            del self.held[:sent]


def _relay(tls: ssl.SSLSocket, plain: socket.socket, stopped: socket.socket) -> None:
    """Pass bytes both ways until one side ends and all it sent was passed on."""
    for end in (tls, plain):
        end.setblocking(False)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    inward, outward = _Way(tls, plain), _Way(plain, tls)
    ways = (inward, outward)
    while True:
        for way in ways:
            way.read()
            way.write()
        if any(way.ended and not way.held for way in ways):
            return
        if inward.wants_more and tls.pending():
            continue  # decrypted already: the socket itself would not report it
        poll = select.poll()
        poll.register(stopped, select.POLLIN)
        for end, source, target in ((tls, inward, outward), (plain, outward, inward)):
            events = select.POLLIN if source.wants_more else 0
            events |= select.POLLOUT if target.held else 0
            if events:
                poll.register(end, events)
        if any(fd == stopped.fileno() for fd, _ in poll.poll()):
            return
