"""Listens for the hearts of nodes: datagrams that a native thread of each node sends.

A beat has a key that only its node was told, and a number that ascends; anything else is dropped
unread. A heart says only that its process is there: nothing is concluded from a beat but that.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from dataclasses import dataclass

KEY_BYTES = 16
BEAT_BYTES = KEY_BYTES + 8
EVERY_MS = 250
Node = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What a node is told: where to send its beats, and its key."""

    host: str
    port: int
    key: bytes
    every_ms: int = EVERY_MS


class BeatListener:
    """Knows when each heart was heard last. May be called from any thread."""

    def __init__(self, host: str) -> None:
        self.host = host
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_DGRAM)
        self.socket.bind((host, 0))
        self.port: int = self.socket.getsockname()[1]
        self.lock = threading.Lock()
        self.keys: dict[Node, bytes] = {}
        self.last: dict[bytes, tuple[int, float]] = {}
        """By key: the number of the last beat, and when it came."""
        self.closed = False
        self.thread = threading.Thread(target=self.listen, name="plait-beats", daemon=True)
        self.thread.start()

    def aim_of(self, node: Node) -> Aim:
        with self.lock:
            key = self.keys.get(node)
            if key is None:
                key = self.keys[node] = secrets.token_bytes(KEY_BYTES)
                self.last[key] = (0, 0.0)
        return Aim(host=self.host, port=self.port, key=key)

    def heard_at(self, node: Node) -> float | None:
        """When the node's heart was last heard, by time.monotonic; None: never."""
        with self.lock:
            number, at = self.last.get(self.keys.get(node, b""), (0, 0.0))
        return at if number else None

    def forget(self, node: Node) -> None:
        with self.lock:
            self.last.pop(self.keys.pop(node, b""), None)

    def listen(self) -> None:
        """The thread."""
        while True:
            try:
                beat = self.socket.recv(BEAT_BYTES + 1)
            except OSError:
                return
            if self.closed:
                return
            if len(beat) == BEAT_BYTES:
                self.take(beat[:KEY_BYTES], int.from_bytes(beat[KEY_BYTES:], "little"))

    def take(self, key: bytes, number: int) -> None:
        with self.lock:
            known = self.last.get(key)
            if known is not None and number > known[0]:
                self.last[key] = (number, time.monotonic())

    def close(self) -> None:
        self.closed = True
        # A datagram of one's own ends the wait: closing a socket does not.
        self.socket.sendto(b"", (self.host, self.port))
        self.thread.join()
        self.socket.close()
