# What a function outside the engine says of a batch, and the ways a batch goes there.
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.string cimport string
from libcpp.vector cimport vector

from plait.node_runtime.native.declarations.batch cimport Batch


cdef extern from "plait/columns/failure.hpp" namespace "plait" nogil:
    cdef cppclass RowFailure:
        uint32_t row
        string message
        int64_t handle


cdef extern from "plait/stages/call_operator.hpp" namespace "plait" nogil:
    cdef cppclass CallOutcome:
        Batch out
        cbool one_to_one
        cbool whole
        cbool batch_failed
        cbool fatal
        vector[uint32_t] origin
        vector[RowFailure] failures


cdef extern from "plait/stages/async_tray.hpp" namespace "plait" nogil:
    cdef cppclass Outside:
        pass

    cdef cppclass Returns:
        cbool complete(uint64_t serial, CallOutcome&& outcome) except +
        void broke(const string& why) except +
        void spent_cpu(int64_t ns) except +

    cdef cppclass AsyncTray(Outside):
        AsyncTray() except +
        int bell()
        void hush()
        cbool take(uint64_t& serial, Batch& batch) except +
        uint64_t last_needed()
        cbool over()
        Returns* returns()
