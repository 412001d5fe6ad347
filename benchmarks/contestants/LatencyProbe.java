// Sends one record, waits for its acknowledgement, then until it is read; and the next.
// Arguments: bootstrap servers, topic, records to warm up with, records that count, bytes a value.
// Prints the middle and the 99th percentile of both times in ms, as JSON.

import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class LatencyProbe {
    private static final Duration SILENCE_MAX = Duration.ofSeconds(30);

    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0];
        String topic = arguments[1];
        int warmUpCount = Integer.parseInt(arguments[2]);
        int count = Integer.parseInt(arguments[3]);
        byte[] value = new byte[Integer.parseInt(arguments[4])];
        long[] acknowledgedNs = new long[count];
        long[] receivedNs = new long[count];
        Map<String, Object> producerSettings = Map.of(
                "bootstrap.servers", servers, "linger.ms", 0, "acks", "all",
                "send.buffer.bytes", -1, "receive.buffer.bytes", -1);
        Map<String, Object> consumerSettings = Map.of(
                "bootstrap.servers", servers, "enable.auto.commit", false,
                "send.buffer.bytes", -1, "receive.buffer.bytes", -1);
        try (var producer = new KafkaProducer<>(
                        producerSettings, new ByteArraySerializer(), new ByteArraySerializer());
                var consumer = new KafkaConsumer<>(
                        consumerSettings,
                        new ByteArrayDeserializer(),
                        new ByteArrayDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            consumer.position(partition);
            for (int turn = -warmUpCount; turn < count; turn++) {
                long startNs = System.nanoTime();
                producer.send(new ProducerRecord<>(topic, value)).get();
                long acknowledged = System.nanoTime() - startNs;
                if (consumer.poll(SILENCE_MAX).isEmpty()) {
                    throw new IllegalStateException("nothing came for " + SILENCE_MAX);
                }
                long received = System.nanoTime() - startNs;
                if (turn >= 0) {
                    acknowledgedNs[turn] = acknowledged;
                    receivedNs[turn] = received;
                }
            }
        }
        System.out.printf(
                "{\"ack_p50_ms\": %s, \"ack_p99_ms\": %s, "
                        + "\"received_p50_ms\": %s, \"received_p99_ms\": %s}%n",
                percentileMs(acknowledgedNs, 50), percentileMs(acknowledgedNs, 99),
                percentileMs(receivedNs, 50), percentileMs(receivedNs, 99));
    }

    private static double percentileMs(long[] latenciesNs, int percent) {
        long[] ascending = latenciesNs.clone();
        Arrays.sort(ascending);
        return ascending[ascending.length * percent / 100] / 1e6;
    }
}
