"""A node's links to the other nodes of its job, and the layouts it keeps, as a Python object.

This module binds; the protocol is in the headers (cluster.hpp, links.hpp, layout.hpp). The links
have no threads of their own: the workers of the engine that was made with this object serve them.
"""

from libc.stdint cimport UINT64_MAX, int64_t, uint16_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.string cimport string
from libcpp.utility cimport move as given_away
from libcpp.vector cimport vector

from plait.protocol.bin_maps import changes_between

from plait.node_runtime.native._control cimport ControlItem, control_item
from plait.node_runtime.native.declarations.cluster cimport (
    Cluster, Layout, LinkOptions, LinkTraffic, PlannedMove, Refusal,
)


cdef Layout layout_of(given, before=None, const Layout* last=NULL):
    """`before` and `last`: the layout before, as a Python and as a native value."""
    cdef Layout layout
    layout.epoch = given.epoch
    layout.members = given.members
    owned = None if before is None else changes_between(before.owners, given.owners)
    if owned is None:
        layout.owners = given.owners
    else:
        layout.owners = last[0].owners
        for bin, rank in owned:
            if not 0 <= bin < <Py_ssize_t>layout.owners.size():
                raise ValueError(f"there is no bin {bin}")
            layout.owners[bin] = rank
    layout.readers = given.readers
    layout.epoch_records = given.epoch_records
    layout.keep = given.keep
    copied = None if before is None else changes_between(before.copies, given.copies)
    if copied is None:
        copied = given.copies
    else:
        layout.copies = last[0].copies
    for bin, rank in copied:
        if rank is None:
            layout.end_copy(bin)
        else:
            layout.copy_to(bin, rank)
    return layout


cdef class NativeCluster:
    """This node among the nodes of a job."""

    def __cinit__(self, uint32_t rank, str job, str token):
        cdef LinkOptions options
        self.cluster.reset(new Cluster(rank, job.encode(), token.encode(), options))
        self.engine = None

    def hold(self, engine):
        """Keeps the engine alive as long as frames can come in."""
        self.engine = engine

    def listen(self, str host, uint16_t port=0):
        """Starts to listen; the port."""
        return self.cluster.get().links.listen(host.encode(), port)

    def add_peer(self, uint32_t rank, str host, uint16_t port):
        cdef string name = host.encode()
        with nogil:
            self.cluster.get().links.add_peer(rank, name, port)

    def begin(self, layout, bint joins):
        """Lets the sources start with this layout's epoch (plait.protocol.messages.Layout)."""
        cdef Layout first = layout_of(layout)
        with nogil:
            self.cluster.get().begin(first, joins)

    def commit(self, layouts, stop_at=None, cbool flush=False):
        """New layouts at agreed epochs, ascending; and the common end, if there is one, with
        `flush` as if the sources ended there by themselves."""
        cdef vector[Layout] all
        cdef uint64_t stop = UINT64_MAX if stop_at is None else stop_at
        before = None
        for layout in layouts:
            if before is None:
                all.push_back(layout_of(layout))
            else:
                all.push_back(layout_of(layout, before, &all.back()))
            before = layout
        with nogil:
            self.cluster.get().commit(given_away(all), stop, flush)

    def mark(self, uint64_t epoch, bint last=False, uint64_t number=0, uint64_t since=0):
        """A mark at an agreed epoch, as a ControlItem; `last`: the sources are stopped there."""
        cdef ControlItem item = control_item("mark", 0, (), (), number, since)
        item.control.get().epoch = epoch
        item.control.get().last = last
        with nogil:
            self.cluster.get().mark(item.control)
        return item

    def close_door(self):
        """Nobody can connect any more; when the workers of the engine have left."""
        self.cluster.get().links.close_door()

    def expect(self, uint64_t number, bins, sources, targets):
        """Bins that later layouts will move: memory is made ready for those that come here."""
        cdef vector[PlannedMove] moves
        cdef PlannedMove move
        for bin, source, target in zip(bins, sources, targets):
            move.bin = bin
            move.source = source
            move.target = target
            moves.push_back(move)
        with nogil:
            self.cluster.get().expect(number, moves)

    def ready(self):
        """The last `expect` for whose bins all memory is there."""
        return self.cluster.get().ready()

    def promise(self, uint64_t ahead):
        """The epoch that the sources will not pass before commit or lift; 0: they are at their
        end."""
        return self.cluster.get().promise(ahead)

    def lift(self):
        self.cluster.get().lift()

    def gate(self, epoch=None):
        """The sources do not pass this epoch before the gate moves; None: it is gone. For tests
        that choose the epochs of changes."""
        self.cluster.get().gate(UINT64_MAX if epoch is None else epoch)

    def drop(self, uint32_t peer):
        with nogil:
            self.cluster.get().drop(peer)

    def passed_epoch(self, uint32_t sinks):
        """The last layout that has passed every stage of this node."""
        return self.cluster.get().passed(sinks)

    def next_epoch(self):
        return self.cluster.get().next_epoch()

    def received(self):
        """(bins, bytes) that came to this node."""
        return self.cluster.get().bins_in(), self.cluster.get().bytes_in()

    def refusal(self):
        return self.cluster.get().refused().decode("utf-8", "replace")

    def down_peers(self):
        return list(self.cluster.get().links.down_peers())

    def reconnect(self, uint32_t rank):
        """Breaks the connections to a peer; they come back."""
        self.cluster.get().links.reconnect(rank)

    def traffic(self, uint32_t rank):
        """Counts of the links to a peer."""
        cdef LinkTraffic t = self.cluster.get().links.traffic(rank)
        return {
            "frames_sent": t.frames_sent, "bytes_sent": t.bytes_sent,
            "frames_received": t.frames_received, "bytes_received": t.bytes_received,
            "duplicates": t.duplicates, "connected": t.connected,
            "unsent_bytes": t.unsent_bytes, "up": t.up,
            "why_down": t.why_down.decode("utf-8", "replace"),
        }

    def refused_links(self):
        """How many connections to this node were refused and how many left by themselves before
        they proved anything; of the last one that was refused, why and whose."""
        cdef Refusal last = self.cluster.get().links.refusals()
        return (
            last.count, last.left,
            last.why.decode("utf-8", "replace"), last.source.decode("utf-8", "replace"),
        )

    def close(self):
        """Nobody needs this node's answers any more: the workers may leave."""
        self.cluster.get().close()


cdef class NativeHeart:
    """Tells an address by datagrams that this process is there; needs no interpreter for it."""

    def aim(self, str host, uint16_t port, bytes key, int64_t every_ms):
        """Begins to beat, or beats for another from now on; False: there is no such address."""
        cdef string name = host.encode()
        cdef string secret = key
        cdef cbool good
        with nogil:
            good = self.heart.aim(name, port, secret, every_ms)
        return good

    def stop(self):
        with nogil:
            self.heart.stop()
