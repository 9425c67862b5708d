"""Functions as bytes that another process can load: the user's by value, the installed by name.

What is installed (plait, the libraries) is sent by name; the user's functions and classes are sent
by value, so that it does not matter where their file is. For what cannot be sent, the error names
the variable that holds it. `CodePickler` serves the worker processes of this machine; the payload
of a job on a cluster is made by one with Ray's copy of cloudpickle.
"""

from __future__ import annotations

import functools
import inspect
import io
import sys
import sysconfig
import threading
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

INSTALLED = ("purelib", "platlib", "stdlib", "platstdlib")
INSTALLED_PARTS = frozenset(("site-packages", "dist-packages"))
DUMPING = threading.RLock()
"""What is sent by value is registered for the whole process: one thread at a time."""


class PythonWrapper:
    """A callable sent as the plain Python `function` it wraps, and made again from that where it
    is loaded. `plait.compiled` makes one, which each machine compiles for itself."""

    function: Callable[..., Any]


class CodePickler:
    """Pickles what holds code. `library` is the hook: which cloudpickle does it."""

    def library(self) -> Any:
        import cloudpickle

        return cloudpickle

    def dumps(self, value: Any, outside: Callable[[Any], bool] | None = None) -> bytes:
        """Pickled, with the user's modules by value. `outside` is asked for each buffer whether it
        stays in the bytes; one that does not has to be given to `pickle.loads` again."""
        library = self.library()
        with DUMPING:
            # Not a list of the items: the collector may run in between, and a thread that imports.
            present = sys.modules.copy()
            theirs = [module for name, module in present.items() if is_users(name, module)]
            for module in theirs:
                library.register_pickle_by_value(module)
            try:
                file = io.BytesIO()
                pickler_class(library)(file, protocol=5, buffer_callback=outside).dump(value)
                return file.getvalue()
            finally:
                for module in theirs:
                    library.unregister_pickle_by_value(module)

    def error_of(self, value: Any) -> str | None:
        """Why a value cannot be sent; None if it can."""
        try:
            self.dumps(value)
        except Exception as error:  # pickling runs code of the value's class
            return str(error).splitlines()[0] if str(error) else type(error).__name__
        return None

    def why_not(self, functions: Iterable[Any]) -> str | None:
        """Why one of the functions cannot be sent, with the variable that is to blame; or None."""
        for function in functions:
            error = self.error_of(function)
            if error is not None:
                return error + self.holder_text(function)
        return None

    def holder_text(self, function: Any) -> str:
        """The first variable of a function that cannot be sent, in words; "" if there is none."""
        try:
            held = inspect.getclosurevars(function)
        except (TypeError, ValueError):
            return ""
        for name, value in {**held.globals, **held.nonlocals}.items():
            if self.error_of(value) is not None:
                return f'; it holds "{name}", a {type(value).__name__}'
        return ""


@functools.cache
def pickler_class(library: Any) -> Any:
    """The library's pickler, with the rule for wrapped Python functions."""

    class Pickler(library.CloudPickler):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, PythonWrapper) and not has_installed_name(obj):
                return type(obj), (obj.function,)
            if isinstance(obj, functools._lru_cache_wrapper) and not named_there(obj):
                return cached, (obj.__wrapped__, obj.cache_parameters())
            return super().reducer_override(obj)

    return Pickler


def named_there(function: Any) -> bool:
    """Whether another process finds it by its name, in a module that is installed there as well."""
    return "<locals>" not in function.__qualname__ and is_installed(
        sys.modules.get(function.__module__)
    )


def cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    """A function with a cache of its own, as `functools.lru_cache` makes it."""
    return functools.lru_cache(**parameters)(function)


def has_installed_name(wrapper: PythonWrapper) -> bool:
    """Whether another process finds it by name, in a module that is installed there as well."""
    return named_there(wrapper.function)


def dumps(value: Any) -> bytes:
    """Pickled for the worker processes of this machine."""
    return CodePickler().dumps(value)


def why_not(functions: Iterable[Any]) -> str | None:
    """Why one of the functions cannot be sent to a worker process, with the variable that is to
    blame; None if all can."""
    return CodePickler().why_not(functions)


def is_users(name: str, module: Any) -> bool:
    """Whether another process cannot be expected to have it: it comes from a file that no
    installation put there. What pickles by value anyway (__main__), or is not a module, is not
    registered."""
    if not isinstance(module, ModuleType) or name == "__main__" or module.__name__ != name:
        return False
    return isinstance(vars(module).get("__file__"), str) and not is_installed(module)


def is_installed(module: ModuleType | None) -> bool:
    if module is None:
        return False
    if module.__name__.partition(".")[0] == "plait":
        return True
    file = vars(module).get("__file__")
    return in_an_installation(file) if isinstance(file, str) else module.__name__ != "__main__"


@functools.cache
def in_an_installation(file: str) -> bool:
    path = Path(file).resolve()
    if INSTALLED_PARTS & set(path.parts):
        return True
    return any(path.is_relative_to(Path(sysconfig.get_path(name)).resolve()) for name in INSTALLED)
