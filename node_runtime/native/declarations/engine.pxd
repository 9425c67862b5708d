# The engine, its builder, and what rides in the stream, as the binding sees them.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.string cimport string
from libcpp.utility cimport pair
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


cdef extern from "plait/columns/text_limit.hpp" namespace "plait" nogil:
    void set_text_limit(int64_t bytes)


cdef extern from "plait/columns/failure.hpp" namespace "plait" nogil:
    cdef enum class OnError(uint8_t):
        pass

    cdef enum class FailureKind(uint8_t):
        pass

    cdef cppclass Letter:
        uint32_t op
        uint32_t source
        uint64_t epoch
        int64_t row
        cbool half
        FailureKind kind
        string message
        int32_t code
        int64_t handle
        Batch record


cdef extern from "plait/engine/stage_specs.hpp" namespace "plait" nogil:
    cdef enum class Threading(uint8_t):
        pass

    cdef enum class QueueKind(uint8_t):
        pass

    cdef enum class RoutingKind "plait::Routing::Kind"(uint8_t):
        pass

    cdef cppclass Operators:
        Operators() noexcept

    cdef cppclass ProjectItem "plait::ProjectOperator::Item":
        shared_ptr[Program] program
        uint32_t index "from"

    cdef cppclass SliceTime:
        ProjectItem time
        cbool computed
        int64_t max_jump

    cdef cppclass StageSpec:
        string name
        Threading threading
        uint32_t region
        cbool ordered

    cdef cppclass ParallelStageSpec:
        StageSpec stage
        Operators operators
        cbool python

    cdef cppclass DeferredStageSpec:
        StageSpec stage
        uint32_t op
        OnError on_error
        vector[Type] types
        shared_ptr[Outside] outside
        uint32_t in_flight

    cdef cppclass PoolStageSpec:
        StageSpec stage
        Operators calls
        shared_ptr[PoolOutside] outside

    cdef cppclass StateErrors:
        OnError on_error
        vector[int] record

    cdef cppclass KeyedStageSpec:
        StageSpec stage
        uint32_t op
        shared_ptr[KeyedPlan] plan
        QueueKind queue
        StateErrors errors
        Operators before
        Operators after

    cdef cppclass TimedStageSpec:
        StageSpec stage
        uint32_t op
        shared_ptr[TimedPlan] plan
        QueueKind queue
        StateErrors errors
        Operators before
        Operators after

    cdef cppclass PythonState:
        void (*control)(void*, Control&) noexcept
        void (*hand_over)(void*, Control&) noexcept
        void* context
        cbool keyless
        shared_ptr[PoolLanes] lanes
        shared_ptr[KeyedPlan] keys

    cdef cppclass StateStageSpec:
        StageSpec stage
        PythonState state

    cdef cppclass ProcessStageSpec:
        StageSpec stage
        uint32_t op
        OnError on_error
        void (*function)(void*, const ProcessUnit&, ProcessOutcome&) noexcept
        vector[Type] types
        shared_ptr[TimedPlan] plan
        PythonState state
        cbool pinned

    cdef cppclass Routing:
        RoutingKind kind
        shared_ptr[KeyedPlan] plan
        uint32_t op
        uint32_t home
        cbool repeats
        cbool tags

    cdef cppclass RouteStageSpec:
        StageSpec stage
        uint32_t channel
        Routing routing
        Operators operators

    cdef cppclass GatherStageSpec:
        StageSpec stage
        uint32_t channel
        uint32_t op
        vector[uint32_t] sources
        cbool unique
        cbool tags
        cbool index

    cdef cppclass UnionStageSpec:
        StageSpec stage
        uint32_t op
        vector[vector[uint32_t]] carries
        int sub_bits

    cdef cppclass SinkStageSpec:
        StageSpec stage
        uint32_t op
        cbool (*write)(void*, const Batch&, string&, int64_t&) noexcept
        cbool (*note_mark)(void*, uint64_t, string&, int64_t&) noexcept
        void* context
        cbool keep
        int64_t limit
        cbool marks_itself
        uint32_t last_source
        uint64_t delivered_before

    cdef cppclass SourceStageSpec:
        StageSpec stage
        uint32_t op
        uint32_t source
        vector[Type] types
        int64_t epoch_records
        int64_t limit
        OnError on_error

    cdef cppclass RateSpec:
        double per_s
        int64_t total
        int64_t start_us
        int64_t first

    void add_filter(Operators& to, uint32_t op, OnError on_error,
                    shared_ptr[Program] predicate) except +
    void add_project(Operators& to, uint32_t op, OnError on_error, vector[ProjectItem] items,
                     cbool hidden) except +
    void add_event_time(Operators& to, uint32_t op, OnError on_error, ProjectItem time,
                        uint32_t origin, cbool read) except +
    void add_nan_filter(Operators& to, uint32_t op, OnError on_error,
                        vector[uint32_t] float_keys, vector[uint32_t] times) except +
    cdef cppclass ShedSample:
        shared_ptr[KeyedPlan] keys
        vector[uint32_t] queries
    void add_shed(Operators& to, uint32_t op, uint64_t seed, vector[ShedSample] samples,
                  cbool ratio) except +
    void add_call(Operators& to, uint32_t op, OnError on_error,
                  void (*function)(void*, const Batch&, CallOutcome&) noexcept, void* context,
                  vector[Type] types) except +
    void set_call(StateStageSpec& of, uint32_t op, OnError on_error,
                  void (*function)(void*, const Batch&, CallOutcome&) noexcept, void* context,
                  vector[Type] types) except +


cdef extern from "plait/engine/builder.hpp" namespace "plait" nogil:
    cdef cppclass StageLimits:
        uint32_t batches
        int64_t records
        int64_t bytes
        cbool locked_reorder

    cdef cppclass plait_scheduler "plait_scheduler":
        pass

    cdef cppclass SchedulerOptions:
        uint64_t seed

    cdef cppclass Progress "plait::Epochs::Progress":
        uint64_t next

    cdef cppclass Epochs:
        cbool stopped(size_t source) except +
        Progress progress() except +

    cdef cppclass Engine:
        SchedulerOptions options
        void use(const plait_scheduler& scheduler) except +
        void use_python "use"(
            void (*ask)(void*, const plait_stage*, size_t, Answer&) noexcept, void* context)
        Engine(size_t operators, size_t sources, unsigned workers, const string& scheduler,
               double slice_ns) except +
        void start() except +
        void join() except +
        cbool left(int64_t timeout_ns)
        void abandon() except +
        void control_now(Control& control) except +
        cbool start_at(uint64_t epoch, const vector[int64_t]& rows,
                       const vector[int64_t]& skips, const vector[int64_t]& slices) except +
        void slice_from(uint64_t epoch, const vector[int64_t]& rows, int64_t epoch_records) except +
        void keep_positions() except +
        void keep_cuts(cbool here) except +
        void stop(cbool flush) except +
        void abort()
        void set_level(unsigned level) except +
        void set_stage_limit(size_t stage, uint32_t workers) except +
        cbool finished()
        cbool wait(int64_t timeout_ns)
        cbool schedule(shared_ptr[Control] control) except +
        cbool wait_control(Control& control, int64_t timeout_ns)
        cbool save(Control& mark, int64_t timeout_ns) except +
        int64_t read()
        int64_t rest_ns()
        uint32_t sinks_total
        Epochs epochs

    cdef cppclass Builder:
        Builder(Engine& engine, Cluster* cluster) except +
        StageLimits limits
        uint32_t parallel_stage(ParallelStageSpec spec) except +
        uint32_t deferred_stage(DeferredStageSpec spec) except +
        uint32_t pool_stage(PoolStageSpec spec) except +
        uint32_t keyed_stage(KeyedStageSpec spec) except +
        uint32_t timed_stage(TimedStageSpec spec) except +
        uint32_t state_stage(StateStageSpec spec) except +
        uint32_t process_stage(ProcessStageSpec spec) except +
        uint32_t route_stage(RouteStageSpec spec) except +
        uint32_t gather_stage(GatherStageSpec spec) except +
        uint32_t union_stage(UnionStageSpec spec) except +
        uint32_t sink_stage(SinkStageSpec spec) except +
        uint32_t table_source(const SourceStageSpec& spec, vector[Batch] chunks,
                              double rate, int64_t first) except +
        uint32_t rate_source(const SourceStageSpec& spec, const RateSpec& rate) except +
        uint32_t outside_source(const SourceStageSpec& spec,
                                void (*poll)(void*, int64_t, Polled&) noexcept,
                                int64_t (*position)(void*) noexcept, void* context) except +
        uint32_t no_source(const SourceStageSpec& spec) except +
        void pace(uint32_t source, double rows) except +
        void event_time(uint32_t source, int column, int64_t idle_ns)
        void order_by_time(const vector[SliceTime]& times) except +
        void beat(int64_t ns)
        void connect(uint32_t before, uint32_t to, uint32_t input) except +
        void last_op(uint32_t stage, uint32_t op)

    const vector[Batch]& kept_of(const Engine& engine, uint32_t stage)
    vector[Batch] take_closed(Engine& engine, uint32_t stage) except +
    int64_t mark_complete(Engine& engine, uint32_t stage) except +
    void want_no_mark(Engine& engine, uint32_t stage) except +


cdef extern from "plait/engine/engine_report.hpp" namespace "plait" nogil:
    vector[int64_t] counts_of(const Engine&, size_t) except +
    vector[int64_t] closed_counts_of(const Engine&, size_t) except +
    vector[string] stage_names_of(const Engine&) except +
    vector[int64_t] cuts_of(const Engine&, size_t) except +
    vector[int64_t] stamps_of(const Engine&, size_t) except +
    vector[uint64_t] keeps_of(const Engine&) except +
    void add_keep(Engine&, uint64_t, const vector[uint64_t]&) except +
    vector[int64_t] log_of(const Engine&, size_t, uint64_t, uint64_t) except +
    void drop_log(Engine&, uint64_t) except +
    void repeat_cuts(Engine&, const vector[vector[int64_t]]&, uint64_t) except +
    vector[int64_t] latency_of(const Engine&, const vector[double]& percents) except +
    vector[int64_t] load_of(const Engine& engine)
    vector[int64_t] stage_time_of(const Engine& engine, size_t number) except +
    vector[int64_t] stage_load_of(const Engine& engine, size_t number, unsigned workers) except +
    int64_t delivered_of(const Engine&)
    vector[int64_t] latency_buckets_of(const Engine&) except +
    vector[int64_t] loads_of(const Engine&) except +
    int64_t unfinished_of(Engine&, uint32_t) except +
    int64_t state_bytes_of(const Engine&) except +
    vector[Letter] take_letters(Engine&) except +
    cbool error_of(Engine&, Letter&) except +
