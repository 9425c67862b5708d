"""The exception tree: your pipeline is wrong, the environment failed, or plait has a bug.

    PlaitError
    ├── PipelineError          your pipeline is wrong: change it
    │   ├── JobError           the job as written cannot run; names the operator and its line
    │   │   └── SchemaError    a schema, or a type in it, is wrong
    │   ├── LoadError          the file that holds the job raised while it was loaded
    │   ├── RecordError        a record failed in an operator; names operator, line and record
    │   ├── BreakerError       too many records became dead letters, and `breaker=` ended the run
    │   └── SchedulerError     your scheduler raised, or did not answer with a stage
    ├── EnvironmentFailure     something outside failed: repair it, or try again
    │   ├── SourceError        a source cannot be read (file missing, malformed at line n)
    │   ├── SinkError          a sink cannot be written
    │   ├── CheckpointError    checkpoints cannot be written, or their output not be shown
    │   └── ClusterError       the cluster, or a node of a job on it, is missing or failed
    ├── StateError             state bytes were refused (version, checksum, wrong operator)
    ├── Interrupted            Ctrl-C, SIGTERM or SIGHUP ended the run, or it was cancelled; also a
    │                          KeyboardInterrupt; carries the result so far
    ├── TimedOut               the run did not end within its timeout; carries the result so far
    └── InternalError          plait has a bug: please report it

Messages say what is wrong, what was given, and what to write instead. `except
plait.EnvironmentFailure` is where a retry belongs; `except plait.PlaitError` catches all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

INTERRUPT = 2
"""The number of SIGINT, which Ctrl-C sends."""


class PlaitError(Exception):
    """Base of every error that plait raises on purpose."""


class PipelineError(PlaitError):
    """Base of the errors in what you wrote: a job, a function, a scheduler."""


class EnvironmentFailure(PlaitError):
    """Base of the failures outside of plait and your job: files, sinks, the cluster. The same job
    may succeed later."""


class JobError(PipelineError):
    """The job as written cannot run, or a request for it was refused. Raised while it is built."""


class SchemaError(JobError):
    """A schema, or a type in one, is not what plait can carry."""


class LoadError(PipelineError):
    """The file that holds a job raised while it was loaded. `path` is the file, `error` is what
    it raised."""

    def __init__(self, path: Path, error: BaseException) -> None:
        super().__init__(str(path))
        self.path = path
        self.error = error


class RecordError(PipelineError):
    """A record failed in an operator. `operator`, `at`, `source`, `row` and `record` say which.

    `row` is the number of the record in its source, counted from 1; 0: no record is to blame.
    """

    def __init__(
        self,
        message: str,
        *,
        operator: str = "",
        at: str = "",
        source: str = "",
        row: int = 0,
        record: Any = None,
    ) -> None:
        super().__init__(message)
        self.operator = operator
        self.at = at
        self.source = source
        self.row = row
        self.record = record


class SourceError(EnvironmentFailure):
    """A source cannot be read."""


class SinkError(EnvironmentFailure):
    """A sink cannot be written."""


class ClusterError(EnvironmentFailure):
    """The cluster, or a node of a job on it, is missing or failed. The job itself may be fine."""


class BreakerError(PipelineError):
    """Too many records became dead letters, so the setting `breaker` ended the run. The message has
    the commonest reasons."""


class CheckpointError(EnvironmentFailure):
    """Checkpoints could not be written for too long, or a sink could not show what one holds. The
    next start of the job goes on from the last one."""


class SchedulerError(PipelineError):
    """A scheduler of the user raised, or answered with something that is not a stage."""


class StateError(PlaitError):
    """State bytes were refused: damaged, of another version, or of another operator."""


class Interrupted(PlaitError, KeyboardInterrupt):
    """The run was stopped before its end: by Ctrl-C, by a signal that asks the process to end, or
    by `JobHandle.cancel`. It is a `KeyboardInterrupt` too, so what a program does at Ctrl-C it does
    here as well.

    `result` is what was done until then; `signal` is the number of the signal, if there was one.

    >>> import signal
    >>> Interrupted("interrupted: 10 read", signal=signal.SIGTERM).exit_status
    143
    """

    def __init__(self, message: str, result: Any = None, signal: int | None = None) -> None:
        super().__init__(message)
        self.result = result
        self.signal = signal

    @property
    def exit_status(self) -> int:
        """What a shell expects of a program that ended so: 130 after Ctrl-C, 143 after SIGTERM."""
        return 128 + (INTERRUPT if self.signal is None else self.signal)


class TimedOut(PlaitError):
    """The run did not end within its timeout. `result` is what was done until then."""

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message)
        self.result = result


class InternalError(PlaitError):
    """plait broke one of its own rules. Please report it with this message."""
