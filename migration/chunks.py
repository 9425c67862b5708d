"""A plan as layouts: the next steps, each at its epoch.

Layouts are agreed on in chunks, so that a migration can be paused, slowed down or ended between
two of them. A chunk is complete in itself: every bin that it begins to copy it also switches, so
nothing is pending after its last layout. In every layout each bin has exactly one owner, and it is
a member.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

from plait.errors import InternalError
from plait.protocol.bin_maps import Copies, Owners

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.migration.plan import Move, Plan
    from plait.protocol.messages import Layout


def epochs_per_step(
    step_bytes: int,
    epoch_rate_per_s: float,
    bandwidth_bytes_per_s: float,
    throttle_bytes_per_s: float | None = None,
) -> int:
    """How many epochs a step of so many bytes may take, so that the links keep up.

    Pace by bytes, not by epochs: short epochs with a bin each ask for more than a link can carry,
    and then records wait for state.
    """
    speed = bandwidth_bytes_per_s
    if throttle_bytes_per_s is not None:
        speed = min(speed, throttle_bytes_per_s)
    return max(1, math.ceil(step_bytes / speed * epoch_rate_per_s))


def layouts(
    plan: Plan,
    start_step: int,
    steps: int,
    base: Layout,
    first_epoch: int,
    epochs_per_step: int | Sequence[int],
    ahead_epochs: int | None = None,
) -> tuple[Layout, ...]:
    """The layouts of `steps` steps from `start_step` on, the first at `first_epoch`.

    `base` is the layout in force before; the owners after the chunk are those of the last layout.
    `epochs_per_step` is the distance from a step to the next, gap included: one number for all
    steps or one for each. `ahead_epochs` is how long before its switch a bin of an optimised plan
    is copied, None for what the plan says.

    `copies` of a layout are all copies that go on then: a bin stays in it until it switches.
    """
    chosen = plan.steps[start_step : start_step + steps]
    if not chosen or first_epoch <= base.epoch:
        raise InternalError(
            f"no layouts for steps {start_step}.. of {len(plan.steps)} at epoch {first_epoch}, "
            f"the layout in force is of epoch {base.epoch}"
        )
    paces = [epochs_per_step] * len(chosen) if isinstance(epochs_per_step, int) else epochs_per_step
    if len(paces) != len(chosen) or min(paces) < 1:
        raise InternalError(f"{len(chosen)} steps cannot be paced by {paces}")
    begins = list(accumulate(paces[:-1], initial=first_epoch))
    ahead = 0
    if plan.strategy == "optimised":
        ahead = max(1, plan.ahead_epochs if ahead_epochs is None else ahead_epochs)
    return in_order(
        base,
        copied={e: s.moves for e, s in zip(begins, chosen, strict=True)} if ahead else {},
        switched={e + ahead: s.moves for e, s in zip(begins, chosen, strict=True)},
    )


def in_order(
    base: Layout, copied: dict[int, tuple[Move, ...]], switched: dict[int, tuple[Move, ...]]
) -> tuple[Layout, ...]:
    """One layout for each epoch at which something is copied or switched."""
    owners, members = Owners(base.owners), frozenset(base.members)
    present = list(base.owners)
    copies = Copies()
    found: list[Layout] = []
    for epoch in sorted(copied.keys() | switched.keys()):
        moves = switched.get(epoch, ())
        for move in moves:
            if present[move.bin] != move.source or move.target not in members:
                raise InternalError(
                    f"bin {move.bin} cannot go from node {move.source} to node {move.target} at "
                    f"epoch {epoch}: its owner is {present[move.bin]}, members {base.members}"
                )
            present[move.bin] = move.target
        if moves:
            owners = owners.changed((move.bin, move.target) for move in moves)
        ended = [(move.bin, None) for move in moves] if copied else []
        begun = [(move.bin, move.target) for move in copied.get(epoch, ())]
        if ended or begun:
            copies = copies.changed((*ended, *begun))
        found.append(
            replace(
                base,
                epoch=epoch,
                owners=owners,
                copies=copies,
                epoch_records=0,
            )
        )
    return tuple(found)
