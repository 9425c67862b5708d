# What the engine's binding gives to the engine to call: see _callbacks.pyx.
from libc.stdint cimport int64_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.string cimport string

from plait.node_runtime.native.declarations.batch cimport Batch
from plait.node_runtime.native.declarations.calls cimport CallOutcome
from plait.node_runtime.native.declarations.callbacks cimport (
    Answer, Polled, ProcessOutcome, ProcessUnit, plait_stage,
)


cdef class Callback:
    cdef object function
    cdef object other
    cdef list raised
    cdef list turn  # the thread that runs Python code now; one worker at a time does
    cdef bint whole
    cdef bint stops  # a failed record ends the run

    cdef int64_t keep(self, error)


cdef void call_outside(void* context, const Batch& batch, CallOutcome& outcome) noexcept with gil
cdef void process_outside(void* context, const ProcessUnit& unit,
                          ProcessOutcome& outcome) noexcept with gil
cdef void ask_outside(void* context, const plait_stage* stages, size_t count,
                      Answer& answer) noexcept with gil
cdef void poll_outside(void* context, int64_t max_rows, Polled& out) noexcept with gil
cdef int64_t position_outside(void* context) noexcept with gil
cdef cbool mark_outside(void* context, uint64_t boundary, string& message,
                        int64_t& handle) noexcept with gil
cdef cbool write_outside(void* context, const Batch& batch, string& message,
                         int64_t& handle) noexcept with gil
