"""The two sides of the ring that worker processes share with the engine, as Python objects.

`NativePool` is the engine's side, `NativeWorker` that of a worker process. Batches go in and out
without the interpreter; only what a function raised comes through it, to be raised again.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport make_shared, shared_ptr, unique_ptr
from libcpp.pair cimport pair
from libcpp.string cimport string
from libcpp.vector cimport vector

from cpython.exc cimport PyErr_CheckSignals

from plait.node_runtime.native._batch cimport NativeBatch
from plait.node_runtime.native._process cimport MadeRows
from plait.node_runtime.native._records cimport rows_array
from plait.node_runtime.native.declarations.pool cimport (
    LaneBin, LaneMessage, LaneRestore, LaneStep, LaneUnit, Poison, Pool, PoolLanes, PoolOutside,
    PoolStep, PoolUser, PoolWorker, StepFailure,
)


cdef extern from "<sys/prctl.h>" nogil:
    int prctl(int option, unsigned long value) noexcept
    int PR_SET_PDEATHSIG

cdef extern from "<signal.h>" nogil:
    int SIGKILL


def die_with_parent():
    """This process is killed when its parent's thread that forked it ends, however that is."""
    prctl(PR_SET_PDEATHSIG, <unsigned long>SIGKILL)


cdef int64_t keep_raised(void* context, const string& raised) noexcept with gil:
    cdef NativePool pool = <NativePool>context
    cdef bytes data = raised.data()[:raised.size()]
    try:
        return pool.keep(data)
    except BaseException:
        return -1


cdef class NativeUser:
    """One stage's way to the pool."""

    @property
    def here(self):
        """Whether the engine's own workers run its functions still."""
        return self.user.get().here()

    def go(self):
        """From now on batches go to the pool, and the state too, unless it cannot be sent there."""
        self.user.get().go()

    @property
    def why_here(self):
        """Why the state could not be sent; empty: it could, or it was not tried."""
        return self.user.get().why_here().decode("utf-8", "replace")


cdef class NativeWay(NativeUser):
    """That of a stage without state."""


cdef class NativeLanes(NativeUser):
    """That of a stage with state, which is in lanes."""

    @property
    def log_bytes(self):
        """What is kept to bring the state back, beside the last copy of it."""
        return self.lanes.get().log_bytes()

    @property
    def timers(self):
        """How many are pending in the worker processes, as they last said."""
        return self.lanes.get().timers()


cdef class NativePool:
    """The ring, and the thread that takes outcomes out of it."""

    cdef shared_ptr[Pool] pool
    cdef object keep

    def __cinit__(self, uint32_t slots, int64_t slot_bytes, uint32_t workers, keep):
        """`keep(bytes) -> number` keeps what a function raised."""
        self.keep = keep
        self.pool.reset(new Pool(slots, slot_bytes, workers, keep_raised, <void*>self))

    def __dealloc__(self):
        self.close()

    @property
    def fd(self):
        return self.pool.get().fd()

    def outside(self, uint32_t program, bint here):
        """The way of a stage to the program of this number; `here`: not before `go`."""
        cdef NativeWay made = NativeWay()
        made.outside = make_shared[PoolOutside](self.pool, program, <cbool>here)
        self.add(made, <shared_ptr[PoolUser]>made.outside)
        return made

    def lanes(self, uint32_t program, uint32_t lanes, unsigned bin_bits, bint here,
              bint copies_all, int64_t most):
        """The lanes of a stage with state: see PoolLanes."""
        cdef NativeLanes made = NativeLanes()
        made.lanes = make_shared[PoolLanes](self.pool, program, lanes, bin_bits, <cbool>here,
                                            <cbool>copies_all, most)
        self.add(made, <shared_ptr[PoolUser]>made.lanes)
        return made

    cdef add(self, NativeUser made, shared_ptr[PoolUser] user):
        made.user = user
        self.pool.get().add(user)

    def restore_fd(self, uint32_t worker):
        """A file with what a new process of this worker does first; -1: nothing. After `died`."""
        cdef int fd
        with nogil:
            fd = self.pool.get().restore_fd(worker)
        return fd

    def start(self):
        self.pool.get().start()

    def close(self):
        """Tells the worker processes to end; what they still send is let go."""
        if self.pool.get() != NULL:
            with nogil:
                self.pool.get().close()

    def note_death(self, uint32_t worker, str how):
        """A worker process is dead: its batches are done again, or fail. How many failed."""
        cdef string text = how.encode("utf-8", "replace")
        cdef uint32_t poison
        with nogil:
            poison = self.pool.get().died(worker, text)
        return poison

    def at(self, uint32_t worker):
        """(number of the batch or 0: none, records done so far) of a worker process."""
        cdef pair[uint64_t, uint64_t] found = self.pool.get().at(worker)
        return found.first, found.second

    def broke(self, str why):
        """Nothing comes back any more."""
        cdef string text = why.encode("utf-8", "replace")
        with nogil:
            self.pool.get().broke(text)

    @property
    def batches(self):
        """How many came back so far."""
        return self.pool.get().batches()


cdef class NativeWorker:
    """A worker process's side."""

    cdef unique_ptr[PoolWorker] worker

    def __cinit__(self, int fd, uint32_t index):
        self.worker.reset(new PoolWorker(fd, index))

    def claim(self):
        """Waits for a batch: the number of its program, or -1 when the pool closes."""
        cdef cbool found
        while True:
            with nogil:
                found = self.worker.get().claim(200_000_000)
            if found:
                return self.worker.get().program()
            if self.worker.get().closing():
                return -1
            PyErr_CheckSignals()

    def batch(self, bint copy):
        """The claimed batch, in shared memory until `finish`, or as a copy."""
        cdef NativeBatch made = NativeBatch()
        made.batch = self.worker.get().batch(copy)
        return made

    def poison(self):
        """The rows of the claimed batch that others died on: (number of the function, row, why)."""
        cdef vector[Poison] found = self.worker.get().poison()
        cdef list rows = []
        cdef size_t i
        for i in range(found.size()):
            rows.append((found[i].step, found[i].row, found[i].why.decode("utf-8", "replace")))
        return rows

    def finish(self, steps):
        """The outcome: for each function (batch, origin or None, whole, fatal, failures, records):
        failures are (row, message, what was raised or b""), records those that failed or None."""
        cdef vector[PoolStep] made
        for out, origin, whole, fatal, failures, records in steps:
            add_step(made, out, origin, whole, fatal, failures, records)
        self.worker.get().finish(made)

    def message(self):
        """The claimed message of a program with state, in shared memory until `answer`: (what,
        batch, unit, order, bins, put); see lane_message.hpp."""
        cdef LaneMessage message = self.worker.get().message()
        return message_of(message)

    def answer(self, step, bins, refused, MadeRows rows, timers, stop):
        """What became of the message: the outcome of its rows as for `finish`, bins that were
        asked for, why it was refused, the time and place of each row if it was a unit, when the
        first timers are due and how many are pending, and of what ended the run (words, what was
        raised, time, place, whether it is no matter of one timer) or None."""
        cdef vector[PoolStep] steps
        cdef LaneStep made
        cdef LaneBin one
        out, origin, whole, fatal, failures, records = step
        add_step(steps, out, origin, whole, fatal, failures, records)
        made.step = steps[0]
        for number, data in bins:
            one.bin = number
            one.bytes = data
            made.told.bins.push_back(one)
        made.told.refused = refused
        if rows is not None:
            made.told.times = rows.times
            made.told.places = rows.places
        made.told.next_timer, made.told.next_timeout, made.told.timers = timers
        if stop is not None:
            made.told.stopped = True
            made.stop, made.stop_raised = stop[0], stop[1]
            made.told.stopped_at.time = stop[2]
            made.told.stopped_at.place = stop[3]
            made.told.fatal = stop[4]
        self.worker.get().answer(made)

    @property
    def beat(self):
        """The address of the count of records done, and behind it of the place it is at."""
        return <size_t>self.worker.get().beat()


cdef int add_step(vector[PoolStep]& steps, NativeBatch out, origin, bint whole, bint fatal,
                  list failures, NativeBatch records) except -1:
    cdef const uint32_t[::1] rows
    cdef StepFailure failure
    cdef Py_ssize_t i
    steps.emplace_back()
    cdef PoolStep* step = &steps.back()
    if out is not None:
        step.outcome.out.length = out.batch.length
        step.outcome.out.columns = out.batch.columns
    step.outcome.whole = whole
    step.outcome.fatal = fatal
    step.outcome.batch_failed = whole and len(failures) > 0
    step.outcome.one_to_one = origin is None
    if origin is not None and not whole:
        rows = origin
        step.outcome.origin.reserve(len(rows))
        for i in range(len(rows)):
            step.outcome.origin.push_back(rows[i])
    for row, message, raised in failures:
        failure.row = row
        failure.message = message
        step.outcome.failures.push_back(failure)
        step.raised.push_back(raised)
    if records is not None:
        step.records.columns = records.batch.columns
        step.has_records = True
    return 0


cdef object message_of(LaneMessage& message):
    cdef NativeBatch batch = NativeBatch()
    cdef LaneUnit unit = message.unit
    cdef size_t i
    batch.batch.length = message.length
    batch.batch.columns = message.columns
    watermarks = [message.watermarks[i] for i in range(message.watermarks.size())]
    when = (unit.base, watermarks, unit.watermark, unit.behind, unit.now, unit.clock)
    bins = None if message.all else list(message.bins)
    put = [(message.put[i].bin, <bytes>message.put[i].bytes) for i in range(message.put.size())]
    return WHAT[<int>message.what], batch, when, rows_array(message.order), bins, put


WHAT = ("rows", "unit", "copy", "take", "put")


def read_replay(int fd, int64_t size):
    """What a new process does first: of each program (number, [(bin, bytes)], messages); the
    messages must be done before the next program is asked for. Takes the descriptor over."""
    cdef Restore restore = Restore(fd, size)
    while restore.restore.get().next():
        bins = [(restore.restore.get().bins()[i].bin, <bytes>restore.restore.get().bins()[i].bytes)
                for i in range(restore.restore.get().bins().size())]
        yield restore.restore.get().program(), bins, iter(restore.message, None)


cdef class Restore:
    cdef unique_ptr[LaneRestore] restore

    def __cinit__(self, int fd, int64_t size):
        self.restore.reset(new LaneRestore(fd, size))

    def message(self):
        cdef LaneMessage message
        return message_of(message) if self.restore.get().next_message(message) else None
