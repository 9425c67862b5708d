# What the engine asks of functions outside, and what they answer; of a batch: native_calls.pxd.
from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t
from libcpp cimport bool as cbool
from libcpp.string cimport string
from libcpp.vector cimport vector

from plait.node_runtime.native.declarations.batch cimport Batch
from plait.node_runtime.native.declarations.calls cimport RowFailure


cdef extern from "plait/stages/process_stage.hpp" namespace "plait" nogil:
    cdef cppclass ProcessUnit:
        const Batch* rows
        uint64_t base
        const uint32_t* order
        const int64_t* watermarks
        int64_t watermark
        int64_t behind
        int64_t ended
        int64_t now
        int64_t clock

    cdef cppclass Order "plait::Emitter::Order":
        int64_t time
        uint64_t place

    cdef cppclass ProcessOutcome:
        Batch out
        vector[int64_t] times
        vector[uint64_t] places
        vector[RowFailure] failures
        RowFailure timer
        Order timer_order
        cbool stopped
        cbool fatal
        int64_t next_timer
        int64_t next_timeout


cdef extern from "plait/sources/origins.hpp" namespace "plait" nogil:
    cdef enum class PolledKind "plait::Polled::Kind":
        Rows
        Wait
        End
        Failed

    cdef cppclass Polled:
        PolledKind kind
        Batch batch
        vector[RowFailure] bad
        Batch records
        int64_t wait_ns
        string message
        int64_t handle


cdef extern from "plait/scheduling/outside_scheduler.hpp" namespace "plait" nogil:
    cdef cppclass plait_stage "plait_stage":
        uint8_t ready
        uint8_t source
        uint8_t python
        int64_t workers
        double waiting
        double waiting_output
        double room_output
        double cost_ns
        double selectivity
        double selectivity_all
        double running_ns
        double idle_ns
        double age_ns

    cdef cppclass Answer:
        int64_t stage
        cbool failed
        string message
        int64_t handle
