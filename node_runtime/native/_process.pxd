from libc.stdint cimport int64_t, uint64_t
from libcpp.vector cimport vector

from plait.node_runtime.native._records cimport RowWriter


cdef class MadeRows:
    cdef RowWriter writer
    cdef vector[int64_t] times
    cdef vector[uint64_t] places
