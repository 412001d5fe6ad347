"""The folders that Kafka servers keep their data in, made ready for a first start.

Kafka's own StorageTool formats one of them. The others get copies that differ in the two ids by
which a server knows its folder for its own; running the tool for each would take a JVM each time.

Owner: the thread that makes the cluster.
Source: Java class ``kafka.tools.StorageTool``; KIP-631 and KIP-858 (``meta.properties``).
"""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import uuid
from typing import TYPE_CHECKING

from pykclient.errors.base import KafkaTimeoutError
from pykclient.testing.cluster.processes import BrokerFailedError, tail

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pykclient.testing.cluster.process_group import ProcessGroup
    from pykclient.testing.deadline import Deadline

__all__ = ["copy_storage", "format_storage", "new_kafka_uuid"]

META_PROPERTIES = "meta.properties"


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


def new_kafka_uuid() -> str:
    """A random UUID as Kafka writes one: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
