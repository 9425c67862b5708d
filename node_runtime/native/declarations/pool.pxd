# The pool of worker processes, as the bindings see it.
from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.pair cimport pair
from libcpp.string cimport string
from libcpp.vector cimport vector

from plait.node_runtime.native.declarations.batch cimport Batch, Column


cdef extern from "plait/pool/pool.hpp" namespace "plait" nogil:
    cdef cppclass PoolUser:
        cbool here() noexcept
        void go() except +
        string why_here() except +

    cdef cppclass PoolOutside(PoolUser):
        PoolOutside(shared_ptr[Pool] pool, uint32_t program, cbool here) except +

    cdef cppclass Pool:
        Pool(uint32_t slots, int64_t slot_bytes, uint32_t workers,
             int64_t (*keep)(void*, const string&) noexcept, void* context) except +
        int fd() noexcept
        void start() except +
        void close() except +
        void add(shared_ptr[PoolUser] user) except +
        uint32_t died(uint32_t worker, const string& how) except +
        pair[uint64_t, uint64_t] at(uint32_t worker) noexcept
        void broke(const string& why) except +
        int64_t batches() noexcept
        int restore_fd(uint32_t worker) except +


cdef extern from "plait/pool/pool_lanes.hpp" namespace "plait" nogil:
    cdef cppclass PoolLanes(PoolUser):
        PoolLanes(shared_ptr[Pool] pool, uint32_t program, uint32_t lanes, unsigned bin_bits,
                  cbool here, cbool copies_all, int64_t most) except +
        uint32_t lanes() noexcept
        int64_t log_bytes() except +
        int64_t timers() except +


cdef extern from "plait/pool/pool_worker.hpp" namespace "plait" nogil:
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

    cdef enum class LaneDo(uint8_t):
        Rows
        Unit
        Copy
        Take
        Put

    cdef cppclass LaneBin:
        uint32_t bin
        string bytes

    cdef cppclass LaneUnit:
        uint64_t base
        int64_t watermark
        int64_t behind
        int64_t now
        int64_t clock
        cbool told

    cdef cppclass LaneMessage:
        LaneDo what
        int64_t length
        vector[Column] columns
        LaneUnit unit
        vector[uint32_t] order
        vector[int64_t] watermarks
        vector[uint32_t] bins
        cbool all
        vector[LaneBin] put

    cdef cppclass LaneOrder "plait::Emitter::Order":
        int64_t time
        uint64_t place

    cdef cppclass LaneTold:
        vector[int64_t] times
        vector[uint64_t] places
        int64_t next_timer
        int64_t next_timeout
        int64_t timers
        cbool stopped
        cbool fatal
        LaneOrder stopped_at
        vector[LaneBin] bins
        string refused

    cdef cppclass LaneStep:
        PoolStep step
        LaneTold told
        string stop
        string stop_raised

    cdef cppclass LaneRestore:
        LaneRestore(int fd, int64_t size) except +
        cbool next() except +
        uint32_t program() noexcept
        const vector[LaneBin]& bins() noexcept
        cbool next_message(LaneMessage& message) except +

    cdef cppclass PoolWorker:
        PoolWorker(int fd, uint32_t index) except +
        cbool closing() noexcept
        cbool claim(int64_t timeout_ns) noexcept
        uint32_t program() noexcept
        Batch batch(cbool copy) except +
        vector[Poison] poison() except +
        void finish(const vector[PoolStep]& steps) except +
        LaneMessage message() except +
        void answer(const LaneStep& step) except +
        void* beat() noexcept
