"""The state of one native operator outside a run: bins in, and rows or bins of another size out."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libcpp.string cimport string
from libcpp.vector cimport vector

from plait.node_runtime.native._batch cimport NativeBatch
from plait.node_runtime.native._timed cimport NativeTimedPlan
from plait.node_runtime.native.declarations.batch cimport Batch, Type
from plait.node_runtime.native.declarations.keyed cimport (
    AggregateSpec, KeyedPlan, aggregates_into, keys_into,
)
from plait.node_runtime.native.declarations.timed cimport TimedSpec


cdef extern from "plait/engine/resting_lane.hpp" namespace "plait" nogil:
    cdef cppclass Bytes:
        Bytes() noexcept
        const uint8_t* data() noexcept
        int64_t size

    cdef cppclass RestingLane:
        string put(uint32_t, const uint8_t*, size_t) except +
        vector[Bytes] take(const vector[uint32_t]&) except +
        Batch rows(const vector[Type]&, int64_t) except +

    cdef cppclass RestingAggregate(RestingLane):
        RestingAggregate(KeyedPlan, unsigned) except +ValueError

    cdef cppclass RestingTimed(RestingLane):
        RestingTimed(TimedSpec, unsigned) except +ValueError


cdef extern from "plait/keyed/bin_conversion.hpp" namespace "plait" nogil:
    Bytes convert_bin(const KeyedPlan&, const KeyedPlan&, const vector[int]&, const uint8_t*,
                      size_t, string&) except +


cdef KeyedPlan plan_of(list keys, list aggregates, unsigned bin_bits) except *:
    cdef vector[int] columns
    cdef vector[Type] types
    cdef vector[AggregateSpec] specs
    keys_into(keys, columns, types)
    aggregates_into(aggregates, specs)
    return KeyedPlan.make(columns, types, specs, bin_bits, 0)


def convert_aggregate(list keys, list before, list now, list source, *, unsigned bin_bits,
                      bytes data):
    """The bin of an aggregate that had the aggregates `before`, for one that has those of `now`;
    `source`: for each of them the number of the same one before, or -1."""
    cdef KeyedPlan old = plan_of(keys, before, bin_bits)
    cdef KeyedPlan made = plan_of(keys, now, bin_bits)
    cdef vector[int] numbers = source
    cdef string why
    cdef Bytes found = convert_bin(
        old, made, numbers, <const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), why)
    if why.size():
        raise ValueError(why.decode())
    return PyBytes_FromStringAndSize(<const char*>found.data(), found.size)


cdef class RestingState:
    """Takes bins of `put_bits` bits; made by `aggregate` or `timed`."""

    cdef RestingLane* lane

    def __dealloc__(self):
        del self.lane

    @staticmethod
    def aggregate(list keys, list aggregates, *, unsigned put_bits, unsigned bin_bits):
        """`keys` are (column, Type), `aggregates` (kind, column or -1, Type, nullable)."""
        cdef RestingState made = RestingState.__new__(RestingState)
        made.lane = new RestingAggregate(plan_of(keys, aggregates, bin_bits), put_bits)
        return made

    @staticmethod
    def timed(NativeTimedPlan plan, *, unsigned put_bits):
        """`plan` is that of a run with one lane."""
        cdef RestingState made = RestingState.__new__(RestingState)
        made.lane = new RestingTimed(plan.plan.get().spec, put_bits)
        return made

    def put(self, uint32_t bin, bytes data):
        """Takes in the bytes of a bin; a ValueError says why they were refused."""
        cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(data)
        cdef size_t size = PyBytes_GET_SIZE(data)
        cdef string reason
        with nogil:
            reason = self.lane.put(bin, start, size)
        if reason.size():
            raise ValueError(reason.decode())

    def take(self, list bins):
        """The bytes of these bins, none of an empty one; they are not here any more."""
        cdef vector[uint32_t] wanted = bins
        cdef vector[Bytes] found = self.lane.take(wanted)
        cdef list made = []
        cdef size_t i
        for i in range(found.size()):
            if found[i].size:
                made.append(PyBytes_FromStringAndSize(
                    <const char*>found[i].data(), found[i].size))
            else:
                made.append(b"")
        return made

    def rows(self, list types, int64_t now):
        """All that is kept at the watermark `now`, in columns of these types; the state is of no
        use afterwards."""
        cdef vector[Type] wanted
        cdef NativeBatch made = NativeBatch()
        for kind in types:
            wanted.push_back(<Type><int>kind.code)
        made.batch = self.lane.rows(wanted, now)
        return made
