import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.Set;
import org.apache.kafka.clients.producer.RoundRobinPartitioner;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;

/**
 * Writes round_robin.tsv: which partitions of a topic have a leader, and where Kafka's
 * RoundRobinPartitioner puts the next records; it is one partitioner, in the order of the rows.
 * Run it with kafka-clients-4.3.1.jar and slf4j-api on the class path: java -cp ... RoundRobinVectors.java
 */
public class RoundRobinVectors {
    private static final int ROW_COUNT = 60;

    public static void main(String[] arguments) {
        Random random = new Random(20261126);
        RoundRobinPartitioner partitioner = new RoundRobinPartitioner();
        System.out.println("led\tpartitions");
        for (int row = 0; row < ROW_COUNT; row++) {
            int partitionCount = 1 + random.nextInt(7);
            int leaderless = random.nextInt(3); // of three
            StringBuilder led = new StringBuilder();
            for (int partition = 0; partition < partitionCount; partition++) {
                led.append(random.nextInt(3) < leaderless ? '-' : '+');
            }
            StringBuilder line = new StringBuilder(led).append('\t');
            Cluster cluster = cluster(led.toString());
            for (int record = random.nextInt(9); record >= 0; record--) {
                byte[] key = random.nextBoolean() ? null : new byte[] {(byte) record};
                line.append(partitioner.partition("t", key, key, null, null, cluster));
                line.append(record == 0 ? "" : " ");
            }
            System.out.println(line);
        }
    }

    private static Cluster cluster(String led) {
        Node node = new Node(1, "localhost", 9092);
        Node[] nodes = {node};
        List<PartitionInfo> partitions = new ArrayList<>();
        for (int partition = 0; partition < led.length(); partition++) {
            Node leader = led.charAt(partition) == '+' ? node : null;
            partitions.add(new PartitionInfo("t", partition, leader, nodes, nodes));
        }
        return new Cluster("c", List.of(node), partitions, Set.of(), Set.of());
    }
}
