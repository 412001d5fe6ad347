"""The sockets of fake brokers: clients that go before they are served, ports that are taken."""

from __future__ import annotations

import os
import socket
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin
from pykclient.testing import FakeKafka
from pykclient.testing.fake.data_directory import DataDirectory

if TYPE_CHECKING:
    from pykclient.testing.fake.state import ClusterState

RESET_AT_CLOSE = struct.pack("ii", 1, 0)
DESCRIPTORS = Path("/proc/self/fd")


def test_a_client_that_resets_its_connection_before_it_is_accepted_ends_nothing() -> None:
    with FakeKafka() as fake:
        host, port = fake.bootstrap_servers.split(":")
        with fake.control():  # meanwhile nothing is accepted
            for _ in range(3):
                with socket.create_connection((host, int(port))) as client:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
        with Admin(bootstrap_servers=fake.bootstrap_servers) as admin:
            assert admin.list_topics(timeout=10) == {}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a port is bound once")
def test_a_port_that_is_taken_while_the_folder_is_read_is_named_and_all_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restore = DataDirectory.restore
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]

        def restore_late(directory: DataDirectory, cluster: ClusterState) -> None:
            restore(directory, cluster)
            other.listen()

        before = len(os.listdir(DESCRIPTORS))
        reason = rf"127\.0\.0\.1:{port} cannot be listened at: .*choose"
        with monkeypatch.context() as patch:
            patch.setattr(DataDirectory, "restore", restore_late)
            with pytest.raises(OSError, match=reason):
                FakeKafka(port=port, data=tmp_path)
        assert len(os.listdir(DESCRIPTORS)) == before
    with FakeKafka(port=port, data=tmp_path):
        pass  # the folder is free again
