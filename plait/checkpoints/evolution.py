"""Whether a job can go on from a checkpoint that another version of it took; pure.

Operators are compared by their stable ids. One that both have must keep the same state, or state
that can be made from the old one (`state_changes`); a new one begins empty; one that is gone is
refused unless it is named in `drop`, since its state would be lost. Functions may change: that is
told, never refused.

    >>> from plait.checkpoints.manifests import OperatorEntry
    >>> saved = (OperatorEntry(id="count(user)", kind="aggregate"),)
    >>> compare_operators(saved, (), drop=("count(user)",)).table()
    'operator     state\\ncount(user)  dropped'
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from plait.checkpoints.state_changes import changes_of
from plait.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from plait.checkpoints.manifests import OperatorEntry

Fate = Literal["same", "converted", "new", "dropped", "gone", "changed"]
WORDS: dict[Fate, str] = {
    "same": "restored",
    "converted": "restored",
    "new": "new: begins empty",
    "dropped": "dropped",
    "gone": "gone: refused",
    "changed": "changed: refused",
}
REFUSED = ("gone", "changed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What happens to the state of one operator, and why."""

    id: str
    fate: Fate
    reason: str = ""
    functions_changed: bool = False
    source: str = ""
    """The id under which its state is kept; empty: it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What happens to the state of all operators: those of the job in its order, then others."""

    verdicts: tuple[Verdict, ...]
    not_dropped: tuple[str, ...] = ()
    """What `drop` names in vain, a sentence each."""

    @property
    def sources(self) -> dict[str, str]:
        """Of each operator whose state is read: the id under which it is kept."""
        return {each.id: each.source for each in self.verdicts if each.source}

    @property
    def refused(self) -> tuple[Verdict, ...]:
        return tuple(each for each in self.verdicts if each.fate in REFUSED)

    @property
    def told(self) -> tuple[str, ...]:
        """What a user should know though nothing is wrong, one sentence each."""
        changed = [
            f"the functions of {each.id} have changed since the checkpoint; its state is kept"
            for each in self.verdicts
            if each.functions_changed
        ]
        made = [
            f"the state of {each.id} is made anew: {each.reason}"
            for each in self.verdicts
            if each.fate == "converted"
        ]
        return (*changed, *made, *self.not_dropped)

    def table(self) -> str:
        """A line for each operator."""
        rows = [("operator", "state"), *((each.id, line(each)) for each in self.verdicts)]
        width = max(len(id) for id, _ in rows)
        return "\n".join(f"{id:<{width}}  {text}" for id, text in rows)

    def check(self) -> None:
        """Raises a StateError that names all that is refused."""
        if self.refused:
            reasons = "\n".join(f"  {each.id}: {each.reason}" for each in self.refused)
            raise StateError(f"the job cannot go on from this checkpoint:\n{reasons}")


def line(verdict: Verdict) -> str:
    told = ["functions changed"] if verdict.functions_changed else []
    reasons = [verdict.reason] if verdict.reason else []
    more = "; ".join((*told, *reasons))
    return f"{WORDS[verdict.fate]} ({more})" if more else WORDS[verdict.fate]


def compare_operators(
    saved: Sequence[OperatorEntry], now: Sequence[OperatorEntry], drop: Iterable[str] = ()
) -> Comparison:
    """Compares the operators of a manifest with those of the job that is to go on from it. `drop`
    gives up only what the job cannot go on with: a job that is started again with the same words
    keeps what it has made since."""
    dropped = frozenset(drop)
    before = {each.id: each for each in saved}
    present = {each.id for each in now}
    # An operator that has the new id in the checkpoint took the old state over in an earlier run.
    renamed = {
        each.id: each.was
        for each in now
        if each.was in before and each.id not in before and each.was not in present
    }
    verdicts = [
        verdict_on(before.get(renamed.get(each.id, each.id)), each, each.id in dropped)
        for each in now
    ]
    taken = set(renamed.values())
    for each in saved:
        if each.id in present or each.id in taken:
            continue
        if each.id in dropped:
            verdicts.append(Verdict(id=each.id, fate="dropped"))
            continue
        reason = (
            f"the job has no such operator, so its state would be lost; give it back, let another"
            f' one take it with .named("...", was="{each.id}"), or let it go with'
            f' plait.Checkpoint(..., drop=("{each.id}",)) or --drop "{each.id}"'
        )
        verdicts.append(Verdict(id=each.id, fate="gone", reason=reason))
    given_up = {each.id for each in verdicts if each.fate == "dropped" or not each.source}
    not_dropped = tuple(
        f"drop: the state of {id} is kept, since the job goes on with it"
        if id in present
        else f"drop: the checkpoint has no state of {id}"
        for id in sorted(dropped - given_up)
    )
    return Comparison(verdicts=tuple(verdicts), not_dropped=not_dropped)


def verdict_on(before: OperatorEntry | None, now: OperatorEntry, dropped: bool) -> Verdict:
    if before is None:
        return Verdict(id=now.id, fate="new")
    functions = before.functions != now.functions
    changes = changes_of(before, now)
    if changes.refused and dropped:
        return Verdict(id=now.id, fate="new", reason="its old state is dropped")
    if changes.refused:
        advice = (
            "name it anew with .named(...) to begin empty, or let the old state go with"
            f' plait.Checkpoint(..., drop=("{now.id}",)) or --drop "{now.id}"'
        )
        reason = f"{changes.refused}; {advice}"
        return Verdict(id=now.id, fate="changed", reason=reason, functions_changed=functions)
    words = ", ".join(changes.words)
    if before.id != now.id:
        words = ", ".join(filter(None, (f"from {before.id}", words)))
    return Verdict(
        id=now.id,
        fate="converted" if changes.converts else "same",
        reason=words,
        functions_changed=functions,
        source=before.id,
    )
