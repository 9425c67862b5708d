"""Plots of figures: groups of bars, one panel beside the other. Drawn without a screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Panel = tuple[str, str, Mapping[str, Mapping[str, float]]]
    """A title, what the height means, and bars by label in each group."""


LOG_FROM = 30
"""Where the highest bar or point is so many times the lowest, a linear scale would hide the low
ones."""


def bars(file: str, panels: Sequence[Panel]) -> None:
    """Writes one panel for each (title, unit, group -> bar -> value). Panels of one unit have the
    same kind of scale, and panels of the same bars one legend."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(max(6.4, 5.5 * len(panels)), 4.6), squeeze=False
    )
    named = [tuple(labels_of(groups)) for _, _, groups in panels]
    shared = len(panels) > 1 and len(set(named)) == 1
    log = {unit for _, unit, groups in panels if needs_log(groups)}
    for axis, (title, unit, groups) in zip(axes[0], panels, strict=True):
        labels = labels_of(groups)
        width = 0.8 / len(labels)
        for i, label in enumerate(labels):
            places = [g + (i - (len(labels) - 1) / 2) * width for g in range(len(groups))]
            heights = [group.get(label, 0.0) for group in groups.values()]
            axis.bar(places, heights, width * 0.92, label=label.replace("_", " "))
        axis.set_xticks(range(len(groups)), list(groups))
        axis.set_title(title, fontsize=11)
        axis.set_ylabel(unit)
        axis.grid(axis="y", alpha=0.3)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
        if unit in log:
            axis.set_yscale("log")
        if not shared:
            axis.legend(
                fontsize=8, frameon=False, ncol=3, loc="upper center", bbox_to_anchor=(0.5, -0.08)
            )
    if shared:
        handles, words = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, words, frameon=False, ncol=min(10, len(words)), loc="lower center")
    figure.tight_layout(rect=(0, 0.06 if shared else 0, 1, 1))
    figure.savefig(file, dpi=150)
    pyplot.close(figure)


def labels_of(groups: Mapping[str, Mapping[str, float]]) -> list[str]:
    return list(dict.fromkeys(label for group in groups.values() for label in group))


def needs_log(groups: Mapping[str, Mapping[str, float]]) -> bool:
    values = [value for group in groups.values() for value in group.values() if value > 0]
    return bool(values) and max(values) > LOG_FROM * min(values)


def timelines(file: str, panels: Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]) -> None:
    """One panel for each group: the worst latency of every window, by the time from the start."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(5.5 * columns, 3.8 * rows), squeeze=False
    )
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, (title, lines) in zip(axes.flat, panels.items(), strict=False):
        for label, points in lines.items():
            shown = [point for point in points if point["max_ms"] > 0]
            axis.plot(
                [point["at_s"] for point in shown],
                [point["max_ms"] for point in shown],
                label=label.replace("_", " "),
                linewidth=1.3,
            )
        axis.set_yscale("log")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("seconds from the start of the migration")
        axis.set_ylabel("worst latency, ms")
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(file, dpi=150)
    pyplot.close(figure)


def over_time(
    file: str,
    panels: Mapping[
        str, tuple[Sequence[Mapping[str, float]], Mapping[str, str], Mapping[str, str]]
    ],
) -> None:
    """One panel for each title: lines by the axis on the left, steps by the axis on the right; what
    a field means is its label."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(panels), figsize=(5.5 * len(panels), 4.2), squeeze=False)
    for axis, (title, (points, lines, steps)) in zip(axes[0], panels.items(), strict=True):
        times = [point["at_s"] for point in points]
        for field, label in lines.items():
            axis.plot(times, [point[field] for point in points], label=label, linewidth=1.2)
        values = [point[field] for point in points for field in lines if point[field] > 0]
        if values and max(values) > LOG_FROM * min(values):
            axis.set_yscale("log")
        else:
            axis.set_ylim(bottom=0)
        axis.set_ylabel(", ".join(lines.values()))
        axis.set_xlabel("seconds")
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.3)
        other = axis.twinx()
        for field, label in steps.items():
            heights = [point[field] for point in points]
            other.step(times, heights, where="pre", color="tab:red", linewidth=1.4, label=label)
            other.set_ylim(0, max([1, *heights]) + 1)
        other.set_ylabel(", ".join(steps.values()), color="tab:red")
        other.yaxis.get_major_locator().set_params(integer=True)
    figure.tight_layout()
    figure.savefig(file, dpi=150)
    pyplot.close(figure)


def curves(
    file: str,
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
    across: str,
    up: str,
) -> None:
    """One panel for each title, with a line for each label; all have one scale."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(5.5 * len(panels), 4.0), squeeze=False, sharey=True
    )
    for axis, (title, lines) in zip(axes[0], panels.items(), strict=True):
        for label, points in lines.items():
            axis.plot(*zip(*points, strict=True), label=label, linewidth=1.4)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel(across)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(fontsize=8, frameon=False)
    axes[0][0].set_ylabel(up)
    axes[0][0].set_ylim(bottom=0)  # of all: when every line is drawn
    figure.tight_layout()
    figure.savefig(file, dpi=150)
    pyplot.close(figure)
