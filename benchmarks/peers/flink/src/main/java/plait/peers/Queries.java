package plait.peers;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.CoGroupFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.co.KeyedCoProcessFunction;
import org.apache.flink.streaming.api.functions.windowing.AllWindowFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessAllWindowFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;
import plait.peers.Records.Auction;
import plait.peers.Records.Bid;
import plait.peers.Records.Count;
import plait.peers.Records.Highest;
import plait.peers.Records.Person;
import plait.peers.Records.Sale;
import plait.peers.Results.ToDigest;

/** The queries in the DataStream API. */
final class Queries {
    private static final Duration TEN = Duration.ofSeconds(10);
    private static final Duration TWO = Duration.ofSeconds(2);

    private Queries() {}

    static void build(StreamExecutionEnvironment env, String query, boolean check) {
        switch (query) {
            case "count" -> count(env, check);
            case "q1" -> q1(env, check);
            case "q2" -> q2(env, check);
            case "q3" -> q3(env, check);
            case "q5" -> q5(env, check);
            case "q7" -> q7(env, check);
            case "q8" -> q8(env, check);
            default -> throw new IllegalArgumentException("no query " + query);
        }
    }

    private static void count(StreamExecutionEnvironment env, boolean check) {
        Sources.bids(env)
                .keyBy(bid -> bid.auction)
                .process(new Counter())
                .sinkTo(new ToDigest<>((hash, row) -> hash.add(row.auction).add(row.count), check));
    }

    private static void q1(StreamExecutionEnvironment env, boolean check) {
        Sources.bids(env)
                .map(bid -> new Bid(bid.auction, bid.bidder, bid.price * 908 / 1000, bid.ts))
                .sinkTo(
                        new ToDigest<>(
                                (hash, row) ->
                                        hash.add(row.auction)
                                                .add(row.bidder)
                                                .add(row.price)
                                                .add(row.ts),
                                check));
    }

    private static void q2(StreamExecutionEnvironment env, boolean check) {
        Sources.bids(env)
                .filter(bid -> bid.auction % 123 == 0)
                .sinkTo(new ToDigest<>((hash, row) -> hash.add(row.auction).add(row.price), check));
    }

    private static void q3(StreamExecutionEnvironment env, boolean check) {
        Sources.auctions(env)
                .filter(auction -> auction.category == 10)
                .keyBy(auction -> auction.seller)
                .connect(
                        Sources.persons(env)
                                .filter(person -> List.of("OR", "ID", "CA").contains(person.state))
                                .keyBy(person -> person.id))
                .process(new Sales())
                .sinkTo(
                        new ToDigest<>(
                                (hash, row) ->
                                        hash.add(row.name)
                                                .add(row.city)
                                                .add(row.state)
                                                .add(row.auction),
                                check));
    }

    private static void q5(StreamExecutionEnvironment env, boolean check) {
        // A second window behind the first: its results carry the last time of their window.
        Sources.bids(env)
                .keyBy(bid -> bid.auction)
                .window(SlidingEventTimeWindows.of(TEN, TWO))
                .aggregate(new BidCount(), new WithWindow())
                .windowAll(TumblingEventTimeWindows.of(TWO))
                .process(new MostFrequent())
                .sinkTo(
                        new ToDigest<>(
                                (hash, row) ->
                                        hash.add(row.auction)
                                                .add(row.start)
                                                .add(row.end)
                                                .add(row.count),
                                check));
    }

    private static void q7(StreamExecutionEnvironment env, boolean check) {
        Sources.bids(env)
                .windowAll(TumblingEventTimeWindows.of(TEN))
                .aggregate(new HighestBids(), new HighestOfWindow())
                .sinkTo(
                        new ToDigest<>(
                                (hash, row) ->
                                        hash.add(row.bid.auction)
                                                .add(row.bid.bidder)
                                                .add(row.bid.price)
                                                .add(row.bid.ts)
                                                .add(row.start)
                                                .add(row.end),
                                check));
    }

    private static void q8(StreamExecutionEnvironment env, boolean check) {
        Sources.persons(env)
                .coGroup(Sources.auctions(env))
                .where(person -> person.id)
                .equalTo(auction -> auction.seller)
                .window(TumblingEventTimeWindows.of(TEN))
                .apply(new NewSellers())
                .sinkTo(new ToDigest<>((hash, row) -> hash.add(row.id).add(row.name), check));
    }

    private static final class Counter extends KeyedProcessFunction<Long, Bid, Count> {
        private transient ValueState<Long> seen;

        @Override
        public void open(OpenContext context) {
            seen = getRuntimeContext().getState(new ValueStateDescriptor<>("seen", Long.class));
        }

        @Override
        public void processElement(Bid bid, Context context, Collector<Count> out)
                throws Exception {
            Long before = seen.value();
            long now = before == null ? 1 : before + 1;
            seen.update(now);
            out.collect(new Count(bid.auction, 0, 0, now));
        }
    }

    private static final class Sales
            extends KeyedCoProcessFunction<Long, Auction, Person, Sale> {
        private transient ValueState<Person> seller;
        private transient ListState<Long> waiting;

        @Override
        public void open(OpenContext context) {
            seller =
                    getRuntimeContext().getState(new ValueStateDescriptor<>("seller", Person.class));
            waiting =
                    getRuntimeContext()
                            .getListState(new ListStateDescriptor<>("waiting", Long.class));
        }

        @Override
        public void processElement1(Auction auction, Context context, Collector<Sale> out)
                throws Exception {
            Person person = seller.value();
            if (person == null) {
                waiting.add(auction.id);
            } else {
                out.collect(new Sale(person, auction.id));
            }
        }

        @Override
        public void processElement2(Person person, Context context, Collector<Sale> out)
                throws Exception {
            seller.update(person);
            for (Long auction : waiting.get()) {
                out.collect(new Sale(person, auction));
            }
            waiting.clear();
        }
    }

    private static final class BidCount implements AggregateFunction<Bid, Long, Long> {
        @Override
        public Long createAccumulator() {
            return 0L;
        }

        @Override
        public Long add(Bid bid, Long count) {
            return count + 1;
        }

        @Override
        public Long getResult(Long count) {
            return count;
        }

        @Override
        public Long merge(Long a, Long b) {
            return a + b;
        }
    }

    private static final class WithWindow
            extends ProcessWindowFunction<Long, Count, Long, TimeWindow> {
        @Override
        public void process(
                Long auction, Context context, Iterable<Long> counts, Collector<Count> out) {
            TimeWindow window = context.window();
            long count = counts.iterator().next();
            out.collect(
                    new Count(auction, window.getStart() * 1000, window.getEnd() * 1000, count));
        }
    }

    private static final class MostFrequent
            extends ProcessAllWindowFunction<Count, Count, TimeWindow> {
        @Override
        public void process(Context context, Iterable<Count> counts, Collector<Count> out) {
            long most = 0;
            for (Count count : counts) {
                most = Math.max(most, count.count);
            }
            for (Count count : counts) {
                if (count.count == most) {
                    out.collect(count);
                }
            }
        }
    }

    /** All bids of the highest price. */
    private static final class HighestBids
            implements AggregateFunction<Bid, ArrayList<Bid>, ArrayList<Bid>> {
        @Override
        public ArrayList<Bid> createAccumulator() {
            return new ArrayList<>(1);
        }

        @Override
        public ArrayList<Bid> add(Bid bid, ArrayList<Bid> best) {
            if (!best.isEmpty() && bid.price < best.get(0).price) {
                return best;
            }
            if (!best.isEmpty() && bid.price > best.get(0).price) {
                best.clear();
            }
            best.add(bid);
            return best;
        }

        @Override
        public ArrayList<Bid> getResult(ArrayList<Bid> best) {
            return best;
        }

        @Override
        public ArrayList<Bid> merge(ArrayList<Bid> a, ArrayList<Bid> b) {
            for (Bid bid : b) {
                add(bid, a);
            }
            return a;
        }
    }

    private static final class HighestOfWindow
            implements AllWindowFunction<ArrayList<Bid>, Highest, TimeWindow> {
        @Override
        public void apply(
                TimeWindow window, Iterable<ArrayList<Bid>> found, Collector<Highest> out) {
            for (Bid bid : found.iterator().next()) {
                out.collect(new Highest(bid, window.getStart() * 1000, window.getEnd() * 1000));
            }
        }
    }

    private static final class NewSellers implements CoGroupFunction<Person, Auction, Person> {
        @Override
        public void coGroup(
                Iterable<Person> persons, Iterable<Auction> auctions, Collector<Person> out) {
            if (auctions.iterator().hasNext()) {
                persons.forEach(out::collect);
            }
        }
    }
}
