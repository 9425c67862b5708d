"""A migration that was planned or is under way: print it, start it, watch it, steer it."""

from __future__ import annotations

import math
import re
import sys
import time
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from plait.coordinator.messages.request_checks import (
    MAX_GAP_EPOCHS,
    number_objection,
    throttle_objection,
)
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
    """A migration of a job: what `JobHandle.rescale` and `JobHandle.drain` return. Prints as its
    plan.

    >>> change = handle.rescale(nodes=4, dry_run=True)   # doctest: +SKIP
    >>> print(change)                                    # doctest: +SKIP
    >>> change.start().wait(timeout="5m", progress=True) # doctest: +SKIP
    """

    def __init__(
        self, job: JobHandle, request: Rescale | Drain, plan: str, after: int | None
    ) -> None:
        self.job = job
        self._request = request
        self.plan = plan
        self._after = after
        """The number of the change before this one; None while it is only a plan."""

    def __str__(self) -> str:
        return self.plan

    def __repr__(self) -> str:
        began = "planned" if self._after is None else "started"
        return f"<{began} change of {self.job!r}>"

    def start(self) -> Self:
        """Carries out what a dry run has planned, and returns this handle. Has no effect on a
        migration that has started."""
        if self._after is None:
            begun = self.job._migrate(replace(self._request, dry_run=False))
            self.plan, self._after = begun.plan, begun._after
        return self

    def progress(self) -> MigrationView | None:
        """How far the migration is: its phase, bins and bytes. None if it has not begun."""
        return self._own(self.job.status())

    def _own(self, view: JobView) -> MigrationView | None:
        found = view.migration
        if self._after is None:
            raise JobError("this is only a plan; call start() first")
        return found if found is not None and found.number > self._after else None

    def wait(self, timeout: float | Duration | None = None, *, progress: bool = False) -> Self:
        """Waits until the migration is done and returns this handle.

        `timeout` is a duration such as "30s", or seconds; when it passes, TimedOut is raised and
        the migration goes on. `progress` shows a line on a terminal. JobError with the reason if
        the migration was given up."""
        from plait.cluster.job_handle import deadline

        end = deadline(timeout)
        line = ProgressLine(sys.stderr) if progress else None
        while True:
            view = self.job._looked_after()
            found = self._own(view)
            if line is not None and line.shows and found is not None:
                line.write(migration_line(found))
            if found is not None and found.phase in ("done", "failed"):
                break
            if view.over:
                break
            if end is not None and time.monotonic() >= end:
                raise TimedOut(f'the migration of the job "{self.job.name}" is still under way')
            time.sleep(LOOK_S)
        if line is not None:
            line.done()
        self._raise_unless_done(view, found)
        return self

    def _raise_unless_done(self, view: JobView, found: MigrationView | None) -> None:
        if found is not None and found.phase == "done":
            return
        reason = found.reason if found is not None else ""
        over = f"the job is {view.phase}" + (f": {view.error}" if view.error else "")
        raise JobError(f"the migration was not completed: {reason or over}")

    def pause(self) -> None:
        """Starts no further step until `resume`; the step under way completes."""
        self.job._ask(PauseMigration(job=self.job.name))

    def resume(self) -> None:
        """Goes on after `pause`."""
        self.job._ask(ResumeMigration(job=self.job.name))

    def abort(self) -> None:
        """Starts no further step. What has moved stays where it is."""
        self.job._ask(AbortMigration(job=self.job.name))

    def throttle(self, limit: float | str | None) -> None:
        """Limits the migration to this many bytes per second from now on: a number, or "100MB";
        None: no limit."""
        self.job._ask(Throttle(job=self.job.name, bytes_per_s=bytes_per_s(limit)))


def bytes_per_s(limit: float | str | None) -> float | None:
    """A number of bytes, or "100MB"."""
    if limit is None:
        return None
    if isinstance(limit, str):
        match = SIZE.fullmatch(limit)
        if match is None:
            raise JobError(f'throttle is {limit!r}; expected bytes per second: "100MB" or a number')
        limit = float(match[1]) * UNITS[match[2]]
    if wrong := throttle_objection(limit):
        raise JobError(wrong)
    return float(limit)


def gap_epochs(gap: int | Duration, pace: Callable[[], float]) -> int:
    """The gap in epochs; a time is turned into epochs at the job's present pace."""
    if isinstance(gap, str | timedelta):
        epochs = to_seconds(gap) * pace()
        if not 0.0 <= epochs <= MAX_GAP_EPOCHS:
            raise JobError(
                f"gap is {gap!r}, which is {epochs:,.0f} epochs now; it must be at most "
                f"{MAX_GAP_EPOCHS:,}"
            )
        return math.ceil(epochs)
    if type(gap) is not int:
        raise JobError(f'gap is {gap!r}; expected a number of epochs, or a time such as "50ms"')
    if wrong := number_objection("gap", gap, 0, MAX_GAP_EPOCHS, " of epochs"):
        raise JobError(wrong)
    return gap
