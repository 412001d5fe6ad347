import java.util.Random;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.utils.Utils;

/**
 * Writes partitions.tsv: keys, Kafka's hash of them, and where its producer puts them.
 * Run it with kafka-clients-4.3.1.jar and slf4j-api on the class path: java -cp ... PartitionVectors.java
 */
public class PartitionVectors {
    private static final int[] PARTITION_COUNTS = {1, 2, 3, 6, 7, 64, 1000};

    public static void main(String[] arguments) {
        Random random = new Random(20260721);
        System.out.print("key (hex)\tmurmur2");
        for (int count : PARTITION_COUNTS) {
            System.out.print("\t" + count);
        }
        System.out.println();
        for (int length = 0; length <= 40; length++) {
            for (int repeat = 0; repeat < 5; repeat++) {
                byte[] key = new byte[length];
                random.nextBytes(key);
                printRow(key);
            }
        }
        for (String carrier : new String[] {"UA", "AA", "B6", "DL", "EV", "MQ", "US", "WN", "VX", "FL"}) {
            printRow(carrier.getBytes());
        }
    }

    private static void printRow(byte[] key) {
        StringBuilder row = new StringBuilder();
        for (byte b : key) {
            row.append(String.format("%02x", b));
        }
        row.append('\t').append(Utils.murmur2(key));
        for (int count : PARTITION_COUNTS) {
            row.append('\t').append(BuiltInPartitioner.partitionForKey(key, count));
        }
        System.out.println(row);
    }
}
