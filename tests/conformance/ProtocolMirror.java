import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.Readable;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.requests.RequestUtils;

/**
 * Reads messages with Kafka's own classes, and prints what they contain and how Kafka writes them.
 *
 * A line in: "request HEX" (header and message), "response KEY VERSION HEX" (the same),
 * "data NAME VERSION HEX", or "apis". A line out: "HEX JSON", or "error TEXT". In the JSON, strings
 * and bytes are in hex, so that nothing needs escaping, and fields have their Java names.
 */
public class ProtocolMirror {
    private static final Set<String> NO_FIELDS = Set.of("_unknownTaggedFields", "next", "prev");
    private static final List<String> PACKAGES = List.of("common.message", "coordinator.group.generated",
        "coordinator.share.generated", "coordinator.transaction.generated");
    private static final HexFormat HEX = HexFormat.of();

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

    private static String respond(String[] words) throws Exception {
        switch (words[0]) {
            case "request":
                return request(bytes(words[1]));
            case "response":
                return response(Short.parseShort(words[1]), Short.parseShort(words[2]), bytes(words[3]));
            case "data":
                return data(words[1], Short.parseShort(words[2]), bytes(words[3]));
            case "apis":
                return apis();
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static String request(ByteBuffer bytes) throws Exception {
        ApiMessageType api = ApiMessageType.fromApiKey(bytes.getShort(0));
        short version = bytes.getShort(2);
        short headerVersion = api.requestHeaderVersion(version);
        // Not RequestHeader.parse, which takes a null client id for an empty one.
        ApiMessage header = new RequestHeaderData(new ByteBufferAccessor(bytes), headerVersion);
        return respond(header, headerVersion, api.newRequest(), version, bytes);
    }

    private static String response(short key, short version, ByteBuffer bytes) throws Exception {
        ApiMessageType api = ApiMessageType.fromApiKey(key);
        short headerVersion = api.responseHeaderVersion(version);
        ApiMessage header = new ResponseHeaderData(new ByteBufferAccessor(bytes), headerVersion);
        return respond(header, headerVersion, api.newResponse(), version, bytes);
    }

    private static String respond(
        ApiMessage header, short headerVersion, ApiMessage message, short version, ByteBuffer bytes
    ) throws Exception {
        read(message, bytes, version);
        ByteBuffer written = RequestUtils.serialize(header, headerVersion, message, version);
        return hex(written) + " {\"header\":" + json(header) + ",\"message\":" + json(message) + "}";
    }

    private static String data(String name, short version, ByteBuffer bytes) throws Exception {
        Message message = (Message) classOf(name).getConstructor().newInstance();
        read(message, bytes, version);
        ByteBuffer written = MessageUtil.toByteBufferAccessor(message, version).buffer();
        return hex(written) + " {\"message\":" + json(message) + "}";
    }

    /** A coordinator's records have their classes in its own package. */
    private static Class<?> classOf(String name) throws ClassNotFoundException {
        for (String place : PACKAGES) {
            try {
                return Class.forName("org.apache.kafka." + place + "." + name);
            } catch (ClassNotFoundException error) {
                // The next package may have it.
            }
        }
        throw new ClassNotFoundException(name);
    }

    private static void read(Message message, ByteBuffer bytes, short version) {
        Readable readable = new ByteBufferAccessor(bytes);
        message.read(readable, version);
        if (bytes.hasRemaining()) {
            throw new IllegalStateException(bytes.remaining() + " bytes remain");
        }
    }

    /** Every API with its name, its stable versions, and the versions of its headers. */
    private static String apis() {
        return Arrays.stream(ApiKeys.values())
            .map(key -> {
                ApiMessageType type = key.messageType;
                short low = type.lowestSupportedVersion();
                short high = type.highestSupportedVersion(false);
                String headers = IntStream.rangeClosed(low, high)
                    .mapToObj(v -> "[" + type.requestHeaderVersion((short) v) + ","
                        + type.responseHeaderVersion((short) v) + "]")
                    .collect(Collectors.joining(",", "[", "]"));
                return "{\"key\":" + key.id + ",\"name\":\"" + key.name() + "\",\"low\":" + low
                    + ",\"high\":" + high + ",\"headers\":" + headers + "}";
            })
            .collect(Collectors.joining(",", "[", "]"));
    }

    private static String json(Object value) throws Exception {
        if (value == null || value instanceof Boolean || value instanceof Number && !(value instanceof Double)) {
            return String.valueOf(value);
        } else if (value instanceof Double) {
            return quoted(String.format("%016x", Double.doubleToRawLongBits((Double) value)));
        } else if (value instanceof String) {
            return quoted(HEX.formatHex(((String) value).getBytes(StandardCharsets.UTF_8)));
        } else if (value instanceof byte[]) {
            return quoted(HEX.formatHex((byte[]) value));
        } else if (value instanceof ByteBuffer) {
            return quoted(hex((ByteBuffer) value));
        } else if (value instanceof MemoryRecords) {
            return quoted(hex(((MemoryRecords) value).buffer()));
        } else if (value instanceof Uuid) {
            Uuid uuid = (Uuid) value;
            return quoted(String.format("%016x%016x",
                uuid.getMostSignificantBits(), uuid.getLeastSignificantBits()));
        } else if (value instanceof Collection) {
            StringBuilder items = new StringBuilder();
            for (Object item : (Collection<?>) value) {
                items.append(items.length() == 0 ? "" : ",").append(json(item));
            }
            return "[" + items + "]";
        } else if (value instanceof Message) {
            return struct((Message) value);
        }
        throw new IllegalArgumentException("no JSON for " + value.getClass());
    }

    private static String struct(Message message) throws Exception {
        StringBuilder fields = new StringBuilder();
        for (Field field : message.getClass().getDeclaredFields()) {
            if (Modifier.isStatic(field.getModifiers()) || NO_FIELDS.contains(field.getName())) {
                continue;
            }
            field.setAccessible(true);
            fields.append(fields.length() == 0 ? "" : ",").append(quoted(field.getName())).append(":")
                .append(json(field.get(message)));
        }
        return "{" + fields + "}";
    }

    private static String quoted(String text) {
        return '"' + text + '"';
    }

    private static ByteBuffer bytes(String hex) {
        return ByteBuffer.wrap(HEX.parseHex(hex));
    }

    private static String hex(ByteBuffer buffer) {
        ByteBuffer copy = buffer.duplicate();
        byte[] bytes = new byte[copy.remaining()];
        copy.get(bytes);
        return HEX.formatHex(bytes);
    }
}
