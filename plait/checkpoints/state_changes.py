"""What differs between the state of an operator in a checkpoint and that of the job; pure.

By themselves go: other names of the keys; aggregates that come (they begin as if they had seen
nothing; a count of records goes on with all that the key has seen) and go; values of a process that
come, go, or change from int to float. A newer version of the state goes through the user's
`migrate`. All else is refused, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plait.checkpoints.manifests import OperatorEntry, StateShape

WIDER = ("int", "float")
"""What a value of a process may change from and to."""
NO_BEGINNING = ("first", "mean")
"""Aggregates that cannot begin at a key that was seen before, unless their input may be null: then
they count what they have seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What differs: in words; whether the bytes must be made anew; or why it is refused."""

    words: tuple[str, ...] = ()
    converts: bool = False
    refused: str = ""


def changes_of(before: OperatorEntry, now: OperatorEntry) -> Changes:
    """What differs between two states of the same operator."""
    old, new = before.shape, now.shape
    if old is None or new is None:
        return by_words(before, now)
    if old.holder != new.holder or (old.holder != "aggregate" and before.kind != now.kind):
        return Changes(refused=f"its kind was {before.kind} and is {now.kind}")
    if old.key_types != new.key_types:
        return Changes(refused=f"its keys were {keys_text(old)} and are {keys_text(new)}")
    renamed = [f"key {a} is now {b}" for a, b in zip(old.keys, new.keys, strict=True) if a != b]
    if refused := version_refusal(before, now):
        return Changes(refused=refused)
    newer = [f"version {before.version} to {now.version}"] if before.version != now.version else []
    match old.holder:
        case "aggregate":
            found = aggregate_changes(old.plan["aggregates"], new.plan["aggregates"])
        case "process":
            found = value_changes(old.plan["state"], new.plan["state"], migrates=bool(newer))
        case "timed":
            found = Changes() if old.plan == new.plan else by_words(before, now)
        case _:
            found = type_changes(old.plan.get("type"), new.plan.get("type"), migrates=bool(newer))
    if found.refused:
        return found
    words = (*renamed, *newer, *found.words)
    return Changes(words=words, converts=found.converts or bool(newer))


def by_words(before: OperatorEntry, now: OperatorEntry) -> Changes:
    """Of state of which no more is known than what the fingerprint says."""
    if before.kind != now.kind:
        return Changes(refused=f"its kind was {before.kind} and is {now.kind}")
    if before.fingerprint != now.fingerprint:
        return Changes(refused=f"its state was [{before.fingerprint}] and is [{now.fingerprint}]")
    return Changes()


def version_refusal(before: OperatorEntry, now: OperatorEntry) -> str:
    if now.version < before.version:
        return f"its state has version {before.version}, and the job knows version {now.version}"
    if now.version > before.version and not now.migrates:
        return (
            f"its state has version {before.version} and the job version {now.version}; give it a"
            " migrate(old, version) that returns the new state"
        )
    return ""


def keys_text(shape: StateShape) -> str:
    pairs = zip(shape.keys, shape.key_types, strict=True)
    return ", ".join(f"{name} {kind}" for name, kind in pairs) or "none"


def aggregate_sources(before: list[list[Any]], now: list[list[Any]]) -> list[int]:
    """Of each aggregate: the number of the same one before, or -1. It is the same if name, kind and
    type are, and whether its input may be null."""
    known = {facts(each): number for number, each in enumerate(before)}
    return [known.get(facts(each), -1) for each in now]


def facts(aggregate: list[Any]) -> tuple[Any, ...]:
    name, kind, input, over, nullable = aggregate
    return name, kind, input >= 0, over, nullable


def aggregate_changes(before: list[list[Any]], now: list[list[Any]]) -> Changes:
    source = aggregate_sources(before, now)
    added = [each for each, number in zip(now, source, strict=True) if number < 0]
    for name, kind, _, over, nullable in added:
        if kind in NO_BEGINNING and not nullable and over not in ("string", "bytes", "object"):
            instead = "sum and count" if kind == "mean" else "min or last"
            return Changes(
                refused=f"{name} is new, and the {kind} of keys that were seen before cannot begin"
                f" in the middle; take {instead}"
            )
    gone = [each[0] for number, each in enumerate(before) if number not in source]
    words = (
        *(f"{each[0]} is new" for each in added),
        *(f"{name} is gone" for name in gone if name not in [each[0] for each in added]),
    )
    unchanged = source == list(range(len(before)))
    return Changes(words=words, converts=not unchanged)


def value_changes(before: dict[str, str], now: dict[str, str], *, migrates: bool) -> Changes:
    words = [f"{name} is new" for name in now if name not in before]
    words += [f"{name} is gone" for name in before if name not in now]
    for name, kind in now.items():
        old = before.get(name, kind)
        if old == kind:
            continue
        if (old, kind) != WIDER and not migrates:
            return Changes(
                refused=f"{name} was {old} and is {kind}; raise `version` and write a"
                " migrate(self, old, version) that returns the new values"
            )
        words.append(f"{name} was {old} and is {kind}")
    return Changes(words=tuple(words), converts=list(before.items()) != list(now.items()))


def type_changes(before: Any, now: Any, *, migrates: bool) -> Changes:
    """Of a state whose type is declared; None: it is not, and was written as a pickle."""
    if before == now or before is None or migrates:
        return Changes()
    if now is None:
        if not has_class(before):
            return Changes()
        return Changes(
            refused=f"its state was declared to be {type_text(before)} and its type is not declared"
            " any more; declare it, or raise version= and give migrate="
        )
    words: list[str] = []
    if reads(before, now, words):
        return Changes(words=tuple(words))
    return Changes(
        refused=f"its state was {type_text(before)} and is {type_text(now)}"
        f"{': ' + words[-1] if words else ''}; raise version= and give migrate=, a function of the"
        " old state and its version"
    )


def reads(before: Any, now: Any, words: list[str]) -> bool:
    """Whether values of one type can be read as another; `words` says what is different."""
    if before == now or (before, now) == WIDER:
        return True
    if isinstance(now, list) and now[0] == "maybe":
        inner = before[1] if isinstance(before, list) and before[0] == "maybe" else before
        return reads(inner, now[1], words)
    if isinstance(before, str) or isinstance(now, str) or before[0] != now[0]:
        return False
    if before[0] != "class":
        pairs = zip(before[1:], now[1:], strict=False)
        return len(before) == len(now) and all(reads(a, b, words) for a, b in pairs)
    return reads_class(before[2], now[2], words)


def reads_class(before: list[Any], now: list[Any], words: list[str]) -> bool:
    old = {name: found for name, found, _ in before}
    names = [name for name, _, _ in now]
    words += [f"{name} is gone" for name in old if name not in names]
    for name, found, has_default in now:
        if name not in old:
            words.append(f"{name} is new" + ("" if has_default else " and has no default"))
            if not has_default:
                return False
        elif not reads(old[name], found, words):
            words.append(f"{name} was {type_text(old[name])} and is {type_text(found)}")
            return False
    return True


def has_class(found: Any) -> bool:
    if isinstance(found, str):
        return False
    return found[0] == "class" or any(has_class(part) for part in found[1:])


def type_text(found: Any) -> str:
    """A type as it is written in Python."""
    if isinstance(found, str):
        return found
    kind, *parts = found
    if kind == "maybe":
        return f"{type_text(parts[0])} | None"
    if kind == "class":
        return str(parts[0])
    more = ", ..." if kind == "tuples" else ""
    return f"{kind.removesuffix('s')}[{', '.join(map(type_text, parts))}{more}]"
