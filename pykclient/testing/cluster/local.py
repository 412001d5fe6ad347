"""The servers of one Kafka cluster on this machine, from the jars.

They are started in the constructor, which returns when every broker responds and knows all the
others. Folder, processes and ports are gone after `close`, and also when this process dies before.

Kafka's own StorageTool formats one data folder. The others get copies that differ in the two ids by
which a server knows its folder for its own; running the tool for each would take a JVM each time.

Owner: the thread that made it.
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
from pykclient.testing.cluster.jars import kafka_jars
from pykclient.testing.cluster.java import find_java
from pykclient.testing.cluster.processes import BrokerFailedError, ProcessGroup, ServerProcess, tail
from pykclient.testing.cluster.properties import (
    CONTROLLER_ID,
    ClusterLayout,
    ProxyPorts,
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

META_PROPERTIES = "meta.properties"

_JVM_OPTIONS = (
    # Quick to start, and modest on a machine of two cores: one collector thread, one compiler.
    *("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    # A killed JVM would leave its performance data, and the native libraries that it unpacked, in
    # the system's temporary folder: there is none of the first, and the second go to the cluster's.
    *("-XX:-UsePerfData", "-Djava.awt.headless=true", "-Djava.net.preferIPv4Stack=true"),
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss,SSS",
)


class LocalCluster(ClusterServers):
    """Brokers numbered from 1, each with its address, process and data folder.

    With `proxied`, each has in `proxies` the fault proxy through which clients reach it.
    `server_options` are options of the servers' JVMs.

    Raises:
        ConfigError: a setting that the cluster chooses itself, or an unusable version.
        MissingPrerequisiteError: no Java, or no jars and no way to fetch them.
        BrokerFailedError: a server did not start; ends with the tail of its log.
        KafkaTimeoutError: the brokers were not ready within `timeout` seconds, fetching apart.
    """

    def __init__(
        self,
        broker_count: int,
        version: str,
        config: Mapping[str, PropertyValue],
        *,
        proxied: bool,
        timeout: float,
        server_options: Sequence[str] = (),
    ) -> None:
        jars = kafka_jars(version)
        java = find_java()
        deadline = Deadline(timeout)
        with ExitStack() as resources:
            self._ports = {
                node_id: resources.enter_context(closing(PortReservation()))
                for node_id in (*range(1, broker_count + 1), CONTROLLER_ID)
            }
            broker_ports = {id_: self._ports[id_].port for id_ in range(1, broker_count + 1)}
            proxies: dict[int, FaultProxy] = {}
            self.proxies = proxies
            self._inter_broker_ports: dict[int, PortReservation] = {}
            for node_id, port in broker_ports.items() if proxied else ():
                proxy = FaultProxy((LOOPBACK, port), seed=node_id)
                proxies[node_id] = resources.enter_context(proxy)
                reservation = resources.enter_context(closing(PortReservation()))
                self._inter_broker_ports[node_id] = reservation
            self._layout = ClusterLayout(
                broker_ports, self._ports[CONTROLLER_ID].port, config, self._proxy_ports()
            )
            self._group = resources.enter_context(closing(ProcessGroup("pykclient-kafka")))
            self._java = (
                *(str(java.executable), *_JVM_OPTIONS, f"-Djava.io.tmpdir={self._group.folder}"),
                *jars.java_options(java),
            )
            self._server_options = server_options
            self._servers = self._make_servers()
            self._format(deadline)
            for server in self._servers.values():
                server.start()
            for node_id in self._layout.broker_ports:
                self.wait_until_ready(node_id, deadline)
            self._resources = resources.pop_all()

    def address(self, node_id: int) -> Address:
        """Where broker `node_id` listens, whether or not it is up."""
        return Address(LOOPBACK, self._layout.broker_ports[node_id])

    def data_folder(self, node_id: int) -> Path:
        """Where broker `node_id` keeps its partitions, each in a folder of its own."""
        return self._group.folder / f"data-{node_id}"

    def _proxy_ports(self) -> dict[int, ProxyPorts]:
        return {
            node_id: ProxyPorts(proxy.address.port, self._inter_broker_ports[node_id].port)
            for node_id, proxy in self.proxies.items()
        }

    def _make_servers(self) -> dict[int, ServerProcess]:
        """Write each server's properties; the controller comes first, the brokers need it."""
        settings = {
            node_id: self._layout.broker(node_id, self.data_folder(node_id))
            for node_id in self._layout.broker_ports
        }
        if self._layout.has_own_controller:
            folder = self.data_folder(CONTROLLER_ID)
            settings = {CONTROLLER_ID: self._layout.controller(folder), **settings}
        for node_id, properties in settings.items():
            self._properties_file(node_id).write_text(dump_properties(properties))
        return {node_id: self._server(node_id) for node_id in settings}

    def _server(self, node_id: int) -> ServerProcess:
        ports = [self._ports[node_id]]
        if not self._layout.has_own_controller:
            ports.append(self._ports[CONTROLLER_ID])
        if node_id in self._inter_broker_ports:
            ports.append(self._inter_broker_ports[node_id])
        return ServerProcess(
            "the controller" if node_id == CONTROLLER_ID else f"broker {node_id}",
            [
                *self._java,
                *self._server_options,
                "kafka.Kafka",
                str(self._properties_file(node_id)),
            ],
            log=self._group.folder / f"server-{node_id}.log",
            ports=ports,
            group=self._group,
        )

    def _properties_file(self, node_id: int) -> Path:
        return self._group.folder / f"server-{node_id}.properties"

    def _format(self, deadline: Deadline) -> None:
        first, *others = self._servers
        format_storage(self._group, self._java, self._properties_file(first), deadline)
        for node_id in others:
            copy_storage(self.data_folder(first), self.data_folder(node_id), node_id)


def format_storage(
    group: ProcessGroup, java: Sequence[str], properties: Path, deadline: Deadline
) -> None:
    """Format the folder that the server with these `properties` will use.

    Raises:
        BrokerFailedError: the tool refused, for example a value in the properties; says what.
        KafkaTimeoutError: it did not end in time.
    """
    # With `=`, since an id may begin with a dash.
    options = [f"--cluster-id={new_kafka_uuid()}", f"--config={properties}"]
    log = group.folder / "format.log"
    process = group.start([*java, "kafka.tools.StorageTool", "format", *options], log)
    try:
        status = process.wait(deadline.remaining_s())
    except subprocess.TimeoutExpired as error:
        raise KafkaTimeoutError(
            f"Kafka's StorageTool did not end within {deadline.timeout_ms} ms"
        ) from error
    if status != 0:
        raise BrokerFailedError(
            f"Kafka's StorageTool ended with status {status} and said:\n{tail(log)}"
        )


def copy_storage(formatted: Path, target: Path, node_id: int) -> None:
    """Make `target` the formatted folder of another server of the same cluster.

    Raises:
        BrokerFailedError: the formatted folder is not as this version of Kafka should leave it.
    """
    shutil.copytree(formatted, target)
    meta = target / META_PROPERTIES
    text = meta.read_text()
    for name, value in (("node.id", str(node_id)), ("directory.id", new_kafka_uuid())):
        text, count = re.subn(rf"(?m)^{re.escape(name)}=.*$", f"{name}={value}", text)
        if count != 1:
            raise BrokerFailedError(f"{meta} has {count} settings {name}, not one:\n{text}")
    meta.write_text(text)
