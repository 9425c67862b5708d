package plait.peers;

import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicLong;
import java.util.zip.CRC32;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;

/** The sink: counts the rows and, when asked, sums their hashes as `digest.py` does. */
final class Results {
    static final AtomicLong rows = new AtomicLong();
    static final AtomicLong sum = new AtomicLong();
    static final AtomicLong endedNs = new AtomicLong();

    private Results() {}

    static void clear() {
        rows.set(0);
        sum.set(0);
        endedNs.set(0);
    }

    static String digest() {
        return String.format("%d:%016x", rows.get(), sum.get());
    }

    /** The hash of a row, built up value by value. */
    static final class Hash {
        private long value;
        private final CRC32 crc = new CRC32();

        Hash start() {
            value = 0;
            return this;
        }

        Hash add(long given) {
            value = (value ^ given) * 0x9E3779B97F4A7C15L;
            value ^= value >>> 32;
            return this;
        }

        Hash add(String given) {
            crc.reset();
            crc.update(given.getBytes(StandardCharsets.UTF_8));
            return add(crc.getValue());
        }
    }

    /** Folds the values of a row into its hash. */
    interface Hasher<T> extends Serializable {
        Hash fold(Hash hash, T row);
    }

    static final class ToDigest<T> implements Sink<T> {
        private final Hasher<T> hasher;
        private final boolean check;

        ToDigest(Hasher<T> hasher, boolean check) {
            this.hasher = hasher;
            this.check = check;
        }

        @Override
        public SinkWriter<T> createWriter(WriterInitContext context) {
            return new Writer<>(check ? hasher : null);
        }
    }

    private static final class Writer<T> implements SinkWriter<T> {
        private final Hasher<T> hasher;
        private final Hash hash = new Hash();
        private long count;
        private long total;

        Writer(Hasher<T> hasher) {
            this.hasher = hasher;
        }

        @Override
        public void write(T row, Context context) {
            count++;
            if (hasher != null) {
                total += hasher.fold(hash.start(), row).value;
            }
        }

        @Override
        public void flush(boolean endOfInput) {
            rows.addAndGet(count);
            sum.addAndGet(total);
            count = 0;
            total = 0;
            endedNs.accumulateAndGet(System.nanoTime(), Math::max);
        }

        @Override
        public void close() {}
    }
}
