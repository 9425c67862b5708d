"""The functions that the engine calls: each takes the interpreter's lock, asks a Python function of
the user's or of ours, and says in the engine's words what came of it.

All are called by a worker that holds Python's turn, one at a time, with the `Callback` that the
engine was given as context; none lets an exception out. What was raised stays in `raised` and is
named by its number there.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.string cimport string
from libcpp.vector cimport vector

from plait.node_runtime.native._batch cimport NativeBatch
from plait.node_runtime.native._outside cimport fill, fill_fatal, text_of
from plait.node_runtime.native._process cimport MadeRows
from plait.node_runtime.native._records cimport rows_array
from plait.node_runtime.native.declarations.batch cimport Batch
from plait.node_runtime.native.declarations.calls cimport CallOutcome, RowFailure
from plait.node_runtime.native.declarations.callbacks cimport (
    Answer, Polled, PolledKind, ProcessOutcome, ProcessUnit, plait_stage,
)

from plait.model.schedulers import StageView


cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident() noexcept


cdef class Callback:
    """A Python function that the engine calls, and the list where it leaves what it raised."""

    cdef int64_t keep(self, error):
        self.raised.append(error)
        return len(self.raised) - 1


cdef void call_outside(void* context, const Batch& batch, CallOutcome& outcome) noexcept with gil:
    """Gives a batch to `function(native_batch) -> (out, origin or None, [(row, exception)])`."""
    cdef Callback callback = <Callback>context
    cdef NativeBatch given = NativeBatch()
    given.batch = batch
    callback.turn[0] = PyThread_get_thread_ident()
    try:
        made, origin, failures = callback.function(given)
        fill(&outcome, made, origin, failures, callback.whole, callback.raised, callback.stops)
    except BaseException as error:
        fill_fatal(&outcome, error, callback.raised)
    callback.turn[0] = 0


cdef list watermarks_of(const int64_t* watermarks, int64_t count):
    """As a list; most of the time the watermark stands still in a unit or is that of its rows."""
    if count and watermarks[0] == watermarks[count - 1]:
        return [watermarks[0]] * count
    return [watermarks[i] for i in range(count)]


cdef void process_outside(void* context, const ProcessUnit& unit,
                          ProcessOutcome& outcome) noexcept with gil:
    """Gives a unit to `function(native_batch, base, order or None, watermarks, watermark, behind,
    now, clock)`, which returns a UnitResult. One that is told of the ends of sources gets one more
    argument where a source ended behind the unit: its number."""
    cdef Callback callback = <Callback>context
    cdef NativeBatch given = NativeBatch()
    cdef NativeBatch out
    cdef MadeRows rows
    cdef RowFailure failure
    cdef vector[uint32_t] order
    cdef int64_t i
    given.batch = unit.rows[0]
    callback.turn[0] = PyThread_get_thread_ident()
    try:
        places = None
        if unit.order != NULL:
            for i in range(given.batch.length):
                order.push_back(unit.order[i])
            places = rows_array(order)
        more = () if unit.ended < 0 else (unit.ended,)
        made = callback.function(given, unit.base, places,
                                 watermarks_of(unit.watermarks, given.batch.length),
                                 unit.watermark, unit.behind, unit.now, unit.clock, *more)
        rows = made.rows
        out = rows.finish()
        outcome.out.columns = out.batch.columns
        outcome.out.length = out.batch.length
        outcome.times = rows.times
        outcome.places = rows.places
        outcome.next_timer = made.next_timer
        outcome.next_timeout = made.next_timeout
        for row, error in made.failures:
            failure.row = row
            failure.message = text_of(error).encode("utf-8", "replace")
            failure.handle = callback.keep(error) if callback.stops else -1
            outcome.failures.push_back(failure)
        if made.timer is not None:
            outcome.stopped = True
            outcome.timer.message = made.timer[0].encode("utf-8", "replace")
            outcome.timer.handle = callback.keep(made.timer[1])
            outcome.timer_order.time = made.timer[2]
            outcome.timer_order.place = made.timer[3]
    except BaseException as error:
        failure.row = 0
        failure.message = text_of(error).encode("utf-8", "replace")
        failure.handle = callback.keep(error)
        outcome.failures.clear()
        outcome.failures.push_back(failure)
        outcome.fatal = True
    callback.turn[0] = 0


cdef void ask_outside(void* context, const plait_stage* stages, size_t count,
                      Answer& answer) noexcept with gil:
    """Asks `function(views) -> stage or None`; `other`: (scheduler's name, names of the stages)."""
    cdef Callback callback = <Callback>context
    cdef size_t i
    callback.turn[0] = PyThread_get_thread_ident()
    who, names = callback.other
    try:
        views = tuple([view_of(i, names[i], stages[i]) for i in range(count)])
        picked = callback.function(views)
        if picked is None:
            answer.stage = -1
        elif isinstance(picked, int) and not isinstance(picked, bool) and 0 <= picked < count:
            answer.stage = picked
        else:
            answer.failed = True
            answer.message = (f"scheduler {who}: pick gave {picked!r}; it must give the number of "
                              f"a stage, 0 to {count - 1}, or None").encode("utf-8", "replace")
    except BaseException as error:
        answer.failed = True
        answer.message = f"scheduler {who}: pick raised {text_of(error)}".encode("utf-8", "replace")
        answer.handle = callback.keep(error)
    callback.turn[0] = 0


cdef object view_of(size_t number, name, const plait_stage& s):
    return StageView(number, name, s.ready != 0, s.source != 0, s.python != 0, s.workers,
                     s.waiting, s.waiting_output, s.room_output, s.cost_ns, s.selectivity,
                     s.selectivity_all, s.running_ns * 1e-9, s.idle_ns * 1e-9, s.age_ns * 1e-9)


cdef void poll_outside(void* context, int64_t max_rows, Polled& out) noexcept with gil:
    """Asks `function(max_rows)`: a NativeBatch, one with its bad rows (numbers, reasons, records),
    a number of seconds to wait, or None at the end."""
    cdef Callback callback = <Callback>context
    cdef NativeBatch batch, records
    cdef RowFailure failure
    callback.turn[0] = PyThread_get_thread_ident()
    try:
        answer = callback.function(max_rows)
        if answer is None:
            out.kind = PolledKind.End
        elif isinstance(answer, NativeBatch):
            batch = answer
            out.kind = PolledKind.Rows
            out.batch.columns = batch.batch.columns
            out.batch.length = batch.batch.length
        elif isinstance(answer, tuple):
            batch, numbers, reasons, records = answer
            out.batch.columns = batch.batch.columns
            out.batch.length = batch.batch.length
            out.records.columns = records.batch.columns
            for row, reason in zip(numbers, reasons):
                failure.row = row
                failure.message = reason.encode("utf-8", "replace")
                out.bad.push_back(failure)
            out.kind = PolledKind.Rows
        else:
            out.kind = PolledKind.Wait
            out.wait_ns = <int64_t>(max(answer, 0.0) * 1e9)
    except BaseException as error:
        out.kind = PolledKind.Failed
        out.message = text_of(error).encode("utf-8", "replace")
        out.handle = callback.keep(error)
    callback.turn[0] = 0


cdef int64_t position_outside(void* context) noexcept with gil:
    cdef Callback callback = <Callback>context
    try:
        return callback.keep(callback.other())
    except BaseException as error:
        return callback.keep(error)


cdef cbool mark_outside(void* context, uint64_t boundary, string& message,
                        int64_t& handle) noexcept with gil:
    cdef Callback callback = <Callback>context
    callback.turn[0] = PyThread_get_thread_ident()
    try:
        callback.other(boundary)
        return True
    except BaseException as error:
        (&message)[0] = text_of(error).encode("utf-8", "replace")
        (&handle)[0] = callback.keep(error)
        return False
    finally:
        callback.turn[0] = 0


cdef cbool write_outside(void* context, const Batch& batch, string& message,
                         int64_t& handle) noexcept with gil:
    cdef Callback callback = <Callback>context
    cdef NativeBatch given = NativeBatch()
    given.batch = batch
    callback.turn[0] = PyThread_get_thread_ident()
    try:
        callback.function(given)
        return True
    except BaseException as error:
        (&message)[0] = text_of(error).encode("utf-8", "replace")
        (&handle)[0] = callback.keep(error)
        return False
    finally:
        callback.turn[0] = 0
