# What other Cython modules use of calls outside the engine: see _outside.pyx.
from libc.stdint cimport uint64_t
from libcpp.memory cimport shared_ptr

from plait.node_runtime.native.declarations.calls cimport CallOutcome, AsyncTray


cdef object text_of(object error)
cdef int fill(CallOutcome* outcome, object made, object origin, object failures, bint whole,
              list raised, bint stops) except -1
cdef int fill_fatal(CallOutcome* outcome, object error, list raised) except -1


cdef class NativeTray:
    cdef shared_ptr[AsyncTray] tray
    cdef list raised
    cdef bint stops

    cdef give(self, uint64_t serial, CallOutcome& outcome)
