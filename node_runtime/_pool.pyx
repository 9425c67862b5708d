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

from plait.node_runtime._batch cimport NativeBatch
from plait.node_runtime.native_pool cimport (
    Poison, Pool, PoolOutside, PoolStep, PoolWorker, StepFailure,
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


cdef class NativeWay:
    """One stage's way to the pool."""

    @property
    def here(self):
        """Whether the engine's own workers run the functions still."""
        return self.outside.get().here()

    def go(self):
        """From now on batches go to the pool."""
        self.outside.get().go()


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
        self.pool.get().add(made.outside)
        return made

    def start(self):
        self.pool.get().start()

    def close(self):
        """Tells the worker processes to end; what they still send is let go."""
        if self.pool.get() != NULL:
            with nogil:
                self.pool.get().close()

    def died(self, uint32_t worker, str how):
        """A worker process is dead: its batches are done again, or fail. How many failed."""
        cdef string text = how.encode("utf-8", "replace")
        cdef uint32_t poison
        with nogil:
            poison = self.pool.get().died(worker, text)
        return poison

    def at(self, uint32_t worker):
        """(number of the batch, records done) of a worker process; None: it waits for work."""
        cdef pair[uint64_t, uint64_t] found = self.pool.get().at(worker)
        return (found.first, found.second) if found.first else None

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
