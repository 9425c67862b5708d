package plait.peers;

import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import plait.peers.Records.Auction;
import plait.peers.Records.Bid;
import plait.peers.Records.Person;

/** Records from memory by Flink's generator source, every reader a share of them. */
final class Sources {
    /** When the first reader opened. */
    static final AtomicLong beganNs = new AtomicLong(Long.MAX_VALUE);

    private Sources() {}

    static SingleOutputStreamOperator<Bid> bids(StreamExecutionEnvironment env) {
        int rows = Data.current.bids[0].length;
        return source(env, "bids", rows, Bid.class, new Bids(), bid -> bid.ts);
    }

    static SingleOutputStreamOperator<Auction> auctions(StreamExecutionEnvironment env) {
        int rows = Data.current.auctions[0].length;
        return source(env, "auctions", rows, Auction.class, new Auctions(), auction -> auction.ts);
    }

    static SingleOutputStreamOperator<Person> persons(StreamExecutionEnvironment env) {
        int rows = Data.current.persons[0].length;
        return source(env, "persons", rows, Person.class, new Persons(), person -> person.ts);
    }

    interface Time<T> extends java.io.Serializable {
        long microseconds(T record);
    }

    private static <T> SingleOutputStreamOperator<T> source(
            StreamExecutionEnvironment env,
            String name,
            int rows,
            Class<T> type,
            Rows<T> made,
            Time<T> time) {
        made.rows = rows;
        made.readers = env.getParallelism();
        WatermarkStrategy<T> marks =
                WatermarkStrategy.<T>forMonotonousTimestamps()
                        .withTimestampAssigner((record, at) -> time.microseconds(record) / 1000);
        return env.fromSource(
                new DataGeneratorSource<>(made, rows, TypeInformation.of(type)), marks, name);
    }

    /**
     * The record of an index. A reader has a range of indexes; the ranges are mapped so that the
     * readers take turns through the data and event time goes on evenly in all of them.
     */
    abstract static class Rows<T> implements GeneratorFunction<Long, T> {
        int rows;
        int readers;
        transient Data data;

        @Override
        public void open(SourceReaderContext context) {
            data = Data.current;
            beganNs.accumulateAndGet(System.nanoTime(), Math::min);
        }

        @Override
        public T map(Long index) {
            return record(place((int) (long) index));
        }

        private int place(int index) {
            if (readers == 1) {
                return index;
            }
            // The program has one or two readers: the first has the even rows, the second the odd.
            int half = (rows + 1) / 2;
            return index < half ? 2 * index : 2 * (index - half) + 1;
        }

        abstract T record(int row);
    }

    static final class Bids extends Rows<Bid> {
        @Override
        Bid record(int row) {
            long[][] all = data.bids;
            return new Bid(all[0][row], all[1][row], all[2][row], all[3][row]);
        }
    }

    static final class Auctions extends Rows<Auction> {
        @Override
        Auction record(int row) {
            long[][] all = data.auctions;
            return new Auction(all[0][row], all[2][row], all[3][row], all[1][row]);
        }
    }

    static final class Persons extends Rows<Person> {
        @Override
        Person record(int row) {
            String[] texts = data.texts[row];
            long[][] all = data.persons;
            return new Person(all[0][row], texts[0], texts[1], texts[2], all[1][row]);
        }
    }
}
