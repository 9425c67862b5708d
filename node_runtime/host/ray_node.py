"""A node as a Ray actor: hosts one `NodeAgent` and hands commands and questions on to it.

Commands are carried out one at a time, in a thread of their own, so that `report` answers while one
is at work. Ray never restarts this actor: its state would be gone, so the coordinator
treats its end as the loss of the node.
"""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray import cloudpickle

from plait.errors import JobError, PlaitError, RecordError
from plait.graph.explain import explain
from plait.node_runtime.host.agent import NodeAgent
from plait.node_runtime.host.engine_host import load_payload
from plait.node_runtime.host.once import Once
from plait.node_runtime.native._cluster import NativeHeart
from plait.protocol.messages import Answer, Command, End, NodeReport, Peer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.node_runtime.host.tls_tunnel import TlsTunnel
    from plait.results.outcomes import NodeOutcome

TLS_FILES = ("PLAIT_TLS_CERT", "PLAIT_TLS_KEY", "PLAIT_TLS_CA")
"""Where a host keeps its certificate, its key and the certificate of who signed all of them."""

KEPT_LINES = 1000
"""So many lines of a node's output are kept when it ends."""
LOG_MARKS = (":job_id:", ":actor_name:", ":task_name:")
"""Lines that Ray writes into the output of a process for itself."""


def tunnel_here(environment: Mapping[str, str]) -> TlsTunnel | None:
    """The tunnel for the links of a node, if this host is set up for TLS."""
    files = [environment.get(name, "") for name in TLS_FILES]
    if not any(files):
        return None
    if not all(files):
        raise JobError(f"set all of {', '.join(TLS_FILES)}, or none of them")
    from plait.node_runtime.host.tls_tunnel import TlsTunnel

    return TlsTunnel(*files)


class RayNode:
    """One node of a job."""

    def __init__(self, rank: int, payload: list[Any], token: str, aim: Any) -> None:
        """`payload`: the parts of the job, where they are in Ray's object store. `aim`: to whom its
        heart beats; from the start, since the first records may hold the interpreter for long."""
        self.rank = rank
        self.payload = payload
        self.heart = NativeHeart()
        self.aim: Any = None
        self.aim_heart(aim)
        # Ray starts its workers with a low priority; a node is not work for idle times.
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, 0)
        host = ray.util.get_node_ip_address()
        self.agent = NodeAgent(rank, payload, token, host, tunnel_here(os.environ))
        self.once = Once(self.agent.apply)

    @ray.method(concurrency_group="ask")
    def identity(self) -> tuple[Peer, int]:
        """Where the node listens, and the id of its process."""
        return self.agent.peer(), os.getpid()

    @ray.method(concurrency_group="tell")
    def apply(self, command_id: int, command: Command) -> Answer:
        """Carries a command out, once."""
        return self.once.tell(command_id, command)

    @ray.method(concurrency_group="ask")
    def report(self, loads: bool, aim: Any = None) -> NodeReport:
        """How the node is; `aim`: to whom its heart beats from now on."""
        self.aim_heart(aim)
        return self.agent.report(loads)

    def aim_heart(self, aim: Any) -> None:
        if aim is not None and aim != self.aim:
            self.heart.aim(aim.host, aim.port, aim.key, aim.every_ms)
            self.aim = aim

    @ray.method(concurrency_group="fetch")
    def outcome(self) -> bytes | None:
        """The node's part of the result, as `unpack_outcome` reads it; None before its end.

        A node that has left its job is not told to end: it ends when it is asked.
        """
        return outcome_of(self.agent)

    @ray.method(concurrency_group="fetch")
    def explain(self) -> str:
        """How this node runs the job."""
        return explain(*load_payload(self.payload))

    @ray.method(concurrency_group="fetch")
    def logs(self, lines: int) -> list[str]:
        """The last lines that this process has written to its output and error streams."""
        return lines_printed(lines)

    @ray.method(concurrency_group="fetch")
    def remains(self) -> tuple[bytes | None, str, list[str]]:
        """All that may be asked for when this process has ended: its outcome, how it ran, what it
        printed."""
        explained = explain(*load_payload(self.payload))
        return outcome_of(self.agent), explained, lines_printed(KEPT_LINES)

    @ray.method(concurrency_group="fetch")
    def close(self) -> None:
        self.heart.stop()
        self.agent.close()


def outcome_of(agent: NodeAgent) -> bytes | None:
    if agent.outcome() is None and agent.report().phase == "left":
        agent.apply(End(good=True))
    found = agent.outcome()
    return None if found is None else pack_outcome(found)


def lines_printed(lines: int) -> list[str]:
    sys.stdout.flush()
    sys.stderr.flush()
    return [line for stream in (1, 2) for line in tail_of(stream, lines)]


def tail_of(stream: int, lines: int) -> list[str]:
    """The end of the file behind an open stream; nothing if it is no file."""
    path = Path(f"/proc/self/fd/{stream}")
    try:
        if not path.resolve(strict=True).is_file():
            return []
        text = path.resolve().read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    kept = [line for line in text.splitlines() if not line.startswith(LOG_MARKS)]
    return kept[-lines:] if lines > 0 else kept


def pack_outcome(outcome: NodeOutcome) -> bytes:
    """An outcome as bytes. What cannot be sent (a record, an exception) is sent as its text."""
    error = outcome.error
    cause = None if error is None else error.__cause__
    sendable = replace(
        outcome,
        error=None if error is None else portable(error),
        letters=tuple(
            (
                place,
                letter
                if can_be_sent(letter.record)
                else replace(letter, record=repr(letter.record)),
            )
            for place, letter in outcome.letters
        ),
        outputs={
            label: output if can_be_sent(output) else repr(output)
            for label, output in outcome.outputs.items()
        },
    )
    told = None if cause is None else with_traceback(portable(cause), cause, outcome.rank)
    data: bytes = cloudpickle.dumps((sendable, told))
    return data


def unpack_outcome(data: bytes) -> NodeOutcome:
    """What `pack_outcome` made, with the error's cause in its place."""
    outcome, cause = cloudpickle.loads(data)
    if outcome.error is not None:
        outcome.error.__cause__ = cause
    return outcome  # type: ignore[no-any-return]


def can_be_sent(value: Any) -> bool:
    """Whether the other side can read it. Tables can, and are not copied to find out."""
    if value is None or isinstance(value, int | str | float):
        return True
    if hasattr(value, "num_rows") and hasattr(value, "schema"):
        return True
    try:
        cloudpickle.loads(cloudpickle.dumps(value))
    except Exception:
        return False
    return True


def portable(error: BaseException) -> BaseException:
    """The error itself if it can be sent, or one of plait's with the same words."""
    if can_be_sent(error):
        return error
    if isinstance(error, RecordError):
        return RecordError(
            str(error),
            operator=error.operator,
            at=error.at,
            source=error.source,
            row=error.row,
            record=repr(error.record),
        )
    return PlaitError(f"{type(error).__name__}: {error}")


def with_traceback(copy: BaseException, raised: BaseException, rank: int) -> BaseException:
    """Tracebacks do not travel: its lines are added as a note."""
    lines = "".join(traceback.format_tb(raised.__traceback__)).rstrip()
    if lines:
        copy.add_note(f"raised on node-{rank}:\n{lines}")
    return copy
