# The plan of a keyed aggregation, as the engine and the binding of the state share it.
from libc.stdint cimport uint64_t, uint8_t
from libcpp cimport bool as cbool
from libcpp.vector cimport vector

from plait.node_runtime.native cimport Type


cdef extern from "plait/keyed_plan.hpp" namespace "plait" nogil:
    cdef enum class AggregateKind(uint8_t):
        Count
        Sum
        Min
        Max
        Mean
        First
        Last
        Distinct

    cdef cppclass AggregateSpec:
        AggregateKind kind
        int input
        Type type
        cbool nullable

    cdef cppclass KeyedPlan:
        KeyedPlan() noexcept
        KeyedPlan(const KeyedPlan&) except +
        unsigned lanes() noexcept
        unsigned bin_bits
        unsigned lane_bits
        uint64_t fingerprint

        @staticmethod
        KeyedPlan make(vector[int] key_columns, vector[Type] key_types,
                       const vector[AggregateSpec]& aggregates, unsigned bin_bits,
                       unsigned lane_bits) except +ValueError

        @staticmethod
        KeyedPlan make(vector[int] key_columns, vector[Type] key_types,
                       const vector[AggregateSpec]& aggregates, unsigned bin_bits,
                       unsigned lane_bits, unsigned max_segment_bits) except +ValueError
