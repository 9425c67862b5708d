package plait.peers;

/** The records, as POJOs that Flink serialises without Kryo. Times are microseconds. */
public final class Records {
    private Records() {}

    public static class Bid {
        public long auction;
        public long bidder;
        public long price;
        public long ts;

        public Bid() {}

        public Bid(long auction, long bidder, long price, long ts) {
            this.auction = auction;
            this.bidder = bidder;
            this.price = price;
            this.ts = ts;
        }
    }

    public static class Auction {
        public long id;
        public long seller;
        public long category;
        public long ts;

        public Auction() {}

        public Auction(long id, long seller, long category, long ts) {
            this.id = id;
            this.seller = seller;
            this.category = category;
            this.ts = ts;
        }
    }

    public static class Person {
        public long id;
        public String name;
        public String city;
        public String state;
        public long ts;

        public Person() {}

        public Person(long id, String name, String city, String state, long ts) {
            this.id = id;
            this.name = name;
            this.city = city;
            this.state = state;
            this.ts = ts;
        }
    }

    /** How many bids an auction had in a window, or so far. */
    public static class Count {
        public long auction;
        public long start;
        public long end;
        public long count;

        public Count() {}

        public Count(long auction, long start, long end, long count) {
            this.auction = auction;
            this.start = start;
            this.end = end;
            this.count = count;
        }
    }

    /** A bid that was the highest of its window. */
    public static class Highest {
        public Bid bid;
        public long start;
        public long end;

        public Highest() {}

        public Highest(Bid bid, long start, long end) {
            this.bid = bid;
            this.start = start;
            this.end = end;
        }
    }

    /** An auction and who sells in it. */
    public static class Sale {
        public String name;
        public String city;
        public String state;
        public long auction;

        public Sale() {}

        public Sale(Person person, long auction) {
            this.name = person.name;
            this.city = person.city;
            this.state = person.state;
            this.auction = auction;
        }
    }
}
