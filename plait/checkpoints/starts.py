"""What `start=` says: the checkpoint from which a job goes on; pure.

>>> to_start("savepoint:before-upgrade")
Start(kind='savepoint', name='before-upgrade', number=0)
>>> to_start("checkpoint:42").number, to_start("new").kind, to_start("").kind
(42, 'new', 'newest')
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from plait.checkpoints.paths import savepoint_path
from plait.errors import JobError

Kind = Literal["newest", "savepoint", "checkpoint", "new"]
KNOWN = '"savepoint:NAME", "checkpoint:NUMBER" or "new"'


@dataclass(frozen=True, slots=True)
class Start:
    """`newest`: the newest checkpoint, or the beginning if there is none; `new`: the beginning,
    whatever there is."""

    kind: Kind
    name: str = ""
    number: int = 0

    def __str__(self) -> str:
        if self.kind == "savepoint":
            return f"the savepoint {self.name!r}"
        return f"checkpoint {self.number}" if self.kind == "checkpoint" else f"{self.kind}"


def to_start(given: Any) -> Start:
    """`start=` of `run` and `submit`; JobError if it has no meaning."""
    if given in ("", None):
        return Start("newest")
    if given == "new":
        return Start("new")
    what, _, which = given.partition(":") if isinstance(given, str) else ("", "", "")
    if what == "savepoint" and which:
        savepoint_path(which)
        return Start("savepoint", name=which)
    if what == "checkpoint" and which.isascii() and which.isdecimal():
        return Start("checkpoint", number=int(which))
    raise JobError(f"start={given!r} is not known; write {KNOWN}")
