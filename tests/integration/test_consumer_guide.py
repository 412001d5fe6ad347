"""The programs of docs/consumer.md run as they stand, are killed in the middle, and run again.

Goal: each keeps what its heading promises. Method: a program blocks when no test reads what it
prints, since a pipe holds only so much; there it is killed, with records in hand. What stands in
the pipe then was handled. It is started again as the same static member, which need not wait for
the dead one's session to end.
"""

from __future__ import annotations

import queue
import re
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, Consumer, NewTopic, Producer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient import Assignor
    from pykclient.testing import FakeKafka, KafkaCluster

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "consumer.md"
WRITTEN_ADDRESS, WRITTEN_TOPIC = "localhost:9092", '"orders"'

COUNT = 3_000
VALUE_BYTES = 100
"""Times COUNT it is more than a pipe holds."""
KILL_AFTER = (700, 100)
"""Number of lines read from a run before it is killed."""
RUN_TIMEOUT_S = 60.0
MEMBER_COUNT = 3
CHUNK, PAUSE_S = 20, 0.02
"""Number of records written at a time, and the pause between such writes."""

WORK = "            in_hand.append(pool.submit(work, consumer, record))\n"
"""Line in which a program with workers passes them a record."""
TO_THE_END = "To the end, and no further"
OWN_ASSIGNOR = "An assignor of your own"
COMMITS = "How far the group has come"

PROGRAMS = {
    COMMITS: ["workers"],
    "At most once": ["mailer"],
    "At least once": ["ledger", "archive", "watcher"],
    TO_THE_END: ["no group"],
}


def blocks(heading: str) -> list[str]:
    """Return the Python blocks under a heading."""
    section = GUIDE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def program(heading: str, group: str, servers: str, topic: str) -> str:
    """Return a program as it stands but for the cluster, the topic and the name of the member."""
    (block,) = [each for each in blocks(heading) if f'group_id="{group}"' in each]
    names = f'group_id="{group}-{topic}", group_instance_id="one"'
    return (
        block.replace(WRITTEN_ADDRESS, servers)
        .replace(WRITTEN_TOPIC, f'"{topic}"')
        .replace(f'group_id="{group}"', names)
    )


def handled(text: str, is_enough: Callable[[list[int]], bool]) -> list[int]:
    """Run a program until it has read enough, kill it, and return all records that it handled."""
    numbers: list[int] = []
    with subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, cwd=ROOT, text=True
    ) as process:
        watchdog = threading.Timer(RUN_TIMEOUT_S, process.kill)
        watchdog.start()
        assert process.stdout is not None
        while not is_enough(numbers):
            line = process.stdout.readline()
            assert line, f"it ended, or took longer than {RUN_TIMEOUT_S} s: {len(numbers)} lines"
            numbers.append(int(line))
        process.kill()
        rest = process.stdout.readlines()
        watchdog.cancel()
    # The last line may be cut off.
    return numbers + [int(line) for line in rest if len(line) == VALUE_BYTES + 1]


def behind_the_first_left_out(seen: list[int], partition: int) -> range:
    """Return the first record of a partition that was not handled, and all behind it."""
    left_out = set(range(partition, COUNT, 2)).difference(seen)
    return range(min(left_out, default=COUNT), COUNT, 2)


def so_many(count: int) -> Callable[[list[int]], bool]:
    """Enough are `count`."""
    return lambda read: len(read) == count


@pytest.fixture(
    params=[
        pytest.param("fake", marks=pytest.mark.soak),
        pytest.param("real", marks=pytest.mark.kafka),
    ]
)
def servers(request: pytest.FixtureRequest) -> str:
    if request.param == "fake":
        fake: FakeKafka = request.getfixturevalue("fake_kafka")
        return fake.bootstrap_servers
    real: KafkaCluster = request.getfixturevalue("kafka_cluster")
    return real.bootstrap_servers


@pytest.fixture
def topic(servers: str) -> str:
    """Provide a topic of two partitions with numbered records."""
    name = f"orders-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(name, 2, 1)])
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(COUNT):
            producer.send(name, f"{number:0{VALUE_BYTES}}".encode(), partition=number % 2)
    return name


@pytest.mark.promise(
    "the guide's programs keep at most once and at least once when killed while processing"
)
def test_at_most_once_handles_nothing_twice(servers: str, topic: str) -> None:
    text = program("At most once", "mailer", servers, topic)
    runs = [handled(text, so_many(most)) for most in KILL_AFTER]
    counts = Counter(number for run in runs for number in run)
    assert set(counts.values()) == {1}


@pytest.mark.promise(
    "the guide's programs keep at most once and at least once when killed while processing"
)
@pytest.mark.parametrize(
    ("heading", "group"),
    [(COMMITS, "workers"), *(("At least once", group) for group in PROGRAMS["At least once"])],
)
def test_at_least_once_handles_everything(
    servers: str, topic: str, heading: str, group: str
) -> None:
    text = program(heading, group, servers, topic).replace(
        "enable_auto_offset_store=False",
        "enable_auto_offset_store=False, auto_commit_interval_ms=0",
    )
    everything = set(range(COUNT))
    seen: set[int] = set()
    for most in KILL_AFTER:
        seen.update(handled(text, so_many(most)))
    assert seen < everything
    seen.update(handled(text, lambda read: everything <= seen.union(read)))
    assert seen == everything


def test_what_is_read_to_the_end_is_everything(servers: str, topic: str) -> None:
    (block,) = blocks(TO_THE_END)
    text = block.replace(WRITTEN_ADDRESS, servers).replace(WRITTEN_TOPIC, f'"{topic}"')
    done = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=RUN_TIMEOUT_S,
        check=True,
    )
    assert sorted(map(int, done.stdout.splitlines())) == list(range(COUNT))


@pytest.mark.parametrize(
    ("heading", "group", "line", "value"),
    [
        ("At least once", "archive", "        print(value.decode(), flush=True)\n", "value"),
        ("At least once", "watcher", "        print(value.decode(), flush=True)\n", "value"),
        (COMMITS, "workers", WORK, "record.value"),
    ],
    ids=["archive", "watcher", "workers"],
)
def test_what_was_in_hand_at_an_exception_is_handled_by_the_next_run(
    servers: str, topic: str, heading: str, group: str, line: str, value: str
) -> None:
    """In the midst of a batch; what came before is not handled again.

    The workers take records while the rest is dropped, so one may handle a record behind the first
    that was dropped: that one is handled again, as all are that come behind.
    """
    text = program(heading, group, servers, topic)
    assert line in text
    indent = " " * (len(line) - len(line.lstrip()))
    check = f"{indent}if int({value}) == {COUNT // 2}:\n{indent}    raise LookupError\n"
    failing = text.replace(line, check + line)
    done = subprocess.run(
        [sys.executable, "-c", failing],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=RUN_TIMEOUT_S,
    )
    assert "LookupError" in done.stderr
    first = [int(line) for line in done.stdout.splitlines()]
    assert COUNT // 2 not in first
    second = handled(text, lambda read: len(set(first).union(read)) == COUNT)
    again = [behind_the_first_left_out(first, partition) for partition in range(2)]
    assert set(second) <= set().union(*again)


@pytest.mark.parametrize(
    ("heading", "group"),
    [("At most once", "mailer"), ("At least once", "ledger"), ("At least once", "archive")],
)
def test_members_that_come_while_others_read_take_and_leave_nothing_out(
    servers: str, topic: str, heading: str, group: str
) -> None:
    """With cooperative rebalances a member reads on while commits are refused."""
    text = program(heading, group, servers, topic).replace(
        ', group_instance_id="one"',
        ', partition_assignment_strategy="cooperative-sticky", heartbeat_interval_ms=100',
    )
    numbers: queue.Queue[int] = queue.Queue()
    seen: Counter[int] = Counter()
    sent_count = COUNT
    with (
        ExitStack() as members,
        Producer(bootstrap_servers=servers) as producer,
        Admin(bootstrap_servers=servers) as admin,
    ):
        for member_count in range(1, MEMBER_COUNT + 1):
            members.enter_context(running(text, numbers))
            while not is_shared_by(admin, f"{group}-{topic}", member_count):
                for number in range(sent_count, sent_count + CHUNK):
                    producer.send(topic, f"{number:0{VALUE_BYTES}}".encode(), partition=number % 2)
                producer.flush()
                sent_count += CHUNK
                time.sleep(PAUSE_S)
        while len(seen) < sent_count:
            seen[numbers.get(timeout=RUN_TIMEOUT_S)] += 1
    assert set(seen) == set(range(sent_count))
    if heading == "At most once":
        assert set(seen.values()) == {1}


def is_shared_by(admin: Admin, group: str, member_count: int) -> bool:
    """Return whether a group has this number of members and has assigned its partitions."""
    if group not in admin.list_groups(states=["Stable"]):
        return False
    return len(admin.describe_groups([group])[group].members) == member_count


@contextmanager
def running(text: str, numbers: queue.Queue[int]) -> Iterator[None]:
    """Run a program whose numbers go into a queue, until the block ends."""
    with subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, cwd=ROOT, text=True
    ) as process:
        assert process.stdout is not None
        output = process.stdout

        def read() -> None:
            for line in output:
                # The last line may be cut off by the end.
                if len(line) == VALUE_BYTES + 1:
                    numbers.put(int(line))

        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield
        finally:
            process.kill()
            reader.join()


def test_an_assignor_of_ones_own_assigns_by_weight(
    fake_kafka: FakeKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = blocks(OWN_ASSIGNOR)
    names: dict[str, Callable[[int], Assignor]] = {}
    exec(block, names)  # the guide is ours
    servers = fake_kafka.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic("orders", 4, 1)])
    with ExitStack() as members:
        consumers = [
            members.enter_context(
                Consumer(
                    bootstrap_servers=servers,
                    group_id="weighed",
                    heartbeat_interval_ms=100,
                    partition_assignment_strategy=[names["ByWeight"](weight)],
                )
            )
            for weight in (1, 3)
        ]
        for consumer in consumers:
            consumer.subscribe(["orders"])
        deadline = time.monotonic() + RUN_TIMEOUT_S
        while [len(consumer.assignment()) for consumer in consumers] != [1, 3]:
            assert time.monotonic() < deadline
            for consumer in consumers:
                consumer.poll(0.1)
    # The members' ids, by chance, say which of them is first.
    wanted = r"weight 3 of 4: (orders-0 orders-1 orders-2|orders-1 orders-2 orders-3)\n"
    assert re.search(wanted, capsys.readouterr().out)


def test_every_program_of_the_guide_is_run() -> None:
    for heading, groups in PROGRAMS.items():
        assert len(blocks(heading)) == len(groups)
