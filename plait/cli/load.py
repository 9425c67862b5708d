"""Finds the job in a Python file: `FILE`, or `FILE:name` where there are several.

The file is loaded as a module under its own name, with its folder first on the path, as `python
FILE` would have it, but `__name__` is not "__main__": a guarded `job.run()` in it does not run. A
file that runs its job by itself, as with `show`, is a script: there is nothing left to run.
"""

from __future__ import annotations

import difflib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from plait.errors import JobError, LoadError
from plait.execution.local_run import LocalRun
from plait.graph.operators import SinkOp
from plait.streams.job import Job
from plait.streams.stream import KeyedStream, Stream

if TYPE_CHECKING:
    from types import ModuleType


Found = TypeVar("Found")


def load_job(given: str) -> Job:
    """The job that `FILE[:name]` names, ready to run."""
    path, name = split_name(given)
    return job_in(load_module(path), name, path)


def load_script(given: str) -> Job | None:
    """The same; None if the file ran its jobs itself while it was loaded, as by `stream.show()`."""
    path, name = split_name(given)
    before = LocalRun.started
    module = load_module(path)
    if LocalRun.started > before and not name and not has_more_to_run(module):
        return None
    return job_in(module, name, path)


def job_in(module: ModuleType, name: str, path: Path) -> Job:
    found = find_named(module, name, path) if name else find_only(module, path)
    return found if isinstance(found, Job) else job_of(found)


def has_more_to_run(module: ModuleType) -> bool:
    """Whether a job with sinks was not run by its file, which only looked at streams of it."""
    return any(has_sink(job) and job._looked_at for job in jobs_of(module))


def split_name(given: str) -> tuple[Path, str]:
    """The path and the name after its last colon; a path may have colons itself."""
    if Path(given).exists():
        return Path(given), ""
    path, _, name = given.rpartition(":")
    if path and name.isidentifier():
        return Path(path), name
    return Path(given), ""


def load_module(path: Path) -> ModuleType:
    if not path.is_file():
        raise JobError(f"no such file: {path}")
    name = path.stem if path.stem.isidentifier() and path.stem not in sys.modules else "plait_job"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise JobError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look their classes up by it
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise LoadError(path, error) from None
    return module


def find_named(module: ModuleType, name: str, path: Path) -> Job | Stream:
    found = getattr(module, name, None)
    if isinstance(found, Job | Stream):
        return found
    have = [key for key, value in vars(module).items() if isinstance(value, Job | Stream)]
    if found is not None or hasattr(module, name):
        kind = "a keyed stream" if isinstance(found, KeyedStream) else type(found).__name__
        raise JobError(f"{name} in {path} is {kind}, not a job or a stream{list_names(have)}")
    close = difflib.get_close_matches(name, have, 1)
    hint = f'; did you mean "{close[0]}"?' if close else list_names(have)
    raise JobError(f'{path} has no "{name}"{hint}')


def list_names(names: list[str]) -> str:
    return f"; it has: {', '.join(names)}" if names else "; it has no job and no stream"


def find_only(module: ModuleType, path: Path) -> Job | Stream:
    """The one job of a module: a Job in it, or the job of its streams."""
    values, jobs = values_of(module), jobs_of(module)
    if len(jobs) == 1:
        streams = unique([v for v in values if isinstance(v, Stream) and v.job is jobs[0]])
        return streams[0] if len(streams) == 1 and not has_sink(jobs[0]) else jobs[0]
    names = [key for key, value in vars(module).items() if isinstance(value, Job | Stream)]
    if not jobs:
        raise JobError(f"{path} has no plait.Job and no stream at its top level")
    raise JobError(f"{path} has {len(jobs)} jobs; name one: {path}:{names[0]}{list_names(names)}")


def jobs_of(module: ModuleType) -> list[Job]:
    """The jobs at the top level, or else those of its streams."""
    values = values_of(module)
    jobs = [value for value in values if isinstance(value, Job)]
    return unique(jobs or [value.job for value in values if isinstance(value, Stream)])


def values_of(module: ModuleType) -> list[Any]:
    return [value for key, value in vars(module).items() if not key.startswith("__")]


def unique(values: list[Found]) -> list[Found]:
    return list({id(value): value for value in values}.values())


def has_sink(job: Job) -> bool:
    return any(isinstance(node, SinkOp) for node in job._operators)


def job_of(stream: Stream) -> Job:
    """The job of a stream; when nothing in it has a sink, the stream is printed."""
    from plait.connectors.memory_sinks import Print

    if not has_sink(stream.job):
        stream.sink(Print(), name="printed")
    return stream.job
