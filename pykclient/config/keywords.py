"""The settings of each client as keywords, with their types.

Written by `python -m tools.keyword_types` from the config classes. Do not edit.

Owner: none; types only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Literal, TypedDict

from pykclient.type_parameters import K, V

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike
    from ssl import SSLContext

    from pykclient.errors import CorruptRecordError, RecordDeserializationError
    from pykclient.serialization import DeserializerSetting, SerializerSetting

    OnRecordError = str | Callable[[CorruptRecordError | RecordDeserializationError], object]


class ClientSettings(TypedDict, total=False):
    """Keywords of every client. Times are milliseconds, sizes bytes."""

    bootstrap_servers: str | tuple[str, int] | Sequence[str | tuple[str, int]]
    """Addresses of brokers from which the client learns the cluster; some may be down. Required;
    host:port addresses such as 'kafka1:9092,kafka2:9092' (IPv6 as '[::1]:9092').
    """
    client_dns_lookup: Literal["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"]
    """Use every address of a name; or replace each name in bootstrap_servers by the canonical
    names that a reverse lookup of its addresses returns (KIP-235), for certificates and
    Kerberos. The lookup runs when the client is made, within
    socket_connection_setup_timeout_ms. Default: use_all_dns_ips; one of use_all_dns_ips,
    resolve_canonical_bootstrap_servers_only.
    """
    client_id: str
    """Name under which brokers log and limit this client's requests. When empty, it is
    producer-1, consumer-GROUP-1, adminclient-1 and so on, as in Java. Default: empty; a
    string.
    """
    config_providers: str | Sequence[str]
    """Providers of values that settings refer to, as ${env:NAME} or ${file:PATH:KEY} (KIP-297).
    For each, set config.providers.NAME.class to EnvVarConfigProvider, FileConfigProvider or
    DirectoryConfigProvider, of org.apache.kafka.common.config.provider; param.allowed.paths
    and param.allowlist.pattern limit what they read. Default: empty; a list of names.
    """
    enable_sasl_oauthbearer_unsecure_jwt: bool
    """True makes unsigned tokens from sasl.oauthbearer.config, for test brokers. Java configures
    them in sasl_jaas_config. Default: false; true or false.
    """
    enable_ssl_certificate_verification: bool
    """False accepts any certificate, so anyone in between can read and change everything; for
    tests only. Only librdkafka has this setting. Default: true; true or false.
    """
    https_ca_location: str | PathLike[str] | None
    """File with the authorities to trust for the identity server's certificate, in PEM; None
    means the system's. It is reloaded when it changes. Java has it as ssl.truststore.location
    in sasl_jaas_config. Default: None; a file's path, or None.
    """
    https_ca_pem: str | None
    """Certificates of the authorities to trust, in PEM. Default: None; a string that is not
    empty, or None.
    """
    https_certificate_location: str | PathLike[str] | None
    """File with the client's certificate for the identity server, and its chain: PEM, PKCS#12 or
    JKS. It is reloaded when it changes. Without a secret or an assertion, it authenticates
    the client (RFC 8705). Java has it as ssl.keystore.location in sasl_jaas_config. Default:
    None; a file's path, or None.
    """
    https_key_location: str | PathLike[str] | None
    """File with the key of that certificate in PEM, if it is not in https_certificate_location.
    Default: None; a file's path, or None.
    """
    https_key_password: str | None
    """Password of that key, or of the PKCS#12 file. Default: None; a string, or None."""
    metadata_cluster_check_enable: bool
    """Reject brokers of a cluster other than the one that the client reached first. Brokers from
    4.4 on also check the broker id that the client expects at their address (KIP-1242),
    unless metadata.recovery.strategy is none; for older brokers the client compares the
    cluster id. If false, the client uses any cluster at its addresses. Default: true; true or
    false.
    """
    metadata_max_age_ms: int
    """Maximum age of metadata before it is refreshed. Default: 300000; an integer from 0 to
    9223372036854775807.
    """
    metadata_recovery_rebootstrap_trigger_ms: int
    """Time without metadata after which to return to bootstrap_servers (KIP-1102). Default:
    300000; an integer from 0 to 9223372036854775807.
    """
    metadata_recovery_strategy: Literal["rebootstrap", "none"]
    """When no known broker responds: return to bootstrap_servers, or keep trying (KIP-899).
    Default: rebootstrap; one of rebootstrap, none.
    """
    metrics_num_samples: int
    """Number of time windows that a metric covers, with the current one. Default: 2; an integer
    from 1 to 2147483647.
    """
    metrics_sample_window_ms: int
    """Length of a metric's time window. Default: 30000; an integer from 0 to
    9223372036854775807.
    """
    oauth_cb: object
    """Source of tokens as in confluent-kafka: a function that is called with
    sasl.oauthbearer.config and returns the token, its expiry in seconds since 1970 and,
    optionally, the principal and a dict of SASL extensions. Default: None; an object, a
    class, a callable or 'package.module:Name'.
    """
    receive_max_bytes: int
    """Maximum size of a response; a larger one ends the connection before memory is allocated
    for it. Default: 100000000; an integer from 1000 to 2147483647.
    """
    reconnect_backoff_max_ms: int
    """Maximum pause between two attempts to connect to a broker. Default: 1000; an integer from
    0 to 9223372036854775807.
    """
    reconnect_backoff_ms: int
    """Pause before the client reconnects to a broker; doubles each time. If only this is set, it
    is also the maximum pause. Default: 50; an integer from 0 to 9223372036854775807.
    """
    request_timeout_ms: int
    """Maximum time for a broker's response, after which the connection is closed. Default:
    30000; an integer from 0 to 2147483647.
    """
    retry_backoff_max_ms: int
    """Maximum pause between two attempts of a request. Default: 1000; an integer from 0 to
    9223372036854775807.
    """
    retry_backoff_ms: int
    """Pause before a failed request is retried; doubles each time. Default: 100; an integer from
    0 to 9223372036854775807.
    """
    sasl_jaas_config: str | None
    """Java's login configuration: for PLAIN and SCRAM MODULE required username="..."
    password="..."; and tokenauth=true if they are the id and HMAC of a delegation token
    (KIP-48); for OAUTHBEARER clientId and clientSecret, or the claims of an unsecured token;
    for GSSAPI keyTab and principal. Default: None; a string, or None.
    """
    sasl_kerberos_domain_name: str | None
    """Host in the brokers' principals; None is the name that the client connects to.
    kafka-python has this setting. Default: None; a string, or None.
    """
    sasl_kerberos_keytab: str | PathLike[str] | None
    """File with the client's key, to get tickets without kinit. Java has it as keyTab in
    sasl_jaas_config. Default: None; a file's path, or None.
    """
    sasl_kerberos_principal: str | None
    """The client's principal, alice@EXAMPLE.COM; None is that of the tickets that kinit has
    fetched. Java has it as principal in sasl_jaas_config. Default: None; a string, or None.
    """
    sasl_kerberos_service_name: str | None
    """Name of the brokers' service, the first part of their principals; None is kafka. Java has
    it as serviceName in sasl_jaas_config, too. Default: None; a string, or None.
    """
    sasl_login_callback_handler_class: str | None
    """Java's class that fetches tokens, as Java's files name it. An identity server's class is
    not needed here, its address is enough. Amazon's class signs with AWS credentials,
    Google's gets the token of a service account, and Strimzi's reads the options oauth.* of
    sasl_jaas_config. Default: None; one of
    org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler,
    org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler,
    software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler,
    com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler,
    io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler, or None.
    """
    sasl_login_connect_timeout_ms: int | None
    """Maximum time to connect to the identity server; None means 10 seconds, 0 the rest of
    request_timeout_ms. Default: None; an integer from 0 to 2147483647, or None.
    """
    sasl_login_read_timeout_ms: int | None
    """Maximum time for the identity server's response; None and 0 mean the rest of
    request_timeout_ms. Default: None; an integer from 0 to 2147483647, or None.
    """
    sasl_login_refresh_buffer_seconds: int
    """Time before its expiry at which a token is renewed, if its lifetime allows that. Default:
    300; an integer from 0 to 3600.
    """
    sasl_login_refresh_min_period_seconds: int
    """Minimum time before a token is renewed, if its lifetime allows that. Default: 60; an
    integer from 0 to 900.
    """
    sasl_login_refresh_window_factor: float
    """Fraction of its lifetime after which a token is renewed. Default: 0.8; a number from 0.5
    to 1.0.
    """
    sasl_login_refresh_window_jitter: float
    """Maximum fraction of the lifetime that is added to it at random. Default: 0.05; a number
    from 0.0 to 0.25.
    """
    sasl_login_retry_backoff_max_ms: int
    """Maximum pause before another token is fetched. Default: 10000; an integer from 0 to
    9223372036854775807.
    """
    sasl_login_retry_backoff_ms: int
    """Pause before another token is fetched, after a failed fetch or a refused token. It is at
    least a second and doubles each time. Default: 100; an integer from 0 to
    9223372036854775807.
    """
    sasl_mechanism: str
    """SASL mechanism, used if security_protocol is SASL_PLAINTEXT or SASL_SSL. Default: GSSAPI;
    one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, AWS_MSK_IAM, GSSAPI, or a
    registered name.
    """
    sasl_oauth_token_provider: object
    """Source of tokens for OAUTHBEARER: a function without arguments, or an object with token()
    and optionally extensions(). It returns the token as text, a tuple like that of oauth_cb,
    or a pykclient.OAuthToken. It may block, and is called on a separate thread. Default:
    None; an object, a class, a callable or 'package.module:Name'.
    """
    sasl_oauthbearer_assertion_algorithm: Literal["RS256", "ES256"]
    """Algorithm that signs assertions: RS256 needs an RSA key, ES256 a key of the curve P-256.
    Default: RS256; one of RS256, ES256.
    """
    sasl_oauthbearer_assertion_claim_aud: str | None
    """Audience of an assertion, its claim aud. Default: None; a string, or None."""
    sasl_oauthbearer_assertion_claim_exp_seconds: int
    """Lifetime of an assertion in seconds, for its claim exp. Default: 300; an integer from 0 to
    86400.
    """
    sasl_oauthbearer_assertion_claim_iss: str | None
    """Issuer of an assertion, its claim iss. Default: None; a string, or None."""
    sasl_oauthbearer_assertion_claim_jti_include: bool
    """True gives each assertion a unique id, its claim jti. Default: false; true or false."""
    sasl_oauthbearer_assertion_claim_nbf_seconds: int
    """Seconds before its creation from which it is valid: claim nbf. Default: 60; an integer
    from 0 to 3600.
    """
    sasl_oauthbearer_assertion_claim_sub: str | None
    """User of an assertion, its claim sub. Default: None; a string, or None."""
    sasl_oauthbearer_assertion_file: str | PathLike[str] | None
    """File with an assertion that another program renews; it is read for each token. Default:
    None; a file's path, or None.
    """
    sasl_oauthbearer_assertion_private_key_file: str | PathLike[str] | None
    """File with the key in PEM that signs assertions. Default: None; a file's path, or None."""
    sasl_oauthbearer_assertion_private_key_passphrase: str | None
    """Password of that key, if it is encrypted. Default: None; a string, or None."""
    sasl_oauthbearer_assertion_private_key_pem: str | None
    """The key that signs assertions, in PEM. Only librdkafka has this setting. Default: None; a
    string, or None.
    """
    sasl_oauthbearer_assertion_template_file: str | PathLike[str] | None
    """File with further parts of an assertion, in JSON with header and payload. Default: None; a
    file's path, or None.
    """
    sasl_oauthbearer_audience: str | None
    """The service that the token is for, if the identity server requires the parameter audience.
    Strimzi has it as oauth.audience in sasl_jaas_config. Default: None; a string, or None.
    """
    sasl_oauthbearer_client_credentials_client_id: str | None
    """The client's id at the identity server. Java has it as clientId in sasl_jaas_config, too.
    Default: None; a string, or None.
    """
    sasl_oauthbearer_client_credentials_client_secret: str | Callable[[], str] | None
    """The client's secret, or a function that returns it, called without arguments for each
    token. Java has it as clientSecret in sasl_jaas_config, too. Default: None; a string, or a
    function that returns one, or None.
    """
    sasl_oauthbearer_config: str
    """Argument of oauth_cb; or the parameters of a metadata service; or the contents of an
    unsecured token in librdkafka's form: principal=alice scope=a,b lifeSeconds=3600
    extension_NAME=VALUE. Default: empty; a string.
    """
    sasl_oauthbearer_extensions: str
    """SASL extensions for the broker, as NAME=VALUE separated by commas: logicalCluster and
    identityPoolId for Confluent Cloud. Java has them as extension_NAME in sasl_jaas_config.
    Default: empty; NAME=VALUE pairs separated by commas.
    """
    sasl_oauthbearer_grant_type: Literal[
        "client_credentials", "urn:ietf:params:oauth:grant-type:jwt-bearer"
    ]
    """The grant: client credentials, where the client authenticates with its secret or an
    assertion (KIP-1258); or an assertion, a JWT signed with the client's key, as the grant
    (RFC 7523). Default: client_credentials; one of client_credentials,
    urn:ietf:params:oauth:grant-type:jwt-bearer.
    """
    sasl_oauthbearer_header_urlencode: bool
    """True URL-encodes id and secret for the header, as RFC 6749 says; the default is Java's.
    Default: false; true or false.
    """
    sasl_oauthbearer_jwt_retriever_class: str
    """Java's class for the grant. Default:
    org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever; one of
    org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever,
    org.apache.kafka.common.security.oauthbearer.ClientCredentialsJwtRetriever,
    org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever,
    org.apache.kafka.common.security.oauthbearer.FileJwtRetriever.
    """
    sasl_oauthbearer_metadata_authentication_type: Literal["none", "azure_imds"]
    """The machine's metadata service that issues tokens: azure_imds is Azure's, for a managed
    identity. Give its parameters in sasl.oauthbearer.config,
    query=api-version=2018-02-01&resource=..., and another address in
    sasl_oauthbearer_token_endpoint_url. Only librdkafka has this setting. Default: none; one
    of none, azure_imds.
    """
    sasl_oauthbearer_method: Literal["default", "oidc"]
    """librdkafka's name of the token source, such as oidc. It is not needed here: the address of
    the identity server is enough. Default: default; one of default, oidc.
    """
    sasl_oauthbearer_scope: str | None
    """Scope of the token, as the identity server names it. Java has it as scope in
    sasl_jaas_config, too. Default: None; a string, or None.
    """
    sasl_oauthbearer_sub_claim_name: str
    """Claim of a token that names its user, for messages. Default: sub; a string."""
    sasl_oauthbearer_token_endpoint_url: str | None
    """Address at which an identity server issues tokens (OpenID Connect), https://...; or a file
    with a token, file:///..., which is reloaded before the token expires. Default: None; a
    URL, or None.
    """
    sasl_password: str | Callable[[], str] | None
    """Password for PLAIN and SCRAM, or a function that returns it, called without arguments for
    each authentication. Java has it in sasl_jaas_config. Default: None; a string, or a
    function that returns one, or None.
    """
    sasl_username: str | None
    """User name for PLAIN and SCRAM. Java has it in sasl_jaas_config. Default: None; a string,
    or None.
    """
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    """Protocol for brokers: encrypted (SSL), authenticated (SASL_PLAINTEXT), both (SASL_SSL), or
    neither. Default: PLAINTEXT; one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL.
    """
    send_buffer_bytes: int
    """Size of the socket's send buffer; -1 leaves it to the system. Default: 131072; an integer
    from -1 to 2147483647.
    """
    socket_connection_setup_timeout_max_ms: int
    """Upper limit of the time to open a connection. Default: 30000; an integer from 0 to
    9223372036854775807.
    """
    socket_connection_setup_timeout_ms: int
    """Maximum time to open a connection; doubles each time. Default: 10000; an integer from 0 to
    9223372036854775807.
    """
    socket_keepalive_enable: bool
    """True lets the system check idle connections (TCP keep-alive). Java always does and has no
    such setting; librdkafka's default is false. Default: true; true or false.
    """
    ssl_cipher_suites: str | Sequence[str]
    """Cipher suites that may be used, by their standard or OpenSSL names; empty means OpenSSL's
    defaults. Before Python 3.15, give all suites of TLS 1.3 or none. Default: empty; a list
    of names.
    """
    ssl_context: SSLContext | None
    """A complete ssl.SSLContext, used instead of the other ssl settings. Default: None; an
    ssl.SSLContext, or None.
    """
    ssl_crl_location: str | PathLike[str] | None
    """File with the list of revoked certificates, in PEM. Java has no such setting, librdkafka
    has. Default: None; a file's path, or None.
    """
    ssl_enabled_protocols: str | Sequence[str]
    """Versions of TLS that may be used. Default: TLSv1.2,TLSv1.3; some of TLSv1.2, TLSv1.3."""
    ssl_endpoint_identification_algorithm: str | bool
    """https: a broker's certificate must be for the name or address that the client connects to.
    Empty: any host's certificate is accepted, so its owner can impersonate the broker.
    Default: https; https, or empty for none.
    """
    ssl_key_location: str | PathLike[str] | None
    """File with the client's key in PEM, if it is not in ssl_keystore_location. Default: None; a
    file's path, or None.
    """
    ssl_key_password: str | None
    """Password of an encrypted key. Default: None; a string, or None."""
    ssl_keystore_certificate_chain: str | None
    """The client's certificate and its chain, in PEM. Default: None; a string that is not empty,
    or None.
    """
    ssl_keystore_key: str | None
    """The client's key, in PEM. Default: None; a string, or None."""
    ssl_keystore_location: str | PathLike[str] | None
    """File with the client's certificate, its chain and its key, for brokers that require one:
    PEM, PKCS#12 or JKS. Default: None; a file's path, or None.
    """
    ssl_keystore_password: str | None
    """Password of a keystore in PKCS#12 or JKS. Default: None; a string, or None."""
    ssl_keystore_type: Literal["PEM", "PKCS12", "JKS"]
    """Format of ssl_keystore_location, like ssl_truststore_type. Default: JKS; one of PEM,
    PKCS12, JKS.
    """
    ssl_protocol: Literal["TLSv1.3", "TLS", "TLSv1.2"]
    """TLSv1.2 excludes TLSv1.3, even if it is in ssl_enabled_protocols; the other values leave
    the choice to ssl_enabled_protocols. TLS is the same as TLSv1.3. Default: TLSv1.3; one of
    TLSv1.3, TLS, TLSv1.2.
    """
    ssl_truststore_certificates: str | None
    """Certificates of the authorities to trust, in PEM. Default: None; a string that is not
    empty, or None.
    """
    ssl_truststore_location: str | PathLike[str] | None
    """File with the authorities to trust for brokers' certificates, in PEM, PKCS#12 or JKS; None
    means the system's, as does librdkafka's value probe. Default: None; a file's path, or
    None.
    """
    ssl_truststore_password: str | None
    """Password of a truststore in PKCS#12 or JKS. Default: None; a string, or None."""
    ssl_truststore_type: Literal["PEM", "PKCS12", "JKS"]
    """Format of ssl_truststore_location. With JKS, Java's default, it is detected. Default: JKS;
    one of PEM, PKCS12, JKS.
    """


class AdminSettings(ClientSettings, total=False):
    """Keywords of `Admin`. Times are milliseconds, sizes bytes."""

    connections_max_idle_ms: int
    """Idle connections are closed after this time; -1 for never. Default: 300000; an integer
    from -1 to 9223372036854775807.
    """
    default_api_timeout_ms: int
    """Maximum time of a call without a timeout argument. Default: 60000; an integer from 0 to
    2147483647.
    """
    receive_buffer_bytes: int
    """Size of the socket's receive buffer; -1 leaves it to the system. Default: 65536; an
    integer from -1 to 2147483647.
    """
    retries: int
    """Maximum retries of a request, within the call's timeout. Default: 2147483647; an integer
    from 0 to 2147483647.
    """


class ConsumerSettings(ClientSettings, Generic[K, V], total=False):
    """Keywords of `Consumer`. Times are milliseconds, sizes bytes."""

    allow_auto_create_topics: bool
    """Allow brokers to create a requested topic, if auto.create.topics.enable is set there.
    Default: true; true or false.
    """
    auto_commit_interval_ms: int
    """Interval of automatic commits. Default: 5000; an integer from 0 to 2147483647."""
    auto_offset_reset: str
    """Start of a partition that has no position, or whose position is out of range: the end, the
    beginning, the first record not older than a duration (KIP-1106), or nowhere (none raises
    an error). Default: latest; one of latest, earliest, none, or by_duration: with a duration
    such as PT12H.
    """
    check_crcs: bool
    """Check the checksum of every batch. Default: true; true or false."""
    client_rack: str
    """Rack of this client, for reading from the closest replica (KIP-392). Default: empty; a
    string.
    """
    connections_max_idle_ms: int
    """Idle connections are closed after this time; -1 for never. Default: 540000; an integer
    from -1 to 9223372036854775807.
    """
    consumer_timeout_ms: int | None
    """Iteration ends if no record comes for this long; None for never. Default: None; an integer
    from 0 to 9223372036854775807, or None.
    """
    decompressed_max_bytes: int
    """Maximum size of a decompressed batch; a larger one counts as corrupt. Default: 67108864;
    an integer from 1024 to 2147483647.
    """
    default_api_timeout_ms: int
    """Maximum time of a call without a timeout of its own. Default: 60000; an integer from 0 to
    2147483647.
    """
    enable_auto_commit: bool
    """Commit the offsets of processed records every auto_commit_interval_ms, and before
    partitions are revoked. Without group_id nothing is committed. Default: true; true or
    false.
    """
    enable_auto_offset_store: bool
    """Records count as processed when the next poll begins. If false, commits go up to the first
    record that was not passed to Consumer.store_offset. From that record on, the offsets of
    returned records and a byte per record are kept in memory. Default: true; true or false.
    """
    exclude_internal_topics: bool
    """Exclude Kafka's internal topics from a pattern that the client matches; brokers may match
    them. Default: true; true or false.
    """
    fetch_max_bytes: int
    """Maximum amount of data requested from all brokers together; each gets a share. A first
    batch that is larger is returned whole. Default: 52428800; an integer from 0 to
    2147483647.
    """
    fetch_max_wait_ms: int
    """Maximum time that a broker waits for fetch_min_bytes. Less than request_timeout_ms: the
    default is lowered to half of that. Default: 500; an integer from 0 to 2147483647.
    """
    fetch_min_bytes: int
    """Amount of data for which a broker waits before it answers a fetch. Default: 1; an integer
    from 0 to 2147483647.
    """
    fetch_order: Literal["fair", "lag"]
    """Order of partitions if a fetch has no room for all: fair takes turns; lag prefers the
    partitions with the largest lag, without fetch sessions, in which brokers choose the
    order. Default: fair; one of fair, lag.
    """
    group_id: str | None
    """The consumer group, which shares partitions between its members and commits offsets.
    Default: None; a name that is not empty.
    """
    group_instance_id: str | None
    """Makes this a static member (KIP-345), which keeps its partitions over a restart shorter
    than session_timeout_ms. Default: None; 1 to 249 letters, digits, dots, underscores and
    hyphens.
    """
    group_protocol: Literal["classic", "consumer", "auto"]
    """Group protocol: classic (a member assigns partitions), consumer (the coordinator assigns
    them; KIP-848, Kafka 4.0 and newer), or auto (consumer if the coordinator supports it,
    otherwise classic). Default: classic; one of classic, consumer, auto.
    """
    group_remote_assignor: str
    """The coordinator's assignor, uniform or range, with group_protocol consumer or auto; empty
    lets the group choose. Default: empty; a string.
    """
    heartbeat_interval_ms: int
    """Interval of heartbeats; less than session_timeout_ms, usually a third of it. Default:
    3000; an integer from 0 to 2147483647.
    """
    interceptors: str | Sequence[object]
    """Objects called for records before the application gets them. Default: empty; a list, each
    an object, a class, a callable or 'package.module:Name'.
    """
    isolation_level: Literal["read_uncommitted", "read_committed"]
    """Visibility of open and aborted transactions: read_uncommitted returns their records too,
    read_committed only those of committed ones (KIP-98). Default: read_uncommitted; one of
    read_uncommitted, read_committed.
    """
    key_deserializer: DeserializerSetting[K] | None
    """Turns bytes into keys; without one, keys are bytes. Default: None; an object, a class, a
    callable or 'package.module:Name', or org.apache.kafka.common.serialization.*Deserializer.
    """
    max_partition_fetch_bytes: int
    """Maximum amount of data per partition in a Fetch response. A first batch that is larger is
    returned whole. Default: 1048576; an integer from 0 to 2147483647.
    """
    max_poll_interval_ms: int
    """A member that does not poll for this long leaves the group, which rebalances. Default:
    300000; an integer from 1 to 2147483647.
    """
    max_poll_records: int
    """Maximum number of records that one poll returns. Default: 500; an integer from 1 to
    2147483647.
    """
    on_record_error: OnRecordError
    """Handling of a record that cannot be read: raise stops there, skip continues after it, and
    a function is called with the error (which has the raw bytes); if it returns, the record
    is skipped. Default: raise; raise, skip, a function or 'package.module:name'.
    """
    on_stall: Literal["raise", "log"]
    """Handling of an empty poll while a retriable problem lasts (brokers or a coordinator are
    unreachable, no leader, an unknown topic): raise the error, suitable for scripts, or log
    it and continue, suitable for services and the same as Java. Default: raise; one of raise,
    log.
    """
    partition_assignment_strategy: str | Sequence[object]
    """Assignors that the group's leader may use, in order of preference: range, roundrobin,
    sticky, cooperative-sticky, fewest-brokers, or a custom one. Default: org.apache.kafka.cli
    ents.consumer.RangeAssignor,org.apache.kafka.clients.consumer.CooperativeStickyAssignor; a
    list of range, roundrobin, sticky, cooperative-sticky, fewest-brokers, or custom assignors
    (a list, each an object, a class, a callable or 'package.module:Name').
    """
    receive_buffer_bytes: int
    """Size of the socket's receive buffer; -1 leaves it to the system. Default: 65536; an
    integer from -1 to 2147483647.
    """
    session_timeout_ms: int
    """A member that sends no heartbeat for this long is removed. Default: 45000; an integer from
    0 to 2147483647.
    """
    value_deserializer: DeserializerSetting[V] | None
    """Turns bytes into values; without one, values are bytes. Default: None; an object, a class,
    a callable or 'package.module:Name', or
    org.apache.kafka.common.serialization.*Deserializer.
    """


class ProducerSettings(ClientSettings, Generic[K, V], total=False):
    """Keywords of `Producer`. Times are milliseconds, sizes bytes."""

    acks: Literal["all", "-1", "0", "1", -1, 0, 1]
    """Replicas that must have a record before it counts as sent: all in-sync replicas (all, -1),
    the leader (1), none (0). Default: all; one of all, -1, 0, 1.
    """
    batch_size: int
    """Size at which a batch of one partition is sent, before compression. Java fills batches to
    the size that it expects after compression: for batches as large as Java's, raise it by
    the compression ratio. Default: 16384; an integer from 0 to 2147483647.
    """
    buffer_memory: int
    """Memory for records that are not delivered yet. Default: 33554432; an integer from 0 to
    9223372036854775807.
    """
    client_rack: str
    """Rack of this client, for partitioner.rack.aware (KIP-1123). Default: empty; a string."""
    compression_gzip_level: int
    """gzip level; -1 is the codec's default (KIP-390). Default: -1; an integer from 1 to 9, or
    -1.
    """
    compression_lz4_level: int
    """lz4 level (KIP-390). Default: 9; an integer from 1 to 17."""
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    """Compression codec of batches. zstd needs Kafka 2.1 (KIP-110). Default: none; one of none,
    gzip, snappy, lz4, zstd.
    """
    compression_zstd_level: int
    """zstd level (KIP-390). Default: 3; an integer from -131072 to 22."""
    connections_max_idle_ms: int
    """Idle connections are closed after this time; -1 for never. Default: 540000; an integer
    from -1 to 9223372036854775807.
    """
    delivery_timeout_ms: int
    """Maximum time from send to success or failure. At least linger_ms + request_timeout_ms: the
    default is raised to that. Default: 120000; an integer from 0 to 2147483647.
    """
    enable_idempotence: bool
    """Retries neither duplicate nor reorder records (KIP-98). Needs acks=all, retries and at
    most 5 requests in flight; if it was not set explicitly, a setting that excludes it turns
    it off. After an unclean leader election, records that may be in the log fail instead of
    being duplicated. Default: true; true or false.
    """
    interceptors: str | Sequence[object]
    """Objects called for every record and its result. Default: empty; a list, each an object, a
    class, a callable or 'package.module:Name'.
    """
    key_serializer: SerializerSetting[K] | None
    """Turns keys into bytes; without one, keys are bytes. Default: None; an object, a class, a
    callable or 'package.module:Name', or org.apache.kafka.common.serialization.*Serializer.
    """
    linger_ms: int
    """Time that a batch waits for more records before it is sent. Default: 5; an integer from 0
    to 9223372036854775807.
    """
    max_block_ms: int
    """Maximum time that send waits for memory or metadata. Default: 60000; an integer from 0 to
    9223372036854775807.
    """
    max_in_flight_requests_per_connection: int
    """Maximum number of requests in flight per connection. Default: 5; an integer from 1 to
    2147483647.
    """
    max_request_size: int
    """Maximum size of a request, and of a record before compression. Default: 1048576; an
    integer from 0 to 2147483647.
    """
    metadata_max_idle_ms: int
    """Time after which an unused topic is forgotten. Default: 300000; an integer from 5000 to
    9223372036854775807.
    """
    partitioner: object
    """Chooses the partition of a record that names none. The default is murmur2_random: the
    key's hash as in Java; without a key, one partition after the other is filled.
    consistent_random (librdkafka's default) hashes by CRC32, fnv1a_random by FNV-1a. Without
    _random, records without a key all go to the partition of an empty key. round_robin and
    random choose for each record, whatever its key, which makes small batches. Default: None;
    one of murmur2_random, murmur2, consistent_random, consistent, fnv1a_random, fnv1a,
    random, round_robin, or an object, a class, a callable or 'package.module:Name'.
    """
    partitioner_adaptive_partitioning_enable: bool
    """Send more of the records without keys to faster brokers (KIP-794). Default: true; true or
    false.
    """
    partitioner_availability_timeout_ms: int
    """Avoid partitions whose broker has accepted nothing for this long; 0 for never. No effect
    unless partitioner.adaptive.partitioning.enable is true (KIP-794). Default: 0; an integer
    from 0 to 9223372036854775807.
    """
    partitioner_ignore_keys: bool
    """Distribute records with keys as if they had none. Default: false; true or false."""
    partitioner_rack_aware: bool
    """Send records without keys to partitions whose leader is in client.rack, if there are any
    that accept records (KIP-1123). Needs client.rack; no effect with a custom partitioner.
    Default: false; true or false.
    """
    receive_buffer_bytes: int
    """Size of the socket's receive buffer; -1 leaves it to the system. Default: 32768; an
    integer from -1 to 2147483647.
    """
    retries: int
    """Maximum retries of a batch, within delivery_timeout_ms. Default: 2147483647; an integer
    from 0 to 2147483647.
    """
    topic_settings: Mapping[str, Mapping[str, object]]
    """Settings for single topics, by topic name: compression.type, its levels, and linger.ms.
    Default: empty; a dictionary of topics, each with a dictionary such as
    {'compression.type': 'zstd'}.
    """
    transaction_timeout_ms: int
    """Time after which the coordinator aborts an open transaction and fences the producer. At
    most transaction.max.timeout.ms of the brokers. Default: 60000; an integer from 0 to
    2147483647.
    """
    transaction_two_phase_commit_enable: bool
    """Transactions do not time out (KIP-939): a transaction that prepare_transaction returned
    stays open until it is ended. Excludes transaction.timeout.ms. Needs Kafka 4.3 with
    unstable.api.versions.enable=true and transaction.two.phase.commit.enable=true. Default:
    false; true or false.
    """
    transactional_id: str | None
    """Makes the producer transactional (KIP-98): with commit_transaction, readers with
    isolation.level=read_committed see all records and offsets of a transaction, else none.
    Each running producer needs its own id: init_transactions fences an older producer with
    the same id. Needs idempotence. Default: None; a string, or None.
    """
    value_serializer: SerializerSetting[V] | None
    """Turns values into bytes; without one, values are bytes. Default: None; an object, a class,
    a callable or 'package.module:Name', or org.apache.kafka.common.serialization.*Serializer.
    """
