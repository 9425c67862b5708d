"""The engine against the sequential run: same rows, same order, bit for bit, whatever the workers.

`check` is for tests of a user's own jobs. `assert_same` compares everything that a run reports: the
outputs, the account and its law, the counts of each operator, dead letters, and the failure.

    def test_totals():
        check(totals_of, table('''
            auction | price
            1       | 10
            1       | 20
        '''), expect=table('''
            auction | total
            1       | 10
            1       | 30
        '''))
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from plait.errors import JobError, RecordError
from plait.functions.signatures import name_of
from plait.graph.operators import Graph, SinkOp, SourceOp
from plait.graph.source_order import is_in_time
from plait.testing.clock import Capture
from plait.testing.difference import same_row, same_value, story
from plait.testing.expected import expected_rows
from plait.testing.oracle import OracleResult, sequential
from plait.testing.oracle.values import held_from_arrow, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from plait.graph.operators import AnyOp
    from plait.model.schema import Schema
    from plait.results.outcomes import Plan
    from plait.results.result import DeadLetter, KeepStep, Result
    from plait.testing.crashes import Durable
    from plait.testing.expected import Expected

Row = tuple[Any, ...]
Raised = type[BaseException] | tuple[type[BaseException], ...]
RETURNED = "returned"
"""The label of the sink behind the stream that a builder returned."""
KEPT_LETTERS = 10_000
"""A result keeps so many dead letters."""


def check(
    build: Callable[..., Any],
    given: Any,
    *,
    expect: Expected | None = None,
    raises: Raised | None = None,
    workers: Iterable[int] = (1, 2, 4),
    nodes: Iterable[int] = (),
    rescale_at: int | None = None,
    checkpoint: bool = False,
    crash_at: int | None = None,
    event_time: str | None = None,
    out_of_order: Any = None,
    **settings: Any,
) -> None:
    """Runs a job on a table with each number of workers; all must give what the plain loop gives.

    >>> from plait.testing import table
    >>> check(lambda bids: bids.sum("price"), table('''
    ...     auction | price
    ...     1       | 10
    ...     1       | 20
    ... '''), expect=table('''
    ...     sum
    ...     10
    ...     30
    ... '''))

    Args:
        build: takes the stream of the table and returns a stream, or a job with its sinks.
        given: a table, or several (a tuple of tables: `build` gets as many streams).
        expect: what the only output must be (of a job that fails, by then): a list of dicts or
            tuples, or a table.
        raises: the exception that a function of the job must raise, a class or several (or
            plait.RecordError for any). Without it a job that fails fails the check.
        nodes: run it on so many nodes as well, all in this process, with each number of workers.
        rescale_at: on nodes, one more joins and takes half of the state, after so many records of
            each source (so many epochs, if `epoch_records` is given).
        checkpoint: run it with checkpoints, too: the run crashes, and a second one goes on ...
        crash_at: ... after so many records of each source (2), with a checkpoint half way there. On
            nodes the first one is lost then, with the sinks and its part of the state, and another
            one comes. Of a job that fails only what leads to the failure is checked.
        event_time: the column of the tables that is their event time.
        out_of_order: by how much records may come out of order and are not late.
        settings: as those of `plait.run`.
    """
    clock = {"event_time": event_time, "out_of_order": out_of_order}
    graph, sink = graph_of(build, given, clock)
    counts = list(workers)
    for count in counts:
        chosen = {**settings, "workers": count}
        wanted = assert_same(graph, chosen, expect=expect, expect_at=sink)
        check_raised(wanted.failure, raises)
        if (checkpoint or crash_at is not None) and wanted.failure is None:
            from plait.testing.check_crashes import assert_same_after_crash

            at = 2 if crash_at is None else crash_at
            chosen = {name: value for name, value in chosen.items() if name != "timeout"}
            assert_same_after_crash(graph, chosen, crash_at=at, expect=expect, expect_at=sink)
    for number in nodes:
        from plait.testing.check_nodes import assert_same_on_nodes, with_rescale

        for count in counts:
            chosen, changes = with_rescale({**settings, "workers": count}, rescale_at)
            wanted = assert_same_on_nodes(
                graph, chosen, nodes=number, changes=changes, expect=expect, expect_at=sink
            )
            check_raised(wanted.failure, raises)
            if (checkpoint or crash_at is not None) and wanted.failure is None:
                from plait.testing.check_node_crashes import assert_same_after_lost_node

                assert_same_after_lost_node(
                    graph,
                    {**settings, "workers": count},
                    nodes=number,
                    crash_at=2 if crash_at is None else crash_at,
                    expect=expect,
                    expect_at=sink,
                )


def check_raised(failure: RecordError | None, raises: Raised | None) -> None:
    """A job fails only as it is expected to."""
    if failure is None and raises is None:
        return
    if failure is None:
        raise AssertionError(f"the job came to its end; expected {names_of(raises)}")
    told = f"the job fails: {failure}"
    if raises is None:
        raise AssertionError(
            f"{told}\n  if it should, give raises=; to go on past bad records, on_error="
        ) from failure
    if not isinstance(failure, raises) and not isinstance(failure.__cause__, raises):
        raise AssertionError(f"{told}\n  expected {names_of(raises)}") from failure


def names_of(raises: Raised | None) -> str:
    kinds = raises if isinstance(raises, tuple) else (raises,)
    return " or ".join(kind.__name__ for kind in kinds if kind is not None)


def graph_of(
    build: Callable[..., Any], given: Any, clock: Mapping[str, Any] | None = None
) -> tuple[Graph, str | None]:
    """The graph of the job that `build` makes, and the label of the returned stream's sink.

    `clock`: what the sources say of their event time.
    """
    from plait.streams.job import Job
    from plait.streams.stream import KeyedStream, Stream

    job = Job("check")
    tables = given if isinstance(given, tuple) else (given,)
    built = build(*(job.source(one, **(clock or {})) for one in tables))
    if isinstance(built, Stream):
        built.sink(Capture(), name=RETURNED)
        return built.job.graph(), RETURNED
    if not isinstance(built, Job):
        hint = "; call an aggregate or a window on it" if isinstance(built, KeyedStream) else ""
        raise JobError(f'"{name_of(build)}" must return a stream or a job, not {built!r}{hint}')
    return built.graph(), None


def assert_same(
    graph: Graph,
    settings: Mapping[str, Any] | None = None,
    *,
    expect: Expected | None = None,
    expect_at: str | None = None,
    keeps: Iterable[Plan] = (),
) -> OracleResult:
    """Runs a graph in the engine and in the oracle and compares all that both report.

    >>> job = plait.Job("numbers")
    >>> _ = job.source([1, 2]).sink(Capture(), name="all")
    >>> assert_same(job.graph(), {"workers": 2}).outputs
    {'all': [(1,), (2,)]}

    The sinks are replaced by ones that keep what they get. Sources are read twice. With the setting
    order="none" the rows of an output are compared without their order. `expect` is what the sink
    with the label `expect_at`, or the only sink, must get. `keeps`: plans of what is kept, each
    with the epoch from which on it holds.
    """
    from plait.execution.local_run import begin, running_of

    given = dict(settings or {})
    title = ", ".join(f"{name}={value!r}" for name, value in given.items()) or "default settings"
    captured, sinks = capturing(graph)
    chosen = {name: value for name, value in given.items() if name != "timeout"}
    timeout = given.get("timeout")
    result: Result | None = None
    failure: RecordError | None = None
    if timeout:
        chosen["timeout_s"] = timeout
    running = running_of(begin(captured, None, None, None, chosen, keeps=tuple(keeps)))
    try:
        result = running.wait()
    except RecordError as error:
        failure = error
    stamps = running.done.stamps if running.done is not None else {}
    kept = running.done.keeps if running.done is not None else ()
    wanted = right_answer(graph, given, result, stamps, title, kept)
    outputs = {label: rows_of(sink, wanted.schemas[label]) for label, sink in sinks.items()}
    compare_closing(title, sinks, failure)
    if given.get("order") == "none":
        outputs = {label: in_any_order(rows) for label, rows in outputs.items()}
        wanted = dataclasses.replace(
            wanted, beyond={label: in_any_order(rows) for label, rows in wanted.beyond.items()}
        )
    compare_failure(title, failure, wanted)
    if given.get("order") == "none" and failure is not None:
        compare_some(title, outputs, wanted, failure)
    else:
        compare_outputs(title, outputs, wanted, failure)
    if expect is not None:
        compare_expected(title, outputs, wanted, expect, expect_at)
    if result is not None:
        compare_accounts(title, result, wanted)
        compare_letters(title, result.dead_letters, wanted.dead_letters)
    return wanted


def right_answer(
    graph: Graph,
    given: Mapping[str, Any],
    result: Result | None,
    stamps: Mapping[str, Sequence[int]],
    title: str,
    keeps: Sequence[KeepStep] = (),
) -> OracleResult:
    """The sequential run, with the epochs of the engine's run where these depended on time."""
    epoch_records, limit = given.get("epoch_records", 4096), given.get("limit")
    order = given.get("order")

    def run(cuts: Mapping[str, Sequence[int]] | None) -> OracleResult:
        return sequential(
            graph,
            epoch_records=epoch_records,
            cuts=cuts,
            stamps=stamps,
            limit=limit,
            order=order,
            keeps=keeps,
        )

    if result is not None and is_live(graph):
        return run(result.cuts)
    wanted = run(None)
    if result is None or wanted.failure is not None:
        return wanted
    if wanted.waited and not is_in_time(graph, order):
        return run(result.cuts)
    got: Mapping[str, Sequence[int]] = result.cuts
    right: Mapping[str, Sequence[int]] = wanted.cuts
    if stamps or (keeps and is_in_time(graph, order)):  # each is of an epoch
        wanted = run(result.cuts)
    if is_in_time(graph, order):
        # What waits for an epoch to come puts empty ones anywhere; rows come when they should.
        got, right = without_empty(got), without_empty(right)
    for label, cuts in right.items():
        if without_last_zeros(got.get(label, ())) != without_last_zeros(cuts):
            raise AssertionError(f"{title}: epochs of {label}: {got}\n  should be: {cuts}")
    return wanted


def without_empty(cuts: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    """The epochs of all sources without those in which none has rows."""
    epochs = [rows for rows in zip_longest(*cuts.values(), fillvalue=0) if any(rows)]
    return {label: [rows[n] for rows in epochs] for n, label in enumerate(cuts)}


def without_last_zeros(cuts: Sequence[int]) -> list[int]:
    found = list(cuts)
    while found and found[-1] == 0:
        found.pop()
    return found


def capturing(graph: Graph) -> tuple[Graph, dict[str, Capture]]:
    """The graph with a capturing sink in place of each of its own."""
    sinks: dict[str, Capture] = {}
    nodes: list[AnyOp] = []
    for node in graph.operators:
        if isinstance(node, SinkOp):
            sinks[node.label] = Capture(node.label)
            nodes.append(dataclasses.replace(node, sink=sinks[node.label]))
        else:
            nodes.append(node)
    letters = None if graph.dead_letters is None else Capture("dead-letters")
    return dataclasses.replace(graph, operators=tuple(nodes), dead_letters=letters), sinks


def is_live(graph: Graph) -> bool:
    """Whether the epochs of a run depend on time, so that only its own cuts repeat it."""
    sources = [node.source for node in graph.operators if isinstance(node, SourceOp)]
    return not all(s.bounded and getattr(s, "rate_per_s", None) is None for s in sources)


def rows_of(sink: Capture | Durable, schema: Schema) -> list[Row]:
    rows: list[Row] = []
    for batch in sink.batches:
        if batch.num_rows == 0:
            raise AssertionError(f"sink {sink.label} was given an empty batch")
        if batch.schema != schema.to_arrow():
            raise AssertionError(f"sink {sink.label} was given {batch.schema}, not {schema}")
        rows += rows_of_arrow(batch, schema)
    return rows


def rows_of_arrow(table: Any, schema: Schema) -> list[Row]:
    """The rows of a table or a batch as the sequential run shows them."""
    batches = table.to_batches() if hasattr(table, "to_batches") else [table]
    return [shown(row, schema) for one in batches for row in held_from_arrow(one, schema)]


def in_any_order(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=repr)


def place(failure: RecordError) -> tuple[str, str, str, int]:
    return failure.operator, failure.at, failure.source, failure.row


def compare_failure(
    title: str, failure: RecordError | None, wanted: OracleResult, *, nodes: bool = False
) -> None:
    """A failure must be one that ended a sink of the plain loop, with the same record (on several
    nodes it may be named by its place alone)."""
    if failure is None and wanted.failure is None:
        return
    if failure is None:
        raise AssertionError(f"{title}: ran to its end, but should fail with\n{wanted.failure}")
    ends = {place(end): end for end in wanted.ends.values()}
    if place(failure) not in ends:
        right_places = " or ".join(map(str, ends)) or "no failure"
        raise AssertionError(
            f"{title}: failed at {place(failure)}, should be {right_places}\n{failure}"
        )
    right = ends[place(failure)]
    if nodes and failure.record is None:
        return
    if not same_record(failure.record, right.record):
        raise AssertionError(f"{title}: failed with {failure.record!r}, not {right.record!r}")


def compare_outputs(
    title: str,
    outputs: Mapping[str, list[Row]],
    wanted: OracleResult,
    failure: RecordError | None,
) -> None:
    """Outputs are equal; after a failure those of other paths are a prefix of what is right."""
    if set(outputs) != set(wanted.beyond):
        raise AssertionError(f"{title}: sinks {sorted(outputs)}, not {sorted(wanted.beyond)}")
    for label, rows in outputs.items():
        right = wanted.beyond[label]
        end = wanted.ends.get(label)
        on_the_path = end is not None and failure is not None and place(end) == place(failure)
        if failure is not None and not on_the_path:
            right = right[: len(rows)]
        told = story(f"{title}: sink {label}", wanted.schemas[label], rows, right, "sequential")
        if told:
            raise AssertionError(told)


def compare_some(
    title: str, outputs: Mapping[str, list[Row]], wanted: OracleResult, failure: RecordError
) -> None:
    """After a failure without order: behind it all that comes before it, elsewhere nothing wrong.

    Batches after the failing one may have left before it, so a sink behind it may have more.
    """
    for label, rows in outputs.items():
        got, right = Counter(map(repr, rows)), Counter(map(repr, wanted.beyond[label]))
        end = wanted.ends.get(label)
        if end is None and not got <= right:
            raise AssertionError(f"{title}: sink {label} got wrong rows: {got - right}")
        if end is not None and place(end) == place(failure) and not right <= got:
            raise AssertionError(f"{title}: sink {label} lacks rows: {right - got}")


def compare_closing(title: str, sinks: Mapping[str, Capture], failure: RecordError | None) -> None:
    right = "close" if failure is None else "abort"
    for label, sink in sinks.items():
        if sink.ended != right:
            raise AssertionError(f"{title}: sink {label} got {sink.ended or 'no end'}, not {right}")


def compare_expected(
    title: str,
    outputs: Mapping[str, list[Row]],
    wanted: OracleResult,
    expect: Expected,
    label: str | None,
) -> None:
    if label is None and len(outputs) != 1:
        raise JobError(f"expect= needs a job with one sink, this one has {len(outputs)}")
    label = next(iter(outputs)) if label is None else label
    rows = outputs[label]
    schema = wanted.schemas[label]
    told = story(f"{title}: output", schema, rows, expected_rows(expect, schema), "expected")
    if told:
        raise AssertionError(told)


def compare_accounts(title: str, result: Result, wanted: OracleResult) -> None:
    if result.account.difference != 0:
        raise AssertionError(
            f"{title}: {result.account.difference} records went missing: {result.account}"
        )
    if result.account != wanted.account:
        raise AssertionError(f"{title}: {result.account}\n  should be: {wanted.account}")
    got = {counts.number: counts for counts in result.operators}
    for counts in wanted.operators:
        if got.get(counts.number) != counts:
            raise AssertionError(f"{title}: {got.get(counts.number)}\n  should be: {counts}")
        if counts.difference:
            raise AssertionError(f"{title}: {counts.difference} records went missing: {counts}")
    if len(got) != len(wanted.operators):
        raise AssertionError(
            f"{title}: counts of {len(got)} operators, not {len(wanted.operators)}"
        )


def compare_letters(title: str, got: Sequence[DeadLetter], wanted: Sequence[DeadLetter]) -> None:
    """Dead letters in order. The words of an error may differ, but there must be some."""
    right = wanted[:KEPT_LETTERS]
    if len(got) != len(right):
        raise AssertionError(f"{title}: {len(got)} dead letters, should be {len(right)}")
    if len(wanted) > KEPT_LETTERS:
        return  # which ones were kept of several operators is not defined
    for ours, theirs in zip(got, right, strict=True):
        same = (ours.operator, ours.at, ours.source, ours.row) == (
            theirs.operator,
            theirs.at,
            theirs.source,
            theirs.row,
        )
        if not same or not same_record(ours.record, theirs.record) or not ours.error:
            raise AssertionError(f"{title}: dead letter {ours}\n  should be: {theirs}")


def same_record(a: Any, b: Any) -> bool:
    """Records of the same class with the same values, bit for bit."""
    if type(a) is not type(b):
        return False
    if not dataclasses.is_dataclass(a):
        return same_value(a, b)
    names = [field.name for field in dataclasses.fields(a)]
    return same_row([getattr(a, n) for n in names], [getattr(b, n) for n in names])
