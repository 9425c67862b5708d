"""`check(..., crash_at=)`: a job that goes on after a crash passes, one that forgets does not."""

from __future__ import annotations

from typing import Any

import pytest

from plait.testing import check, table

BIDS = table("""
    auction | price
    1       | 10
    1       | 20
    2       | 5
    1       | 7
""")


def totals(bids: Any) -> Any:
    return bids.key_by("auction").sum("price")


@pytest.mark.parametrize("crash_at", [0, 1, 2, 3, 9])
def test_a_crash_changes_nothing(crash_at: int) -> None:
    expect = [(1, 10), (1, 30), (2, 5), (1, 37)]
    check(totals, BIDS, expect=expect, workers=(2,), checkpoint=True, crash_at=crash_at)


def test_lost_state_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.execution.checkpointing.put_bins", lambda *given: 0)
    with pytest.raises(AssertionError, match="after a crash at 3"):
        check(totals, BIDS, workers=(1,), crash_at=3)


def test_a_job_that_cannot_have_checkpoints_is_refused() -> None:
    from plait import JobError

    def loop(bids: Any) -> Any:
        return bids.sum("price")

    with pytest.raises(JobError, match="order"):
        check(loop, BIDS, workers=(1,), crash_at=3, order="none")
