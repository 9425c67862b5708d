"""Random jobs with operators that have their own loop, among all other operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait.model.schema import Type
from plait.testing.random_jobs.loop_operators import mix, pair, pass_some
from plait.testing.random_jobs.temporal import TimedDrawer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hypothesis.strategies import SearchStrategy

    from plait.graph.operators import Graph
    from plait.streams.stream import Stream


class LoopDrawer(TimedDrawer):
    """Draws one job with at least one such operator."""

    def step(self) -> None:
        """Now and then both open streams meet in an operator, which has one or two outputs."""
        if len(self.open) == 2 and self.pick([True, False]):
            self.open = self.meet(*(self.plain(stream) for stream in self.open))
            return
        super().step()

    def read(self) -> None:
        super().read()
        self.open[0] = self.add_loop(self.open[0])

    def kinds(self, stream: Stream) -> Sequence[Callable[[Stream], Stream]]:
        return [*super().kinds(stream), self.add_loop, self.add_loop, self.split]

    def how(self) -> dict[str, Any]:
        from hypothesis import strategies as st

        return {
            "seed": self.draw(st.integers(0, 1000)),
            "most": self.pick([0, 0, 0, 1, 5]),
            "failing": self.pick([0, 0, 0, 0, 11]),
            "bound": self.pick([1 << 20, None, 40, 3]),
        }

    def add_loop(self, stream: Stream) -> Stream:
        made: Stream = pass_some(stream, **self.how()).out
        return made

    def split(self, stream: Stream) -> Stream:
        """One stream at both ports."""
        plain = self.plain(stream)
        outputs = mix(plain, plain, **self.how())
        made: Stream = outputs[self.pick(["passed", "told"])]
        return made

    def meet(self, one: Stream, other: Stream) -> list[Stream]:
        if self.pick([True, False]):
            return [pair(one, other, **self.how()).out]
        outputs = mix(one, other, **self.how())
        names = self.pick([["passed"], ["told"], ["told", "passed"]])
        return [outputs[name] for name in names]

    def plain(self, stream: Stream) -> Stream:
        """Without objects, which only streams of the same columns can bring to several ports."""
        names = [field.name for field in stream.schema if field.type is not Type.OBJECT]
        if len(names) == len(stream.schema):
            return stream
        return stream.select(*names) if names else stream.select(u=self.expr(stream, Type.INT64, 1))


def loop_graphs(
    *, max_rows: int = 40, max_steps: int = 4, sources: Sequence[int] = (1, 2, 2, 3)
) -> SearchStrategy[Graph]:
    """Whole jobs with operators that have their own loop."""
    from hypothesis import strategies as st

    @st.composite
    def draw_graph(draw: Any) -> Graph:
        drawer = LoopDrawer(draw, max_rows, sources, True)
        return drawer.graph(draw(st.integers(1, max_steps)))

    return draw_graph()
