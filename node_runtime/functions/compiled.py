"""Functions of numbers that are compiled to machine code and called on columns, without the GIL.

`@plait.compiled` reads the annotations (int, float, bool) when the function is defined and compiles
when the code is first needed, or ahead in the background after `start_compiling`. The machine code
is one loop over a batch, kept on disk in the user's cache folder until something it depends on
changes. Compiled arithmetic is that of NumPy: int64 wraps around, an integer `//` or `%` by
zero gives 0, a float division by zero gives inf or nan. Compiled code cannot raise, so `raise` and
`assert` are refused.

    >>> @compiled
    ... def bucket(price: int) -> int:
    ...     return price // 100
    >>> bucket(250)
    2
"""

from __future__ import annotations

import dis
import functools
import inspect
import threading
import types
import typing
from typing import TYPE_CHECKING, Any

from plait.errors import JobError
from plait.functions.pickling import PythonWrapper
from plait.model.schema import Location, Type
from plait.node_runtime.functions.compiled_cache import cache_path, store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NUMBERS = {int: Type.INT64, float: Type.FLOAT64, bool: Type.BOOL}
DTYPES = {Type.INT64: "int64", Type.FLOAT64: "float64", Type.BOOL: "uint8"}
WORDS = {kind: python.__name__ for python, kind in NUMBERS.items()}


class CompiledFunction(PythonWrapper):
    """A function that is compiled for columns, made by `plait.compiled`.

        bids.with_columns(bucket=bucket(col("price")))

    Called with expressions it gives an expression; called with values it runs the Python function.
    """

    __name__: str
    __qualname__: str

    def __init__(self, function: Callable[..., Any]) -> None:
        if not isinstance(function, types.FunctionType):
            raise JobError(f"compiled needs a plain function, got {function!r}")
        functools.update_wrapper(self, function)
        self.function = function
        self.at = Location(function.__code__.co_filename, function.__code__.co_firstlineno)
        self.parameter_types, self.result_type = self.read_types()
        self.refuse_raise()
        self.lock = threading.Lock()
        self.code: Any = None
        self.error: JobError | None = None

    def __call__(self, *args: Any) -> Any:
        from plait.expr.tree import Expr, to_expr

        if any(isinstance(arg, Expr) for arg in args):
            return Expr("call", tuple(to_expr(arg) for arg in args), self)
        return self.function(*args)

    def __repr__(self) -> str:
        return f"<compiled {self.__name__}{inspect.signature(self.function)}>"

    def __reduce__(self) -> str:
        return self.__qualname__  # found again by its name, as a plain function is

    def wrong(self, what: str) -> JobError:
        """An error that names the function and its line."""
        return JobError(f'compiled function "{self.__name__}" at {self.at}: {what}')

    def read_types(self) -> tuple[tuple[Type, ...], Type]:
        """The types of the parameters and of the result, from the annotations."""
        try:
            hints = typing.get_type_hints(self.function)
        except NameError as error:
            raise self.wrong(f"cannot resolve an annotation: {error}") from None
        parameters = inspect.signature(self.function).parameters.values()
        if not parameters:
            raise self.wrong("it has no parameters; it needs at least one column")
        for parameter in parameters:
            if parameter.kind not in (
                parameter.POSITIONAL_ONLY,
                parameter.POSITIONAL_OR_KEYWORD,
            ):
                raise self.wrong(f'parameter "{parameter}" must be a plain positional one')
        kinds = [self.number(hints.get(one.name), f'parameter "{one.name}"') for one in parameters]
        return tuple(kinds), self.number(hints.get("return"), "the result")

    def number(self, hint: Any, what: str) -> Type:
        """The type of an annotation; raises unless it is int, float or bool."""
        if hint is None:
            raise self.wrong(f"{what} has no annotation; write int, float or bool")
        if hint not in NUMBERS:
            shown = getattr(hint, "__name__", str(hint))
            raise self.wrong(f"{what} is annotated {shown}; only int, float and bool compile")
        return NUMBERS[hint]

    def refuse_raise(self) -> None:
        """Raises if the function contains `raise` or `assert`."""
        for step in dis.get_instructions(self.function):
            if step.opname == "RAISE_VARARGS":
                raise self.wrong(
                    "it may raise (raise or assert), which compiled code cannot; "
                    "return a value that says so, or use map without @compiled"
                )

    def start_compiling(self) -> threading.Thread:
        """Compiles in the background, so that the code is there when the job starts."""
        thread = threading.Thread(
            target=self.compile, name=f"plait-compile-{self.__name__}", daemon=True
        )
        thread.start()
        return thread

    @property
    def address(self) -> int:
        """The machine code: `void(const void* const* args, int64_t n, void* out)`.

        Each argument and the result is an array of n int64, double, or uint8 (0 or 1) for bool.
        The code lives as long as this object.
        """
        self.compile()
        if self.error is not None:
            raise self.error
        return int(self.code.address)

    def compile(self) -> None:
        """Makes the machine code, once; an error is kept and raised by `address`."""
        with self.lock:
            if self.code is not None or self.error is not None:
                return
            try:
                self.code = self.build()
            except JobError as error:
                self.error = error

    def build(self) -> Any:
        """The machine code, from the cache folder if it is there."""
        import numba

        inner = numba.njit(error_model="numpy")(self.function)
        source = loop_source(self.parameter_types, self.result_type)
        path = cache_path(self.function, source)
        try:
            if path is None or not path.exists():
                self.check_result(inner)  # the file is there only after this check
            if path is not None and store(path, source):
                try:
                    return make_code(source, inner, path)
                except Exception:  # a damaged cache costs time, no more
                    inner = numba.njit(error_model="numpy")(self.function)
            return make_code(source, inner, None)
        except numba.core.errors.NumbaError as error:
            raise self.wrong(f"numba cannot compile it:\n{first_lines(error)}") from error

    def check_result(self, inner: Any) -> None:
        """The computed type must be the annotated one: a silent float to int would lose values."""
        from numba import types as nt

        numba_types = {Type.INT64: nt.int64, Type.FLOAT64: nt.float64, Type.BOOL: nt.boolean}
        inner.compile(tuple(numba_types[kind] for kind in self.parameter_types))
        (made,) = inner.nopython_signatures
        returned = made.return_type
        fits = {
            Type.INT64: (nt.Integer, nt.Boolean),
            Type.FLOAT64: (nt.Float, nt.Integer, nt.Boolean),
            Type.BOOL: (nt.Boolean,),
        }[self.result_type]
        if not isinstance(returned, fits):
            word = WORDS[self.result_type]
            raise self.wrong(
                f"it is annotated -> {word} but computes {returned}; "
                f"change the annotation, or return {word}(...) on every path"
            )


def compiled(function: Callable[..., Any]) -> CompiledFunction:
    """Decorator: compiles a function of int, float and bool to machine code for columns.

    >>> @plait.compiled
    ... def bucket(price: int) -> int:
    ...     return price // 100
    >>> bids = plait.stream([{"price": 120}, {"price": 250}])
    >>> bids.with_columns(bucket=bucket).collect()
    [Record(price=120, bucket=1), Record(price=250, bucket=2)]
    >>> bids.filter(bucket(plait.col("price")) == 2).collect()
    [Record(price=250)]

    All parameters and the result need an annotation. It runs on all cores without the GIL. Integers
    are 64 bits wide and wrap around, an integer `//` or `%` by zero gives 0, and a float division
    by zero gives inf or nan. The function must not contain `raise` or `assert`.

    Raises:
        JobError: an annotation is missing or not int, float or bool, or the function may raise.
    """
    return CompiledFunction(function)


def loop_source(parameters: tuple[Type, ...], result: Type) -> str:
    """The loop over a batch, as the text of a Python function that numba compiles."""
    lines = ["def loop(args, n, out):"]
    values = []
    for i, kind in enumerate(parameters):
        lines.append(f"    a{i} = carray(args[{i}], n, {DTYPES[kind]})")
        values.append(f"a{i}[i] != 0" if kind is Type.BOOL else f"a{i}[i]")
    lines.append(f"    r = carray(out, n, {DTYPES[result]})")
    lines.append("    for i in range(n):")
    lines.append(f"        r[i] = {DTYPES[result]}(inner({', '.join(values)}))")
    return "\n".join(lines) + "\n"


def make_code(source: str, inner: Any, path: Path | None) -> Any:
    """Compiles the loop; with a path its machine code is kept in the cache folder beside it."""
    import numba
    from numba import types as nt
    from numba.np.numpy_support import carray

    names: dict[str, Any] = {
        "carray": carray,
        "inner": inner,
        "int64": numba.int64,
        "float64": numba.float64,
        "uint8": numba.uint8,
        "__name__": __name__,  # a module that another process can import when it loads the code
    }
    exec(compile(source, str(path or "<compiled loop>"), "exec"), names)
    pointers: Any = nt.CPointer
    signature = nt.void(pointers(nt.voidptr), nt.int64, nt.voidptr)
    return numba.cfunc(signature, cache=path is not None, error_model="numpy")(names["loop"])


def first_lines(error: BaseException, count: int = 8) -> str:
    """The first lines of what numba says, without its colours."""
    text = "".join(
        part.split("m", 1)[-1] if i else part for i, part in enumerate(str(error).split("\x1b["))
    )
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(f"  {line}" for line in lines[:count])
