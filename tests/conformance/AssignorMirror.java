import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Assigns partitions with Kafka's own assignors.
 *
 * Lines in: "topic NAME RACKS..." (a word for each partition, its racks joined by commas), "member ID
 * RACK INSTANCE GENERATION USERDATA TOPICS OWNED", with "-" for what there is none of, then "assign
 * NAME". A line out: "ID=PARTITIONS" for each member in order, partitions as TOPIC:INDEX.
 */
public class AssignorMirror {
    private static final String NONE = "-";

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        List<PartitionInfo> partitions = new ArrayList<>();
        Map<String, Subscription> members = new HashMap<>();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "topic":
                    for (int index = 2; index < words.length; index++)
                        partitions.add(partition(words[1], index - 2, list(words[index])));
                    break;
                case "member":
                    members.put(words[1], subscription(words));
                    break;
                default:
                    System.out.println(assign(words[1], partitions, members));
                    System.out.flush();
                    partitions.clear();
                    members.clear();
            }
        }
    }

    private static PartitionInfo partition(String topic, int index, List<String> racks) {
        Node[] replicas = new Node[Math.max(1, racks.size())];
        for (int id = 0; id < replicas.length; id++)
            replicas[id] = new Node(id, "host", 9092, racks.isEmpty() ? null : racks.get(id));
        return new PartitionInfo(topic, index, null, replicas, replicas);
    }

    private static Subscription subscription(String[] words) {
        ByteBuffer userData = words[5].equals(NONE) ? null : ByteBuffer.wrap(HexFormat.of().parseHex(words[5]));
        List<TopicPartition> owned = list(words[7]).stream()
            .map(word -> word.split(":"))
            .map(pair -> new TopicPartition(pair[0], Integer.parseInt(pair[1])))
            .collect(Collectors.toList());
        int generation = words[4].equals(NONE) ? -1 : Integer.parseInt(words[4]);
        Optional<String> rack = words[2].equals(NONE) ? Optional.empty() : Optional.of(words[2]);
        Subscription subscription = new Subscription(list(words[6]), userData, owned, generation, rack);
        if (!words[3].equals(NONE))
            subscription.setGroupInstanceId(Optional.of(words[3]));
        return subscription;
    }

    private static String assign(String name, List<PartitionInfo> partitions, Map<String, Subscription> members) {
        Cluster cluster = new Cluster("id", List.of(), partitions, Set.of(), Set.of());
        ConsumerPartitionAssignor assignor = switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            default -> new CooperativeStickyAssignor();
        };
        return new TreeMap<>(assignor.assign(cluster, new GroupSubscription(members)).groupAssignment())
            .entrySet().stream()
            .map(entry -> entry.getKey() + "=" + entry.getValue().partitions().stream()
                .map(partition -> partition.topic() + ":" + partition.partition())
                .collect(Collectors.joining(",")))
            .collect(Collectors.joining(" "));
    }

    private static List<String> list(String word) {
        return word.equals(NONE) ? List.of() : Arrays.asList(word.split(","));
    }
}
