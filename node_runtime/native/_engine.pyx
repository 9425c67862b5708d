"""The native engine as a Python object: put together from specs, started, watched, and read.

This module binds, holds references and takes or drops the interpreter's lock; stages, order and
state are in the headers. Functions of the user run under the lock in whichever worker holds
Python's turn (`_callbacks`); what they raise is kept here and named by number.
"""

from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport make_shared, shared_ptr, unique_ptr
from libcpp.utility cimport move
from libcpp.vector cimport vector

from plait.node_runtime.native._batch cimport NativeBatch
from plait.node_runtime.native._callbacks cimport (
    Callback, ask_outside, call_outside, mark_outside, poll_outside, position_outside,
    process_outside, write_outside,
)
from plait.node_runtime.native._cluster cimport NativeCluster
from plait.node_runtime.native._control cimport (
    ControlItem, control_item, control_outside, hand_over_outside, keep_thresholds,
)
from plait.node_runtime.native._kernels cimport NativeProgram
from plait.node_runtime.native._outside cimport NativeTray
from plait.node_runtime.native._pool cimport NativeLanes, NativeWay
from plait.node_runtime.native._timed cimport NativeTimedPlan
from plait.node_runtime.native.declarations.batch cimport Batch, Type
from plait.node_runtime.native.declarations.calls cimport Outside
from plait.node_runtime.native.declarations.cluster cimport Cluster
from plait.node_runtime.native.declarations.engine cimport (
    Builder, DeferredStageSpec, Engine, GatherStageSpec, KeyedStageSpec, Letter, OnError,
    Operators, ParallelStageSpec, PoolStageSpec, ProcessStageSpec, ProjectItem, PythonState,
    QueueKind, RateSpec, RouteStageSpec, RoutingKind, SinkStageSpec, SourceStageSpec, ShedSample,
    SliceTime, StageSpec, StateStageSpec, Threading, TimedStageSpec, UnionStageSpec, add_call,
    add_filter, add_event_time, add_keep, add_nan_filter, add_project, add_shed, counts_of,
    cuts_of, delivered_of, error_of, closed_counts_of, drop_log, kept_of, keeps_of,
    latency_buckets_of, latency_of, load_of, loads_of, log_of, mark_complete, plait_scheduler,
    repeat_cuts, set_call, set_text_limit, stage_load_of, stage_names_of, stage_time_of,
    stamps_of, state_bytes_of, take_closed, take_letters, unfinished_of, want_no_mark,
)
from plait.node_runtime.native.declarations.keyed cimport (
    AggregateSpec, KeyedPlan, aggregates_into, keys_into,
)

from plait.node_runtime.native._kernels import NativeProgram as ProgramType
from plait.node_runtime.native.stage_specs import (
    EventTimeSpec, FilterSpec, NanKeySpec, ProjectSpec, ShedSpec,
)
from plait.node_runtime.native._outside import interrupt
from plait.node_runtime.lowering.expressions import error_text
from plait.model.schedulers import NativeScheduler
from plait.model.schedulers import name_of as scheduler_name
from plait.results.engine_failures import EngineFailure, FailureKind

cdef tuple KINDS = tuple(sorted(FailureKind, key=lambda kind: kind.value))


cdef vector[Type] types_of(schema):
    cdef vector[Type] types
    for field in schema:
        types.push_back(<Type><int>field.type.code)
    return types


cdef shared_ptr[KeyedPlan] keys_plan(list keys, unsigned bin_bits) except *:
    """Of keys (column, Type) alone: for those who tell rows apart by key and hold no state."""
    cdef vector[AggregateSpec] none
    cdef vector[int] columns
    cdef vector[Type] types
    keys_into(keys, columns, types)
    return make_shared[KeyedPlan](KeyedPlan.make(columns, types, none, bin_bits, 0))


cdef dict BY = {"key": 0, "bin": 1, "home": 2, "pinned": 3}
cdef dict ON_ERROR = {"fail": 0, "skip": 1, "dead_letter": 2}
cdef dict QUEUES = {"lanes": 0, "hybrid": 1, "partitioned": 2, "shared": 3}
cdef dict THREADINGS = {"dynamic": 0, "dedicated": 1, "manual": 2}


cdef OnError policy(str on_error) except *:
    return <OnError><int>ON_ERROR[on_error]


cdef int fill_stage(StageSpec& stage, spec) except -1:
    stage.name = spec.name.encode()
    stage.threading = <Threading><int>THREADINGS[spec.threading]
    stage.region = spec.region
    stage.ordered = spec.ordered
    return 0


cdef int fill_source(SourceStageSpec& source, spec) except -1:
    fill_stage(source.stage, spec.stage)
    source.op = spec.op
    source.source = spec.source
    source.types = types_of(spec.schema)
    source.epoch_records = spec.epoch_records
    source.limit = spec.limit
    source.on_error = policy(spec.on_error)
    return 0


def limit_text(int64_t most=2**31 - 1):
    """Sets how many bytes of text a column of a unit may hold, for tests, while nothing runs;
    without an argument as many as it can."""
    set_text_limit(most)


cdef ProjectItem item_of(column):
    """A program, or the number of a column."""
    cdef ProjectItem item
    if isinstance(column, ProgramType):
        item.program = (<NativeProgram>column).program
    else:
        item.index = column
    return item


cdef list batches_of(const vector[Batch]& batches):
    cdef size_t i
    cdef NativeBatch one
    out = []
    for i in range(batches.size()):
        one = NativeBatch()
        one.batch = batches[i]
        out.append(one)
    return out


cdef class NativeEngine:
    """One job's stages and workers. Stages are added from the specs of `stage_specs`; each gives
    its number."""

    cdef unique_ptr[Engine] engine
    cdef unique_ptr[Builder] builder
    cdef list held  # what the engine calls
    cdef list turn
    cdef readonly list raised
    cdef unsigned workers
    cdef NativeCluster cluster
    cdef object __weakref__

    def __cinit__(self, spec):
        cdef Cluster* links = NULL
        self.engine.reset(new Engine(spec.operators, spec.sources, spec.workers,
                                     spec.scheduler.encode(), spec.slice_ns))
        self.engine.get().options.seed = spec.scheduler_seed
        self.cluster = spec.cluster
        if self.cluster is not None:
            links = self.cluster.cluster.get()
        self.builder.reset(new Builder(self.engine.get()[0], links))
        self.builder.get().limits.batches = spec.queue_batches
        self.builder.get().limits.records = spec.queue_records
        self.builder.get().limits.bytes = spec.queue_bytes
        self.builder.get().limits.locked_reorder = spec.locked_reorder
        self.held = []
        self.turn = [0]
        self.raised = []
        self.workers = spec.workers

    def __dealloc__(self):
        if self.cluster is not None:
            self.cluster.cluster.get().close()
        with nogil:
            self.engine.reset()

    cdef void* hold(self, function, other=None, bint whole=False, bint stops=True):
        cdef Callback callback = Callback()
        callback.function = function
        callback.other = other
        callback.raised = self.raised
        callback.turn = self.turn
        callback.whole = whole
        callback.stops = stops
        self.held.append(callback)
        return <void*>callback

    def use_scheduler(self, scheduler):
        """A Scheduler or NativeScheduler of the user, when all stages are there."""
        cdef size_t address
        if isinstance(scheduler, NativeScheduler):
            address = scheduler.address
            self.held.append(scheduler)
            self.engine.get().use((<const plait_scheduler*>address)[0])
        else:
            names = [name.decode() for name in stage_names_of(self.engine.get()[0])]
            self.engine.get().use_python(
                ask_outside, self.hold(scheduler.pick, (scheduler_name(scheduler), names)))

    cdef void* hold_call(self, spec):
        return self.hold(spec.function, None, spec.whole, spec.on_error == "fail")

    cdef int add_operators(self, Operators& to, specs) except -1:
        for spec in specs:
            if isinstance(spec, FilterSpec):
                add_filter(to, spec.op, policy(spec.on_error),
                           (<NativeProgram>spec.program).program)
            elif isinstance(spec, ProjectSpec):
                self.add_projection(to, spec)
            elif isinstance(spec, EventTimeSpec):
                add_event_time(to, spec.op, policy(spec.on_error), item_of(spec.time), spec.origin,
                               spec.read)
            elif isinstance(spec, ShedSpec):
                self.add_shedder(to, spec)
            elif isinstance(spec, NanKeySpec):
                add_nan_filter(to, spec.op, policy(spec.on_error), spec.float_keys, spec.times)
            else:
                add_call(to, spec.op, policy(spec.on_error), call_outside, self.hold_call(spec),
                         types_of(spec.schema))
        return 0

    cdef int add_shedder(self, Operators& to, spec) except -1:
        cdef vector[ShedSample] samples
        cdef size_t i
        samples.resize(len(spec.samples))
        for i, (keys, queries) in enumerate(spec.samples):
            if keys:
                samples[i].keys = keys_plan(keys, 0)
            samples[i].queries = queries
        add_shed(to, spec.op, spec.seed, samples, spec.ratio)
        return 0

    cdef int add_projection(self, Operators& to, spec) except -1:
        cdef vector[ProjectItem] items
        cdef size_t i
        items.resize(len(spec.items))
        for i, column in enumerate(spec.items):
            items[i] = item_of(column)
        add_project(to, spec.op, policy(spec.on_error), items, spec.hidden)
        return 0

    def parallel_stage(self, spec):
        cdef ParallelStageSpec stage
        fill_stage(stage.stage, spec.stage)
        self.add_operators(stage.operators, spec.operators)
        stage.python = spec.python
        return self.builder.get().parallel_stage(move(stage))

    def tray_stage(self, spec):
        cdef DeferredStageSpec stage
        cdef NativeTray tray = spec.tray
        tray.raised = self.raised
        tray.stops = spec.on_error == "fail"
        fill_stage(stage.stage, spec.stage)
        stage.op = spec.op
        stage.on_error = policy(spec.on_error)
        stage.types = types_of(spec.schema)
        stage.outside = <shared_ptr[Outside]>tray.tray
        stage.in_flight = spec.in_flight
        return self.builder.get().deferred_stage(move(stage))

    def pool_stage(self, spec):
        cdef PoolStageSpec stage
        fill_stage(stage.stage, spec.stage)
        self.add_operators(stage.calls, spec.calls)
        stage.outside = (<NativeWay>spec.way).outside
        return self.builder.get().pool_stage(move(stage))

    def keyed_stage(self, spec):
        cdef KeyedStageSpec stage
        cdef vector[int] columns
        cdef vector[Type] types
        cdef vector[AggregateSpec] aggregates
        # On several nodes a bin has its own part of the table, so that it comes and goes as one.
        cdef unsigned segment_bits = 6 if self.cluster is None else 12
        keys_into(spec.keys, columns, types)
        aggregates_into(spec.aggregates, aggregates)
        stage.plan = make_shared[KeyedPlan](KeyedPlan.make(
            columns, types, aggregates, spec.bin_bits, spec.lane_bits, segment_bits))
        fill_stage(stage.stage, spec.stage)
        stage.op = spec.op
        stage.queue = <QueueKind><int>QUEUES[spec.queue]
        stage.errors.on_error = policy(spec.errors.on_error)
        stage.errors.record = spec.errors.record
        self.add_operators(stage.before, spec.before)
        self.add_operators(stage.after, spec.after)
        return self.builder.get().keyed_stage(move(stage))

    def timed_stage(self, spec):
        cdef TimedStageSpec stage
        fill_stage(stage.stage, spec.stage)
        stage.op = spec.op
        stage.plan = (<NativeTimedPlan>spec.plan).plan
        stage.queue = <QueueKind><int>QUEUES[spec.queue]
        stage.errors.on_error = policy(spec.errors.on_error)
        stage.errors.record = spec.errors.record
        self.add_operators(stage.before, spec.before)
        self.add_operators(stage.after, spec.after)
        return self.builder.get().timed_stage(move(stage))

    cdef int fill_state(self, PythonState& state, void* context, spec) except -1:
        state.control = control_outside
        state.hand_over = hand_over_outside
        state.context = context
        state.keyless = spec.keyless
        if spec.pool is not None:
            state.lanes = (<NativeLanes>spec.pool.lanes).lanes
            state.keys = keys_plan(spec.pool.keys, spec.pool.bin_bits)
        return 0

    def state_stage(self, spec):
        cdef StateStageSpec stage
        fill_stage(stage.stage, spec.stage)
        set_call(stage, spec.call.op, policy(spec.call.on_error), call_outside,
                 self.hold_call(spec.call), types_of(spec.call.schema))
        self.fill_state(stage.state, self.hold(None, spec.call.function), spec)
        return self.builder.get().state_stage(move(stage))

    def process_stage(self, spec):
        cdef ProcessStageSpec stage
        fill_stage(stage.stage, spec.stage)
        stage.op = spec.op
        stage.on_error = policy(spec.on_error)
        stage.function = process_outside
        stage.types = types_of(spec.schema)
        stage.plan = (<NativeTimedPlan>spec.plan).plan
        stage.pinned = spec.pinned
        self.fill_state(
            stage.state, self.hold(spec.state, spec.state, False, spec.on_error == "fail"), spec)
        return self.builder.get().process_stage(move(stage))

    def route_stage(self, spec):
        cdef RouteStageSpec stage
        fill_stage(stage.stage, spec.stage)
        stage.channel = spec.channel
        stage.routing.kind = <RoutingKind><int>BY[spec.by]
        if spec.by == "key":
            stage.routing.plan = keys_plan(spec.keys, spec.bin_bits)
        stage.routing.op = spec.op
        stage.routing.home = spec.home
        stage.routing.repeats = spec.repeats
        stage.routing.tags = spec.tags
        self.add_operators(stage.operators, spec.operators)
        return self.builder.get().route_stage(move(stage))

    def gather_stage(self, spec):
        cdef GatherStageSpec stage
        fill_stage(stage.stage, spec.stage)
        stage.channel = spec.channel
        stage.op = spec.op
        stage.sources = spec.sources
        stage.unique = spec.unique
        stage.tags = spec.tags
        stage.index = spec.index
        return self.builder.get().gather_stage(move(stage))

    def union_stage(self, spec):
        cdef UnionStageSpec stage
        fill_stage(stage.stage, spec.stage)
        stage.op = spec.op
        stage.carries = spec.carries
        stage.sub_bits = spec.sub_bits
        return self.builder.get().union_stage(move(stage))

    def sink_stage(self, spec):
        cdef SinkStageSpec stage
        fill_stage(stage.stage, spec.stage)
        stage.op = spec.op
        stage.limit = spec.limit
        if spec.write is None:
            stage.keep = spec.keep
        else:
            stage.write = write_outside
            stage.context = self.hold(spec.write, spec.mark)
            if spec.mark is not None:
                stage.note_mark = mark_outside
            stage.marks_itself = spec.last_source >= 0
            stage.last_source = max(spec.last_source, 0)
            stage.delivered_before = spec.delivered_before
        return self.builder.get().sink_stage(move(stage))

    def table_source(self, spec, *, list chunks, double rate_per_s, int64_t first):
        """`rate_per_s`: of a replay; 0: as fast as the records are taken. `first`: the row to begin
        with."""
        cdef SourceStageSpec stage
        cdef vector[Batch] batches
        for chunk in chunks:
            batches.push_back((<NativeBatch>chunk).batch)
        fill_source(stage, spec)
        return self.builder.get().table_source(stage, batches, rate_per_s, first)

    def rate_source(self, spec, *, double rate_per_s, int64_t total, int64_t start_us,
                    int64_t first):
        """Numbered records from `first` on, each at its time; `total` -1: no end."""
        cdef SourceStageSpec stage
        cdef RateSpec rate
        fill_source(stage, spec)
        rate.per_s = rate_per_s
        rate.total = total
        rate.start_us = start_us
        rate.first = first
        return self.builder.get().rate_source(stage, rate)

    def reader_source(self, spec, *, poll, position):
        cdef SourceStageSpec stage
        fill_source(stage, spec)
        return self.builder.get().outside_source(stage, poll_outside, position_outside,
                                                 self.hold(poll, position))

    def no_source(self, spec):
        """Another node reads it."""
        cdef SourceStageSpec stage
        fill_source(stage, spec)
        return self.builder.get().no_source(stage)

    def pace(self, uint32_t source, double rows):
        """Rows in an epoch, on average, of the source with this number."""
        self.builder.get().pace(source, rows)

    def event_time(self, uint32_t source, int column, int64_t idle_us):
        """The column that is the event time of the source with this number."""
        self.builder.get().event_time(source, column, idle_us * 1000)

    def order_by_time(self, list times):
        """The order is that of event time; of each source, the one that it goes by."""
        cdef vector[SliceTime] given
        given.resize(len(times))
        for i, spec in enumerate(times):
            given[i].time = item_of(spec.time)
            given[i].computed = spec.computed
            given[i].max_jump = spec.max_jump_us
        self.builder.get().order_by_time(given)

    def beat(self, int64_t us):
        """Units carry the wall clock; a source without rows emits an empty one so often."""
        self.builder.get().beat(us * 1000)

    def connect(self, uint32_t before, uint32_t to, uint32_t input):
        self.builder.get().connect(before, to, input)

    def last_operator(self, uint32_t stage, uint32_t op):
        """The operator whose fan-out after this stage counts as copied."""
        self.builder.get().last_op(stage, op)

    def start(self):
        self.engine.get().start()

    def wait(self, double seconds):
        """Waits at most so long; True when the run is over."""
        cdef int64_t ns = <int64_t>(seconds * 1e9)
        cdef cbool over
        with nogil:
            over = self.engine.get().wait(ns)
        return over

    def left(self):
        """Whether all workers have left: nobody is in a stage any more."""
        return self.engine.get().left(0)

    def join(self, double seconds):
        """Waits at most so long for the workers to leave; True when they have."""
        cdef int64_t ns = <int64_t>(seconds * 1e9)
        cdef cbool gone
        with nogil:
            gone = self.engine.get().left(ns)
            if gone:
                self.engine.get().join()
        return gone

    def abandon(self):
        """Leaves workers behind that are held up in a Python function; the engine then
        never goes."""
        Py_INCREF(self)
        self.engine.get().abandon()

    def stop(self, bint flush=False):
        """Ends the sources; `flush`: as if they were at their end, so that windows close."""
        with nogil:
            self.engine.get().stop(flush)

    def was_stopped(self, size_t source):
        """Whether a source was stopped, here, before its end. After the run."""
        return self.engine.get().epochs.stopped(source)

    def drop_unfinished(self, uint32_t op):
        """How many results of an event-time operator were not due before the end; after the run,
        once."""
        return unfinished_of(self.engine.get()[0], op)

    def abort(self):
        with nogil:
            self.engine.get().abort()

    def set_level(self, unsigned level):
        """So many workers take part from now on; the others are suspended between two batches."""
        with nogil:
            self.engine.get().set_level(level)

    def set_stage_limit(self, size_t stage, uint32_t workers):
        """At most so many workers are in the stage at a time from now on."""
        with nogil:
            self.engine.get().set_stage_limit(stage, workers)

    def load(self):
        """(records taken in by all stages, worker time in them in ns, workers not suspended)."""
        return tuple(load_of(self.engine.get()[0]))

    def stage_loads(self):
        """Of every stage: (name, ns in which its worklist was full, its degree, the most workers it
        can use, the stages behind it)."""
        found = []
        for i, name in enumerate(stage_names_of(self.engine.get()[0])):
            full, degree, most, *after = stage_load_of(self.engine.get()[0], i, self.workers)
            found.append((name.decode(), full, degree, most, after))
        return found

    def stage_times(self):
        """Of every stage: (processor time in ns, records taken in, records handed on, records that
        wait, ns in which its worklist was full)."""
        cdef size_t i, count = stage_names_of(self.engine.get()[0]).size()
        return [tuple(stage_time_of(self.engine.get()[0], i)) for i in range(count)]

    def rest_ns(self):
        """Processor time of the workers outside of stages: looking for work, and links."""
        return self.engine.get().rest_ns()

    def python_thread(self):
        """The thread that runs Python code for a worker now; 0 if none does."""
        return self.turn[0]

    def interrupt_python(self):
        """Raises KeyboardInterrupt in the Python function that a worker runs now, if one does."""
        if self.turn[0]:
            interrupt(self.turn[0])

    def put_now(self, put):
        """Puts state in before the start: a list of what was refused."""
        cdef ControlItem item = control_item("put", 0, (), put)
        self.engine.get().control_now(item.control.get()[0])
        return item.errors()

    def start_at(self, uint64_t epoch, rows, skips, slices=()):
        """Before the start: goes on with this epoch and these rows of the sources; `skips` of each
        come again. False: `slices` are not those of a job with these sources in order of time."""
        return self.engine.get().start_at(epoch, rows, skips, list(slices))

    def slice_from(self, uint64_t epoch, rows, int64_t epoch_records):
        """Before the start, on several nodes: this epoch begins with these rows of the sources."""
        self.engine.get().slice_from(epoch, rows, epoch_records)

    def keep_positions(self):
        """Before the start: control items say where the sources can go on, whatever the order."""
        self.engine.get().keep_positions()

    def keep_cuts(self, bint here):
        """Before the start of a job that may have to repeat epochs: whether sources log what they
        put into them here, and give them the time of this node. Of several nodes one does."""
        self.engine.get().keep_cuts(here)

    def cut_log(self, size_t source, uint64_t first, uint64_t end):
        """The first epoch in [first, end) that is known, then of each: rows, stamp and kind."""
        return log_of(self.engine.get()[0], source, first, end)

    def drop_cuts(self, uint64_t before):
        """Those of epochs before this one are not asked for any more."""
        drop_log(self.engine.get()[0], before)

    def repeat(self, logs, uint64_t until):
        """Before the start: each source puts into its epochs what its log says, as `cut_log` gives
        it; no control item comes before epoch `until`."""
        repeat_cuts(self.engine.get()[0], logs, until)

    def mark_complete(self, uint32_t stage):
        """Marks a sink that commits between marks where it is: the boundary; 0: nothing new has
        come; -1: it is within an epoch, or busy: ask again, or `want_no_mark`; -2: it failed."""
        return mark_complete(self.engine.get()[0], stage)

    def want_no_mark(self, uint32_t stage):
        """Does not ask again; a mark that was made meanwhile is told the next time."""
        want_no_mark(self.engine.get()[0], stage)

    def next_epoch(self):
        """The epoch that the sources emit next."""
        return self.engine.get().epochs.progress().next

    def control(
        self, kind, uint32_t op=0, bins=(), put=(), bint last=False, uint64_t number=0,
        uint64_t since=0,
    ):
        """Queues a control item at the next epoch boundary; None when the job is at its end.
        `last`: the sources are stopped there, and windows stay open."""
        cdef ControlItem item = control_item(kind, op, bins, put, number, since)
        item.control.get().last = last
        cdef cbool queued
        with nogil:
            queued = self.engine.get().schedule(item.control)
        return item if queued else None

    def wait_control(self, ControlItem item not None, double seconds):
        cdef int64_t ns = <int64_t>(seconds * 1e9)
        cdef cbool arrived
        with nogil:
            arrived = self.engine.get().wait_control(item.control.get()[0], ns)
        return arrived

    def save(self, ControlItem item not None, double seconds):
        """Writes what a mark that has arrived left to be written, for at most so long; False: there
        is more."""
        cdef int64_t ns = <int64_t>(seconds * 1e9)
        cdef cbool done
        with nogil:
            done = self.engine.get().save(item.control.get()[0], ns)
        return done

    def counts(self, size_t op):
        """in, out, filtered, skipped, dead-lettered, made, copied, late, absorbed, shed."""
        return counts_of(self.engine.get()[0], op)

    def closed_counts(self, size_t op):
        """The same of the epochs before the last mark and of every second interval before; exact
        when the mark is at all sinks."""
        return closed_counts_of(self.engine.get()[0], op)

    def cuts(self, size_t source):
        return cuts_of(self.engine.get()[0], source)

    def keeps(self):
        """Every plan of what is kept: (epoch, threshold of each query; none: all)."""
        cdef list numbers = keeps_of(self.engine.get()[0])
        found = []
        at = 0
        while at < len(numbers):
            count = numbers[at + 1]
            found.append((numbers[at], tuple(numbers[at + 2:at + 2 + count])))
            at += 2 + count
        return found

    def keep_from(self, uint64_t epoch, thresholds):
        """Before the start: so much of each query is kept from an epoch on."""
        add_keep(self.engine.get()[0], epoch, thresholds)

    def keep(self, thresholds):
        """Queues a control item, from which on so much of each query is kept; none: all. None when
        the job is at its end."""
        cdef ControlItem item = control_item("keep", 0, (), ())
        keep_thresholds(item, thresholds)
        cdef cbool queued
        with nogil:
            queued = self.engine.get().schedule(item.control)
        return item if queued else None

    def stamps(self, size_t source):
        return stamps_of(self.engine.get()[0], source)

    def records_read(self):
        return self.engine.get().read()

    def records_delivered(self):
        return delivered_of(self.engine.get()[0])

    def latency_ns(self, percents):
        """The percentiles asked for, then the maximum."""
        return latency_of(self.engine.get()[0], percents)

    def latency_buckets(self):
        """Of all latencies so far: [(upper edge in ns, count)], and the greatest."""
        cdef list numbers = latency_buckets_of(self.engine.get()[0])
        most = numbers.pop()
        return list(zip(numbers[::2], numbers[1::2], strict=True)), most

    def loads(self):
        """Rows sent to each bin, over all exchanges, from samples."""
        return loads_of(self.engine.get()[0])

    def state_bytes(self):
        return state_bytes_of(self.engine.get()[0])

    def sinks(self):
        """How many ends the streams have on this node."""
        return self.engine.get().sinks_total

    def kept_batches(self, uint32_t stage):
        """The batches that a sink kept since the last mark; after the run."""
        return batches_of(kept_of(self.engine.get()[0], stage))

    def take_closed(self, uint32_t stage):
        """Those that it kept before the last mark, once."""
        return batches_of(take_closed(self.engine.get()[0], stage))

    def letters(self):
        """Dead letters since the last call, as EngineFailure."""
        cdef vector[Letter] letters = take_letters(self.engine.get()[0])
        cdef size_t i
        return [self.failure_of(letters[i]) for i in range(letters.size())]

    def error(self):
        """The EngineFailure that ended the run, or None."""
        cdef Letter letter
        return self.failure_of(letter) if error_of(self.engine.get()[0], letter) else None

    cdef failure_of(self, const Letter& letter):
        cdef NativeBatch record = NativeBatch()
        record.batch = letter.record
        if letter.code:
            message = error_text(letter.code, <bytes>letter.message)
        else:
            message = letter.message.decode("utf-8", "replace")
        error = self.raised[letter.handle] if letter.handle >= 0 else None
        kind = KINDS[<int>letter.kind]
        # A timer that a record set for a time gone by is due behind that record.
        row = letter.row + (kind is FailureKind.TIMER and letter.half)
        return EngineFailure(letter.op, letter.source, letter.epoch, row, kind, message, error,
                             record)
