"""The exception tree. Three branches: your job is wrong, the surroundings failed, plait has a bug.

    PlaitError
    ├── JobError            your job is wrong: raised while it is built; names operator and line
    │   └── SchemaError     a schema or a type in it is wrong
    ├── RecordError         a record failed in an operator; names operator, line and record
    ├── SourceError         a source cannot be read (file missing, malformed at line n)
    ├── SinkError           a sink cannot be written
    ├── SchedulerError      a scheduler of yours raised, or gave an answer that is no stage
    ├── StateError          state bytes were refused (version, checksum, wrong operator)
    ├── Interrupted         the run was stopped before its end (Ctrl-C); carries the result so far
    ├── TimedOut            the run did not end within its timeout; carries the result so far
    └── InternalError       plait has a bug; carries the story

Messages say what was wrong, what came, and what to do.
"""

from __future__ import annotations

from typing import Any


class PlaitError(Exception):
    """Base of every error that plait raises on purpose."""


class JobError(PlaitError):
    """The job as written cannot run. Raised while it is built."""


class SchemaError(JobError):
    """A schema, or a type in one, is not what plait can carry."""


class RecordError(PlaitError):
    """A record failed in an operator. `operator`, `at`, `source`, `row` and `record` say which."""

    def __init__(
        self,
        message: str,
        *,
        operator: str = "",
        at: str = "",
        source: str = "",
        row: int = -1,
        record: Any = None,
    ) -> None:
        super().__init__(message)
        self.operator = operator
        self.at = at
        self.source = source
        self.row = row
        self.record = record


class SourceError(PlaitError):
    """A source cannot be read."""


class SinkError(PlaitError):
    """A sink cannot be written."""


class SchedulerError(PlaitError):
    """A scheduler given by the user raised, or answered with something that is no stage."""


class StateError(PlaitError):
    """State bytes were refused: damaged, of another version, or of another operator."""


class Interrupted(PlaitError):
    """The run was stopped by the user before its end. `result` is what was done."""

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message)
        self.result = result


class TimedOut(Interrupted):
    """The run did not end within its timeout. `result` is what was done."""


class InternalError(PlaitError):
    """plait broke a rule of its own. Please report it with this message."""
