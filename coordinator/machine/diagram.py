"""The table of transitions as Mermaid diagrams, for docs/coordinator.md; a test compares the two.

One diagram for each part of a job's life, with the steps that begin in it: the whole in one would
be a tangle of 45 waits.

>>> print(draw("start").splitlines()[2])
  [*] --> start_place: submit
"""

from __future__ import annotations

from plait.coordinator.machine.transitions import (
    BEGUN,
    ENDINGS,
    NEW,
    RETURNS,
    SAVED,
    TABLE,
    UNDER_WAY,
    WAITS,
    WITH_STATE,
)

PARTS = {
    "start": (NEW, "start_place", "start_make", "start_prepare", "start_begin"),
    "join": tuple(name for name in WAITS if name.startswith(("quiet", "measure", "join_"))),
    "move": tuple(name for name in WAITS if name.startswith(("ready_", "chunk_"))),
    "leave": tuple(name for name in WAITS if name.startswith("leave_")),
    "keep": tuple(name for name in WAITS if name.startswith("keep_")),
    "save": tuple(name for name in WAITS if name.startswith("save_")),
    "stop": tuple(name for name in WAITS if name.startswith(("stop_", "drop_"))),
    "restore": tuple(name for name in WAITS if name.startswith("restore_")),
    "end": ("over_end",),
}
"""The diagrams, and the waits whose steps they show."""
GROUPS = {
    UNDER_WAY: "any_wait",
    BEGUN: "any_wait_once_begun",
    WITH_STATE: "any_wait_since_the_start",
    SAVED: "any_wait_of_a_running_job",
    (*SAVED, "restore_survey"): "any_wait_for_a_store",
}


def draw(part: str) -> str:
    """A diagram of PARTS, as the text of a Mermaid block."""
    edges: dict[tuple[str, str], list[str]] = {}
    if part == "end":
        for cause, waits in ENDINGS.items():
            edges.setdefault((GROUPS[waits], "over_end"), []).append(cause)
    if part == "restore":
        for cause, waits in RETURNS.items():
            edges.setdefault((GROUPS[waits], "restore_halt"), []).append(cause)
    for before, cause, afters in TABLE:
        for after in afters.split() if before in PARTS[part] else ():
            edges.setdefault((before, after), []).append(cause)
    lines = [
        f"  {'[*]' if before == NEW else before} --> {after}: {', '.join(causes)}"
        for (before, after), causes in edges.items()
    ]
    if part == "end":
        lines.append("  over --> [*]")
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def list_waits() -> str:
    """What a job waits for in each wait, as a Markdown table."""
    rows = [f"| `{name}` | {what} |" for name, what in WAITS.items()]
    return "\n".join(["| wait | for |", "| --- | --- |", *rows])
