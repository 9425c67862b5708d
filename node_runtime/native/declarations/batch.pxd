# What the Cython modules share of the C++ headers.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libcpp cimport bool as cbool
from libcpp.vector cimport vector


cdef extern from "plait/core/buffer.hpp" namespace "plait" nogil:
    cdef cppclass BufferRef:
        BufferRef() noexcept

        @staticmethod
        BufferRef make(int64_t size) except +

        @staticmethod
        BufferRef zeroed(int64_t size) except +
        void reset() noexcept
        uint8_t* data() noexcept


cdef extern from "plait/columns/batch.hpp" namespace "plait" nogil:
    cpdef enum class Type(uint8_t):
        Int64
        Float64
        Bool
        String
        Bytes
        Timestamp
        Object

    cdef cppclass Column:
        Type type
        int64_t length
        const uint8_t* validity
        int64_t validity_offset
        const uint8_t* data
        int64_t data_offset
        const int32_t* offsets
        BufferRef validity_owner
        BufferRef data_owner
        BufferRef offsets_owner
        const int64_t* i64() noexcept
        cbool valid(int64_t i) noexcept
        cbool boolean(int64_t i) noexcept
        const char* bytes(int64_t i) noexcept
        int64_t size(int64_t i) noexcept

    cdef cppclass Batch:
        int64_t length
        vector[Column] columns
        uint64_t epoch
        uint32_t source
        int64_t first_row
        const uint32_t* tags
        BufferRef tags_owner
        int64_t ingest_ns
        int64_t row_number(int64_t i) noexcept
        int64_t byte_size() noexcept


cdef extern from "plait/columns/arrow_c.hpp" nogil:
    cdef struct ArrowSchema:
        void (*release)(ArrowSchema*) noexcept

    cdef struct ArrowArray:
        int64_t length
        void (*release)(ArrowArray*) noexcept


cdef extern from "plait/columns/arrow_c.hpp" namespace "plait" nogil:
    Column import_array(ArrowArray* array, Type kind) except +
    vector[Column] import_batch(ArrowArray* array, const vector[Type]& types) except +
    void export_column(const Column& column, ArrowArray* out) except +
    void export_batch(const Batch& batch, ArrowArray* out) except +
