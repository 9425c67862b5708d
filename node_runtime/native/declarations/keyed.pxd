# The plan of a keyed aggregation, as the engine and the binding of the state share it.
from libc.stdint cimport uint64_t, uint8_t
from libcpp cimport bool as cbool
from libcpp.vector cimport vector

from plait.node_runtime.native.declarations.batch cimport Type


cdef extern from "plait/keyed/keyed_plan.hpp" namespace "plait" nogil:
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


cdef inline void keys_into(keys, vector[int]& columns, vector[Type]& types) except *:
    """From (column, Type) of each key."""
    for column, kind in keys:
        columns.push_back(column)
        types.push_back(<Type><int>kind.code)


cdef inline void aggregates_into(aggregates, vector[AggregateSpec]& specs) except *:
    """From (kind, column, or -1 or None, Type, nullable) of each aggregate."""
    cdef AggregateSpec spec
    cdef dict kinds = {"count": 0, "sum": 1, "min": 2, "max": 3, "mean": 4, "first": 5, "last": 6,
                       "distinct": 7, "wrapping_sum": 8}
    for name, column, kind, nullable in aggregates:
        spec.kind = <AggregateKind><int>kinds[name]
        spec.input = -1 if column is None else column
        spec.type = <Type><int>kind.code
        spec.nullable = nullable
        specs.push_back(spec)
