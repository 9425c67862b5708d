"""The commands for jobs on a cluster: submit, ls, status, logs, top, rescale, drain, cancel,
forget, preflight.

Each is a few lines over `plait.submit` and `plait.attach`. Exit status 2 and one message on stderr
when a command cannot be done, 1 when the job that it waited for failed. `--json` prints what a
script would read.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

from plait.cli.checkpoint_commands import add_options, options_of
from plait.errors import Interrupted, JobError, LoadError, PlaitError
from plait.model.durations import to_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.cluster.job_handle import JobHandle
    from plait.cluster.migration_handle import MigrationHandle
    from plait.connectors.files import Files

OK, FAILED, REFUSED = 0, 1, 2
STRATEGIES = ("fluid", "batched", "optimised", "all_at_once")
CLEAR = "\x1b[H\x1b[J"

Adder = Any
"""What add_subparsers returns; argparse has no public name for it."""


def add_commands(commands: Adder) -> None:
    """Adds the parsers of all commands here."""
    add_submit(commands)
    add_looking(commands)
    add_moving(commands)
    add_saving(commands)
    add_shedding(commands)
    add_ending(commands)
    add_preflight(commands)


def add(
    commands: Adder, name: str, help: str, example: str, *, json: bool = False, job: bool = True
) -> argparse.ArgumentParser:
    """A command with what all have: an example, the address, perhaps the job and --json."""
    made: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help,
        description=help[0].upper() + help[1:] + ".",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.set_defaults(run=COMMANDS[name])
    if job:
        made.add_argument("job", metavar="JOB", help="the name of a job on the cluster")
    made.add_argument(
        "--address", metavar="ADDRESS", help="the cluster: auto, host:port or ray://host:port"
    )
    made.add_argument("--namespace", default="plait", help=argparse.SUPPRESS)
    if json:
        made.add_argument("--json", action="store_true", help="print JSON, for scripts")
    return made


def worker_count(text: str) -> int | str:
    """A number, or "elastic"."""
    return text if text == "elastic" else int(text)


def add_dead_letters(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--dead-letters",
        metavar="PATH",
        help="write dead letters to this file: .jsonl, .csv or .parquet",
    )


def dead_letters_of(given: argparse.Namespace) -> Files | None:
    from plait.connectors.files import Files

    return None if given.dead_letters is None else Files(given.dead_letters)


def add_submit(commands: Adder) -> None:
    made = add(
        commands,
        "submit",
        "run a job on the nodes of a cluster",
        "plait submit carts.py --nodes 2 --address auto",
        json=True,
        job=False,
    )
    made.add_argument(
        "job", metavar="FILE[:JOB]", help="a Python file, and the name of a job in it"
    )
    made.add_argument(
        "--nodes", type=int, default=1, metavar="N", help="number of nodes (default: 1)"
    )
    made.add_argument("--name", metavar="NAME", help="name of the job on the cluster")
    made.add_argument(
        "--workers", type=worker_count, metavar="N", help='threads per node, or "elastic"'
    )
    made.add_argument("--limit", type=int, metavar="N", help="stop after N records of each source")
    made.add_argument(
        "--silence",
        metavar="TIME",
        help="a node of which nothing is heard this long counts as lost, e.g. 20s",
    )
    add_options(made)
    made.add_argument(
        "--replace",
        action="store_true",
        help="end the job that has this name now, and discard its result",
    )
    made.add_argument(
        "--wait",
        action="store_true",
        help="wait for the job to end and show its result, as plait run does",
    )
    add_dead_letters(made)
    made.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other field of plait.Settings; repeatable",
    )


def add_looking(commands: Adder) -> None:
    add(commands, "ls", "list the jobs of a cluster", "plait ls --json", json=True, job=False)
    add(commands, "status", "show a job and its nodes", "plait status carts", json=True)
    made = add(commands, "logs", "show what a job's functions printed", "plait logs carts node-1")
    made.add_argument("node", nargs="?", metavar="NODE", help="one node only, such as node-1")
    made.add_argument(
        "--lines", type=int, default=100, metavar="N", help="lines per node (default: 100)"
    )
    made = add(commands, "top", "watch the jobs of a cluster", "plait top carts", job=False)
    made.add_argument("job", nargs="?", metavar="JOB", help="one job only")
    made.add_argument(
        "--every", default="1s", metavar="TIME", help="refresh interval (default: 1s)"
    )
    made.add_argument("--once", action="store_true", help="print once and exit")


def add_moving(commands: Adder) -> None:
    rescale = add(
        commands,
        "rescale",
        "change the number of nodes of a running job",
        "plait rescale carts --nodes 4 --strategy batched --gap 50ms --dry-run",
        json=True,
    )
    rescale.add_argument(
        "--nodes", type=int, metavar="N", help="target number of nodes (default: unchanged)"
    )
    drain = add(
        commands,
        "drain",
        "move everything off a node and remove it, while the job runs",
        "plait drain carts node-2",
        json=True,
    )
    drain.add_argument("node", metavar="NODE", help="the node to empty, such as node-2")
    for made in (rescale, drain):
        made.add_argument(
            "--strategy",
            choices=STRATEGIES,
            default="fluid",
            help="how bins are moved (default: fluid)",
        )
        made.add_argument(
            "--gap",
            default="0",
            metavar="GAP",
            help="pause between two steps: a time such as 50ms, or a number of epochs (default: 0)",
        )
        made.add_argument(
            "--throttle",
            metavar="RATE",
            help="limit on migration traffic per second, e.g. 100MB",
        )
        made.add_argument("--dry-run", action="store_true", help="show the plan and exit")
        made.add_argument(
            "--no-wait", action="store_true", help="return as soon as the migration has started"
        )


def add_saving(commands: Adder) -> None:
    add(commands, "checkpoint", "save a job now", "plait checkpoint carts")
    made = add(
        commands,
        "savepoint",
        "save a job under a name, until it is deleted",
        "plait savepoint carts before-upgrade",
    )
    made.add_argument("name", metavar="NAME", help="letters, digits, '-', '_' and '.'")


def add_shedding(commands: Adder) -> None:
    made = add(
        commands,
        "shed",
        "keep only a share of a query's input",
        "plait shed carts totals 0.5",
    )
    made.add_argument("query", metavar="QUERY", help="the name of its sink")
    made.add_argument("ratio", metavar="RATIO", help="the share to keep, 0 to 1; all: no bound")
    made = add(
        commands,
        "why",
        "show what was decided under overload, and why",
        "plait why carts totals",
        json=True,
    )
    made.add_argument("query", nargs="?", metavar="QUERY", help="one query only: its sink's name")


def add_ending(commands: Adder) -> None:
    made = add(commands, "cancel", "end a job", "plait cancel carts --drain")
    made.add_argument(
        "--drain",
        action="store_true",
        help="stop the sources and deliver what was read before ending",
    )
    add(commands, "forget", "discard the result of a job that is over", "plait forget carts")


def add_preflight(commands: Adder) -> None:
    made = add(
        commands,
        "preflight",
        "check that a cluster is ready for plait",
        "plait preflight --address auto --nodes 3 --wait 5m",
        json=True,
        job=False,
    )
    made.add_argument(
        "--nodes", type=int, default=1, metavar="N", help="nodes the cluster must have (default: 1)"
    )
    made.add_argument(
        "--wait", metavar="TIME", help="how long to wait for them, e.g. 30s or 5m (default: not)"
    )
    made.add_argument(
        "--ports", default="0", metavar="A-B", help="ports for data (default: any free port)"
    )


def run(given: argparse.Namespace) -> int:
    """Carries out a command of this module and returns its exit status."""
    try:
        status: int = given.run(given)
    except LoadError:  # shown with the user's own lines
        raise
    except PlaitError as error:
        tell(f"plait: {type(error).__name__}: {error}")
        return REFUSED
    return status


def submit_command(given: argparse.Namespace) -> int:
    from plait.cli.commands import settings_of
    from plait.cli.load import load_job
    from plait.cluster.submit import submit

    settings = settings_of(given.set)
    settings |= {
        name: getattr(given, name)
        for name in ("workers", "limit")
        if getattr(given, name) is not None
    }
    # What the file itself prints must not get between the lines of the JSON.
    printed = contextlib.redirect_stdout(sys.stderr) if given.json else contextlib.nullcontext()
    with printed:
        job = load_job(given.job)
    handle = submit(
        job,
        address=given.address,
        nodes=given.nodes,
        name=given.name,
        namespace=given.namespace,
        silence=given.silence,
        replace=given.replace,
        dead_letters=dead_letters_of(given),
        **options_of(given),
        **settings,
    )
    if not given.wait and handle.outlives_process:
        show_json({"job": handle.name}) if given.json else print(f"submitted {handle.name}")
        return OK
    if not handle.outlives_process:
        tell("plait: no cluster was named or found; running on a private Ray until the job ends")
    return wait_and_show(handle, given.json)


def wait_and_show(handle: JobHandle, as_json: bool) -> int:
    """Shows the result of a job as `plait run` does. Ctrl-C, SIGTERM and SIGHUP stop the sources;
    then it waits on."""
    from plait.cli.commands import show
    from plait.execution.signals import raising_interrupt

    try:
        with raising_interrupt():
            try:
                handle.wait()
            except KeyboardInterrupt:
                tell("stopping after what was read; Ctrl-C again to end at once")
                handle.stop()
            result = handle.result()
    except Interrupted as error:  # the job was cancelled, by somebody else
        if error.result is not None:
            show(error.result, as_json)
        tell(f"plait: {type(error).__name__}: {error}")
        return FAILED
    except KeyboardInterrupt:
        handle.cancel()
        raise
    except PlaitError as error:
        tell(f"plait: {type(error).__name__}: {error}")
        return FAILED
    show(result, as_json)
    return OK


def ls_command(given: argparse.Namespace) -> int:
    from plait.cluster.submit import jobs
    from plait.text.tables import small_table

    views = jobs(given.address, namespace=given.namespace)
    if given.json:
        show_json([dataclasses.asdict(view) for view in views])
        return OK
    rows = [
        [
            view.name,
            view.phase,
            str(len(view.members)),
            "" if view.over else f"{sum(node.read_per_s for node in view.members):,.0f}",
            f"{view.delivered:,}",
            view.error.splitlines()[0] if view.error else "",
        ]
        for view in views
    ]
    head = ["job", "phase", "nodes", "read/s", "delivered", "error"]
    print(small_table(head, rows, [False, False, True, True, True, False]))
    return OK


def status_command(given: argparse.Namespace) -> int:
    view = attach_job(given).status()
    show_json(dataclasses.asdict(view)) if given.json else print(view)
    return OK


def logs_command(given: argparse.Namespace) -> int:
    text = attach_job(given).logs(given.node, lines=given.lines)
    if text:
        print(text)
    return OK


def rescale_command(given: argparse.Namespace) -> int:
    handle = attach_job(given)
    change = handle.rescale(
        given.nodes,
        strategy=given.strategy,
        gap=gap_of(given.gap),
        throttle=given.throttle,
        dry_run=given.dry_run,
    )
    return show_change(handle, change, given)


def drain_command(given: argparse.Namespace) -> int:
    handle = attach_job(given)
    change = handle.drain(
        given.node,
        strategy=given.strategy,
        gap=gap_of(given.gap),
        throttle=given.throttle,
        dry_run=given.dry_run,
    )
    return show_change(handle, change, given)


def show_change(handle: JobHandle, change: MigrationHandle, given: argparse.Namespace) -> int:
    """Shows the plan, and waits for the change unless --no-wait is given. Ctrl-C ends the waiting,
    not the change."""
    if not given.json and str(change):
        print(change)
    if not given.dry_run and not given.no_wait:
        change.wait(progress=not given.json)
    if given.json:
        found = None if given.dry_run else change.progress()
        facts = None if found is None else dataclasses.asdict(found)
        show_json({"job": handle.name, "plan": str(change), "migration": facts})
    return OK


def gap_of(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def checkpoint_command(given: argparse.Namespace) -> int:
    print(f"{given.job}: checkpoint {attach_job(given).checkpoint()}")
    return OK


def savepoint_command(given: argparse.Namespace) -> int:
    number = attach_job(given).savepoint(given.name)
    print(f"{given.job}: savepoint {given.name} is checkpoint {number}")
    return OK


def shed_command(given: argparse.Namespace) -> int:
    ratio = None if given.ratio == "all" else ratio_of_text(given.ratio)
    attach_job(given).shed(given.query, ratio)
    kept = "all" if ratio is None else f"{ratio:.0%}"
    print(f"{given.job}: {given.query} keeps {kept} of its input")
    return OK


def why_command(given: argparse.Namespace) -> int:
    handle = attach_job(given)
    steps = handle.why(given.query)
    if given.json:
        show_json([dataclasses.asdict(step) for step in steps])
        return OK
    view = handle.status()
    for alert in view.alerts:
        if given.query in (None, alert.query):
            print(f"alert: {alert.query}: {alert.because}")
    for query in view.queries:
        if given.query in (None, query.query):
            print(query)
    for step in steps:
        print(step)
    return OK


def ratio_of_text(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise JobError(f'the share to keep is {text!r}; write 0.5, or "all"') from None


def cancel_command(given: argparse.Namespace) -> int:
    handle = attach_job(given)
    if given.drain:
        handle.stop()
    else:
        handle.cancel()
    view = handle.wait()
    print(f"{view.name} is {view.phase}")
    return OK


def forget_command(given: argparse.Namespace) -> int:
    attach_job(given).forget()
    return OK


def top_command(given: argparse.Namespace) -> int:
    from plait.cli.top_rows import rows_of
    from plait.cli.top_view import render
    from plait.cluster.submit import jobs

    every_s = to_seconds(given.every)
    once = given.once or not sys.stdout.isatty()
    history: dict[str, list[float]] = {}
    while True:
        views = jobs(given.address, namespace=given.namespace)
        chosen = [view for view in views if given.job in (None, view.name)]
        size = shutil.get_terminal_size((100, 40))
        text = render(rows_of(chosen, history), size.columns, size.lines - 1)
        print(text if once else f"{CLEAR}{text}", flush=True)
        if once:
            return OK
        time.sleep(every_s)


def preflight_command(given: argparse.Namespace) -> int:
    from plait.cluster.ray_link import join
    from plait.deploy.preflight import Needs, failed, port_range, report

    if given.nodes < 1:
        raise JobError(f"--nodes is {given.nodes}; a cluster has at least one node")
    needs, wait_s = Needs(nodes=given.nodes), 0.0 if given.wait is None else to_seconds(given.wait)
    try:
        ports = port_range(given.ports)
    except ValueError:
        raise JobError(f"--ports is {given.ports!r}; it must be A-B, such as 20000-20100") from None
    join(given.address, start=False)
    from plait.deploy.ray_preflight import findings_of, gather

    facts = gather(given.address or "auto", needs.nodes, ports, wait_s)
    findings = findings_of(facts, needs)
    if given.json:
        show_json([dataclasses.asdict(one) for one in findings])
    else:
        print(report(findings, facts.hosts))
    return FAILED if failed(findings) else OK


def explain_command(given: argparse.Namespace) -> int:
    """`plait explain` of a name that is not a file: a job on the cluster."""
    print(attach_job(given).explain())
    return OK


def attach_job(given: argparse.Namespace) -> JobHandle:
    from plait.cluster.submit import attach

    return attach(given.job, given.address, namespace=given.namespace)


def show_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def tell(message: str) -> None:
    print(message, file=sys.stderr)


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "submit": submit_command,
    "ls": ls_command,
    "status": status_command,
    "logs": logs_command,
    "top": top_command,
    "rescale": rescale_command,
    "drain": drain_command,
    "shed": shed_command,
    "why": why_command,
    "checkpoint": checkpoint_command,
    "savepoint": savepoint_command,
    "cancel": cancel_command,
    "forget": forget_command,
    "preflight": preflight_command,
}
