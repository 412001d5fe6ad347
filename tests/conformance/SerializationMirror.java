import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.UUID;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serializer;

/**
 * Serializes a value with Kafka's class for each line, deserializes the bytes again, and prints the
 * bytes in hexadecimal and the value as it was read. A value is written as itself, of strings and
 * floating-point numbers as their UTF-16 units or bits in hexadecimal.
 */
public class SerializationMirror {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            try {
                byte[] data = serializer(words[0]).serialize("t", parsed(words[0], words[1]));
                Object read = deserializer(words[0]).deserialize("t", data);
                System.out.println((data == null ? "null" : "=" + HEX.formatHex(data)) + " " + written(read));
            } catch (Exception raised) {
                System.out.println("error " + raised);
            }
            System.out.flush();
        }
    }

    @SuppressWarnings("unchecked")
    private static Serializer<Object> serializer(String name) throws Exception {
        return (Serializer<Object>) made(name + "Serializer");
    }

    @SuppressWarnings("unchecked")
    private static Deserializer<Object> deserializer(String name) throws Exception {
        return (Deserializer<Object>) made(name + "Deserializer");
    }

    private static Object made(String name) throws Exception {
        Class<?> found = Class.forName("org.apache.kafka.common.serialization." + name);
        return found.getDeclaredConstructor().newInstance();
    }

    private static Object parsed(String name, String text) {
        if (text.equals("null")) {
            return null;
        }
        switch (name) {
            case "String":
                StringBuilder units = new StringBuilder();
                for (int index = 1; index < text.length(); index += 4) {
                    units.append((char) Integer.parseInt(text.substring(index, index + 4), 16));
                }
                return units.toString();
            case "Short":
                return Short.valueOf(text);
            case "Integer":
                return Integer.valueOf(text);
            case "Long":
                return Long.valueOf(text);
            case "Float":
                return (float) Double.longBitsToDouble(Long.parseUnsignedLong(text, 16));
            case "Double":
                return Double.longBitsToDouble(Long.parseUnsignedLong(text, 16));
            case "UUID":
                return UUID.fromString(text);
            case "Boolean":
                return Boolean.valueOf(text);
            case "ByteArray":
                return HEX.parseHex(text.substring(1));
            default:
                throw new IllegalArgumentException(name);
        }
    }

    private static String written(Object value) {
        if (value instanceof String) {
            StringBuilder units = new StringBuilder("=");
            for (char unit : ((String) value).toCharArray()) {
                units.append(String.format("%04x", (int) unit));
            }
            return units.toString();
        }
        if (value instanceof Float) {
            return String.format("%016x", Double.doubleToRawLongBits((Float) value));
        }
        if (value instanceof Double) {
            return String.format("%016x", Double.doubleToRawLongBits((Double) value));
        }
        return value instanceof byte[] ? "=" + HEX.formatHex((byte[]) value) : String.valueOf(value);
    }
}
