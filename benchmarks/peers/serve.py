"""The side of a peer's program: requests come as lines of JSON on stdin, answers go to stdout.

The program stays, so that what it needs once (imports, a session, data in memory, compiled code) is
not in any time. Imports nothing of plait: peers run it in environments of their own.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One run of a query."""

    query: str
    workers: int
    folder: Path
    check: bool
    """The digest of the rows is wanted; the time is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    seconds: float
    digest: str | None = None


def serve(run: Callable[[Request], Answer]) -> None:
    """Answers requests until stdin ends. What libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        given: dict[str, Any] = json.loads(line)
        request = Request(**given | {"folder": Path(given["folder"])})
        try:
            answer = asdict(run(request))
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
