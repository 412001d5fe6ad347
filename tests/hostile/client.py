"""A client's calls in a process of its own, with what each costs: its time, CPU and memory.

Run as ``python -m tests.hostile.client`` it reads one order per line, JSON, and writes one report.

Owner: the process itself.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import logging
import re
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pykclient import Admin, ConfigResource, ConfigResourceType, Consumer, Producer, TopicPartition
from pykclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pykclient.consumer.record import ConsumerRecord

TIMEOUT_MS: Final = 300
"""Timeout of a call, unless the order has another; a request has two thirds of it."""
HANGS_AFTER_S: Final = 15
"""A call that goes on for so long after its time is stuck: its process ends, with its stacks."""

TOPIC: Final = "t"
PARTITION: Final = TopicPartition(TOPIC, 0)

Settings = dict[str, Any]


def list_topics(settings: Settings, timeout_ms: int) -> object:
    with Admin(**settings, default_api_timeout_ms=timeout_ms) as admin:
        return len(admin.list_topics())


def send(settings: Settings, timeout_ms: int) -> object:
    with Producer(
        **settings, max_block_ms=timeout_ms, delivery_timeout_ms=timeout_ms, linger_ms=0
    ) as producer:
        return producer.send(TOPIC, b"value").result(timeout=timeout_ms / 500).offset


def _consumer(settings: Settings, timeout_ms: int, **own: Any) -> Consumer[Any, Any]:
    return Consumer(
        **settings,
        **{"default_api_timeout_ms": timeout_ms, **own},
        fetch_max_wait_ms=timeout_ms // 3,
        auto_offset_reset="earliest",
    )


def _count(records: Iterable[ConsumerRecord[Any, Any]]) -> int:
    """Read each record whole."""
    return sum(1 for record in records if (record.value, record.key, record.headers))


def poll(settings: Settings, timeout_ms: int) -> object:
    """Read committed records of a partition, some more of those that follow."""
    with _consumer(settings, timeout_ms, isolation_level="read_committed") as consumer:
        consumer.assign([PARTITION])
        return _count(consumer.poll(timeout=timeout_ms / 1_000))


def poll_arrow(settings: Settings, timeout_ms: int) -> object:
    with _consumer(settings, timeout_ms) as consumer:
        consumer.assign([PARTITION])
        return consumer.poll_arrow(timeout=timeout_ms / 1_000).num_rows


def end_offsets(settings: Settings, timeout_ms: int) -> object:
    with _consumer(settings, timeout_ms) as consumer:
        return consumer.end_offsets([PARTITION])[PARTITION]


def join(settings: Settings, timeout_ms: int) -> object:
    """Be a member of a group."""
    with _consumer(settings, timeout_ms, group_id="g", enable_auto_commit=False) as consumer:
        consumer.subscribe([TOPIC])
        return _count(consumer.poll(timeout=timeout_ms / 1_000))


def join_kip848(settings: Settings, timeout_ms: int) -> object:
    with _consumer(
        settings,
        timeout_ms,
        group_id="g",
        group_protocol="consumer",
        enable_auto_commit=False,
        # Longer than the poll: partitions that metadata do not list are no error within it.
        default_api_timeout_ms=timeout_ms * 10,
    ) as consumer:
        consumer.subscribe([TOPIC])
        return _count(consumer.poll(timeout=timeout_ms / 1_000))


def committed(settings: Settings, timeout_ms: int) -> object:
    with _consumer(settings, timeout_ms, group_id="g") as consumer:
        return str(consumer.committed([PARTITION])[PARTITION])


def describe_configs(settings: Settings, timeout_ms: int) -> object:
    topic = ConfigResource(ConfigResourceType.TOPIC, TOPIC)
    with Admin(**settings, default_api_timeout_ms=timeout_ms) as admin:
        found = admin.describe_configs([topic], include_synonyms=True, include_documentation=True)
        return len(found[topic])


def list_groups(settings: Settings, timeout_ms: int) -> object:
    with Admin(**settings, default_api_timeout_ms=timeout_ms) as admin:
        return len(admin.list_groups())


def describe_groups(settings: Settings, timeout_ms: int) -> object:
    with Admin(**settings, default_api_timeout_ms=timeout_ms) as admin:
        return len(admin.describe_groups(["g"])["g"].members)


def list_group_offsets(settings: Settings, timeout_ms: int) -> object:
    with Admin(**settings, default_api_timeout_ms=timeout_ms) as admin:
        return len(admin.list_group_offsets("g"))


def describe_producers(settings: Settings, timeout_ms: int) -> object:
    with Admin(**settings, default_api_timeout_ms=timeout_ms) as admin:
        return len(admin.describe_producers([PARTITION])[PARTITION])


def list_transactions(settings: Settings, timeout_ms: int) -> object:
    with Admin(**settings, default_api_timeout_ms=timeout_ms) as admin:
        return len(admin.list_transactions())


def describe_transactions(settings: Settings, timeout_ms: int) -> object:
    with Admin(**settings, default_api_timeout_ms=timeout_ms) as admin:
        return len(admin.describe_transactions(["x"])["x"].partitions)


CALLS: Final[dict[str, Callable[[Settings, int], object]]] = {
    call.__name__: call
    for call in (
        *(list_topics, send, poll, poll_arrow, end_offsets, join, join_kip848, committed),
        *(describe_configs, list_groups, describe_groups, list_group_offsets),
        *(describe_producers, list_transactions, describe_transactions),
    )
}  # fmt: skip


def memory_kb(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def report(order: dict[str, Any]) -> dict[str, Any]:
    """Make the call; return how it ended and what it cost."""
    faulthandler.dump_traceback_later(order["timeout_ms"] / 1_000 + HANGS_AFTER_S, exit=True)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted anew from now
    before_kb = memory_kb("VmRSS")
    cpu_s, begun_s = cpu_seconds(), time.monotonic()
    ended: dict[str, Any] = {"error": None, "is_ours": False, "text": ""}
    try:
        ended["text"] = str(CALLS[order["call"]](order["settings"], order["timeout_ms"]))
    except Exception as error:  # noqa: BLE001 - which error it is, is what is looked at
        ended["error"] = [kind.__name__ for kind in type(error).__mro__]
        ended["is_ours"] = isinstance(error, KafkaError)
        ended["text"] = str(error)
    faulthandler.cancel_dump_traceback_later()
    return {
        **ended,
        "seconds": time.monotonic() - begun_s,
        "cpu_seconds": cpu_seconds() - cpu_s,
        "growth_kb": memory_kb("VmHWM") - before_kb,
    }


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    logging.disable(logging.CRITICAL)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(report(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
