"""Bad jobs, functions, records and settings: each gives an error that says what, where and which.

Nothing here may hang or crash: a run that should end has a timeout, and what could end the process
runs in one of its own (test_run_stop).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import plait
from plait import col
from plait.testing import Capture, assert_same

HERE = Path(__file__).name
TIMEOUT_S = 30.0
ROWS = [{"k": i % 3, "v": i} for i in range(10)]


def rows() -> plait.Stream:
    return plait.stream(ROWS)


def collected(stream: plait.Stream, **settings: Any) -> plait.Result:
    stream.sink(plait.Collect(), name="out")
    return plait.run(stream.job, timeout=TIMEOUT_S, workers=2, **settings)


def values(result: plait.Result, column: str) -> list[Any]:
    found: list[Any] = result.outputs["out"].column(column).to_pylist()
    return found


class TestTheJobIsWrong:
    """Raised while the job is built, with the operator and the line."""

    def test_unknown_column(self) -> None:
        with pytest.raises(plait.JobError, match=rf'filter at {HERE}:\d+: no column "w"') as caught:
            rows().filter(col("w") > 1)
        assert "the stream has: k, v" in str(caught.value)

    def test_wrong_type(self) -> None:
        with pytest.raises(plait.JobError, match=rf"with_columns at {HERE}:\d+: "):
            rows().with_columns(x=col("v") + "a")
        with pytest.raises(plait.JobError, match=rf"filter at {HERE}:\d+: .*bool"):
            rows().filter(col("v") + 1)
        with pytest.raises(plait.JobError, match=rf"sum at {HERE}:\d+: "):
            plait.stream([{"s": "a"}]).sum("s")

    def test_empty_schema(self) -> None:
        with pytest.raises(plait.PlaitError, match="column"):
            plait.stream([{}])
        with pytest.raises(plait.SchemaError):
            plait.Schema.of({})

    def test_nothing_to_read_a_schema_from(self) -> None:
        with pytest.raises(plait.PlaitError, match="schema"):
            plait.stream([])

    def test_union_of_different_schemas(self) -> None:
        with pytest.raises(plait.JobError, match=rf"union at {HERE}:\d+: "):
            rows().union(plait.stream([{"k": "a", "v": 1}]))

    def test_object_key(self) -> None:
        things = plait.stream([{"x": [1]}, {"x": [2]}])
        with pytest.raises(plait.JobError, match=rf'key_by at {HERE}:\d+: .*"x"'):
            things.key_by("x")

    def test_policy_that_is_none(self) -> None:
        with pytest.raises(plait.JobError, match=rf"map at {HERE}:\d+: on_error.*ignore"):
            rows().map(lambda r: r, on_error="ignore")  # type: ignore[arg-type]

    def test_job_without_sink(self) -> None:
        job = plait.Job("idle")
        job.source(ROWS)
        with pytest.raises(plait.JobError, match="sink"):
            plait.run(job, timeout=TIMEOUT_S)
        with pytest.raises(plait.JobError):
            plait.run(plait.Job("empty"), timeout=TIMEOUT_S)

    def test_something_else_than_a_job(self) -> None:
        with pytest.raises(plait.JobError, match="run needs a Job, not 42"):
            plait.run(42)

    def test_no_order_of_a_union(self) -> None:
        both = rows().union(rows())
        with pytest.raises(plait.JobError, match=r'order="none" cannot be combined with union'):
            collected(both, order="none")


SETTINGS = [
    ({"workers": 0}, "workers is 0"),
    ({"workers": 65}, "workers is 65"),
    ({"workers": 1.5}, r"workers is 1\.5"),
    ({"workers": True}, "workers is True"),
    ({"scheduler": "fair"}, "scheduler is 'fair'; it must be one of \"ct\""),
    ({"queue": "fifo"}, "queue is 'fifo'"),
    ({"reorder": "no"}, "reorder is 'no'"),
    ({"order": "some"}, "order is 'some'"),
    ({"lanes": 3}, "lanes is 3; it must be a power of two"),
    ({"queue_batches": 3}, "queue_batches is 3; it must be a power of two"),
    ({"queue_batches": 1}, "queue_batches is 1"),
    ({"queue_records": 0}, "queue_records is 0"),
    ({"queue_bytes": -1}, "queue_bytes is -1"),
    ({"epoch_records": 0}, "epoch_records is 0"),
    ({"bin_bits": 21}, "bin_bits is 21"),
    ({"slice_us": 0}, "slice_us is 0"),
    ({"limit": -1}, "limit is -1"),
    ({"timeout": 0}, "timeout is 0"),
    ({"timeout": float("nan")}, "timeout is nan"),
    ({"timeout": "soon"}, "soon"),
    ({"worker": 2}, "worker"),
]


@pytest.mark.parametrize(("given", "said"), SETTINGS, ids=[str(given) for given, _ in SETTINGS])
def test_bad_settings(given: dict[str, Any], said: str) -> None:
    stream = rows()
    stream.sink(plait.Discard())
    with pytest.raises(plait.JobError, match=said):
        plait.run(stream.job, **given)


def fails_at_five(record: Any) -> Any:
    if record.v == 5:
        raise ValueError("five is right out")
    return record


class Odd(BaseException):
    """Not an Exception."""


def odd_at_five(record: Any) -> Any:
    if record.v == 5:
        raise Odd("at five")
    return record


class TestFunctions:
    def test_a_function_that_raises(self) -> None:
        stream = rows().map(fails_at_five)
        with pytest.raises(plait.RecordError, match=r'map "fails_at_five" at') as caught:
            collected(stream)
        error = caught.value
        assert "raised ValueError: five is right out" in str(error)
        assert "record 6 of source" in str(error)
        assert "Record(k=2, v=5)" in str(error)
        assert "the 5 records before it were delivered" in str(error)
        assert error.row == 6
        assert isinstance(error.__cause__, ValueError)

    @pytest.mark.parametrize("policy", ["skip", "dead_letter"])
    def test_a_function_that_raises_under_a_policy(self, policy: Any) -> None:
        result = collected(rows().map(fails_at_five, on_error=policy))
        assert values(result, "v") == [0, 1, 2, 3, 4, 6, 7, 8, 9]
        assert [letter.row for letter in result.dead_letters] == [6] * (policy == "dead_letter")
        assert all("five is right out" in letter.error for letter in result.dead_letters)

    @pytest.mark.parametrize(
        ("returned", "said"),
        [
            (None, "None"),
            (7, "7"),
            ("text", "text"),
            ({"k": 1}, '"v"'),
            ({"k": 1, "v": "n/a"}, "column \"v\": expected int64, got 'n/a'"),
            ({"k": 1, "v": None}, '"v"'),
            ({"k": 1, "v": 2**63}, '"v"'),
            ({"k": 1, "v": True}, '"v"'),
            ((1, 2, 3), "3"),
        ],
    )
    def test_a_function_that_returns_nonsense(self, returned: Any, said: str) -> None:
        stream = rows().map(lambda r: returned)
        with pytest.raises(plait.RecordError, match=rf"map at {HERE}:\d+ ") as caught:
            collected(stream)
        assert said in str(caught.value)
        assert caught.value.row == 1

    def test_a_batch_function_that_returns_nonsense(self) -> None:
        for returned in (None, 7, pa.table({"x": [1]}), "text"):

            def answer(table: Any, returned: Any = returned) -> Any:
                return returned

            stream = rows().map_batches(answer, schema=rows().schema)
            with pytest.raises(plait.RecordError, match=r"map_batches(.|\n)*record 1 of source"):
                collected(stream)

    def test_a_flat_map_that_returns_no_iterable(self) -> None:
        stream = rows().flat_map(lambda r: 5, schema=rows().schema)
        with pytest.raises(plait.RecordError, match=rf"flat_map at {HERE}:\d+ "):
            collected(stream)

    def test_a_truth_that_cannot_be_told(self) -> None:
        class Neither:
            def __bool__(self) -> bool:
                raise ValueError("neither")

        stream = rows().filter(lambda r: Neither())
        with pytest.raises(plait.RecordError, match=r"filter at(.|\n)*neither"):
            collected(stream)

    @pytest.mark.parametrize("policy", ["fail", "skip", "dead_letter"])
    def test_what_is_no_exception_ends_the_run_whatever_the_policy(self, policy: Any) -> None:
        def leaves(record: Any) -> Any:
            raise SystemExit(3)

        with pytest.raises(SystemExit, match="3"):
            collected(rows().map(leaves, on_error=policy).with_columns(w=col("v") + 1))

        def interrupts(record: Any) -> Any:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            collected(rows().map(interrupts, on_error=policy).key_by("k").count())

    def test_a_base_exception_fails_its_record(self) -> None:
        with pytest.raises(plait.RecordError, match=r"odd_at_five(.|\n)*Odd: at five"):
            collected(rows().map(odd_at_five))

    def test_a_base_exception_in_a_fold(self) -> None:
        def step(state: int, record: Any) -> int:
            odd_at_five(record)
            return state + 1

        with pytest.raises(plait.RecordError, match=r'fold "step" at(.|\n)*Odd: at five'):
            collected(rows().key_by("k").fold(0, step, on_error="skip"))

    def test_an_exception_without_words(self) -> None:
        class Silent(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no words")

        def silent(record: Any) -> Any:
            raise Silent

        with pytest.raises(plait.RecordError, match="Silent"):
            collected(rows().map(silent))

    def test_a_fold_that_gives_the_wrong_type(self) -> None:
        stream = rows().key_by("k").fold(0, lambda total, r: "much", type=int)
        with pytest.raises(plait.RecordError, match=r"fold(.|\n)*much"):
            collected(stream)

    def test_a_stateful_step_that_gives_no_pair(self) -> None:
        seven: Any = lambda state, record: 7  # noqa: E731
        stream = rows().key_by("k").stateful(0, seven, schema=rows().schema)
        with pytest.raises(plait.RecordError, match=r"must return \(state, record or None\)"):
            collected(stream)


class TestRecords:
    @pytest.mark.parametrize("policy", ["fail", "skip", "dead_letter"])
    def test_division_by_zero(self, policy: Any) -> None:
        stream = rows().with_columns(q=10 // (col("v") - 4), on_error=policy)
        if policy == "fail":
            with pytest.raises(plait.RecordError, match=r"with_columns at(.|\n)*zero") as caught:
                collected(stream)
            assert "record 5 of source" in str(caught.value)
            return
        result = collected(stream)
        assert values(result, "v") == [0, 1, 2, 3, 5, 6, 7, 8, 9]
        counted = result.account
        assert (counted.skipped, counted.dead_lettered) == ((1, 0) if policy == "skip" else (0, 1))

    @pytest.mark.parametrize("policy", ["fail", "skip", "dead_letter"])
    def test_nan_key(self, policy: Any) -> None:
        numbers = plait.stream([{"x": 0.0}, {"x": float("nan")}, {"x": -0.0}])
        for counted in (
            numbers.key_by("x").count(on_error=policy),
            numbers.key_by("x").fold(0, lambda n, r: n + 1, on_error=policy),
        ):
            if policy == "fail":
                with pytest.raises(plait.RecordError, match="NaN cannot be a key"):
                    counted.collect(timeout=TIMEOUT_S)
            else:
                got = [tuple(vars_of(row).values()) for row in counted.collect(timeout=TIMEOUT_S)]
                assert [row[1] for row in got] == [1, 2]

    def test_a_record_that_does_not_fit_the_schema(self) -> None:
        bad = plait.Items([{"v": 1}, {"v": "n/a"}], schema={"v": int}, label="bad")
        with pytest.raises(plait.SourceError, match="column \"v\": expected int64, got 'n/a'"):
            collected(plait.stream(bad))

    def test_huge_records(self) -> None:
        """A string of 100 MB among small ones, through native and Python operators."""
        huge = "é" * 50_000_000
        table = pa.table({"k": [1, 2, 1, 2], "s": ["a", huge, "b", huge]})
        stream = (
            plait.stream(table)
            .filter(col("k") > 0)
            .map(lambda r: r)
            .key_by("k")
            .aggregate(n=plait.count(), last=plait.last("s"))
        )
        got = collected(stream, epoch_records=1).outputs["out"]
        assert got.column("n").to_pylist() == [1, 1, 2, 2]
        assert [len(text) for text in got.column("last").to_pylist()] == [
            1,
            len(huge),
            1,
            len(huge),
        ]

    def test_a_huge_record_is_shown_in_short(self) -> None:
        def fails(record: Any) -> Any:
            raise ValueError("no")

        stream = plait.stream(pa.table({"s": ["x" * 10_000_000]})).map(fails)
        with pytest.raises(plait.RecordError) as caught:
            collected(stream)
        assert len(str(caught.value)) < 2_000
        assert "Record(s='xxx" in str(caught.value)


def vars_of(row: Any) -> dict[str, Any]:
    return row if isinstance(row, dict) else {n: getattr(row, n) for n in row.__dataclass_fields__}


@dataclass
class Bid:
    price: int


def test_the_users_class_may_refuse_its_values() -> None:
    @dataclass
    class Positive:
        v: int

        def __post_init__(self) -> None:
            if self.v < 0:
                raise ValueError("negative")

    good = plait.stream(plait.Items([{"v": 1}, {"v": 2}], schema=Positive))
    with pytest.raises(plait.RecordError, match="negative"):
        collected(good.with_columns(v=col("v") - 2).map(lambda p: p))


class TestRegressions:
    """Faults that were found by running random jobs and bad ends."""

    def test_a_failed_batch_before_a_global_count(self) -> None:
        """The rows before the failed one are counted though no column of theirs is used."""
        for policy in ("fail", "skip"):
            stream = rows().filter(10 // (col("v") - 4) < 100, on_error=policy).count()
            stream.sink(Capture())
            assert_same(stream.job.graph(), {"workers": 2, "timeout": TIMEOUT_S})

    def test_a_union_of_three_in_which_one_branch_fails_at_once(self) -> None:
        source = rows()
        failing = source.map(fails_at_five)
        stream = plait.union(failing, source.filter(col("k") > 0), source.filter(col("k") < 2))
        stream.sink(Capture())
        for epoch_records in (1, 3, 4096):
            given = {"workers": 2, "epoch_records": epoch_records, "timeout": TIMEOUT_S}
            assert_same(stream.job.graph(), given)

    def test_a_nan_key_of_a_record_with_other_columns(self) -> None:
        """The failed record is shown as it came, not as the key and the aggregates' inputs."""
        numbers = [{"a": n, "x": float("nan") if n == 20 else 0.0, "b": n} for n in range(25)]
        stream = plait.stream(numbers)
        stream.sink(Capture(), name="all")
        stream.key_by("x").count().sink(Capture(), name="counts")
        for order in ("total", "none"):
            assert_same(stream.job.graph(), {"workers": 2, "order": order, "epoch_records": 1})
