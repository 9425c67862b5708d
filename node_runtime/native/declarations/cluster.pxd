# A node's place among the nodes of a job, as the binding sees it.
from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.pair cimport pair
from libcpp.string cimport string
from libcpp.vector cimport vector

from plait.node_runtime.native.declarations.control cimport Control


cdef extern from "plait/columns/layout.hpp" namespace "plait" nogil:
    cdef cppclass Layout:
        Layout() except +
        uint64_t epoch
        vector[uint32_t] members
        vector[uint32_t] owners
        vector[int32_t] readers
        vector[pair[uint32_t, uint32_t]] copies
        int64_t epoch_records
        vector[uint64_t] keep
        void copy_to(uint32_t bin, uint32_t to) except +
        void end_copy(uint32_t bin)


cdef extern from "plait/links/links.hpp" namespace "plait" nogil:
    cdef cppclass LinkTraffic:
        int64_t frames_sent
        int64_t bytes_sent
        int64_t frames_received
        int64_t bytes_received
        int64_t duplicates
        int64_t connected
        int64_t unsent_bytes
        cbool up
        string why_down

    cdef cppclass Refusal:
        int64_t count
        int64_t left
        string why
        string source "from"

    cdef cppclass LinkOptions:
        LinkOptions() except +

    cdef cppclass Links:
        uint16_t listen(const string& host, uint16_t port) except +
        void add_peer(uint32_t rank, const string& host, uint16_t port) except +
        void reconnect(uint32_t rank) except +
        vector[uint32_t] down_peers() except +
        LinkTraffic traffic(uint32_t rank) except +
        Refusal refusals() except +
        void close_door() except +


cdef extern from "plait/moves/expected_moves.hpp" namespace "plait" nogil:
    cdef cppclass PlannedMove:
        PlannedMove() except +
        uint32_t bin
        uint32_t source "from"
        uint32_t target "to"


cdef extern from "plait/exchange/cluster.hpp" namespace "plait" nogil:
    cdef cppclass Cluster:
        Cluster(uint32_t rank, string job, string token, LinkOptions options) except +
        Links links
        void begin(Layout layout, cbool joins) except +
        void commit(vector[Layout] layouts, uint64_t stop_at, cbool flush) except +
        void mark(shared_ptr[Control] control) except +
        void expect(uint64_t number, const vector[PlannedMove]& moves) except +
        uint64_t ready() except +
        void drop(uint32_t peer) except +
        uint64_t promise(uint64_t ahead) except +
        void lift() except +
        void gate(uint64_t epoch) except +
        uint64_t passed(uint32_t sinks) except +
        uint64_t next_epoch() except +
        int64_t bins_in() except +
        int64_t bytes_in() except +
        string refused() except +
        void close()


cdef extern from "plait/links/heart.hpp" namespace "plait" nogil:
    cdef cppclass Heart:
        Heart() except +
        cbool aim(const string& host, uint16_t port, const string& key, int64_t every_ms) except +
        void stop()
