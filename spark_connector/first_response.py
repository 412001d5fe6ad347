"""The first response of brokers to a write: without one the address is wrong, and the write fails.

Tasks of a batch write and of a query's first batch wait for it ten seconds, those of a later batch
as long as for every other response. Each attempt of each task would wait on its own, so the driver
looks first. Where it gets no response, tasks wait for a second: they may reach brokers that the
driver does not reach, and a task knows the number of its batch, which a plan does not.

Owner: the process in which Spark plans writes, one after the other.
Source: Spark's class ``MicroBatchExecution``: the log of offsets has a batch before it is planned,
the log of commits has it when it has finished.
"""

from __future__ import annotations

import hmac
import json
import logging
from contextlib import suppress
from secrets import token_bytes
from typing import TYPE_CHECKING, Final

from pykclient import Admin
from pykclient.admin.config import AdminConfig
from pykclient.errors import BrokerError, KafkaError, KafkaTimeoutError, UsageError
from spark_connector.checkpoint.checkpoint import COMMITS, OFFSETS, local_folder
from spark_connector.exactly_once.names import RECORD_TOPIC

if TYPE_CHECKING:
    from spark_connector.client_settings import ClientSettings

_LOG = logging.getLogger(__name__)

SETTINGS_MAX: Final = 1_000
"""Settings that a process remembers; then it starts over."""

_DIGEST_KEY: Final = token_bytes(32)
_responded: Final[set[bytes]] = set()
"""Digests of the settings with which brokers have responded to this process. The settings may have
secrets, which would stay in memory for as long as the process."""


def has_first_response(client: ClientSettings, timeout_s: float) -> bool:
    """Return False if no broker responds in time; once one has, return True without a request.

    Other errors are left to the tasks, which may have other files.
    """
    key = _digest(client)
    if key in _responded:
        return True
    try:
        with Admin(client.of(AdminConfig)) as admin, suppress(BrokerError):  # a response, too
            admin.describe_topics([RECORD_TOPIC], timeout_s)
    except KafkaTimeoutError as error:
        _LOG.warning("No broker has responded to the driver before a write: %s", error)
        return False
    except KafkaError:
        return True
    if len(_responded) >= SETTINGS_MAX:
        _responded.clear()
    _responded.add(key)
    return True


def _digest(client: ClientSettings) -> bytes:
    """Return a digest of the settings, from which no secret can be guessed without the key."""
    given = json.dumps(sorted(client.given.items())).encode()
    return hmac.digest(_DIGEST_KEY, given, "sha256")


def is_first_batch(checkpoint: str) -> bool:
    """Return True if a checkpoint shows that its query has not finished a batch yet.

    That takes a checkpoint on this machine with the first batch, which is logged before it is
    planned. An empty text means no checkpoint.
    """
    try:
        folder = local_folder(checkpoint) if checkpoint else None
    except UsageError:
        return False  # a remote store
    return folder is not None and (
        (folder / OFFSETS / "0").is_file()
        and not (folder / OFFSETS / "1").exists()
        and not (folder / COMMITS / "0").exists()
    )
