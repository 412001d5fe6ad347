"""The sockets of fake brokers: clients that leave early, ports that are in use."""

from __future__ import annotations

import logging
import os
import socket
import struct
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pykclient import Admin
from pykclient.testing import FakeKafka
from pykclient.testing.fake import server
from pykclient.testing.fake.data_directory import DataDirectory

if TYPE_CHECKING:
    from pykclient.testing.fake.state import ClusterState

RESET_AT_CLOSE = struct.pack("ii", 1, 0)
DESCRIPTORS = Path("/proc/self/fd")


def test_a_client_that_resets_its_connection_before_it_is_accepted_ends_nothing() -> None:
    with FakeKafka() as fake:
        host, port = fake.bootstrap_servers.split(":")
        with fake.control():  # nothing is accepted meanwhile
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
        reason = rf"cannot listen on 127\.0\.0\.1:{port}: .*choose"
        with monkeypatch.context() as patch:
            patch.setattr(DataDirectory, "restore", restore_late)
            with pytest.raises(OSError, match=reason):
                FakeKafka(port=port, data=tmp_path)
        assert len(os.listdir(DESCRIPTORS)) == before
    with FakeKafka(port=port, data=tmp_path):
        pass  # the folder is unlocked again


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere select itself obeys the limit")
def test_without_descriptors_connections_wait_and_are_served_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import resource

    caplog.set_level(logging.WARNING, "pykclient.testing")
    tried = threading.Semaphore(0)
    accept = server._Listener.accept

    def counted(*arguments: Any) -> tuple[socket.socket, str] | None:
        try:
            return accept(*arguments)
        finally:
            tried.release()

    monkeypatch.setattr(server._Listener, "accept", counted)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with FakeKafka() as fake:
        host, port = fake.bootstrap_servers.split(":")
        with fake.control(), socket.socket() as client:  # set the limit before it is accepted
            client.connect((host, int(port)))
            started_s = time.monotonic()
            # Not below the number of open ones: poll(2) would fail in other threads.
            resource.setrlimit(resource.RLIMIT_NOFILE, (client.fileno(), limits[1]))
        try:
            attempts = 3
            assert all(tried.acquire(timeout=10) for _ in range(attempts))
            rested_ms = (time.monotonic() - started_s) * 1_000
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        # A selector may return a fraction of a millisecond early.
        assert rested_ms >= (attempts - 1) * (server.REST_MS - 1), "it retried without rest"
        with Admin(bootstrap_servers=fake.bootstrap_servers) as admin:
            assert admin.list_topics(timeout=10) == {}
    (message,) = caplog.messages
    assert "Too many open files; close open files or connections, or raise" in message
