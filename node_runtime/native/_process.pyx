"""The rows that a process makes of a unit, written from Python one by one."""

from libc.stdint cimport int64_t, uint64_t

from plait.node_runtime.native._batch cimport NativeBatch
from plait.node_runtime.native._records cimport RowWriter, Shape


cdef class MadeRows:
    """Records with the time and place of each: see ProcessOutcome in process_stage.hpp."""

    def __cinit__(self, Shape shape, int64_t room):
        self.writer = RowWriter(shape, room)

    def __len__(self):
        return self.writer.count

    def add(self, record, int64_t time, uint64_t place):
        """Adds a record; a ValueError says what does not fit, and nothing is added."""
        self.writer.add(0, record)
        self.times.push_back(time)
        self.places.push_back(place)

    def back(self, int64_t count):
        """Forgets the rows after the first `count`."""
        self.writer.back(count)
        self.times.resize(count)
        self.places.resize(count)

    def orders(self):
        """(time, place) of each row."""
        return list(zip(self.times, self.places, strict=True))

    def finish(self):
        """The batch of all rows. Nothing can be added afterwards."""
        cdef RowWriter writer = self.writer
        self.writer = None
        return writer.finish(NativeBatch())


def times_of(NativeBatch batch, int column):
    """The values of a timestamp column as microseconds since 1970; anything where one is null."""
    cdef const int64_t* values = batch.batch.columns[column].i64()
    return [values[i] for i in range(batch.batch.length)]
