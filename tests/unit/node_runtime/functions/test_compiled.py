"""Functions compiled to machine code: types from annotations, one loop, clear errors."""

from __future__ import annotations

import ctypes
import math
import os
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from plait.errors import JobError
from plait.expr.tree import Expr, col
from plait.model.schema import Type
from plait.node_runtime.functions.compiled import CompiledFunction, compiled
from plait.node_runtime.functions.compiled_cache import cache_path, digest

if TYPE_CHECKING:
    from pathlib import Path

SCALE = 3


@compiled
def bucket(price: int) -> int:
    return (price * 31 + 7) ^ (price >> 3)


@compiled
def mixed(price: int, rate: float, flag: bool) -> float:
    return price * rate if flag else -1.0


@compiled
def is_big(price: int) -> bool:
    return price > 100


@compiled
def scaled(price: int) -> int:
    return price * SCALE


@compiled
def halves(price: int, by: int) -> int:
    return price // by


@compiled
def root(x: float) -> float:
    return math.sqrt(x)


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    before = os.environ.get("NUMBA_CACHE_DIR")
    os.environ["NUMBA_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["NUMBA_CACHE_DIR"]
    else:
        os.environ["NUMBA_CACHE_DIR"] = before


def run(function: CompiledFunction, *columns: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Calls the machine code as the engine does."""
    n = len(columns[0])
    dtype = {Type.INT64: np.int64, Type.FLOAT64: np.float64, Type.BOOL: np.uint8}
    out = np.zeros(n, dtype[function.result_type])
    pointers = (ctypes.c_void_p * len(columns))(*(column.ctypes.data for column in columns))
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
    prototype(function.address)(ctypes.addressof(pointers), n, out.ctypes.data)
    return out


def test_types_come_from_the_annotations() -> None:
    assert mixed.parameter_types == (Type.INT64, Type.FLOAT64, Type.BOOL)
    assert mixed.result_type is Type.FLOAT64
    assert mixed.__name__ == "mixed"
    assert repr(mixed).startswith("<compiled mixed(price")


def test_called_with_columns_it_is_an_expression_and_with_values_plain_python() -> None:
    expr = mixed(col("price"), 0.5, col("ok"))
    assert isinstance(expr, Expr)
    assert expr.op == "call"
    assert expr.value is mixed
    assert [arg.op for arg in expr.args] == ["col", "lit", "col"]
    assert bucket(5) == (5 * 31 + 7) ^ (5 >> 3)


def test_the_machine_code_computes_as_python_does() -> None:
    prices = np.arange(-500, 500, dtype=np.int64)
    assert run(bucket, prices).tolist() == [bucket(int(p)) for p in prices]
    flags = (prices % 2 == 0).astype(np.uint8)
    rates = prices / 7
    assert run(mixed, prices, rates, flags).tolist() == [
        mixed(int(p), float(r), bool(f)) for p, r, f in zip(prices, rates, flags, strict=True)
    ]
    assert run(is_big, prices).tolist() == [int(p > 100) for p in prices]
    assert run(scaled, prices[:3]).tolist() == [-1500, -1497, -1494]


def test_compiled_arithmetic_is_numpys() -> None:
    most = np.array([2**63 - 1], dtype=np.int64)
    assert run(scaled, most).tolist() == [2**63 - 3]
    assert run(halves, np.array([7, -7, 7]), np.array([2, 2, 0])).tolist() == [3, -4, 0]
    assert math.isnan(run(root, np.array([-1.0]))[0])


def test_compiling_ahead_and_twice_gives_one_address() -> None:
    thread = scaled.start_compiling()
    address = scaled.address
    thread.join()
    assert scaled.address == address


def test_it_pickles_by_name() -> None:
    assert pickle.loads(pickle.dumps(bucket)) is bucket


def no_result(price: int):  # type: ignore[no-untyped-def]
    return price


def text(price: str) -> int:
    return len(price)


def none() -> int:
    return 1


def several(*prices: int) -> int:
    return prices[0]


def raises(price: int) -> int:
    if price < 0:
        raise ValueError("negative")
    return price


def asserts(price: int) -> int:
    assert price > 0
    return price


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (no_result, "the result has no annotation"),
        (text, 'parameter "price" is annotated str; only int, float and bool'),
        (none, "no parameters"),
        (several, "plain positional"),
        (raises, "it may raise"),
        (asserts, "it may raise"),
        (len, "plain function"),
    ],
)
def test_what_cannot_be_compiled_is_told_where_it_is_written(function: Any, message: str) -> None:
    with pytest.raises(JobError, match=message) as raised:
        compiled(function)
    if function is not len:
        assert f'"{function.__name__}" at test_compiled.py:' in str(raised.value)


def test_a_result_of_another_type_is_refused() -> None:
    @compiled
    def half(price: int) -> int:
        return price / 2  # type: ignore[return-value]

    with pytest.raises(JobError, match="annotated -> int but computes float64"):
        _ = half.address


def test_a_failing_compilation_shows_what_numba_says() -> None:
    @compiled
    def broken(price: int) -> int:
        return price.no_such_thing  # type: ignore[attr-defined,no-any-return]

    broken.start_compiling().join()
    with pytest.raises(JobError, match=r'(?s)"broken" at .*numba cannot compile it:.*no_such'):
        _ = broken.address


def helper_one(x: int) -> int:
    return x + 1


def helper_two(x: int) -> int:
    return x + 2


def calling(helper: Any, constant: int) -> Any:
    def function(x: int) -> int:
        return int(helper(x) * constant)

    return function


def test_the_digest_sees_what_the_code_depends_on() -> None:
    one = digest(calling(helper_one, 5), "")
    assert one == digest(calling(helper_one, 5), "")
    others = {
        digest(calling(helper_two, 5), ""),
        digest(calling(helper_one, 6), ""),
        digest(calling(helper_one, 5), "other"),
    }
    assert one not in others
    assert len(others) == 3


def looking_up(table: Any) -> Any:
    def function(x: int) -> int:
        return int(table[x])

    return function


def test_the_digest_sees_the_values_of_arrays() -> None:
    given = np.array([[7, 5], [3, 1]])
    arrays = (given, given + 1, given.reshape(4), given.astype(np.int32), np.asfortranarray(given))
    digests = [digest(looking_up(array), "") for array in arrays]
    assert digests[0] == digest(looking_up(given.copy()), "")
    assert len(set(digests)) == len(arrays)
    assert cache_path(looking_up(np.array([None])), "") is None


PRICES = np.array([30, 50, 20])


@compiled
def price_of(item: int) -> int:
    return int(PRICES[item])


def test_an_array_outside_the_function_is_read() -> None:
    assert run(price_of, np.array([2, 0])).tolist() == [20, 30]


def test_what_cannot_be_told_is_not_cached() -> None:
    assert cache_path(calling(object(), 5), "") is None


PROGRAM = """
from plait.node_runtime.functions.compiled import compiled

@compiled
def twice(x: int) -> int:
    return x * 2

twice.address
print(twice.code.cache_hits)
"""


def test_the_code_is_found_again_by_another_process(tmp_path: Path) -> None:
    program = tmp_path / "job" / "job.py"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    hits = [
        subprocess.run(
            [sys.executable, str(program)], env=env, check=True, capture_output=True, text=True
        ).stdout.strip()
        for _ in range(2)
    ]
    assert hits == ["0", "1"]
    assert [path.name for path in program.parent.iterdir()] == ["job.py"]


def test_a_cache_folder_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    before = os.environ["NUMBA_CACHE_DIR"]
    os.environ["NUMBA_CACHE_DIR"] = str(blocked)
    try:

        @compiled
        def thrice(x: int) -> int:
            return x * 3

        assert run(thrice, np.array([2])).tolist() == [6]
    finally:
        os.environ["NUMBA_CACHE_DIR"] = before
