"""What a node measures of itself."""

from __future__ import annotations

import pytest

from plait.node_runtime.host.node_facts import Pace


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in a list of one."""
    now = [100.0]
    monkeypatch.setattr("plait.node_runtime.host.node_facts.time.monotonic", lambda: now[0])
    return now


def test_a_node_that_joins_late_is_not_fast(clock: list[float]) -> None:
    """The epoch goes from none to that of the others; the pace is that of the sources from then."""
    pace = Pace()
    clock[0] += 0.3
    assert pace.epochs_per_s(0) == 0.0
    clock[0] += 0.06
    assert pace.epochs_per_s(441_966) == 0.0
    clock[0] += 0.5
    assert pace.epochs_per_s(442_222) == 512.0
    clock[0] += 0.5
    assert pace.epochs_per_s(442_478) == 512.0


def test_looks_that_follow_at_once_are_of_one_measurement(clock: list[float]) -> None:
    pace = Pace()
    for epoch in (0, 50, 100):
        clock[0] += 0.5
        pace.note(epoch)
    clock[0] += 0.01
    assert pace.epochs_per_s(120) == 100.0
