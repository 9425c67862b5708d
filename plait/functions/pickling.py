"""Functions as bytes that another process can load: the user's own by value, the installed by name.

What is installed (plait, the libraries) is sent by name; the user's functions and classes are sent
by value, so that it does not matter where their file is. What cannot be sent is said with the
variable that holds it.
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
    from collections.abc import Iterator

INSTALLED = ("purelib", "platlib", "stdlib", "platstdlib")
INSTALLED_PARTS = frozenset(("site-packages", "dist-packages"))
DUMPING = threading.RLock()
"""What is sent by value is registered for the whole process: one thread at a time."""


def dumped(value: Any) -> bytes:
    """Pickled, with the modules of the user by value."""
    import cloudpickle

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
        """Compiled functions go as their Python original, and are compiled where they are used."""

        def reducer_override(self, obj: Any) -> Any:
            if "parameter_types" in vars_of(obj) and hasattr(obj, "function"):
                return type(obj), (obj.function,)
            return super().reducer_override(obj)

    with DUMPING:
        ours = [module for name, module in list(sys.modules.items()) if is_the_users(name, module)]
        for module in ours:
            cloudpickle.register_pickle_by_value(module)
        try:
            file = io.BytesIO()
            Pickler(file, protocol=5).dump(value)
            return file.getvalue()
        finally:
            for module in ours:
                cloudpickle.unregister_pickle_by_value(module)


def vars_of(value: Any) -> Any:
    return getattr(value, "__dict__", ())


def is_the_users(name: str, module: Any) -> bool:
    """Whether another process cannot be expected to have it: it comes from a file that no
    installation put there. What pickles by value anyway (__main__), or is no module, is left to
    itself."""
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


def failure(value: Any) -> str | None:
    """Why a value cannot be sent; None if it can."""
    try:
        dumped(value)
    except Exception as error:  # pickling runs code of the value's class
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    return None


def why_not(functions: tuple[Any, ...]) -> str | None:
    """Why one of the functions cannot be sent, with the variable that is to blame; or None."""
    for function in functions:
        said = failure(function)
        if said is not None:
            return said + next(holders(function), "")
    return None


def holders(function: Any) -> Iterator[str]:
    """The variables of a function that cannot be sent."""
    try:
        held = inspect.getclosurevars(function)
    except (TypeError, ValueError):
        return
    for name, value in {**held.globals, **held.nonlocals}.items():
        if failure(value) is not None:
            yield f'; it holds "{name}", a {type(value).__name__}'
