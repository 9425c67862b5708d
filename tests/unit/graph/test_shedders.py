"""Where shedders stand, what they sample, and which queries cannot be shed as they ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import plait
from plait import col
from plait.errors import JobError
from plait.graph.explain import explain
from plait.graph.operator_ids import operator_ids
from plait.graph.operators import ShedOp
from plait.graph.shedders.bounds import checked_bound

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.graph.operators import Graph
    from plait.streams.stream import Stream

RIDES = [{"zone": 1, "driver": "ann", "tip": 2.0, "at": 3}]
Found = list[tuple[str, list[tuple[tuple[str, ...], tuple[int, ...]]]]]


def shedders(graph: Graph) -> Found:
    """Of each shedder: the operator before it, and its samples."""
    return [
        (
            graph.operators[op.inputs[0]].name,
            [(sample.columns, sample.queries) for sample in op.samples],
        )
        for op in graph.operators
        if isinstance(op, ShedOp)
    ]


def rides() -> Stream:
    return plait.Job("rides").source(RIDES, name="rides")


def floor(stream: Stream, name: str = "out", **more: Any) -> Stream:
    return stream.sink(plait.Discard(), name, **{"min_accuracy": 0.5, **more})


def found(stream: Stream) -> Found:
    return shedders(stream.job.graph())


def by_key(*columns: str) -> Found:
    return [("source", [(columns, (0,))])]


BY_RECORD = by_key()
MINUTE = col("at").to_timestamp(unit="s")


@pytest.mark.parametrize(
    "verb",
    [
        lambda s: s,
        lambda s: s.filter(col("tip") > 1).select("zone"),
        lambda s: s.map(lambda ride: ride, schema=s.schema),
        lambda s: s.key_by("zone").count(),
        lambda s: s.key_by("zone").aggregate(n=plait.count(), tips=plait.sum("tip")),
        lambda s: s.mean("tip"),
        lambda s: (
            s.with_event_time(MINUTE).key_by("zone").tumbling("1m").aggregate(n=plait.count())
        ),
    ],
)
def test_counts_sums_and_means_are_shed_by_record(verb: Callable[[Stream], Stream]) -> None:
    job = floor(verb(rides())).job
    assert [samples for _, samples in shedders(job.graph())] == [[((), (0,))]]


@pytest.mark.parametrize(
    "verb",
    [
        lambda s: s.key_by("zone").max("tip"),
        lambda s: s.key_by("zone").last_n(3).sum("tip"),
        lambda s: s.key_by("zone").fold(0, lambda n, _: n + 1),
        lambda s: s.select("zone", "tip").key_by("zone").max("tip"),
        lambda s: s.rename({"zone": "place"}).key_by("place").max("tip"),
        lambda s: s.filter(col("tip") > 0).key_by("zone").max("tip"),
    ],
)
def test_all_else_is_shed_by_key(verb: Callable[[Stream], Stream]) -> None:
    assert found(floor(verb(rides()))) == by_key("zone")


def test_sessions_and_distinct_are_shed_by_key() -> None:
    keyed = rides().with_event_time(MINUTE).key_by("zone")
    sessions = floor(keyed.session(gap="1m").aggregate(n=plait.count()))
    assert found(sessions) == [("with_event_time", [(("zone",), (0,))])]
    again = rides().with_event_time(MINUTE).key_by("zone").tumbling("1m")
    distinct = floor(again.aggregate(n=plait.distinct("driver")))
    assert found(distinct) == [("with_event_time", [(("zone",), (0,))])]


def test_a_key_that_several_operators_have_is_the_common_one() -> None:
    first = rides().key_by("zone", "driver").max("tip")
    then = floor(first.rename({"max": "most"}).key_by("zone").max("most"))
    assert found(then) == by_key("zone")


def test_both_sides_of_a_join_are_shed_by_their_own_columns() -> None:
    job = plait.Job("rides")
    left = job.source(RIDES, name="rides")
    right = job.source([{"place": 1, "who": "ann", "fare": 3}], name="fares")
    floor(left.join(right, on=[("zone", "place"), ("driver", "who")]))
    assert shedders(job.graph()) == [
        ("source", [(("zone", "driver"), (0,))]),
        ("source", [(("place", "who"), (0,))]),
    ]


def test_a_column_that_one_side_computes_is_left_out_on_both() -> None:
    """The driver of the fares is known behind a function only: the zone will do."""
    job = plait.Job("rides")
    left = job.source(RIDES, name="rides")
    right = job.source([{"place": 1, "who": "ann"}], name="fares")
    right = right.with_columns(who=col("who").upper())
    floor(left.join(right, on=[("zone", "place"), ("driver", "who")]))
    assert shedders(job.graph()) == [
        ("source", [(("zone",), (0,))]),
        ("source", [(("place",), (0,))]),
    ]


def test_a_key_that_is_computed_is_shed_where_it_is_made() -> None:
    made = floor(rides().with_columns(area=col("zone") // 10).key_by("area").max("tip"))
    assert found(made) == [("with_columns", [(("area",), (0,))])]


def test_a_key_made_by_python_is_shed_behind_it() -> None:
    stream = rides()
    named = stream.map(lambda ride: ride, schema=stream.schema)
    assert found(floor(named.key_by("zone").max("tip"))) == [("map", [(("zone",), (0,))])]


def test_branches_with_other_samples_have_shedders_of_their_own() -> None:
    stream = rides()
    floor(stream.key_by("zone").count(), "zones")
    floor(stream.key_by("driver").max("tip"), "drivers")
    assert found(stream) == [
        ("source", [((), (0,)), (("driver",), (1,))]),
        ("shed", [((), (0,))]),
        ("shed", [(("driver",), (1,))]),
    ]


def test_what_a_lossless_query_reads_is_not_shed() -> None:
    stream = rides()
    floor(stream.key_by("zone").count(), "zones")
    stream.key_by("driver").max("tip").sink(plait.Discard(), "drivers")
    graph = stream.job.graph()
    assert shedders(graph) == [("source", [((), (0,))])]
    shed = next(i for i, op in enumerate(graph.operators) if isinstance(op, ShedOp))
    assert [graph.operators[user].name for user in graph.users(shed)] == ["count"]


def test_a_lossless_job_has_no_shedder() -> None:
    stream = rides().sink(plait.Discard(), priority=3)
    assert found(stream) == []


def test_behind_a_window_by_record_a_branch_gets_what_its_prefix_got() -> None:
    windows = rides().with_event_time(MINUTE).key_by("zone").tumbling("1m")
    counted = windows.aggregate(n=plait.count())
    floor(counted.filter(col("n") > 1), "many")
    floor(counted, "all")
    assert found(counted) == [("with_event_time", [((), (0, 1))])]


@pytest.mark.parametrize(
    "verb",
    [
        lambda s: (
            s.with_event_time(MINUTE).key_by("zone").session(gap="1m").aggregate(n=plait.count())
        ),
        lambda s: s.key_by("zone").aggregate(n=plait.max("tip")),
    ],
)
def test_behind_whole_keys_a_branch_gets_what_its_prefix_got(
    verb: Callable[[Stream], Stream],
) -> None:
    """A sample of its results would not be of whole keys."""
    results = verb(rides())
    floor(results.filter(col("n") > 1), "many")
    floor(results, "all")
    assert [samples for _, samples in found(results)] == [[(("zone",), (0, 1))]]


def test_ids_of_state_are_the_same_with_a_floor() -> None:
    def ids(**quality: Any) -> set[str]:
        stream = rides().filter(col("tip") > 0)
        counts = stream.key_by("zone").count()
        counts.key_by("count").max("zone").sink(plait.Discard(), "out", **quality)
        graph = counts.job.graph()
        return {
            id
            for id, op in zip(operator_ids(graph), graph.operators, strict=True)
            if not isinstance(op, ShedOp)
        }

    assert ids() == ids(min_accuracy=0.5, shed="records")


def test_columns_that_only_a_shedder_reads_stay() -> None:
    stream = rides()
    floor(stream.key_by("zone").max("tip").select("max"), "zones")
    graph = stream.job.graph()
    shed = next(op for op in graph.operators if isinstance(op, ShedOp))
    assert "zone" in shed.schema.names


def test_explain_says_what_is_shed_and_why() -> None:
    text = explain(floor(rides().key_by("zone").max("tip"), "most").job.graph())
    assert "whole keys of zone for most" in text
    assert "max cannot be told from a sample of records" in text
    text = explain(floor(rides().key_by("zone").count(), "counts").job.graph())
    assert "records for counts" in text
    assert "its state is counts, sums and means alone" in text


def test_no_common_key_is_refused_with_the_operators() -> None:
    first = rides().key_by("zone").max("tip").rename({"max": "most"})
    floor(first.key_by("most").max("zone"))
    with pytest.raises(JobError, match=r'(?s)sink at .*max at .*by most.*max at .*write shed="rec'):
        first.job.graph()


def test_state_without_a_key_is_refused() -> None:
    stream = floor(rides().max("tip"))
    with pytest.raises(JobError, match=r'max at .* no column of a key.*shed="records"'):
        stream.job.graph()
    assert found(floor(rides().max("tip"), shed="records")) == BY_RECORD


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        (lambda s, o: s.join(o, on="zone"), "square of their ratio"),
        (
            lambda s, _: (
                s.with_event_time(MINUTE)
                .key_by("zone")
                .session(gap="1m")
                .aggregate(n=plait.count())
            ),
            "a session falls apart",
        ),
        (
            lambda s, _: (
                s.with_event_time(MINUTE)
                .key_by("zone")
                .tumbling("1m")
                .aggregate(n=plait.distinct("driver"))
            ),
            "distinct cannot be told",
        ),
    ],
)
def test_records_are_refused_where_they_would_be_wrong(
    verb: Callable[[Stream, Stream], Stream], words: str
) -> None:
    job = plait.Job("rides")
    left, right = job.source(RIDES, name="rides"), job.source(RIDES, name="others")
    right = right.select("zone")
    floor(verb(left, right), shed="records")
    right.sink(plait.Discard())
    with pytest.raises(JobError, match=f'{words}.*write shed="keys"'):
        job.graph()


def test_keys_without_a_key_are_refused() -> None:
    stream = floor(rides(), shed="keys")
    with pytest.raises(JobError, match='no operator before it has a key; write shed="records"'):
        stream.job.graph()


def test_keys_may_be_asked_for_where_records_would_do() -> None:
    assert found(floor(rides().key_by("zone").count(), shed="keys")) == by_key("zone")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"min_accuracy": 1.5}, "min_accuracy is 1.5; it must be from 0 to 1"),
        ({"min_accuracy": 80}, "80 % is 0.8"),
        ({"min_accuracy": -0.1}, "from 0 to 1"),
        ({"min_accuracy": float("nan")}, "from 0 to 1"),
        ({"min_accuracy": True}, "from 0 to 1"),
        ({"min_accuracy": "all"}, "from 0 to 1"),
        ({"priority": 1.5}, "priority is 1.5; it must be a whole number"),
        ({"priority": True}, "whole number"),
        ({"shed": "some"}, '"auto", "records", "keys"'),
        ({"below_floor": "stop"}, '"wait", "suspend"'),
        ({"freshness": "soon"}, "not a duration"),
        ({"shed": "keys", "min_accuracy": 1.0}, "shed= is of use only"),
        ({"below_floor": "suspend", "min_accuracy": 1.0}, "below_floor= is of use only"),
        ({"freshness": "2s", "min_accuracy": 1.0}, "freshness= is of use only"),
    ],
)
def test_bad_arguments_are_refused_at_the_users_line(given: dict[str, Any], words: str) -> None:
    with pytest.raises(JobError, match=rf"^sink at .*test_shedders.py:\d+: .*{words}"):
        floor(rides(), **given)


def test_bounds_by_hand_are_checked() -> None:
    stream = rides()
    floor(stream, "tips")
    stream.sink(plait.Discard(), "all")
    graph = stream.job.graph()
    assert checked_bound(graph, "tips", 0.5) == 0
    assert checked_bound(graph, "all", None) == 1
    for query, ratio, words in (
        ("tip", 0.5, "rides has no query \"tip\"; its sinks are: 'tips', 'all'"),
        ("tips", 0.4, "tips cannot be kept at 0.4: its floor is 0.5"),
        ("all", 0.9, "all cannot be kept at 0.9: it is lossless"),
        ("tips", 2, "the share to keep is 2; it must be from 0 to 1"),
        ("tips", True, "the share to keep is True"),
    ):
        with pytest.raises(JobError, match=words):
            checked_bound(graph, query, ratio)
