"""An operator with keyed state in a worker process: does the messages of its lane, one by one.

The state of a lane is here alone. Rows and units change it and are answered with what they made;
bins are copied, taken and put as bytes. A process that takes the place of a dead one gets the last
copy of the lane's bins and does again what was answered since (`restore`), before anything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait.errors import JobError, StateError
from plait.graph.operators import FoldOp, StatefulOp, TimedOp
from plait.node_runtime.functions.calls import ends_run
from plait.node_runtime.native._calls import beat
from plait.node_runtime.pool.errors import pack, text_of
from plait.node_runtime.state.folds import KeyedPython
from plait.node_runtime.state.processes import ENDINGS, ProcessPython
from plait.node_runtime.state.timers import ALL_TIME, AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from plait.model.schema import Schema
    from plait.node_runtime.functions.calls import Failures
    from plait.node_runtime.functions.opening import Opened
    from plait.node_runtime.native._batch import NativeBatch
    from plait.node_runtime.native._pool import Message, NativeWorker, Step, Stop
    from plait.node_runtime.native._process import MadeRows
    from plait.node_runtime.state.processes import UnitResult

BEHIND_ALL = ALL_TIME, 2**64 - 1
"""The time and place of what is behind all rows and timers."""
NOTHING: Step = (None, None, False, False, [], None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSpec:
    """What a worker process needs to know of an operator with state."""

    op: FoldOp | StatefulOp | TimedOp
    given: Schema
    bin_bits: int
    number: int

    def states(self) -> KeyedPython | ProcessPython:
        if isinstance(self.op, TimedOp):
            return ProcessPython(self.op, self.given, self.bin_bits, self.number)
        return KeyedPython(self.op, self.given, self.bin_bits, self.number)


@dataclass(slots=True)
class Answer:
    """What became of a message: see NativeWorker.answer."""

    step: Step = NOTHING
    bins: Sequence[tuple[int, bytes]] = ()
    refused: str = ""
    rows: MadeRows | None = None
    stop: Stop | None = None

    def set_stop(self, error: BaseException, time: int, place: int, text: str = "") -> None:
        """Something ended the run there; `text`: that of a timer, else it is no matter of one."""
        words = (text or text_of(error)).encode("utf-8", "replace")
        self.stop = (words, pack(error), time, place, not text)


class LaneProgram:
    """An operator with the state of a lane."""

    def __init__(self, spec: LaneSpec, opened: Opened) -> None:
        self.spec = spec
        self.states = spec.states()
        self.states.opener = opened.opener(spec.op)
        self.stops = spec.op.on_error == "fail"
        self.tried = False
        """Whether a state was packed, so that it is known to be possible."""
        if isinstance(self.states, KeyedPython):
            self.states.beat = beat
        else:
            self.watch_handlers(self.states)

    def watch_handlers(self, states: ProcessPython) -> None:
        """Every call of a handler shows that this process gets on."""
        run = states.run

        def watched(*given: Any) -> Any:
            beat()
            return run(*given)

        states.run = watched  # type: ignore[assignment, method-assign]

    def restore(self, bins: Iterable[tuple[int, bytes]], messages: Iterable[Message]) -> None:
        """The state as it was: what was answered before is not answered again."""
        for _, data in bins:
            self.states.put_bin(data)
        for message in messages:
            self.done(message)

    def serve(self, worker: NativeWorker) -> None:
        """Does the message that the worker has claimed."""
        answer = self.done(worker.message())
        timers = ALL_TIME, ALL_TIME, 0
        if isinstance(self.states, ProcessPython):
            first, then = (heap.next() for heap in self.states.heaps)
            timers = first, then, self.states.pending_timers()
        refused = answer.refused.encode("utf-8", "replace")
        worker.answer(answer.step, answer.bins, refused, answer.rows, timers, answer.stop)

    def done(self, message: Message) -> Answer:
        what, batch, unit, order, bins, put = message
        try:
            match what:
                case "rows":
                    answer = self.answer_rows(batch)
                case "unit":
                    assert isinstance(self.states, ProcessPython)
                    base, watermarks, watermark, behind, now, clock = unit
                    unit_made = self.states.attempt(
                        batch, base, order, watermarks, watermark, behind, now, clock
                    )
                    answer = self.answer_unit(unit_made)
                case _:
                    return self.move_bins(what, bins, put)
            if answer.stop is None and not (self.stops and answer.step[4]):
                self.try_packing(answer)
        except BaseException as error:  # not a matter of one record
            told = (0, text_of(error).encode("utf-8", "replace"), pack(error))
            return Answer((None, None, False, True, [told], None))
        return answer

    def answer_rows(self, batch: NativeBatch) -> Answer:
        assert isinstance(self.states, KeyedPython)
        out, origin, failures = self.states.attempt(batch)
        left = failures.pop() if failures and ends_run(failures[-1][1]) else None
        answer = Answer((out, origin, False, False, self.pack_failures(failures), None))
        if left is not None:
            answer.set_stop(left[1], AT_ONCE, left[0])
        return answer

    def answer_unit(self, made: UnitResult) -> Answer:
        step: Step = (
            made.rows.finish(), None, False, False, self.pack_failures(made.failures), None
        )  # fmt: skip
        answer = Answer(step, rows=made.rows)
        if made.timer is not None:
            text, error, due, place = made.timer
            answer.set_stop(error, due, place, "" if isinstance(error, ENDINGS) else text)
        return answer

    def move_bins(self, what: str, bins: list[int] | None, put: list[tuple[int, bytes]]) -> Answer:
        """Copies, takes or puts bins; refused: why not."""
        states = self.states
        try:
            if what == "put":
                return self.put_all(put)
            if what == "take":
                return Answer(bins=[(bin, states.take_bin(bin)) for bin in bins or ()])
            found = states.bins()
            wanted = found if bins is None else set(bins).intersection(found)
            return Answer(bins=[(bin, states.copy_bin(bin)) for bin in wanted])
        except Exception as error:
            return Answer(refused=text_of(error))

    def put_all(self, put: list[tuple[int, bytes]]) -> Answer:
        """Puts all of them or none; refused: the first that was, and why."""
        done: list[int] = []
        for number, data in put:
            try:
                done.append(self.states.put_bin(data))
                if done[-1] != number:
                    raise StateError(f"bin {number}: these are the states of bin {done[-1]}")
            except Exception as error:
                for one in done:
                    self.states.discard_bin(one)
                return Answer(bins=[(number, b"")], refused=text_of(error))
        return Answer()

    def try_packing(self, answer: Answer) -> None:
        """The first state is packed at once: one that cannot be is not found out late. It ends the
        run behind all rows, so what a plain loop meets in them counts."""
        if self.tried:
            return
        for bin in self.states.bins():
            self.tried = True
            try:
                self.states.copy_bin(bin)
            except StateError as error:
                raised = JobError(
                    f"{self.spec.op}: its state cannot be in a worker process: {error}\n"
                    '  use route="inline"'
                )
                raised.__cause__ = error
                answer.set_stop(raised, *BEHIND_ALL)
            return

    def pack_failures(self, failures: Failures) -> list[tuple[int, bytes, bytes]]:
        return [
            (row, text_of(error).encode("utf-8", "replace"), pack(error) if self.stops else b"")
            for row, error in failures
        ]
