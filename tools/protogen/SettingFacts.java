import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;

/** Prints one line per setting of the three clients: client, name, type, default, importance, rule. */
public class SettingFacts {
    public static void main(String[] arguments) {
        print("admin", AdminClientConfig.configDef());
        print("consumer", ConsumerConfig.configDef());
        print("producer", ProducerConfig.configDef());
    }

    private static void print(String client, ConfigDef definitions) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(definitions.configKeys()).values()) {
            if (key.internalConfig) {
                continue;
            }
            System.out.println(String.join("\t", client, key.name, key.type.toString(),
                text(key), key.importance.toString(),
                key.validator == null ? "" : key.validator.toString()));
        }
    }

    private static String text(ConfigDef.ConfigKey key) {
        if (key.defaultValue == ConfigDef.NO_DEFAULT_VALUE) {
            return "<required>";
        }
        if (key.defaultValue instanceof Class) {
            return ((Class<?>) key.defaultValue).getName();
        }
        if (key.defaultValue instanceof List) {
            List<String> parts = new ArrayList<>();
            for (Object part : (List<?>) key.defaultValue) {
                parts.add(part instanceof Class ? ((Class<?>) part).getName() : part.toString());
            }
            return parts.toString();
        }
        return String.valueOf(key.defaultValue);
    }
}
