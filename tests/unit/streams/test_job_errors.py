"""What is wrong with a job is said while it is built: operator, line, what came, what to do."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait import col
from plait.connectors.base import Source
from plait.model.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclasses.dataclass
class Bid:
    auction: int
    price: float
    name: str
    tags: list[str]


class Bids(Source):
    def __init__(self, schema: Any = Bid) -> None:
        self.schema = Schema.of(schema)


def bids() -> Any:
    """A stream, untyped: the calls here are wrong on purpose."""
    return plait.Job("test").source(Bids())


def keyed() -> Any:
    return bids().key_by("auction")


def same(record: Any) -> Any:
    return record


CASES: list[tuple[Callable[[], Any], str, list[str]]] = [
    (
        lambda: bids().filter(col("prise") > 1),
        "filter",
        [
            'no column "prise"\n  the stream has: auction, price, name, tags',
            '\n  did you mean "price"?',
        ],
    ),
    (lambda: bids().filter(col("price")), "filter", ["is float64, not a bool"]),
    (lambda: bids().filter("price"), "filter", ['did you mean col("price")?']),
    (lambda: bids().filter(True), "filter", ["neither an expression nor a function"]),
    (
        lambda: bids().filter("price > 5"),
        "filter",
        ['write an expression such as col("price") > 5'],
    ),
    (lambda: bids().select(["auction", "price"]), "select", ["one by one: 'auction', 'price'"]),
    (lambda: bids().rename("price"), "rename", ['write rename(new="old")']),
    (lambda: bids().rename(price="cents"), "rename", ['comes first: rename(cents="price")']),
    (lambda: bids().with_columns(x=lambda r: r.price), "with_columns", ["whole record use map"]),
    (lambda: bids().filter(col("name") > 3), "filter", ["int64 and string cannot be compared"]),
    (lambda: bids().filter(same, on_error="again"), "filter", ['one of "fail", "skip"']),
    (lambda: bids().branch(col("price")), "branch", ["not a bool"]),
    (lambda: bids().branch("price"), "branch", ["neither an expression nor a function"]),
    (lambda: bids().map(lambda a, b: 1), "map", ["cannot be called with a record"]),
    (lambda: bids().map(same, on_error="ignore"), "map", ["on_error is 'ignore'"]),
    (lambda: bids().map(same, schema=3), "map", ["cannot make a schema from 3"]),
    (lambda: bids().flat_map(3), "flat_map", ["3 is not a function"]),
    (lambda: bids().map_batches(lambda: 1), "map_batches", ["cannot be called with a table"]),
    (lambda: bids().with_columns(), "with_columns", ["at least one column"]),
    (lambda: bids().with_columns(x="price"), "with_columns", ['col("price") or lit("price")']),
    (lambda: bids().with_columns(x=None), "with_columns", ["lit(None).cast(int)"]),
    (lambda: bids().with_columns(x=lambda cost: 1), "with_columns", ['no column "cost"']),
    (
        lambda: bids().with_columns(x=lambda price: 1, y=col("x")),
        "with_columns",
        ['no column "x"\n  the stream has: auction, price, name, tags'],
    ),
    (
        lambda: bids().with_columns(schema={"y": int}, x=lambda price: 1),
        "with_columns",
        ['schema= names "y"'],
    ),
    (lambda: bids().with_columns({"": 1}), "with_columns", ["a column needs a name, not ''"]),
    (lambda: bids().select(), "select", ["name at least one"]),
    (lambda: bids().select("a"), "select", ['no column "a"']),
    (lambda: bids().select(3), "select", ["3 is neither the name"]),
    (lambda: bids().select(col("price") + 1), "select", ["needs a name: select(name="]),
    (lambda: bids().select("price", price=col("price")), "select", ['"price" is there twice']),
    (lambda: bids().select(x=same), "select", ["with_columns(x=...)"]),
    (lambda: bids().drop("x"), "drop", ['no column "x"']),
    (lambda: bids().drop(), "drop", ["name the columns"]),
    (lambda: bids().select("price").drop("price"), "drop", ["no column would be left"]),
    (lambda: bids().rename(), "rename", ['rename(new="old")']),
    (lambda: bids().rename(x="y"), "rename", ['no column "y"']),
    (lambda: bids().rename(price="auction"), "rename", ['"price" is there twice']),
    (lambda: bids().rename(x="price", y="price"), "rename", ["renamed twice"]),
    (lambda: bids().key_by(), "key_by", ["at least one column"]),
    (lambda: bids().key_by("auctoin"), "key_by", ['did you mean "auction"?']),
    (lambda: bids().key_by("tags"), "key_by", ["is object, which cannot be a key", "give it a"]),
    (lambda: bids().key_by("price", "price"), "key_by", ["is named twice"]),
    (lambda: bids().key_by(col("price") + 1), "key_by", ["needs a name: key_by(name="]),
    (lambda: bids().key_by(7), "key_by", ["7 is not a column name"]),
    (lambda: bids().key_by(["auction", "name"]), "key_by", ["one by one: 'auction', 'name'"]),
    (lambda: bids().key_by(lambda bid: bid.name), "key_by", ["key_by(name=function)"]),
    (lambda: keyed().sum("name"), "sum", ["needs a number", "is string", ".cast(int)"]),
    (lambda: keyed().mean(col("price") > 1), "mean", ["needs a number", "is bool"]),
    (lambda: keyed().min("tags"), "min", ["values with an order", "is object"]),
    (lambda: keyed().max("prices"), "max", ['did you mean "price"?']),
    (lambda: keyed().sum([1, 2]), "sum", ["builtins.sum"]),
    (lambda: keyed().first(col("price") + "a"), "first", ["float64 and string cannot be added"]),
    (lambda: keyed().aggregate(), "aggregate", ["name at least one result"]),
    (lambda: keyed().aggregate(x=col("price")), "aggregate", ["write x=plait.sum("]),
    (lambda: keyed().aggregate(plait.count()), "aggregate", ["write aggregate(total=plait.sum("]),
    (
        lambda: keyed().aggregate(auction=plait.count()),
        "aggregate",
        ['"auction" has the name of a key'],
    ),
    (lambda: keyed().fold(0, lambda a: a), "fold", ["cannot be called with a state and a record"]),
    (lambda: keyed().fold(lambda a, b: a, 0), "fold", ["comes first: fold(0, function)"]),
    (
        lambda: bids().rename(value="price").key_by("value").fold(0, lambda a, b: a),
        "fold",
        ['"value" has the name of a key'],
    ),
    (lambda: keyed().stateful(0, same), "stateful", ["cannot be called with a state"]),
    (lambda: bids().sink("out.parquet"), "sink", ['write plait.Files("out.parquet")']),
    (lambda: bids().sink(Path("out.csv")), "sink", ['write plait.Files("out.csv")']),
    (lambda: bids().sink(print), "sink", ["plait.Call(function)"]),
    (lambda: bids().sink(plait.Discard), "sink", ["write Discard(...)"]),
    (lambda: bids().sink([]), "sink", ["is not a sink"]),
    (
        lambda: bids().sink(plait.Discard(), name="a").sink(plait.Discard(), name="a"),
        "sink",
        ['the name "a" is taken'],
    ),
    (lambda: bids().union(3), "union", ["3 is not a stream"]),
    (lambda: bids().union(bids()), "union", ["belong to several jobs"]),
    (lambda: plait.union(), "union", ["at least one stream"]),
    (lambda: plait.Job("x").source(bids()), "source", ["is not a source"]),
    (lambda: plait.Job("x").source(Bids(), name=""), "source", ["must be a string"]),
    (lambda: bids().show(0), "show", ["whole number above 0"]),
]


@pytest.mark.parametrize(("build", "operator", "parts"), CASES)
def test_a_mistake_names_operator_and_line(
    build: Callable[[], Any], operator: str, parts: list[str]
) -> None:
    with pytest.raises(plait.JobError) as caught:
        build()
    message = str(caught.value)
    first, last = build.__code__.co_firstlineno, build.__code__.co_firstlineno + 4
    places = [f"{operator} at test_job_errors.py:{line}: " for line in range(first, last)]
    assert message.startswith(tuple(places)), message
    for part in parts:
        assert part in message


def test_a_failed_method_adds_nothing() -> None:
    stream = bids()
    mistakes: list[Callable[[], Any]] = [
        lambda: stream.filter(col("x") > 1),
        lambda: stream.key_by("x", y=col("price") + 1),
        lambda: stream.key_by(y=lambda tags: tags),
        lambda: stream.with_columns(y=lambda tags: tags, z=col("x")),
        lambda: stream.with_columns(y=lambda tags: tags, on_error="no"),
    ]
    for mistake in mistakes:
        with pytest.raises(plait.JobError):
            mistake()
    assert len(stream.job._operators) == 1


def test_a_failed_union_merges_no_jobs() -> None:
    one, nameless, two = bids(), plait.stream(Bids()), bids()
    with pytest.raises(plait.JobError, match="belong to several jobs"):
        plait.union(one, nameless, two)
    assert len({one.job, nameless.job, two.job}) == 3


def test_a_source_error_names_the_line() -> None:
    with pytest.raises(plait.SourceError, match=r"source at test_job_errors\.py:\d+: "):
        plait.stream("no/such/file.parquet")


def test_unions_show_what_differs() -> None:
    job = plait.Job("test")
    one = job.source(Bids({"a": int, "b": str, "c": int}))
    two = job.source(Bids({"a": float, "b": str, "d": int}))
    with pytest.raises(plait.JobError) as caught:
        plait.union(one, two)
    message = str(caught.value)
    assert 'column "a": int64 in one, float64 in the other' in message
    assert 'column "c": int64 in one, not in the other' in message
    assert 'column "d": not in one, int64 in the other' in message
    assert "select(...)" in message
    three = job.source(Bids({"b": str, "c": int, "a": int}))
    with pytest.raises(plait.JobError, match="the order is a, b, c and b, c, a"):
        functools.reduce(plait.union, [one, three])


def test_a_job_without_a_sink() -> None:
    with pytest.raises(plait.JobError, match='the job "test" has no sink; add'):
        bids().job.graph()


def test_a_stream_that_nothing_reads() -> None:
    stream = bids()
    stream.sink(plait.Discard())
    stream.filter(col("price") > 1)
    with pytest.raises(
        plait.JobError,
        match=r"nothing reads the stream made by filter at test_job_errors\.py:\d+; add \.sink",
    ):
        stream.job.graph()


def test_a_side_of_a_branch_that_nothing_reads() -> None:
    matched, _ = bids().branch(col("price") > 1)
    matched.sink(plait.Discard())
    with pytest.raises(plait.JobError, match=r"made by branch.*use filter"):
        matched.job.graph()


def test_a_source_that_nothing_reads() -> None:
    job = plait.Job("test")
    job.source(Bids()).sink(plait.Discard())
    job.source(Bids())
    with pytest.raises(plait.JobError, match="nothing reads the stream made by source"):
        job.graph()


@pytest.mark.parametrize("name", ["", 3, None])
def test_a_job_needs_a_name(name: Any) -> None:
    with pytest.raises(plait.JobError, match="needs a name"):
        plait.Job(name)


def test_a_keyed_stream_says_what_comes_next() -> None:
    with pytest.raises(AttributeError, match="first call count"):
        keyed().map(same)
    with pytest.raises(AttributeError, match="a keyed stream has no nonsense"):
        _ = keyed().nonsense


def test_a_dead_letter_sink_must_be_one() -> None:
    with pytest.raises(plait.JobError, match="is not a sink"):
        plait.Job("test", dead_letters="letters.csv")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("group_by", "key_by"),
        ("where", "filter"),
        ("sort", "top"),
        ("limit", "show"),
        ("foo", "foo"),
    ],
)
def test_words_of_others_are_answered(name: str, instead: str) -> None:
    with pytest.raises(AttributeError, match=f"a stream has no {name}.*{instead}|no foo$"):
        getattr(bids(), name)
    with pytest.raises(AttributeError, match=r"a keyed stream has no reduce; use fold"):
        keyed().reduce  # noqa: B018


HINTS: list[tuple[Callable[[Any], Any], str]] = [
    (
        lambda s: s.map(lambda r: {"m": r.n}),
        "without schema= or a return annotation the output has",
    ),
    (
        lambda s: s.map(lambda r: r.n / 2, schema={"n": int}),
        "without schema= or a return annotation",
    ),
    (lambda s: s.flat_map(same), "flat_map needs a function that returns a list of records"),
    (lambda s: s.flat_map(lambda r: None), "flat_map needs a function that returns a list"),
    (lambda s: s.flat_map(lambda r: {"n": 1}), "flat_map needs a function that returns a list"),
    (
        lambda s: s.fold(0, lambda a, r: a + r.n / 2),
        "start with a value such as 0.0, or write type=",
    ),
]


@pytest.mark.parametrize(("build", "hint"), HINTS, ids=range(len(HINTS)))
def test_a_failed_record_says_what_to_write(build: Callable[[Any], Any], hint: str) -> None:
    with pytest.raises(plait.RecordError) as caught:
        build(plait.stream([{"n": 1}, {"n": 2}])).collect()
    assert hint in str(caught.value).split("\n")[-1]
    assert "it is the first record, nothing after it was delivered" in str(caught.value)


def test_an_error_of_a_function_has_no_hint() -> None:
    with pytest.raises(plait.RecordError) as caught:
        plait.stream([1, 0]).map(lambda r: {"value": 1 // r.value}).collect()
    assert str(caught.value).split("\n")[-1] == (
        "  the record before it was delivered, nothing after it;"
        ' use on_error="dead_letter" to go on past bad records'
    )


def test_a_misspelt_setting() -> None:
    with pytest.raises(
        plait.JobError, match='there is no setting "worker"; did you mean "workers"'
    ):
        plait.stream([1]).collect(worker=1)
    with pytest.raises(plait.JobError, match='explain: there is no setting "worker"'):
        plait.stream([1]).explain(worker=1)
