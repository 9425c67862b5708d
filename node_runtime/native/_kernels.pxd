from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.string cimport string
from libcpp.vector cimport vector
from libc.stdint cimport int32_t, int64_t, uint32_t, uint8_t

from plait.node_runtime.native.declarations.batch cimport Batch, Column, Type


cdef extern from "plait/kernels/program.hpp" namespace "plait" nogil:
    cpdef enum class RowError(int32_t):
        DivisionByZero

    cdef cppclass ErrorRow:
        int64_t row
        RowError code
        string detail

    cdef cppclass ErrorRows:
        vector[ErrorRow] rows

    cdef cppclass Program:
        pass

    cdef cppclass Workspace:
        int64_t text_limit


cdef extern from "plait/kernels/run.hpp" namespace "plait" nogil:
    cbool run(const Program& program, const Batch& batch, Workspace& ws, Column& out,
              ErrorRows& errors) except +
    cbool run_mask(const Program& program, const Batch& batch, Workspace& ws, uint8_t* mask,
                   ErrorRows& errors) except +


cdef extern from "plait/columns/select.hpp" namespace "plait" nogil:
    Column take(const Column& column, const uint32_t* rows, int64_t n) except +
    void take_rows(Batch& batch, const uint32_t* rows, int64_t n) except +
    int64_t filter_batch(Batch& batch, const uint8_t* mask) except +
    int64_t mask_rows(const uint8_t* mask, int64_t n, uint32_t* rows) noexcept


cdef class NativeProgram:
    cdef shared_ptr[Program] program
    cdef readonly object lowered
