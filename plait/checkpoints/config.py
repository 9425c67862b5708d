"""Where a job keeps its checkpoints, how often it takes one, and how many it keeps.

>>> Checkpoint("ckpt", every="1s").every_s
1.0
>>> to_checkpoint("s3://bucket/carts").keep
3
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from plait.errors import JobError
from plait.model.durations import Duration, microseconds

AGE_FACTOR = 10
LEAST_AGE_US = 60_000_000
"""The default of `max_age`: so many times `every`, and at least so long."""

RESTARTS = 5


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where the checkpoints of a job are kept, and when they are taken.

    >>> saved = Checkpoint("s3://bucket/carts", every="30s", keep=5)
    >>> saved.every_s, saved.max_age_s
    (30.0, 300.0)

    Args:
        url: a folder, `s3://bucket/path`, `gs://bucket/path`, or any URL that fsspec knows.
        every: the time between two checkpoints.
        keep: how many of the newest are kept; savepoints are kept besides.
        max_age: the job stops if no checkpoint has succeeded for this long (default: 10 times
            `every`, and at least a minute).
        restarts: on a cluster, how often the job may go back to a checkpoint within ten minutes;
            once more and it fails, with the reasons. A run on one machine never starts again by
            itself.
        drop: ids of operators whose state may be given up, if the job cannot go on with it: it has
            them no more, or they keep another state now.
    """

    url: str
    every: Duration = "10s"
    keep: int = 3
    max_age: Duration | None = None
    drop: tuple[str, ...] = ()
    restarts: int = RESTARTS
    every_s: float = field(init=False, repr=False, compare=False)
    max_age_s: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.url, str | os.PathLike):
            raise JobError(f'checkpoint url {self.url!r} is not text; write "ckpt/" or "s3://..."')
        url = os.fspath(self.url)
        if not isinstance(url, str) or not url.strip():
            raise JobError(f'checkpoint url {url!r} is empty; write "ckpt/" or "s3://bucket/path"')
        if isinstance(self.keep, bool) or not isinstance(self.keep, int) or self.keep < 1:
            raise JobError(f"keep is {self.keep!r}; it must be a whole number above 0")
        if isinstance(self.restarts, bool) or not isinstance(self.restarts, int):
            raise JobError(f"restarts is {self.restarts!r}; it must be a whole number")
        if self.restarts < 0:
            raise JobError(f"restarts is {self.restarts}; it must not be below 0")
        if isinstance(self.drop, str) or not all(isinstance(id, str) for id in self.drop):
            raise JobError(f'drop is {self.drop!r}; give the ids of operators: drop=("totals",)')
        every_us = microseconds(self.every)
        usual_us = max(AGE_FACTOR * every_us, LEAST_AGE_US)
        age_us = usual_us if self.max_age is None else microseconds(self.max_age)
        if age_us < every_us:
            raise JobError(f"max_age is {self.max_age}, less than every, which is {self.every}")
        object.__setattr__(self, "url", url)
        object.__setattr__(self, "drop", tuple(self.drop))
        object.__setattr__(self, "every_s", every_us / 1_000_000)
        object.__setattr__(self, "max_age_s", age_us / 1_000_000)

    def __repr__(self) -> str:
        age = "" if self.max_age is None else f", max_age={self.max_age!r}"
        age += f", drop={self.drop!r}" if self.drop else ""
        age += f", restarts={self.restarts}" if self.restarts != RESTARTS else ""
        return f"Checkpoint({shown_url(self.url)!r}, every={self.every!r}, keep={self.keep}{age})"


def to_checkpoint(given: Any) -> Checkpoint:
    """What `checkpoint=` was given, as a `Checkpoint`."""
    if isinstance(given, Checkpoint):
        return given
    if isinstance(given, str | os.PathLike):
        return Checkpoint(os.fspath(given))
    raise JobError(
        f"checkpoint is {given!r}; give a folder, a URL or a plait.Checkpoint(url, every=...)"
    )


def shown_url(url: str) -> str:
    """The URL without what may be secret in it: user, password and query."""
    if "://" not in url:
        return url
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))
