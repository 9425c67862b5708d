"""The soak: many rescales on a real Ray, and what it would say if something grew."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak.__main__ import right_answer
from tests.soak.growth import OWN_LIMITS, RAY_LIMITS, Sample, growth, kind_of, slope, slopes

ROOT = Path(__file__).resolve().parents[2]
EVERY = 6
"""Rescales between two samples; four nodes end in them."""


def samples(leak: float = 0.0, warm_up_kb: float = 0.0) -> list[Sample]:
    """Of two hundred rescales, with noise, and so many times more than is allowed."""

    def figure(start: float, name: str, n: int, count: int) -> float:
        noise = (n * 7919 % 13 - 6) * (300.0 if name.endswith("kb") else 0.0)
        limit = OWN_LIMITS.get(name) or RAY_LIMITS[name]
        warm = min(n, 12) / 12 * warm_up_kb if name.endswith("kb") else 0.0
        return start + warm + noise + leak * limit * count

    return [
        Sample(
            rescales=EVERY * n,
            ended=4 * n,
            processes=round(figure(10, "processes", n, EVERY * n)),
            files=round(figure(440, "files", n, EVERY * n)),
            manager_kb=figure(80e3, "manager_kb", n, 4 * n),
            sinks_kb=figure(100e3, "sinks_kb", n, EVERY * n),
            gcs_kb=figure(60e3, "gcs_kb", n, 4 * n),
            raylet_kb=figure(40e3, "raylet_kb", n, 4 * n),
            ray_rest_kb=figure(300e3, "ray_rest_kb", n, 4 * n),
        )
        for n in range(34)
    ]


def test_what_is_flat_does_not_grow() -> None:
    assert growth(samples()) == []


def test_what_warms_up_does_not_grow() -> None:
    assert growth(samples(warm_up_kb=40e3)) == []


def test_a_leak_is_seen() -> None:
    """Of a little more than is allowed, in spite of the noise."""
    assert [one.split()[0] for one in growth(samples(leak=1.5))] == [*OWN_LIMITS, *RAY_LIMITS]


def test_what_is_allowed_is_told_and_not_wrong() -> None:
    some = samples(leak=0.5)
    assert growth(some) == []
    assert slopes(some)["sinks_kb"] == pytest.approx(OWN_LIMITS["sinks_kb"] / 2, rel=0.5)


def test_a_slope_does_not_follow_what_is_far_off() -> None:
    assert slope([(0, 0), (1, 2), (2, 4), (3, 600), (4, 8)]) == 2.0
    assert slope([(1, 1)]) == 0.0


def test_processes_are_told_apart() -> None:
    commands = {
        "ray::RayManager": "manager",
        "ray::RayNode.apply": "node",
        "/x/ray/core/src/ray/gcs/gcs_server --log_dir=/tmp": "gcs",
        "/x/ray/core/src/ray/raylet/raylet --raylet_socket_name=/tmp": "raylet",
        "/x/bin/python -u /x/ray/_private/log_monitor.py": "ray_rest",
        "ray::IDLE": "ray_rest",
    }
    assert {command: kind_of(command) for command in commands} == commands


def test_the_right_answer_depends_on_every_record() -> None:
    rows, *digests = right_answer(1000)
    assert rows == 1000
    assert not set(digests) & set(right_answer(1001)[1:])


@pytest.mark.integration
@pytest.mark.slow
def test_two_hundred_rescales_under_load() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak", "--rescales", "200"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"rescales": 200' in done.stdout
    assert "right and flat" in done.stdout
