"""Custom schedulers: in Python, or in C through a small interface.

Whenever a worker has ended its slice (`Settings.slice_us`) it asks which stage to turn to. A
scheduler can cost time, never the right answer: a worker that gets nothing to do from it looks for
work by itself. It is for the stages of the dynamic threading model.

    >>> class Longest(Scheduler):
    ...     def pick(self, stages):
    ...         ready = [stage for stage in stages if stage.ready]
    ...         return max(ready, key=lambda stage: stage.waiting).number if ready else None
    >>> import plait
    >>> numbers = plait.stream([{"n": 1}, {"n": 2}]).sink(plait.Collect(), "out")
    >>> numbers.run(scheduler=Longest()).outputs["out"].to_pylist()
    [{'n': 1}, {'n': 2}]
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from plait.errors import JobError

if TYPE_CHECKING:
    from pathlib import Path

CAPSULE = b"plait.scheduler"
ABI = 1


class StageView(NamedTuple):
    """What a scheduler sees of a stage; read only. The numbers are estimates.

    >>> [name for name in StageView._fields if name.startswith("waiting")]
    ['waiting', 'waiting_output']
    """

    number: int
    """Its place in the pipeline: what `pick` answers with."""
    name: str
    """Its operators, as the job names them."""
    ready: bool
    """It has work and room for its output, and takes one more worker."""
    source: bool
    python: bool
    """It needs the interpreter, which is why only one such stage runs at a time."""
    workers: int
    """Workers in it now."""
    waiting: float
    """Records in its worklist."""
    waiting_output: float
    """Records in the worklists of the stages after it."""
    room_output: float
    """Records that the fullest worklist after it still takes."""
    cost_ns: float
    """Worker time for a record."""
    selectivity: float
    """Records out for each record in."""
    selectivity_all: float
    """The same since the sources."""
    running_s: float
    """Worker time since the start."""
    idle_s: float
    """Since a worker last turned to it; 0: none has."""
    age_s: float
    """Of the record in front, since it came into the job; 0: none waits."""


class Scheduler:
    """A scheduler in Python: subclass it and give an object as `scheduler=`.

    `pick` is called under the interpreter's lock by one worker at a time, when at least one stage
    is ready; while it runs, and while an operator in Python does, the other workers look for work
    by themselves, so a slow scheduler does not stop native work. An exception, or an answer that is
    not a stage, ends the run with a SchedulerError. On a cluster each node has its own copy, so it
    must be picklable.

    >>> class Oldest(Scheduler):
    ...     def pick(self, stages):
    ...         ready = [stage for stage in stages if stage.ready]
    ...         return max(ready, key=lambda stage: stage.age_s).number if ready else None
    >>> import plait
    >>> len(plait.stream([{"n": 1}]).collect(scheduler=Oldest()))
    1
    """

    def pick(self, stages: tuple[StageView, ...]) -> int | None:
        """The number of the stage to run next, or None: any stage that has work."""
        raise NotImplementedError(f"{type(self).__name__} has no pick(self, stages)")


class SchedulerAbi(ctypes.Structure):
    """`plait_scheduler` of scheduler_abi.h."""

    _fields_ = (
        ("abi", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("pick", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


class NativeScheduler:
    """A scheduler in C, C++ or Cython, by the interface of `plait/scheduler_abi.h`.

    Workers call it without the interpreter's lock, several at once. One from a library can be sent
    to a cluster, whose nodes must have the library at the same path; one in a capsule cannot.

    >>> scheduler = plait.NativeScheduler.load("./libfair.so")  # doctest: +SKIP
    >>> job.run(scheduler=scheduler)                            # doctest: +SKIP
    """

    def __init__(self, capsule: Any) -> None:
        """`capsule`: a PyCapsule named "plait.scheduler" that holds a `plait_scheduler`."""
        pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
        pointer_of.restype = ctypes.c_void_p
        pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
        try:
            address = pointer_of(capsule, CAPSULE)
        except ValueError as error:
            raise JobError(f"not the capsule of a scheduler: {error}") from None
        self._holds(address, capsule, None)

    @classmethod
    def load(cls, library: str | Path, symbol: str = "plait_scheduler") -> Self:
        """The `plait_scheduler` that a shared library exports as `symbol`."""
        try:
            loaded = ctypes.CDLL(str(library))
            found = SchedulerAbi.in_dll(loaded, symbol)
        except (OSError, ValueError) as error:
            raise JobError(f"no scheduler {symbol} in {library}: {error}") from None
        made = cls.__new__(cls)
        made._holds(ctypes.addressof(found), loaded, (str(library), symbol))
        return made

    def _holds(self, address: int, owner: Any, origin: tuple[str, str] | None) -> None:
        record = SchedulerAbi.from_address(address)
        if record.abi != ABI or not record.pick:
            raise JobError(
                f"a scheduler of interface {record.abi}; this plait has {ABI}, and `pick` is needed"
            )
        self.address = address
        self.name = (record.name or b"native").decode("utf-8", "replace")
        self._owner = owner
        self._origin = origin

    def __reduce__(self) -> Any:
        if self._origin is None:
            raise TypeError(
                f"the scheduler {self.name} is in a capsule; for a cluster, load it from a library"
            )
        return NativeScheduler.load, self._origin


AnyScheduler = Scheduler | NativeScheduler


def name_of(scheduler: str | AnyScheduler) -> str:
    """As explain and errors name it."""
    if isinstance(scheduler, str):
        return scheduler
    return scheduler.name if isinstance(scheduler, NativeScheduler) else type(scheduler).__name__
