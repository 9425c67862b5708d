"""The keyed state of all lanes of one operator, driven batch by batch by one thread.

It binds the native headers as they are, so that their results can be compared with a model in
Python. The engine has its own stage around the same headers; nothing of it goes through here.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.string cimport string
from libcpp.utility cimport pair
from libcpp.vector cimport vector

from plait.node_runtime.native._batch cimport NativeBatch
from plait.node_runtime.native.declarations.batch cimport Batch, Type
from plait.node_runtime.native.declarations.keyed cimport (
    AggregateSpec, KeyedPlan, aggregates_into, keys_into,
)


ctypedef void* voidp


cdef extern from "plait/keyed/keyed_state.hpp" namespace "plait" nogil:
    cdef cppclass Part:
        uint32_t n

    cdef cppclass SplitBatch:
        SplitBatch() noexcept
        vector[Part] parts

    cdef cppclass Bytes:
        Bytes() noexcept
        const uint8_t* data() noexcept
        int64_t size

    cdef cppclass KeyedState:
        KeyedState(const KeyedPlan&, unsigned) except +
        void process(const Batch&, SplitBatch&, unsigned) except +
        uint64_t key_count() noexcept
        size_t byte_size() noexcept
        uint64_t bin_keys(uint32_t) noexcept
        uint64_t bin_bytes(uint32_t) noexcept
        Bytes copy_bin(uint32_t) except +
        Bytes take_bin(uint32_t) except +
        string put_bin(const uint8_t*, size_t) except +
        cbool waits_for_difference(uint32_t) noexcept
        void track(uint32_t) except +
        void untrack(uint32_t) noexcept
        Bytes take_difference(uint32_t) except +ValueError
        string apply_difference(const uint8_t*, size_t) except +
        void discard_bin(uint32_t) except +
        void prepare(const vector[uint32_t]&, uint64_t) except +
        vector[pair[voidp, size_t]] untouched() except +

    void split_by_lane(const KeyedPlan&, const Batch&, SplitBatch&) except +
    void merge_lanes(const KeyedPlan&, const Batch&, SplitBatch&, Batch&) except +
    void nan_key_rows(const KeyedPlan&, const Batch&, vector[uint32_t]&) except +


cdef extern from "plait/core/zeroed_region.hpp" namespace "plait::ZeroedRegion" nogil:
    cbool populate(void*, size_t) noexcept


cdef extern from "plait/keyed/split_by_lane.hpp" namespace "plait::split_detail" nogil:
    void hash_rows(const KeyedPlan&, const Batch&, SplitBatch&, uint64_t*) except +


KINDS = ("count", "sum", "min", "max", "mean", "first", "last")


cdef bytes as_bytes(const Bytes& data):
    return PyBytes_FromStringAndSize(<const char*>data.data(), data.size)


cdef class KeyedStates:
    """One state a lane.

    `keys` are (column, type), `aggregates` (kind, column or None, type, nullable).
    """

    cdef KeyedPlan plan
    cdef vector[KeyedState*] states

    def __init__(self, keys, aggregates, *, unsigned bin_bits, unsigned lane_bits):
        cdef vector[int] columns
        cdef vector[Type] types
        cdef vector[AggregateSpec] specs
        cdef unsigned lane
        keys_into(keys, columns, types)
        aggregates_into(aggregates, specs)
        self.plan = KeyedPlan.make(columns, types, specs, bin_bits, lane_bits)
        for lane in range(self.plan.lanes()):
            self.states.push_back(new KeyedState(self.plan, lane))

    def __dealloc__(self):
        for state in self.states:
            del state

    def process(self, NativeBatch batch, lanes=None):
        """The results of one batch. `lanes` is the order of their turns; empty parts have none."""
        cdef SplitBatch parts
        cdef NativeBatch out = NativeBatch()
        cdef unsigned lane
        split_by_lane(self.plan, batch.batch, parts)
        for lane in range(self.plan.lanes()) if lanes is None else lanes:
            if parts.parts[lane].n:
                self.states[lane].process(batch.batch, parts, lane)
        merge_lanes(self.plan, batch.batch, parts, out.batch)
        return out

    def hashes(self, NativeBatch batch):
        """The key hash of each row."""
        cdef SplitBatch parts
        cdef vector[uint64_t] out
        out.resize(batch.batch.length)
        hash_rows(self.plan, batch.batch, parts, out.data())
        return list(out)

    def nan_key_rows(self, NativeBatch batch):
        cdef vector[uint32_t] rows
        nan_key_rows(self.plan, batch.batch, rows)
        return list(rows)

    cdef KeyedState* of_bin(self, uint32_t bin) except NULL:
        if bin >> self.plan.bin_bits:
            raise ValueError(f"there is no bin {bin}")
        return self.states[bin >> (self.plan.bin_bits - self.plan.lane_bits)]

    def take_bin(self, uint32_t bin):
        return as_bytes(self.of_bin(bin).take_bin(bin))

    def copy_bin(self, uint32_t bin):
        return as_bytes(self.of_bin(bin).copy_bin(bin))

    def put_bin(self, uint32_t bin, bytes data):
        """Gives the bytes to the lane of `bin`; ValueError says why they were refused."""
        cdef string reason = self.of_bin(bin).put_bin(
            <const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        if reason.size():
            raise ValueError(reason.decode())

    def waits_for_difference(self, uint32_t bin):
        return self.of_bin(bin).waits_for_difference(bin)

    def track(self, uint32_t bin):
        self.of_bin(bin).track(bin)

    def untrack(self, uint32_t bin):
        self.of_bin(bin).untrack(bin)

    def take_difference(self, uint32_t bin):
        return as_bytes(self.of_bin(bin).take_difference(bin))

    def apply_difference(self, uint32_t bin, bytes data):
        """Gives the bytes to the lane of `bin`; ValueError says why they were refused."""
        cdef string reason = self.of_bin(bin).apply_difference(
            <const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        if reason.size():
            raise ValueError(reason.decode())

    def discard_bin(self, uint32_t bin):
        self.of_bin(bin).discard_bin(bin)

    def prepare(self, bins, uint64_t keys):
        """Memory for `keys` keys spread over the bins is made ready and touched; returns bytes."""
        cdef vector[uint32_t] mine
        cdef size_t touched = 0
        cdef unsigned lane
        for lane in range(self.plan.lanes()):
            mine.clear()
            for bin in bins:
                if self.of_bin(bin) == self.states[lane]:
                    mine.push_back(bin)
            self.states[lane].prepare(mine, keys * mine.size() // max(len(bins), 1))
            for piece in self.states[lane].untouched():
                if populate(piece.first, piece.second):
                    touched += piece.second
        return touched

    def bin_keys(self, uint32_t bin):
        return self.of_bin(bin).bin_keys(bin)

    def bin_bytes(self, uint32_t bin):
        return self.of_bin(bin).bin_bytes(bin)

    def key_count(self):
        cdef uint64_t n = 0
        for state in self.states:
            n += state.key_count()
        return n

    def byte_size(self):
        cdef size_t n = 0
        for state in self.states:
            n += state.byte_size()
        return n
