"""`plait broker`: a real Kafka broker on this machine, for development."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.errors import JobError

if TYPE_CHECKING:
    import argparse

OK, FAILED = 0, 1
COMMANDS = ("broker",)
EXAMPLE = """\
examples:
  plait broker start --topic clicks:4 --topic totals
  plait broker status
  plait broker stop
"""


def add_commands(commands: Any) -> None:
    import argparse

    broker = commands.add_parser(
        "broker",
        help="start, stop or find a Kafka broker on this machine",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    broker.add_argument("action", choices=("start", "stop", "status"))
    broker.add_argument("--port", type=int, metavar="PORT", help="to listen on (default: 9092)")
    broker.add_argument(
        "--folder", type=Path, metavar="PATH", help="of its data (default: in ~/.cache/plait)"
    )
    broker.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="NAME[:PARTITIONS]",
        help="make this topic if it is not there; repeatable",
    )


def run(given: argparse.Namespace) -> int:
    from plait.deploy.broker.packages import cache_folder

    folder = given.folder or cache_folder() / "broker"
    topics = [topic_of(text) for text in given.topic]
    if given.action != "start" and (topics or given.port):
        raise JobError(f"plait broker {given.action} takes --folder only")
    if given.action == "start":
        return start(folder.absolute(), given.port, topics)
    if given.action == "stop":
        from plait.deploy.broker.running import stop_detached

        print("stopped" if stop_detached(folder) else f"no broker runs in {folder}")
        return OK
    return show_status(folder)


def topic_of(text: str) -> tuple[str, int]:
    """A topic and its number of partitions.

    >>> topic_of("clicks:4"), topic_of("totals")
    (('clicks', 4), ('totals', 1))
    """
    name, _, number = text.partition(":")
    if not name or (number and not number.isdecimal()) or number == "0":
        raise JobError(f"--topic {text}: write a name, or a name and partitions, such as clicks:4")
    return name, int(number or 1)


def start(folder: Path, port: int | None, topics: list[tuple[str, int]]) -> int:
    from plait.deploy.broker.running import PORT, Broker, status_of

    found = status_of(folder)
    if found is not None and found.pid and port in (None, found.ports.plain):
        servers, said = found.servers, "is running"
    else:
        broker = Broker(folder, port=PORT if port is None else port, owned=False)
        broker.start()
        servers, said = broker.servers, "started"
    if topics:
        from plait.connectors.kafka.client import connect
        from plait.connectors.kafka.settings import Connection

        client = connect(Connection(servers=servers))
        for name, partitions in topics:
            client.make_topic(name, partitions, {})
    print(f"{said}: {servers}\ndata: {folder}")
    return OK


def show_status(folder: Path) -> int:
    from plait.deploy.broker.properties import HOST
    from plait.deploy.broker.ready import is_ready
    from plait.deploy.broker.running import status_of

    found = status_of(folder)
    if found is None or not found.pid:
        print(f"no broker runs in {folder}")
        return FAILED
    answers = is_ready(HOST, found.ports.plain)
    print(f"{'running' if answers else 'not answering'}: {found.servers}, process {found.pid}")
    print(f"data: {folder}")
    return OK if answers else FAILED
