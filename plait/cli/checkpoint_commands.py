"""The commands for checkpoints (`checkpoints`, `restore`, `state`), and options of `run`, `submit`.

They read a folder and write nothing.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from plait.cli.load import load_job
from plait.errors import JobError, StateError

if TYPE_CHECKING:
    import argparse

    from plait.checkpoints.folder_reader import FolderReader
    from plait.checkpoints.manifests import ManifestInfo

OK, FAILED = 0, 1
COMMANDS = ("checkpoints", "restore", "state")


def add_options(command: argparse.ArgumentParser) -> None:
    """Those of `plait run` and `plait submit`."""
    command.add_argument(
        "--checkpoint",
        metavar="URL",
        help="save the state there and go on from it: a folder, s3://...",
    )
    command.add_argument("--every", metavar="TIME", help="time between checkpoints (default: 10s)")
    command.add_argument(
        "--start",
        metavar="WHERE",
        help="where to go on: savepoint:NAME, checkpoint:NUMBER, or new for the beginning",
    )
    command.add_argument(
        "--drop",
        metavar="ID",
        action="append",
        help="give up the state of this operator, if the job cannot go on with it",
    )


def options_of(given: argparse.Namespace) -> dict[str, Any]:
    """What `plait run` or `plait submit` was told about checkpoints."""
    from plait.checkpoints.config import Checkpoint

    if given.checkpoint is None:
        for name in ("every", "start", "drop"):
            if getattr(given, name) is not None:
                raise JobError(f"--{name} needs --checkpoint")
        return {}
    saved = Checkpoint(given.checkpoint, every=given.every or "10s", drop=tuple(given.drop or ()))
    return {"checkpoint": saved, "start": given.start or ""}


def add_commands(commands: Any) -> None:
    listing = commands.add_parser("checkpoints", help="list the checkpoints in a folder")
    listing.add_argument("url", metavar="URL", help="what --checkpoint was given")
    listing.add_argument("--json", action="store_true", help="as JSON")
    restore = commands.add_parser("restore", help="what a job would take over from a checkpoint")
    restore.add_argument("job", metavar="FILE[:JOB]", help="a Python file, and a job in it")
    restore.add_argument("--checkpoint", metavar="URL", required=True, help="its checkpoints")
    restore.add_argument(
        "--dry-run", action="store_true", required=True, help="compare only (plait run goes on)"
    )
    restore.add_argument("--start", metavar="savepoint:NAME", help="a savepoint, not the newest")
    restore.add_argument("--drop", metavar="ID", action="append", help="as of plait run")
    state = commands.add_parser("state", help="show what a job keeps under a key")
    state.add_argument("url", metavar="URL", help="what --checkpoint was given")
    state.add_argument("job", metavar="JOB", help="the name of the job")
    state.add_argument("what", choices=["get", "list"], help="one key, or all")
    state.add_argument("key", metavar="KEY", nargs="?", help='as Python shows it: 7, "tea"')


def run(given: argparse.Namespace) -> int:
    match given.command:
        case "checkpoints":
            return list_command(given)
        case "restore":
            return restore_command(given)
    return state_command(given)


def list_command(given: argparse.Namespace) -> int:
    from plait.execution.state_reading import jobs_in, open_folder

    found = {job: facts_of(open_folder(given.url, job)) for job in jobs_in(given.url)}
    if given.json:
        told = {job: {"checkpoints": facts, "damaged": why} for job, (facts, why) in found.items()}
        print(json.dumps(told, indent=2))
        return OK
    if not found:
        raise StateError(f"{given.url} has no checkpoints")
    for job, (facts, damaged) in found.items():
        print(f"{job}:")
        for fact in facts:
            name = f"  savepoint {fact['savepoint']}" if fact["savepoint"] else ""
            finished = "  finished" if fact["finished"] else ""
            print(
                f"  {fact['number']:>6}  attempt {fact['attempt']}  epoch {fact['epoch']:,}"
                f"  {fact['age_s']:,.0f} s ago  {fact['size_bytes']:,} bytes{finished}{name}"
            )
        for reason in damaged:
            print(f"  damaged: {reason}")
    return OK


def facts_of(folder: FolderReader) -> tuple[list[dict[str, Any]], list[str]]:
    """The checkpoints that can be restored, newest first, and why others cannot."""
    try:
        found = folder.manifests()
    except StateError as error:
        found, damaged = [], [str(error)]
    else:
        damaged = [reason for info in found for reason in info.passed_over]
    named = [info for info in folder.savepoints() if info.id not in {each.id for each in found}]
    return [fact_of(folder, info) for info in (*found, *named)], damaged


def fact_of(folder: FolderReader, info: ManifestInfo) -> dict[str, Any]:
    manifest = folder.read(info.name or info.id)
    refs = [ref for each in manifest.parts for ref in folder.read_part(each).refs]
    return {
        "number": info.number,
        "attempt": info.attempt,
        "epoch": info.epoch,
        "age_s": max(0.0, time.time() - info.at),
        "size_bytes": sum(ref.size for ref in refs),
        "finished": info.finished,
        "savepoint": info.name,
    }


def restore_command(given: argparse.Namespace) -> int:
    """The table of operators; the status says whether a run would be refused."""
    from plait.checkpoints.evolution import compare_operators
    from plait.execution.state_reading import choose, open_folder
    from plait.graph.operator_ids import operator_ids
    from plait.node_runtime.host.state_bins import try_takeovers
    from plait.node_runtime.host.state_entries import state_entries

    graph = replace(load_job(given.job).graph(), dropped=tuple(given.drop or ()))
    folder = open_folder(given.checkpoint, graph.name)
    manifest = choose(folder, savepoint_name(given.start))
    ids = operator_ids(graph)
    comparison = compare_operators(manifest.operators, state_entries(graph, ids), graph.dropped)
    print(f"checkpoint {manifest.number} of {graph.name}, epoch {manifest.epoch:,}")
    print(comparison.table())
    for sentence in comparison.not_dropped:
        print(sentence)
    failed = try_takeovers(graph, ids, folder, manifest)
    for id, why in failed.items():
        print(f"{id}: {why}")
    return FAILED if comparison.refused or failed else OK


def savepoint_name(start: str | None) -> str | None:
    if start is None:
        return None
    if not start.startswith("savepoint:"):
        raise StateError(f'--start is {start!r}; write "savepoint:NAME"')
    return start.removeprefix("savepoint:")


def state_command(given: argparse.Namespace) -> int:
    from plait.execution.state_reading import choose, open_folder, states_of, user_key, user_value

    if given.what == "get" and given.key is None:
        raise JobError("plait state URL JOB get KEY: the key is missing")
    folder = open_folder(given.url, given.job)
    unread: set[str] = set()
    found = 0
    for each in states_of(folder, choose(folder, None)):
        if each.unread:
            unread.add(each.operator)
        for parts, values in each.rows:
            key = user_key(parts)
            if given.what == "list" or given.key in (repr(key), str(key)):
                found += 1
                print(f"{each.operator}  {key!r}: {user_value(values)!r}")
    for operator in sorted(unread):
        print(f"{operator}: of an older plait, which did not say how its state is read")
    if not found and given.what == "get":
        raise StateError(f"no state of job {given.job!r} has the key {given.key}")
    return OK
