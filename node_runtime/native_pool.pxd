# The pool of worker processes, as the bindings see it.
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.pair cimport pair
from libcpp.string cimport string
from libcpp.vector cimport vector

from plait.node_runtime.native cimport Batch


cdef extern from "plait/pool.hpp" namespace "plait" nogil:
    cdef cppclass PoolOutside:
        PoolOutside(shared_ptr[Pool] pool, uint32_t program, cbool here) except +
        cbool here() noexcept
        void go() except +

    cdef cppclass Pool:
        Pool(uint32_t slots, int64_t slot_bytes, uint32_t workers,
             int64_t (*keep)(void*, const string&) noexcept, void* context) except +
        int fd() noexcept
        void start() except +
        void close() except +
        void add(shared_ptr[PoolOutside] outside) except +
        uint32_t died(uint32_t worker, const string& how) except +
        pair[uint64_t, uint64_t] at(uint32_t worker) noexcept
        void broke(const string& why) except +
        int64_t batches() noexcept


cdef extern from "plait/pool_worker.hpp" namespace "plait" nogil:
    # Of CallOutcome and RowFailure what a worker process sets.
    cdef cppclass StepFailure "plait::RowFailure":
        uint32_t row
        string message

    cdef cppclass StepOutcome "plait::CallOutcome":
        Batch out
        cbool one_to_one
        cbool whole
        cbool batch_failed
        cbool fatal
        vector[uint32_t] origin
        vector[StepFailure] failures

    cdef cppclass PoolStep:
        StepOutcome outcome
        vector[string] raised
        Batch records
        cbool has_records

    cdef cppclass Poison:
        uint32_t row
        uint32_t step
        const char* why

    cdef cppclass PoolWorker:
        PoolWorker(int fd, uint32_t index) except +
        cbool closing() noexcept
        cbool claim(int64_t timeout_ns) noexcept
        uint32_t program() noexcept
        Batch batch(cbool copy) except +
        vector[Poison] poison() except +
        void finish(const vector[PoolStep]& steps) except +
        void* beat() noexcept
