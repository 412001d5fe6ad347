"""Members of a KIP-848 group that join, leave, stall and die at random.

Goal: no partition has two owners, no epoch goes back, and in the end each partition has exactly one
owner. Method: hypothesis chooses the events; clients behave like Kafka's.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pykclient.testing import FakeCluster, GroupSettings
from pykclient.testing.fake.groups.kip848.group import ConsumerGroup
from tests.testing.fake.groups.kip848_client import GROUP, Kip848Client

TOPICS = ("t", "u", "late")
SUBSCRIPTIONS = st.lists(st.sampled_from(TOPICS), unique=True, max_size=3)
REGEXES = st.sampled_from([None, None, "t|late", "u.*", ".*[te]"])
MEMBER_COUNT_MAX = 5
QUIET_ROUNDS_MAX = 40


class Group(RuleBasedStateMachine):
    """A group in a cluster."""

    @initialize(assignor=st.sampled_from(["uniform", "range"]))
    def start(self, assignor: str) -> None:
        self.cluster = FakeCluster(
            3, group_settings=GroupSettings(group_consumer_assignment_interval_ms=1_000)
        )
        self.cluster.create_topic("t", 4)
        self.cluster.create_topic("u", 3)
        self.assignor = assignor
        self.clients: list[Kip848Client] = []
        self.member_count = 0
        self.followed_group: ConsumerGroup | None = None
        self.group_epoch = 0
        self.member_epochs: dict[str, int] = {}

    @property
    def group(self) -> ConsumerGroup | None:
        group = self.cluster.groups.find(GROUP)
        assert group is None or isinstance(group, ConsumerGroup)
        return group

    def chosen(self, number: int) -> Kip848Client:
        return self.clients[number % len(self.clients)]

    @precondition(lambda self: len(self.clients) < MEMBER_COUNT_MAX)
    @rule(topics=SUBSCRIPTIONS, regex=REGEXES, is_static=st.booleans())
    def join(self, topics: list[str], regex: str | None, is_static: bool) -> None:
        self.member_count += 1
        number = self.member_count
        client = Kip848Client(
            self.cluster,
            f"m{number}",
            topics,
            regex=regex,
            instance_id=f"i{number}" if is_static else None,
            assignor=self.assignor,
        )
        self.clients.append(client)
        client.beat()

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 9), has_response=st.booleans())
    def beat(self, number: int, has_response: bool) -> None:
        client = self.chosen(number)
        client.beat(has_response=has_response)

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 9))
    def reconcile(self, number: int) -> None:
        self.chosen(number).reconcile()

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 9), topics=SUBSCRIPTIONS)
    def subscribe(self, number: int, topics: list[str]) -> None:
        client = self.chosen(number)
        if client.epoch > 0:
            client.subscribe(topics)

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 9))
    def leave(self, number: int) -> None:
        client = self.chosen(number)
        client.leave()
        self.clients.remove(client)

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 9))
    def die(self, number: int) -> None:
        self.clients.remove(self.chosen(number))

    @precondition(lambda self: any(client.instance_id for client in self.clients))
    @rule(number=st.integers(0, 9))
    def restart_static(self, number: int) -> None:
        static = [client for client in self.clients if client.instance_id and client.epoch > 0]
        if not static:
            return
        client = static[number % len(static)]
        client.leave(-2)
        self.member_count += 1
        client.member_id = f"m{self.member_count}"
        client.beat()

    @rule(duration_ms=st.sampled_from([1, 1_000, 5_000, 20_000, 45_000]))
    def pass_time(self, duration_ms: int) -> None:
        self.cluster.advance(self.cluster.now_ms + duration_ms)

    @rule()
    def create_or_delete_topic(self) -> None:
        if "late" in self.cluster.topics:
            self.cluster.delete_topic("late")
        else:
            self.cluster.create_topic("late", 2)

    @rule(broker_id=st.integers(0, 2))
    def move_coordinator(self, broker_id: int) -> None:
        self.cluster.move_coordinator(0, GROUP, broker_id)

    @invariant()
    def no_partition_has_two_members(self) -> None:
        if self.group is None:
            return
        known = {member.member_id for member, _ in self.group.member_targets()}
        owners = Counter(
            name for client in self.clients if client.member_id in known for name in client.owned
        )
        assert all(count == 1 for count in owners.values())

    @invariant()
    def no_epoch_goes_back(self) -> None:
        if self.group is None:
            return
        if self.group is not self.followed_group:  # an empty group expired, and was recreated
            self.followed_group, self.group_epoch, self.member_epochs = self.group, 0, {}
        assert self.group.epoch >= self.group_epoch
        assert self.group.target_epoch <= self.group.epoch
        self.group_epoch = self.group.epoch
        for member, _ in self.group.member_targets():
            assert self.member_epochs.get(member.member_id, 0) <= member.epoch <= self.group_epoch
            self.member_epochs[member.member_id] = member.epoch

    def teardown(self) -> None:
        """Settle the group; then each subscribed partition has exactly one owner."""
        if not hasattr(self, "clients") or not self.clients:
            return
        for _ in range(QUIET_ROUNDS_MAX):
            self.cluster.advance(self.cluster.now_ms + 5_000)
            for client in self.clients:
                client.settle()
                self.no_partition_has_two_members()
        self.no_epoch_goes_back()
        group = self.group
        assert group is not None
        assert group.state_name == "Stable"
        owners = Counter(name for client in self.clients for name in client.owned)
        wanted = {
            (topic.topic_id, partition.name.partition)
            for topic in self.cluster.topics.values()
            if group.is_subscribed_to(topic.name)
            for partition in topic.partitions
        }
        assert owners == dict.fromkeys(wanted, 1)


Group.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestGroup = Group.TestCase
