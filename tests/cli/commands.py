"""Runs commands in this process, and reads what they print."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, NamedTuple

from pykclient.cli import main
from pykclient.cli.cluster_options import BOOTSTRAP_VARIABLE

if TYPE_CHECKING:
    import pytest


class Result(NamedTuple):
    """The outcome of a command: its exit status, stdout and stderr."""

    status: int
    output: bytes
    complaint: str

    @property
    def lines(self) -> list[str]:
        return self.output.decode().splitlines()


class Commands:
    """Runs commands against the cluster at `servers`."""

    def __init__(
        self,
        servers: str,
        capture: pytest.CaptureFixture[bytes],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self._capture = capture
        self._monkeypatch = monkeypatch
        monkeypatch.setenv(BOOTSTRAP_VARIABLE, servers)

    def __call__(self, *arguments: object, given: bytes = b"") -> Result:
        """Run a command with `given` at its standard input."""
        self._capture.readouterr()
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        try:
            status = main([str(each) for each in arguments])
        except SystemExit as end:  # of argparse, with its status
            status = int(end.code or 0)
        output, complaint = self._capture.readouterr()
        return Result(status, output, complaint.decode())

    def printed(self, *arguments: object, given: bytes = b"") -> list[str]:
        """Run a command that ends well; the lines that it prints."""
        result = self(*arguments, given=given)
        assert (result.status, result.complaint) == (0, "")
        return result.lines
