"""A real broker takes the settings that containers are given.

There is no Docker engine here, so the broker is one of the jars, and what belongs to a container is
replaced: the names and ports in its network, and its folder.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from pykclient.testing.clock import Deadline
from pykclient.testing.cluster.docker import (
    CLIENT_PORT,
    CONTROLLER_PORT,
    DATA_FOLDER,
    INTER_BROKER_PORT,
    DockerLayout,
    server_name,
)
from pykclient.testing.cluster.jars import kafka_jars
from pykclient.testing.cluster.java import MissingPrerequisiteError, find_java
from pykclient.testing.cluster.local import format_storage
from pykclient.testing.cluster.processes import ProcessGroup, ServerProcess
from pykclient.testing.cluster.properties import dump_properties
from pykclient.testing.cluster.servers import await_ready
from pykclient.testing.fixtures import skip_or_fail
from pykclient.testing.port import LOOPBACK, Address, PortReservation
from tests.soak import NEWEST_FIRST

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.kafka

TIMEOUT_S = 60.0
PORTS = (CLIENT_PORT, INTER_BROKER_PORT, CONTROLLER_PORT)


def settings_on_this_machine(folder: str, ports: Sequence[PortReservation]) -> str:
    text = dump_properties(DockerLayout({1: Address(LOOPBACK, ports[0].port)}, {}).broker(1))
    for inner, port in zip(PORTS, ports, strict=True):
        text = text.replace(f":{inner}", f":{port.port}")
    return text.replace(server_name(1), LOOPBACK).replace(DATA_FOLDER, folder)


@pytest.mark.soak
@pytest.mark.parametrize("version", NEWEST_FIRST)
def test_a_broker_starts_with_a_containers_settings(version: str) -> None:
    try:
        found = find_java()
        java = [str(found.executable), *kafka_jars(version).java_options(found)]
    except MissingPrerequisiteError as error:
        skip_or_fail(str(error))
    deadline = Deadline(TIMEOUT_S)
    with (
        closing(ProcessGroup("pykclient-docker-settings")) as group,
        closing(PortReservation()) as first,
        closing(PortReservation()) as second,
        closing(PortReservation()) as third,
    ):
        ports = (first, second, third)
        file = group.folder / "server.properties"
        file.write_text(settings_on_this_machine(f"{group.folder}/data", ports))
        format_storage(group, java, file, deadline)
        broker = ServerProcess(
            "broker 1",
            [*java, "kafka.Kafka", str(file)],
            log=group.folder / "log",
            ports=ports,
            group=group,
        )
        broker.start()
        address = Address(LOOPBACK, first.port)
        await_ready(1, address, running=[1], watched=[broker], deadline=deadline)
