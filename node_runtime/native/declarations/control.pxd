# Control items: what rides between two epochs and meets every lane there.
from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t
from libcpp.string cimport string
from libcpp.vector cimport vector


cdef extern from "plait/columns/control.hpp" namespace "plait" nogil:
    cdef cppclass Bin "plait::Control::Bin":
        uint32_t op
        uint32_t bin
        string bytes

    cdef enum class ControlKind "plait::Control::Kind"(uint8_t):
        Snapshot
        Take
        Put

    cdef cppclass Control:
        uint64_t epoch
        ControlKind kind
        uint32_t op
        vector[uint32_t] bins
        vector[Bin] put
        vector[Bin] collected
        vector[string] errors
        vector[int64_t] positions
        vector[int64_t] handles
        void collect(Bin bin) except +
        void refuse(string why) except +
