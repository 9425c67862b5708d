"""Whether a broker answers: an open port is not enough, it must know itself as a broker.

The one request that is needed, Metadata of version 4, is written here by hand, so that a broker can
be started where no Kafka client is installed.
"""

from __future__ import annotations

import socket
import struct

METADATA, VERSION = 3, 4
ASK_S = 5.0


def metadata_request() -> bytes:
    """A request for the brokers and no topics, with its length before it."""
    client = b"plait"
    body = struct.pack(f">hhih{len(client)}s", METADATA, VERSION, 1, len(client), client)
    body += struct.pack(">i?", 0, False)
    return struct.pack(">i", len(body)) + body


def brokers_in(answer: bytes) -> int:
    """How many brokers an answer (without its length) names.

    >>> brokers_in(struct.pack(">iii", 1, 0, 1))
    1
    """
    return int(struct.unpack_from(">iii", answer)[2]) if len(answer) >= 12 else 0


def is_ready(host: str, port: int) -> bool:
    """Asks a broker once."""
    try:
        with socket.create_connection((host, port), timeout=ASK_S) as link:
            link.sendall(metadata_request())
            length = struct.unpack(">i", receive(link, 4))[0]
            return brokers_in(receive(link, length)) > 0
    except (OSError, struct.error):
        return False


def receive(link: socket.socket, length: int) -> bytes:
    got = b""
    while len(got) < length and (more := link.recv(length - len(got))):
        got += more
    return got
