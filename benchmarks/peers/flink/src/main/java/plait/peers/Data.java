package plait.peers;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/**
 * A data set in memory: the columns that the queries read. The job runs in this process, so its
 * sources take the records from here.
 */
final class Data {
    static final int BID_COLUMNS = 4;
    static final int AUCTION_COLUMNS = 4;
    static final int PERSON_COLUMNS = 2;

    /** What the sources of the running job read. */
    static volatile Data current;

    final Path folder;
    final long[][] bids;
    final long[][] auctions;
    final long[][] persons;
    final String[][] texts;

    Data(Path folder) {
        this.folder = folder;
        try {
            bids = columns(folder.resolve("bids.bin"), BID_COLUMNS);
            auctions = columns(folder.resolve("auctions.bin"), AUCTION_COLUMNS);
            persons = columns(folder.resolve("persons.bin"), PERSON_COLUMNS);
            List<String> lines = Files.readAllLines(folder.resolve("persons.txt"));
            texts = lines.stream().map(line -> line.split("\t")).toArray(String[][]::new);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static long[][] columns(Path file, int count) throws IOException {
        try (FileChannel channel = FileChannel.open(file)) {
            int rows = (int) (channel.size() / Long.BYTES / count);
            ByteBuffer all = channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size());
            long[][] made = new long[count][rows];
            for (long[] column : made) {
                all.order(ByteOrder.LITTLE_ENDIAN).asLongBuffer().get(column);
                all.position(all.position() + rows * Long.BYTES);
            }
            return made;
        }
    }
}
