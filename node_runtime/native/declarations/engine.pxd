# The engine, its builder, and what rides in the stream, as the binding sees them.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.string cimport string
from libcpp.vector cimport vector

from plait.node_runtime.native._kernels cimport Program
from plait.node_runtime.native.declarations.batch cimport Batch, Type
from plait.node_runtime.native.declarations.callbacks cimport (
    Answer, Polled, ProcessOutcome, ProcessUnit, plait_stage,
)
from plait.node_runtime.native.declarations.calls cimport CallOutcome, Outside
from plait.node_runtime.native.declarations.cluster cimport Cluster
from plait.node_runtime.native.declarations.control cimport Control
from plait.node_runtime.native.declarations.keyed cimport KeyedPlan
from plait.node_runtime.native.declarations.pool cimport PoolLanes, PoolOutside
from plait.node_runtime.native.declarations.timed cimport TimedPlan


cdef extern from "plait/columns/events.hpp" namespace "plait" nogil:
    cdef cppclass Letter:
        uint32_t node
        uint32_t source
        uint64_t epoch
        int64_t row
        string message
        int32_t code
        int64_t handle
        Batch record


cdef extern from "plait/engine/builder.hpp" namespace "plait" nogil:
    cdef cppclass StageLimits:
        uint32_t batches
        int64_t records
        int64_t bytes
        cbool locked_reorder
        cbool ordered

    cdef cppclass plait_scheduler "plait_scheduler":
        pass

    cdef enum class Threading(uint8_t):
        Dynamic
        Dedicated
        Manual

    cdef cppclass SchedulerOptions:
        uint64_t seed

    cdef cppclass Engine:
        Threading threading
        uint32_t region
        SchedulerOptions options
        void use(const plait_scheduler& scheduler) except +
        void use_python "use"(
            void (*ask)(void*, const plait_stage*, size_t, Answer&) noexcept, void* context)
        Engine(size_t nodes, size_t sources, unsigned workers, const string& scheduler,
               double slice_ns) except +
        void start() except +
        void join() except +
        cbool left(int64_t timeout_ns)
        void abandon() except +
        void control_now(Control& control) except +
        void stop()
        void abort()
        void set_level(unsigned level) except +
        void set_stage_limit(size_t stage, uint32_t workers) except +
        cbool finished()
        cbool wait(int64_t timeout_ns)
        cbool schedule(shared_ptr[Control] control) except +
        cbool wait_control(Control& control, int64_t timeout_ns)
        int64_t read()
        uint32_t sinks_total

    cdef cppclass Builder:
        Builder(Engine& engine)
        StageLimits limits
        int64_t epoch_records
        int64_t limit
        void filter(uint32_t node, int on_error, shared_ptr[Program] predicate) except +
        void project(uint32_t node, int on_error, cbool hidden)
        void item(shared_ptr[Program] program, uint32_t index) except +
        void end_project() except +
        void call(uint32_t node, int on_error,
                  void (*function)(void*, const Batch&, CallOutcome&) noexcept,
                  void* context, vector[Type] types) except +
        void key_guard(uint32_t node, int on_error, vector[uint32_t] float_keys) except +
        void keyed(uint32_t node, shared_ptr[KeyedPlan] plan) except +
        void timed(uint32_t node, shared_ptr[TimedPlan] plan) except +
        uint32_t timed_stage(const string& name, int queue, unsigned workers) except +
        void event_time(uint32_t source, int column, int64_t idle_ns)
        void beat(int64_t ns)
        uint32_t parallel_stage(const string& name, cbool python) except +
        uint32_t deferred_stage(const string& name, uint32_t node, int on_error,
                                vector[Type] types, shared_ptr[Outside] outside,
                                uint32_t in_flight) except +
        uint32_t pool_stage(const string& name, shared_ptr[PoolOutside] outside) except +
        uint32_t keyed_stage(const string& name, uint32_t lanes, int queue,
                             unsigned workers) except +
        uint32_t state_stage(const string& name, void (*control)(void*, Control&) noexcept,
                             void* context, cbool keyless) except +
        uint32_t process_stage(
            const string& name, uint32_t node, int on_error, shared_ptr[TimedPlan] plan,
            void (*function)(void*, const ProcessUnit&, ProcessOutcome&) noexcept,
            void (*control)(void*, Control&) noexcept, void* context, vector[Type] types,
            cbool keyless, cbool pinned) except +
        uint32_t pooled_state_stage(
            const string& name, void (*control)(void*, Control&) noexcept,
            void (*hand_over)(void*, Control&) noexcept, void* context, cbool keyless,
            shared_ptr[PoolLanes] lanes, shared_ptr[KeyedPlan] keys) except +
        uint32_t pooled_process_stage(
            const string& name, uint32_t node, int on_error, shared_ptr[TimedPlan] plan,
            void (*function)(void*, const ProcessUnit&, ProcessOutcome&) noexcept,
            void (*control)(void*, Control&) noexcept, void (*hand_over)(void*, Control&) noexcept,
            void* context, vector[Type] types, cbool keyless, shared_ptr[PoolLanes] lanes,
            shared_ptr[KeyedPlan] keys) except +
        uint32_t union_stage(const string& name, uint32_t node,
                             vector[vector[uint32_t]] carries, int sub_bits) except +
        void join_cluster(Cluster& cluster) except +
        uint32_t route_stage(const string& name, uint32_t channel, int kind, uint32_t node,
                             shared_ptr[KeyedPlan] plan, uint32_t home, cbool repeats,
                             cbool tags) except +
        uint32_t gather_stage(const string& name, uint32_t channel, uint32_t node,
                              vector[uint32_t] sources, cbool unique, cbool tags,
                              cbool index) except +
        uint32_t no_source(const string& name, uint32_t node, uint32_t source,
                           const vector[Type]& types) except +
        uint32_t sink_stage(const string& name, uint32_t node,
                            cbool (*write)(void*, const Batch&, string&, int64_t&) noexcept,
                            void* context, cbool keep, int64_t most) except +
        uint32_t table_source(const string& name, uint32_t node, uint32_t source,
                              vector[Batch] chunks, const vector[Type]& types,
                              double rate) except +
        uint32_t rate_source(const string& name, uint32_t node, uint32_t source,
                             const vector[Type]& types, double rate, int64_t total,
                             int64_t start_us, int64_t first, cbool paced) except +
        uint32_t outside_source(const string& name, uint32_t node, uint32_t source,
                                const vector[Type]& types,
                                void (*poll)(void*, int64_t, Polled&) noexcept,
                                int64_t (*position)(void*) noexcept, void* context) except +
        void pace(uint32_t source, double rows) except +
        void connect(uint32_t before, uint32_t to, uint32_t input) except +
        void last_node(uint32_t stage, uint32_t node)

    const vector[Batch]& kept_of(const Engine& engine, uint32_t stage)


cdef extern from "plait/engine/engine_report.hpp" namespace "plait" nogil:
    vector[int64_t] counts_of(const Engine&, size_t) except +
    vector[string] stage_names_of(const Engine&) except +
    vector[int64_t] cuts_of(const Engine&, size_t) except +
    vector[int64_t] stamps_of(const Engine&, size_t) except +
    vector[int64_t] latency_of(const Engine&, const vector[double]& percents) except +
    vector[int64_t] load_of(const Engine& engine)
    vector[int64_t] stage_load_of(const Engine& engine, size_t number, unsigned workers) except +
    int64_t delivered_of(const Engine&)
    vector[int64_t] latency_buckets_of(const Engine&) except +
    vector[int64_t] loads_of(const Engine&) except +
    int64_t state_bytes_of(const Engine&) except +
    vector[Letter] take_letters(Engine&) except +
    cbool error_of(Engine&, Letter&) except +
