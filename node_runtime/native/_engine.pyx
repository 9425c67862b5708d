"""The native engine as a Python object: put together call by call, started, watched, and read.

This module binds, holds references and takes or drops the interpreter's lock; stages, order and
state are in the headers. Functions of the user run under the lock in whichever worker holds
Python's turn (`_callbacks`); what they raise is kept here and named by number.
"""

from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t, uint32_t
from libcpp cimport bool as cbool
from libcpp.memory cimport make_shared, shared_ptr, unique_ptr
from libcpp.vector cimport vector

from plait.node_runtime.native._batch cimport NativeBatch
from plait.node_runtime.native._callbacks cimport (
    Callback, ask_outside, call_outside, poll_outside, position_outside, process_outside,
    write_outside,
)
from plait.node_runtime.native._cluster cimport NativeCluster
from plait.node_runtime.native._control cimport (
    ControlItem, control_item, control_outside, hand_over_outside,
)
from plait.node_runtime.native._kernels cimport NativeProgram, Program
from plait.node_runtime.native._outside cimport NativeTray
from plait.node_runtime.native._pool cimport NativeLanes, NativeWay
from plait.node_runtime.native._timed cimport NativeTimedPlan
from plait.node_runtime.native.declarations.batch cimport Batch, Type
from plait.node_runtime.native.declarations.calls cimport Outside
from plait.node_runtime.native.declarations.engine cimport (
    Builder, Engine, Letter, Threading, counts_of, cuts_of, delivered_of, error_of, kept_of,
    latency_buckets_of, latency_of, load_of, loads_of, plait_scheduler, stage_load_of,
    stage_names_of, stamps_of, state_bytes_of, take_letters,
)
from plait.node_runtime.native.declarations.keyed cimport (
    AggregateSpec, KeyedPlan, aggregates_into, keys_into,
)

from plait.node_runtime.native._kernels import NativeProgram as ProgramType
from plait.node_runtime.native._outside import interrupt
from plait.node_runtime.lowering.expressions import error_text
from plait.model.schedulers import NativeScheduler
from plait.model.schedulers import name_of as scheduler_name


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


cdef class NativeEngine:
    """One job's stages and workers."""

    cdef unique_ptr[Engine] engine
    cdef unique_ptr[Builder] builder
    cdef list held  # what the engine calls
    cdef list turn
    cdef readonly list raised
    cdef unsigned workers
    cdef NativeCluster cluster
    cdef object __weakref__

    def __cinit__(self, size_t nodes, size_t sources, unsigned workers, str scheduler,
                  double slice_ns, uint32_t batches, int64_t records, int64_t size_bytes,
                  bint locked, int64_t epoch_records, int64_t limit,
                  NativeCluster cluster=None):
        self.engine.reset(new Engine(nodes, sources, workers, scheduler.encode(), slice_ns))
        self.builder.reset(new Builder(self.engine.get()[0]))
        self.builder.get().limits.batches = batches
        self.builder.get().limits.records = records
        self.builder.get().limits.bytes = size_bytes
        self.builder.get().limits.locked_reorder = locked
        self.builder.get().epoch_records = epoch_records
        self.builder.get().limit = limit
        self.held = []
        self.turn = [0]
        self.raised = []
        self.workers = workers
        self.cluster = cluster
        if cluster is not None:
            self.builder.get().join_cluster(cluster.cluster.get()[0])

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

    def scheduler_seed(self, seed):
        self.engine.get().options.seed = seed

    def place(self, str threading, uint32_t region, bint ordered=True):
        """The model (dynamic, dedicated, manual) and region of the stages that are added now, and
        whether their batches leave in the order in which they came."""
        self.builder.get().limits.ordered = ordered
        self.engine.get().threading = <Threading><int>THREADINGS[threading]
        self.engine.get().region = region

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

    def filter(self, uint32_t node, str on_error, NativeProgram program not None):
        self.builder.get().filter(node, ON_ERROR[on_error], program.program)

    def project(self, uint32_t node, str on_error, list items, bint hidden=False):
        """`items`: a NativeProgram, or the number of an input column that is passed on as it is."""
        cdef shared_ptr[Program] none
        self.builder.get().project(node, ON_ERROR[on_error], hidden)
        for item in items:
            if isinstance(item, ProgramType):
                self.builder.get().item((<NativeProgram>item).program, 0)
            else:
                self.builder.get().item(none, item)
        self.builder.get().end_project()

    def call(self, uint32_t node, str on_error, function, schema, bint whole):
        cdef void* context = self.hold(function, None, whole, on_error == "fail")
        self.builder.get().call(node, ON_ERROR[on_error], call_outside, context, types_of(schema))

    def key_guard(self, uint32_t node, str on_error, list float_keys):
        self.builder.get().key_guard(node, ON_ERROR[on_error], float_keys)

    def keyed(self, uint32_t node, list keys, list aggregates, unsigned bin_bits,
              unsigned lane_bits):
        """`keys`: (column, Type); `aggregates`: (kind, column or -1, Type, nullable)."""
        cdef vector[int] columns
        cdef vector[Type] types
        cdef vector[AggregateSpec] specs
        keys_into(keys, columns, types)
        aggregates_into(aggregates, specs)
        # On several nodes a bin has its own part of the table, so that it comes and goes as one.
        cdef unsigned segment_bits = 6 if self.cluster is None else 12
        cdef KeyedPlan plan = KeyedPlan.make(columns, types, specs, bin_bits, lane_bits,
                                             segment_bits)
        self.builder.get().keyed(node, make_shared[KeyedPlan](plan))

    def timed(self, uint32_t node, NativeTimedPlan plan not None):
        self.builder.get().timed(node, plan.plan)

    def timed_stage(self, str name, str queue):
        return self.builder.get().timed_stage(name.encode(), QUEUES[queue], self.workers)

    def parallel_stage(self, str name, bint python):
        return self.builder.get().parallel_stage(name.encode(), python)

    def tray_stage(self, str name, uint32_t node, str on_error, schema, NativeTray tray not None,
                   uint32_t in_flight):
        """One operator whose batches wait in the tray for whoever works on them."""
        cdef shared_ptr[Outside] outside = <shared_ptr[Outside]>tray.tray
        tray.raised = self.raised
        tray.stops = on_error == "fail"
        return self.builder.get().deferred_stage(name.encode(), node, ON_ERROR[on_error], types_of(schema),
                                                 outside, in_flight)

    def pool_stage(self, str name, NativeWay way not None):
        """The functions added so far, in worker processes (or here, until the pool is used)."""
        return self.builder.get().pool_stage(name.encode(), way.outside)

    def keyed_stage(self, str name, uint32_t lanes, str queue):
        return self.builder.get().keyed_stage(name.encode(), lanes, QUEUES[queue], self.workers)

    def state_stage(self, str name, state, bint keyless):
        return self.builder.get().state_stage(name.encode(), control_outside,
                                              self.hold(None, state), keyless)

    def pooled_state_stage(self, str name, state, bint keyless, NativeLanes lanes not None,
                           list keys, unsigned bin_bits):
        """The same with its state in worker processes, as soon as `lanes` says so."""
        return self.builder.get().pooled_state_stage(
            name.encode(), control_outside, hand_over_outside, self.hold(None, state), keyless,
            lanes.lanes, keys_plan(keys, bin_bits))

    def pooled_process_stage(self, str name, uint32_t node, str on_error,
                             NativeTimedPlan plan not None, state, schema, bint keyless,
                             NativeLanes lanes not None, list keys, unsigned bin_bits):
        """A process with its state in worker processes, as soon as `lanes` says so."""
        return self.builder.get().pooled_process_stage(
            name.encode(), node, ON_ERROR[on_error], plan.plan, process_outside, control_outside,
            hand_over_outside, self.hold(state, state, False, on_error == "fail"), types_of(schema),
            keyless, lanes.lanes, keys_plan(keys, bin_bits))

    def process_stage(self, str name, uint32_t node, str on_error, NativeTimedPlan plan not None,
                      state, schema, bint keyless, bint pinned=False):
        """A process with timers: `state` is called with every unit, and has its bins. `pinned`: an
        operator with its own loop."""
        return self.builder.get().process_stage(
            name.encode(), node, ON_ERROR[on_error], plan.plan, process_outside, control_outside,
            self.hold(state, state, False, on_error == "fail"), types_of(schema), keyless, pinned)

    def route_stage(self, str name, uint32_t channel, str by, uint32_t node, list keys,
                    unsigned bin_bits, uint32_t home, bint repeats, bint tags):
        """The sending side of an exchange: by "key" (`keys`: (column, Type)), to the node of the
        one "bin" of operator `node`, or to the "home" node, which has the only stage behind it
        unless `by` is "pinned"."""
        cdef shared_ptr[KeyedPlan] plan
        if by == "key":
            plan = keys_plan(keys, bin_bits)
        return self.builder.get().route_stage(name.encode(), channel,
                                              BY[by], node, plan, home, repeats, tags)

    def gather_stage(self, str name, uint32_t channel, uint32_t node, list sources, bint unique,
                     bint tags, bint index):
        return self.builder.get().gather_stage(name.encode(), channel, node, sources, unique, tags,
                                               index)

    def no_source(self, str name, uint32_t node, uint32_t source, schema):
        return self.builder.get().no_source(name.encode(), node, source, types_of(schema))

    def union_stage(self, str name, uint32_t node, list carries, int sub_bits=-1):
        cdef vector[vector[uint32_t]] sources
        for numbers in carries:
            sources.push_back(numbers)
        return self.builder.get().union_stage(name.encode(), node, sources, sub_bits)

    def sink_stage(self, str name, uint32_t node, write, bint keep, int64_t most):
        if write is None:
            return self.builder.get().sink_stage(name.encode(), node, NULL, NULL, keep, most)
        return self.builder.get().sink_stage(name.encode(), node, write_outside,
                                             self.hold(write), False, most)

    def table_source(self, str name, uint32_t node, uint32_t source, list chunks, schema,
                     double rate):
        cdef vector[Batch] batches
        for chunk in chunks:
            batches.push_back((<NativeBatch>chunk).batch)
        return self.builder.get().table_source(name.encode(), node, source, batches,
                                               types_of(schema), rate)

    def rate_source(self, str name, uint32_t node, uint32_t source, schema, double rate,
                    int64_t total, int64_t start_us, int64_t first, bint paced):
        return self.builder.get().rate_source(name.encode(), node, source, types_of(schema), rate,
                                              total, start_us, first, paced)

    def reader_source(self, str name, uint32_t node, uint32_t source, schema, poll, position):
        return self.builder.get().outside_source(name.encode(), node, source, types_of(schema),
                                                 poll_outside, position_outside,
                                                 self.hold(poll, position))

    def source_records(self, int64_t records):
        """Rows in an epoch at most, of the sources that are added from here on."""
        self.builder.get().epoch_records = records

    def pace(self, uint32_t source, double rows):
        """Rows in an epoch, on average, of the source with this number."""
        self.builder.get().pace(source, rows)

    def event_time(self, uint32_t source, int column, int64_t idle_us):
        """The column that is the event time of the source with this number."""
        self.builder.get().event_time(source, column, idle_us * 1000)

    def beat(self, int64_t us):
        """Units carry the wall clock; a source without rows emits an empty one so often."""
        self.builder.get().beat(us * 1000)

    def connect(self, uint32_t before, uint32_t to, uint32_t input):
        self.builder.get().connect(before, to, input)

    def last_operator(self, uint32_t stage, uint32_t node):
        self.builder.get().last_node(stage, node)

    def start(self):
        self.engine.get().start()

    def wait(self, double seconds):
        """Waits at most so long; True when the run is over."""
        cdef int64_t ns = <int64_t>(seconds * 1e9)
        cdef cbool over
        with nogil:
            over = self.engine.get().wait(ns)
        return over

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

    def stop(self):
        with nogil:
            self.engine.get().stop()

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

    def interrupt_python(self):
        """Raises KeyboardInterrupt in the Python function that a worker runs now, if one does."""
        if self.turn[0]:
            interrupt(self.turn[0])

    def put_now(self, put):
        """Puts state in before the start: a list of what was refused."""
        cdef ControlItem item = control_item("put", 0, (), put)
        self.engine.get().control_now(item.control.get()[0])
        return item.errors()

    def control(self, kind, uint32_t op=0, bins=(), put=()):
        """Queues a control item at the next epoch boundary; None when the job is at its end."""
        cdef ControlItem item = control_item(kind, op, bins, put)
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

    def counts(self, size_t node):
        """in, out, filtered, skipped, dead-lettered, made, copied, late, absorbed."""
        return counts_of(self.engine.get()[0], node)

    def cuts(self, size_t source):
        return cuts_of(self.engine.get()[0], source)

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
        """The batches that a sink kept."""
        cdef size_t i
        cdef const vector[Batch]* batches = &kept_of(self.engine.get()[0], stage)
        cdef NativeBatch one
        out = []
        for i in range(batches.size()):
            one = NativeBatch()
            one.batch = batches[0][i]
            out.append(one)
        return out

    def letters(self):
        """Dead letters since the last call: (node, source, epoch, row, message, handle,
        batch of one row)."""
        cdef vector[Letter] letters = take_letters(self.engine.get()[0])
        cdef size_t i
        return [letter_of(letters[i]) for i in range(letters.size())]

    def error(self):
        """The failure that ended the run, like a letter, or None."""
        cdef Letter letter
        return letter_of(letter) if error_of(self.engine.get()[0], letter) else None


cdef letter_of(const Letter& letter):
    cdef NativeBatch record = NativeBatch()
    record.batch = letter.record
    if letter.code:
        message = error_text(letter.code, <bytes>letter.message)
    else:
        message = letter.message.decode("utf-8", "replace")
    return (letter.node, letter.source, letter.epoch, letter.row, message, letter.handle, record)
