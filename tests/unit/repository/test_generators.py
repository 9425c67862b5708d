"""The data sets of the benchmarks: reproducible, of the right proportions, with hot keys."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
import xxhash

from benchmarks.feed.schedule import Schedule
from benchmarks.knn import native as knn
from benchmarks.knn.schema import COORDINATES
from benchmarks.knn.schema import Shape as KnnShape
from benchmarks.nexmark import native as nexmark
from benchmarks.nexmark.schema import Shape
from benchmarks.support.draws import PRICES, NumpyDraws, hashed
from benchmarks.taxi import native as taxi
from benchmarks.taxi.schema import Shape as TaxiShape
from benchmarks.tpcxbb import native as tpcxbb
from benchmarks.tpcxbb.schema import Shape as ShopShape
from plait.connectors import spark_java

EVENTS = 50_000


@pytest.fixture(scope="module")
def site() -> dict[str, Any]:
    return nexmark.tables(Shape(events=EVENTS, events_per_s=1000))


@pytest.fixture(scope="module")
def shop() -> dict[str, Any]:
    return tpcxbb.tables(ShopShape(clicks=20_000, tickets=4_000, clicks_per_s=1, tickets_per_s=1))


def column(table: Any, name: str) -> Any:
    values = table[name]
    return (values.cast("int64") if name in ("ts", "expires") else values).to_numpy()


@pytest.mark.parametrize("begun", [0, 42, 2**64 - 1])
def test_a_hash_is_xxhash(begun: int) -> None:
    words = np.array([0, 1, 2**63, 2**64 - 1], np.uint64)
    wanted = [xxhash.xxh64_intdigest(word.tobytes(), begun) for word in words]
    assert hashed(words, np.uint64(begun)).tolist() == wanted


def test_draws_fill_their_range_evenly() -> None:
    counts = Counter(NumpyDraws(1).draw(2, np.arange(100_000), 10).tolist())
    assert set(counts) == set(range(10))
    assert max(counts.values()) < 1.05 * min(counts.values())


def test_prices_are_as_likely_in_every_power_of_ten() -> None:
    prices = NumpyDraws(1).price(np.arange(PRICES))
    assert prices.min() == 100
    assert prices.max() <= 10**8
    powers = Counter(np.floor(np.log10(prices)).astype(int).tolist())
    assert max(powers[power] for power in range(2, 8)) < 1.01 * PRICES / 6


@pytest.mark.parametrize("events", [0, 1, 3, 4, 5, 49, 50, 51, 1234])
def test_the_streams_together_are_all_events(events: int) -> None:
    shape = Shape(events=events)
    kinds = [number % 50 for number in range(events)]
    assert shape.rows("persons") == sum(kind == 0 for kind in kinds)
    assert shape.rows("auctions") == sum(1 <= kind <= 3 for kind in kinds)
    assert shape.rows("bids") == sum(kind > 3 for kind in kinds)
    assert all(
        nexmark.table(stream, shape).num_rows == shape.rows(stream)
        for stream in ("persons", "auctions", "bids")
    )


def test_the_same_seed_gives_the_same_rows_and_a_longer_run_goes_on() -> None:
    short, again = (nexmark.tables(Shape(events=5_000)) for _ in range(2))
    longer, other = nexmark.tables(Shape(events=200_000)), nexmark.tables(Shape(seed=8, events=500))
    for stream, table in short.items():
        assert table == again[stream]
        assert table == longer[stream].slice(0, table.num_rows)
        assert other[stream] != table.slice(0, other[stream].num_rows)


def test_times_go_up_and_auctions_end_after_they_begin(site: dict[str, Any]) -> None:
    for table in site.values():
        assert (np.diff(column(table, "ts")) >= 0).all()
    ts, expires = (column(site["auctions"], name) for name in ("ts", "expires"))
    assert (expires > ts).all()
    open_at_once = (expires - ts).sum() / (ts[-1] - ts[0])
    assert 80 < open_at_once < 120


def test_times_out_of_order_stay_within_the_bound() -> None:
    ordered = nexmark.table("bids", Shape(events=EVENTS))
    shaken = nexmark.table("bids", Shape(events=EVENTS, out_of_order_us=200_000))
    back = column(ordered, "ts") - column(shaken, "ts")
    assert back.min() >= 0
    assert 190_000 < back.max() <= 200_000
    assert (np.diff(column(shaken, "ts")) < 0).any()
    assert ordered.drop_columns("ts") == shaken.drop_columns("ts")


def test_few_auctions_bidders_and_sellers_are_hot(site: dict[str, Any]) -> None:
    bids, auctions = site["bids"], site["auctions"]
    hot = (column(bids, "auction") % 100 == 0).mean()
    assert 0.49 < hot < 0.53
    assert 0.73 < (column(bids, "bidder") % 100 == 1).mean() < 0.78
    assert 0.73 < (column(auctions, "seller") % 100 == 0).mean() < 0.78


def test_bids_are_for_auctions_that_are_there_or_about_to_come(site: dict[str, Any]) -> None:
    auction = column(site["bids"], "auction") - 1000
    newest = np.arange(len(auction)) // 46 * 3 + 2
    assert (auction >= 0).all()
    assert (auction <= newest + 10).all()
    assert (auction >= newest - 100).all()


def test_categories_and_states_are_what_the_queries_ask_for(site: dict[str, Any]) -> None:
    assert set(pc.unique(site["auctions"]["category"]).to_pylist()) == {10, 11, 12, 13, 14}
    assert {"OR", "ID", "CA"} < set(pc.unique(site["persons"]["state"]).to_pylist())


def test_the_lines_of_a_sale_are_together(shop: dict[str, Any]) -> None:
    sales = shop["sales"]
    tickets = column(sales, "ticket")
    assert (np.diff(tickets) >= 0).all()
    assert set(tickets.tolist()) == set(range(4_000))
    sizes = Counter(Counter(tickets.tolist()).values())
    assert set(sizes) == set(range(1, 9))
    same = np.diff(tickets) == 0
    for name in ("ts", "store", "customer"):
        assert (np.diff(column(sales, name))[same] == 0).all()


def test_an_item_has_one_price(shop: dict[str, Any]) -> None:
    of_item = dict(
        zip(*(shop["items"][name].to_pylist() for name in ("item", "price")), strict=True)
    )
    sold = zip(*(shop["sales"][name].to_pylist() for name in ("item", "price")), strict=True)
    assert all(of_item[item] == price for item, price in sold)


def test_some_items_are_popular(shop: dict[str, Any]) -> None:
    for table in (shop["sales"], shop["clicks"]):
        item = column(table, "item")
        assert set(item.tolist()) <= set(range(1, 1001))
        assert 0.48 < (item <= 10).mean() < 0.54


def test_clicks_come_in_visits(shop: dict[str, Any]) -> None:
    clicks = shop["clicks"]
    assert 0.04 < clicks["user"].null_count / clicks.num_rows < 0.06
    of_user: dict[int, list[int]] = {}
    for user, ts in zip(clicks["user"].to_pylist(), column(clicks, "ts").tolist(), strict=True):
        if user is not None:
            of_user.setdefault(user, []).append(ts)
    gaps = [b - a for times in of_user.values() for a, b in itertools.pairwise(times)]
    hour = 3_600_000_000
    assert sum(gap < hour for gap in gaps) > 0.9 * len(gaps)
    assert any(gap >= hour for gap in gaps)
    sessions = len(of_user) + sum(gap >= hour for gap in gaps)
    assert 8 < 0.95 * clicks.num_rows / sessions < 24


def test_the_version_of_java_is_read() -> None:
    assert spark_java.version_in('openjdk version "17.0.15" 2025-04-15') == 17
    assert spark_java.version_in('java version "1.8.0_402"') == 1
    assert spark_java.version_in("what?") == 0
    assert spark_java.version_of(Path("/nowhere/java")) == 0


def fake_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = -version ]; then echo \'openjdk version "{version}"\' >&2\n'
        'else for one; do echo "$one"; done; fi\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    return program


def test_javas_own_folder_comes_before_the_path(tmp_path: Path) -> None:
    fake_java(tmp_path / "a", "21.0.1")
    fake_java(tmp_path / "b", "17.0.2")
    given = {"JAVA_HOME": str(tmp_path / "a"), "PATH": str(tmp_path / "b" / "bin")}
    assert spark_java.java_home(tmp_path, given) == tmp_path / "a"
    assert spark_java.java_home(tmp_path, {"PATH": given["PATH"]}) == tmp_path / "b"


def test_an_old_java_is_passed_over(tmp_path: Path) -> None:
    fake_java(tmp_path / "a", "11.0.1")
    fake_java(tmp_path / "b", "17.0.2")
    given = {"JAVA_HOME": str(tmp_path / "a"), "PATH": str(tmp_path / "b" / "bin")}
    assert spark_java.java_home(tmp_path, given) == tmp_path / "b"


def test_a_packaged_java_is_started_without_the_argument_it_does_not_know(tmp_path: Path) -> None:
    program = fake_java(tmp_path / "packaged", "25.0.2")
    home = spark_java.scripted(program, tmp_path / "scripts")
    given = ["-a b", "--add-modules=jdk.incubator.vector", "", "--add-modules=x", "$c"]
    done = subprocess.run(
        [home / "bin" / "java", *given], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.split("\n")[:-1] == ["-a b", "", "--add-modules=x", "$c"]


@pytest.fixture(scope="module")
def taxis() -> dict[str, Any]:
    return taxi.tables(TaxiShape(events=60_000, rides_per_day=20_000))


def test_every_ride_that_ends_has_begun_and_has_a_fare(taxis: dict[str, Any]) -> None:
    rides, fares = taxis["rides"], taxis["fares"]
    number, ts = column(rides, "ride"), column(rides, "ts")
    starts = rides["starts"].to_numpy()
    began = dict(zip(number[starts].tolist(), ts[starts].tolist(), strict=True))
    assert sorted(began) == list(range(len(began)))
    ended = number[~starts]
    assert len(set(ended.tolist())) == len(ended) == fares.num_rows
    minutes = [(at - began[n]) / 60e6 for n, at in zip(ended, ts[~starts], strict=True)]
    assert min(minutes) > 1
    assert 10 < np.mean(minutes) < 30
    assert (column(fares, "ride") == ended).all()
    assert (column(fares, "ts") == ts[~starts]).all()
    cash = pc.equal(fares["payment"], "cash").to_numpy()
    assert 0.32 < cash.mean() < 0.35
    assert not column(fares, "tip")[cash].any()


def test_rides_come_nearly_in_order_and_most_in_the_evening(taxis: dict[str, Any]) -> None:
    ts = column(taxis["rides"], "ts")
    back = np.maximum.accumulate(ts) - ts
    assert 50e6 < back.max() <= 60e6
    first_day = ts[ts < TaxiShape().start_us + 86_400_000_000]
    hours = Counter((first_day // 3_600_000_000 % 24 // 3).tolist())
    assert max(hours, key=lambda period: hours[period]) == 6
    assert hours[6] > 4 * hours[1]


def test_few_zones_and_drivers_have_most_rides(taxis: dict[str, Any]) -> None:
    for name, places in (("zone", 1000), ("driver", 10_000)):
        counts = np.sort(np.bincount(column(taxis["rides"], name), minlength=places))
        assert counts[-places // 100 :].sum() > 0.3 * counts.sum()


def test_points_lie_around_the_centre_of_their_cluster() -> None:
    shape = KnnShape(events=4_000, references=3_000)
    tables = knn.tables(shape)
    points, known = (
        np.stack([tables[stream][name].to_numpy() for name in COORDINATES])
        for stream in ("points", "references")
    )
    assert points.shape == (8, 4_000)
    assert known.shape == (8, 3_000)
    for values in (points, known):
        assert (values * 256 % 1 == 0).all()
        assert values.min() >= -shape.spread
        assert values.max() <= 32 + shape.spread
    labels = tables["references"]["label"].to_numpy()
    assert set(labels.tolist()) == set(range(shape.clusters))
    centres = np.stack([known[:, labels == n].mean(axis=1) for n in range(shape.clusters)])
    away = np.abs(known - centres[labels].T)
    assert away.max() < shape.spread * 1.2
    # The points to classify have the same centres.
    nearest = np.abs(points.T[:, None, :] - centres[None]).max(axis=2).min(axis=1)
    assert nearest.max() < shape.spread * 1.2


def test_more_points_go_on_and_known_ones_stay() -> None:
    short, longer = (knn.tables(KnnShape(events=events)) for events in (1_000, 40_000))
    assert short["points"] == longer["points"].slice(0, 1_000)
    assert short["references"] == longer["references"]
    assert short["references"]["a"][:1_000] != short["points"]["a"]
    assert (np.diff(column(longer["points"], "ts")) >= 0).all()


def test_a_schedule_says_what_is_due() -> None:
    steps = Schedule.parse("0:10,5:0,10:100", seconds=12)
    assert [steps.due(at) for at in (0, 1, 5, 9, 11, 12, 50)] == [0, 10, 50, 50, 150, 250, 250]
    assert Schedule.parse("250", seconds=4).due(4) == 1000
    for text in ("fast", "5:10", "0:1,0:2", "0:-1"):
        with pytest.raises(ValueError, match=text):
            Schedule.parse(text, seconds=1)
