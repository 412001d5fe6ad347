"""`python -m tests.chaos.killed_member`: measure how long a killed member's partitions stay unread.

Two members of a KIP-848 group, ours or both Java's, read a topic under steady load. One is killed;
the other gets its partitions when the coordinator has fenced it.

Owner: the main thread; other threads read the members' output.
"""

from __future__ import annotations

import argparse
import sys
import time
import uuid
from typing import TYPE_CHECKING, Final

from pykclient import Admin, NewTopic
from pykclient.testing import KafkaCluster
from tests.chaos.load import Load
from tests.integration.verifiable_member import VerifiableMember

if TYPE_CHECKING:
    from collections.abc import Callable

PARTITION_COUNT: Final = 6
TIMEOUT_S: Final = 120.0
LOOK_S: Final = 0.02
MS_PER_S: Final = 1_000


def unread_s(kafka: KafkaCluster, *, is_java: bool) -> float:
    """Kill one of two members; return the time until all its partitions are read again."""
    topic = f"killed-{uuid.uuid4().hex[:8]}"
    servers = kafka.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, PARTITION_COUNT, 1)])
    options = (
        *("--topic", topic, "--group-id", topic, "--group-protocol", "consumer"),
        *("--reset-policy", "earliest"),
    )
    version = kafka.version if is_java else None
    load = Load(servers, topic)
    try:
        with (
            VerifiableMember(servers, *options, java_version=version) as survivor,
            VerifiableMember(servers, *options, java_version=version) as killed,
        ):
            half = PARTITION_COUNT // 2
            _await(lambda: len(survivor.assigned()) == len(killed.assigned()) == half)
            load.start()
            lost = {partition.partition for partition in killed.assigned()}
            _await(lambda: lost <= _first_read_ms(killed).keys())
            killed.kill()
            killed_ms = time.time() * MS_PER_S
            _await(lambda: lost <= _first_read_ms(survivor).keys())
            first_ms = _first_read_ms(survivor)
            return (max(first_ms[each] for each in lost) - killed_ms) / MS_PER_S
    finally:
        load.stop()


def _first_read_ms(member: VerifiableMember) -> dict[int, int]:
    """Return when a member first read each partition, in ms since 1970."""
    first: dict[int, int] = {}
    for event in member.named("records_consumed"):
        for part in event["partitions"]:
            first.setdefault(part["partition"], event["timestamp"])
    return first


def _await(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, "the group makes no progress"
        time.sleep(LOOK_S)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.killed_member")
    parser.add_argument("--session-ms", type=int, default=10_000)
    parser.add_argument("--heartbeat-ms", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    settings = {
        f"group.consumer.{bound}{name}": value
        for name, value in (
            ("session.timeout.ms", options.session_ms),
            ("heartbeat.interval.ms", options.heartbeat_ms),
        )
        for bound in ("", "min.")
    }
    with KafkaCluster(config=settings) as kafka:
        for _ in range(options.rounds):
            for is_java in (False, True):
                seconds = unread_s(kafka, is_java=is_java)
                sys.stdout.write(f"{'java' if is_java else 'ours'}: {seconds:.1f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
