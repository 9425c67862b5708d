"""Where the machine code of compiled functions is kept, and when it may be used again.

numba keys its cache by the file that a function is in, and does not see that something the function
calls has changed. So the file is one of ours, in the user's cache folder, and its name is a digest
of all that the machine code depends on: bytecode, constants, the values of globals and closures,
and the functions called, in depth. What cannot be told for sure is not cached.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VALUES = (int, float, bool, str, bytes, complex, type(None))
BUILTINS = (int, float, bool, abs, min, max, round, range, len)


class Unknown(Exception):
    """The function depends on something whose changes cannot be seen."""


def cache_path(function: Callable[..., Any], source: str) -> Path | None:
    """The file of a loop, named after all that its code depends on; None: do not cache."""
    try:
        return cache_folder() / f"{digest(function, source)}.py"
    except Unknown:
        return None


def store(path: Path, source: str) -> bool:
    """Writes the file of a loop; False where it cannot be written."""
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            # Whole or not at all: another process may be doing the same.
            with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
                file.write(source)
            os.replace(file.name, path)
    except OSError:
        return False
    return True


def cache_folder() -> Path:
    """The user's cache folder: never beside the user's own code."""
    root = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    return Path(root or Path.home() / ".cache") / "plait" / "compiled"


def digest(function: Callable[..., Any], source: str) -> str:
    import numba

    whole = hashlib.sha256()
    versions = (sys.version, numba.__version__, source)
    for part in (*versions, *parts_of(function, set())):
        whole.update(f"{len(part)}:{part}".encode())
    return whole.hexdigest()[:32]


def parts_of(given: Any, seen: set[int]) -> Iterator[str]:
    """All that a value means to the compiler, as texts."""
    import numpy as np

    inner = getattr(given, "py_func", getattr(given, "function", given))
    if isinstance(inner, types.FunctionType):
        if id(inner) not in seen:
            seen.add(id(inner))
            yield from parts_of_function(inner, seen)
    elif isinstance(given, types.ModuleType):
        yield f"module {given.__name__} {getattr(given, '__version__', '')}"
    elif isinstance(given, VALUES) or any(given is one for one in BUILTINS):
        yield f"{type(given).__name__} {given!r}"
    elif isinstance(given, np.ndarray) and not given.dtype.hasobject:
        # numba takes the values of a global array into the machine code, and its memory layout.
        yield f"array {given.dtype.descr} {given.shape} {given.strides}"
        yield hashlib.sha256(given.tobytes()).hexdigest()
    elif isinstance(given, tuple):
        yield f"tuple {len(given)}"
        for item in given:
            yield from parts_of(item, seen)
    elif isinstance(given, types.BuiltinFunctionType):
        yield f"builtin {given.__module__}.{given.__qualname__}"
    else:
        raise Unknown(repr(given))


def parts_of_function(function: types.FunctionType, seen: set[int]) -> Iterator[str]:
    yield from parts_of_code(function.__code__)
    yield from parts_of(function.__defaults__, seen)
    for name in sorted(names_in(function.__code__)):
        if name in function.__globals__:
            yield f"global {name}"
            yield from parts_of(function.__globals__[name], seen)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield f"free {name}"
        yield from parts_of(cell.cell_contents, seen)


def parts_of_code(code: types.CodeType) -> Iterator[str]:
    yield f"{code.co_name} {code.co_code.hex()} {code.co_names} {code.co_varnames}"
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from parts_of_code(constant)
        else:
            yield f"{type(constant).__name__} {constant!r}"


def names_in(code: types.CodeType) -> set[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= names_in(constant)
    return found
