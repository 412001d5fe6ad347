"""Servers of a Kafka cluster on this machine, from the jars.

The constructor starts them and returns when every broker responds and lists all others. Folder,
processes and ports are gone after `close`, or when this process dies.

Kafka's StorageTool formats one data folder. The others are copies that differ in the two ids that
tie a folder to its server; running the tool for each would start a JVM each time.

Owner: the thread that created it.
Source: ours; Kafka's ``kafka-server-start.sh`` starts the same class; Java class
``kafka.tools.StorageTool``; KIP-631 and KIP-858 (``meta.properties``).
"""

from __future__ import annotations

import re
import shutil
import subprocess
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from pykclient.errors.base import KafkaTimeoutError
from pykclient.testing.clock import Deadline
from pykclient.testing.cluster.acls import create_acls
from pykclient.testing.cluster.certificates import HOSTNAMES, CertificateAuthority, write_private
from pykclient.testing.cluster.jars import KafkaJars, kafka_jars
from pykclient.testing.cluster.java import find_java
from pykclient.testing.cluster.processes import BrokerFailedError, ProcessGroup, ServerProcess, tail
from pykclient.testing.cluster.properties import (
    CONTROLLER_ID,
    INTER_BROKER,
    PLAINTEXT,
    ClusterLayout,
    ListenerPorts,
    dump_properties,
    new_kafka_uuid,
)
from pykclient.testing.cluster.servers import ClusterServers
from pykclient.testing.port import LOOPBACK, Address, PortReservation
from pykclient.testing.proxy.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pykclient.testing.cluster.properties import PropertyValue
    from pykclient.testing.cluster.security import ClusterSecurity

META_PROPERTIES = "meta.properties"

_JVM_OPTIONS = (
    # Start quickly and use few resources on two cores: one collector thread, one compiler.
    *("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    # A killed JVM would leave performance data and unpacked native libraries in the system's
    # temporary folder: disable the first, and put the second into the cluster's folder.
    *("-XX:-UsePerfData", "-Djava.awt.headless=true", "-Djava.net.preferIPv4Stack=true"),
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss,SSS",
)


class LocalCluster(ClusterServers):
    """Brokers numbered from 1, each with its address, process and data folder.

    With `proxied`, `proxies` has a fault proxy for each listener of each broker. With `security`,
    `certificates` is set. `server_options` are options of the servers' JVMs.

    Raises:
        ConfigError: `config` has a setting that the cluster chooses, or the version is invalid.
        MissingPrerequisiteError: there is no Java, or the jars cannot be downloaded; with
            `security`, the package trustme is not installed.
        BrokerFailedError: a server did not start; the message has the tail of its log.
        KafkaTimeoutError: the brokers were not ready within `timeout` seconds, without downloads.
    """

    def __init__(
        self,
        broker_count: int,
        version: str,
        config: Mapping[str, PropertyValue],
        *,
        proxied: bool,
        security: ClusterSecurity | None,
        timeout: float,
        server_options: Sequence[str] = (),
    ) -> None:
        jars = kafka_jars(version)
        self._installed_java = find_java()
        deadline = Deadline(timeout)
        protocols = {PLAINTEXT: PLAINTEXT}
        if security is not None:
            protocols = {each.name: each.protocol for each in security.client_listeners}
        with ExitStack() as resources:
            self._controller_port = resources.enter_context(closing(PortReservation()))
            has_inter_broker = proxied or security is not None
            listeners = [*protocols, *((INTER_BROKER,) if has_inter_broker else ())]
            self._ports = {
                node_id: {
                    name: resources.enter_context(closing(PortReservation())) for name in listeners
                }
                for node_id in range(1, broker_count + 1)
            }
            self.proxies = {
                node_id: {
                    name: resources.enter_context(
                        FaultProxy((LOOPBACK, ports[name].port), seed=node_id)
                    )
                    for name in protocols
                }
                for node_id, ports in self._ports.items()
                if proxied
            }
            self._group = resources.enter_context(closing(ProcessGroup("pykclient-kafka")))
            self.certificates, secured = None, {}
            if security is not None:
                self.certificates = CertificateAuthority(self._group.folder)
                broker_certificate = self.certificates.issue("broker", hostnames=HOSTNAMES)
                secured = security.server_settings(broker_certificate.path, self.certificates.path)
            self._layout = ClusterLayout(
                self._listener_ports(), self._controller_port.port, config, protocols, secured
            )
            self._server_options = [*server_options, *(security.java_options() if security else ())]
            self._servers = self._processes = self._make_servers(jars)
            credentials = security.scram_credentials() if security is not None else []
            self._format(jars, credentials, deadline)
            for server in self._servers.values():
                server.start()
            for node_id in self._layout.broker_ports:
                self.wait_until_ready(node_id, deadline)
            if security is not None and security.acls:
                addresses = [self.address(node_id) for node_id in self.brokers]
                create_acls(addresses, security.acls, deadline)
            self._resources = resources.pop_all()

    def address(self, node_id: int) -> Address:
        """Return the plaintext address of broker `node_id`, up or down."""
        ports = self._layout.broker_ports[node_id]
        return Address(LOOPBACK, ports[INTER_BROKER if INTER_BROKER in ports else PLAINTEXT].bound)

    def client_address(self, node_id: int, listener: str) -> Address:
        """Return the address that broker `node_id` advertises: a proxy's, if it has one."""
        return Address(LOOPBACK, self._layout.broker_ports[node_id][listener].advertised)

    def data_folder(self, node_id: int) -> Path:
        """Return the folder of broker `node_id`'s partitions, each in its own folder."""
        return self._group.folder / f"data-{node_id}"

    def install(self, node_id: int, version: str) -> None:
        """Give a server the jars of a version for its next start."""
        self._processes[node_id].command = self._command(node_id, kafka_jars(version))

    def _java(self, jars: KafkaJars) -> list[str]:
        """Return a command that runs a class of these jars, without the class."""
        java = self._installed_java
        temporary = f"-Djava.io.tmpdir={self._group.folder}"
        return [str(java.executable), *_JVM_OPTIONS, temporary, *jars.java_options(java)]

    def _listener_ports(self) -> dict[int, dict[str, ListenerPorts]]:
        found: dict[int, dict[str, ListenerPorts]] = {}
        for node_id, ports in self._ports.items():
            proxies = self.proxies.get(node_id, {})
            found[node_id] = {
                name: ListenerPorts(
                    port.port, proxies[name].address.port if name in proxies else port.port
                )
                for name, port in ports.items()
            }
        return found

    def _make_servers(self, jars: KafkaJars) -> dict[int, ServerProcess]:
        """Write each server's properties; the controller comes first, because brokers need it."""
        settings = {
            node_id: self._layout.broker(node_id, self.data_folder(node_id))
            for node_id in self._layout.broker_ports
        }
        if self._layout.has_own_controller:
            folder = self.data_folder(CONTROLLER_ID)
            settings = {CONTROLLER_ID: self._layout.controller(folder), **settings}
        for node_id, properties in settings.items():
            write_private(self._properties_file(node_id), dump_properties(properties).encode())
        return {node_id: self._server(node_id, jars) for node_id in settings}

    def _server(self, node_id: int, jars: KafkaJars) -> ServerProcess:
        ports = [*self._ports.get(node_id, {}).values()]
        if not self._layout.has_own_controller or node_id == CONTROLLER_ID:
            ports.append(self._controller_port)
        return ServerProcess(
            "the controller" if node_id == CONTROLLER_ID else f"broker {node_id}",
            self._command(node_id, jars),
            log=self._group.folder / f"server-{node_id}.log",
            ports=ports,
            group=self._group,
        )

    def _command(self, node_id: int, jars: KafkaJars) -> list[str]:
        file = str(self._properties_file(node_id))
        return [*self._java(jars), *self._server_options, "kafka.Kafka", file]

    def _properties_file(self, node_id: int) -> Path:
        return self._group.folder / f"server-{node_id}.properties"

    def _format(
        self, jars: KafkaJars, scram_credentials: Sequence[str], deadline: Deadline
    ) -> None:
        first, *others = self._servers
        file = self._properties_file(first)
        options = [f"--add-scram={credential}" for credential in scram_credentials]
        format_storage(self._group, self._java(jars), file, deadline, *options)
        for node_id in others:
            copy_storage(self.data_folder(first), self.data_folder(node_id), node_id)


def format_storage(
    group: ProcessGroup,
    java: Sequence[str],
    properties: Path,
    deadline: Deadline,
    *options: str,
) -> None:
    """Format the folder named in a server's `properties`.

    `options` are additional ones of the tool, each ``--name=value``.

    Raises:
        BrokerFailedError: the tool failed, for example on a value in the properties.
        KafkaTimeoutError: it did not end in time.
    """
    # With `=`, because an id may begin with a dash.
    all_options = [f"--cluster-id={new_kafka_uuid()}", f"--config={properties}", *options]
    log = group.folder / "format.log"
    process = group.start([*java, "kafka.tools.StorageTool", "format", *all_options], log)
    try:
        status = process.wait(deadline.remaining_s())
    except subprocess.TimeoutExpired as error:
        raise KafkaTimeoutError(
            f"Kafka's StorageTool did not end within {deadline.timeout_ms} ms"
        ) from error
    if status != 0:
        raise BrokerFailedError(
            f"Kafka's StorageTool ended with status {status} and printed:\n{tail(log)}"
        )


def copy_storage(formatted: Path, target: Path, node_id: int) -> None:
    """Copy a formatted folder for another server of the same cluster.

    Raises:
        BrokerFailedError: the formatted folder is not as expected of this Kafka version.
    """
    shutil.copytree(formatted, target)
    meta = target / META_PROPERTIES
    text = meta.read_text()
    for name, value in (("node.id", str(node_id)), ("directory.id", new_kafka_uuid())):
        text, count = re.subn(rf"(?m)^{re.escape(name)}=.*$", f"{name}={value}", text)
        if count != 1:
            raise BrokerFailedError(f"{meta} has {count} settings {name}, not one:\n{text}")
    meta.write_text(text)
