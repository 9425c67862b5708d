"""A change of nodes that was planned or is under way: print it, start it, watch it, steer it."""

from __future__ import annotations

import math
import re
import sys
import time
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from plait.coordinator.messages.requests import (
    AbortMigration,
    PauseMigration,
    ResumeMigration,
    Throttle,
)
from plait.coordinator.messages.views import migration_line
from plait.errors import JobError, TimedOut
from plait.execution.progress import ProgressLine
from plait.model.durations import Duration, to_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.cluster.job_handle import JobHandle
    from plait.coordinator.messages.requests import Drain, Rescale
    from plait.coordinator.messages.views import JobView, MigrationView

LOOK_S = 0.05
SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kKMGT]?)i?B?(?:/s)?\s*", re.ASCII)
UNITS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


class MigrationHandle:
    """A rescale or a drain. Prints as its plan."""

    def __init__(
        self, job: JobHandle, request: Rescale | Drain, plan: str, after: int | None
    ) -> None:
        self.job = job
        self.request = request
        self.plan = plan
        self.after = after
        """The number of the change before this one; None while it is only a plan."""

    def __str__(self) -> str:
        return self.plan

    def __repr__(self) -> str:
        began = "planned" if self.after is None else "started"
        return f"<{began} change of {self.job!r}>"

    def start(self) -> Self:
        """Carries out what was planned by a dry run. What is under way already stays so."""
        if self.after is None:
            begun = self.job.moving(replace(self.request, dry_run=False))
            self.plan, self.after = begun.plan, begun.after
        return self

    def progress(self) -> MigrationView | None:
        """How far it is; None as long as it has not begun."""
        return self.mine(self.job.status())

    def mine(self, view: JobView) -> MigrationView | None:
        found = view.migration
        if self.after is None:
            raise JobError("this is only a plan; start() it")
        return found if found is not None and found.number > self.after else None

    def wait(self, timeout: float | Duration | None = None, *, progress: bool = False) -> Self:
        """Waits until the change is made; JobError if it was given up, with the reason."""
        from plait.cluster.job_handle import deadline

        end = deadline(timeout)
        line = ProgressLine(sys.stderr) if progress else None
        while True:
            view = self.job.status()
            found = self.mine(view)
            if line is not None and line.shows and found is not None:
                line.write(migration_line(found))
            if found is not None and found.phase in ("done", "failed"):
                break
            if view.over:
                break
            if end is not None and time.monotonic() >= end:
                raise TimedOut(f'the change of the job "{self.job.name}" is still under way')
            time.sleep(LOOK_S)
        if line is not None:
            line.done()
        self.check(view, found)
        return self

    def check(self, view: JobView, found: MigrationView | None) -> None:
        if found is not None and found.phase == "done":
            return
        reason = found.reason if found is not None else ""
        over = f"the job is {view.phase}" + (f": {view.error}" if view.error else "")
        raise JobError(f"the change was not made: {reason or over}")

    def pause(self) -> None:
        """No further steps until `resume`; what is under way completes."""
        self.job.asked(PauseMigration(job=self.job.name))

    def resume(self) -> None:
        self.job.asked(ResumeMigration(job=self.job.name))

    def abort(self) -> None:
        """No further steps. What has moved stays where it is."""
        self.job.asked(AbortMigration(job=self.job.name))

    def throttle(self, limit: float | str | None) -> None:
        """At most so many bytes a second from now on; None: as fast as goes."""
        self.job.asked(Throttle(job=self.job.name, bytes_per_s=bytes_per_s(limit)))


def bytes_per_s(limit: float | str | None) -> float | None:
    """A number of bytes, or "100MB"."""
    if limit is None:
        return None
    if isinstance(limit, str):
        match = SIZE.fullmatch(limit)
        if match is None:
            raise JobError(f'throttle is {limit!r}; write bytes a second: "100MB" or a number')
        limit = float(match[1]) * UNITS[match[2]]
    if not limit > 0:
        raise JobError(f"throttle is {limit}; it must be above 0 bytes a second")
    return float(limit)


def gap_epochs(gap: int | Duration, pace: Callable[[], float]) -> int:
    """The gap in epochs; a time is turned into epochs at the job's present pace."""
    if isinstance(gap, str | timedelta):
        return math.ceil(to_seconds(gap) * pace())
    if isinstance(gap, bool) or not isinstance(gap, int) or gap < 0:
        raise JobError(f'gap is {gap!r}; write a number of epochs, or a time such as "50ms"')
    return gap
