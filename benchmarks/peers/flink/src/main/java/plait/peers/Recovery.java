package plait.peers;

import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.legacy.RichSinkFunction;
import org.apache.flink.streaming.api.functions.source.legacy.SourceFunction;
import org.apache.flink.util.Collector;

/**
 * The job of the recovery benchmark: record seq is due at start + seq / rate and has the key seq %
 * keys; the state of a key is a count and a text. Submits it and ends.
 */
public final class Recovery {
    private Recovery() {}

    /** Arguments: REST port, jar, keys, rate, start in milliseconds, log, interval in ms. */
    public static void main(String[] args) throws Exception {
        long keys = Long.parseLong(args[2]);
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.createRemoteEnvironment(
                        "127.0.0.1", Integer.parseInt(args[0]), args[1]);
        env.setParallelism(2);
        env.setBufferTimeout(10);
        env.getConfig().enableObjectReuse();
        env.enableCheckpointing(Long.parseLong(args[6]));
        env.addSource(new Due(Long.parseLong(args[3]), Long.parseLong(args[4])), "due")
                .setParallelism(1)
                .returns(Types.TUPLE(Types.LONG, Types.STRING))
                .keyBy(record -> record.f0 % keys)
                .process(new Count())
                .returns(Types.TUPLE(Types.LONG, Types.LONG))
                .addSink(new Log(keys, args[5]))
                .setParallelism(1);
        env.executeAsync("recovery");
        System.exit(0);
    }

    /** Records as they are due; those that are overdue at once. */
    static final class Due implements SourceFunction<Tuple2<Long, String>>, CheckpointedFunction {
        private final long rate;
        private final long startMs;
        private long seq;
        private volatile boolean running = true;
        private transient ListState<Long> position;

        Due(long rate, long startMs) {
            this.rate = rate;
            this.startMs = startMs;
        }

        @Override
        public void run(SourceContext<Tuple2<Long, String>> context) throws Exception {
            String text = "x".repeat(1000);
            while (running) {
                long due = (System.currentTimeMillis() - startMs) * rate / 1000;
                long until = Math.min(due, seq + 2000);
                if (until <= seq) {
                    Thread.sleep(2);
                    continue;
                }
                synchronized (context.getCheckpointLock()) {
                    for (; seq < until; seq++) {
                        context.collect(Tuple2.of(seq, text));
                    }
                }
            }
        }

        @Override
        public void cancel() {
            running = false;
        }

        @Override
        public void initializeState(FunctionInitializationContext context) throws Exception {
            position =
                    context.getOperatorStateStore()
                            .getListState(new ListStateDescriptor<>("seq", Types.LONG));
            for (long kept : position.get()) {
                seq = kept;
            }
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) throws Exception {
            position.update(java.util.List.of(seq));
        }
    }

    /** Counts, and keeps the last text of each key. */
    static final class Count
            extends KeyedProcessFunction<Long, Tuple2<Long, String>, Tuple2<Long, Long>> {
        private transient ValueState<Tuple3<Long, Long, String>> state;

        @Override
        public void open(OpenContext context) {
            state =
                    getRuntimeContext()
                            .getState(
                                    new ValueStateDescriptor<>(
                                            "count",
                                            Types.TUPLE(Types.LONG, Types.LONG, Types.STRING)));
        }

        @Override
        public void processElement(
                Tuple2<Long, String> record, Context context, Collector<Tuple2<Long, Long>> out)
                throws Exception {
            Tuple3<Long, Long, String> before = state.value();
            long count = before == null ? 1 : before.f1 + 1;
            state.update(Tuple3.of(record.f0, count, record.f1));
            out.collect(Tuple2.of(record.f0, count));
        }
    }

    /** Writes down when which rows came, and how many were not what they must be. */
    static final class Log extends RichSinkFunction<Tuple2<Long, Long>> {
        private final long keys;
        private final String path;
        private transient FileOutputStream file;
        private transient ByteBuffer row;
        private long writtenNs;
        private long wrong;

        Log(long keys, String path) {
            this.keys = keys;
            this.path = path;
        }

        @Override
        public void open(OpenContext context) throws IOException {
            file = new FileOutputStream(path, true);
            row = ByteBuffer.allocate(24).order(ByteOrder.LITTLE_ENDIAN);
            Files.writeString(Path.of(path + ".pid"), "" + ProcessHandle.current().pid());
        }

        @Override
        public void invoke(Tuple2<Long, Long> value, Context context) throws IOException {
            if (value.f1 != value.f0 / keys + 1) {
                wrong++;
            }
            long now = System.nanoTime();
            if (now - writtenNs < 1_000_000 && wrong == 0) {
                return;
            }
            writtenNs = now;
            row.clear();
            row.putDouble(System.currentTimeMillis() / 1000.0).putLong(value.f0).putLong(wrong);
            file.write(row.array());
            wrong = 0;
        }
    }
}
