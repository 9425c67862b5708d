"""Reads a topic: live, as records come, or bounded, in an order that is always the same.

A poll of a live reader has its rows by (partition, offset); in a job that may have to repeat them
after a crash it logs which, and one that is opened to repeat them hands out the same again, before
it is live. It never waits: when nothing has come
it says when to ask again. When all brokers are away for longer than the source's patience, or
records are gone before they were read, that is an error. A lookout tells it of new partitions,
which a live reader reads too, and of records that are there and do not come.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from plait.checkpoints.choices import ChoiceLog
from plait.connectors.bad_rows import BadRow, PolledRows, without_nulls
from plait.connectors.base import Reader, Wait
from plait.connectors.kafka.arrow_values import AT_ONCE, ArrowValues
from plait.connectors.kafka.batch_decoding import batch_decoder
from plait.connectors.kafka.client import PARTITION, OffsetsLost, connect, ends_of
from plait.connectors.kafka.formats import decoder_of
from plait.connectors.kafka.merging import CHANGED, HELD, RESUMED, Repeat, TimeMerge
from plait.connectors.kafka.part_times import PartTimes
from plait.connectors.kafka.partition_clock import NO_TIME
from plait.connectors.kafka.positions import (
    Choice,
    Places,
    check_same_topic,
    find_lost,
    resolve,
)
from plait.connectors.kafka.watch.backlog import TopicBacklog
from plait.connectors.kafka.watch.lookout import Lookout
from plait.connectors.kafka.watch.watching import Watch, judge
from plait.errors import EnvironmentFailure, SourceError
from plait.model.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from plait.connectors.kafka.client import Bounds, Consumer, Record
    from plait.connectors.kafka.formats import Decoded
    from plait.connectors.kafka.kafka import Kafka
    from plait.protocol.rates import Looks

SHORTEST_S, LONGEST_S = 0.001, 0.01
"""How long an idle reader is left alone."""
SHOWN = 80
LOG = logging.getLogger("plait.kafka")


class KafkaReader(Reader):
    """An open topic."""

    def __init__(self, source: Kafka, position: Any) -> None:
        self.source = source
        self.schema = source.schema
        self.arrow: ArrowValues | None = None
        if source.decode_batch is not None:
            self.decode = batch_decoder(source.decode_batch, source.value_schema)
        elif source.format == "arrow" and source.decode is None:
            self.arrow = ArrowValues(source.value_schema)
        else:
            self.decode = decoder_of(source.format, source.value_schema, source.decode)
        self.idle_s = SHORTEST_S
        self.held: set[int] = set()
        self.ready: list[Record] = []
        """Of a bounded reader: merged, and not handed out."""
        self.choices: ChoiceLog | None = None
        """In a job that may have to repeat what is read."""
        self.always_same = False
        """It must, and cannot log what it chooses: there may be one partition only."""
        self.repeat: Repeat | None = None
        """While it hands out again what an earlier run did."""
        self.repeated: Choice | None = None
        """What the last poll chose again."""
        self.over: list[Record] = []
        """Fetched meanwhile, and not handed out."""
        self.fresh: dict[int, int] = {}
        """Partitions that are new since the last poll with rows, and the time each began with."""
        self.clock: Callable[[], float] = time.monotonic
        self.watch = Watch()
        self.drained = False
        """Whether the client had nothing left since the last look."""
        try:
            self.consumer: Consumer = connect(source.connection).consumer(source.topic)
        except EnvironmentFailure as error:
            raise SourceError(f"{source.named()}: {error}") from None
        try:
            self.places = self.find_places(position)
            self.next = dict(self.places.next)
            self.fetched = dict(self.places.next)
            """The offset after what the consumer gave; of a bounded reader some of it waits."""
            self.merged_ms = dict(self.places.merged_ms)
            self.skip = dict(self.places.rows)
            self.merge = self.begin_merge()
            self.behind = TopicBacklog(self)
            self.times = None if source.time is None else PartTimes(source.time, self.places)
            self.known_at = NO_TIME if self.times is None else self.times.clock.now
            """The time of the topic behind the last row."""
            if position is not None:
                self.note_fresh([p for p in self.next if p not in Places.of(position).next])
            self.consumer.assign(self.wanted())
        except EnvironmentFailure as error:
            self.consumer.close()
            if isinstance(error, SourceError):
                raise
            raise SourceError(f"{source.named()}: {error}") from None
        except BaseException:
            self.consumer.close()
            raise
        self.lookout: Lookout = Lookout(source.connection, source.topic)

    def find_places(self, position: Any) -> Places:
        """Where to read, in numbers: of the first start, or of one that goes on."""
        source = self.source
        bounds = self.consumer.bounds(self.consumer.partitions())
        if position is None:
            start = resolve(source.start, self.consumer, bounds, "earliest")
            end = (
                None if source.end is None else resolve(source.end, self.consumer, bounds, "latest")
            )
            return self.check_lost(Places(next=start, end=end), bounds)
        places = Places.of(position)
        if (places.end is None) != (source.end is None):
            raise SourceError(
                f"{source.named()}: end= was given to one of this run and the one it goes on from,"
                " and not to the other"
            )
        check_same_topic(source.topic, places.next, bounds)
        if places.end is None:  # partitions that are new since then
            fresh = {p: bound.low for p, bound in bounds.items() if p not in places.next}
            places = replace(places, next={**places.next, **fresh})
        return self.check_lost(places, bounds)

    def check_lost(self, places: Places, bounds: Any) -> Places:
        lost = find_lost(places.next, bounds)
        lost = {p: count for p, count in lost.items() if self.still_wanted(p, places)}
        if not lost:
            return places
        if self.source.on_lost == "fail":
            partition, count = next(iter(lost.items()))
            raise self.lost_error(partition, f"{count:,} offsets before the first that is there")
        kept = {p: max(at, bounds[p].low) for p, at in places.next.items()}
        return replace(places, next=kept)

    @staticmethod
    def still_wanted(partition: int, places: Places) -> bool:
        return places.end is None or places.next[partition] < places.end.get(partition, 0)

    def lost_error(self, partition: int, what: str) -> SourceError:
        return SourceError(
            f"{self.source.named()}: records of partition {partition} are gone before they were"
            f" read ({what}); raise the topic's retention, or go on without them:"
            ' on_lost="earliest"'
        )

    def begin_merge(self) -> TimeMerge | None:
        if self.places.end is None:
            return None
        merge = TimeMerge({p: self.places.merged_ms.get(p, -1) for p in self.next})
        for partition in self.next:
            if self.is_over(partition):
                merge.finish(partition)
        return merge

    def is_over(self, partition: int) -> bool:
        """Whether the end of a partition was at or before the place where reading began."""
        end = self.places.end
        return end is not None and self.places.next[partition] >= end.get(partition, 0)

    def log_choices(self, again: Sequence[bytes]) -> ChoiceLog | None:
        if self.merge is not None:
            return None
        if self.arrow is not None:
            self.always_same = True
            self.refuse_partitions()
            return None
        if any(again):
            self.begin_repeat([Choice.of(choice) for choice in again])
        elif again and len(self.next) > 1:
            raise SourceError(
                f"{self.source.named()}: epochs of which the output is delivered are to be"
                " repeated, and the notes of an earlier version of plait do not say in which order"
                " the partitions came; finish the job with that version, or give it a new folder"
                " and its sinks new targets"
            )
        self.choices = ChoiceLog()
        return self.choices

    def refuse_partitions(self) -> None:
        """Of values with many rows the order of partitions is not logged."""
        if self.always_same and len(self.next) > 1:
            raise SourceError(
                f'{self.source.named()}: with format="arrow" the {len(self.next)} partitions of a'
                " topic without end= are read in another order each time, and this job has to"
                " repeat epochs in the same order after a crash, as it has a sink with commit= or"
                " several that decide; leave out commit= and have one such sink, give end=, or a"
                " topic with one partition"
            )

    def begin_repeat(self, choices: Sequence[Choice]) -> None:
        """The next polls give what these say; then the reader is live."""
        ends = {p: end for choice in choices for p, _, end in choice.runs}
        try:
            bounds = self.consumer.bounds(list(self.next))
        except EnvironmentFailure as error:
            raise SourceError(f"{self.source.named()}: {error}") from None
        for partition, end in ends.items():
            if partition not in bounds or bounds[partition].high < end:
                raise SourceError(
                    f"{self.source.named()}: {CHANGED}: those of partition {partition} before"
                    f" offset {end:,}"
                )
        self.repeat = Repeat(choices)
        if self.times is not None:  # they are new when they were then
            for partition in self.fresh:
                del self.times.clock.times[partition]
        self.fresh = {}

    def require(self, schema: Schema) -> None:
        self.schema = schema

    def poll(self, max_rows: int) -> Any:
        answer = self.poll_with_bad(max_rows)
        if isinstance(answer, PolledRows) and answer.bad:
            raise answer.bad[0].error()
        return answer.good if isinstance(answer, PolledRows) else answer

    def poll_with_bad(self, max_rows: int) -> Any:
        if self.arrow is not None and self.arrow.waiting:
            return self.rows_of(*self.arrow.take(max_rows))
        before_ms = dict(self.merged_ms)
        try:
            records = self.read(max_rows if self.arrow is None else AT_ONCE)
            self.behind.note(len(records or ()))
        except OffsetsLost as lost:
            records = self.go_on_after(lost.partition)
        except SourceError:
            raise
        except EnvironmentFailure as error:
            raise SourceError(f"{self.source.named()}: {error}") from None
        if records is None:
            return None
        if not records:
            self.idle_s = min(self.idle_s * 2, LONGEST_S)
            return Wait(self.idle_s)
        self.idle_s = SHORTEST_S
        if self.arrow is None:
            return self.logged(records)
        for record in records:
            skip = self.skip.pop(record.partition, 0)
            skip = skip if record.offset == self.places.next.get(record.partition) else 0
            merged_ms = before_ms.get(record.partition, -1)
            self.arrow.add(record, merged_ms, skip)
            before_ms[record.partition] = max(merged_ms, record.timestamp_ms)
        return self.rows_of(*self.arrow.take(max_rows)) if self.arrow.waiting else Wait(0.0)

    def logged(self, records: list[Record]) -> PolledRows:
        choice = self.choose(records) if self.choices is not None else None
        rows = self.rows_of(records, self.decode([record.value for record in records]))
        if self.times is not None:
            self.known_at = self.times.clock.now
        if self.choices is not None and choice is not None:
            self.choices.add(choice.to_bytes())
        return rows

    def choose(self, records: Sequence[Record]) -> Choice:
        """What these records are, and how time is before them."""
        choice, self.repeated = self.repeated, None
        if choice is not None:
            return choice
        runs = [
            (partition, len(run := list(some)), run[-1].offset + 1)
            for partition, some in groupby(records, PARTITION)
        ]
        fresh, self.fresh = self.fresh, {}
        if self.times is None:
            return Choice(runs=tuple(runs))
        clock = self.times.clock
        return Choice(
            runs=tuple(runs),
            now=None if clock.now == self.known_at else clock.now,
            idle=tuple(sorted(clock.idle)),
            fresh=tuple(sorted(fresh.items())),
        )

    def note_fresh(self, partitions: Iterable[int]) -> None:
        if self.times is not None:
            self.fresh |= {p: self.times.clock.times[p] for p in partitions}

    def wanted(self) -> dict[int, int]:
        """What a consumer is to read on, and from where."""
        over = () if self.merge is None else self.merge.finished
        return {p: at for p, at in self.fetched.items() if p not in over}

    def read(self, most: int) -> list[Record] | None:
        """The next records; None at the end."""
        if (look := self.lookout.take()) is not None:
            self.take_look(look)
        if self.merge is None:
            records = self.read_live(most)
        else:
            records = self.read_merged(self.merge, most)
            if not records and self.merge.over:
                return None
        if not records and (away := self.consumer.away_s()) > self.source.connection.patience_s:
            raise EnvironmentFailure(
                f"no Kafka broker has answered at {self.source.connection.servers} for {away:.0f} s"
            )
        self.next |= ends_of(records)
        return records

    def read_live(self, most: int) -> list[Record]:
        if self.repeat is not None and self.repeat.choices:
            return self.read_again(self.repeat, most)
        if self.repeat is not None:
            self.go_live(self.repeat)
        if self.over:
            records, self.over = self.over[:most], self.over[most:]
            if self.times is not None:
                self.times.note({r.partition for r in records}, True, self.clock())
            return records
        records = self.fetch(most)
        records.sort(key=PARTITION)  # stable: offsets stay ascending
        return records

    def read_again(self, repeat: Repeat, most: int) -> list[Record]:
        """What the next poll of the earlier run gave, if all of it has come."""
        if repeat.lacking(self.consumer.reached):
            repeat.add(self.fetch(most))
        lacking = repeat.lacking(self.consumer.reached)
        self.hold_ahead(repeat.ahead(self.held) - lacking)
        if lacking:
            return []
        try:
            self.repeated, records = repeat.take()
        except SourceError as error:
            raise SourceError(f"{self.source.named()}: {error}") from None
        if len(records) > most:
            raise SourceError(
                f"{self.source.named()}: {len(records):,} records are to be repeated as one epoch"
                f" of {most:,}; the notes of the output are not of this job"
            )
        if self.times is not None:
            self.times.put_back(self.repeated)
        return records

    def go_live(self, repeat: Repeat) -> None:
        """All is repeated: first comes what was fetched meanwhile."""
        self.over, self.repeat = repeat.rest(), None
        self.hold_ahead(set())
        if self.times is not None:
            fresh = self.next.keys() - self.times.clock.times.keys()
            self.times.clock.add(fresh)
            self.note_fresh(fresh)

    def fetch(self, most: int) -> list[Record]:
        records = self.consumer.fetch(most)
        self.drained = self.drained or len(records) < most
        came = ends_of(records)
        self.fetched |= came
        if self.times is not None and self.repeat is None:
            now_s = self.clock()
            self.times.note(came, len(records) == most, now_s)
            if self.times.is_due(now_s):
                self.times.rest(self.reached(), now_s)
                self.hold_ahead(self.times.ahead(self.held))
        return records

    def hold_ahead(self, ahead: set[int]) -> None:
        """These partitions wait, and no others."""
        for partition in ahead ^ self.held:
            self.consumer.hold(partition, partition in ahead)
        self.held = ahead

    def reached(self) -> dict[int, int]:
        """Up to where each partition that is wanted was read."""
        return {p: max(at, self.consumer.reached(p)) for p, at in self.wanted().items()}

    def take_look(self, look: Mapping[int, Bounds]) -> None:
        """New partitions are read, and a consumer that stands still is replaced."""
        ends = self.places.end
        reached = self.reached()
        if ends is not None:
            look = {p: b._replace(high=min(b.high, ends[p])) for p, b in look.items() if p in ends}
        found, self.watch = judge(
            look,
            reached=reached,
            drained=self.drained,
            held=self.held,
            memory=self.watch,
            now_s=self.clock(),
        )
        self.drained = False
        if self.times is not None:
            self.times.take_look(look, self.clock())
        if found.wrong:
            raise SourceError(f"{self.source.named()}: {found.wrong}; was the topic made anew?")
        if found.fresh and ends is None:
            LOG.info("%s: reads the new partitions %s", self.source.named(), list(found.fresh))
            self.consumer.add(found.fresh)
            self.next |= found.fresh
            self.fetched |= found.fresh
            self.refuse_partitions()
            if self.times is not None and self.repeat is None:
                self.times.clock.add(found.fresh)
                self.note_fresh(found.fresh)
        if found.stalled:
            partition, seconds = next(iter(found.stalled.items()))
            LOG.warning(
                "%s: partition %d has had records for %.0f s and none came; reads on with a new"
                " consumer",
                self.source.named(),
                partition,
                seconds,
            )
            self.renew()

    def renew(self) -> None:
        """Goes on with a new consumer where the present one is."""
        stuck = self.consumer
        self.consumer = connect(self.source.connection).consumer(self.source.topic)
        self.assign()
        stuck.close()

    def assign(self) -> None:
        self.consumer.assign(self.wanted())
        for partition in self.held:
            self.consumer.hold(partition, True)

    def read_merged(self, merge: TimeMerge, most: int) -> list[Record]:
        """So many records, or those up to the end: where epochs are cut must not depend on when
        records arrive. Until then none."""
        self.ready += merge.take(most - len(self.ready))
        if len(self.ready) < most and not merge.over:
            self.fetch_into(merge, most)
            self.ready += merge.take(most - len(self.ready))
        if len(self.ready) < most and not merge.over:
            return []
        records, self.ready = self.ready[:most], self.ready[most:]
        for record in records:
            before = self.merged_ms.get(record.partition, -1)
            self.merged_ms[record.partition] = max(before, record.timestamp_ms)
        return records

    def fetch_into(self, merge: TimeMerge, most: int) -> None:
        end = self.places.end
        assert end is not None
        fetched = self.fetch(most)
        merge.add(record for record in fetched if record.offset < end[record.partition])
        for partition, queue in merge.waiting.items():
            if partition in merge.finished:
                continue
            if self.consumer.reached(partition) >= end[partition]:
                merge.finish(partition)
            elif len(queue) > HELD and partition not in self.held:
                self.held.add(partition)
                self.consumer.hold(partition, True)
            elif len(queue) < RESUMED and partition in self.held:
                self.held.discard(partition)
                self.consumer.hold(partition, False)

    def go_on_after(self, partition: int) -> list[Record]:
        """Records were removed while we read: an error, or on at the first that is there."""
        if self.source.on_lost == "fail":
            raise self.lost_error(partition, "they were removed while the job ran")
        bounds = self.consumer.bounds([partition])
        check_same_topic(self.source.topic, {partition: self.fetched[partition]}, bounds)
        kept = max(self.fetched[partition], bounds[partition].low)
        self.fetched[partition] = kept
        if self.merge is None:
            self.next[partition] = kept
        self.assign()
        return []

    def rows_of(self, records: Sequence[Record], decoded: Decoded) -> PolledRows:
        """Rows of the source's schema, and the record of each."""
        import pyarrow as pa

        kept = records if not decoded.reasons else [records[number] for number in decoded.numbers]
        arrays = list(decoded.batch.columns)
        arrays += [column_of(kept) for column_of in self.source.column_makers()]
        names = list(self.source.schema.names)
        schema = self.schema
        if self.times is not None:
            names, schema = names[:-1], Schema(schema.fields[:-1])
        batch = pa.RecordBatch.from_arrays(arrays, names=names)
        bad = {
            number: BadRow(
                row=number,
                reason=f"{self.place(records[number])}: {reason}{shown(records[number])}",
                record=letter_of(self.source.topic, records[number]),
            )
            for number, reason in decoded.reasons.items()
        }
        sorted_out = without_nulls(batch, schema, "record", 1, numbers=decoded.numbers)
        for one in sorted_out.bad:  # a null event time
            record = records[one.row]
            reason = one.reason.split(": ", 1)[1]
            bad[one.row] = BadRow(
                row=one.row,
                reason=f"{self.place(record)}: {reason}",
                record=letter_of(self.source.topic, record),
            )
        good = sorted_out.good
        if self.times is not None:
            clock = self.times.clock_of(good, [r for n, r in enumerate(records) if n not in bad])
            arrow = self.schema.to_arrow()
            good = pa.RecordBatch.from_arrays([*good.columns, clock], schema=arrow)
            if self.repeat is None:
                self.hold_ahead(self.times.ahead(self.held))
        return PolledRows(good, tuple(bad[row] for row in sorted(bad)))

    def place(self, record: Record) -> str:
        return f"{self.source.topic}, partition {record.partition}, offset {record.offset:,}"

    def position(self) -> dict[str, Any]:
        places = Places(next=self.next, end=self.places.end, merged_ms=self.merged_ms)
        if self.arrow is not None:
            places = self.before_waiting(places, self.arrow)
        if self.times is not None:
            places = replace(places, times=self.times.clock.times, now=self.times.clock.now)
        return places.to_plain()

    def look(self) -> Looks:
        """Where partitions end, for the rate of the source."""
        return self.behind.look()

    @staticmethod
    def before_waiting(places: Places, arrow: ArrowValues) -> Places:
        """The place in front of the first row that was not handed out."""
        next, merged_ms = dict(places.next), dict(places.merged_ms)
        rows = {}
        for piece in reversed(arrow.waiting):
            partition = piece.record.partition
            next[partition] = piece.record.offset
            merged_ms[partition] = piece.before_ms
            rows[partition] = piece.taken
        rows = {partition: taken for partition, taken in rows.items() if taken}
        return replace(places, next=next, merged_ms=merged_ms, rows=rows)

    def close(self) -> None:
        self.behind.close()
        self.lookout.close()
        self.consumer.close()


def shown(record: Record) -> str:
    """The beginning of a value, for an error."""
    if not record.value:
        return ""
    text = record.value[: SHOWN + 1].decode(errors="backslashreplace")
    return f"\n  {text if len(text) <= SHOWN else text[: SHOWN - 3] + '...'}"


def letter_of(topic: str, record: Record) -> dict[str, Any]:
    """The record of a dead letter: everything as it came."""
    return {
        "topic": topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": record.key,
        "value": record.value,
        "headers": [list(header) for header in record.headers],
    }
