"""A file that a setting names is read to its end, within bytes and time."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin
from pykclient.config import file_content
from pykclient.config.file_content import read_file
from pykclient.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def pipe(tmp_path: Path) -> str:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return str(path)


def test_a_file_is_read_whole_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100_000)
    assert read_file(str(path), "s", bytes_max=100_000) == b"x" * 100_000
    with pytest.raises(ConfigError, match="s has more than 99999 bytes"):
        read_file(str(path), "s", bytes_max=99_999)
    with pytest.raises(ConfigError, match="s cannot be read: no such file"):
        read_file(str(tmp_path / "none"), "s", bytes_max=1)


def test_a_pipe_is_read_to_its_end(pipe: str) -> None:
    """As a shell makes one for <(command)."""
    keeper = os.open(pipe, os.O_RDWR)

    def write() -> None:
        with open(pipe, "wb") as file:
            file.write(b"y" * 200_000)
        os.close(keeper)

    writer = threading.Thread(target=write)
    writer.start()
    assert read_file(pipe, "s", bytes_max=1_000_000) == b"y" * 200_000
    writer.join()


def test_a_pipe_that_nothing_writes_to_is_an_error_in_time(
    pipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_content, "PIPE_TIMEOUT_S", 0.05)
    with pytest.raises(ConfigError, match=r"truststore.*nothing came from it for 0\.05 seconds"):
        Admin(
            bootstrap_servers="127.0.0.1:9", security_protocol="SSL", ssl_truststore_location=pipe
        )
    keeper = os.open(pipe, os.O_RDWR)
    with pytest.raises(ConfigError, match="s cannot be read: nothing came"):
        read_file(pipe, "s", bytes_max=10)
    os.close(keeper)


def test_an_endless_device_is_cut_at_the_limit() -> None:
    with pytest.raises(ConfigError, match="more than 1000 bytes"):
        read_file("/dev/zero", "s", bytes_max=1_000)
