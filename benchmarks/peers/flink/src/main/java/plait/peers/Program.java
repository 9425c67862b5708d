package plait.peers;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.file.Path;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Answers requests on stdin, a line of JSON each, as `serve.py` does. Jobs run on one local cluster
 * in this process; the time is from the first source that opens to the last sink that has all.
 */
public final class Program {
    private static final int SLOTS = 2;

    private Program() {}

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        try (MiniCluster cluster = new MiniCluster(configuration())) {
            cluster.start();
            for (String line = requests.readLine(); line != null; line = requests.readLine()) {
                answers.println(answer(cluster, line));
                answers.flush();
            }
        }
        System.exit(0);
    }

    private static MiniClusterConfiguration configuration() {
        Configuration given = new Configuration();
        given.set(RestOptions.BIND_PORT, "0");
        given.set(RestOptions.BIND_ADDRESS, "127.0.0.1");
        given.set(RestOptions.ADDRESS, "127.0.0.1");
        return new MiniClusterConfiguration.Builder()
                .setConfiguration(given)
                .setNumTaskManagers(1)
                .setNumSlotsPerTaskManager(SLOTS)
                .build();
    }

    private static String answer(MiniCluster cluster, String request) {
        try {
            String query = text(request, "query");
            int workers = Integer.parseInt(text(request, "workers"));
            boolean check = Boolean.parseBoolean(text(request, "check"));
            Path folder = Path.of(text(request, "folder"));
            if (Data.current == null || !Data.current.folder.equals(folder)) {
                Data.current = null;
                Data.current = new Data(folder);
            }
            double seconds = run(cluster, query, workers, check);
            String digest = check ? '"' + Results.digest() + '"' : "null";
            return "{\"seconds\": " + seconds + ", \"digest\": " + digest + "}";
        } catch (Exception error) {
            error.printStackTrace();
            return "{\"error\": \"" + error.toString().replaceAll("[^ -~]|[\"\\\\]", " ") + "\"}";
        }
    }

    private static double run(MiniCluster cluster, String query, int workers, boolean check)
            throws Exception {
        Results.clear();
        Sources.beganNs.set(Long.MAX_VALUE);
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.createLocalEnvironment(workers, new Configuration());
        env.getConfig().enableObjectReuse();
        Queries.build(env, query, check);
        cluster.executeJobBlocking(env.getStreamGraph().getJobGraph());
        return (Results.endedNs.get() - Sources.beganNs.get()) / 1e9;
    }

    /** The value of a name in a flat JSON object. */
    private static String text(String json, String name) {
        Matcher found =
                Pattern.compile("\"" + name + "\": (?:\"([^\"]*)\"|([^,}]*))").matcher(json);
        if (!found.find()) {
            throw new IllegalArgumentException("no " + name + " in " + json);
        }
        return found.group(1) != null ? found.group(1) : found.group(2);
    }
}
