"""What is wrong with a request by itself, whatever the state of its job; pure.

Clients check a request before they send it, and the coordinator checks it again before it is taken
for a fact: what comes over the wire may have been made by anything. So behind this check every
field has its type and a value that can be planned with, journalled and sent. The words name the
argument, what was given, and what it must be.
"""

from __future__ import annotations

import math
import reprlib
from typing import get_args

from plait.checkpoints.starts import to_start
from plait.coordinator.messages.requests import (
    AbortMigration,
    Cancel,
    Drain,
    Forget,
    PauseMigration,
    Rescale,
    ResumeMigration,
    Save,
    Shed,
    Stop,
    Strategy,
    Submit,
    Take,
    Throttle,
)
from plait.coordinator.messages.spec import (
    BelowFloor,
    CheckpointSpec,
    JobSpec,
    Order,
    PartSpec,
    QuerySpec,
    SourceSpec,
)
from plait.errors import JobError
from plait.protocol.messages import Finish, PartKind

MAX_NODES = 4096
MAX_NAME = 200
MAX_GAP_EPOCHS = 1_000_000
MAX_RANK = 2**31 - 1
MAX_BYTES_PER_S = 1e15
MAX_BIN_BITS = 20
MIN_SILENCE_S = 0.1
MIN_EVERY_S = 0.05
MAX_KEPT = 10_000
MAX_SILENCE_S = 86_400.0
MAX_PRIORITY = 2**31 - 1
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)


def objection_to(request: object) -> str:
    """What is wrong with a request, in words; empty if nothing is."""
    match request:
        case Submit(spec=spec, replace=replaces):
            return spec_objection(spec) or flag_objection("replace", replaces)
        case Rescale():
            return (
                name_objection(request.job)
                or nodes_objection(request.nodes)
                or away_objection(request.away)
                or move_objection(request)
                or flag_objection("balance", request.balance)
            )
        case Drain():
            return (
                name_objection(request.job)
                or number_objection("a node", request.rank, 0, MAX_RANK)
                or move_objection(request)
            )
        case Stop(job=job, finish=finish):
            wrong = (
                choice_objection("finish", finish, get_args(Finish)) if finish is not None else ""
            )
            return name_objection(job) or wrong
        case Save(job=job, name=name):
            return name_objection(job) or savepoint_objection(name)
        case Throttle(job=job, bytes_per_s=speed):
            return name_objection(job) or throttle_objection(speed)
        case Shed(job=job, query=query, ratio=ratio):
            wrong = "" if ratio is None else real_objection("the share to keep", ratio, 0.0, 1.0)
            return name_objection(job) or text_objection("a query", query) or wrong
        case Cancel() | PauseMigration() | ResumeMigration() | AbortMigration() | Forget() | Take():
            return name_objection(request.job)
        case _:
            return f"no such request: {shown(request)}"


def move_objection(request: Rescale | Drain) -> str:
    """What a rescale and a drain have in common."""
    return (
        choice_objection("strategy", request.strategy, STRATEGIES)
        or number_objection("gap", request.gap_epochs, 0, MAX_GAP_EPOCHS, " of epochs")
        or throttle_objection(request.throttle_bytes_per_s)
        or flag_objection("dry_run", request.dry_run)
    )


def spec_objection(spec: object) -> str:
    if not isinstance(spec, JobSpec):
        return f"a job is submitted as a JobSpec, got {shown(spec)}"
    cores, silence = spec.cores_per_node, spec.silence_s
    return (
        name_objection(spec.name)
        or nodes_objection(spec.nodes, needed=True)
        or text_objection("payload", spec.payload)
        or text_objection("token", spec.token)
        or number_objection("bin_bits", spec.bin_bits, 0, MAX_BIN_BITS)
        or sources_objection(spec.sources)
        or parts_objection(spec)
        or queries_objection(spec.queries)
        or choice_objection("order", spec.order, get_args(Order))
        or number_objection("epoch_records", spec.epoch_records, 0, 2**31 - 1)
        or flag_objection("bounded", spec.bounded)
        or prefer_objection(spec.prefer)
        or ("" if cores is None else real_objection("cores_per_node", cores, 0.0, 1e6))
        or number_objection("seed", spec.seed, 0, 2**63 - 1)
        or ("" if silence is None else silence_objection(silence))
        or ("" if spec.checkpoint is None else checkpoint_objection(spec))
    )


def checkpoint_objection(spec: JobSpec) -> str:
    known = spec.checkpoint
    if not isinstance(known, CheckpointSpec):
        return f"checkpoint must be a CheckpointSpec, got {shown(known)}"
    if type(known.url) is not str or not known.url:
        return f"a checkpoint needs a path or an address, got {shown(known.url)}"
    if spec.order != "total":
        return f'checkpoint= needs order="total" on nodes; the job has order="{spec.order}"'
    age = known.max_age_s
    return (
        real_objection("every", known.every_s, MIN_EVERY_S, MAX_SILENCE_S, " of seconds")
        or number_objection("keep", known.keep, 1, MAX_KEPT)
        or ("" if age is None else real_objection("max_age", age, known.every_s, 1e9))
        or start_objection(known.start)
        or number_objection("restarts", known.restarts, 0, 1_000_000)
        or real_objection("restarts_s", known.restarts_s, 0.0, 1e9)
    )


def start_objection(start: object) -> str:
    try:
        to_start(start)
    except JobError as error:
        return str(error)
    return text_objection("start", start)


def savepoint_objection(name: object) -> str:
    """A savepoint is a file of this name; without a name it is a checkpoint like any other."""
    if type(name) is not str or len(name) > MAX_NAME:
        return f"a savepoint needs a name of at most {MAX_NAME} letters, got {shown(name)}"
    if any(not (letter.isalnum() or letter in "-_.") for letter in name) or name.startswith("."):
        return f"a savepoint's name has letters, digits, '-', '_' and '.', got {shown(name)}"
    return ""


def sources_objection(sources: object) -> str:
    if type(sources) is not tuple:
        return f"sources must be a tuple, got {shown(sources)}"
    for source in sources:
        if not isinstance(source, SourceSpec):
            return f"a source must be a SourceSpec, got {shown(source)}"
        if wrong := text_objection("a label", source.label) or flag_objection(
            "splits", source.splits
        ):
            return wrong
    return ""


def parts_objection(spec: JobSpec) -> str:
    if type(spec.parts) is not tuple:
        return f"parts must be a tuple, got {shown(spec.parts)}"
    for number, part in enumerate(spec.parts):
        if not isinstance(part, PartSpec):
            return f"a sub-pipeline must be a PartSpec, got {shown(part)}"
        if wrong := (
            text_objection("the name of a sub-pipeline", part.name)
            or choice_objection("kind", part.kind, get_args(PartKind))
            or text_objection("region", part.region)
            or flag_objection("pinned", part.pinned)
            or numbers_objection("inputs", part.inputs, number)
            or numbers_objection("sources", part.sources, len(spec.sources))
        ):
            return wrong
        if type(part.queries) is not tuple or not all(type(one) is str for one in part.queries):
            return f"queries must be labels of sinks, got {shown(part.queries)}"
    return ""


def queries_objection(queries: object) -> str:
    if type(queries) is not tuple:
        return f"queries must be a tuple, got {shown(queries)}"
    for query in queries:
        if not isinstance(query, QuerySpec):
            return f"a query must be a QuerySpec, got {shown(query)}"
        if wrong := (
            text_objection("a query", query.label)
            or number_objection("priority", query.priority, -MAX_PRIORITY, MAX_PRIORITY)
            or real_objection("min_accuracy", query.min_accuracy, 0.0, 1.0)
            or real_objection("freshness", query.freshness_s, 0.0, 1e9, " of seconds")
            or choice_objection("below_floor", query.below_floor, get_args(BelowFloor))
        ):
            return wrong
    return ""


def numbers_objection(what: str, given: object, below: int) -> str:
    if type(given) is not tuple or not all(type(one) is int and 0 <= one < below for one in given):
        return f"{what} must be whole numbers from 0 to {below - 1}, got {shown(given)}"
    return ""


def prefer_objection(prefer: object) -> str:
    if type(prefer) is not tuple or not all(type(host) is str for host in prefer):
        return f"prefer must be names of hosts, got {shown(prefer)}"
    return ""


def name_objection(name: object) -> str:
    if type(name) is not str or not name or len(name) > MAX_NAME or not name.isprintable():
        return f"a job needs a name of 1 to {MAX_NAME} printable letters, got {shown(name)}"
    return ""


def nodes_objection(nodes: object, *, needed: bool = False) -> str:
    """`needed`: None will not do."""
    if nodes is None and not needed:
        return ""
    if type(nodes) is int and nodes < 1:
        return f"nodes is {shown(nodes)}; a job needs at least one node"
    return number_objection("nodes", nodes, 1, MAX_NODES)


def away_objection(away: object) -> str:
    if type(away) is not tuple:
        return f"the nodes to leave must be a tuple, got {shown(away)}"
    return next(filter(None, (number_objection("a node", r, 0, MAX_RANK) for r in away)), "")


def throttle_objection(speed: object) -> str:
    return "" if speed is None else real_objection("throttle", speed, 1.0, MAX_BYTES_PER_S)


def silence_objection(silence_s: object) -> str:
    return real_objection("silence", silence_s, MIN_SILENCE_S, MAX_SILENCE_S, " of seconds")


def number_objection(name: str, value: object, low: int, high: int, unit: str = "") -> str:
    if type(value) is int and low <= value <= high:
        return ""
    return f"{name} is {shown(value)}; it must be a whole number{unit} from {low:,} to {high:,}"


def real_objection(name: str, value: object, low: float, high: float, unit: str = "") -> str:
    if type(value) in (int, float) and is_within(value, low, high):  # type: ignore[arg-type]
        return ""
    return f"{name} is {shown(value)}; it must be a number{unit} from {low:g} to {high:g}"


def is_within(value: float, low: float, high: float) -> bool:
    return not math.isnan(value) and low <= value <= high


def text_objection(name: str, value: object) -> str:
    return "" if type(value) is str else f"{name} is {shown(value)}; it must be text"


def flag_objection(name: str, value: object) -> str:
    return "" if type(value) is bool else f"{name} is {shown(value)}; it must be True or False"


def choice_objection(name: str, value: object, choices: tuple[str, ...]) -> str:
    if type(value) is str and value in choices:
        return ""
    listed = ", ".join(f'"{choice}"' for choice in choices)
    return f"{name} is {shown(value)}; it must be one of {listed}"


def shown(value: object) -> str:
    """As it was given, in a few letters, whatever it is."""
    return reprlib.repr(value)
