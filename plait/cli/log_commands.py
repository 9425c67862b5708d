"""The command for batch logs: `plait log show|adopt|forget`."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from plait.errors import JobError, StateError

if TYPE_CHECKING:
    import argparse

    from plait.connectors.batch_log.layout import LogFile
    from plait.connectors.batch_log.storage import LogFolder

OK = 0
COMMANDS = ("log",)

EXAMPLES = """\
examples:
  plait log show shared/clicks                        what is in it, who writes and who reads it
  plait log adopt shared/clicks --query 4f0c...       a new Spark query goes on writing it
  plait log forget shared/clicks carts.clicks         a reader is gone for good
"""


def add_commands(commands: Any) -> None:
    from argparse import RawDescriptionHelpFormatter

    command = commands.add_parser(
        "log",
        help="look at a batch log, or change who writes and reads it",
        epilog=EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
    )
    command.add_argument("what", choices=["show", "adopt", "forget"], help="what to do")
    command.add_argument("path", metavar="PATH", help="the folder of the log")
    command.add_argument("name", metavar="READER", nargs="?", help="of forget: the reader")
    command.add_argument("--query", metavar="ID", help="of adopt: the id of the new writer")
    command.add_argument(
        "--at",
        metavar="N",
        type=int,
        default=0,
        help="of adopt: the writer's own number of its next batch (default: 0)",
    )
    command.add_argument("--json", action="store_true", help="of show: as JSON")


def run(given: argparse.Namespace) -> int:
    from plait.connectors.batch_log.retire import forget
    from plait.connectors.batch_log.storage import LogFolder

    folder = LogFolder(given.path)
    log = folder.read_log()
    if log is None:
        raise StateError(f"{given.path} is not a batch log")
    match given.what:
        case "show":
            show(folder, log, as_json=given.json)
        case "adopt":
            adopt(folder, log, given.query, given.at)
        case "forget":
            if given.name is None:
                raise JobError(
                    "plait log forget PATH READER: which reader? plait log show names them"
                )
            forget(folder, given.name)
    return OK


def facts_of(folder: LogFolder, log: LogFile) -> dict[str, Any]:
    from plait.connectors.batch_log.retire import measure_unread

    there = folder.range()
    newest = None if there is None else folder.read_batch(there[1])
    unread = measure_unread(folder)
    return {
        "path": str(folder),
        "schema": str(log.schema),
        "kind": log.kind,
        "writer": log.owner.writer,
        "batches": None if there is None else list(there),
        "newest_at": None if newest is None else newest.committed_at,
        "ended": folder.read_end(),
        "unread": {
            "batches": unread.batches,
            "rows": unread.rows,
            "bytes": unread.size_bytes,
        },
        "readers": [
            {"name": each.name, "read": each.read, "needed": each.needed, "at": each.at}
            for each in folder.read_readers()
        ],
    }


def show(folder: LogFolder, log: LogFile, *, as_json: bool) -> None:
    facts = facts_of(folder, log)
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    now = time.time()
    print(f"{facts['path']}: {facts['schema']}")
    who = {"spark": "Spark query", "plait": "plait job", "other": "writer"}[log.kind]
    print(f"  written by {who} {facts['writer']}")
    if facts["batches"] is None:
        print("  no batches yet")
    else:
        first, last = facts["batches"]
        print(f"  batches {first} to {last}, the newest {now - facts['newest_at']:,.0f} s old")
    unread = facts["unread"]
    print(
        f"  unread: {unread['batches']:,} batches, {unread['rows']:,} rows,"
        f" {unread['bytes']:,} bytes"
    )
    for each in facts["readers"]:
        print(
            f"  reader {each['name']}: has read {each['read']} and may go back to {each['needed']},"
            f" {now - each['at']:,.0f} s ago"
        )
    if not facts["readers"]:
        print("  no readers: nothing is removed, and a Spark query waits when the log is full")
    if facts["ended"] is not None:
        print(f"  ended with batch {facts['ended']}")


def adopt(folder: LogFolder, log: LogFile, query: str | None, at: int) -> None:
    """The next batch is number `at` of another writer."""
    if not query:
        raise JobError("plait log adopt PATH --query ID: which query is to write the log?")
    there = folder.range()
    first = log.owner.first if there is None else there[1] + 1
    folder.replace_log(log.adopted(query, first, first - at))
    print(f"{folder}: batch {at} of {query} is batch {first} of the log")
