# Control items: what rides between two epochs and meets every lane there.
from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.string cimport string
from libcpp.vector cimport vector

from plait.node_runtime.native.declarations.batch cimport BufferRef


cdef extern from "plait/columns/control.hpp" namespace "plait" nogil:
    ctypedef vector[uint64_t] Thresholds

    cdef cppclass Bin "plait::Control::Bin":
        uint32_t op
        uint32_t bin
        string bytes

    cdef enum class ControlKind "plait::Control::Kind"(uint8_t):
        Snapshot
        Take
        Put
        Layout
        Save

    cdef cppclass Control:
        uint64_t epoch
        ControlKind kind
        cbool mark
        cbool last
        shared_ptr[const Thresholds] keep
        uint64_t number
        uint64_t since
        uint32_t op
        vector[uint32_t] bins
        vector[Bin] put
        vector[Bin] collected
        vector[string] errors
        vector[int64_t] positions
        vector[int64_t] handles
        vector[int64_t] skips
        vector[int64_t] slices
        vector[uint32_t] partial
        int64_t hold_ns()
        cbool take_late(uint32_t& of, uint32_t& bin, BufferRef& bytes, int64_t& size) except +
        void give_changes(uint32_t of) except +
        void collect(Bin bin) except +
        void refuse(string why) except +
