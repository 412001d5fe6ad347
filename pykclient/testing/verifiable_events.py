"""Events that the verifiable clients of Kafka's system tests print, one JSON object a line.

Owner: any thread may report; lines do not mix.
Source: Java classes ``VerifiableConsumer``, ``VerifiableProducer``.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Final

NS_PER_MS: Final = 1_000_000

_lock = threading.Lock()


def report(name: str, **fields: object) -> None:
    """Print an event and flush."""
    event = {"timestamp": time.time_ns() // NS_PER_MS, "name": name, **fields}
    with _lock:
        sys.stdout.write(f"{json.dumps(event)}\n")
        sys.stdout.flush()
