"""Real Kafka clusters for tests and demos, to start, break and repair.

By default a cluster runs on this machine from Kafka's jars; with
``PYKCLIENT_KAFKA_PROVIDER=docker`` its servers are containers. If ``PYKCLIENT_BOOTSTRAP_SERVERS``
names an existing cluster, that one is used, and nothing that would change it is allowed.

The cluster is ready when the constructor returns. Its processes, ports and files are gone after
`close`, or when this process ends for any reason.

Owner: the thread that created it; `bootstrap_servers`, `version` and `leader` are thread-safe.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Literal

from pykclient.admin.config import AdminConfig
from pykclient.config.unknown_keys import did_you_mean
from pykclient.errors.base import (
    ClosedError,
    ConfigError,
    ConnectionFailedError,
    KafkaTimeoutError,
    UsageError,
)
from pykclient.testing.clock import Deadline
from pykclient.testing.cluster.acls import create_acls
from pykclient.testing.cluster.jars import KAFKA_VERSIONS
from pykclient.testing.cluster.probe import (
    RESPONSE_TIMEOUT_S_MAX,
    fetch_metadata,
    response_timeout_s,
)
from pykclient.testing.cluster.processes import BrokerState
from pykclient.testing.cluster.properties import CONTROLLER_ID, PLAINTEXT
from pykclient.testing.cluster.security import (
    ClientSettings,
    ClusterSecurity,
    replace_certificate,
)
from pykclient.testing.port import Address
from pykclient.testing.serving import Closing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pykclient.protocol.messages.metadata import MetadataResponseTopic
    from pykclient.testing.cluster.acls import Acl
    from pykclient.testing.cluster.certificates import Certificate, CertificateAuthority
    from pykclient.testing.cluster.docker import DockerCluster
    from pykclient.testing.cluster.local import LocalCluster
    from pykclient.testing.cluster.properties import PropertyValue
    from pykclient.testing.cluster.servers import ClusterServers, Server
    from pykclient.testing.proxy.proxy import FaultProxy

BOOTSTRAP_VARIABLE = "PYKCLIENT_BOOTSTRAP_SERVERS"
PROVIDER_VARIABLE = "PYKCLIENT_KAFKA_PROVIDER"
PROVIDERS = ("jars", "docker")
BROKER_COUNT_MAX = CONTROLLER_ID - 1
ASK_PAUSE_S = 0.05


class KafkaCluster(Closing):
    """A Kafka cluster of `brokers` brokers, numbered from 1; a context manager.

    `version` is Kafka's, 3.9.0 or newer; 4.4.0, 4.3.1 and 3.9.2 are tested. `config` has broker
    settings under Kafka's dotted names, which override those that the cluster chooses;
    ``${node.id}`` in a value is replaced by the broker's number. The cluster must be ready within
    `start_timeout` seconds, not counting the download of the jars. A single broker is its own
    controller. With several, the controller is a separate process that is never killed, so that
    any number of brokers may be down.

    With `proxied`, clients reach each broker through a fault proxy, `proxy(1)` and so on, which
    breaks their connections on command. Traffic between brokers bypasses it. A proxy refuses
    connections while its broker is stopped or killed by this object.

    With `security`, clients connect to listeners with TLS or SASL; `client_settings` returns the
    settings for one of them.

    If the environment has ``PYKCLIENT_BOOTSTRAP_SERVERS``, this is the cluster found there, which
    must have at least `brokers` brokers. `config` must then be empty, `proxied` and `security` are
    refused, and `version` is not checked.

    Raises:
        ConfigError: an argument or an environment variable is invalid.
        MissingPrerequisiteError: there is no Java, or the jars cannot be downloaded; with Docker,
            there is no engine or no testcontainers; with `security`, no trustme. The message tells
            how to install it.
        BrokerFailedError: a broker ended while starting; the message has the tail of its log.
        KafkaTimeoutError: the cluster was not ready in time.
        UsageError: the existing cluster is too small, or cannot have the given `config`,
            `security` or `proxied`; or the cluster in containers was given `security`.
        ConnectionFailedError: the existing cluster does not respond.
    """

    def __init__(
        self,
        brokers: int = 1,
        version: str = KAFKA_VERSIONS[0],
        config: Mapping[str, PropertyValue] | None = None,
        *,
        proxied: bool = False,
        security: ClusterSecurity | None = None,
        start_timeout: float = 90.0,
    ) -> None:
        if not 1 <= brokers <= BROKER_COUNT_MAX:
            raise ConfigError(f"brokers is {brokers}; give a number from 1 to {BROKER_COUNT_MAX}")
        self._version = version
        self._closed = False
        self._own: ClusterServers | None = None
        self._security = security
        self._client_settings: ClientSettings | None = None
        self._addresses: list[Address]
        existing = os.environ.get(BOOTSTRAP_VARIABLE)
        if existing:
            self._addresses = _existing_addresses(existing)
            if proxied:
                raise UsageError(
                    f"{BOOTSTRAP_VARIABLE} names an existing cluster, which advertises "
                    "addresses without proxies; unset it to start a cluster here"
                )
            if security is not None:
                raise UsageError(
                    f"{BOOTSTRAP_VARIABLE} names an existing cluster, whose listeners "
                    "cannot be changed; unset it to start a secured cluster here"
                )
            _check_existing(self._addresses, brokers, config or {})
        else:
            self._own = _provider()(
                brokers,
                version,
                config or {},
                proxied=proxied,
                security=security,
                timeout=start_timeout,
            )
            first = PLAINTEXT if security is None else security.listener(None).name
            self._addresses = self._listener_addresses(self._own, first)

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all brokers, up or down, for clients: ``host:port,host:port``.

        With `security`, those of the first listener.
        """
        return ",".join(map(str, self._addresses))

    @property
    def version(self) -> str:
        """Kafka's version, as given to the constructor; see `upgrade`."""
        return self._version

    @property
    def certificates(self) -> CertificateAuthority:
        """The authority that signed the brokers' certificates; tests can sign others with it.

        Raises:
            UsageError: the cluster has no `security`, or is an existing one.
            ClosedError: the cluster was closed.
        """
        return self._secured()[2]

    def client_settings(
        self,
        listener: str | None = None,
        *,
        mechanism: str | None = None,
        user: str | None = None,
        password: str | None = None,
    ) -> dict[str, str]:
        """Return a client's settings for a listener, None for the first: Kafka's names and values.

        The names are those of Java's client, with underscores instead of dots. The defaults are the
        first mechanism and the first user. Give `password` if it differs from the one in
        `security`. On a listener without SASL, `user` is the common name of the client's
        certificate, which MTLS always has.

        Raises:
            UsageError: the listener, mechanism or user does not exist, or does not apply to this
                listener; the cluster has no `security`, or is an existing one.
            ClosedError: the cluster was closed.
        """
        own, security, authority = self._secured()
        found = security.listener(listener)
        addresses = self._listener_addresses(own, found.name)
        if self._client_settings is None:
            self._client_settings = ClientSettings(security, authority)
        return self._client_settings.of(
            found, addresses, mechanism=mechanism, user=user, password=password
        )

    def create_acls(self, *acls: Acl, timeout: float = 30.0) -> None:
        """Create ACLs, and wait until all running brokers have them.

        Raises:
            UsageError: the cluster has no authorizer (give `security` with `acls`), or is an
                existing one.
            BrokerError: the broker refused one.
            KafkaTimeoutError: a broker did not have them within `timeout` seconds.
            ClosedError: the cluster was closed.
        """
        own, security, _ = self._secured()
        if security.acls is None:
            raise UsageError(
                "this cluster has no authorizer; make it with ClusterSecurity(acls=()), or with "
                "the first ACLs"
            )
        addresses = [own.address(node_id) for node_id in own.running()]
        create_acls(addresses, acls, Deadline(timeout))

    def replace_certificate(
        self, listener: str, certificate: Certificate, *, timeout: float = 30.0
    ) -> None:
        """Replace the certificate that all running brokers present on a listener.

        The change is complete when this returns. The key must not be encrypted. A file with the
        name of the current one is read again.

        Raises:
            UsageError: the listener does not exist, or has no TLS; the cluster has no `security`,
                or is an existing one.
            BrokerError: a broker refused the certificate.
            KafkaTimeoutError: a broker did not present it within `timeout` seconds.
            ClosedError: the cluster was closed.
        """
        own, security, _ = self._secured()
        found = security.listener(listener)
        if not found.has_tls:
            raise UsageError(f"listener {found.name} has protocol {found.protocol}, without TLS")
        deadline = Deadline(timeout)
        for node_id in own.running():
            addresses = own.address(node_id), own.client_address(node_id, found.name)
            replace_certificate(
                node_id, addresses, listener=found, certificate=certificate, deadline=deadline
            )

    def kill(self, broker: int) -> None:
        """Kill a running or paused broker with SIGKILL, and wait until it is gone.

        The others notice when its session expires (``broker.session.timeout.ms``, 9 s).

        Raises:
            UsageError: it is stopped, does not exist, or the cluster is an existing one.
            ClosedError: the cluster was closed.
        """
        self._broker(broker).kill()
        self._shut_proxy(broker)

    def pause(self, broker: int) -> None:
        """Pause a broker with SIGSTOP: it keeps its connections and sends nothing.

        Raises:
            UsageError: it is not running, does not exist, or the cluster is an existing one.
            ClosedError: the cluster was closed.
        """
        self._broker(broker).pause()

    def resume(self, broker: int) -> None:
        """Resume a paused broker with SIGCONT; to the broker no time has passed.

        Raises:
            UsageError: it is not paused, does not exist, or the cluster is an existing one.
            ClosedError: the cluster was closed.
        """
        self._broker(broker).resume()

    def stop(self, broker: int, *, timeout: float = 30.0) -> None:
        """Stop a broker cleanly with SIGTERM, so that it first moves its leaderships.

        Raises:
            UsageError: it is not running, does not exist, or the cluster is an existing one.
            KafkaTimeoutError: it did not end within `timeout` seconds, and was killed.
            ClosedError: the cluster was closed.
        """
        process = self._broker(broker)
        try:
            process.stop(timeout)
        finally:
            if process.state is BrokerState.STOPPED:
                self._shut_proxy(broker)

    def start(self, broker: int, *, timeout: float = 90.0) -> None:
        """Start a stopped or killed broker with its port and data, and wait until it is ready.

        Kafka admits a broker only after its former session has expired, up to 9 s later
        (``broker.session.timeout.ms``); in Kafka 4.3 also after a clean stop.

        Raises:
            UsageError: it is not stopped, does not exist, or the cluster is an existing one.
            BrokerFailedError: it ended again; the message has the tail of its log.
            KafkaTimeoutError: it was not ready within `timeout` seconds.
            ClosedError: the cluster was closed.
        """
        self._broker(broker)
        self._own_cluster().start(broker, timeout)
        self._open_proxy(broker)

    def upgrade(
        self, server: int | Literal["controller"], version: str, *, timeout: float = 90.0
    ) -> None:
        """Restart a broker, or the separate controller, with another Kafka version.

        It is stopped cleanly, and is ready when this returns. Its data stays, and so do the levels
        of the cluster's features, so that servers of both versions work together; an older version
        starts again only while it supports these levels. Upgrade one server after the other.

        Raises:
            UsageError: it is not running, does not exist, or is a container; the only broker is
                its own controller; the cluster is an existing one.
            ConfigError: the version is invalid.
            MissingPrerequisiteError: the jars cannot be downloaded.
            BrokerFailedError: it ended again; the message has the tail of its log.
            KafkaTimeoutError: it did not stop, or was not ready, within `timeout` seconds.
            ClosedError: the cluster was closed.
        """
        own = self._own_cluster()
        if server == "controller":
            if not own.has_own_controller:
                raise UsageError("broker 1 is its own controller: upgrade broker 1")
            server = CONTROLLER_ID
        else:
            self._broker(server)
        own.install(server, version)
        own.stop(server, timeout)
        self._shut_proxy(server)
        own.start(server, timeout)
        self._open_proxy(server)

    def wait_until_ready(self, *, timeout: float = 90.0) -> None:
        """Wait until all running brokers list each other, for example after `resume`.

        The controller fences a broker that was paused for longer than
        ``broker.session.timeout.ms``, and unfences it when it has caught up.

        Raises:
            UsageError: the cluster is an existing one.
            BrokerFailedError: a broker ended; the message has the tail of its log.
            KafkaTimeoutError: they were not ready within `timeout` seconds.
            ClosedError: the cluster was closed.
        """
        self._own_cluster().wait_until_all_ready(Deadline(timeout))

    def proxy(self, broker: int, listener: str | None = None) -> FaultProxy:
        """Return the fault proxy in front of a broker's listener, None for the first listener.

        Raises:
            UsageError: the cluster is not `proxied` or is an existing one, or the broker or
                listener does not exist.
            ClosedError: the cluster was closed.
        """
        self._broker(broker)
        proxies = self._own_cluster().proxies
        if not proxies:
            raise UsageError("this cluster has no proxies; make it with KafkaCluster(proxied=True)")
        security = self._security or ClusterSecurity(listeners=(PLAINTEXT,))
        return proxies[broker][security.listener(listener).name]

    def data_folder(self, broker: int) -> Path:
        """Return the folder with a broker's partitions, one folder each: ``<topic>-<number>``.

        Raises:
            UsageError: the broker does not exist, or the cluster is an existing one or in
                containers.
            ClosedError: the cluster was closed.
        """
        self._broker(broker)
        return self._own_cluster().data_folder(broker)

    def leader(self, topic: str, partition: int, *, timeout: float = 30.0) -> int:
        """Return the leader of a partition, as a running broker sees it.

        Waits while the topic is unknown, the partition has no leader, or the leader was killed or
        stopped here. A paused broker stays the leader until its session expires.

        Raises:
            KafkaTimeoutError: there was none within `timeout` seconds; the message tells why.
            ClosedError: the cluster was closed.
        """
        deadline = Deadline(timeout)
        while True:
            leader_id, reason = self._find_leader(topic, partition, deadline)
            if leader_id is not None:
                return leader_id
            if deadline.has_passed():
                raise KafkaTimeoutError(
                    f"{topic}-{partition} had no leader within {deadline.timeout_ms} ms: {reason}"
                )
            time.sleep(ASK_PAUSE_S)

    def close(self) -> None:
        """Kill all brokers and remove their files, within 15 s. Idempotent.

        An existing cluster is left alone.
        """
        self._closed = True
        if self._own is not None:
            self._own.close()

    def _own_cluster(self) -> ClusterServers:
        if self._closed:
            raise ClosedError("the cluster was closed; make a new KafkaCluster")
        if self._own is None:
            raise UsageError(
                f"{BOOTSTRAP_VARIABLE} names an existing cluster, whose brokers must not be "
                "changed; unset it to start a cluster here"
            )
        return self._own

    def _secured(self) -> tuple[ClusterServers, ClusterSecurity, CertificateAuthority]:
        """Return the servers, security and authority of a secured cluster. Raises `UsageError`."""
        own = self._own_cluster()
        if self._security is None or own.certificates is None:
            raise UsageError(
                "this cluster is not secured; make it with KafkaCluster(security=ClusterSecurity())"
            )
        return own, self._security, own.certificates

    def _broker(self, broker: int) -> Server:
        brokers = self._own_cluster().brokers
        if broker not in brokers:
            raise UsageError(f"there is no broker {broker}; there are 1 to {len(brokers)}")
        return brokers[broker]

    def _shut_proxy(self, broker: int) -> None:
        """Make a broker's proxies refuse connections while the broker is down."""
        for proxy in self._own_cluster().proxies.get(broker, {}).values():
            proxy.refuse_connections()

    def _open_proxy(self, broker: int) -> None:
        """Make a broker's proxies accept connections again."""
        for proxy in self._own_cluster().proxies.get(broker, {}).values():
            proxy.accept_connections()

    @staticmethod
    def _listener_addresses(own: ClusterServers, listener: str) -> list[Address]:
        return [own.client_address(node_id, listener) for node_id in own.brokers]

    def _find_leader(
        self, topic: str, partition: int, deadline: Deadline
    ) -> tuple[int | None, str]:
        """Return the leader, or None and the reason."""
        reason = "no broker is running"
        for address in self._running_addresses():
            try:
                response = fetch_metadata(address, [topic], timeout=response_timeout_s(deadline))
            except ConnectionFailedError as error:
                reason = str(error)
                continue
            leader_id, reason = _leader_in(response.topics[0], partition)
            if leader_id is not None and not self._is_stopped(leader_id):
                return leader_id, ""
            if leader_id is not None:
                reason = f"its leader is still broker {leader_id}, which is down"
        return None, reason

    def _running_addresses(self) -> list[Address]:
        if self._closed:
            raise ClosedError("the cluster was closed; make a new KafkaCluster")
        if self._own is None:
            return self._addresses
        return [self._own.address(node_id) for node_id in self._own.running()]

    def _is_stopped(self, node_id: int) -> bool:
        return self._own is not None and self._own.brokers[node_id].state is BrokerState.STOPPED


def _leader_in(topic: MetadataResponseTopic, partition: int) -> tuple[int | None, str]:
    """Return the leader in a response, or None and the reason."""
    if topic.error_code:
        return None, f"the broker returned error code {topic.error_code} for the topic"
    for found in topic.partitions:
        if found.partition_index == partition:
            if found.leader_id >= 0:
                return found.leader_id, ""
            return None, f"the broker returned error code {found.error_code} for the partition"
    return None, f"the topic has {len(topic.partitions)} partitions"


def _provider() -> type[DockerCluster] | type[LocalCluster]:
    """Return the provider named in the environment, importing only that one."""
    name = os.environ.get(PROVIDER_VARIABLE) or PROVIDERS[0]
    if name == "docker":
        from pykclient.testing.cluster.docker import DockerCluster

        return DockerCluster
    if name == "jars":
        from pykclient.testing.cluster.local import LocalCluster

        return LocalCluster
    raise ConfigError(
        f"{PROVIDER_VARIABLE} is {name!r}; it can be {' or '.join(PROVIDERS)}, and unset means "
        f"{PROVIDERS[0]}.{did_you_mean(name, PROVIDERS)}"
    )


def _existing_addresses(servers: str) -> list[Address]:
    try:
        config = AdminConfig.from_settings({"bootstrap.servers": servers})
    except ConfigError as error:
        raise ConfigError(f"{BOOTSTRAP_VARIABLE} cannot be used: {error}") from error
    return [Address(*address) for address in config.bootstrap_servers]


def _check_existing(
    addresses: Sequence[Address], broker_count: int, config: Mapping[str, PropertyValue]
) -> None:
    """Check that an address responds, as in a bootstrap list, and has enough brokers."""
    if config:
        raise UsageError(
            f"{BOOTSTRAP_VARIABLE} names an existing cluster, which cannot be given "
            f"the config {', '.join(config)}; unset it to start a cluster here"
        )
    failures = []
    for address in addresses:
        try:
            found = len(fetch_metadata(address, timeout=RESPONSE_TIMEOUT_S_MAX).brokers)
        except ConnectionFailedError as error:
            failures.append(str(error))
            continue
        if found < broker_count:
            raise UsageError(
                f"the cluster named in {BOOTSTRAP_VARIABLE} has {found} brokers, and "
                f"{broker_count} are needed; unset it to start a cluster here"
            )
        return
    raise ConnectionFailedError(
        f"{BOOTSTRAP_VARIABLE} names a cluster that does not respond: {'; '.join(failures)}"
    )
