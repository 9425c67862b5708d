"""What a function refers to besides its arguments, and whether copies of it would do as well.

A function that runs in several processes has its own copy of everything it refers to in each. That
is the same as one copy only if nothing in it is ever changed, and the order of the calls
does not matter. `shared_thing` looks at a function, without calling it, for anything of the user's
that could be changed: a list or an object in its closure or its globals, a variable that it sets,
output that it prints. It errs on the side of finding something.
"""

from __future__ import annotations

import builtins
import collections
import datetime
import decimal
import dis
import enum
import fractions
import functools
import re
import sys
import types
import uuid
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from plait.functions.pickling import in_an_installation, is_installed

if TYPE_CHECKING:
    from collections.abc import Iterator

UNCHANGING = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    range,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    datetime.tzinfo,
    decimal.Decimal,
    fractions.Fraction,
    uuid.UUID,
    re.Pattern,
    enum.Enum,
    PurePath,
    types.BuiltinFunctionType,
    type(Ellipsis),
    type(NotImplemented),
)
SEEN_FROM_OUTSIDE = frozenset(("print", "input", "open", "breakpoint", "exec", "eval", "setattr"))
"""Builtins whose calls come out of order, or can change anything."""
BUILTIN_MODULES = frozenset(("builtins", "io", "_io"))


def shared_thing(function: Any) -> str | None:
    """What the function has that copies would not share, in words; None: nothing was found."""
    return next(Look().function(function, ""), None)


def shared_in_process(process: Any) -> str | None:
    """The same of a `plait.Process`: of its handlers, what they do with `self`, and what it holds.
    Its `state` and `out` are descriptions that are never changed."""
    look = Look()
    for name, value in vars(process).items():
        if name != "shapes" and (found := next(look.held(f"self.{name}", value), None)):
            return found
    for base in type(process).__mro__:
        if not by_the_user(base):
            continue
        for name, value in vars(base).items():
            inner = unwrapped(value)
            if isinstance(inner, types.FunctionType):
                found = next(look.function(inner, f" (in {base.__name__}.{name})"), None)
                found = found or uses_of_self(inner)
            elif name.startswith("__") or name in ("state", "out", "shapes"):
                continue
            else:
                found = next(look.held(f"{base.__name__}.{name}", value), None)
            if found:
                return found
    return None


def uses_of_self(function: types.FunctionType) -> str | None:
    """What a method does with its object besides reading attributes and calling methods of it."""
    names = function.__code__.co_varnames
    if not function.__code__.co_argcount or function.__name__ == "__init__":
        return None
    steps = list(dis.get_instructions(function.__code__))
    for i, step in enumerate(steps[:-1]):
        if step.argval != names[0] or step.opname not in ("LOAD_FAST", "LOAD_DEREF"):
            continue
        after = steps[i + 1]
        if after.opname == "COPY":  # self.x += 1
            after = steps[i + 2]
            return f"it sets {names[0]}.{after.argval} (in {function.__qualname__})"
        if after.opname in ("STORE_ATTR", "DELETE_ATTR"):
            return f"it sets {names[0]}.{after.argval} (in {function.__qualname__})"
        if after.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
            return f"it hands {names[0]} on (in {function.__qualname__})"
    return None


class Look:
    """One search; what was looked at is not looked at again."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def value(self, name: str, value: Any) -> Iterator[str]:
        """What could change in a thing that is called `name`."""
        if isinstance(value, UNCHANGING) or id(value) in self.seen:
            return
        self.seen.add(id(value))
        if isinstance(value, types.ModuleType):
            if not is_installed(value):
                yield f"it refers to the module {name} of yours"
        elif isinstance(value, tuple | frozenset):
            for part in value:
                yield from self.value(name, part)
        elif isinstance(value, type):
            yield from self.cls(name, value)
        elif isinstance(value, types.FunctionType | functools.partial | types.MethodType):
            yield from self.function(value, f" (in {name})")
        elif is_compiled(value):
            yield from self.function(value.function, f" (in {name})")
        elif callable(value) and not by_the_user(type(value)) and hasattr(value, "__dict__"):
            for part in vars(value).values():  # such as a predicate that is negated
                yield from self.value(name, part)
        elif not is_typing(value):
            kind = type(value).__name__
            yield f"it refers to {article(kind)} {kind} `{name}` of yours"

    def held(self, name: str, value: Any) -> Iterator[str]:
        """The same of an attribute, which may be a function."""
        if callable(value):
            yield from self.function(value, f" (in {name})")
        else:
            yield from self.value(name, value)

    def function(self, function: Any, where: str) -> Iterator[str]:
        if isinstance(function, functools.partial):
            given = (*function.args, *(function.keywords or {}).values())
            for value in given:
                yield from self.value("argument of a partial", value)
            yield from self.function(function.func, where)
        elif isinstance(function, types.MethodType):
            yield from self.value("self", function.__self__)
            yield from self.function(function.__func__, where)
        elif isinstance(function, types.FunctionType):
            if by_the_user(function):
                yield from self.code(function, where)
            else:
                for name in sorted(SEEN_FROM_OUTSIDE):
                    if getattr(builtins, name) is function:
                        yield f"it calls {name}{where}"
        elif isinstance(function, type):
            yield from self.cls(function.__name__, function)
        elif isinstance(function, types.BuiltinFunctionType):
            yield from self.builtin(function.__name__, function, where)
        else:
            yield from self.value(type(function).__name__, function)

    def code(self, function: types.FunctionType, where: str) -> Iterator[str]:
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            yield from self.value("default argument", value)
        own = set(function.__code__.co_freevars)
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for name, cell in cells:
            try:
                yield from self.value(name, cell.cell_contents)
            except ValueError:
                continue  # a name that is bound only later
        for code in codes(function.__code__):
            for step in dis.get_instructions(code):
                if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                    yield f"it sets the global variable `{step.argval}`{where}"
                elif step.opname in ("STORE_DEREF", "DELETE_DEREF") and step.argval in own:
                    yield f"it sets the variable `{step.argval}` outside it{where}"
                elif step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                    yield from self.named(step.argval, function, where)

    def named(self, name: str, function: types.FunctionType, where: str) -> Iterator[str]:
        if name in function.__globals__:
            yield from self.value(name, function.__globals__[name])
        elif hasattr(builtins, name):
            yield from self.builtin(name, getattr(builtins, name), where)

    def builtin(self, name: str, value: Any, where: str) -> Iterator[str]:
        """Libraries put their own in the place of some builtins: the old ones count, too."""
        now = getattr(builtins, name, None) is value
        if name in SEEN_FROM_OUTSIDE and (now or value.__module__ in BUILTIN_MODULES):
            yield f"it calls {name}{where}"

    def cls(self, name: str, cls: type) -> Iterator[str]:
        """A class of the user's: what its methods do, and what it keeps."""
        for base in cls.__mro__:
            if not by_the_user(base):
                continue
            for attribute, value in vars(base).items():
                inner = unwrapped(value)
                if isinstance(inner, types.FunctionType):
                    if id(inner) not in self.seen:
                        self.seen.add(id(inner))
                        yield from self.function(inner, f" (in {name}.{attribute})")
                elif isinstance(value, list | dict | set | bytearray | collections.deque) and not (
                    attribute.startswith("__") and attribute.endswith("__")
                ):
                    kind = type(value).__name__
                    yield f"it refers to {article(kind)} {kind} `{name}.{attribute}` of yours"


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of a function and of all that is defined in it."""
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from codes(const)


def unwrapped(value: Any) -> Any:
    if isinstance(value, staticmethod | classmethod):
        return value.__func__
    return value.fget if isinstance(value, property) else value


def by_the_user(thing: Any) -> bool:
    """Whether a function or class is of the user's own code; what is generated is not."""
    module = getattr(thing, "__module__", None)
    if module is None or module == "builtins":
        return False
    code = getattr(thing, "__code__", None)
    if code is not None and (
        code.co_filename == "<string>" or in_an_installation(code.co_filename)
    ):  # made by a decorator, such as dataclass
        return False
    found = sys.modules.get(module)
    return found is None or not is_installed(found)


def is_compiled(value: Any) -> bool:
    return hasattr(value, "parameter_types") and isinstance(
        getattr(value, "function", None), types.FunctionType
    )


def is_typing(value: Any) -> bool:
    """What annotations are made of."""
    return type(value).__module__ in ("typing", "types", "collections.abc")


def article(word: str) -> str:
    return "an" if word[:1].lower() in "aeiou" else "a"
