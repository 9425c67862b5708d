"""Code as bytes: what is sent by value, and what is said of what cannot be sent."""

from __future__ import annotations

import gc
import pickle
import sys
import threading
import types

import pytest

import plait
from plait.functions.pickling import CodePickler, dumps, why_not


@plait.compiled
def doubled(n: int) -> int:
    return 2 * n


def ray_pickler() -> CodePickler:
    from plait.cluster.ray_payload import PayloadPickler

    return PayloadPickler()


@pytest.fixture(params=["this machine", "ray"])
def pickler(request: pytest.FixtureRequest) -> CodePickler:
    return CodePickler() if request.param == "this machine" else ray_pickler()


def test_functions_come_back(pickler: CodePickler) -> None:
    step = 3
    assert pickle.loads(pickler.dumps(lambda n: n + step))(4) == 7


def test_compiled_functions_are_sent_as_python(pickler: CodePickler) -> None:
    copy = pickle.loads(pickler.dumps(doubled))
    assert copy is not doubled
    assert copy(4) == 8
    assert copy.parameter_types == doubled.parameter_types


def test_the_variable_is_named(pickler: CodePickler) -> None:
    lock = threading.Lock()

    def locked(n: int) -> int:
        with lock:
            return n

    assert str(pickler.why_not([locked])).endswith('; it holds "lock", a lock')
    assert pickler.why_not([len, lambda n: n]) is None


def test_the_short_forms_use_this_machines_pickler() -> None:
    assert pickle.loads(dumps({"n": 1})) == {"n": 1}
    assert why_not([threading.Lock()]) is not None


def test_modules_that_are_imported_meanwhile_do_no_harm() -> None:
    """The collector of garbage may run in between, and another thread with it."""
    came: list[str] = []

    def come(phase: str, info: dict[str, int]) -> None:
        came.append(f"came_meanwhile_{len(came)}")
        sys.modules[came[-1]] = types.ModuleType(came[-1])

    held = [(n, n) for n in range(10_000)]  # no pairs are left that could be made without it
    threshold = gc.get_threshold()
    gc.callbacks.append(come)
    gc.set_threshold(10)
    try:
        assert pickle.loads(dumps(len)) is len
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(come)
        for name in came:
            del sys.modules[name]
    assert came
    assert held
