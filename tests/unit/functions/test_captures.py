"""What a function refers to that copies in other processes would not share, and the routes."""

from __future__ import annotations

import builtins
import dataclasses
import functools
import math
import re
import textwrap
import threading
from typing import Any

import pytest

import plait
from plait import col
from plait.functions.shared_state import shared_thing
from plait.graph.routes import Routed, route_of_call, trips
from plait.model.settings import Settings

LIMIT = 10
WORDS = re.compile("a+")
SEEN: list[int] = []
COUNT = 0
TABLE = {"a": 1}


@dataclasses.dataclass(slots=True)
class Item:
    n: int

    def twice(self) -> int:
        return 2 * self.n


class Register:
    known: dict[str, int] = {}  # noqa: RUF012

    def put(self, record: Any) -> Any:
        self.known[record.s] = 1
        return record


class Printer:
    def show(self, record: Any) -> Any:
        print(record)
        return record


def plain(record: Any) -> Any:
    return Item(record.n + LIMIT + int(math.sqrt(4)) + len(WORDS.findall(record.s)))


def recursive(record: Any) -> Any:
    return recursive(record) if record.n > LIMIT else plain(record)


def inner(record: Any) -> Any:
    def also(value: int) -> int:
        return value + LIMIT

    kept = []
    for value in range(record.n):
        kept.append(also(value))
    return Item(sum(kept)).twice()


def appends(record: Any) -> Any:
    SEEN.append(record.n)
    return record


def counts(record: Any) -> Any:
    global COUNT
    COUNT += 1
    return record


def looks_up(record: Any) -> Any:
    return TABLE[record.s]


def through(record: Any) -> Any:
    return appends(record)


def prints(record: Any) -> Any:
    print(record)
    return record


def shows(record: Any) -> Any:
    return Printer().show(record)


def counted() -> Any:
    count = 0

    def step(record: Any) -> Any:
        nonlocal count
        count += 1
        return record

    return step


def with_default(record: Any, seen: list[int] = []) -> Any:  # noqa: B006
    seen.append(record.n)
    return record


def over(limit: Any) -> Any:
    return lambda record: record.n > limit


ALONE = {
    "plain": plain,
    "recursive": recursive,
    "inner functions and lists": inner,
    "a number in the closure": over(3),
    "a partial": functools.partial(max, 3),
    "a builtin": abs,
    "a class": Item,
    "a method of a module's object": "abc".join,
    "a lambda": lambda record: record.n + LIMIT,
}
SHARED = {
    "a list": (appends, "it refers to a list `SEEN` of yours"),
    "a dict": (looks_up, "it refers to a dict `TABLE` of yours"),
    "a global that is set": (counts, "it sets the global variable `COUNT`"),
    "a variable around it": (counted(), "it sets the variable `count` outside it"),
    "by a function it calls": (through, "it refers to a list `SEEN` of yours"),
    "printing": (prints, "it calls print"),
    "printing in a class": (shows, "it calls print (in Printer.show)"),
    "a default": (with_default, "it refers to a list `default argument` of yours"),
    "an object in the closure": (over(threading.Lock()), "it refers to a lock `limit` of yours"),
    "a tuple of lists": (over((1, [2])), "it refers to a list `limit` of yours"),
    "its own object": (Register().put, "it refers to a Register `self` of yours"),
    "a builtin that is seen": (print, "it calls print"),
    "a list in a partial": (
        functools.partial(over, []),
        "it refers to a list `argument of a partial` of yours",
    ),
}


@pytest.mark.parametrize("name", ALONE)
def test_functions_that_stand_alone(name: str) -> None:
    assert shared_thing(ALONE[name]) is None


@pytest.mark.parametrize("name", SHARED)
def test_functions_that_share_something(name: str) -> None:
    function, words = SHARED[name]
    assert shared_thing(function) == words


def routed(function: Any, route: Any = "auto", **settings: Any) -> Routed:
    job = plait.Job("routes")
    read = job.source(plait.Items([{"n": 1, "s": "a"}]))
    read.map(function, schema=read.schema, route=route).sink(plait.Collect())
    graph = job.graph()
    node: Any = graph.operators[1]
    return route_of_call(node, graph, Settings(**{"workers": 2, **settings}))


@pytest.mark.parametrize(
    ("function", "route", "settings", "wanted", "why"),
    [
        (plain, "auto", {}, "auto", "inline until it has proved to cost enough"),
        (plain, "auto", {"workers": 1}, "inline", "kept inline: one worker"),
        (plain, "auto", {"pool": 0}, "inline", "pool=0"),
        (plain, "pool", {"pool": 0}, "inline", "pool=0"),
        (plain, "auto", {"pool": 3}, "pool", "pool=3"),
        (plain, "inline", {"pool": 3}, "inline", 'route="inline"'),
        (appends, "auto", {}, "inline", "kept inline: it refers to a list `SEEN` of yours"),
        (appends, "auto", {"pool": 3}, "inline", "kept inline: it refers to a list `SEEN`"),
        (appends, "pool", {"workers": 1}, "pool", 'route="pool"'),
    ],
)
def test_routes(function: Any, route: Any, settings: Any, wanted: str, why: str) -> None:
    found = routed(function, route, **settings)
    assert found.route == wanted
    assert found.why.startswith(why)


def test_objects_in_columns_stay_unless_asked() -> None:
    job = plait.Job("routes")
    read = job.source(plait.Items([{"n": 1}]))
    read.map(plain, schema={"n": object}).sink(plait.Collect())
    graph = job.graph()
    node: Any = graph.operators[1]
    found = route_of_call(node, graph, Settings(workers=2))
    assert found.why == 'kept inline: column "n" holds Python objects, which would be pickled'


def test_functions_in_a_row_make_one_trip_by_route() -> None:
    pool, here = Routed(route="pool", why="a"), Routed(route="inline", why="b")
    found = trips([1, 2, 3, 4], [pool, pool, here, pool])
    assert [(one.route, nodes) for one, nodes in found] == [
        ("pool", (1, 2)),
        ("inline", (3,)),
        ("pool", (4,)),
    ]


def test_settings_are_checked() -> None:
    with pytest.raises(plait.JobError, match="pool is -1"):
        Settings(pool=-1)
    with pytest.raises(plait.JobError, match="pool_hang_s is 0"):
        Settings(pool_hang_s=0)


def test_explain_tells_the_route_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    lock = threading.Lock()
    read = plait.stream([{"n": 1, "s": "a"}])
    stream = (
        read.map(plain, schema=read.schema, route="pool")
        .map(appends, schema=read.schema)
        .filter(over(3))
        .map(lambda record: (lock, record)[1], schema=read.schema)
        .filter(col("n") > 1)
    )
    stream.explain(workers=2)
    told = capsys.readouterr().out
    assert "pool: plain Python: called for each record in 2 worker processes, in order" in told
    assert "kept inline: it refers to a list `SEEN` of yours" in told
    assert "inline: plain Python: called for each record in the interpreter, one core; when" in told
    assert "kept inline: it refers to a lock `lock` of yours" in told


def test_a_builtin_that_a_library_has_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, "print", textwrap.dedent)
    assert shared_thing(lambda record: print(record)) == "it calls print"
    assert shared_thing(textwrap.dedent) == "it calls print"
