"""What every query of a job gets, from a view and what was decided about it; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.protocol.quality import QualityPoint, QueryQuality, state_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.shedding.view import Decision, View


def query_qualities(
    view: View,
    decision: Decision,
    job: int,
    *,
    measured: Mapping[str, float],
    overall: Mapping[str, float],
    before: Mapping[str, QueryQuality],
) -> tuple[QueryQuality, ...]:
    """The queries of a job, by its number in the view. `measured` and `overall` are accuracies by
    label; `before` is what was said the last time, whose reasons hold until there are new ones."""
    queries, name = view.queries, view.jobs[job]
    alerts = {one.query for one in decision.alerts if one.job == name}
    reasons = {one.query: one.because for one in decision.reasons if one.job == name}
    found: list[QueryQuality] = []
    for row, owner in enumerate(queries.job.tolist()):
        if owner != job:
            continue
        label = queries.label[row]
        asked, floor = float(decision.keep[row]), float(queries.floor[row])
        old = before.get(label)
        found.append(
            QueryQuality(
                query=label,
                priority=int(queries.priority[row]),
                floor=floor,
                asked=asked,
                measured=measured.get(label, 1.0),
                overall=overall.get(label, 1.0),
                lag_s=float(decision.lag_s[row]),
                freshness_s=float(queries.freshness_s[row]),
                state=state_of(
                    asked, floor, alert=label in alerts, suspended=bool(queries.suspends[row])
                ),
                reason=reasons.get(label, old.reason if old is not None else ""),
            )
        )
    return tuple(found)


def points_of(at_s: float, queries: Sequence[QueryQuality]) -> tuple[QualityPoint, ...]:
    """What they get, as points of a line over time."""
    return tuple(
        QualityPoint(
            at_s=at_s,
            query=one.query,
            asked=one.asked,
            measured=one.measured,
            lag_s=one.lag_s,
            state=one.state,
        )
        for one in queries
    )
