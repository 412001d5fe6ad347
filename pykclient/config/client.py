"""ClientConfig: the settings shared by producer, consumer and admin, and how they are parsed.

`from_settings` makes a config, checks it as a whole, and it never changes. It holds plain values,
so it can be pickled and sent to another process. It never opens, imports or resolves anything. Keys
have Kafka's names and defaults; the few that Kafka lacks say so.

Owner: none, a config is immutable and crosses threads freely.
Source: Java classes ``AbstractConfig``, ``CommonClientConfigs``.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

from pykclient.config.providers import providers_of, undefined, with_providers
from pykclient.config.security import SecurityConfig, names
from pykclient.config.setting import (
    LONG_MAX,
    REQUIRED,
    Setting,
    address_list,
    boolean,
    choice,
    integer,
    shown,
    string,
)
from pykclient.config.unknown_keys import EVERY_CLIENT, explain_unknown, respelled, underscored
from pykclient.errors.base import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from typing import Self

    from pykclient.config.setting import Address

USE_ALL_DNS_IPS: Final = "use_all_dns_ips"
CANONICAL_NAMES: Final = "resolve_canonical_bootstrap_servers_only"
DNS_LOOKUPS: Final = (USE_ALL_DNS_IPS, CANONICAL_NAMES)

WRONG_SHOWN_MAX: Final = 50
"""Wrong settings that an error lists."""
SUGGESTIONS_MAX: Final = 10
"""Unknown names for which the closest one is looked for: each takes some milliseconds."""

_CLIENT_NUMBERS: Final = {client: count(1) for client in EVERY_CLIENT}
"""Number for the next client without a client id. It starts over in every process."""


class ClientConfig(SecurityConfig):
    """Settings shared by all clients. Times are in milliseconds, sizes in bytes."""

    client: ClassVar[str] = "client"
    _by_name: ClassVar[dict[str, Setting[object]]] = {}

    bootstrap_servers = Setting(
        address_list(),
        REQUIRED,
        "Addresses of brokers from which the client learns the cluster; some may be down.",
    )
    client_id = Setting(
        string(),
        "",
        "Name under which brokers log and limit this client's requests. When empty, it is "
        "producer-1, consumer-GROUP-1, adminclient-1 and so on, as in Java.",
    )
    request_timeout_ms = Setting(
        integer(0),
        30_000,
        "Maximum time for a broker's response, after which the connection is closed.",
    )
    retry_backoff_ms = Setting(
        integer(0, LONG_MAX), 100, "Pause before a failed request is retried; doubles each time."
    )
    retry_backoff_max_ms = Setting(
        integer(0, LONG_MAX), 1_000, "Maximum pause between two attempts of a request."
    )
    reconnect_backoff_ms = Setting(
        integer(0, LONG_MAX),
        50,
        "Pause before the client reconnects to a broker; doubles each time. If only this is set, "
        "it is also the maximum pause.",
    )
    reconnect_backoff_max_ms = Setting(
        integer(0, LONG_MAX), 1_000, "Maximum pause between two attempts to connect to a broker."
    )
    socket_connection_setup_timeout_ms = Setting(
        integer(0, LONG_MAX), 10_000, "Maximum time to open a connection; doubles each time."
    )
    socket_connection_setup_timeout_max_ms = Setting(
        integer(0, LONG_MAX), 30_000, "Upper limit of the time to open a connection."
    )
    connections_max_idle_ms = Setting(
        integer(-1, LONG_MAX), 540_000, "Idle connections are closed after this time; -1 for never."
    )
    metadata_max_age_ms = Setting(
        integer(0, LONG_MAX), 300_000, "Maximum age of metadata before it is refreshed."
    )
    metadata_recovery_strategy = Setting(
        choice({"rebootstrap": "rebootstrap", "none": "none"}, is_case_kept=False),
        "rebootstrap",
        "When no known broker responds: return to bootstrap_servers, or keep trying (KIP-899).",
    )
    metadata_recovery_rebootstrap_trigger_ms = Setting(
        integer(0, LONG_MAX),
        300_000,
        "Time without metadata after which to return to bootstrap_servers (KIP-1102).",
    )
    metadata_cluster_check_enable = Setting(
        boolean(),
        True,
        "Reject brokers of a cluster other than the one that the client reached first. Brokers "
        "from 4.4 on also check the broker id that the client expects at their address "
        "(KIP-1242), unless metadata.recovery.strategy is none; for older brokers the client "
        "compares the cluster id. If false, the client uses any cluster at its addresses.",
    )
    client_dns_lookup = Setting(
        choice({name: name for name in DNS_LOOKUPS}),
        USE_ALL_DNS_IPS,
        "Use every address of a name; or replace each name in bootstrap_servers by the "
        "canonical names that a reverse lookup of its addresses returns (KIP-235), for "
        "certificates and Kerberos. The lookup runs when the client is made, within "
        "socket_connection_setup_timeout_ms.",
    )
    config_providers = Setting(
        names(),
        (),
        "Providers of values that settings refer to, as ${env:NAME} or ${file:PATH:KEY} "
        "(KIP-297). For each, set config.providers.NAME.class to EnvVarConfigProvider, "
        "FileConfigProvider or DirectoryConfigProvider, of "
        "org.apache.kafka.common.config.provider; param.allowed.paths and "
        "param.allowlist.pattern limit what they read.",
    )
    metrics_num_samples = Setting(
        integer(1), 2, "Number of time windows that a metric covers, with the current one."
    )
    metrics_sample_window_ms = Setting(
        integer(0, LONG_MAX), 30_000, "Length of a metric's time window."
    )
    socket_keepalive_enable = Setting(
        boolean(),
        True,
        "True lets the system check idle connections (TCP keep-alive). Java always does and has no "
        "such setting; librdkafka's default is false.",
        key="socket.keepalive.enable",
        is_ours=True,
    )
    send_buffer_bytes = Setting(
        integer(-1), 131_072, "Size of the socket's send buffer; -1 leaves it to the system."
    )
    receive_buffer_bytes = Setting(
        integer(-1), 65_536, "Size of the socket's receive buffer; -1 leaves it to the system."
    )
    receive_max_bytes = Setting(
        integer(1_000),
        100_000_000,
        "Maximum size of a response; a larger one ends the connection before memory is "
        "allocated for it.",
        is_ours=True,
    )

    def __init_subclass__(cls) -> None:
        cls._by_name = {}
        for base in reversed(cls.__mro__):
            for setting in vars(base).values():
                if isinstance(setting, Setting):
                    for name in (setting.name, setting.key, *setting.aliases):
                        cls._by_name[underscored(name)] = setting

    @classmethod
    def settings(cls) -> tuple[Setting[object], ...]:
        """Return every setting of this client in order of declaration, shared ones first."""
        return tuple(dict.fromkeys(cls._by_name.values()))

    @classmethod
    def setting_of(cls, spelling: str) -> Setting[object] | None:
        """Return the setting of a key, in any spelling that `from_settings` accepts, or None."""
        return cls._by_name.get(underscored(spelling))

    @classmethod
    def from_settings(
        cls, settings: Mapping[str, object] | None = None, /, **keywords: object
    ) -> Self:
        """Return a checked config from a mapping, keywords, or both; keywords win.

        Keys may be spelled with dots or underscores. Text is parsed as in a properties file: "5" is
        5 and "true" is True.

        Raises:
            ConfigError: a key is unknown, misspelled, not supported yet, given twice, or belongs to
                another client; or a value has the wrong type, is out of range, or contradicts
                another. It names the key, the value (unless secret) and what is allowed.
        """
        wrong: list[str] = []
        sources = ({} if settings is None else settings, keywords)
        given, reference_warnings = cls._read_all(*sources, wrong=wrong)
        is_dotted = any("." in str(spelling) for spelling in settings or ())
        config = cls()
        values = vars(config)
        for setting in cls.settings():
            if setting.name not in given and setting.default is REQUIRED:
                key = setting.key if is_dotted else setting.name
                wrong.append(f"{key} is missing: give {setting.kind.allowed}.")
            values[setting.name] = given.get(setting.name, setting.default)
        values["reference_warnings"] = reference_warnings
        values["spellings"] = cls._spellings(*sources)
        if not wrong:
            try:
                config._reconcile(given.keys())
            except ConfigError as error:
                wrong.append(str(error) if is_dotted else respelled(str(error)))
        if wrong:
            count = f"{len(wrong)} settings are invalid:\n- " if len(wrong) > 1 else ""
            shown_wrong = wrong[:WRONG_SHOWN_MAX]
            if len(wrong) > WRONG_SHOWN_MAX:
                shown_wrong.append(f"and {len(wrong) - WRONG_SHOWN_MAX} more.")
            raise ConfigError(count + "\n- ".join(shown_wrong))
        return config

    @classmethod
    def _read_all(
        cls, *sources: Mapping[str, object], wrong: list[str]
    ) -> tuple[dict[str, object], tuple[str, ...]]:
        """Return the valid settings of all sources, and warnings about references in them.

        A later source wins. Complaints about other settings are appended to `wrong`.
        """
        for source in sources:
            if not isinstance(source, Mapping):
                raise cls._no_mapping(source)
        providers = providers_of(*sources)
        given: dict[str, object] = {}
        warning_by_name: dict[str, str | None] = {}
        for source in sources:
            warnings = {key: undefined(str(key), value, providers) for key, value in source.items()}
            given.update(cls._read(with_providers(source, providers), warnings, wrong))
            for spelling, warning in warnings.items():
                setting = cls.setting_of(str(spelling))
                if setting is not None:
                    warning_by_name[setting.name] = warning
        return given, tuple(filter(None, warning_by_name.values()))

    @classmethod
    def _spellings(cls, *sources: Mapping[str, object]) -> dict[str, str]:
        """Return the names as given, where they are not Kafka's, by the settings' names."""
        found = {}
        for spelling in (each for source in sources for each in source if isinstance(each, str)):
            setting = cls.setting_of(spelling)
            if setting is not None and underscored(spelling) != setting.name:
                found[setting.name] = spelling
        return found

    @classmethod
    def _no_mapping(cls, source: object) -> ConfigError:
        is_topic = isinstance(source, str) and cls.client == "consumer"
        topics = f" For topics call subscribe([{source!r}])." if is_topic else ""
        return ConfigError(
            f"Settings are keywords or one mapping, not a {type(source).__name__}: write "
            f"bootstrap_servers='host:9092', or {{'bootstrap.servers': 'host:9092'}}.{topics}"
        )

    @classmethod
    def _read(
        cls,
        source: Mapping[Any, object],
        warnings: Mapping[Any, str | None],
        wrong: list[str],
    ) -> Iterator[tuple[str, object]]:
        """Yield the settings that are valid; append the complaints about the others to `wrong`.

        `warnings` has, for each key, the warning about references that are part of the value.
        """
        spellings: dict[str, str] = {}
        values: dict[str, object] = {}
        is_dotted = any("." in str(spelling) for spelling in source)
        known = [name for s in cls.settings() for name in (s.key, *s.aliases)]
        for spelling, value in source.items():
            if not isinstance(spelling, str):
                wrong.append(f"A setting's name is a string, not {shown('', spelling)}.")
                continue
            setting = cls.setting_of(spelling)
            if setting is None:
                complaint = explain_unknown(
                    cls.client,
                    spelling,
                    value,
                    known,
                    suggests=len(wrong) < SUGGESTIONS_MAX,
                )
                if complaint is not None:
                    is_plain = "." in spelling or (is_dotted and "_" not in spelling)
                    wrong.append(complaint if is_plain else respelled(complaint))
            else:
                try:
                    read = setting.read(value, spelling)
                except ConfigError as error:
                    wrong.append(" ".join(filter(None, (str(error), warnings.get(spelling)))))
                    read = setting.default
                other = spellings.setdefault(setting.name, spelling)
                if other != spelling and read != values[setting.name]:
                    wrong.append(
                        f"{spelling!r} and {other!r} are the same setting with different "
                        f"values; give one."
                    )
                    continue
                values[setting.name] = read
                yield setting.name, read

    def named(self) -> Self:
        """Return this config with a client id: its own, or a new one, unique in this process."""
        if self.client_id:
            return self
        return self._with(client_id=self._default_client_id())

    def with_bootstrap_servers(self, addresses: tuple[Address, ...]) -> Self:
        """Return a copy of this config with other bootstrap addresses."""
        return self._with(bootstrap_servers=addresses)

    def _with(self, **values: object) -> Self:
        config = type(self)()
        vars(config).update(vars(self), **values)
        return config

    def _default_client_id(self) -> str:
        return f"{self.client}-{self._next_number()}"

    def _next_number(self) -> int:
        return next(_CLIENT_NUMBERS[self.client])

    def _reconcile(self, given: Collection[str]) -> None:
        """Check settings against each other, and set the defaults that depend on others."""
        self.check_security()
        if "reconnect_backoff_ms" in given and "reconnect_backoff_max_ms" not in given:
            self._settle("reconnect_backoff_max_ms", self.reconnect_backoff_ms)

    def _values(self) -> dict[str, object]:
        """Return the values that make two configs equal; the spellings of the names do not."""
        return {name: value for name, value in vars(self).items() if name != "spellings"}

    def _settle(self, name: str, value: object) -> None:
        vars(self)[name] = value

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable; {name} was not set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable; {name} was not deleted")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._values() == other._values()

    __hash__ = None  # type: ignore[assignment]  # objects given as settings need not be hashable

    def __repr__(self) -> str:
        """Return the settings that differ from their defaults, with secrets masked."""
        changed = (
            f"{setting.name}={shown(setting.name, value)}"
            for setting in self.settings()
            if (value := getattr(self, setting.name)) != setting.default
        )
        return f"{type(self).__name__}({', '.join(changed)})"
