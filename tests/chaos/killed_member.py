"""`python -m tests.chaos.killed_member`: how long the partitions of a killed member stay unread.

A group of KIP-848 of two members, ours or both Java's, reads a topic under a steady load; one is
killed, and the other has its partitions when the coordinator has given it up.

Owner: the main thread; the members' output is read by threads of their own.
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
    """Kill one of two members; how long it took until all its partitions were read again."""
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
    """When a member read each partition first, in milliseconds since 1970."""
    first: dict[int, int] = {}
    for event in member.named("records_consumed"):
        for part in event["partitions"]:
            first.setdefault(part["partition"], event["timestamp"])
    return first


def _await(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, "the group does not come so far"
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
