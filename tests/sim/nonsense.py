"""Requests of every kind with arguments of every type, drawn at random.

The kinds and their fields are those of the union `Request` itself: a new request is covered from
its first day.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, get_args

from plait.coordinator.messages.requests import Request, Stop
from tests.sim.simulator import spec_of

if TYPE_CHECKING:
    from random import Random

KINDS: tuple[type[Any], ...] = get_args(Request)
NONSENSE: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2.5,
    10**6,
    10**30,
    float("nan"),
    float("inf"),
    1e-300,
    "",
    "3",
    "flud",
    "../x",
    "x" * 10_000,
    "\x00",
    b"bytes",
    [],
    (1, 2),
    ("a",),
    {"a": 1},
    object(),
    replace(spec_of("other"), nodes=2.5),  # type: ignore[arg-type]
    replace(spec_of("other"), sources=("a",)),  # type: ignore[arg-type]
    replace(spec_of("other"), bin_bits=64),
)


def nonsense(draw: Random, kind: type[Any] | None = None, job: str = "job") -> Any:
    """A request of this kind, or of any, that cannot be accepted by a job that runs, has no
    checkpoints, no queries and no migration. With only a job to name, it names another one."""
    kind = kind or draw.choice(KINDS)
    given = {field.name: draw.choice(NONSENSE) for field in fields(kind)}
    if "job" in given and len(given) > 1 and draw.random() < 0.8:
        given["job"] = job
    if kind is Stop and given["finish"] is None:
        given["finish"] = "flud"  # without a wish it would be right
    return kind(**given)
