"""Who has a folder of checkpoints, and whether they are still there.

Claims alone keep a folder right: whoever claims last may write. But a second run that is started by
mistake must not end the first one, so before it claims it looks who is there. On a local folder the
owner holds a lock, which ends with its process. Where there are no locks the owner writes a *beat*
every few seconds: one that changes while it is looked at is of somebody who lives. Nobody's clock
is compared with another's. Safety never depends on it: an owner that was taken for dead, because it
was frozen or its store was away, can seal nothing any more.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from plait.checkpoints.manifests import Beat, Owner

if TYPE_CHECKING:
    from collections.abc import Callable

BEAT_S = 2.0
LEASE_S = 10.0
"""An owner of whom nothing is heard for so long, by who looks, is gone."""
LOOK_S = 0.1


def this_process(run: str, node: str = "") -> Owner:
    """The owner that this process would be."""
    return Owner(
        run=run,
        node=node,
        host=socket.gethostname(),
        pid=os.getpid(),
        machine=machine(),
        began=began(os.getpid()),
        since=time.time(),
    )


def machine() -> str:
    """The same for two processes only if each sees the other's number; "": not known."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def began(pid: int) -> str:
    """When a process began, as this machine counts; "": there is none, or it is not known."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            words = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if words[0] in "ZX" else words[19]


def is_gone(owner: Owner) -> bool:
    """Whether the process is known to have ended. One on another machine may have."""
    here = machine()
    return bool(here) and owner.machine == here and began(owner.pid) != owner.began


def describe(owner: Owner) -> str:
    since = datetime.fromtimestamp(owner.since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    what = f"a job on a cluster ({owner.node} on" if owner.node else "a run on"
    end = ", " if owner.node else " ("
    return f"{what} {owner.host}{end}pid {owner.pid}, since {since})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """What can be seen of the owner of a folder."""

    attempt: int
    owner: Owner | None
    beat: Beat | None


def is_in_use(
    look: Callable[[], Sign], run: str, *, locked: bool, pause: Callable[[float], None] = time.sleep
) -> Owner | None:
    """The owner of the folder if it is another run that lives. `locked`: who asks holds the lock
    of the folder. It takes as long as an owner may be silent."""
    first = look()
    until = time.monotonic() + LEASE_S
    now = first
    while True:
        owner = now.owner
        if owner is None or owner.run == run or (now.beat is not None and now.beat.ended):
            return None
        if now.attempt != first.attempt or now.beat != first.beat:
            return owner  # it moves
        # The lock and the process of a run on one machine end with it; a job on a cluster may live
        # on without the node that had them.
        if not owner.node and ((locked and owner.locked) or is_gone(owner)):
            return None
        if time.monotonic() >= until:
            return None
        pause(LOOK_S)
        now = look()


class Heart:
    """Writes beats until it is stopped. A beat that cannot be written is left out."""

    def __init__(self, write: Callable[[Beat], None], attempt: int) -> None:
        self.write = write
        self.attempt = attempt
        self.count = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.work, name="plait-beat", daemon=True)
        self.thread.start()

    def work(self) -> None:
        while not self.over.wait(BEAT_S):
            self.count += 1
            with contextlib.suppress(Exception):
                self.write(Beat(attempt=self.attempt, count=self.count))

    def stop(self) -> None:
        self.over.set()
        self.thread.join()
