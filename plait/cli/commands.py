"""The command line: `plait run` and `plait explain`; the commands for clusters are added to it.

Errors that plait raises on purpose are one message on stderr and exit status 1, without a
traceback; an exception in the user's file shows the user's own frames. Ctrl-C ends with 130,
SIGTERM with 143 and SIGHUP with 129, and all show what was done until then.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import difflib
import json
import re
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait import __version__
from plait.cli import (
    broker_commands,
    checkpoint_commands,
    cluster_commands,
    dlq_commands,
    log_commands,
)
from plait.cli.load import load_job, load_script
from plait.errors import Interrupted, JobError, LoadError, PlaitError, RecordError, TimedOut
from plait.execution.progress import format_result, result_facts
from plait.model.call_site import is_ours
from plait.model.durations import to_seconds
from plait.model.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.results.result import Result

OK, FAILED, INTERRUPTED = 0, 1, 130
OWN_OPTIONS = ("workers", "limit", "timeout_s")
"""Settings that have their own option."""

EXAMPLES = """\
examples:
  plait run carts.py                     run the job in carts.py on every core
  plait run carts.py:night --workers 2   one of several jobs, on two threads
  plait run carts.py --checkpoint ckpt   save its state there, and go on from it the next time
  plait run carts.py --limit 1000        only the first 1,000 records of each source
  plait explain carts.py                 the stages of the job and the route of each function
  plait submit carts.py --nodes 2        run it on two nodes of a cluster
  plait rescale carts --nodes 4          and on four, while it runs
"""
RUN_EXAMPLES = """\
examples:
  plait run carts.py --timeout 30s
  plait run carts.py --json > result.json
  plait run carts.py --set epoch_records=1024 --set order=none

FILE holds one plait.Job, or one stream, at its top level; with several, name one after a colon.
A stream without a sink is printed. A file that runs its job itself, as by show(), is a script.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status."""
    given = parser().parse_args(arguments)
    try:
        if given.command in cluster_commands.COMMANDS:
            return cluster_commands.run(given)
        if given.command in checkpoint_commands.COMMANDS:
            return checkpoint_commands.run(given)
        if given.command in log_commands.COMMANDS:
            return log_commands.run(given)
        if given.command in broker_commands.COMMANDS:
            return broker_commands.run(given)
        if given.command in dlq_commands.COMMANDS:
            return dlq_commands.run(given)
        if given.command == "explain":
            return explain_command(given)
        return run_command(given)
    except LoadError as error:
        tell(load_error_text(error))
    except PlaitError as error:
        tell(error_text(error))
    except KeyboardInterrupt:
        tell("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output, such as head, has gone
        sys.stdout = None
    return FAILED


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(
        prog="plait",
        description="A stream processor for Python: many cores, many nodes, one order.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.add_argument("--version", action="version", version=f"plait {__version__}")
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="run a job in this process until it ends",
        epilog=RUN_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.add_argument(
        "--workers",
        type=cluster_commands.worker_count,
        metavar="N",
        help='threads, or "elastic" (default: one per core)',
    )
    run.add_argument("--limit", type=int, metavar="N", help="stop after N records of each source")
    run.add_argument(
        "--timeout", metavar="TIME", help="stop after this time: 30s, 2m, or a number of seconds"
    )
    run.add_argument(
        "--scheduler",
        metavar="NAME",
        help="which stage runs next: ct (default), lru (for many stages), et, lp, qst, random, ...",
    )
    run.add_argument(
        "--json",
        action="store_true",
        help="print the result as JSON on stdout, and what the job prints on stderr",
    )
    explain = commands.add_parser(
        "explain",
        help="show the stages of a job and the route of each function",
        epilog="examples:\n  plait explain carts.py\n  plait explain carts --address auto",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for command in (run, explain):
        command.add_argument(
            "job", metavar="FILE[:JOB]", help="a Python file, and the name of a job in it"
        )
        if command is run:
            cluster_commands.add_dead_letters(command)
            checkpoint_commands.add_options(command)
        command.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="any other field of plait.Settings; repeatable",
        )
    explain.add_argument(
        "--address", metavar="ADDRESS", help="the cluster, to explain a job that runs on it"
    )
    explain.add_argument("--namespace", default="plait", help=argparse.SUPPRESS)
    cluster_commands.add_commands(commands)
    checkpoint_commands.add_commands(commands)
    log_commands.add_commands(commands)
    broker_commands.add_commands(commands)
    dlq_commands.add_commands(commands)
    return whole


def explain_command(given: argparse.Namespace) -> int:
    """Of a file, or of a job on a cluster: with an address, or by a name that cannot be a file."""
    if given.address is not None or is_job_name(given.job):
        given.run = cluster_commands.explain_command
        return cluster_commands.run(given)
    load_job(given.job).explain(**settings_of(given.set))
    return OK


def is_job_name(job: str) -> bool:
    return not Path(job).exists() and not any(mark in job for mark in (".py", "/", ":"))


def run_command(given: argparse.Namespace) -> int:
    settings = settings_of(given.set)
    if given.scheduler is not None:
        settings["scheduler"] = given.scheduler
    timeout = timeout_of(given.timeout)
    # What the job itself prints must not get between the lines of the JSON.
    printed = contextlib.redirect_stdout(sys.stderr) if given.json else contextlib.nullcontext()
    try:
        with printed:
            job = load_script(given.job)
            if job is None:
                refuse_options(given)
                return OK
            result = job.run(
                workers=given.workers,
                limit=given.limit,
                timeout=timeout,
                dead_letters=cluster_commands.dead_letters_of(given),
                **checkpoint_commands.options_of(given),
                **settings,
            )
    except (Interrupted, TimedOut) as error:
        if error.result is not None:
            show(error.result, given.json)
        tell(error_text(error))
        return FAILED if isinstance(error, TimedOut) else error.exit_status
    show(result, given.json)
    return OK


def refuse_options(given: argparse.Namespace) -> None:
    """Raises if there were options for a job, and the file ran its jobs itself."""
    options: tuple[str, ...] = (
        "workers",
        "limit",
        "timeout",
        "scheduler",
        "dead_letters",
        "set",
        "json",
    )
    options += ("checkpoint", "every", "start")
    used = [f"--{name.replace('_', '-')}" for name in options if getattr(given, name)]
    if used:
        raise JobError(
            f"{given.job} ran its job itself, without {', '.join(used)}; leave out show(),"
            " collect() or run() at its top level and plait run will run the stream there"
        )


def show(result: Result, as_json: bool) -> None:
    print(json.dumps(result_facts(result), indent=2) if as_json else format_result(result))


def timeout_of(text: str | None) -> float | None:
    """The seconds of a duration; a bare number is seconds here, as the help says."""
    if text is None:
        return None
    bare = re.fullmatch(r"\d+(\.\d+)?", text)
    return to_seconds(f"{text}s" if bare else text)


def settings_of(pairs: Sequence[str]) -> dict[str, Any]:
    """The settings of NAME=VALUE texts."""
    fields = {f.name: f for f in dataclasses.fields(Settings) if f.name not in OWN_OPTIONS}
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise JobError(f"--set {pair}: expected NAME=VALUE")
        if name in OWN_OPTIONS:
            raise JobError(f"--set {name}: use --{name.removesuffix('_s')}")
        if name not in fields:
            close = difflib.get_close_matches(name, fields, 1)
            hint = f"did you mean {close[0]}?" if close else f"settings are: {', '.join(fields)}"
            raise JobError(f"--set {name}: no such setting; {hint}")
        # "none" is the name of an order; the order None is what an unset one is.
        may_be_none = fields[name].default is None and name != "order"
        settings[name] = value_of_text(value, may_be_none=may_be_none)
    return settings


def value_of_text(text: str, *, may_be_none: bool) -> int | str | bool | None:
    """A whole number, a word, or true or false; what a setting may be is checked by Settings."""
    if may_be_none and text.lower() == "none":
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return int(text)
    except ValueError:
        return text


def tell(message: str) -> None:
    print(message, file=sys.stderr)


def error_text(error: PlaitError) -> str:
    """The message, and the user's lines if a function of the user's raised."""
    cause = error.__cause__ if isinstance(error, RecordError) else None
    lines = [] if cause is None else user_lines(cause)
    return "\n".join([f"plait: {type(error).__name__}: {error}", *lines])


def load_error_text(failed: LoadError) -> str:
    """What the user's file raised: a message for plait's errors, else the user's lines."""
    error = failed.error
    if isinstance(error, PlaitError):
        return error_text(error)
    lines = [f"plait: {failed.path} could not be loaded", *user_lines(error)]
    lines += [line.rstrip("\n") for line in traceback.format_exception_only(error)]
    return "\n".join(lines)


def user_lines(error: BaseException) -> list[str]:
    """The frames of a traceback that are the user's, as Python shows them."""
    frames = [
        (frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not is_ours(frame) and not frame.f_code.co_filename.startswith("<frozen importlib")
    ]
    shown = traceback.StackSummary.extract(iter(frames)).format()
    return [line.rstrip("\n") for line in shown]
