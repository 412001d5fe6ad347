import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.utils.Utils;

/**
 * Tells for each line, the UTF-16 units of a string in hexadecimal and a count, Java's hash of the
 * string, and to which of so many partitions Kafka's group coordinator maps it.
 */
public class StringHashMirror {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            StringBuilder text = new StringBuilder();
            for (int index = 0; index < words[0].length(); index += 4) {
                text.append((char) Integer.parseInt(words[0].substring(index, index + 4), 16));
            }
            int hash = text.toString().hashCode();
            System.out.println(hash + " " + Utils.abs(hash) % Integer.parseInt(words[1]));
            System.out.flush();
        }
    }
}
