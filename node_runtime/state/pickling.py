"""States as bytes, here and in worker processes, with the user's classes by name.

In the engine's process this is pickle. A worker process got the user's functions and classes by
value, so that its classes are not those that an import there would give. It writes them by name,
which the engine's process resolves to its own, and where it reads a name it takes the class that it
was sent. So the bytes of a bin are the same wherever it was packed.
"""

from __future__ import annotations

import importlib
import io
import pickle
import sys
from functools import reduce
from typing import TYPE_CHECKING, Any

from plait.functions.pickling import is_installed

if TYPE_CHECKING:
    from collections.abc import Iterator


class Foreign:
    """Whether this process got the user's classes by value, and which they are."""

    def __init__(self) -> None:
        self.here = False
        self.classes: dict[tuple[str, str], type] | None = None

    def begin(self) -> None:
        """From now on, and when all functions are loaded."""
        self.here = True
        self.classes = None

    def find(self, module: str, name: str) -> type | None:
        """The class of this name that was sent; None: it is to be imported."""
        if is_installed(sys.modules.get(module)):
            return None
        if self.classes is None:
            self.classes = {(one.__module__, one.__qualname__): one for one in of_users()}
        return self.classes.get((module, name))


foreign = Foreign()


def dumps(value: Any) -> bytes:
    if not foreign.here:
        return pickle.dumps(value, protocol=5)
    file = io.BytesIO()
    ByName(file, protocol=5).dump(value)
    return file.getvalue()


def loads(data: bytes | memoryview) -> Any:
    return Loader(io.BytesIO(data)).load() if foreign.here else pickle.loads(data)


def class_by_name(module: str, name: str) -> Any:
    """The class of this name, as this process has it."""
    if foreign.here and (found := foreign.find(module, name)) is not None:
        return found
    return reduce(getattr, name.split("."), importlib.import_module(module))


class ByName(pickle.Pickler):
    """Writes classes that an import would not find here as their names."""

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, type) or "<locals>" in obj.__qualname__ or is_importable(obj):
            return NotImplemented
        return class_by_name, (obj.__module__, obj.__qualname__)


class Loader(pickle.Unpickler):
    """Reads the names of classes that were sent as these."""

    def find_class(self, module: str, name: str) -> Any:
        found = foreign.find(module, name)
        return super().find_class(module, name) if found is None else found


def is_importable(cls: type) -> bool:
    found: Any = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is cls


def of_users() -> Iterator[type]:
    """All classes of modules that no installation put there."""
    installed: dict[str, bool] = {}
    waiting: list[type] = [object]
    seen: set[type] = set()
    while waiting:
        below: list[type] = type.__subclasses__(waiting.pop())
        for cls in below:
            if cls in seen:
                continue
            seen.add(cls)
            waiting.append(cls)
            module = cls.__module__
            if module not in installed:
                installed[module] = is_installed(sys.modules.get(module))
            if not installed[module]:
                yield cls
