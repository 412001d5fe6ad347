import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.StringJoiner;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.Utils;

/**
 * Writes and reads record batches with Kafka's own classes.
 *
 * Lines in, one line out for each ("error TEXT" when Kafka refuses):
 *   write MAGIC CODEC LEVEL TIMESTAMP_TYPE BASE_OFFSET LOG_APPEND_TIME PRODUCER_ID EPOCH SEQUENCE
 *         TRANSACTIONAL LEADER_EPOCH RECORD...             -> HEX
 *   marker TYPE OFFSET TIMESTAMP LEADER_EPOCH PRODUCER_ID EPOCH COORDINATOR_EPOCH  -> HEX
 *   read HEX                                               -> BATCH / BATCH ...
 *   murmur2 HEX                                            -> number
 * RECORD is OFFSET:TIMESTAMP:KEY:VALUE:HEADERS, with bytes in hex, "-" for null, and HEADERS as
 * NAME=VALUE,NAME=VALUE. BATCH is the header's numbers with commas, then its records.
 */
public class RecordMirror {
    private static final HexFormat HEX = HexFormat.of();
    private static final int BUFFER_SIZE = 1 << 22;

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String response;
            try {
                response = respond(line.split(" ", -1));
            } catch (Exception error) {
                response = "error " + error.toString().replace('\n', ' ');
            }
            out.println(response);
            out.flush();
        }
    }

    private static String respond(String[] words) {
        switch (words[0]) {
            case "write":
                return write(words);
            case "marker":
                return marker(words);
            case "read":
                return read(ByteBuffer.wrap(HEX.parseHex(words[1])));
            case "murmur2":
                return Integer.toString(Utils.murmur2(HEX.parseHex(words[1])));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static String write(String[] words) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(BUFFER_SIZE), Byte.parseByte(words[1]), compression(words[2], words[3]),
            TimestampType.forName(words[4]), Long.parseLong(words[5]), Long.parseLong(words[6]),
            Long.parseLong(words[7]), Short.parseShort(words[8]), Integer.parseInt(words[9]),
            Boolean.parseBoolean(words[10]), Integer.parseInt(words[11]));
        for (int at = 12; at < words.length; at++) {
            String[] fields = words[at].split(":", -1);
            builder.appendWithOffset(
                Long.parseLong(fields[0]), Long.parseLong(fields[1]), bytes(fields[2]), bytes(fields[3]),
                headers(fields[4]));
        }
        return hex(builder.build().buffer());
    }

    private static Compression compression(String codec, String level) {
        if (level.equals("-")) {
            return Compression.of(codec).build();
        }
        int number = Integer.parseInt(level);
        switch (codec) {
            case "gzip":
                return Compression.gzip().level(number).build();
            case "lz4":
                return Compression.lz4().level(number).build();
            case "zstd":
                return Compression.zstd().level(number).build();
            default:
                throw new IllegalArgumentException(codec + " has no levels");
        }
    }

    private static String marker(String[] words) {
        EndTransactionMarker marker = new EndTransactionMarker(
            ControlRecordType.valueOf(words[1]), Integer.parseInt(words[7]));
        return hex(MemoryRecords.withEndTransactionMarker(
            Long.parseLong(words[2]), Long.parseLong(words[3]), Integer.parseInt(words[4]),
            Long.parseLong(words[5]), Short.parseShort(words[6]), marker).buffer());
    }

    private static String read(ByteBuffer bytes) {
        StringJoiner batches = new StringJoiner(" / ");
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(bytes).batches()) {
            batch.ensureValid();
            StringJoiner words = new StringJoiner(" ");
            words.add(batch.magic() + "," + batch.compressionType().id + "," + batch.timestampType().id + ","
                + batch.baseOffset() + "," + batch.lastOffset() + "," + batch.partitionLeaderEpoch() + ","
                + batch.producerId() + "," + batch.producerEpoch() + "," + batch.baseSequence() + ","
                + (batch.isTransactional() ? 1 : 0) + "," + (batch.isControlBatch() ? 1 : 0) + ","
                + batch.maxTimestamp());
            for (Record record : batch) {
                record.ensureValid();
                words.add(record.offset() + ":" + record.timestamp() + ":" + hex(record.key()) + ":"
                    + hex(record.value()) + ":" + shown(record.headers()));
            }
            batches.add(words.toString());
        }
        return batches.toString();
    }

    private static Header[] headers(String text) {
        if (text.isEmpty()) {
            return new Header[0];
        }
        String[] pairs = text.split(",");
        Header[] headers = new Header[pairs.length];
        for (int at = 0; at < pairs.length; at++) {
            String[] pair = pairs[at].split("=", -1);
            String name = new String(HEX.parseHex(pair[0]), StandardCharsets.UTF_8);
            headers[at] = new RecordHeader(name, bytes(pair[1]));
        }
        return headers;
    }

    private static String shown(Header[] headers) {
        StringJoiner pairs = new StringJoiner(",");
        for (Header header : headers) {
            String value = header.value() == null ? "-" : HEX.formatHex(header.value());
            pairs.add(HEX.formatHex(header.key().getBytes(StandardCharsets.UTF_8)) + "=" + value);
        }
        return pairs.toString();
    }

    private static byte[] bytes(String hex) {
        return hex.equals("-") ? null : HEX.parseHex(hex);
    }

    private static String hex(ByteBuffer bytes) {
        return bytes == null ? "-" : HEX.formatHex(Utils.toArray(bytes));
    }
}
