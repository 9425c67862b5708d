# The plan of an operator that knows time, as the binding fills it.
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.vector cimport vector

from plait.node_runtime.native.declarations.batch cimport Type
from plait.node_runtime.native.declarations.keyed cimport AggregateSpec, KeyedPlan


cdef extern from "plait/stages/timed_stage.hpp" namespace "plait" nogil:
    cdef enum class TimedKind "plait::TimedSpec::Kind"(uint8_t):
        Window
        Top
        Late
        Last
        Join
        Span
        Running

    cdef enum class Within "plait::TimedSpec::Within"(uint8_t):
        Nothing "plait::TimedSpec::Within::None"
        Grid
        Session
        Rows
        Given
        Between
        AsOf

    cdef enum class How "plait::TimedSpec::How"(uint8_t):
        Inner
        Left
        Semi
        Anti
        Late

    cdef cppclass SideSpec "plait::TimedSpec::Side":
        vector[int] columns
        int time

    cdef cppclass TimedSpec:
        TimedKind kind
        vector[Type] types
        vector[Type] out_types
        vector[int] key_columns
        int time
        cbool arrival
        int window_start
        int window_end
        Within within
        int64_t size
        int64_t every
        int64_t offset
        int64_t gap
        int64_t low
        int64_t high
        int64_t tolerance
        int64_t lateness
        int64_t early
        int64_t ttl
        int64_t wait
        vector[AggregateSpec] aggregates
        int64_t k
        int by
        cbool greatest
        cbool ties
        cbool complete
        cbool empty
        How how
        int side
        SideSpec left
        SideSpec right
        int span_start
        int span_end
        unsigned bin_bits
        unsigned lane_bits

    cdef cppclass TimedOrigin:
        cbool reaches
        cbool timed
        int64_t out_of_order
        int64_t max_jump
        vector[uint32_t] of
        int64_t idle
        cbool arrival

    cdef cppclass TimedPlan:
        TimedPlan() except +
        TimedSpec spec
        KeyedPlan keys
        shared_ptr[const vector[TimedOrigin]] origins
        cbool nodes
        int sub_bits
        void hash_by(vector[Type] key_types) except +ValueError
